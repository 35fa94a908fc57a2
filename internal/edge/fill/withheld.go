package fill

import (
	"net/http"
	"strings"
)

// Withheld are the headers of an origin's response that a client never sees,
// each with the reason. They speak for the name of the origin, and to a client
// that name is ours; or they command a proxy in front of us, which takes them
// for ours. Everything else is relayed unchanged. A name that ends with a dash
// stands for all names that begin with it.
var Withheld = map[string]string{
	"Set-Cookie":                               "it would set cookies of this node",
	"Set-Cookie2":                              "it would set cookies of this node",
	"Clear-Site-Data":                          "it would clear the browser's data of this node",
	"Strict-Transport-Security":                "the origin may not decide whether this node is TLS-only",
	"Public-Key-Pins":                          "the origin may not pin keys of this node",
	"Public-Key-Pins-Report-Only":              "it would send reports about this node's keys",
	"Expect-Ct":                                "the origin may not set the certificate policy of this node",
	"Alt-Svc":                                  "it would redirect clients of this node to another server",
	"Onion-Location":                           "it would redirect clients of this node to another server",
	"Refresh":                                  "it would redirect the browser, or make it reload",
	"Www-Authenticate":                         "a browser would prompt for a password of this node, and send it here",
	"Optional-Www-Authenticate":                "a browser would prompt for a password of this node, and send it here",
	"Authentication-Info":                      "it belongs to an authentication with the origin",
	"Authentication-Control":                   "it belongs to an authentication with the origin",
	"Dpop-Nonce":                               "it belongs to an authentication with the origin",
	"Set-Login":                                "it would report a log-in at this node",
	"Sec-":                                     "it begins or ends a session with this node",
	"Secure-Session-":                          "it begins or ends a session with this node",
	"Accept-Ch":                                "it would make browsers send client hints to this node, for its whole host name",
	"Accept-Ch-Lifetime":                       "it would make browsers send client hints to this node, for its whole host name",
	"Critical-Ch":                              "it would make browsers repeat the request with client hints",
	"Service-Worker-Allowed":                   "a script of the origin could take over other paths of this node",
	"Speculation-Rules":                        "it would make browsers fetch other pages of this node",
	"Use-As-Dictionary":                        "it would be used to decompress other answers of this node",
	"Attribution-Reporting-":                   "it would report visits to this node",
	"Nel":                                      "it would report errors of this node to another server",
	"Report-To":                                "it would report errors of this node to another server",
	"Reporting-Endpoints":                      "it would report errors of this node to another server",
	"Access-Control-":                          "http.cors decides which pages may read from this node",
	"Timing-Allow-Origin":                      "http.cors decides which pages may measure this node",
	"Cross-Origin-Resource-Policy":             "http.cors decides which pages may embed content of this node",
	"X-Permitted-Cross-Domain-Policies":        "http.cors decides which programs may read from this node",
	"X-Frame-Options":                          "the origin may not decide who embeds content of this node: pages of origins are sandboxed, wherever they are shown",
	"Cross-Origin-Opener-Policy":               "it would separate windows of this node from each other",
	"Cross-Origin-Opener-Policy-Report-Only":   "it would report how pages of this node are opened",
	"Cross-Origin-Embedder-Policy":             "it would decide what pages of this node may embed",
	"Cross-Origin-Embedder-Policy-Report-Only": "it would report what pages of this node embed",
	"Origin-Agent-Cluster":                     "it would decide how browsers isolate all pages of this node",
	"Permissions-Policy":                       "the origin may not grant or deny features to pages of this node",
	"Permissions-Policy-Report-Only":           "it would report which features pages of this node use",
	"Feature-Policy":                           "the origin may not grant or deny features to pages of this node",
	"Document-Policy":                          "the origin may not grant or deny features to pages of this node",
	"Document-Policy-Report-Only":              "it would report which features pages of this node use",
	"Require-Document-Policy":                  "the origin may not grant or deny features to pages of this node",
	"Supports-Loading-Mode":                    "it would allow other sites to load pages of this node in advance, with its credentials",
	"Activate-Storage-Access":                  "it would give frames of this node access to its cookies on other sites",
	"No-Vary-Search":                           "browsers would take the answer to one query for that to another; this cache does not",
	"Content-Security-Policy":                  "the node sends a stricter one: pages of origins run no scripts here",
	"Content-Security-Policy-Report-Only":      "the node sends a stricter one, without reports",
	"Referrer-Policy":                          "the node sends a stricter one: no-referrer",
	"X-Content-Type-Options":                   "the node sends its own: nosniff",
	"X-Accel-":                                 "an nginx in front of this node would act on it: read files, change limits",
	"X-Sendfile":                               "a server in front of this node would send a file of its own",
	"X-Sendfile-Type":                          "a server in front of this node would send a file of its own",
	"X-Lighttpd-":                              "a server in front of this node would send a file of its own",
	"X-Litespeed-":                             "a LiteSpeed in front of this node would act on it",
	"X-Reproxy-":                               "a proxy in front of this node would fetch something else",
	"X-Original-Url":                           "a server in front of this node would serve another path",
	"X-Rewrite-Url":                            "a server in front of this node would serve another path",
	"Surrogate-":                               "it commands caches of the origin; one in front of this node would obey it, too",
	"Edge-Control":                             "it commands caches of the origin; one in front of this node would obey it, too",
	"Cdn-Cache-Control":                        "it commands caches of the origin; one in front of this node would obey it, too",
	"Accept-Ranges":                            "the node declares its own support of ranges",
	"Content-Length":                           "the body that is sent has its own length",
	"X-Corr-Id":                                "the node sends its own",
	"Micronode-":                               "such names are reserved for this node",
}

// withhold removes the headers that a client never sees. A Location is relayed
// with the statuses that give it a meaning: with others, what is in front of
// this node might act on it.
func withhold(status int, header http.Header) {
	for name := range header {
		if isWithheld(name) {
			delete(header, name)
		}
	}
	if status != http.StatusCreated && status/100 != 3 {
		delete(header, "Location")
	}
}

// isWithheld reports whether a header is on the list, by its name, as the
// Cdn-Cache-Control of one network, or by a prefix.
func isWithheld(name string) bool {
	if _, listed := Withheld[name]; listed || strings.HasSuffix(name, "-Cdn-Cache-Control") {
		return true
	}
	for at := strings.IndexByte(name, '-'); at >= 0; {
		if _, listed := Withheld[name[:at+1]]; listed {
			return true
		}
		next := strings.IndexByte(name[at+1:], '-')
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return false
}
