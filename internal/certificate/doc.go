// Package certificate obtains certificates by ACME (RFC 8555), keeps them, and
// renews them while the node runs.
//
// One task does all of it: [Source.Serve] obtains a certificate for each name
// that has none, or whose certificate has used two thirds of its time, and then
// sleeps until the next one is due. Handshakes never wait for it: they take
// what is there. What cannot be had is a [State] with the cause, and is tried
// again after a pause that grows; an authority that asks for a longer pause gets
// it.
//
// A name is proved by TLS-ALPN-01 at the listener with TLS and by HTTP-01 at
// the one without, in turn, so that a node of which only one is reachable gets
// its certificate too. Wildcards need DNS, which is left to the operator.
//
// # What it refuses to do
//
// It speaks no ACME of its own: golang.org/x/crypto/acme does. It starts no
// goroutine, obtains nothing during a handshake, and asks for no OCSP response:
// most authorities have none any more. It writes only to the folder that it is given.
package certificate
