package ingress

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"micronode/fault"
)

// AuthRequest is what the authoriser decides on before anything is queued. A
// read has no Scope; whether reads are open depends on where the caller comes
// from, and the authoriser decides that.
type AuthRequest struct {
	Scope    string
	Narrow   bool   // a scope that is narrowed to one thing will do: the handler calls AuthoriseNarrowed
	Recheck  bool   // the request was accepted before; only whether it may go on is checked, and no rate is spent
	Token    string // of Authorization: Bearer, or empty; never logged
	Method   string
	Path     string // decoded
	Topic    string // if the route is about one
	ClientIP netip.Addr
	Loopback bool // the listener is on loopback, and no proxy passed the request on
	Inside   bool // a read that shows the inside of the node: being on loopback is not enough
	Local    bool // the local socket
	Verified bool // the client showed a certificate of client_ca
	Public   bool // a read that http.public opens to everybody
}

// Authorise decides. A refusal is fault.Unauthorized or fault.Forbidden, or
// fault.QuotaExceeded and fault.RateLimited for a capability with a rate.
type Authorise func(ctx context.Context, ask AuthRequest) error

// authRequest makes the AuthRequest of a request.
func (m *mountedRoute) authRequest(c *call, r *http.Request) AuthRequest {
	auth := AuthRequest{
		Scope: m.route.Scope, Narrow: m.route.Narrow, Token: Bearer(r.Header), Method: r.Method, Path: r.URL.Path, ClientIP: c.client,
		Loopback: c.onLoopback(), Local: c.listener.options.Local,
		Inside:   m.route.showsInside(),
		Verified: r.TLS != nil && len(r.TLS.VerifiedChains) > 0, Public: c.isPublic(m),
	}
	if c.listener.options.ReadsOnly {
		auth.Token = "" // others on the network have seen it
	}
	if m.route.Topic != "" {
		auth.Topic = r.PathValue(m.route.Topic)
	}
	return auth
}

// AuthoriseNarrowed checks again, when a handler knows which thing a request is
// about, that the capability covers it. The handlers of routes that are Narrow
// call it before they do anything.
func AuthoriseNarrowed(r *http.Request, name string) error {
	c := callOf(r.Context())
	if c == nil || !c.route.route.Narrow {
		return fault.New("http.within", fault.Internal, "the route does not accept narrowed scopes")
	}
	auth := c.route.authRequest(c, r)
	auth.Scope, auth.Narrow, auth.Recheck = auth.Scope+":"+name, false, true
	return c.route.checkAuth(r.Context(), auth)
}

// RequireCredentials returns an error unless the caller uses the local socket,
// a client certificate or a capability. It is for read routes that do more for
// known callers. An open read on loopback, or of a public route, is not enough.
func RequireCredentials(r *http.Request) error {
	c := callOf(r.Context())
	if c == nil || c.route == c.server.unrouted || len(r.Header[AnonymousHeader]) > 0 {
		return fault.New("http.known", fault.Unauthorized, "the request has no capability")
	}
	auth := c.route.authRequest(c, r)
	if auth.Local || auth.Verified || !auth.Loopback && !auth.Public || auth.Scope != "" {
		return nil // the listener has identified it
	}
	auth.Loopback, auth.Public = false, false
	return c.server.authorise(r.Context(), auth)
}

// checkAuth calls the authoriser, and counts refusals.
func (m *mountedRoute) checkAuth(ctx context.Context, request AuthRequest) error {
	err := m.server.authorise(ctx, request)
	switch fault.KindOf(err) {
	case fault.Unauthorized:
		m.reject("unauthorized")
	case fault.Forbidden:
		m.reject("forbidden")
	case fault.QuotaExceeded, fault.RateLimited:
		m.reject("quota")
	}
	return err
}

// Bearer is the token of a request, or empty. Two of them count as none: which
// one is meant is unknown.
func Bearer(header http.Header) string {
	given := header["Authorization"]
	if len(given) != 1 {
		return ""
	}
	token, _ := BearerToken(given[0])
	return token
}

// BearerToken reads one Authorization value of the scheme Bearer (RFC 6750),
// whose name is compared without case. It is the only reader of it: for
// authorising and for passing a header on.
func BearerToken(authorization string) (token string, ok bool) {
	scheme, token, found := strings.Cut(strings.TrimSpace(authorization), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}
