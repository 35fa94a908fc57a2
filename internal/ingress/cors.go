package ingress

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"micronode/internal/config"
)

// A page of another origin may not read what is here, unless http.cors lists
// the origin. A star lists every page there is, for reading: it is what a
// server of public maps wants. To change something from a page takes an origin
// that is listed by name, because the star would also stand for the page of a
// stranger that somebody at this machine happens to look at. Cookies play no
// part: nothing here is given to a caller because of one.

// anyOrigin is the word for every page.
const anyOrigin = "*"

// cors is who may read from another origin. A nil one is nobody.
type cors struct {
	// set at construction
	any   bool
	named map[string][]string // the value of Access-Control-Allow-Origin, for each that is listed by name
}

// newCORS makes the rules of a list that was validated.
func newCORS(origins []string) *cors {
	if len(origins) == 0 {
		return nil
	}
	k := &cors{any: slices.Contains(origins, anyOrigin), named: map[string][]string{}}
	for _, origin := range origins {
		if origin != anyOrigin {
			k.named[origin] = []string{origin}
		}
	}
	return k
}

// may reports whether a page of an origin may use a method.
func (k *cors) may(origin, method string) bool {
	if k == nil {
		return false
	}
	return k.named[origin] != nil || k.any && !changesState(method)
}

// varies reports whether answers differ by who asks, which every answer must
// then say, also one to nobody in particular: a cache may keep it.
func (k *cors) varies() bool { return k != nil && !k.any }

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
	allowAnyOrigin = []string{anyOrigin}
	exposed        = []string{"Accept-Ranges, Age, Content-Length, Content-Range, ETag, Location, Retry-After, X-Corr-ID"}
	askable        = []string{"Authorization, Content-Type, Deadline, Idempotency-Key, If-Match, If-Modified-Since, If-None-Match, If-Range, If-Unmodified-Since, Range, Request-Timeout, X-Corr-ID"}
	twoHours       = []string{"7200"} // more is not believed by every browser
	granted        = []string{"true"}
)

// allowed is the value of Access-Control-Allow-Origin for the origins that a
// request gives; nil if there is to be none. With a star it is always there,
// whoever asks, so that caches need not tell askers apart.
func (k *cors) allowed(origins []string) []string {
	switch {
	case k == nil:
		return nil
	case k.any:
		return allowAnyOrigin
	case len(origins) == 1:
		return k.named[origins[0]]
	default:
		return nil
	}
}

// share says in the header of an answer who may read it.
func (k *cors) share(header http.Header, origins []string) {
	if allow := k.allowed(origins); allow != nil {
		header[allowOriginKey], header[exposeKey] = allow, exposed
	}
}

// shareLines is the same as lines, for the warm lane.
func (k *cors) shareLines(origins []string) []byte {
	header := http.Header{}
	k.share(header, origins)
	return appendLines(header, func(string) bool { return true })
}

// addVary says that an answer differs by who asks. It is done last, because
// handlers set the header and do not add to it.
func (k *cors) addVary(header http.Header) {
	if !k.varies() || headerHas(header, varyKey, "origin") {
		return
	}
	given := header[varyKey]
	header[varyKey] = append(given[:len(given):len(given)], originKey)
}

// preflight answers a browser that asks what a page may ask, and reports
// whether it was one. A path without routes is refused in the ordinary way.
func (s *Server) preflight(c *call, r *http.Request) bool {
	origins := r.Header[originKey]
	if s.cors == nil || r.Method != http.MethodOptions || len(origins) != 1 || len(r.Header["Access-Control-Request-Method"]) == 0 {
		return false
	}
	var may []string
	for _, method := range methods {
		if s.cors.may(origins[0], method) && s.answersTo(method, r) {
			may = append(may, method)
		}
	}
	if len(may) == 0 {
		return false
	}
	header := c.Header()
	header[allowMethodsKey] = []string{strings.Join(may, ", ")}
	header[allowHeadersKey], header[maxAgeKey] = askable, twoHours
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		header[allowPrivateKey] = granted
	}
	c.WriteHeader(http.StatusNoContent)
	return true
}

// answersTo reports whether there is a route for a method and the path of a
// request.
func (s *Server) answersTo(method string, r *http.Request) bool {
	other := *r
	other.Method = method
	handler, _ := s.mux.Handler(&other)
	_, ours := handler.(*mounted)
	return ours
}

// checkOrigins says what is wrong with a list of origins.
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
			return config.Wrong(key, "Serve the page from an address, and list that.", "null is the origin of every page that has none, so it names nobody")
		case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "":
			return config.Wrong(key, next, "%q is not an origin", one)
		case one != at.Scheme+"://"+at.Host:
			return config.Wrong(key, "Leave out everything behind the host and the port.", "%q is more than an origin", one)
		case strings.Contains(one, anyOrigin):
			return config.Wrong(key, "List every origin by itself, or * for every page.", "%q is a pattern, and origins are compared as they are", one)
		case one != strings.ToLower(one) || strings.ContainsFunc(one, func(r rune) bool { return r > '~' }):
			return config.Wrong(key, "Write the host in small letters, and a name with other letters as xn--….", "a browser would not write %q like this", one)
		case at.Scheme == "http" && at.Port() == "80" || at.Scheme == "https" && at.Port() == "443" || strings.HasSuffix(one, ":"):
			return config.Wrong(key, "Leave the port out: it is the usual one.", "a browser would not write %q like this", one)
		}
	}
	return nil
}
