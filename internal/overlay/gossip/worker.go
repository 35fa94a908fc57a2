package gossip

import (
	"context"
	"errors"

	"micronode/internal/flow"
	"micronode/internal/oap"
)

// The bounds of the queue to the workers, besides Config.IngressBytes.
const (
	ingressItems   = 512
	takeBytes      = 1 << 20 // what a worker takes in one go; one message may be as large
	queuedOverhead = 128     // what a queued message costs beside its bytes
)

// The buffers of rejected messages are used for the next ones: of a flood, most
// messages are rejected, and memory for each would be garbage faster than it is
// collected.
const (
	maxSpares     = 256
	maxSpareBytes = 2 << 10 // of one
)

// queueForWorkers puts a decoded message behind those that wait for a worker,
// and reports whether it did. An unsigned one is put there only if others of
// its sequence wait.
func (b *batchState) queueForWorkers(a *arrival) bool {
	unsigned := len(a.Gossip.Sig) == 0
	if unsigned && a.link.sequencer.active.Load() == 0 {
		return false
	}
	q := newQueued(a, int(b.engine.config.IngressBytes))
	if !a.link.sequencer.append(q, unsigned) {
		return false
	}
	var spare []byte
	if n := len(b.spares); n > 0 {
		spare, b.spares = b.spares[n-1], b.spares[:n-1]
	}
	q.Gossip, q.buffer = a.Gossip.CloneInto(spare) // only read once it is offered to the workers
	q.message.Data = dataView(q.Gossip.Msg, &q.message)
	b.toEnqueue = append(b.toEnqueue, flow.FairItem[*queued]{Class: a.link.serial, Cost: q.size, Item: q})
	return true
}

// offerQueued puts what was collected into the queue to the workers, as far as
// the share of the peer goes. A peer whose messages find no room gets a refusal.
func (b *batchState) offerQueued(from *link) {
	e, granted := b.engine, 0
	for ; granted < len(b.toEnqueue); granted++ {
		one := &b.toEnqueue[granted]
		if items, bytes := from.share.queued.add(1, one.Cost); items > shareItems || bytes > e.shareBytes() {
			from.share.queued.add(-1, -one.Cost)
			break
		}
		e.ingressUsage.add(1, one.Cost)
		one.Item.counted = true
	}
	b.rejected = e.ingress.Offer(1, b.toEnqueue[:granted], b.rejected[:0])
	if len(b.rejected) > 0 {
		e.shed.Add(uint64(len(b.rejected)))
		for _, q := range b.rejected {
			e.ingressUsage.add(-1, -q.size)
		}
		b.rejectQueued(b.rejected, DropIngress, errFull)
	}
	if over := b.toEnqueue[granted:]; len(over) > 0 {
		b.rejected = b.rejected[:0]
		for i := range over {
			b.rejected = append(b.rejected, over[i].Item)
		}
		b.rejectQueued(b.rejected, DropShare, errShare)
	}
	clear(b.rejected)
	clear(b.toEnqueue)
	b.toEnqueue = b.toEnqueue[:0]
}

// rejectQueued refuses messages for which there is no room. They may be of
// other peers than the one whose messages just came: the fair queue displaces
// those of the largest class. Checked messages behind them wait no longer.
func (b *batchState) rejectQueued(rejected []*queued, reason string, why error) {
	b.engine.counters.Dropped(reason, len(rejected))
	var last *link
	for _, q := range rejected {
		if q.link != last {
			last = q.link
			last.peer.Refuse(q.Corr, why)
		}
	}
	none := 0
	for _, q := range rejected {
		if claimed, _ := q.finish(stateRejected, &none); claimed {
			b.claims = append(b.claims, q.sequence)
		}
		// It stays in its sequence until those before it are checked, and only
		// its cost is needed there.
		if len(b.spares) < maxSpares && cap(q.buffer) <= maxSpareBytes {
			b.spares = append(b.spares, q.buffer)
		}
		q.Gossip, q.message, q.buffer = oap.Gossip{}, oap.GossipMessage{}, nil
	}
	b.advance()
}

// Work handles queued messages, a burst at a time, until the engine is drained
// and the queue is empty. Several tasks run it.
func (e *Engine) Work(ctx context.Context) error {
	b := newBatchState(e)
	into := make([]*queued, e.config.Burst)
	b.startBatch()
	b.adopt()
	for {
		n, err := e.ingress.Take(ctx, into, takeBytes)
		if errors.Is(err, flow.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		b.handleQueued(into[:n])
		clear(into[:n])
	}
}

// handleQueued checks a batch of queued messages, and accepts those whose turn
// has come.
func (b *batchState) handleQueued(batch []*queued) {
	b.startBatch()
	e, need, done := b.engine, 0, 0
	for _, q := range batch {
		e.ingressUsage.add(-1, -q.size) // first: after a panic it would be left out
		need += q.orderUnits
	}
	b.adopt()
	defer func() {
		if done < len(batch) { // it has panicked
			b.abandon(batch[done:])
		}
	}()
	units, dropped := e.orderPermits.TryAcquire(need), 0
	defer func() { e.orderPermits.ReleaseMany(units) }()
	for ; done < len(batch); done++ {
		q, outcome := batch[done], stateRejected
		if b.check(&q.arrival) {
			outcome = stateGood
		}
		claimed, noRoom := q.finish(outcome, &units)
		if claimed {
			b.claims = append(b.claims, q.sequence)
		}
		if noRoom {
			dropped++
			q.link.peer.Refuse(q.Corr, errFull)
		}
	}
	if dropped > 0 {
		e.counters.Dropped(DropIngress, dropped)
		e.shed.Add(uint64(dropped))
	}
	b.advance()
	b.flush()
}

// advance accepts the heads of the claimed sequences, until nothing is left. A
// claim ends after flush: the next one to claim the sequence finds that all
// messages before went to subscribers and peers.
func (b *batchState) advance() {
	defer func() {
		if len(b.claims) > 0 { // it has panicked
			b.abandon(nil)
		}
	}()
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
				b.reject(&q.arrival, verdict)
				continue
			}
			b.accept(&q.arrival, new(storedMessage)) // 6
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
	b.advance()
}
