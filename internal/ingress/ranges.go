package ingress

import (
	"strconv"
	"strings"
)

// span is a part of a content.
type span struct{ from, length int64 }

func (s span) String() string {
	return strconv.FormatInt(s.from, 10) + "-" + strconv.FormatInt(s.from+s.length-1, 10)
}

// contentRange is the header for a span of a content of a size.
func (s span) contentRange(size int64) string {
	return "bytes " + s.String() + "/" + strconv.FormatInt(size, 10)
}

// asked is what a Range header asks for.
type asked uint8

const (
	askedAll     asked = iota // no range, or one in a unit that we do not know
	askedSome                 // spans
	askedInvalid              // 416
)

// parseRange reads a Range header (RFC 9110, section 14.2) for a content of a
// size. More ranges than `most` are refused, and so is what does not parse and
// what lies outside. Ranges that together are more than the content get the
// content, and others that overlap are joined: asking for the same bytes again
// and again must not pay.
func parseRange(values []string, size int64, most int) (asked, []span) {
	if len(values) == 0 {
		return askedAll, nil
	}
	unit, set, found := strings.Cut(values[0], "=")
	if !found || !strings.EqualFold(strings.TrimSpace(unit), "bytes") || size == 0 {
		return askedAll, nil
	}
	if len(values) > 1 {
		return askedInvalid, nil
	}
	var spans []span
	total, given := int64(0), 0
	for part := range strings.SplitSeq(set, ",") {
		part = strings.Trim(part, " \t")
		if part == "" {
			continue // the list syntax of HTTP allows empty elements
		}
		if given++; given > most {
			return askedInvalid, nil
		}
		one, syntax, inside := parseSpan(part, size)
		if !syntax {
			return askedInvalid, nil
		}
		if inside {
			spans = append(spans, one)
			total += one.length // each is at most size, and there are few
		}
	}
	switch {
	case len(spans) == 0:
		return askedInvalid, nil
	case len(spans) > 1 && total > size:
		return askedAll, nil
	}
	return askedSome, coalesce(spans)
}

// coalesce joins spans that overlap or touch, so that no byte is sent twice.
// The order is that in which the first byte of each was asked for.
func coalesce(spans []span) []span {
	for i := 0; i < len(spans); i++ {
		for j := i + 1; j < len(spans); j++ {
			a, b := spans[i], spans[j]
			from, end := min(a.from, b.from), max(a.from+a.length, b.from+b.length)
			if end-from <= a.length+b.length {
				spans[i] = span{from, end - from}
				spans = append(spans[:j], spans[j+1:]...)
				j = i // what was joined may touch one that was passed over
			}
		}
	}
	return spans
}

// parseSpan reads first-last, first- or -length.
func parseSpan(part string, size int64) (one span, syntax, inside bool) {
	first, last, found := strings.Cut(part, "-")
	first, last = strings.Trim(first, " \t"), strings.Trim(last, " \t")
	if !found || first == "" && last == "" {
		return span{}, false, false
	}
	if first == "" {
		n, ok := parsePosition(last)
		n = min(n, size)
		return span{size - n, n}, ok, n > 0
	}
	from, ok := parsePosition(first)
	if !ok {
		return span{}, false, false
	}
	to := size - 1
	if last != "" {
		end, ok := parsePosition(last)
		if !ok || end < from {
			return span{}, false, false
		}
		to = min(to, end)
	}
	return span{from, to - from + 1}, true, from < size
}

// parsePosition reads digits and nothing else. A number that is too large is
// as good as the largest one: it lies beyond every content.
func parsePosition(text string) (int64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 1<<63 - 1, true
	}
	return n, true
}
