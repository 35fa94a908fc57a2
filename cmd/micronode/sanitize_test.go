package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/internal/terminal"
	"micronode/internal/testkit"
)

// A terminal gets no control character but the line break and the tab, however
// the text is split, and all of the readable text. A text without control
// characters is unchanged.
func TestATerminalIsSpared(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pieces := rapid.SliceOf(rapid.OneOf(
			rapid.SampledFrom([]string{"\x1b[2J", "\x1b]0;x\a", "\u009b31m", "\r\n", "\r", "\b", "\x00", "\u202e", "ü", "\xff", "\n", "\t", "\x1b[32m"}),
			rapid.StringMatching(`[a-z ]{0,5}`),
		)).Draw(rt, "pieces")
		text := strings.Join(pieces, "")
		var out bytes.Buffer
		screen := &sanitizingWriter{to: &out, noColours: true}
		for data := []byte(text); len(data) > 0; {
			n := rapid.IntRange(1, len(data)).Draw(rt, "at a time")
			if _, err := screen.Write(data[:n]); err != nil {
				rt.Fatal(err)
			}
			data = data[n:]
		}
		testkit.Must(rt, screen.Close())
		shown := out.String()
		if strings.ContainsFunc(shown, func(r rune) bool {
			return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u202e'
		}) || strings.Contains(shown, "\xff") {
			rt.Fatalf("%q is shown as %q", text, shown)
		}
		once := &bytes.Buffer{}
		whole := &sanitizingWriter{to: once, noColours: true}
		_, _ = whole.Write([]byte(text))
		_ = whole.Close()
		if once.String() != shown {
			rt.Fatalf("%q in pieces, %q at once", shown, once)
		}
	})
}

// Our own colours pass, and those in untrusted text do not.
func TestOurColoursPass(t *testing.T) {
	var out bytes.Buffer
	c := &console{out: &out, outTerminal: true, colours: true}
	c.print("%s %s\n", c.paint(terminal.Green, "ready"), "\x1b[5mblink\x1b[1;1H")
	if want := "\x1b[32mready\x1b[0m \\x1b[5mblink\\x1b[1;1H\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// JSON on a terminal is still JSON with the same value.
func TestJSONOnATerminal(t *testing.T) {
	const text = "a\x1b[2J\u009b2J\u202eb\xffü"
	var out bytes.Buffer
	c := &console{out: &out, outTerminal: true, json: true}
	c.printJSON(map[string]string{"text": text})
	if strings.ContainsAny(out.String(), "\x1b\u009b\u202e") {
		t.Errorf("%q", out.String())
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["text"] != strings.ToValidUTF8(text, "\ufffd") {
		t.Errorf("%q, %v", back, err)
	}
}

// An error with untrusted text is sanitized as well.
func TestAnErrorOnATerminal(t *testing.T) {
	var out bytes.Buffer
	c := &console{err: &out, errTerminal: true}
	c.notice("said %s", "\x1b[2J")
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
}
