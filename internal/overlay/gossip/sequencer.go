package gossip

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/oap"
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
const (
	orderUnits = 512
	orderUnit  = ingressBytes / orderUnits
)

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
	// set at construction
	incoming
	message  oap.GossipMessage
	sequence *sequence
	size     int    // its cost, which outlasts its bytes
	buffer   []byte // what Gossip and message are views of
	counted  bool   // it counts in its peer's share

	// owned by the worker that checks it, then by the one that accepts it
	fingerprint fingerprint
	id          *b3.Address

	// guarded by the sequencer's mutex
	state checkState
	units int // of orderPermits, while it waits for others
}

func newQueued(a incoming, l oap.GossipMessage) *queued {
	return &queued{incoming: a, message: l, size: a.cost()}
}

// checkState is what is known of a message in a sequence.
type checkState uint8

const (
	stateUnchecked checkState = iota
	stateGood                 // accepted when its turn comes
	stateRejected             // refused, or there was no room for it
)

var sequenceSeed = maphash.MakeSeed()

// enqueue appends a message to its sequence. With onlyIfPending it does so only
// if others of that sequence wait.
func (o *sequencer) enqueue(q *queued, onlyIfPending bool) bool {
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
	if need := q.orderUnitsNeeded(); need <= *units {
		*units -= need
		q.units = need
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

// cost is what a message counts as in the queue and in its peer's share.
func (q *queued) cost() int { return q.size }

// orderUnitsNeeded returns how many units a message takes while it waits for
// others.
func (q *queued) orderUnitsNeeded() int { return 1 + q.cost()/orderUnit }

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

// queueForWorkers puts a decoded message behind those that wait for a worker,
// and reports whether it did. An unsigned one is put there only if others of
// its sequence wait.
func (b *batchState) queueForWorkers(a *incoming, l *oap.GossipMessage) bool {
	unsigned := len(a.Gossip.Sig) == 0
	if unsigned && a.link.sequencer.active.Load() == 0 {
		return false
	}
	q := newQueued(*a, *l)
	if !a.link.sequencer.enqueue(q, unsigned) {
		return false
	}
	q.Gossip, q.buffer = a.Gossip.CloneInto(b.takeSpare()) // only read once it is offered to the workers
	q.message.Data = dataView(q.Gossip.Msg, &q.message)
	b.toEnqueue = append(b.toEnqueue, flow.FairItem[*queued]{Class: a.link.serial, Cost: q.cost(), Item: q})
	return true
}

// The buffers of rejected messages are used for the next ones: of a flood, most
// messages are rejected, and memory for each would be garbage faster than it is
// collected.
const (
	maxSpares     = 256
	maxSpareBytes = 2 << 10 // of one
)

// takeSpare returns a buffer to be overwritten, or nil.
func (b *batchState) takeSpare() (buffer []byte) {
	if n := len(b.spares); n > 0 {
		buffer, b.spares = b.spares[n-1], b.spares[:n-1]
	}
	return buffer
}

// spareBytes takes the bytes of a message that was rejected unseen. It stays in
// its sequence until those before it are checked, and only its cost is needed
// there.
func (b *batchState) spareBytes(q *queued) {
	if len(b.spares) < maxSpares && cap(q.buffer) <= maxSpareBytes {
		b.spares = append(b.spares, q.buffer)
	}
	q.Gossip, q.message, q.buffer = oap.Gossip{}, oap.GossipMessage{}, nil
}

// complete records the outcome of messages, and accepts those whose turn has
// come. Without check, they are rejected unseen.
func (b *batchState) complete(batch []*queued, check bool) {
	e, done := b.engine, 0
	defer func() {
		if done < len(batch) || len(b.claims) > 0 { // it has panicked
			b.abandon(batch[done:])
		}
	}()
	need := 0
	for _, q := range batch {
		need += q.orderUnitsNeeded()
	}
	units, dropped := e.orderPermits.TryAcquire(need), 0
	defer func() { e.orderPermits.ReleaseMany(units) }()
	for ; done < len(batch); done++ {
		q, outcome, good := batch[done], stateRejected, false
		if check {
			q.fingerprint, q.id, good = b.check(&q.incoming, &q.message)
		}
		if good {
			outcome = stateGood
		}
		claimed, none := q.finish(outcome, &units)
		if claimed {
			b.claims = append(b.claims, q.sequence)
		}
		if none {
			dropped++
			q.link.peer.Refuse(q.Corr, errFull)
		}
		if !check {
			b.spareBytes(q)
		}
	}
	if dropped > 0 {
		e.counters.Dropped(DropIngress, dropped)
		e.shed.Add(uint64(dropped))
	}
	b.advance()
}

// advance accepts the heads of the claimed sequences, until nothing is left. A
// claim ends after flush: the next one to claim the sequence finds that all
// messages before went to subscribers and peers.
func (b *batchState) advance() {
	for len(b.claims) > 0 {
		kept, units := b.claims[:0], 0
		for _, s := range b.claims {
			ready, back, more := s.takeHead(b.ready)
			b.ready = ready
			units += back
			if more {
				kept = append(kept, s)
			}
		}
		clear(b.claims[len(kept):])
		b.claims = kept
		b.engine.orderPermits.ReleaseMany(units)
		for _, q := range b.ready {
			verdict := b.engine.seen.insert(q.fingerprint, q.message.TS, q.link.share) // 5: it is remembered
			if verdict != inserted {
				b.reject(&q.incoming, q.fingerprint, verdict)
				continue
			}
			one := new(storedMessage)
			one.id.Store(q.id)
			b.accept(&q.incoming, &q.message, q.fingerprint, one) // 6
		}
		clear(b.ready)
		b.ready = b.ready[:0]
		b.flush()
	}
}

// abandon handles a worker that panicked: what it had not checked is lost, and
// the sequences that it had claimed are left to the next worker.
func (b *batchState) abandon(batch []*queued) {
	none := 0
	for _, q := range batch {
		if claimed, _ := q.finish(stateRejected, &none); claimed {
			b.claims = append(b.claims, q.sequence)
		}
	}
	var orphans []*sequence
	for _, s := range b.claims {
		s.owner.mu.Lock()
		s.release()
		if len(s.pending) > 0 {
			orphans = append(orphans, s)
		}
		s.owner.mu.Unlock()
	}
	e := b.engine
	e.mu.Lock()
	e.orphans = append(e.orphans, orphans...)
	e.hasOrphans.Store(len(e.orphans) > 0)
	e.mu.Unlock()
}

// adopt continues the sequences of a worker that panicked.
func (b *batchState) adopt() {
	e := b.engine
	if !e.hasOrphans.Load() {
		return
	}
	e.mu.Lock()
	orphans := e.orphans
	e.orphans = nil
	e.hasOrphans.Store(false)
	e.mu.Unlock()
	for _, s := range orphans {
		s.owner.mu.Lock()
		if s.claim() {
			b.claims = append(b.claims, s)
		}
		s.owner.mu.Unlock()
	}
	b.complete(nil, false)
}
