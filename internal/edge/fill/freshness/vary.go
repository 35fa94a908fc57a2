package freshness

import (
	"net/http"
	"strconv"
	"strings"
)

// VaryFields parses the lines of a Vary field (RFC 9110 §12.5.5) into canonical
// names, sorted, each once. ok is false if the response varies on everything: a
// member is a star, or not a field name.
func VaryFields(values []string) (names []string, ok bool) {
	names = members(values)
	for i, name := range names {
		if name == "*" || !isToken(name) {
			return nil, false
		}
		names[i] = http.CanonicalHeaderKey(name)
	}
	return sortedUnique(names), true
}

func variesOnAll(h http.Header) bool {
	_, ok := VaryFields(h["Vary"])
	return !ok
}

// VaryKey returns the variant of the response that this request selects (RFC
// 9111 §4.1): the normalised values of all fields that Vary names. Two requests
// have the same key if, and only if, they match. ok is false for a response
// that matches no further request.
func VaryKey(resp Response, req Request) (key string, ok bool) {
	names, ok := VaryFields(resp.Header["Vary"])
	if !ok {
		return "", false
	}
	return variant(names, req.Header), true
}

// Matches reports whether a request selects the same variant as the stored one
// did (RFC 9111 §4.1), by the Vary lines of the stored response.
func Matches(vary []string, stored, req http.Header) bool {
	names, ok := VaryFields(vary)
	return ok && variant(names, stored) == variant(names, req)
}

// variant encodes names and values without ambiguity: values are quoted, and an
// absent field has none.
func variant(names []string, h http.Header) string {
	var key strings.Builder
	for _, name := range names {
		key.WriteString(asciiLower(name))
		if lines, given := h[name]; given && len(lines) > 0 {
			key.WriteByte('=')
			key.WriteString(strconv.Quote(normalValue(name, lines)))
		}
		key.WriteByte('\n')
	}
	return key.String()
}

// normalValue normalises the lines of a request field, so that equivalent
// values are more often equal. See the section Variants of the package comment.
func normalValue(name string, lines []string) string {
	switch name {
	case "Accept-Encoding":
		return normalCodings(lines)
	case "Accept-Language":
		return asciiLower(strings.Join(members(lines), ","))
	}
	return strings.Join(members(lines), ",")
}

// normalCodings writes Accept-Encoding (RFC 9110 §12.5.3) in one order and one
// case, with one form of weights.
func normalCodings(lines []string) string {
	codings := members(lines)
	for i, coding := range codings {
		codings[i] = normalCoding(asciiLower(coding))
	}
	return strings.Join(sortedUnique(codings), ",")
}

// normalCoding writes one coding with its weight (RFC 9110 §12.4.2): none for
// 1, and no trailing zeros. Anything malformed is left as it is.
func normalCoding(text string) string {
	coding, parameter, weighted := strings.Cut(text, ";")
	coding = trimOWS(coding)
	switch coding {
	case "x-gzip":
		coding = "gzip"
	case "x-compress":
		coding = "compress"
	}
	if !weighted {
		return coding
	}
	weight, ok := normalWeight(trimOWS(parameter))
	switch {
	case !ok:
		return text
	case weight == "1":
		return coding
	}
	return coding + ";q=" + weight
}

// normalWeight parses q=0.500 as 0.5.
func normalWeight(parameter string) (string, bool) {
	text, ok := strings.CutPrefix(parameter, "q=")
	if !ok {
		return "", false
	}
	whole, part, _ := strings.Cut(text, ".")
	if _, digits := parseSeconds("0" + part); !digits || len(part) > 3 {
		return "", false
	}
	part = strings.TrimRight(part, "0")
	switch {
	case whole == "0" && part != "":
		return "0." + part, true
	case (whole == "0" || whole == "1") && part == "":
		return whole, true
	}
	return "", false
}
