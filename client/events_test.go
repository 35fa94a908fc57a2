package client

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// plainEvents reads a stream as HTML specifies it, all at once, and as plainly as can
// be: what eventReader has to agree with. Lines end with LF or CRLF.
func plainEvents(stream string) (list []string) {
	lines := strings.Split(stream, "\n")
	name, data, has := "", []string(nil), false
	for _, line := range lines[:len(lines)-1] { // the last one has no end
		line = strings.TrimSuffix(line, "\r")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && has:
			list = append(list, fmt.Sprintf("%q %q", name, strings.Join(data, "\n")))
			name, data, has = "", nil, false
		case line == "":
			name = ""
		case field == "event":
			name = value
		case field == "data":
			data, has = append(data, value), true
		}
	}
	return list
}

func readEvents(in io.Reader) (list []string, err error) {
	for r := newEventReader(in); ; {
		e, err := r.next()
		if err != nil {
			return list, err
		}
		list = append(list, fmt.Sprintf("%q %q", e.name, e.data))
	}
}

// FuzzEvents reads streams of events, in whatever pieces they arrive. A node that lies
// makes no event that is not in the stream, and hides none.
func FuzzEvents(f *testing.F) {
	for _, stream := range []string{
		":\n\nevent: head\nid: 7\ndata: {\"version\":7}\n\n", "data: a\ndata: b\n\ndata\n\n", "event: lost\n\ndata: x\n\n", "data: x\r\n\r\n: draining\r\n\r\n",
		"data:  two spaces\n\n", "data: cut off\n", "\n\n\n", "event: a\nevent: b\ndata:\n\n", "data: " + strings.Repeat("long ", 10_000) + "\n\n",
	} {
		f.Add([]byte(stream))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) > maxEvent {
			t.Skip()
		}
		want := plainEvents(string(stream))
		for how, in := range map[string]io.Reader{"whole": bytes.NewReader(stream), "byte by byte": iotest.OneByteReader(bytes.NewReader(stream)), "halves": iotest.HalfReader(bytes.NewReader(stream))} {
			if got, err := readEvents(in); err != io.EOF || !slices.Equal(got, want) {
				t.Errorf("%s: read %s, %v, want %s", how, got, err, want)
			}
		}
	})
}

// A stream without end has no line and no event that is longer than the bound.
func TestEventsAreBounded(t *testing.T) {
	for what, piece := range map[string]string{"a line": strings.Repeat("x", 1000), "an event": "data: " + strings.Repeat("x", 1000) + "\n"} {
		endless := io.MultiReader(strings.NewReader("data: "), strings.NewReader(strings.Repeat(piece, 2*maxEvent/len(piece))))
		if list, err := readEvents(endless); err != errLongEvent || len(list) != 0 {
			t.Errorf("%s without end: %d events, %v", what, len(list), err)
		}
	}
}
