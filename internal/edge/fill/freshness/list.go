package freshness

import (
	"iter"
	"slices"
	"strings"
)

// listMembers iterates over the members of a list field (RFC 9110 §5.6.1): it
// splits the lines at the commas that are not inside a quoted string, trims
// white space and skips empty members.
func listMembers(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range lines {
			if !lineMembers(line, yield) {
				return
			}
		}
	}
}

// lineMembers iterates over the members of one line. A quote that is never
// closed quotes nothing, and neither does any after it: otherwise one stray
// quote would hide every directive behind it. Each byte is read a few times at
// most, however hostile the line.
func lineMembers(line string, yield func(string) bool) bool {
	start, quoting := 0, true
	for i := 0; i <= len(line); i++ {
		switch {
		case i == len(line) || line[i] == ',':
			member := trimOWS(line[start:i])
			if member != "" && !yield(member) {
				return false
			}
			start = i + 1
		case line[i] == '"' && quoting:
			if end := closingQuote(line, i); end > 0 {
				i = end
			} else {
				quoting = false
			}
		}
	}
	return true
}

// members collects the members of a list field.
func members(lines []string) []string { return slices.Collect(listMembers(lines)) }

// closingQuote finds the quote that closes the one at position open, or returns -1.
func closingQuote(line string, open int) int {
	for i := open + 1; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// unquote parses a token or a quoted string (RFC 9110 §5.6.4), and nothing
// else.
func unquote(text string) (string, bool) {
	if !strings.HasPrefix(text, `"`) {
		return text, isToken(text)
	}
	if closingQuote(text, 0) != len(text)-1 {
		return "", false
	}
	var plain strings.Builder
	for inside := text[1 : len(text)-1]; inside != ""; inside = inside[1:] {
		if inside[0] == '\\' {
			inside = inside[1:]
		}
		plain.WriteByte(inside[0])
	}
	return plain.String(), true
}

// isToken reports whether text is a token (RFC 9110 §5.6.2): what names of
// fields, methods and directives are made of.
func isToken(text string) bool {
	for i := 0; i < len(text); i++ {
		c := text[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return text != ""
}

// asciiLower lowers the letters of ASCII, the only ones that HTTP compares
// without case, and leaves every other byte unchanged.
func asciiLower(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return 'A' <= r && r <= 'Z' }) < 0 {
		return text
	}
	small := []byte(text)
	for i, c := range small {
		if 'A' <= c && c <= 'Z' {
			small[i] = c | 0x20
		}
	}
	return string(small)
}

// trimOWS removes optional white space (RFC 9110 §5.6.3) from both ends.
func trimOWS(text string) string { return strings.Trim(text, " \t") }
