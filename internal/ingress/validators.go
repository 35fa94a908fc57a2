package ingress

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// The conditions of RFC 9110, section 13. A malformed header is ignored, as if
// it were absent, with two exceptions: a malformed If-Range matches nothing,
// and so the range is not used; and a date is ignored beside a header of tags,
// even if the tags are malformed.

// conditionResult is the result of all conditions of a request.
type conditionResult uint8

const (
	conditionsHold       conditionResult = iota
	conditionNotModified                 // 304
	preconditionFailed                   // 412
)

// evaluateConditions evaluates the conditions in the order of section 13.2.2.
// etag is empty, and modified zero, if the content has none.
func evaluateConditions(r *http.Request, etag string, modified time.Time) conditionResult {
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	dated := !modified.IsZero()
	modified = modified.Truncate(time.Second) // the dates of HTTP have no fractions
	if given := r.Header["If-Match"]; len(given) > 0 {
		tags, any, ok := parseTags(given)
		if ok && !any && !slices.ContainsFunc(tags, func(tag string) bool { return strongEqual(tag, etag) }) {
			return preconditionFailed
		}
	} else if at, ok := parseDate(r.Header["If-Unmodified-Since"]); ok && dated && modified.After(at) {
		return preconditionFailed
	}
	if given := r.Header["If-None-Match"]; len(given) > 0 {
		tags, any, ok := parseTags(given)
		if ok && (any || slices.ContainsFunc(tags, func(tag string) bool { return weakEqual(tag, etag) })) {
			if reading {
				return conditionNotModified
			}
			return preconditionFailed
		}
	} else if at, ok := parseDate(r.Header["If-Modified-Since"]); ok && dated && reading && !modified.After(at) {
		return conditionNotModified
	}
	return conditionsHold
}

// rangeApplies reports whether a Range is to be used: there is no If-Range, or
// it names exactly the current version. It prevents mixing two versions, so
// only a strong match will do.
func rangeApplies(r *http.Request, etag string, modified time.Time) bool {
	given := r.Header.Values("If-Range")
	if len(given) == 0 {
		return true
	}
	if len(given) > 1 {
		return false
	}
	if tag, rest, ok := scanTag(given[0]); ok {
		return strings.TrimSpace(rest) == "" && strongEqual(tag, etag)
	}
	at, ok := parseDate(given)
	return ok && !modified.IsZero() && modified.Truncate(time.Second).Equal(at)
}

// parseTags reads the value of If-Match or If-None-Match: a star, or a list of
// entity tags. ok is false if any part of it is malformed.
func parseTags(values []string) (tags []string, any, ok bool) {
	text := strings.Trim(strings.Join(values, ","), " \t")
	if text == "*" {
		return nil, true, true
	}
	for {
		text = strings.TrimLeft(text, " \t,")
		if text == "" {
			return tags, false, len(tags) > 0
		}
		tag, rest, found := scanTag(text)
		rest = strings.TrimLeft(rest, " \t")
		if !found || rest != "" && rest[0] != ',' {
			return nil, false, false
		}
		tags, text = append(tags, tag), rest
	}
}

// scanTag reads an entity tag from the beginning of a text.
func scanTag(text string) (tag, rest string, ok bool) {
	text = strings.TrimLeft(text, " \t")
	at := 0
	if strings.HasPrefix(text, "W/") {
		at = 2
	}
	if at >= len(text) || text[at] != '"' {
		return "", text, false
	}
	for i := at + 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[:i+1], text[i+1:], true
		case c < 0x21 || c == 0x7f:
			return "", text, false
		}
	}
	return "", text, false
}

func strongEqual(a, b string) bool { return a == b && strings.HasPrefix(a, `"`) }

func weakEqual(a, b string) bool {
	return b != "" && strings.TrimPrefix(a, "W/") == strings.TrimPrefix(b, "W/")
}

func parseDate(values []string) (time.Time, bool) {
	if len(values) != 1 {
		return time.Time{}, false
	}
	at, err := http.ParseTime(values[0])
	return at, err == nil
}
