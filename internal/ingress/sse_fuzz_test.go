package ingress

import (
	"bytes"
	"strings"
	"testing"
)

// readEvent reads the first event of a stream as HTML specifies it, where CR, LF and
// CRLF end a line, and returns what comes after it.
func readEvent(stream string) (e Event, has bool, rest string) {
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	var data []string
	for stream != "" {
		line, after, _ := strings.Cut(stream, "\n")
		stream = after
		if line == "" {
			break
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.Name = value
		case "id":
			e.ID = value
		case "data":
			data, has = append(data, value), true
		}
	}
	e.Data = []byte(strings.Join(data, "\n"))
	return e, has, stream
}

// FuzzEvents writes an event and reads it back: it is the same one, but for the
// characters that no field can hold, and nothing else is in the stream. The reader in
// package client is held to the same specification by a test of the same name.
func FuzzEvents(f *testing.F) {
	f.Add("head", "7", []byte(`{"version":7}`))
	f.Add("", "", []byte("a\nb\r\nc\rd"))
	f.Add("a\ndata: forged", "1\r\n\r\ndata: forged", []byte("\n\ndata: forged\n\n"))
	f.Add("\x00", " ", []byte(" \r\r\n:"))
	f.Add("", "", []byte("\n\r"))
	f.Fuzz(func(t *testing.T, name, id string, data []byte) {
		var out bytes.Buffer
		writeEvent(&out, Event{Name: name, ID: id, Data: data})
		got, has, rest := readEvent(out.String())
		oneLine := strings.NewReplacer("\r", "", "\n", "", "\x00", "")
		if want := oneLine.Replace(name); got.Name != want {
			t.Errorf("the name is %q, want %q", got.Name, want)
		}
		if want := oneLine.Replace(id); got.ID != want {
			t.Errorf("the ID is %q, want %q", got.ID, want)
		}
		want := strings.TrimSuffix(string(data), "\n") // the end of the last line is that of the event
		if want = strings.ReplaceAll(want, "\r", ""); string(got.Data) != want || has != (len(data) > 0) {
			t.Errorf("the data is %q, want %q", got.Data, want)
		}
		if rest != "" {
			t.Errorf("after the event comes %q", rest)
		}
	})
}
