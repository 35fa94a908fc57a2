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

// rangeResult is the kind of a Range header.
type rangeResult uint8

const (
	rangeNone    rangeResult = iota // no range, or one in an unknown unit
	rangeSpans                      // spans
	rangeInvalid                    // 416: no range is satisfiable
)

// parseRange reads a Range header (RFC 9110, section 14.2) for a content of a
// size. It is refused only if no range is satisfiable. Otherwise unsatisfiable
// ranges are left out, and the whole content is the answer to a header that we
// ignore: more ranges than `most`, a part that does not parse, ranges that
// together are more than the content. Others that overlap are joined: a client
// must gain nothing by requesting the same bytes repeatedly.
func parseRange(values []string, size int64, most int) (rangeResult, []span) {
	if len(values) != 1 {
		return rangeNone, nil
	}
	unit, set, found := strings.Cut(values[0], "=")
	if !found || !strings.EqualFold(strings.TrimSpace(unit), "bytes") || size == 0 {
		return rangeNone, nil
	}
	var spans []span
	total, given, follow := int64(0), 0, true
	for part := range strings.SplitSeq(set, ",") {
		part = strings.Trim(part, " \t")
		if part == "" {
			continue // the list syntax of HTTP allows empty elements
		}
		one, syntax, inside := parseSpan(part, size)
		if !syntax {
			follow = false
		}
		if !syntax || !inside {
			continue
		}
		if given++; given > most {
			return rangeNone, nil
		}
		spans = append(spans, one)
		total += one.length // each is at most size, and there are few
	}
	switch {
	case len(spans) == 0:
		return rangeInvalid, nil
	case !follow, len(spans) > 1 && total > size:
		return rangeNone, nil
	}
	return rangeSpans, mergeSpans(spans)
}

// mergeSpans joins spans that overlap or touch, so that no byte is sent twice.
// They stay in the order in which the first byte of each was requested.
func mergeSpans(spans []span) []span {
	for i := 0; i < len(spans); i++ {
		for j := i + 1; j < len(spans); j++ {
			a, b := spans[i], spans[j]
			from, end := min(a.from, b.from), max(a.from+a.length, b.from+b.length)
			if end-from <= a.length+b.length {
				spans[i] = span{from, end - from}
				spans = append(spans[:j], spans[j+1:]...)
				j = i // the joined span may touch an earlier one
			}
		}
	}
	return spans
}

// parseSpan reads first-last, first- or -length.
func parseSpan(part string, size int64) (one span, syntax, satisfiable bool) {
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

// parsePosition reads digits and nothing else. A number that is too large
// becomes the largest one: it lies beyond every content.
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
