package fill

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"micronode/internal/flow"
	"micronode/internal/store"
)

// A body that is large or slow is streamed to the waiters while it is stored.
// The worker never waits for them: it reads from the origin into the store, and
// keeps a copy of the last bytes here.
//
//	origin ──> body ──> tee ──> store ──> complete: the stored copy
//	                     │                    ^
//	                     v                    │ waiters that fell behind or joined late, and
//	               streamingBody              │ the rest for all of them once it is complete
//	                     └──> waiters ────────┘
//
// All bodies that are arriving share one memory budget. Within it, a copy holds
// everything from the first byte, for waiters that join later; beyond it the
// oldest bytes are evicted, and a waiter that has not read them waits for the
// stored copy. A body that breaks off is an error for every reader, never a
// clean end; so its last bytes wait until the whole of it is accepted.

const (
	streamChunk     = 32 << 10               // unit in which it is taken
	streamThreshold = 64 << 10               // up to this size, waiters wait for the whole body
	streamWait      = 100 * time.Millisecond // and for one that arrives within this time
)

// streamMemory is the memory of all bodies that are arriving.
type streamMemory struct {
	limit int64 // set at construction
	used  atomic.Int64
}

// streamingBody is a body that is still arriving.
type streamingBody struct {
	// set at construction
	entry   *entry // without address and size
	size    int64  // as declared; store.Unknown if it is not
	shared  bool   // other requests may read it too
	memory  *streamMemory
	isLarge chan struct{} // closed when it exceeds streamThreshold

	mu       sync.Mutex //lockblock:leaf guards the fields below
	chunks   [][]byte   // all but the last are full
	base     int64      // where the first chunk begins
	end      int64      // how many bytes have arrived
	complete bool       // no more bytes will come
	kept     bool       // the store has it
	err      error      // why no more will come
	more     chan struct{}
}

func newStreamingBody(e *entry, size int64, shared bool, memory *streamMemory) *streamingBody {
	return &streamingBody{entry: e, size: size, shared: shared, memory: memory, isLarge: make(chan struct{}), more: make(chan struct{})}
}

// write appends bytes that arrived.
func (b *streamingBody) write(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept || b.err != nil {
		return // it has no readers any more
	}
	before := b.end
	for len(p) > 0 {
		last := len(b.chunks) - 1
		if last < 0 || len(b.chunks[last]) == streamChunk {
			b.reserveChunk()
			b.chunks = append(b.chunks, make([]byte, 0, streamChunk))
			last = len(b.chunks) - 1
		}
		n := min(len(p), streamChunk-len(b.chunks[last]))
		b.chunks[last] = append(b.chunks[last], p[:n]...)
		p, b.end = p[n:], b.end+int64(n)
	}
	if before <= streamThreshold && b.end > streamThreshold {
		close(b.isLarge)
	}
	b.wake()
}

// reserveChunk takes memory for one more chunk, and evicts the oldest one if
// the budget is used up. A body always has one.
func (b *streamingBody) reserveChunk() {
	if b.memory.used.Add(streamChunk) <= b.memory.limit || len(b.chunks) == 0 {
		return
	}
	b.memory.used.Add(-streamChunk)
	b.chunks[0] = nil
	b.chunks = b.chunks[1:]
	b.base += streamChunk
}

// wake wakes all readers.
func (b *streamingBody) wake() {
	close(b.more)
	b.more = make(chan struct{})
}

// markComplete notes that the body is complete, and that its coding is right.
func (b *streamingBody) markComplete() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complete = true
	b.wake()
}

// finish ends it: the store has the body, or err says why not. The memory is
// released.
func (b *streamingBody) finish(err error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept || b.err != nil {
		return
	}
	b.kept, b.err = err == nil, err
	b.memory.used.Add(-int64(len(b.chunks)) * streamChunk)
	b.base, b.chunks = b.end, nil
	b.wake()
}

// bodyView is what a reader finds at an offset.
type bodyView struct {
	bytes   []byte        // available bytes; they do not change
	evicted bool          // they are only in the stored copy, if anywhere
	atEnd   bool          // there are none: it is the end
	last    bool          // they are the last ones, and the body is not accepted yet
	err     error         // there will be none
	more    chan struct{} // closed when there is something new
	kept    bool
}

// view finds the bytes at an offset.
func (b *streamingBody) view(at int64) bodyView {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := bodyView{err: b.err, more: b.more, kept: b.kept}
	switch {
	case at < b.base:
		s.evicted = true
	case at < b.end:
		chunk := b.chunks[(at-b.base)/streamChunk]
		s.bytes = chunk[(at-b.base)%streamChunk:]
		s.last = !b.complete && at+int64(len(s.bytes)) == b.size
	case b.complete:
		s.atEnd, s.err = true, nil
	}
	return s
}

// tee is a body on its way to the store, with a copy for the waiters.
type tee struct {
	from io.Reader
	to   *streamingBody // nil without waiters
}

// Read reads and copies.
func (t *tee) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	if t.to != nil {
		if n > 0 {
			t.to.write(p[:n])
		}
		if err == io.EOF {
			t.to.markComplete()
		}
	}
	return n, err
}

// replay reads the bytes that have arrived once more.
type replay struct {
	of      *streamingBody
	at, end int64
}

// replay returns all bytes that have arrived, if they are still in memory.
func (b *streamingBody) replay() (*replay, bool) {
	if b == nil {
		return nil, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return &replay{of: b, end: b.end}, b.base == 0
}

// Read reads from memory.
func (r *replay) Read(p []byte) (int, error) {
	if r.at == r.end {
		return 0, io.EOF
	}
	s := r.of.view(r.at)
	if len(s.bytes) == 0 {
		return 0, io.ErrUnexpectedEOF // evicted meanwhile: other bodies needed the memory
	}
	n := copy(p, s.bytes[:min(int64(len(s.bytes)), r.end-r.at)])
	r.at += int64(n)
	return n, nil
}

// follower reads a body that is arriving. It is a waiter of the flight, and so
// holds a reference to the stored copy.
type follower struct {
	// set at construction
	ctx    context.Context
	cache  *Cache
	flight *flight
	body   *streamingBody
	began  time.Time
	once   sync.Once
}

// countFailure counts a body that broke off, as Get counts earlier failures.
func (f *follower) countFailure(err error) error {
	return f.cache.countRefusal(err, Event{URL: f.flight.target.redacted(), Status: f.body.entry.resp.Status, Took: time.Since(f.began)})
}

// write writes a part of the body as it arrives; all of it if the length is
// below zero. It calls beforeWait before it waits for more.
func (f *follower) write(w io.Writer, from, length int64, beforeWait func()) error {
	begun := false
	for length != 0 {
		s := f.body.view(from)
		switch {
		case s.atEnd && length < 0:
			return nil
		case s.atEnd:
			return f.countFailure(upstreamFault(nil, "the origin sent fewer bytes than it declared"))
		case s.err != nil && len(s.bytes) == 0:
			return f.countFailure(s.err)
		case s.kept || s.evicted:
			return f.writeStored(w, from, length)
		case len(s.bytes) == 0, s.last: // a client that has all bytes takes them for a good answer
			if begun {
				beforeWait()
			}
			if err := f.wait(s.more); err != nil {
				return err
			}
			begun = false
			continue // beforeWait is called once for each pause
		}
		chunk := s.bytes
		if length > 0 {
			chunk = chunk[:min(int64(len(chunk)), length)]
			length -= int64(len(chunk))
		}
		if _, err := w.Write(chunk); err != nil {
			return err
		}
		from, begun = from+int64(len(chunk)), true
	}
	return nil
}

// wait waits for a channel, or for the end of the request.
func (f *follower) wait(what <-chan struct{}) error {
	select {
	case <-what:
		return nil
	case <-f.ctx.Done():
		return flow.Ended(f.ctx, opGet)
	}
}

// writeStored writes the rest from the stored copy, as soon as there is one.
func (f *follower) writeStored(w io.Writer, from, length int64) error {
	if err := f.wait(f.flight.done); err != nil {
		return err
	}
	out := f.flight.outcome
	if err := f.body.view(from).err; err != nil {
		return f.countFailure(err)
	}
	if out.err != nil || out.body != f.body {
		return f.countFailure(upstreamFault(out.err, "the origin closed the connection in the middle of its answer"))
	}
	if length < 0 {
		length = out.entry.size - from
	}
	_, err := out.bodyHandle.handle.WriteRange(w, from, length)
	return err
}

// close leaves the flight.
func (f *follower) close() {
	f.once.Do(func() { f.cache.leave(f.flight) })
}

// publishBody lets the waiters of a flight read the body while it arrives. Only
// the first response of a flight is streamed.
func (c *Cache) publishBody(f *flight, g *streamingBody) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.completed || f.body != nil {
		return false
	}
	f.body = g
	close(f.bodyReady)
	return true
}

// failBody fails the readers of a body. No more waiters board its flight: later
// requests ask the origin.
func (c *Cache) failBody(f *flight, g *streamingBody, err error) {
	if g == nil {
		return
	}
	c.mu.Lock()
	c.flights.closeBoarding(f)
	c.mu.Unlock()
	g.finish(err)
}

// progressReader is a body that reports its progress to a timer, and its first
// bytes to the breaker.
type progressReader struct {
	io.ReadCloser
	timer  *fillTimer
	report func(error)
}

// Read reads and reports.
func (r progressReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if n > 0 {
		r.timer.progress(n)
		r.report(nil)
	}
	return n, err
}

// sizeOf is how long a body will be, as far as its header says.
func sizeOf(length int64) int64 {
	if length < 0 {
		return store.Unknown
	}
	return length
}
