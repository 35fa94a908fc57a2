package ingress

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests that fake time need connections that are not the kernel's. These
// are like TCP in what matters here: buffered, with addresses, deadlines and
// half-close, and a reset for a writer whose reader has closed.

// memory is a listener in memory.
type memory struct {
	addr    net.Addr
	arrived chan net.Conn
	closed  chan struct{}
	once    sync.Once
	room    int // of each direction's buffer
}

func newMemory() *memory {
	return &memory{
		addr:    net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:8080")),
		arrived: make(chan net.Conn), closed: make(chan struct{}), room: 64 << 10,
	}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.arrived:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.once.Do(func() { close(m.closed) }); return nil }
func (m *memory) Addr() net.Addr { return m.addr }

// dial connects from an address.
func (m *memory) dial(t testing.TB, from string) *memoryConn {
	t.Helper()
	c, err := m.connect(from)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (m *memory) connect(from string) (*memoryConn, error) {
	there, here := newHalf(m.room), newHalf(m.room)
	client := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
	ours := &memoryConn{in: here, out: there, local: client, remote: m.addr}
	theirs := &memoryConn{in: there, out: here, local: m.addr, remote: client}
	select {
	case m.arrived <- theirs:
		return ours, nil
	case <-m.closed:
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
}

type memoryConn struct {
	in, out       *half
	local, remote net.Addr
}

func (c *memoryConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *memoryConn) Write(p []byte) (int, error) { return c.out.write(p) }
func (c *memoryConn) CloseWrite() error           { c.out.end(); return nil }
func (c *memoryConn) Close() error                { c.out.end(); c.in.abandon(); return nil }
func (c *memoryConn) LocalAddr() net.Addr         { return c.local }
func (c *memoryConn) RemoteAddr() net.Addr        { return c.remote }
func (c *memoryConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readEnd, t)
	return nil
}
func (c *memoryConn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeEnd, t)
	return nil
}

// half is one direction.
type half struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and made anew at every change
	buffer    []byte
	room      int
	ended     bool // the writer has closed
	abandoned bool // the reader has closed
	readEnd   time.Time
	writeEnd  time.Time
}

func newHalf(room int) *half { return &half{room: room, changed: make(chan struct{})} }

func (h *half) tell() { close(h.changed); h.changed = make(chan struct{}) }

func (h *half) setDeadline(field *time.Time, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*field = t
	h.tell()
}

func (h *half) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.tell()
}

func (h *half) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abandoned, h.buffer = true, nil
	h.tell()
}

func (h *half) read(p []byte) (int, error) {
	for {
		h.mu.Lock()
		changed, end := h.changed, h.readEnd
		switch {
		case h.abandoned:
			h.mu.Unlock()
			return 0, &net.OpError{Op: "read", Err: net.ErrClosed}
		case !end.IsZero() && !time.Now().Before(end):
			h.mu.Unlock()
			return 0, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
		case len(h.buffer) > 0:
			n := copy(p, h.buffer)
			h.buffer = h.buffer[n:]
			h.tell()
			h.mu.Unlock()
			return n, nil
		case h.ended:
			h.mu.Unlock()
			return 0, io.EOF
		}
		h.mu.Unlock()
		pause(changed, end)
	}
}

func (h *half) write(p []byte) (n int, err error) {
	for {
		h.mu.Lock()
		changed, end := h.changed, h.writeEnd
		switch {
		case h.ended:
			err = &net.OpError{Op: "write", Err: net.ErrClosed}
		case h.abandoned:
			err = &net.OpError{Op: "write", Err: syscall.EPIPE}
		case !end.IsZero() && !time.Now().Before(end):
			err = &net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}
		}
		if fits := min(h.room-len(h.buffer), len(p)-n); err == nil && fits > 0 {
			h.buffer = append(h.buffer, p[n:n+fits]...)
			n += fits
			h.tell()
		}
		h.mu.Unlock()
		if err != nil || n == len(p) {
			return n, err
		}
		pause(changed, end)
	}
}

// pause waits for a change or a deadline.
func pause(changed <-chan struct{}, end time.Time) {
	if end.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}
