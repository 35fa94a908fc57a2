package freshness

import (
	"net/http"
	"strconv"
	"strings"
)

// VaryFields reads the lines of a Vary field (RFC 9110 §12.5.5) as canonical
// names, sorted, each once. ok is false if the response varies on everything:
// a star is among the members, or something that is not the name of a field.
func VaryFields(values []string) (names []string, ok bool) {
	names = members(values)
	for i, name := range names {
		if name == "*" || !isToken(name) {
			return nil, false
		}
		names[i] = http.CanonicalHeaderKey(name)
	}
	return sortedOnce(names), true
}

func variesOnAll(h http.Header) bool {
	_, ok := VaryFields(h["Vary"])
	return !ok
}

// VaryKey returns the variant of the response that this request selects
// (RFC 9111 §4.1): the normalised values of all fields that Vary names. Two
// requests have the same key if, and only if, they match. ok is false for a
// response that matches no further request.
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

// variant writes names and values so that no two sets of them look the same:
// values are quoted, and an absent field has none.
func variant(names []string, h http.Header) string {
	var key strings.Builder
	for _, name := range names {
		key.WriteString(lower(name))
		if lines, given := h[name]; given && len(lines) > 0 {
			key.WriteByte('=')
			key.WriteString(strconv.Quote(normal(name, lines)))
		}
		key.WriteByte('\n')
	}
	return key.String()
}

// normal writes the lines of a request field in a form in which values that mean
// the same are more often the same. See the chapter on variants.
func normal(name string, lines []string) string {
	switch name {
	case "Accept-Encoding":
		return normalCodings(lines)
	case "Accept-Language":
		return lower(strings.Join(members(lines), ","))
	}
	return strings.Join(members(lines), ",")
}

// normalCodings writes Accept-Encoding (RFC 9110 §12.5.3) in one order, one case
// and with one way to write weights.
func normalCodings(lines []string) string {
	codings := members(lines)
	for i, coding := range codings {
		codings[i] = normalCoding(lower(coding))
	}
	return strings.Join(sortedOnce(codings), ",")
}

// normalCoding writes one coding with its weight (RFC 9110 §12.4.2): none for 1,
// and no zeros at the end. What does not look like that is left as it is.
func normalCoding(text string) string {
	coding, parameter, weighted := strings.Cut(text, ";")
	coding = trim(coding)
	switch coding {
	case "x-gzip":
		coding = "gzip"
	case "x-compress":
		coding = "compress"
	}
	if !weighted {
		return coding
	}
	weight, ok := normalWeight(trim(parameter))
	switch {
	case !ok:
		return text
	case weight == "1":
		return coding
	}
	return coding + ";q=" + weight
}

// normalWeight reads q=0.500 as 0.5.
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
