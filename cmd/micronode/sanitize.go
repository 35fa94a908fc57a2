package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"micronode/internal/terminal"
)

// Untrusted text must not act on the terminal of its reader: a few bytes move
// the cursor over what was printed before, change the title, or make the
// terminal type something. So everything that goes to a terminal goes through
// here, our own text included; a pipe or a file gets the bytes unchanged.

// sanitize is terminal.Sanitize for bytes.
func sanitize(data []byte) string { return terminal.Sanitize(string(data)) }

// allowedEscapes are the only escape sequences that a terminal gets: those of
// paint.
var allowedEscapes = []string{string(terminal.Green), string(terminal.Yellow), string(terminal.Red), terminal.ColourReset}

// sanitizingWriter writes text to a terminal, and escapes everything else.
type sanitizingWriter struct {
	to          io.Writer
	noColours   bool   // no colours: all of it is untrusted
	json        bool   // everything else is escaped as in JSON
	partialRune []byte // the beginning of a character that is not complete yet
}

// Write writes the sanitized text.
func (s *sanitizingWriter) Write(data []byte) (int, error) {
	given := len(data)
	data = append(s.partialRune, data...)
	var text strings.Builder
	for len(data) > 0 && utf8.FullRune(data) && !bytes.Equal(data, []byte("\r")) {
		data = data[s.writeRune(&text, data):]
	}
	s.partialRune = bytes.Clone(data)
	_, err := io.WriteString(s.to, text.String())
	return given, err
}

// writeRune writes the first character, and returns its length.
func (s *sanitizingWriter) writeRune(text *strings.Builder, data []byte) int {
	switch {
	case data[0] == '\n' || data[0] == '\t':
		text.WriteByte(data[0])
		return 1
	case bytes.HasPrefix(data, []byte("\r\n")):
		text.WriteByte('\n')
		return 2
	}
	for _, colour := range allowedEscapes {
		if !s.noColours && bytes.HasPrefix(data, []byte(colour)) {
			text.WriteString(colour)
			return len(colour)
		}
	}
	if char, size := utf8.DecodeRune(data); s.json && !strconv.IsPrint(char) && char <= 0xffff {
		fmt.Fprintf(text, `\u%04x`, char)
		return size
	}
	safe, size := terminal.SanitizeRune(string(data[:min(len(data), utf8.UTFMax)]))
	text.WriteString(safe)
	return size
}

// Close writes an incomplete character that is left at the end.
func (s *sanitizingWriter) Close() error {
	_, err := io.WriteString(s.to, sanitize(s.partialRune))
	s.partialRune = nil
	return err
}

// safeOut is the writer of a command's results: standard output, sanitized if
// it is a terminal.
func (c *console) safeOut() io.Writer {
	if !c.outTerminal {
		return c.out
	}
	return &sanitizingWriter{to: c.out, json: c.json}
}

// safeErr is the writer of everything else: standard error, sanitized if it is
// a terminal.
func (c *console) safeErr() io.Writer {
	if !c.errTerminal {
		return c.err
	}
	return &sanitizingWriter{to: c.err, json: c.json}
}
