package ingress

import (
	"net/http"
	"strings"
	"time"
)

// The conditions of RFC 9110, section 13. Whatever is malformed is ignored, as
// if the header were not there, with two exceptions: If-Range then protects
// nothing, and so the range is not used; and a date is not looked at beside a
// header of tags, whatever the tags look like.

// verdict is what the conditions of a request say.
type verdict uint8

const (
	proceed     verdict = iota
	notModified         // 304
	failed              // 412
)

// judge goes through the conditions in the order of section 13.2.2.
func judge(r *http.Request, etag string, modified time.Time) verdict {
	switch ifMatch(r, etag) {
	case no:
		return failed
	case absent:
		if len(r.Header["If-Match"]) == 0 && unmodifiedSince(r, modified) == no {
			return failed
		}
	}
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch ifNoneMatch(r, etag) {
	case no:
		if reading {
			return notModified
		}
		return failed
	case absent:
		if reading && len(r.Header["If-None-Match"]) == 0 && modifiedSince(r, modified) == no {
			return notModified
		}
	}
	return proceed
}

// answer is what one condition says.
type answer uint8

const (
	absent answer = iota // it is not there, or malformed
	yes
	no
)

func answerOf(holds bool) answer {
	if holds {
		return yes
	}
	return no
}

func ifMatch(r *http.Request, etag string) answer {
	tags, any, ok := parseTags(r.Header.Values("If-Match"))
	if !ok {
		return absent
	}
	for _, tag := range tags {
		if strongEqual(tag, etag) {
			return yes
		}
	}
	return answerOf(any)
}

func ifNoneMatch(r *http.Request, etag string) answer {
	tags, any, ok := parseTags(r.Header.Values("If-None-Match"))
	if !ok {
		return absent
	}
	for _, tag := range tags {
		if weakEqual(tag, etag) {
			return no
		}
	}
	return answerOf(!any)
}

func unmodifiedSince(r *http.Request, modified time.Time) answer {
	at, ok := parseDate(r.Header.Values("If-Unmodified-Since"))
	if !ok || modified.IsZero() {
		return absent
	}
	return answerOf(!modified.Truncate(time.Second).After(at))
}

func modifiedSince(r *http.Request, modified time.Time) answer {
	at, ok := parseDate(r.Header.Values("If-Modified-Since"))
	if !ok || modified.IsZero() {
		return absent
	}
	return answerOf(modified.Truncate(time.Second).After(at))
}

// rangeHolds reports whether a Range is to be used: there is no If-Range, or it
// names exactly what we have. Half of one version and half of another is what
// it protects from, so only a strong match will do.
func rangeHolds(r *http.Request, etag string, modified time.Time) bool {
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
// entity tags. It is not there if a part of it is malformed.
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
