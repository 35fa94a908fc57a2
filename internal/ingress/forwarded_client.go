package ingress

import (
	"net/http"
	"net/netip"
)

// The headers by which one part of the node forwards the client of a request to
// another: the address of the client, and a capability that proves that the
// sender is a part. The gateway never passes on these headers of a client.
const (
	ClientHeader  = "Micronode-Client"
	VoucherHeader = "Micronode-Voucher"
)

// AnonymousHeader is how the gateway tells a part that the caller showed no
// credentials. A client that sets it itself only loses rights.
const AnonymousHeader = "Micronode-Anonymous"

// StrangerHeader is how the gateway tells a part that the request was accepted
// only because its route is public. A client that sets it itself only loses
// rights.
const StrangerHeader = "Micronode-Stranger"

// The scope and path of a part's own token. The path has no route, so the token
// grants nothing else.
const (
	VoucherScope = "admin"
	VoucherPath  = "/part/client"
)

// ForwardedClient is the address of the client for whom a request was made: the
// forwarded one, if another part of the node sent it, and otherwise that of the
// connection. It is for fairness between clients; it grants no rights.
func ForwardedClient(r *http.Request) netip.Addr {
	c := callOf(r.Context())
	if c == nil {
		return netip.Addr{}
	}
	forwarded := r.Header[ClientHeader]
	if len(forwarded) != 1 {
		return c.client
	}
	at, err := netip.ParseAddr(forwarded[0])
	if err != nil || !c.isFromPart(r) {
		return c.client
	}
	return at
}

// ShareKey is the client of a request for the accounting of shares: the address
// of ForwardedClient, or the network that an IPv6 client can pick its addresses
// from. It is invalid for a client without an address: the node's own user.
func ShareKey(r *http.Request) netip.Addr {
	return clientNetwork(ForwardedClient(r).Unmap())
}

// isFromPart reports whether another part of the node sent the request. On the
// local socket the kernel vouches for it.
func (c *call) isFromPart(r *http.Request) bool {
	if c.listener.options.Local {
		return true
	}
	tokens := r.Header[VoucherHeader]
	return len(tokens) == 1 && tokens[0] != "" && c.server.authorise(r.Context(), AuthRequest{
		Scope: VoucherScope, Token: tokens[0], Method: r.Method, Path: VoucherPath, ClientIP: c.client, Loopback: c.onLoopback(),
	}) == nil
}
