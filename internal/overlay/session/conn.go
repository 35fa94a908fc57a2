package session

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	readAheadBytes   = 80 << 10  // how much is read in one system call
	flushThreshold   = 256 << 10 // collected bytes that are written before the batch is complete
	maxUnsolicited   = 64 << 10  // what TLS may write by itself while a write is stuck
	maxKeptBuffer    = 512 << 10 // larger buffers do not go back to the pool
	tlsRecordBytes   = 16 << 10  // what one record of TLS holds
	writeBufferBytes = 104 << 10 // the size of a new buffer: one read, what was left of the read before, and the overhead of both
)

// readBuffers, writeBuffers and keepaliveBuffers are shared by all connections,
// so that an idle one holds none. Ten thousand sessions send a ping or a pong
// every few seconds, many of them at the same moment.
var (
	readBuffers      = sync.Pool{New: func() any { b := make([]byte, readAheadBytes); return &b }}
	writeBuffers     = sync.Pool{New: func() any { b := make([]byte, 0, writeBufferBytes); return &b }}
	keepaliveBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 256); return &b }}
)

func getWriteBuffer() *[]byte { return writeBuffers.Get().(*[]byte) }

func putWriteBuffer(b *[]byte) {
	if cap(*b) <= maxKeptBuffer {
		*b = (*b)[:0]
		writeBuffers.Put(b)
	}
}

// batchConn is the socket below TLS. TLS reads and writes a record at a time, 16 KiB
// at most; a system call costs as much as encrypting such a record. So batchConn
// reads all that has arrived and keeps it for the records that follow, and it
// collects the records of a batch and writes them at once.
//
// TLS may write by itself, from the task that reads: an alert, or the answer to
// a request for new keys. Records must go out in the order in which they were
// encrypted, and TLS passes them to Write in that order. They are appended; a
// caller that finds no write in progress writes all of them.
type batchConn struct {
	net.Conn // set at construction

	// set at construction
	sys          syscall.RawConn       // nil if Conn is not a socket
	readFunc     func(fd uintptr) bool // readNow
	probeFunc    func(fd uintptr) bool // probeNow
	writeTimeout time.Duration         // for one write

	// owned by the task that reads; by that of the handshake before
	buffer      *[]byte // holds unread; nil while unread is empty or is probeByte
	unread      []byte
	probeByte   [1]byte // the first byte that arrived while no buffer was held
	readErr     error   // permanent
	nonBlocking bool    // Read does not wait: the source does
	eof         bool    // TCP ended, and not just TLS on it
	wrongALPN   bool    // the peer does not offer our protocol

	mu               sync.Mutex //lockblock:leaf a few assignments; the system call happens after unlock
	pending          *[]byte    // nil while nothing is collected
	batching         bool       // a batch is being collected
	nonBlockingFlush bool       // flushBatch does not wait for the peer
	writing          bool       // a system call is in progress
	writeErr         error
	writeBound       time.Time // the latest deadline of a write, if it is set
}

func newBatchConn(conn net.Conn, patience time.Duration) *batchConn {
	b := &batchConn{Conn: conn, writeTimeout: patience}
	if socket, ok := conn.(syscall.Conn); ok && hasRawIO {
		if raw, err := socket.SyscallConn(); err == nil {
			b.sys, b.readFunc, b.probeFunc = raw, b.readNow, b.probeNow
		}
	}
	return b
}

// Read returns what was read ahead. If there is nothing it reads, or returns
// errNoData if it is nonBlocking.
func (b *batchConn) Read(p []byte) (int, error) {
	if b.sys == nil {
		n, err := b.Conn.Read(p)
		b.eof = b.eof || err == io.EOF
		return n, err
	}
	if len(b.unread) == 0 {
		if b.nonBlocking {
			return 0, errNoData
		}
		if err := b.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.unread)
	b.unread = b.unread[n:]
	if len(b.unread) == 0 {
		if b.buffer != nil {
			readBuffers.Put(b.buffer)
		}
		b.buffer, b.unread = nil, nil
	}
	return n, nil
}

// fetch waits until there is something to read, and reads it.
func (b *batchConn) fetch() error {
	if b.readErr == nil {
		if err := b.sys.Read(b.readFunc); err != nil {
			return err
		}
	}
	return b.readErr
}

// waitReadable waits until there is something to read, and reads one byte of it. It
// needs next to no stack; getting a buffer would need more. It fails when a
// deadline has passed; any other error is returned by the next fetch.
func (b *batchConn) waitReadable() error {
	err := b.sys.Read(b.probeFunc)
	if err != nil && !timedOut(err) {
		b.readErr, err = err, nil
	}
	return err
}

// probeNow is readNow for one byte.
func (b *batchConn) probeNow(fd uintptr) bool {
	n, err := readFrom(fd, b.probeByte[:])
	if n > 0 {
		b.unread = b.probeByte[:]
		return true
	}
	if wouldBlock(err) {
		return false
	}
	b.setReadEnd(err)
	return true
}

// setReadEnd records that there is nothing more to read.
func (b *batchConn) setReadEnd(err error) {
	if err == nil {
		b.readErr, b.eof = io.EOF, true
		return
	}
	b.readErr = &net.OpError{Op: "read", Net: "tcp", Addr: b.RemoteAddr(), Err: err}
}

// readNow reads without waiting, and reports whether there was something, or the
// connection has ended. It holds a buffer only while that has unread bytes: a
// connection that waits has none.
func (b *batchConn) readNow(fd uintptr) bool {
	buffer := readBuffers.Get().(*[]byte)
	n, err := readFrom(fd, *buffer)
	if n > 0 {
		b.buffer, b.unread = buffer, (*buffer)[:n]
		return true
	}
	readBuffers.Put(buffer)
	if wouldBlock(err) {
		return false
	}
	b.setReadEnd(err)
	return true
}

// beginBatch collects what is written from now on, until flushBatch. If it is to be
// brief, flushBatch writes no more than it can without waiting.
func (b *batchConn) beginBatch(brief bool) {
	b.mu.Lock()
	b.batching, b.nonBlockingFlush = true, brief
	b.mu.Unlock()
}

// flushBatch writes what was collected.
func (b *batchConn) flushBatch() error {
	b.mu.Lock()
	brief := b.nonBlockingFlush
	b.batching, b.nonBlockingFlush = false, false
	err := b.writeErr
	turn := err == nil && !b.writing && b.pending != nil
	b.writing = b.writing || turn
	b.mu.Unlock()
	switch {
	case turn && brief:
		return b.flushNonBlocking()
	case turn:
		return b.flushAll()
	}
	return err
}

// hasUnwritten reports whether something was left that could not be written at once.
// The next flushBatch writes it.
func (b *batchConn) hasUnwritten() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending != nil && !b.writing && b.writeErr == nil
}

// flushNonBlocking is flushAll without waiting. What is left stays, before all that
// is collected after it.
func (b *batchConn) flushNonBlocking() error {
	for {
		b.mu.Lock()
		batch, err := b.pending, b.writeErr
		b.pending = nil
		if batch == nil || err != nil {
			b.writing = false
			b.mu.Unlock()
			return err
		}
		b.mu.Unlock()

		left := b.writeAvailable(*batch)
		if len(left) == 0 {
			putWriteBuffer(batch)
			continue
		}
		*batch = append((*batch)[:0], left...)
		return b.requeue(batch)
	}
}

// requeue puts what was not written before what was collected meanwhile.
func (b *batchConn) requeue(left *[]byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if more := b.pending; more != nil {
		*left = append(*left, *more...)
		putWriteBuffer(more)
	}
	b.pending, b.writing = left, false
	return b.writeErr
}

// writeAvailable writes as much as the socket has room for, and returns the rest.
func (b *batchConn) writeAvailable(p []byte) (left []byte) {
	var failed error
	err := b.sys.Control(func(fd uintptr) { p, failed = b.writeSome(fd, p) })
	if err == nil && !wouldBlock(failed) {
		err = failed
	}
	if err != nil {
		b.setWriteErr(err)
		return nil
	}
	return p
}

// writeSome writes until all is written or a write fails or would block, and
// returns the rest.
func (b *batchConn) writeSome(fd uintptr, p []byte) (left []byte, err error) {
	for len(p) > 0 {
		n, err := writeTo(fd, p)
		if err != nil && !wouldBlock(err) {
			err = &net.OpError{Op: "write", Net: "tcp", Addr: b.RemoteAddr(), Err: err}
		}
		if err != nil {
			return p, err
		}
		p = p[n:]
	}
	return nil, nil
}

// Write takes a record. It is written at once, unless it is part of a batch or
// a write in progress will include it.
func (b *batchConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	alone := !b.batching && !b.writing && b.pending == nil && b.writeErr == nil
	if !alone {
		b.appendRecord(p)
	}
	err := b.writeErr
	turn := err == nil && !b.writing && (!b.batching || len(*b.pending) >= flushThreshold && !b.nonBlockingFlush)
	b.writing = b.writing || turn
	var until time.Time
	if alone {
		until = b.nextWriteDeadline()
	}
	b.mu.Unlock()
	if alone {
		b.writeUntil(p, until)
	}
	if turn {
		err = b.flushAll()
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// appendRecord appends a record. It bounds the memory for a peer that makes TLS
// write while it does not read. Guarded by mu.
func (b *batchConn) appendRecord(p []byte) {
	if b.writeErr != nil {
		return
	}
	if b.pending == nil {
		b.pending = getWriteBuffer()
	}
	if *b.pending = append(*b.pending, p...); b.writing && !b.batching && len(*b.pending) > maxUnsolicited {
		b.writeErr = errFlooded
	}
}

// flushAll writes until nothing is left, or fails permanently: after a partial write
// it is unknown what the peer has received.
func (b *batchConn) flushAll() error {
	for {
		b.mu.Lock()
		batch, err := b.pending, b.writeErr
		b.pending = nil
		if batch == nil || err != nil {
			b.writing = false
			b.mu.Unlock()
			return err
		}
		until := b.nextWriteDeadline()
		b.mu.Unlock()

		b.writeUntil(*batch, until)
		putWriteBuffer(batch)
	}
}

// writeUntil writes to the socket. The caller has set writing.
func (b *batchConn) writeUntil(p []byte, until time.Time) {
	_ = b.SetWriteDeadline(until) // fails on a closed connection only, and then so does the write
	if err := b.write(p); err != nil {
		b.setWriteErr(err)
	}
}

// write is the system call, repeated while the socket has no room for all. One
// task writes at a time.
func (b *batchConn) write(p []byte) error {
	if b.sys == nil {
		_, err := b.Conn.Write(p)
		return err
	}
	var failed error
	err := b.sys.Write(func(fd uintptr) bool {
		p, failed = b.writeSome(fd, p)
		return !wouldBlock(failed)
	})
	if err == nil {
		err = failed
	}
	return err
}

func (b *batchConn) setWriteErr(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writeErr == nil {
		b.writeErr = err
	}
}

// nextWriteDeadline returns when a write that begins now must have ended. Guarded by mu.
func (b *batchConn) nextWriteDeadline() time.Time {
	until := time.Now().Add(b.writeTimeout)
	if !b.writeBound.IsZero() && b.writeBound.Before(until) {
		return b.writeBound
	}
	return until
}

// boundWrites bounds all writes from now on, including one in progress. The zero time
// removes the bound.
func (b *batchConn) boundWrites(until time.Time) {
	b.mu.Lock()
	b.writeBound = until
	b.mu.Unlock()
	if !until.IsZero() {
		_ = b.SetWriteDeadline(until) // fails on a closed connection only
	}
}
