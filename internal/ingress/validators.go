package ingress

import (
	"net/http"
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
func evaluateConditions(r *http.Request, etag string, modified time.Time) conditionResult {
	switch ifMatch(r, etag) {
	case conditionFalse:
		return preconditionFailed
	case conditionAbsent:
		if len(r.Header["If-Match"]) == 0 && unmodifiedSince(r, modified) == conditionFalse {
			return preconditionFailed
		}
	}
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch ifNoneMatch(r, etag) {
	case conditionFalse:
		if reading {
			return conditionNotModified
		}
		return preconditionFailed
	case conditionAbsent:
		if reading && len(r.Header["If-None-Match"]) == 0 && modifiedSince(r, modified) == conditionFalse {
			return conditionNotModified
		}
	}
	return conditionsHold
}

// conditionState is the result of one condition.
type conditionState uint8

const (
	conditionAbsent conditionState = iota // absent, or malformed
	conditionTrue
	conditionFalse
)

func conditionOf(holds bool) conditionState {
	if holds {
		return conditionTrue
	}
	return conditionFalse
}

func ifMatch(r *http.Request, etag string) conditionState {
	tags, any, ok := parseTags(r.Header.Values("If-Match"))
	if !ok {
		return conditionAbsent
	}
	for _, tag := range tags {
		if strongEqual(tag, etag) {
			return conditionTrue
		}
	}
	return conditionOf(any)
}

func ifNoneMatch(r *http.Request, etag string) conditionState {
	tags, any, ok := parseTags(r.Header.Values("If-None-Match"))
	if !ok {
		return conditionAbsent
	}
	for _, tag := range tags {
		if weakEqual(tag, etag) {
			return conditionFalse
		}
	}
	return conditionOf(!any)
}

func unmodifiedSince(r *http.Request, modified time.Time) conditionState {
	at, ok := parseDate(r.Header.Values("If-Unmodified-Since"))
	if !ok || modified.IsZero() {
		return conditionAbsent
	}
	return conditionOf(!modified.Truncate(time.Second).After(at))
}

func modifiedSince(r *http.Request, modified time.Time) conditionState {
	at, ok := parseDate(r.Header.Values("If-Modified-Since"))
	if !ok || modified.IsZero() {
		return conditionAbsent
	}
	return conditionOf(modified.Truncate(time.Second).After(at))
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
