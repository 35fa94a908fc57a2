package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"micronode/fault"
)

// Sanitize makes an untrusted text safe for one line of a terminal: characters
// that could move the cursor, change colours or turn the direction of writing
// are escaped.
func Sanitize(text string) string {
	var safe strings.Builder
	for text != "" {
		escaped, size := SanitizeRune(text)
		safe.WriteString(escaped)
		text = text[size:]
	}
	return safe.String()
}

// SanitizeRune returns the first character of a text, safe for a terminal, and
// how many bytes it took.
func SanitizeRune(text string) (safe string, size int) {
	char, size := utf8.DecodeRuneInString(text)
	switch {
	case char == utf8.RuneError && size == 1:
		return fmt.Sprintf(`\x%02x`, text[0]), size
	case strconv.IsPrint(char):
		return text[:size], size
	default:
		quoted := strconv.QuoteRune(char)
		return quoted[1 : len(quoted)-1], size
	}
}

// Colour is the colour of words that show a state.
type Colour string

// The colours.
const (
	Green  Colour = "\x1b[32m"
	Yellow Colour = "\x1b[33m"
	Red    Colour = "\x1b[31m"
)

// ColourReset ends a colour.
const ColourReset = "\x1b[0m"

// Paint colours a text.
func (c Colour) Paint(text string) string { return string(c) + text + ColourReset }

// ErrorText is the text of an error for people: details and causes, without
// the names of operations and without repetitions.
func ErrorText(err error) string {
	own, ok := err.(*fault.Error)
	if !ok {
		if list, joined := err.(interface{ Unwrap() []error }); joined && len(list.Unwrap()) == 1 {
			return ErrorText(list.Unwrap()[0])
		}
		if cause := errors.Unwrap(err); cause != nil && cause.Error() == err.Error() {
			return ErrorText(cause) // a wrapper without a text
		}
		return err.Error()
	}
	switch {
	case own.Detail == "" && own.Err == nil:
		return own.Kind.Title()
	case own.Err == nil:
		return own.Detail
	}
	cause := ErrorText(own.Err)
	if strings.HasPrefix(cause, own.Detail) { // also if there is no detail
		return cause
	}
	return own.Detail + ": " + cause
}

// Columns formats rows in columns.
func Columns(rows [][]string) []string {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	_ = w.Flush() // into memory
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// FormatRate is a rate with its significant digits.
func FormatRate(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 10:
		return fmt.Sprintf("%.1f", rate)
	default:
		return fmt.Sprintf("%.0f", rate)
	}
}

// FormatMillis is a time in milliseconds, for people.
func FormatMillis(milliseconds *float64) string {
	switch {
	case milliseconds == nil:
		return "-"
	case *milliseconds < 1:
		return fmt.Sprintf("%.0fµs", *milliseconds*1000)
	case *milliseconds < 10:
		return fmt.Sprintf("%.1fms", *milliseconds)
	case *milliseconds < 10_000:
		return fmt.Sprintf("%.0fms", *milliseconds)
	default:
		return fmt.Sprintf("%.0fs", *milliseconds/1000)
	}
}

// Pluralize is a number with its noun.
func Pluralize(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// SocketFlag is the flag with which a client reaches a node on a socket other
// than the default.
func SocketFlag(socket string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-"
	switch {
	case socket == "":
		return ""
	case strings.Trim(socket, plain) == "":
		return " --socket " + socket
	}
	return " --socket '" + strings.ReplaceAll(socket, "'", `'\''`) + "'"
}

// FormatSocket shows an abstract socket as other tools do, with an @.
func FormatSocket(socket string) string {
	if strings.ContainsAny(socket, "/@") {
		return socket
	}
	return "@" + socket
}

// FormatBytes is a number of bytes, for people.
func FormatBytes(n float64) string {
	unit := 0
	names := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for ; n >= 1024 && unit < len(names)-1; unit++ {
		n /= 1024
	}
	if unit == 0 || n >= 100 {
		return fmt.Sprintf("%.0f %s", n, names[unit])
	}
	return fmt.Sprintf("%.1f %s", n, names[unit])
}
