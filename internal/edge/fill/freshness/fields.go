package freshness

import (
	"net/http"
	"slices"
	"strings"
)

// connectionFields are for the next hop only (RFC 9110 §7.6.1); those about a
// proxy (§11.7, RFC 9111 §3.1) are below in isHopByHop.
var connectionFields = map[string]bool{
	"Connection":        true,
	"Keep-Alive":        true,
	"Te":                true,
	"Trailer":           true,
	"Transfer-Encoding": true,
	"Upgrade":           true,
	"Http2-Settings":    true,
}

// essentialFields are the fields without which a stored response would be
// misread: taken for another variant, another type or another age. A response
// that forbids storing one of them is not stored at all.
var essentialFields = map[string]bool{
	"Age":              true,
	"Cache-Control":    true,
	"Content-Encoding": true,
	"Content-Type":     true,
	"Date":             true,
	"Expires":          true,
	"Vary":             true,
}

// EndToEnd returns a copy of the header without hop-by-hop fields: those of RFC
// 9110 §7.6.1, those that Connection names, and those between a client and its
// proxy. Proxy-Status (RFC 9209) is end to end and stays.
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

// StoredHeader returns a copy of the header as it may be stored (RFC 9111
// §3.1): the end-to-end fields, without those that private="…" and no-cache="…"
// name.
func StoredHeader(h http.Header) http.Header {
	kept := EndToEnd(h)
	d := ResponseDirectives(h)
	for _, name := range slices.Concat(d.PrivateFields, d.NoCacheFields) {
		if !essentialFields[name] {
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

// namesEssential reports whether a list of fields contains an essential one.
func namesEssential(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return essentialFields[name] })
}
