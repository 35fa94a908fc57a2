package ingress

import (
	"bytes"
	"net/http"

	"micronode/fault"
)

// headerScanner scans the bytes of a header on their way to net/http, for what
// net/http removes without a trace: a Content-Length beside a
// Transfer-Encoding, and a Transfer-Encoding in HTTP/1.0. Both can make one
// request look like two, so the connection must not outlive them (RFC 9112,
// section 6.1).
//
// It is owned by the goroutine that reads for net/http. The byte that net/http
// may read beside a handler is kept elsewhere until the handler is done.
type headerScanner struct {
	readSize   int   // how much net/http can take in one read; zero before the first
	prefetched int32 // the byte that net/http had already, plus one; zero for none
	started    bool  // bytes have come
	sawAll     bool  // every byte was seen, from the first
	ended      bool  // the empty line was seen
	hasLine    bool  // a line that is not empty was seen

	hasTransferEncoding bool
	hasContentLength    bool

	name    [len(transferEncodingName) + 1]byte // of the line, in lower case, so far
	length  int
	inValue bool // after the name
}

const (
	transferEncodingName = "transfer-encoding"
	contentLengthName    = "content-length"
)

// scanHeader scans bytes that were read into a buffer with that much room. One
// byte by itself is what net/http reads beside a handler, to detect that the
// client leaves.
func (c *conn) scanHeader(p []byte, room int) {
	h := &c.header
	switch {
	case h.started && h.sawAll && !h.ended:
		h.scan(p)
	case room == 1:
		c.prefetched.Store(int32(p[0]) + 1)
	case !h.started:
		h.start(room, h.readSize == 0 || c.idleState.Load() == idleWaiting)
		h.scan(p)
	}
}

// start decides whether these bytes are the first of a request: net/http waits
// for one, and its buffer is empty but for the byte that it had. Otherwise the
// client did not wait for an answer, and where the request began is unknown.
func (h *headerScanner) start(room int, waited bool) {
	if h.readSize == 0 {
		h.readSize = room
	}
	h.started = true
	switch {
	case waited && h.prefetched == 0 && room == h.readSize:
		h.sawAll = true
	case waited && h.prefetched != 0 && room == h.readSize-1:
		h.sawAll = true
		h.scan([]byte{byte(h.prefetched - 1)})
	}
}

// scan scans the next bytes, line by line, up to the empty line.
func (h *headerScanner) scan(p []byte) {
	for len(p) > 0 && h.sawAll && !h.ended {
		if h.inValue {
			end := bytes.IndexByte(p, '\n')
			if end < 0 {
				return
			}
			h.inValue, h.length = false, 0
			p = p[end+1:]
			continue
		}
		switch c := p[0]; {
		case c == '\n':
			h.ended = h.hasLine && h.length == 0 // net/http skips empty lines before a request
			h.length = 0
		case c == '\r':
		case c == ':' || h.length == len(h.name):
			name := string(h.name[:h.length])
			h.hasTransferEncoding = h.hasTransferEncoding || name == transferEncodingName
			h.hasContentLength = h.hasContentLength || name == contentLengthName
			h.inValue, h.hasLine = true, true
			continue // with the rest of the line, which may end at once
		default:
			if 'A' <= c && c <= 'Z' {
				c |= 0x20
			}
			h.name[h.length], h.hasLine = c, true
			h.length++
		}
		p = p[1:]
	}
}

// reset prepares for the next request.
func (h *headerScanner) reset(early int32) {
	*h = headerScanner{readSize: h.readSize, prefetched: early}
}

// checkFraming rejects a request whose length can be read in two ways. It
// closes the connection after a request of which that is unknown: over TLS, and
// after one that did not wait for the answer to the one before.
func (c *call) checkFraming(r *http.Request) error {
	if c.http2 || c.conn == nil {
		return nil
	}
	h, http10 := &c.conn.header, !r.ProtoAtLeast(1, 1)
	known := h.sawAll && c.listener.options.TLS == nil
	if !http10 && len(r.TransferEncoding) == 0 || known && !http10 && !h.hasContentLength || known && http10 && !h.hasTransferEncoding {
		return nil
	}
	c.Header().Set("Connection", "close")
	switch {
	case known && http10:
		return ambiguousLength("HTTP/1.0 has no Transfer-Encoding")
	case known:
		return ambiguousLength("a request has a Content-Length or a Transfer-Encoding, not both")
	case http10 && changesState(r.Method) && r.Header.Get("Content-Length") == "":
		return fault.New("http", fault.LengthRequired, "HTTP/1.0 needs a Content-Length")
	}
	return nil
}

func ambiguousLength(detail string) error {
	return fault.New("http", fault.Malformed, "the length of the body is ambiguous: %s", detail).
		Advise("Send a Content-Length alone, or chunks in HTTP/1.1.")
}
