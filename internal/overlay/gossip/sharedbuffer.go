package gossip

import (
	"sync"
	"sync/atomic"
)

// sharedBufferBytes is how many bytes the messages in one buffer take at most.
// A larger message has a buffer for itself.
const sharedBufferBytes = 16 << 10

// sharedBufferMessages is how many messages a reusable buffer has room for. So
// many of the usual size fill one.
const sharedBufferMessages = sharedBufferBytes / 1024

// sharedBuffer is reusable memory for messages. Without reuse, a busy relay
// spends a sixth of its time on allocating memory and on garbage collection.
//
// The buffer is reference-counted by the batch that works on it, the queues of
// peers and the history; the last unref returns it to the pool. A holder that
// cannot say when it is done, such as a subscriber, keeps its reference, and
// the garbage collector frees the buffer. So a missing unref is harmless.
type sharedBuffer struct {
	// set at construction
	pool    *sync.Pool
	release func() // unref, made once

	refs      atomic.Int64
	inHistory int // guarded by history.mu: how many of its messages are in the history, which holds one reference while there are any

	messages [sharedBufferMessages]storedMessage // owned by the batch that fills it, and read-only once shared
	bytes    [sharedBufferBytes]byte             // the same
}

// newSharedBuffers makes the pool in which an engine's buffers wait for reuse.
// Those that wait for long are garbage-collected.
func newSharedBuffers() *sync.Pool {
	pool := new(sync.Pool)
	pool.New = func() any {
		buffer := &sharedBuffer{pool: pool}
		buffer.release = buffer.unref
		return buffer
	}
	return pool
}

// getSharedBuffer returns an unused buffer, with one reference for the caller.
func getSharedBuffer(pool *sync.Pool) *sharedBuffer {
	buffer := pool.Get().(*sharedBuffer)
	buffer.refs.Store(1)
	clear(buffer.messages[:])
	return buffer
}

// ref adds a reference. The caller got the message from a holder of one.
func (s *sharedBuffer) ref() { s.refs.Add(1) }

// unref ends what getSharedBuffer or ref began.
func (s *sharedBuffer) unref() {
	switch left := s.refs.Add(-1); {
	case left == 0:
		s.pool.Put(s)
	case left < 0:
		panic("gossip: a shared buffer was released twice")
	}
}

// retain keeps the memory of a message unchanged for good, so that it may be
// read without a time limit. The caller holds a reference, or holds the
// history's mutex and found the message there.
func (s *storedMessage) retain() {
	if s.buffer != nil {
		s.buffer.ref()
	}
}
