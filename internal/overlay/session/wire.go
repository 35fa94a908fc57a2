package session

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	ahead    = 80 << 10  // how much is read in one system call
	enough   = 256 << 10 // collected bytes that are written although more are to come
	unasked  = 64 << 10  // what TLS may have to say by itself while a write is stuck
	largest  = 512 << 10 // buffers above this size are not kept
	record   = 16 << 10  // what one record of TLS holds
	ordinary = 104 << 10 // the size of a new buffer: what is read in one go, what was left of the go before, and what is around it
)

// readBuffers, writeBuffers and notes are shared by all connections, so that one
// that is idle holds none. Notes are for small talk: ten thousand sessions make
// some every few seconds, and many of them at the same moment.
var (
	readBuffers  = sync.Pool{New: func() any { b := make([]byte, ahead); return &b }}
	writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, ordinary); return &b }}
	notes        = sync.Pool{New: func() any { b := make([]byte, 0, 256); return &b }}
)

func borrow() *[]byte { return writeBuffers.Get().(*[]byte) }

func giveBack(b *[]byte) {
	if cap(*b) <= largest {
		*b = (*b)[:0]
		writeBuffers.Put(b)
	}
}

// wire is the socket below TLS. TLS reads and writes a record at a time, 16 KiB
// at most; a system call costs as much as encrypting such a record. So the wire
// reads whatever has come and keeps it for the records that follow, and it
// collects the records of a batch and writes them at once.
//
// TLS may write by itself, from the task that reads: an alert, or the answer to
// a request for new keys. Records must go out in the order in which they were
// encrypted, and TLS gives them to Write in that order. They are appended, and
// whoever finds nobody writing writes all there is.
type wire struct {
	net.Conn // set at construction

	// set at construction
	raw      syscall.RawConn       // nil if it is no socket
	attempt  func(fd uintptr) bool // readNow
	probe    func(fd uintptr) bool // touchNow
	patience time.Duration         // for one write

	// owned by the task that reads; by that of the handshake before
	buffer  *[]byte // what rest is in; nil while nothing waits
	rest    []byte
	first   [1]byte // the first byte that came while nobody had a buffer
	readErr error   // for good
	curt    bool    // Read does not wait: the source does
	over    bool    // the connection ended, and not just TLS on it
	foreign bool    // the other side does not offer our protocol

	mu      sync.Mutex //lockblock:leaf a few assignments; the system call happens after unlock
	pending *[]byte    // nil while nothing is collected
	held    bool       // a batch is being collected
	brief   bool       // whoever collects it does not wait for the peer
	writing bool       // somebody is in the system call
	failed  error
	latest  time.Time // no write lasts longer, if it is set
}

func newWire(conn net.Conn, patience time.Duration) *wire {
	w := &wire{Conn: conn, patience: patience}
	if socket, ok := conn.(syscall.Conn); ok && readable {
		if raw, err := socket.SyscallConn(); err == nil {
			w.raw, w.attempt, w.probe = raw, w.readNow, w.touchNow
		}
	}
	return w
}

// Read gives what was read ahead. If there is nothing it reads, or says so.
func (w *wire) Read(p []byte) (int, error) {
	if w.raw == nil {
		n, err := w.Conn.Read(p)
		w.over = w.over || err == io.EOF
		return n, err
	}
	if len(w.rest) == 0 {
		if w.curt {
			return 0, errDry
		}
		if err := w.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	if len(w.rest) == 0 {
		if w.buffer != nil {
			readBuffers.Put(w.buffer)
		}
		w.buffer, w.rest = nil, nil
	}
	return n, nil
}

// fetch waits until there is something to read, and reads it.
func (w *wire) fetch() error {
	if w.readErr == nil {
		if err := w.raw.Read(w.attempt); err != nil {
			return err
		}
	}
	w.over = w.over || w.readErr == io.EOF
	return w.readErr
}

// touch waits until there is something to read, and reads one byte of it. What
// it calls needs next to no stack, which cannot be said of finding a buffer. It
// fails when a deadline has passed; any other error is for the next fetch to
// tell.
func (w *wire) touch() error {
	err := w.raw.Read(w.probe)
	if err != nil && !timedOut(err) {
		w.readErr, err = err, nil
	}
	return err
}

// touchNow is readNow for one byte.
func (w *wire) touchNow(fd uintptr) bool {
	n, err := readFrom(fd, w.first[:])
	if n > 0 {
		w.rest = w.first[:]
		return true
	}
	if again(err) {
		return false
	}
	w.ended(err)
	return true
}

// ended notes that nothing more will come.
func (w *wire) ended(err error) {
	if w.readErr = io.EOF; err != nil {
		w.readErr = &net.OpError{Op: "read", Net: "tcp", Addr: w.RemoteAddr(), Err: err}
	}
}

// readNow reads without waiting, and reports whether there was something. The
// buffer is borrowed for as long as it holds something: a connection that waits
// has none.
func (w *wire) readNow(fd uintptr) bool {
	buffer := readBuffers.Get().(*[]byte)
	n, err := readFrom(fd, *buffer)
	if n > 0 {
		w.buffer, w.rest = buffer, (*buffer)[:n]
		return true
	}
	readBuffers.Put(buffer)
	if again(err) {
		return false
	}
	w.ended(err)
	return true
}

// hold collects what is written from now on, until release. If it is to be brief,
// release writes no more than it can without waiting.
func (w *wire) hold(brief bool) {
	w.mu.Lock()
	w.held, w.brief = true, brief
	w.mu.Unlock()
}

// release writes what was collected.
func (w *wire) release() error {
	w.mu.Lock()
	brief := w.brief
	w.held, w.brief = false, false
	err := w.failed
	turn := err == nil && !w.writing && w.pending != nil
	w.writing = w.writing || turn
	w.mu.Unlock()
	switch {
	case turn && brief:
		return w.spill()
	case turn:
		return w.pump()
	}
	return err
}

// behind tells whether something was left that could not be written at once. It
// is the next release that writes it.
func (w *wire) behind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending != nil && !w.writing && w.failed == nil
}

// spill is pump for who does not wait. What is left stays, before all that is
// collected after it.
func (w *wire) spill() error {
	for {
		w.mu.Lock()
		batch, err := w.pending, w.failed
		w.pending = nil
		if batch == nil || err != nil {
			w.writing = false
			w.mu.Unlock()
			return err
		}
		w.mu.Unlock()

		left := w.writeNow(*batch)
		if len(left) == 0 {
			giveBack(batch)
			continue
		}
		*batch = append((*batch)[:0], left...)
		return w.leave(batch)
	}
}

// leave puts what was not written before what came meanwhile.
func (w *wire) leave(left *[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if more := w.pending; more != nil {
		*left = append(*left, *more...)
		giveBack(more)
	}
	w.pending, w.writing = left, false
	return w.failed
}

// writeNow writes as much as there is room for, and returns the rest.
func (w *wire) writeNow(p []byte) (left []byte) {
	var failed error
	err := w.raw.Control(func(fd uintptr) { p, failed = w.writeSome(fd, p) })
	if err == nil && !again(failed) {
		err = failed
	}
	if err != nil {
		w.fail(err)
		return nil
	}
	return p
}

// writeSome writes until all is written or something is in the way, and returns
// the rest.
func (w *wire) writeSome(fd uintptr, p []byte) (left []byte, err error) {
	for len(p) > 0 {
		n, err := writeTo(fd, p)
		if err != nil && !again(err) {
			err = &net.OpError{Op: "write", Net: "tcp", Addr: w.RemoteAddr(), Err: err}
		}
		if err != nil {
			return p, err
		}
		p = p[n:]
	}
	return nil, nil
}

// Write takes a record. It is written at once, unless it is part of a batch or
// somebody who is writing already will take it along.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	alone := !w.held && !w.writing && w.pending == nil && w.failed == nil
	if !alone {
		w.collect(p)
	}
	err := w.failed
	turn := err == nil && !w.writing && (!w.held || len(*w.pending) >= enough && !w.brief)
	w.writing = w.writing || turn
	var until time.Time
	if alone {
		until = w.deadline()
	}
	w.mu.Unlock()
	if alone {
		w.put(p, until)
	}
	if turn {
		err = w.pump()
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// collect appends a record. A peer that keeps TLS busy while it does not read
// what we write gets no more memory than this. Guarded by mu.
func (w *wire) collect(p []byte) {
	if w.failed != nil {
		return
	}
	if w.pending == nil {
		w.pending = borrow()
	}
	if *w.pending = append(*w.pending, p...); w.writing && !w.held && len(*w.pending) > unasked {
		w.failed = errFlooded
	}
}

// pump writes until nothing is left, or fails for good: after a write that was
// cut nobody knows what the peer has.
func (w *wire) pump() error {
	for {
		w.mu.Lock()
		batch, err := w.pending, w.failed
		w.pending = nil
		if batch == nil || err != nil {
			w.writing = false
			w.mu.Unlock()
			return err
		}
		until := w.deadline()
		w.mu.Unlock()

		w.put(*batch, until)
		giveBack(batch)
	}
}

// put writes to the socket. It belongs to whoever has the turn.
func (w *wire) put(p []byte, until time.Time) {
	_ = w.SetWriteDeadline(until) // fails on a closed connection only, and then so does the write
	if err := w.write(p); err != nil {
		w.fail(err)
	}
}

// write is the system call, made again while the peer has no room for all. One
// task writes at a time.
func (w *wire) write(p []byte) error {
	if w.raw == nil {
		_, err := w.Conn.Write(p)
		return err
	}
	var failed error
	err := w.raw.Write(func(fd uintptr) bool {
		p, failed = w.writeSome(fd, p)
		return !again(failed)
	})
	if err == nil {
		err = failed
	}
	return err
}

func (w *wire) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = err
	}
}

// deadline is when a write that begins now must have ended. Guarded by mu.
func (w *wire) deadline() time.Time {
	until := time.Now().Add(w.patience)
	if !w.latest.IsZero() && w.latest.Before(until) {
		return w.latest
	}
	return until
}

// within bounds all writes from now on, that under way included. The zero time
// takes the bound away.
func (w *wire) within(until time.Time) {
	w.mu.Lock()
	w.latest = until
	w.mu.Unlock()
	if !until.IsZero() {
		_ = w.SetWriteDeadline(until) // fails on a closed connection only
	}
}
