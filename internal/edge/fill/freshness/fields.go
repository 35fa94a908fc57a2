package freshness

import (
	"net/http"
	"slices"
	"strings"
)

// connectionFields mean something to the next hop only (RFC 9110 §7.6.1), with
// those that are about a proxy (§11.7, RFC 9111 §3.1) below in isHopByHop.
var connectionFields = map[string]bool{
	"Connection":        true,
	"Keep-Alive":        true,
	"Te":                true,
	"Trailer":           true,
	"Transfer-Encoding": true,
	"Upgrade":           true,
	"Http2-Settings":    true,
}

// framing are the fields without which a stored response would be understood
// wrongly: taken for another variant, another type or another age. A response
// that asks to have one of them left out cannot be stored in part.
var framing = map[string]bool{
	"Age":              true,
	"Cache-Control":    true,
	"Content-Encoding": true,
	"Content-Type":     true,
	"Date":             true,
	"Expires":          true,
	"Vary":             true,
}

// EndToEnd returns a copy of the header without what is meant for one hop: the
// fields of RFC 9110 §7.6.1, those that Connection names, and those of a
// conversation with a proxy. Proxy-Status (RFC 9209) is for everybody and stays.
func EndToEnd(h http.Header) http.Header {
	nominated := map[string]bool{}
	for _, name := range nominatedFields(h) {
		nominated[name] = true
	}
	kept := make(http.Header, len(h))
	for name, lines := range h {
		name = http.CanonicalHeaderKey(name)
		if !isHopByHop(name) && !nominated[name] {
			kept[name] = append(kept[name], lines...)
		}
	}
	return kept
}

// Kept returns a copy of the header as it may be stored (RFC 9111 §3.1): what
// is end to end, without the fields that private="…" and no-cache="…" name.
func Kept(h http.Header) http.Header {
	kept := EndToEnd(h)
	d := ResponseDirectives(h)
	for _, name := range slices.Concat(d.PrivateFields, d.NoCacheFields) {
		if !framing[name] {
			delete(kept, name)
		}
	}
	return kept
}

func isHopByHop(name string) bool {
	return connectionFields[name] || strings.HasPrefix(name, "Proxy-") && name != "Proxy-Status"
}

// nominatedFields are the fields that Connection names.
func nominatedFields(h http.Header) []string {
	names := members(h["Connection"])
	for i, name := range names {
		names[i] = http.CanonicalHeaderKey(name)
	}
	return names
}

// namesFraming reports whether a list of fields has one that cannot be left out.
func namesFraming(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return framing[name] })
}
