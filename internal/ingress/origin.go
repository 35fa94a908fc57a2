package ingress

import (
	"net/http"
	"net/netip"
)

// The headers by which one part of the node tells another for whom it asks: the
// address of the client, and a capability that shows that it is a part. The
// gateway never passes on what a client writes there.
const (
	ClientHeader  = "Micronode-Client"
	VoucherHeader = "Micronode-Voucher"
)

// What the capability of a part covers: a scope that the parts of a node have,
// and nobody but who may do everything anyway, at a path where nothing is. So one
// that is made for this is good for nothing else.
const (
	VoucherScope = "admin"
	VoucherPath  = "/part/client"
)

// Origin is the address of the client for whom a request was made: what another
// part of the node says, if it is one, and otherwise that of the connection. It
// is for fairness between clients; nobody may do more because of it.
func Origin(r *http.Request) netip.Addr {
	c := callOf(r.Context())
	if c == nil {
		return netip.Addr{}
	}
	told := r.Header[ClientHeader]
	if len(told) != 1 {
		return c.client
	}
	at, err := netip.ParseAddr(told[0])
	if err != nil || !c.fromPart(r) {
		return c.client
	}
	return at
}

// fromPart reports whether another part of the node sent the request. On the
// local socket the kernel vouches for it.
func (c *call) fromPart(r *http.Request) bool {
	if c.listener.options.Local {
		return true
	}
	tokens := r.Header[VoucherHeader]
	return len(tokens) == 1 && tokens[0] != "" && c.server.allow(r.Context(), Ask{
		Scope: VoucherScope, Token: tokens[0], Method: r.Method, Path: VoucherPath, ClientIP: c.client, Loopback: c.listener.loopback,
	}) == nil
}
