package ingress

import (
	"net/netip"
	"strings"
)

// policy is what a server lets others see and believes of them: the part of
// [http] that a reload applies to requests that come after it.
type policy struct {
	// set at construction
	cors              *cors           // nil if no other origin is listed
	proxies           []netip.Prefix  // whose word about a client counts
	baseURL           string          // http.public_url without the slash at its end; empty for what each request says
	defaultHeaders    []defaultHeader // of every answer
	knownHosts        map[string]bool // under which clients see the node, as a forwarded host writes them
	ownNames          map[string]bool // those of them that no proxy would use for itself, without their ports
	corsLines         []byte          // of the warm lane: the CORS headers of an answer to a request without Origin
	corsLinesByOrigin map[string][]byte

	namedOrigins namedOrigins
}

func newPolicy(times HTTP, exempt bool) *policy {
	p := &policy{baseURL: strings.TrimRight(times.PublicURL, "/"), corsLinesByOrigin: map[string][]byte{}}
	p.proxies, _ = parseProxies(times.TrustedProxies) // validated before
	p.knownHosts, p.ownNames = newKnownHosts(times)
	if !exempt { // no page may use the admin plane
		p.cors = newCORS(times.CORS)
	}
	p.defaultHeaders, p.corsLines = newDefaultHeaders(p.cors), p.cors.headerLines(nil)
	if p.cors != nil {
		for origin := range p.cors.listed {
			p.corsLinesByOrigin[origin] = p.cors.headerLines([]string{origin})
		}
	}
	return p
}

// Reconfigure applies http.cors, http.trusted_proxies and http.public_url of a
// validated section. Requests under way keep what they began with.
func (s *Server) Reconfigure(times HTTP) { s.policy.Store(newPolicy(times, s.exempt)) }
