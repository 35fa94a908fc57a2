package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxEvent bounds an event, and a line of one. A message of [MaxMessage] bytes
// takes a third more as base64, and there is room for the rest of the event.
const maxEvent = 2 << 20

var errLongEvent = errors.New("an event is longer than any of a node")

// event is one message of a stream of server-sent events.
type event struct {
	name string // empty for "message"
	data []byte // valid until the next event is read
}

// eventReader parses a stream into events, as HTML specifies it. Lines end
// with LF or CRLF; a lone CR, which HTML also allows, is used by no node.
type eventReader struct {
	// set at construction
	in *bufio.Reader

	// owned by the reading goroutine
	line, data  []byte
	lastComment string // the last comment that was not empty
}

func newEventReader(in io.Reader) *eventReader {
	return &eventReader{in: bufio.NewReaderSize(in, 32<<10)}
}

// next is the next event that has data. Comments serve only as heartbeats. An
// event that is cut off by the end of the stream is discarded.
func (r *eventReader) next() (event, error) {
	name, empty := "", true
	for r.data = r.data[:0]; ; {
		line, err := r.readLine()
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 && !empty {
			return event{name, r.data[:len(r.data)-1]}, nil // without the last line break
		}
		if len(line) == 0 {
			name = ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "":
			r.recordComment(value)
		case "event":
			name = string(value)
		case "data":
			if len(r.data)+len(value) > maxEvent {
				return event{}, errLongEvent
			}
			r.data, empty = append(append(r.data, value...), '\n'), false
		}
	}
}

// recordComment keeps the comment that a node may send before it ends a
// stream.
func (r *eventReader) recordComment(text []byte) {
	if len(text) > 0 && len(text) <= maxText {
		r.lastComment = string(text)
	}
}

// readLine is the next line without its end.
func (r *eventReader) readLine() ([]byte, error) {
	for r.line = r.line[:0]; ; {
		part, err := r.in.ReadSlice('\n')
		if len(r.line)+len(part) > maxEvent {
			return nil, errLongEvent
		}
		r.line = append(r.line, part...)
		if err == nil {
			return bytes.TrimSuffix(r.line[:len(r.line)-1], []byte{'\r'}), nil
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
	}
}
