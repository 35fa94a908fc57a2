package ingress

import (
	"bytes"
	"net/http"
	"sync"

	"micronode/fault"
)

// headerScanner follows the bytes of a connection on their way to net/http, for
// what net/http removes from headers without a trace: a Content-Length beside a
// Transfer-Encoding, and a Transfer-Encoding in HTTP/1.0. Both can make one
// request look like two (RFC 9112, section 6.1).
//
// It knows where each request begins, also of those that come before the
// answer to an earlier one, because it follows the bodies, too. Where it
// cannot, it is lost: net/http then closes the connection with an error, or
// checkFraming does after the request.
type headerScanner struct {
	mu sync.Mutex //lockblock:leaf net/http may read one byte beside a handler

	// guarded by mu
	at       scanState
	pending  []framing // of the requests whose headers have come, the current one first
	current  framing   // of the header that is coming
	hasLine  bool      // a line of it that is not empty was seen
	length   int64     // by its Content-Length; negative if that is not a number
	left     int64     // bytes of the body, or of the chunk
	digits   int       // of the chunk's size
	lineSize int       // bytes of the line so far, in a trailer

	name     [len(transferEncodingName) + 1]byte // of the line, in lower case, so far
	nameSize int
}

// scanState is what the next byte belongs to.
type scanState uint8

const (
	scanName      scanState = iota // a line of the header, up to its colon
	scanValue                      // the rest of the line
	scanLength                     // the value of a Content-Length
	scanBody                       // a body of known length
	scanChunkSize                  // the size of a chunk
	scanChunkRest                  // the rest of that line
	scanChunk                      // the chunk, with its line end
	scanTrailer                    // the lines after the last chunk
	scanLost                       // unknown
)

// framing is what a header says of the length of its body.
type framing struct{ hasTransferEncoding, hasContentLength bool }

const (
	transferEncodingName = "transfer-encoding"
	contentLengthName    = "content-length"

	maxPending = 512 // more requests than the buffer of net/http can hold
)

// scan follows the next bytes.
func (h *headerScanner) scan(p []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(p) > 0 && h.at != scanLost {
		switch h.at {
		case scanName:
			p = h.scanName(p)
		case scanValue, scanLength:
			p = h.scanValue(p)
		case scanBody, scanChunk:
			n := min(int64(len(p)), h.left)
			p = p[n:]
			if h.left -= n; h.left > 0 {
				break
			}
			if h.at == scanBody {
				h.begin()
			} else {
				h.at, h.digits = scanChunkSize, 0
			}
		case scanChunkSize, scanChunkRest:
			p = h.scanChunkSize(p)
		case scanTrailer:
			if c := p[0]; c == '\n' && h.lineSize == 0 {
				h.begin()
			} else if c == '\n' {
				h.lineSize = 0
			} else if c != '\r' {
				h.lineSize++
			}
			p = p[1:]
		}
	}
}

// begin prepares for the next header.
func (h *headerScanner) begin() {
	h.at, h.current, h.hasLine, h.length, h.nameSize = scanName, framing{}, false, 0, 0
}

// scanName reads the name of a line, up to its colon, or the empty line that
// ends the header.
func (h *headerScanner) scanName(p []byte) []byte {
	c := p[0]
	switch {
	case c == '\n' && h.nameSize > 0: // a line without a colon: the request line, or an error
		h.nameSize = 0
	case c == '\n' && h.hasLine: // net/http skips empty lines before a request
		h.endHeader()
	case c == '\n' || c == '\r':
	case c == ':' || h.nameSize == len(h.name):
		h.at, h.hasLine = scanValue, true
		switch string(h.name[:h.nameSize]) {
		case transferEncodingName:
			h.current.hasTransferEncoding = true
		case contentLengthName:
			h.at, h.length, h.current.hasContentLength = scanLength, 0, true
		}
		h.nameSize = 0
		if c != ':' {
			return p // it may end the line
		}
	default:
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		h.name[h.nameSize], h.hasLine = c, true
		h.nameSize++
	}
	return p[1:]
}

// scanValue reads the rest of a line. A length that is not plain digits is left
// to net/http.
func (h *headerScanner) scanValue(p []byte) []byte {
	end := bytes.IndexByte(p, '\n')
	value := p
	if end >= 0 {
		value = p[:end]
	}
	if h.at == scanLength {
		for _, c := range value {
			switch {
			case '0' <= c && c <= '9' && 0 <= h.length && h.length < 1<<58:
				h.length = h.length*10 + int64(c-'0')
			case c != ' ' && c != '\t' && c != '\r':
				h.length = -1
			}
		}
	}
	if end < 0 {
		return nil
	}
	h.at = scanName
	return p[end+1:]
}

// endHeader adds the request, and begins its body.
func (h *headerScanner) endHeader() {
	if len(h.pending) == maxPending {
		h.at = scanLost
		return
	}
	h.pending = append(h.pending, h.current)
	switch f := h.current; {
	case f.hasTransferEncoding && f.hasContentLength, f.hasContentLength && h.length < 0:
		h.at = scanLost // it is refused, and nothing after it is a request
	case f.hasTransferEncoding:
		h.at, h.left, h.digits = scanChunkSize, 0, 0
	case f.hasContentLength && h.length > 0:
		h.at, h.left = scanBody, h.length
	default:
		h.begin()
	}
}

// scanChunkSize reads the line with the size of a chunk.
func (h *headerScanner) scanChunkSize(p []byte) []byte {
	c := p[0]
	digit := -1
	switch small := c | 0x20; {
	case '0' <= c && c <= '9':
		digit = int(c - '0')
	case 'a' <= small && small <= 'f':
		digit = int(small-'a') + 10
	}
	switch {
	case c == '\n' && h.digits == 0:
		h.at = scanLost
	case c == '\n' && h.left == 0:
		h.at, h.lineSize = scanTrailer, 0
	case c == '\n':
		h.at, h.left = scanChunk, h.left+int64(len("\r\n"))
	case h.at == scanChunkRest:
	case digit >= 0 && h.digits < 15:
		h.left, h.digits = h.left<<4|int64(digit), h.digits+1
	case digit >= 0:
		h.at = scanLost
	default:
		h.at = scanChunkRest // an extension, or the carriage return
	}
	return p[1:]
}

// head is the framing of the current request, if it is known.
func (h *headerScanner) head() (f framing, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) == 0 {
		return framing{}, false
	}
	return h.pending[0], true
}

// next goes on to the next request, when net/http has finished one.
func (h *headerScanner) next() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) > 0 {
		h.pending = h.pending[:copy(h.pending, h.pending[1:])]
	}
}

// lose ends the scanning: what comes now is not HTTP.
func (h *headerScanner) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.pending = scanLost, nil
}

// checkFraming rejects a request whose length can be read in two ways. Over TLS
// that is not known: there, it closes the connection after a request that may be
// one.
func (c *call) checkFraming(r *http.Request) error {
	if c.http2 || c.conn == nil {
		return nil
	}
	http10 := !r.ProtoAtLeast(1, 1)
	f, known := c.conn.header.head()
	switch {
	case known && http10 && f.hasTransferEncoding:
		c.Header().Set("Connection", "close")
		return ambiguousLength("HTTP/1.0 has no Transfer-Encoding")
	case known && f.hasTransferEncoding && f.hasContentLength:
		c.Header().Set("Connection", "close")
		return ambiguousLength("a request has a Content-Length or a Transfer-Encoding, not both")
	case known, !http10 && len(r.TransferEncoding) == 0:
		return nil
	}
	c.Header().Set("Connection", "close")
	if http10 && changesState(r.Method) && r.Header.Get("Content-Length") == "" {
		return fault.New("http", fault.LengthRequired, "HTTP/1.0 needs a Content-Length")
	}
	return nil
}

func ambiguousLength(detail string) error {
	return fault.New("http", fault.Malformed, "the length of the body is ambiguous: %s", detail).
		Advise("Send a Content-Length alone, or chunks in HTTP/1.1.")
}
