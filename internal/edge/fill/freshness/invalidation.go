package freshness

import (
	"net/http"
	"net/url"
	"strings"
)

// Invalidates reports whether a response to a method makes what is stored for
// its target invalid (RFC 9111 §4.4): the method is not known to be safe
// (RFC 9110 §9.2.1), and it did not fail.
func Invalidates(method string, status int) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return 200 <= status && status < 400
}

// InvalidateTargets returns the URLs whose stored responses a response makes
// invalid (RFC 9111 §4.4): the target, and what Location and Content-Location
// name, if it is of the same origin. Another origin's is none of its business.
// Fragments are left out, and each URL is there once.
func InvalidateTargets(method string, target *url.URL, resp Response) []*url.URL {
	if !Invalidates(method, resp.Status) {
		return nil
	}
	targets := []*url.URL{whole(target)}
	for _, name := range []string{"Location", "Content-Location"} {
		lines := resp.Header[name]
		if len(lines) == 0 {
			continue
		}
		found, err := target.Parse(trim(lines[0]))
		if err != nil || origin(found) != origin(target) {
			continue
		}
		targets = appendNew(targets, whole(found))
	}
	return targets
}

// whole is the URL of the whole resource: without a fragment.
func whole(u *url.URL) *url.URL {
	bare := *u
	bare.Fragment, bare.RawFragment = "", ""
	return &bare
}

func appendNew(known []*url.URL, u *url.URL) []*url.URL {
	for _, k := range known {
		if k.String() == u.String() {
			return known
		}
	}
	return append(known, u)
}

// origin is scheme, host and port (RFC 9110 §4.3.1), with the port that the
// scheme has by default.
func origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
