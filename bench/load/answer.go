package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// answer takes the bytes of one answer as they come and checks them. It is
// used again for the next one, so that nothing is allocated.
type answer struct {
	// set by begin
	want    Exchange
	compare bool // this body is compared with want.Body

	// what has come so far
	head   []byte // of a head that is not whole yet
	inBody bool
	length int    // that the head announced; AnyLength: it comes in chunks
	got    int    // bytes of the body
	kept   []byte // the body, if want.Holds must be looked for
	chunks chunks
}

// maxHead bounds what is kept of a head that does not end.
const maxHead = 64 << 10

func (a *answer) begin(want Exchange, compare bool) {
	*a = answer{want: want, compare: compare && want.Body != nil, head: a.head[:0], kept: a.kept[:0]}
}

// feed takes the next bytes and tells whether the answer is whole.
func (a *answer) feed(data []byte) (done bool, err error) {
	if !a.inBody {
		if data, err = a.feedHead(data); err != nil || !a.inBody {
			return false, err
		}
	}
	if a.length == AnyLength {
		return a.feedChunks(data)
	}
	if err := a.feedBody(data); err != nil || a.got < a.length {
		return false, err
	}
	return true, a.finish()
}

var endOfHead = []byte("\r\n\r\n")

// feedHead reads the head when it is whole and returns what follows it. The
// common case, a head in one piece, is read where it lies.
func (a *answer) feedHead(data []byte) (rest []byte, err error) {
	if len(a.head) > 0 {
		a.head = append(a.head, data...)
		data = a.head
	}
	end := bytes.Index(data, endOfHead)
	switch {
	case end >= 0:
		a.inBody = true
		return data[end+len(endOfHead):], a.readHead(data[:end+2], data[end+len(endOfHead):])
	case len(data) > maxHead:
		return nil, errors.New("the head of the answer does not end")
	case len(a.head) == 0:
		a.head = append(a.head, data...)
	}
	return nil, nil
}

// readHead checks the status and reads the length. The beginning of the body is for the
// message only: a refusal says there what is wrong.
func (a *answer) readHead(head, body []byte) error {
	line, fields, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return fmt.Errorf("not an answer in HTTP/1.1: %q", line[:min(len(line), 80)])
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil || status != a.want.Status {
		return fmt.Errorf("status %s instead of %d: %.300s", line[9:], a.want.Status, body)
	}
	if a.length = lengthIn(fields); status == noContent {
		a.length = 0
	}
	if a.length == noLength {
		return errors.New("the answer tells neither its length nor that it comes in chunks")
	}
	return nil
}

// noContent is the status of an answer that has no body and says no length.
const noContent = 204

// noLength is for a head that does not tell where the body ends.
const noLength = -2

// lengthIn finds the length of the body in the fields of a head.
func lengthIn(fields []byte) int {
	for len(fields) > 0 {
		var line []byte
		line, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		if value, ok := valueOf(line, "content-length"); ok {
			if n, err := strconv.Atoi(string(value)); err == nil && n >= 0 {
				return n
			}
			return noLength
		}
		if value, ok := valueOf(line, "transfer-encoding"); ok && bytes.EqualFold(value, []byte("chunked")) {
			return AnyLength
		}
	}
	return noLength
}

// valueOf is the value of a header line, if it has that name. The length and
// the first letter are looked at first: most lines are not the one.
func valueOf(line []byte, name string) ([]byte, bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || line[0]|0x20 != name[0] {
		return nil, false
	}
	if !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name)+1:]), true
}

// feedBody takes bytes of the body itself.
func (a *answer) feedBody(data []byte) error {
	if a.length != AnyLength && a.got+len(data) > a.length {
		return fmt.Errorf("%d bytes more than the answer announced", a.got+len(data)-a.length)
	}
	if a.compare {
		if a.got+len(data) > len(a.want.Body) || !bytes.Equal(data, a.want.Body[a.got:a.got+len(data)]) {
			return fmt.Errorf("other bytes than were stored, between %d and %d", a.got, a.got+len(data))
		}
	}
	if a.want.Holds != nil {
		a.kept = append(a.kept, data...)
	}
	a.got += len(data)
	return nil
}

func (a *answer) feedChunks(data []byte) (done bool, err error) {
	done, err = a.chunks.feed(data, a.feedBody)
	if err != nil || !done {
		return false, err
	}
	return true, a.finish()
}

// finish checks what can be checked only at the end.
func (a *answer) finish() error {
	if a.want.Length != AnyLength && a.got != a.want.Length {
		return fmt.Errorf("a body of %d bytes instead of %d", a.got, a.want.Length)
	}
	if a.want.Holds != nil && !bytes.Contains(a.kept, a.want.Holds) {
		return fmt.Errorf("the answer does not contain %q: %.300s", a.want.Holds, a.kept)
	}
	return nil
}
