package freshness

import (
	"net/http"
	"strings"
)

// ValidETag reports whether text is an entity tag (RFC 9110 §8.8.3): a quoted
// string without escapes, with W/ in front if it is weak. The W is a capital.
func ValidETag(text string) bool {
	opaque := strings.TrimPrefix(text, "W/")
	if len(opaque) < 2 || opaque[0] != '"' || opaque[len(opaque)-1] != '"' {
		return false
	}
	for i := 1; i < len(opaque)-1; i++ {
		if c := opaque[i]; c <= ' ' || c == '"' || c == 0x7f {
			return false
		}
	}
	return true
}

// StrongMatch compares two entity tags strongly (RFC 9110 §8.8.3.2): both are
// strong and equal.
func StrongMatch(a, b string) bool {
	return a == b && ValidETag(a) && !isWeak(a)
}

// WeakMatch compares two entity tags weakly (RFC 9110 §8.8.3.2): they are equal
// but for W/.
func WeakMatch(a, b string) bool {
	return ValidETag(a) && ValidETag(b) && strings.TrimPrefix(a, "W/") == strings.TrimPrefix(b, "W/")
}

func isWeak(etag string) bool { return strings.HasPrefix(etag, "W/") }

// HasETag reports whether a message has exactly one entity tag, and a valid
// one.
func HasETag(h http.Header) bool {
	_, _, valid := etagOf(h)
	return valid
}

// etagOf returns the entity tag of a message. given reports whether the field
// is present, valid whether it holds exactly one well-formed tag.
func etagOf(h http.Header) (etag string, given, valid bool) {
	lines := h["Etag"]
	if len(lines) == 0 {
		return "", false, false
	}
	etag = trimOWS(lines[0])
	return etag, true, len(lines) == 1 && ValidETag(etag)
}
