package fill

import (
	"context"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// join boards a flight for a request, or launches one. The leader is the
// request that launched it: the answer is always for it.
func (c *Cache) join(o fillRequest, private bool, admit func() error) (f *flight, leader bool, err error) {
	if f := c.board(o, private); f != nil {
		c.adopt(f, o.member)
		c.spec.Counters.Coalesced()
		return f, false, nil
	}
	if err := admit(); err != nil {
		return nil, false, refuse(ReasonNotAllowed, err)
	}
	if err := c.admit(o.target.host, o.member); err != nil {
		return nil, false, err
	}
	f, leader = c.boardOrLaunch(&flight{fillRequest: o, joinable: !private})
	if !leader {
		c.adopt(f, o.member)
		c.spec.Counters.Coalesced()
		return f, false, nil
	}
	return f, true, c.enqueue(f)
}

// admit checks whether a fill may be queued: the breaker of its origin is
// closed, and the service accepts more misses.
func (c *Cache) admit(host string, member uint64) error {
	if err := c.breakers.CheckFrom(host, member); err != nil {
		return breakerFault(host, err)
	}
	return c.spec.Admit(host, member)
}

// board finds a flight that a request may wait for.
func (c *Cache) board(o fillRequest, private bool) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if private || c.isPrivate(o) {
		return nil
	}
	return c.flights.board(flightID{o.key, c.index.variant(o.key, o.forwarded)}, false)
}

// adopt gives a queued flight to a client that boarded it, if that one has less
// under way at the origin: otherwise a client that has asked for everything
// first would keep the others waiting for its turn.
func (c *Cache) adopt(f *flight, member uint64) {
	if f.client.Load() != member {
		c.work.Reassign(workBand, f.class, func(other *flight) bool { return other == f }, member, func(f *flight) { f.client.Store(member) })
	}
}

// isPrivate reports whether the answer to a request is most likely usable by
// that client only. Guarded by mu.
func (c *Cache) isPrivate(o fillRequest) bool {
	return o.noStore || isPersonalRequest(o.forwarded) || c.index.isHitForMiss(o.key, time.Now())
}

// boardOrLaunch launches a flight, unless a suitable one is active: then it
// boards that one.
func (c *Cache) boardOrLaunch(f *flight) (*flight, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.joinable = f.joinable && !c.isPrivate(f.fillRequest)
	f.class = classOf(f.target.host)
	f.client.Store(f.member)
	f.id = flightID{f.key, c.index.variant(f.key, f.forwarded)}
	if f.joinable {
		if other := c.flights.board(f.id, f.background); other != nil {
			return other, false
		}
	}
	c.flights.launch(f)
	return f, true
}

// enqueue queues a flight. When the queue is full, it rejects work of the
// origin with the most queued flights, which is most often that of f, and there
// of the client with the most. Every
// waiter of a rejected flight gets the error. If f itself is rejected, enqueue
// returns the error.
func (c *Cache) enqueue(f *flight) (refused error) {
	for _, rejected := range c.work.Offer(workBand, []flow.FairItem[*flight]{{Class: f.class, Member: f.client.Load(), Cost: 1, Item: f}}, nil) {
		err := c.rejectFault()
		c.complete(rejected, outcome{err: err})
		if rejected == f {
			refused = err
		}
	}
	return refused
}

// rejectFault is why the queue rejects a flight.
func (c *Cache) rejectFault() error {
	if c.draining.Load() {
		return drainingFault()
	}
	return fault.New(opFill, fault.Busy, "%d objects wait to be fetched", c.work.Len(workBand))
}

// markStarted marks a flight as taken by a worker. It reports false if the
// flight is completed already.
func (c *Cache) markStarted(f *flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.started = !f.completed
	return f.started
}

// hasWaiters reports whether a flight has waiters, or is a background fill.
func (c *Cache) hasWaiters(f *flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.background || f.aboard > 0
}

// giveUp closes boarding if nobody waits for a flight, so that its fill can be
// cancelled: the next request launches a new one.
func (c *Cache) giveUp(f *flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.background || f.aboard > 0 {
		return false
	}
	c.flights.closeBoarding(f)
	return true
}

// leave removes one waiter from a flight. A flight without waiters that no
// worker has started is withdrawn from the queue.
func (c *Cache) leave(f *flight) (withdrawn bool) {
	c.mu.Lock()
	held, abandoned := c.flights.leave(f)
	c.mu.Unlock()
	held.release()
	if !abandoned {
		return false
	}
	if c.work.Withdraw(workBand, f.class, func(other *flight) bool { return other == f }) {
		c.complete(f, outcome{err: fault.New(opFill, fault.Canceled, "all requests for it were cancelled")})
		return true
	}
	// A worker took it first. The fill continues, and others may board.
	c.mu.Lock()
	c.flights.reopenBoarding(f)
	c.mu.Unlock()
	return false
}

func drainingFault() error {
	return &fault.Error{Op: opGet, Kind: fault.NotReady, Detail: "the cache is draining", Next: fault.Canceled.Next()}
}

// await waits until a flight is completed, or its body can be streamed, or ctx
// ends. With a stale answer to fall back on, it times out a little earlier, so
// that there is time to send that.
func (c *Cache) await(ctx context.Context, f *flight, hasStale bool) (*streamingBody, error) {
	if left, limited := flow.Remaining(ctx); hasStale && limited {
		reserved, cancel := flow.Reserve(ctx, min(left/4, 250*time.Millisecond))
		defer cancel()
		ctx = reserved
	}
	select {
	case <-f.done:
		return nil, f.outcome.err
	case <-f.bodyReady:
		if g := c.streamableBody(ctx, f); g != nil {
			return g, nil
		}
	case <-ctx.Done():
	}
	select {
	case <-f.done:
		return nil, f.outcome.err
	case <-ctx.Done():
	}
	withdrawn := c.leave(f)
	err := flow.Ended(ctx, opGet)
	if fault.KindOf(err) != fault.Timeout {
		return nil, err
	}
	late := &fault.Error{Op: opGet, Kind: fault.Timeout, Err: err, Detail: "the origin did not answer in time",
		Next: "Retry in a moment: a late answer is cached."}
	if withdrawn {
		late.Detail = "the request waited in the queue of this origin until its deadline"
		late.Next = "Retry later; if the origin is always slow, the operator can raise edge.workers."
	}
	return nil, late
}

// streamableBody is the body of a flight if it is large or slow, and so worth
// streaming before it is complete. Before the first byte it keeps waiting,
// because a fill that fails until then may be retried.
func (c *Cache) streamableBody(ctx context.Context, f *flight) *streamingBody {
	timer := time.NewTimer(streamWait)
	defer timer.Stop()
	select {
	case <-f.done:
		return nil
	case <-f.body.isLarge:
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	for {
		s := f.body.view(0)
		switch {
		case s.err != nil, s.kept, s.evicted, s.atEnd:
			return nil
		case len(s.bytes) > 0:
			return f.body
		}
		select {
		case <-s.more:
		case <-f.done:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// startRefresh launches a background fill, unless one is under way, or the last
// one failed just now.
func (c *Cache) startRefresh(o fillRequest, now time.Time) {
	c.mu.Lock()
	rested := c.index.mayRefresh(o.key, now)
	c.mu.Unlock()
	if rested && c.spec.Admit(o.target.host, o.member) == nil {
		_, _ = c.startBackground(o) // the stale entry serves until a refresh succeeds
	}
}

// startBackground launches a background fill. It returns the flight that will
// serve, or why there is none.
func (c *Cache) startBackground(o fillRequest) (*flight, error) {
	if err := c.breakers.CheckFrom(o.target.host, o.member); err != nil {
		return nil, breakerFault(o.target.host, err)
	}
	f, first := c.boardOrLaunch(&flight{fillRequest: o, joinable: true, background: true})
	if !first {
		return f, nil
	}
	return f, c.enqueue(f)
}

// complete ends a flight, stores its entry if it may be kept, and wakes the
// waiters. The first call for a flight wins; the outcomes of later ones are
// discarded.
func (c *Cache) complete(f *flight, out outcome) {
	now := time.Now()
	c.mu.Lock()
	won := c.flights.complete(f, out)
	kept := won && out.shared && out.store == c.spec.Store && !f.invalidated
	var gone []*entry
	if kept {
		gone = c.index.insert(out.entry)
	}
	if won && out.hitForMiss {
		c.index.markHitForMiss(f.key, now, hitForMissTTL)
	}
	if won && (out.hitForMiss || out.shared && out.store != c.spec.Store) {
		gone = c.index.removeMatching(f.key, f.forwarded)
	}
	if won && (out.err != nil || out.failed) && f.background {
		c.index.delayRefresh(f.key, now.Add(refreshBackoff))
	}
	if out.bodyRetained {
		c.index.releaseBody(out.entry.address)
	}
	opened, started := f.body, won && f.started
	c.mu.Unlock()
	if started {
		c.work.DoneBy(workBand, f.class, f.client.Load())
	}
	if out.entry != nil && !kept {
		c.deleteUnreferenced(out.store, out.entry.address) // before the waiters wake: the body is out of the store when they read it
	}
	if won {
		close(f.done)
	}
	if won && out.body != nil {
		out.body.finish(nil)
	} else {
		opened.finish(orDraining(out.err)) // its readers would wait forever otherwise
	}
	if kept && c.files != nil {
		c.files.write(out.entry, c.holds)
	}
	c.removeEntries(gone)
	out.bodyHandle.release()
}

// orDraining is the error for readers of a body that will never be complete.
func orDraining(cause error) error {
	if cause != nil {
		return cause
	}
	return drainingFault()
}

// holds reports whether an entry is in the index.
func (c *Cache) holds(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.index.holds(e)
}

// removeEntries deletes the files and bodies of entries that have left the
// index.
func (c *Cache) removeEntries(gone []*entry) {
	for _, e := range gone {
		if c.files != nil {
			c.files.remove(e)
		}
		c.deleteUnreferenced(c.spec.Store, e.address)
	}
}

// retainBody keeps a body from being deleted until its flight is completed.
func (c *Cache) retainBody(a b3.Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.retainBody(a)
}

// deleteUnreferenced deletes a body that no entry refers to; open handles stay
// readable. A Put of the same bytes between the check and the deletion finds
// them gone, which costs one more fetch.
func (c *Cache) deleteUnreferenced(from store.Store, a b3.Address) {
	c.mu.Lock()
	used := from == c.spec.Store && c.index.bodyRefs[a] > 0
	c.mu.Unlock()
	if !used {
		_ = from.Delete(context.Background(), a) // it may be evicted already
	}
}
