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

// memListener is a listener in memory.
type memListener struct {
	addr     net.Addr
	arrived  chan net.Conn
	closed   chan struct{}
	once     sync.Once
	capacity int // of each direction's buffer
}

func newMemListener() *memListener {
	return &memListener{
		addr:    net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:8080")),
		arrived: make(chan net.Conn), closed: make(chan struct{}), capacity: 64 << 10,
	}
}

func (m *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-m.arrived:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memListener) Close() error   { m.once.Do(func() { close(m.closed) }); return nil }
func (m *memListener) Addr() net.Addr { return m.addr }

// dial connects from an address.
func (m *memListener) dial(t testing.TB, from string) *memConn {
	t.Helper()
	c, err := m.connect(from)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (m *memListener) connect(from string) (*memConn, error) {
	there, here := newPipeHalf(m.capacity), newPipeHalf(m.capacity)
	client := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
	ours := &memConn{in: here, out: there, local: client, remote: m.addr}
	theirs := &memConn{in: there, out: here, local: m.addr, remote: client}
	select {
	case m.arrived <- theirs:
		return ours, nil
	case <-m.closed:
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
}

type memConn struct {
	in, out       *pipeHalf
	local, remote net.Addr
}

func (c *memConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *memConn) Write(p []byte) (int, error) { return c.out.write(p) }
func (c *memConn) CloseWrite() error           { c.out.end(); return nil }
func (c *memConn) Close() error                { c.out.end(); c.in.abandon(); return nil }
func (c *memConn) LocalAddr() net.Addr         { return c.local }
func (c *memConn) RemoteAddr() net.Addr        { return c.remote }
func (c *memConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
func (c *memConn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readEnd, t)
	return nil
}
func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeEnd, t)
	return nil
}

// pipeHalf is one direction.
type pipeHalf struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at every change
	buffer    []byte
	capacity  int
	ended     bool // the writer has closed
	abandoned bool // the reader has closed
	readEnd   time.Time
	writeEnd  time.Time
}

func newPipeHalf(room int) *pipeHalf { return &pipeHalf{capacity: room, changed: make(chan struct{})} }

func (h *pipeHalf) notify() { close(h.changed); h.changed = make(chan struct{}) }

func (h *pipeHalf) setDeadline(field *time.Time, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*field = t
	h.notify()
}

func (h *pipeHalf) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.notify()
}

func (h *pipeHalf) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abandoned, h.buffer = true, nil
	h.notify()
}

func (h *pipeHalf) read(p []byte) (int, error) {
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
			h.notify()
			h.mu.Unlock()
			return n, nil
		case h.ended:
			h.mu.Unlock()
			return 0, io.EOF
		}
		h.mu.Unlock()
		waitChange(changed, end)
	}
}

func (h *pipeHalf) write(p []byte) (n int, err error) {
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
		if fits := min(h.capacity-len(h.buffer), len(p)-n); err == nil && fits > 0 {
			h.buffer = append(h.buffer, p[n:n+fits]...)
			n += fits
			h.notify()
		}
		h.mu.Unlock()
		if err != nil || n == len(p) {
			return n, err
		}
		waitChange(changed, end)
	}
}

// waitChange waits for a change or a deadline.
func waitChange(changed <-chan struct{}, end time.Time) {
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
