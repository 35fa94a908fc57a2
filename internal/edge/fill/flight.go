package fill

import (
	"net/http"
	"sync/atomic"

	"micronode/internal/store"
)

// A flight is one fill under way, and those who wait for it.
//
//	            board             leave
//	              │                 │
//	              v                 v
//	launch ──> ( aloft: aboard = n ) ──settle──> ( settled: claims = n ) ──> claims = 0: the handle is closed
//	              ^                                   │
//	            ground: no more may board           claim: each of the n takes its answer, or gives it back
//
// It is settled exactly once, by whoever is first: the worker with an answer or
// an error, the pool that abandons the job, the queue that refuses it, or the
// cache that closes. Whoever was aboard then has a claim on the one handle that
// the flight opened, so what was fetched can be read by all of them even if the
// store evicts it at once. A purge grounds a flight: those aboard asked before
// the purge and get their answer, but nobody boards any more and nothing of it
// is kept.

// order says what a flight is to fetch.
type order struct {
	target target
	key    string
	sent   http.Header // what the origin gets to see of a client's header
	secret bool        // the client does not want the answer to be kept
}

// flightID tells flights apart that somebody could join.
type flightID struct{ key, variant string }

// flight is one fill under way.
type flight struct {
	// set at construction
	order
	id         flightID
	joinable   bool // others may board
	background bool // nobody waits for it
	done       chan struct{}

	// guarded by the owner of the flights
	aboard   int
	grounded bool
	settled  bool

	outcome outcome // set before done is closed, read only after that
}

// outcome is how a flight ended: an error, or an answer.
type outcome struct {
	err    error
	entry  *entry
	in     store.Store // where its body lies
	shared bool        // it may be kept, if it lies where things are kept, and used by those who did not ask for it themselves
	lonely bool        // the origin forbids that, and will the next time
	lifted bool        // its body is counted as in use
	loan   *loan
}

// flights is all that are aloft. It has no lock of its own; its owner has one.
type flights struct {
	aloft    map[*flight]struct{}
	joinable map[flightID]*flight
}

func newFlights() flights {
	return flights{aloft: map[*flight]struct{}{}, joinable: map[flightID]*flight{}}
}

// board joins the flight of that name, if there is one. One who does not wait
// only learns of it.
func (fs *flights) board(id flightID, waitless bool) *flight {
	f := fs.joinable[id]
	if f != nil && !waitless {
		f.aboard++
	}
	return f
}

// launch begins a flight with the one aboard who asked for it, unless it is in
// the background.
func (fs *flights) launch(f *flight) {
	f.done = make(chan struct{})
	if !f.background {
		f.aboard = 1
	}
	fs.aloft[f] = struct{}{}
	if f.joinable {
		fs.joinable[f.id] = f
	}
}

// ground lets nobody board any more and marks that nothing is to be kept.
func (fs *flights) ground(p purge) {
	for f := range fs.aloft {
		if p.covers(f.key) {
			f.grounded = true
			fs.unlist(f)
		}
	}
}

// settle ends a flight and gives those aboard their claims. The caller keeps its
// own. It reports false if somebody was first.
func (fs *flights) settle(f *flight, out outcome) bool {
	if f.settled {
		return false
	}
	f.settled = true
	delete(fs.aloft, f)
	fs.unlist(f)
	if out.loan != nil {
		out.loan.claims.Add(int32(f.aboard))
	}
	f.outcome = out
	return true
}

// unlist lets nobody board any more.
func (fs *flights) unlist(f *flight) {
	if fs.joinable[f.id] == f {
		delete(fs.joinable, f.id)
	}
}

// leave takes one who does not want to wait any longer off the flight. It
// returns the loan that must be given back if the flight was settled meanwhile.
func (fs *flights) leave(f *flight) *loan {
	if f.settled {
		return f.outcome.loan
	}
	f.aboard--
	return nil
}

// loan is one handle for several readers. The last one to give its claim back
// closes it.
type loan struct {
	handle store.Handle
	claims atomic.Int32
}

// newLoan has one claim: that of the one who opened the handle.
func newLoan(handle store.Handle) *loan {
	l := &loan{handle: handle}
	l.claims.Store(1)
	return l
}

// release gives one claim back.
func (l *loan) release() {
	if l != nil && l.claims.Add(-1) == 0 {
		_ = l.handle.Close() // it has nothing to say after it was read
	}
}

// borrowed is a handle on loan: to close it is to give the claim back.
type borrowed struct {
	store.Handle
	loan   *loan
	closed atomic.Bool
}

// Close gives the claim back, once.
func (b *borrowed) Close() error {
	if !b.closed.Swap(true) {
		b.loan.release()
	}
	return nil
}
