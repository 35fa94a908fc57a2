package ingress

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"micronode/fault"
)

// frameGuard is the connection below a WebSocket. It reads the header of each
// frame before the library does, for what the library answers with a closed
// connection alone: a length with the top bit set, and a frame without a mask.
// RFC 6455 (5.1, 5.2, 7.4.1) wants the connection to be closed with 1002, so
// that the client learns what was wrong.
type frameGuard struct {
	net.Conn
	from *bufio.Reader // what came with the handshake, and then the connection

	// owned by the reader
	checked []byte // of the header that was checked last, and not returned yet
	left    uint64 // bytes of the frame after that

	violated atomic.Bool // the client has broken the protocol
}

var errFrame = &fault.Error{Op: "http.websocket", Kind: fault.Malformed, Detail: "the frame is not valid: it has no mask, or an impossible length"}

// Read returns bytes of frames whose headers are valid.
func (g *frameGuard) Read(p []byte) (int, error) {
	if len(g.checked) == 0 && g.left == 0 {
		if err := g.readHeader(); err != nil {
			return 0, err
		}
	}
	if len(g.checked) > 0 {
		n := copy(p, g.checked)
		g.checked = g.checked[n:]
		return n, nil
	}
	n, err := g.from.Read(p[:min(uint64(len(p)), g.left)])
	g.left -= uint64(n)
	return n, err
}

// readHeader reads the header of the next frame up to its mask, and checks it.
func (g *frameGuard) readHeader() error {
	const longest, mask, maskSize = 10, 0x80, 4
	size := 2
	header, err := g.from.Peek(size)
	if err != nil {
		return err
	}
	switch length := header[1] &^ mask; length {
	case 126:
		size += 2
	case 127:
		size = longest
	default:
		g.left = uint64(length)
	}
	if header, err = g.from.Peek(size); err != nil {
		return err
	}
	switch size {
	case 4:
		g.left = uint64(binary.BigEndian.Uint16(header[2:]))
	case longest:
		g.left = binary.BigEndian.Uint64(header[2:])
	}
	if header[1]&mask == 0 || g.left>>63 != 0 {
		g.violated.Store(true)
		return errFrame
	}
	g.left += maskSize
	g.checked = bytes.Clone(header)
	_, _ = g.from.Discard(size) // it was peeked at
	return nil
}

// Close closes the connection. A client that has broken the protocol is told.
func (g *frameGuard) Close() error {
	if g.violated.Swap(false) {
		_ = g.Conn.SetWriteDeadline(time.Now().Add(answerGrace)) // a closed connection needs no deadline
		_, _ = g.Conn.Write([]byte{0x88, 2, 1002 >> 8, 1002 & 0xff})
	}
	return g.Conn.Close()
}

// guardedHijacker gives the library a guarded connection.
type guardedHijacker struct {
	http.ResponseWriter
	call *call
}

// Hijack takes the connection over from net/http, with what it has read.
func (h guardedHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.call.conn.header.lose()
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // it has that much
	guard := &frameGuard{Conn: conn, from: bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn))}
	return guard, bufio.NewReadWriter(bufio.NewReader(guard), buffered.Writer), nil
}
