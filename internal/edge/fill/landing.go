package fill

import (
	"context"
	"errors"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// join boards a flight for an order, or launches one. The leader is the one who
// launched it: the answer is to its own request.
func (c *Cache) join(o order, private bool) (f *flight, leader bool, err error) {
	if f := c.board(o, private); f != nil {
		c.spec.Counters.Coalesced()
		return f, false, nil
	}
	if err := c.spec.Admit(); err != nil {
		return nil, false, err
	}
	f, leader = c.enter(&flight{order: o, joinable: !private})
	if !leader {
		c.spec.Counters.Coalesced()
		return f, false, nil
	}
	return f, true, c.dispatch(f)
}

// board finds a flight that an order may wait for.
func (c *Cache) board(o order, private bool) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if private || c.private(o) {
		return nil
	}
	return c.flights.board(flightID{o.key, c.index.variant(o.key, o.sent)}, false)
}

// private reports whether the answer to an order is most likely for the one who
// asked, and nobody else. Guarded by mu.
func (c *Cache) private(o order) bool {
	return o.secret || alone(o.sent) || c.index.isLonely(o.key, time.Now())
}

// enter launches a flight, unless one that will do is aloft: then whoever waits
// boards that one.
func (c *Cache) enter(f *flight) (*flight, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.joinable = f.joinable && !c.private(f.order)
	f.id = flightID{f.key, c.index.variant(f.key, f.sent)}
	if f.joinable {
		if other := c.flights.board(f.id, f.background); other != nil {
			return other, false
		}
	}
	c.flights.launch(f)
	return f, true
}

// dispatch queues a flight. If that fails, everybody aboard is told, and the
// caller is off it.
func (c *Cache) dispatch(f *flight) error {
	err := c.work.TryPush(f)
	if err == nil {
		return nil
	}
	if errors.Is(err, flow.ErrClosed) {
		err = draining()
	}
	c.settle(f, outcome{err: err})
	return err
}

func draining() error {
	return &fault.Error{Op: opGet, Kind: fault.NotReady, Detail: "the cache is draining", Next: fault.Canceled.Next()}
}

// await waits until a flight is settled, or ctx ends. One who has something to
// stand in gives up a little earlier, so that there is time to send it.
func (c *Cache) await(ctx context.Context, f *flight, standIn bool) error {
	if left, limited := flow.Remaining(ctx); standIn && limited {
		reserved, cancel := flow.Reserve(ctx, min(left/4, 250*time.Millisecond))
		defer cancel()
		ctx = reserved
	}
	select {
	case <-f.done:
		return f.outcome.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	owed := c.flights.leave(f)
	c.mu.Unlock()
	owed.release()
	err := flow.Ended(ctx, opGet)
	if fault.KindOf(err) != fault.Timeout {
		return err
	}
	return &fault.Error{Op: opGet, Kind: fault.Timeout, Err: err, Detail: "the origin did not answer in time",
		Next: "Ask again in a moment: what comes late is kept for the next one."}
}

// refresh launches a fill that nobody waits for, unless one is under way, or
// the last one failed just now.
func (c *Cache) refresh(o order, now time.Time) {
	c.mu.Lock()
	rested := c.index.rested(o.key, now)
	c.mu.Unlock()
	if rested && c.spec.Admit() == nil {
		_, _ = c.launch(o) // what is stale serves until somebody has more luck
	}
}

// launch begins a fill that nobody waits for. It returns the flight that will
// do, or why there is none.
func (c *Cache) launch(o order) (*flight, error) {
	f, first := c.enter(&flight{order: o, joinable: true, background: true})
	if !first {
		return f, nil
	}
	return f, c.dispatch(f)
}

// settle ends a flight, keeps what is to be kept, and tells those aboard. The
// first one to settle a flight wins; what later ones bring is thrown away.
func (c *Cache) settle(f *flight, out outcome) {
	now := time.Now()
	c.mu.Lock()
	won := c.flights.settle(f, out)
	kept := won && out.shared && out.in == c.spec.Store && !f.grounded
	var gone []*entry
	if kept {
		gone = c.index.insert(out.entry)
	}
	if won && out.lonely {
		c.index.lonely(f.key, now, lonelyFor)
	}
	if won && (out.lonely || out.shared && out.in != c.spec.Store) {
		gone = c.index.outdate(f.key, f.sent)
	}
	if won && out.err != nil && f.background {
		c.index.rest(f.key, now.Add(restFor))
	}
	if out.lifted {
		c.index.lower(out.entry.address)
	}
	c.mu.Unlock()
	if out.entry != nil && !kept {
		c.erase(out.in, out.entry.address) // before anybody is told: it is out of view when they have it
	}
	if won {
		close(f.done)
	}
	if kept && c.records != nil {
		c.records.write(out.entry, c.holds)
	}
	c.discard(gone)
	out.loan.release()
}

// holds reports whether an entry is in the index.
func (c *Cache) holds(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.index.holds(e)
}

// discard removes what is left of entries that are not in the index any more.
func (c *Cache) discard(gone []*entry) {
	for _, e := range gone {
		if c.records != nil {
			c.records.remove(e)
		}
		c.erase(c.spec.Store, e.address)
	}
}

// lift keeps a body from being erased until its flight is settled.
func (c *Cache) lift(a b3.Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.lift(a)
}

// erase deletes a body that no entry refers to; those who have it open read it
// to the end. Between the look and the deletion somebody may put the same bytes
// and find them gone: a fetch too many, and nothing worse.
func (c *Cache) erase(from store.Store, a b3.Address) {
	c.mu.Lock()
	used := from == c.spec.Store && c.index.bodies[a] > 0
	c.mu.Unlock()
	if !used {
		_ = from.Delete(context.Background(), a) // it may be evicted already
	}
}
