package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// chunks reads a chunked body. It supports what the peers send: no extensions,
// trailers dropped.
type chunks struct {
	line []byte // of a size or a trailer that is not complete yet
	left int    // bytes left in this chunk, with the line end after it
	last bool   // the empty chunk has been read: trailers follow
}

// feed passes the contents on and reports whether the last chunk has been read.
func (c *chunks) feed(data []byte, body func([]byte) error) (done bool, err error) {
	for len(data) > 0 && !done {
		if c.left > 0 {
			data, err = c.take(data, body)
		} else {
			data, done, err = c.readLine(data)
		}
		if err != nil {
			return false, err
		}
	}
	if len(data) > 0 {
		return false, fmt.Errorf("%d bytes after the last chunk", len(data))
	}
	return done, nil
}

// take passes on what is there of a chunk. Its last two bytes end the line.
func (c *chunks) take(data []byte, body func([]byte) error) (rest []byte, err error) {
	n := min(len(data), c.left)
	if content := min(n, c.left-2); content > 0 {
		err = body(data[:content])
	}
	c.left -= n
	return data[n:], err
}

// readLine reads the size of a chunk or, after the last chunk, a trailer; an
// empty one ends the response.
func (c *chunks) readLine(data []byte) (rest []byte, done bool, err error) {
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		if c.line = append(c.line, data...); len(c.line) > maxHead {
			return nil, false, errors.New("a line between chunks does not end")
		}
		return nil, false, nil
	}
	line := bytes.TrimSpace(append(c.line, data[:end]...))
	rest, c.line = data[end+1:], c.line[:0]
	if c.last {
		return rest, len(line) == 0, nil
	}
	size, err := strconv.ParseUint(string(line), 16, 31)
	if err != nil {
		return nil, false, fmt.Errorf("the size of a chunk: %q", line)
	}
	if c.last = size == 0; !c.last {
		c.left = int(size) + 2
	}
	return rest, false, nil
}
