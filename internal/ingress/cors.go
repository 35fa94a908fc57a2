package ingress

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"micronode/internal/config"
)

// A page of another origin may not read what is here, unless http.cors lists
// the origin. A star allows every page to read: it is what a server of public
// maps wants. To change something, a page needs an origin that is listed by
// name, because the star would also allow any foreign page that is open in a
// browser on this machine. Cookies play no part: they grant nothing here.

// anyOrigin is the setting for every page.
const anyOrigin = "*"

// cors is the set of origins whose pages may read. A nil one is empty.
type cors struct {
	// set at construction
	anyOrigin bool
	listed    map[string][]string // the value of Access-Control-Allow-Origin, for each that is listed by name
}

// newCORS makes the rules of a validated list.
func newCORS(origins []string) *cors {
	if len(origins) == 0 {
		return nil
	}
	k := &cors{anyOrigin: slices.Contains(origins, anyOrigin), listed: map[string][]string{}}
	for _, origin := range origins {
		if origin != anyOrigin {
			k.listed[origin] = []string{origin}
		}
	}
	return k
}

// allows reports whether a page of an origin may use a method.
func (c *cors) allows(origin, method string) bool {
	if c == nil {
		return false
	}
	return c.listed[origin] != nil || c.anyOrigin && !changesState(method)
}

const (
	allowOriginKey  = "Access-Control-Allow-Origin"
	allowMethodsKey = "Access-Control-Allow-Methods"
	allowHeadersKey = "Access-Control-Allow-Headers"
	allowPrivateKey = "Access-Control-Allow-Private-Network"
	exposeKey       = "Access-Control-Expose-Headers"
	maxAgeKey       = "Access-Control-Max-Age"
	varyKey         = "Vary"
	originKey       = "Origin"
)

var (
	allowAnyOrigin  = []string{anyOrigin}
	exposedHeaders  = []string{"Accept-Ranges, Age, Content-Length, Content-Range, ETag, Location, Retry-After, X-Corr-ID"}
	allowedHeaders  = []string{"Authorization, Content-Type, Deadline, Idempotency-Key, If-Match, If-Modified-Since, If-None-Match, If-Range, If-Unmodified-Since, Range, Request-Timeout, X-Corr-ID"}
	preflightMaxAge = []string{"7200"} // not every browser honours more
	headerTrue      = []string{"true"}
)

// allowOrigin is the value of Access-Control-Allow-Origin for the origins that
// a request gives; nil for none. With a star it is always set, so that caches
// need not keep responses apart by origin.
func (c *cors) allowOrigin(origins []string) []string {
	switch {
	case c == nil:
		return nil
	case c.anyOrigin:
		return allowAnyOrigin
	case len(origins) == 1:
		return c.listed[origins[0]]
	default:
		return nil
	}
}

// setHeaders sets the CORS headers of an answer.
func (c *cors) setHeaders(header http.Header, origins []string) {
	if allow := c.allowOrigin(origins); allow != nil {
		header[allowOriginKey], header[exposeKey] = allow, exposedHeaders
	}
}

// headerLines is the same as lines, for the warm lane.
func (c *cors) headerLines(origins []string) []byte {
	header := http.Header{}
	c.setHeaders(header, origins)
	return headerLines(header, func(string) bool { return true })
}

// addVary adds Vary: Origin to an answer. Caches may keep any of them, so all
// carry it, unless the answer is the same for every origin. It is done last,
// because handlers set the header and do not add to it.
func (c *cors) addVary(header http.Header) {
	if c == nil || c.anyOrigin || len(header[allowOriginKey]) == 1 && header[allowOriginKey][0] == anyOrigin || headerHasToken(header, varyKey, "origin") {
		return
	}
	given := header[varyKey]
	header[varyKey] = append(given[:len(given):len(given)], originKey)
}

// setPublicCORS lets every page read the answer of a public route, and embed
// it. Nothing is decided by cookies, so they are not asked for; and the answer is
// the same for every page, so that caches keep one.
func setPublicCORS(header http.Header) {
	header[allowOriginKey], header[exposeKey] = allowAnyOrigin, exposedHeaders
	header[corpCrossOrigin.key] = corpCrossOrigin.values
}

// isPublicRead reports whether a request reads a public route, or asks in a
// preflight whether it may.
func (s *Server) isPublicRead(r *http.Request) bool {
	if len(s.public) == 0 {
		return false
	}
	method := r.Method
	if asked := r.Header["Access-Control-Request-Method"]; method == http.MethodOptions && len(asked) == 1 {
		method = asked[0]
	}
	return !changesState(method) && method != http.MethodOptions && s.isPublicRoute(method, r)
}

// isPublicRoute reports whether a method and the path of a request lead to a
// public route.
func (s *Server) isPublicRoute(method string, r *http.Request) bool {
	other := *r
	other.Method = method
	handler, _ := s.mux.Handler(&other)
	m, ours := handler.(*mountedRoute)
	return ours && m.public
}

// preflight answers a CORS preflight, and reports whether the OPTIONS was one.
// A path without routes is refused in the ordinary way.
func (s *Server) preflight(c *call, r *http.Request) bool {
	origins := r.Header[originKey]
	if s.exempt || len(origins) != 1 || len(r.Header["Access-Control-Request-Method"]) == 0 {
		return false
	}
	var may []string
	anyPage := false
	for _, method := range methods {
		listed, public := c.policy.cors.allows(origins[0], method), false
		if !listed && !changesState(method) && method != http.MethodOptions {
			public = s.isPublicRoute(method, r)
			anyPage = anyPage || public
		}
		if public || listed && s.hasRoute(method, r) {
			may = append(may, method)
		}
	}
	if len(may) == 0 {
		return false
	}
	header := c.Header()
	if anyPage && len(header[allowOriginKey]) == 0 {
		setPublicCORS(header)
	}
	header[allowMethodsKey] = []string{strings.Join(may, ", ")}
	header[allowHeadersKey], header[maxAgeKey] = allowedHeaders, preflightMaxAge
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		header[allowPrivateKey] = headerTrue
	}
	c.WriteHeader(http.StatusNoContent)
	return true
}

// hasRoute reports whether there is a route for a method and the path of a
// request.
func (s *Server) hasRoute(method string, r *http.Request) bool {
	other := *r
	other.Method = method
	handler, _ := s.mux.Handler(&other)
	_, ours := handler.(*mountedRoute)
	return ours
}

// checkOrigins returns what is wrong with a list of origins.
func checkOrigins(origins []string) error {
	const key = "cors"
	const next = "Write each origin as a browser does, like https://maps.example.org or http://localhost:3000, or * for every page."
	for _, one := range origins {
		if one == anyOrigin {
			continue
		}
		at, err := url.Parse(one)
		switch {
		case one == "null":
			return config.Invalid(key, "Serve the page from an address, and list that.", "null is the origin of every page without one, so that it identifies no page")
		case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "":
			return config.Invalid(key, next, "%q is not an origin", one)
		case one != at.Scheme+"://"+at.Host:
			return config.Invalid(key, "Leave out everything after the host and the port.", "%q is more than an origin", one)
		case strings.Contains(one, anyOrigin):
			return config.Invalid(key, "List every origin by itself, or * for every page.", "%q is a pattern; origins are compared literally", one)
		case one != strings.ToLower(one) || strings.ContainsFunc(one, func(r rune) bool { return r > '~' }):
			return config.Invalid(key, "Write the host in lower case, and an internationalised name as xn--….", "a browser does not write %q in this form", one)
		case at.Scheme == "http" && at.Port() == "80" || at.Scheme == "https" && at.Port() == "443" || strings.HasSuffix(one, ":"):
			return config.Invalid(key, "Leave out the port: it is the default one.", "a browser does not write %q in this form", one)
		}
	}
	return nil
}
