package ingress

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
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

	refused refusedOrigins
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

// refusedOrigins remembers which origins the log has named, so that it names
// each of them once, and not more of them than an operator would read.
type refusedOrigins struct {
	mu    sync.Mutex //lockblock:leaf a map of a few texts
	named map[string]bool
}

// maxRefusedOrigins is how many the log names until the next reload.
const maxRefusedOrigins = 16

// isNew reports whether an origin is to be named in the log.
func (r *refusedOrigins) isNew(origin string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.named[origin] || len(r.named) >= maxRefusedOrigins {
		return false
	}
	if r.named == nil {
		r.named = map[string]bool{}
	}
	r.named[origin] = true
	return true
}

// noteRefusedOrigin logs once that a page of another origin may not read an
// answer, with what to add. Otherwise only the console of some browser says it.
func (c *call) noteRefusedOrigin(r *http.Request) {
	origins := r.Header[originKey]
	if c.server.exempt || len(origins) != 1 || len(c.Header()[allowOriginKey]) > 0 || len(origins[0]) > 256 || checkOrigins(origins) != nil {
		return
	}
	if from, err := url.Parse(origins[0]); err != nil || strings.EqualFold(from.Host, r.Host) || c.listener.hosts != nil && c.listener.hosts.isOwnOrigin(origins[0], r) {
		return
	}
	if c.policy.refused.isNew(origins[0]) {
		c.server.logger.Warn("a page of another origin may not read from this node", "origin", origins[0], "route", c.route.route.Pattern,
			"next", `To allow it, add it to the configuration: [http] cors = ["`+origins[0]+`"]. A reload applies it.`)
	}
}
