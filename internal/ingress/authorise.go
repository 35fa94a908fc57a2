package ingress

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"micronode/fault"
)

// Ask is what the authoriser is asked before anything is queued: may this
// caller do this? A read has no Scope; whether reads are open is a matter of
// where the caller comes from, and for the authoriser to decide.
type Ask struct {
	Scope    string
	Token    string // of Authorization: Bearer, or empty; never logged
	Method   string
	Path     string // decoded
	Topic    string // if the route is about one
	ClientIP netip.Addr
	Loopback bool // the listener is on loopback
	Local    bool // the local socket
	Verified bool // the client showed a certificate of client_ca
}

// Authorise decides. A refusal is fault.Unauthorized or fault.Forbidden, or
// fault.QuotaExceeded and fault.RateLimited for a capability with a rate.
type Authorise func(ctx context.Context, ask Ask) error

// authorise asks, unless the route is for everybody.
func (m *mounted) authorise(ctx context.Context, c *call, r *http.Request) error {
	if m.route.Open {
		return nil
	}
	ask := Ask{
		Scope: m.route.Scope, Token: bearer(r.Header), Method: r.Method, Path: r.URL.Path, ClientIP: c.client,
		Loopback: c.listener.loopback, Local: c.listener.options.Local,
		Verified: r.TLS != nil && len(r.TLS.VerifiedChains) > 0,
	}
	if m.route.Topic != "" {
		ask.Topic = r.PathValue(m.route.Topic)
	}
	err := m.server.allow(ctx, ask)
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

// bearer is the token of a request. Two of them are none: nobody could say
// which one counts.
func bearer(header http.Header) string {
	given := header["Authorization"]
	if len(given) != 1 {
		return ""
	}
	scheme, token, found := strings.Cut(given[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
