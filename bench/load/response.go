package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// responseParser reads the bytes of one response as they arrive and checks
// them. It is reused for the next one, so that nothing is allocated.
type responseParser struct {
	// set by begin
	want    Exchange
	compare bool // this body is compared with want.Body

	// what has arrived so far
	head     []byte // of a head that is not complete yet
	inBody   bool
	length   int    // from the head; AnyLength: the body is chunked
	received int    // bytes of the body
	body     []byte // the body, if it must contain want.Contains
	chunks   chunks
}

// maxHead bounds what is kept of a head that does not end.
const maxHead = 64 << 10

func (r *responseParser) reset(want Exchange, compare bool) {
	*r = responseParser{want: want, compare: compare && want.Body != nil, head: r.head[:0], body: r.body[:0]}
}

// feed reads the next bytes and reports whether the response is complete.
func (r *responseParser) feed(data []byte) (done bool, err error) {
	if !r.inBody {
		if data, err = r.feedHead(data); err != nil || !r.inBody {
			return false, err
		}
	}
	if r.length == AnyLength {
		return r.feedChunks(data)
	}
	if err := r.feedBody(data); err != nil || r.received < r.length {
		return false, err
	}
	return true, r.finish()
}

var endOfHead = []byte("\r\n\r\n")

// feedHead reads the head when it is complete and returns what follows it. The
// common case, a head in one read, is parsed in place.
func (r *responseParser) feedHead(data []byte) (rest []byte, err error) {
	if len(r.head) > 0 {
		r.head = append(r.head, data...)
		data = r.head
	}
	end := bytes.Index(data, endOfHead)
	switch {
	case end >= 0:
		r.inBody = true
		return data[end+len(endOfHead):], r.readHead(data[:end+2], data[end+len(endOfHead):])
	case len(data) > maxHead:
		return nil, errors.New("the head of the answer does not end")
	case len(r.head) == 0:
		r.head = append(r.head, data...)
	}
	return nil, nil
}

// readHead checks the status and reads the length. The beginning of the body is
// for the message only: a refusal says there what is wrong.
func (r *responseParser) readHead(head, body []byte) error {
	line, fields, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return fmt.Errorf("not an answer in HTTP/1.1: %q", line[:min(len(line), 80)])
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil || status != r.want.Status {
		return fmt.Errorf("status %s instead of %d: %.300s", line[9:], r.want.Status, body)
	}
	if r.length = lengthIn(fields); status == noContent {
		r.length = 0
	}
	if r.length == noLength {
		return errors.New("the answer tells neither its length nor that it comes in chunks")
	}
	return nil
}

// noContent is the status of a response that has no body and no length.
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

// valueOf returns the value of a header line, if it has that name. The length
// and the first letter are compared first: most lines differ there.
func valueOf(line []byte, name string) ([]byte, bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || line[0]|0x20 != name[0] {
		return nil, false
	}
	if !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name)+1:]), true
}

// feedBody reads bytes of the body itself.
func (r *responseParser) feedBody(data []byte) error {
	if r.length != AnyLength && r.received+len(data) > r.length {
		return fmt.Errorf("%d bytes more than the answer announced", r.received+len(data)-r.length)
	}
	if r.compare {
		if r.received+len(data) > len(r.want.Body) || !bytes.Equal(data, r.want.Body[r.received:r.received+len(data)]) {
			return fmt.Errorf("other bytes than were stored, between %d and %d", r.received, r.received+len(data))
		}
	}
	if r.want.Contains != nil {
		r.body = append(r.body, data...)
	}
	r.received += len(data)
	return nil
}

func (r *responseParser) feedChunks(data []byte) (done bool, err error) {
	done, err = r.chunks.feed(data, r.feedBody)
	if err != nil || !done {
		return false, err
	}
	return true, r.finish()
}

// finish checks what can be checked only at the end.
func (r *responseParser) finish() error {
	if r.want.Length != AnyLength && r.received != r.want.Length {
		return fmt.Errorf("a body of %d bytes instead of %d", r.received, r.want.Length)
	}
	if r.want.Contains != nil && !bytes.Contains(r.body, r.want.Contains) {
		return fmt.Errorf("the answer does not contain %q: %.300s", r.want.Contains, r.body)
	}
	return nil
}
