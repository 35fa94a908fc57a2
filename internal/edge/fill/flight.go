package fill

import (
	"net/http"
	"sync/atomic"

	"micronode/internal/store"
)

// A flight is one fill under way, with its waiters.
//
//	            board             leave
//	              │                 │
//	              v                 v
//	launch ──> ( active: aboard = n ) ──complete──> ( completed: refs = n ) ──> refs = 0: the handle is closed
//	              ^                                   │
//	            invalidate: closes boarding         each of the n uses its reference, or releases it
//
// It is completed exactly once, by the first of: the worker with an answer or
// an error, the pool that abandons the job, the queue that rejects it, the last
// waiter that leaves before a worker starts it, or the cache that closes. Every
// waiter that was aboard then has a reference to the one handle that the flight
// opened, so all of them can read the body even if the store evicts it at once.
// A purge invalidates a flight: its waiters asked before the purge and get
// their answer, but no more may board and nothing of it is stored.

// fillRequest says what a flight is to fetch.
type fillRequest struct {
	target    target
	key       string
	forwarded http.Header // the part of the client's header that is sent to the origin
	noStore   bool        // the client does not want the answer to be stored
	member    uint64      // the client that asks
}

// flightID identifies a joinable flight.
type flightID struct{ key, variant string }

// flight is one fill under way.
type flight struct {
	// set at construction
	fillRequest
	class      uint64 // of its origin, in the queue
	id         flightID
	joinable   bool // others may board
	background bool // has no waiters at launch
	done       chan struct{}
	bodyReady  chan struct{} // closed when there is a body to read, before it is complete

	client atomic.Uint64 // whose share it counts against; the queue hands it to another that boards and has less

	// guarded by the owner of the flights
	aboard      int
	started     bool // a worker has it
	invalidated bool
	completed   bool

	body *streamingBody // set before bodyReady is closed

	outcome outcome // set before done is closed, read only after that
}

// outcome is how a flight ended: an error, or an answer.
type outcome struct {
	err           error
	entry         *entry
	store         store.Store // where its body is
	shared        bool        // it may be stored, if store is the one for that, and used by other requests
	hitForMiss    bool        // the origin forbids sharing, and will the next time
	failed        bool        // the answer is a failure of the origin, and is not stored
	sharedFailure bool        // a failure that other waiters may see
	bodyRetained  bool        // its body is counted in bodyRefs
	bodyHandle    *sharedHandle
	body          *streamingBody // what waiters read that did not wait for the end; nil if there was none
}

// flights is all active flights. It has no lock of its own; its owner has one.
type flights struct {
	active   map[*flight]struct{}
	joinable map[flightID]*flight
}

func newFlights() flights {
	return flights{active: map[*flight]struct{}{}, joinable: map[flightID]*flight{}}
}

// board joins the flight with an id, if there is one. A background fill finds
// it without becoming a waiter.
func (fs *flights) board(id flightID, background bool) *flight {
	f := fs.joinable[id]
	if f != nil && !background {
		f.aboard++
	}
	return f
}

// launch begins a flight with its leader aboard, unless it is in the
// background.
func (fs *flights) launch(f *flight) {
	f.done, f.bodyReady = make(chan struct{}), make(chan struct{})
	if !f.background {
		f.aboard = 1
	}
	fs.active[f] = struct{}{}
	if f.joinable {
		fs.joinable[f.id] = f
	}
}

// invalidate closes boarding and marks that nothing is to be stored.
func (fs *flights) invalidate(p purgeMatch) {
	for f := range fs.active {
		if p.matches(f.key) {
			f.invalidated = true
			fs.closeBoarding(f)
		}
	}
}

// complete ends a flight and gives every waiter a reference to the handle. The
// caller keeps its own. It reports false if the flight was completed before.
func (fs *flights) complete(f *flight, out outcome) bool {
	if f.completed {
		return false
	}
	f.completed = true
	delete(fs.active, f)
	fs.closeBoarding(f)
	if out.bodyHandle != nil {
		out.bodyHandle.refs.Add(int32(f.aboard))
	}
	f.outcome = out
	return true
}

// closeBoarding lets no more waiters board.
func (fs *flights) closeBoarding(f *flight) {
	if fs.joinable[f.id] == f {
		delete(fs.joinable, f.id)
	}
}

// leave removes one waiter. It returns the handle to release if the flight has
// completed, and true if the flight is still queued and has no waiters left.
// Then no more may board.
func (fs *flights) leave(f *flight) (held *sharedHandle, abandoned bool) {
	if f.completed {
		return f.outcome.bodyHandle, false
	}
	f.aboard--
	if abandoned = f.aboard == 0 && !f.background && !f.started; abandoned {
		fs.closeBoarding(f)
	}
	return nil, abandoned
}

// reopenBoarding lets others board again, unless there is another flight for
// them.
func (fs *flights) reopenBoarding(f *flight) {
	if f.joinable && !f.completed && !f.invalidated && fs.joinable[f.id] == nil {
		fs.joinable[f.id] = f
	}
}

// sharedHandle is one handle for several readers. Releasing the last reference
// closes it.
type sharedHandle struct {
	handle store.Handle
	refs   atomic.Int32
}

// newSharedHandle has one reference: that of its caller.
func newSharedHandle(handle store.Handle) *sharedHandle {
	l := &sharedHandle{handle: handle}
	l.refs.Store(1)
	return l
}

// release drops one reference.
func (s *sharedHandle) release() {
	if s != nil && s.refs.Add(-1) == 0 {
		_ = s.handle.Close() // nothing was written
	}
}

// handleRef is a handle that holds a reference: Close releases it.
type handleRef struct {
	store.Handle
	shared *sharedHandle
	closed atomic.Bool
}

// Close releases the reference, once.
func (h *handleRef) Close() error {
	if !h.closed.Swap(true) {
		h.shared.release()
	}
	return nil
}
