package gossip

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Signatures are checked by many workers at once, and what one publisher sends
// on one topic over one session is still accepted in the order in which it
// came. So checking and accepting are two steps. The reader puts every message
// that waits for a worker into a sequence. A worker that has checked one
// records the result, and accepts the head of that sequence, as far as it is
// checked, unless another worker has claimed the sequence: then that one
// continues. Workers do not wait for each other, and sequences do not wait for
// other sequences.

// The bounds of what was checked and waits for a message before it that was not.
// A unit is for a small message; a large one takes several.
const orderUnits = 512

// sequencer is the non-empty sequences of one session.
type sequencer struct {
	active atomic.Int64 // how many there are

	mu        sync.Mutex //lockblock:leaf a look-up and a few assignments
	sequences map[uint64]*sequence
}

// sequence is the messages of one publisher on one topic that came over one
// session and were not accepted yet, oldest first. All of it is guarded by the
// sequencer's mutex but what is set at construction.
type sequence struct {
	// set at construction
	owner *sequencer
	key   uint64

	pending []*queued
	claimed bool // a worker accepts what is at its head
}

// queued is a message that waits for a worker, or was checked by one and waits
// for those before it.
type queued struct {
	arrival // owned by the worker that checks it, then by the one that accepts it

	// set at construction
	sequence   *sequence
	size       int    // what it counts as in the queue and in its peer's share; it outlasts its bytes
	orderUnits int    // what it takes while it waits for others
	buffer     []byte // what Gossip and message are views of
	counted    bool   // it counts in its peer's share

	// guarded by the sequencer's mutex
	state checkState
	units int // of orderPermits, while it waits for others
}

// newQueued copies an arrival. All units together are as many bytes as the queue
// to the workers may hold.
func newQueued(a *arrival, ingressBytes int) *queued {
	size := queuedOverhead + len(a.Gossip.Msg) + len(a.Gossip.Sig)
	return &queued{arrival: *a, size: size, orderUnits: 1 + size/(ingressBytes/orderUnits)}
}

// checkState is what is known of a message in a sequence.
type checkState uint8

const (
	stateUnchecked checkState = iota
	stateGood                 // accepted when its turn comes
	stateRejected             // refused, or there was no room for it
)

var sequenceSeed = maphash.MakeSeed()

// append appends a message to its sequence. With onlyIfPending it does so only
// if others of that sequence wait.
func (o *sequencer) append(q *queued, onlyIfPending bool) bool {
	// Two publishers or topics that share a key wait for each other, and nothing
	// worse; and which do is unpredictable.
	name := maphash.Bytes(sequenceSeed, q.message.Key[:])*31 + maphash.String(sequenceSeed, q.message.Topic)
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.sequences[name]
	if s == nil {
		if onlyIfPending {
			return false
		}
		s = &sequence{owner: o, key: name}
		if o.sequences == nil {
			o.sequences = map[uint64]*sequence{}
		}
		o.sequences[name] = s
		o.active.Add(1)
	}
	q.sequence = s
	s.pending = append(s.pending, q)
	return true
}

// finish records the outcome of a message. It reports whether the caller has
// claimed the sequence and must advance it. A good message that has to wait for
// others uses some of the units that are left; without enough of them it is
// rejected.
func (q *queued) finish(to checkState, units *int) (claimed, dropped bool) {
	s := q.sequence
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	q.state = to
	s.dropTail()
	if claimed = s.claim(); claimed || to != stateGood {
		return claimed, false
	}
	if q.orderUnits <= *units {
		*units -= q.orderUnits
		q.units = q.orderUnits
		return false, false
	}
	q.state = stateRejected
	s.dropTail()
	return false, true
}

// dropTail removes the rejected messages at the end, for which nothing waits: of
// a flood there would be more of them than of all others. Guarded by the
// sequencer's mutex.
func (s *sequence) dropTail() {
	n := len(s.pending)
	for ; n > 0 && s.pending[n-1].state == stateRejected; n-- {
		s.pending[n-1].releaseShare()
		s.pending[n-1] = nil
	}
	s.pending = s.pending[:n]
	if n == 0 && !s.claimed {
		s.release()
	}
}

// claim claims the sequence for the caller, if its head is checked and it is
// unclaimed. Guarded by the sequencer's mutex.
func (s *sequence) claim() bool {
	if s.claimed || len(s.pending) == 0 || s.pending[0].state == stateUnchecked {
		return false
	}
	s.claimed = true
	return true
}

// takeHead is called by the task that has claimed the sequence: it removes the
// checked messages at the head, appends the good ones, and returns how many
// units they release. If there are none the claim ends.
func (s *sequence) takeHead(ready []*queued) (_ []*queued, units int, more bool) {
	o := s.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for n < len(s.pending) && s.pending[n].state != stateUnchecked {
		q := s.pending[n]
		units += q.units
		q.releaseShare()
		if q.state == stateGood {
			ready = append(ready, q)
		}
		n++
	}
	rest := copy(s.pending, s.pending[n:])
	clear(s.pending[rest:])
	s.pending = s.pending[:rest]
	if n == 0 {
		s.release()
	}
	return ready, units, n > 0
}

// release ends a claim. An empty sequence is removed. Guarded by the
// sequencer's mutex.
func (s *sequence) release() {
	s.claimed = false
	if len(s.pending) == 0 {
		delete(s.owner.sequences, s.key)
		s.owner.active.Add(-1)
	}
}
