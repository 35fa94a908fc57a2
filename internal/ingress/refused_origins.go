package ingress

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A page of another origin that may not read an answer says so only in the
// console of some browser. So the log names each origin once, and those of the
// last while are remembered for the status.

// namedOrigins remembers which origins the log has named since the last reload,
// and names no more of them than an operator would read.
type namedOrigins struct {
	mu    sync.Mutex //lockblock:leaf a map of a few texts
	named map[string]bool
}

// maxRefusedOrigins is how many the log names until the next reload, and how
// many are remembered.
const maxRefusedOrigins = 16

// isNew reports whether an origin is to be named in the log.
func (n *namedOrigins) isNew(origin string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.named[origin] || len(n.named) >= maxRefusedOrigins {
		return false
	}
	if n.named == nil {
		n.named = map[string]bool{}
	}
	n.named[origin] = true
	return true
}

// RefusedOrigin is an origin whose pages may not read an answer that they asked
// for.
type RefusedOrigin struct {
	Origin string
	Route  string // the pattern of the last one
	Times  int
	Last   time.Time
	Next   string // what to add to the configuration

	method string
}

// refusedOriginAge is how long a refused origin is remembered after the last
// time.
const refusedOriginAge = time.Hour

// refusedOrigins are those of the last while, the latest last.
type refusedOrigins struct {
	mu   sync.Mutex //lockblock:leaf a short list
	list []RefusedOrigin
}

// add remembers an origin. Where there are too many, the one that was not seen
// for the longest time is forgotten: a page in use comes back.
func (r *refusedOrigins) add(one RefusedOrigin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.list, func(known RefusedOrigin) bool { return known.Origin == one.Origin }); i >= 0 {
		one.Times += r.list[i].Times
		r.list = slices.Delete(r.list, i, i+1)
	}
	if len(r.list) >= maxRefusedOrigins {
		r.list = slices.Delete(r.list, 0, 1)
	}
	r.list = append(r.list, one)
}

// RefusedOrigins are the origins of the last hour whose pages may still not
// read, the latest first.
func (s *Server) RefusedOrigins() []RefusedOrigin {
	s.refusedOrigins.mu.Lock()
	list := slices.Clone(s.refusedOrigins.list)
	s.refusedOrigins.mu.Unlock()
	slices.Reverse(list)
	policy := s.policy.Load()
	return slices.DeleteFunc(list, func(one RefusedOrigin) bool {
		return time.Since(one.Last) > refusedOriginAge || policy.cors.allows(one.Origin, one.method)
	})
}

// noteRefusedOrigin remembers that a page of another origin may not read an
// answer, and logs it once, with what to add.
func (c *call) noteRefusedOrigin(r *http.Request) {
	origins := r.Header[originKey]
	if c.server.exempt || len(origins) != 1 || len(c.Header()[allowOriginKey]) > 0 || len(origins[0]) > 256 || checkOrigins(origins) != nil {
		return
	}
	if from, err := url.Parse(origins[0]); err != nil || strings.EqualFold(from.Host, r.Host) || c.listener.hosts != nil && c.listener.hosts.isOwnOrigin(origins[0], r) {
		return
	}
	route := c.route.route.Pattern
	if handler, _ := c.server.mux.Handler(r); route == noRoute { // on this machine it was refused before it came to its route
		if m, ours := handler.(*mountedRoute); ours {
			route = m.route.Pattern
		}
	}
	one := RefusedOrigin{
		Origin: origins[0], Route: route, Times: 1, Last: time.Now(), method: r.Method,
		Next: "To allow it, add it to the configuration: [http] cors = [" + strconv.Quote(origins[0]) + "]. A reload applies it.",
	}
	c.server.refusedOrigins.add(one)
	if c.policy.namedOrigins.isNew(one.Origin) {
		c.server.logger.Warn("a page of another origin may not read from this node", "origin", one.Origin, "route", one.Route, "next", one.Next)
	}
}
