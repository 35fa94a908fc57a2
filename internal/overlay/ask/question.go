package ask

import (
	"context"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// waiter is somebody who waits for an answer.
type waiter struct {
	corr uint64        // set at construction
	done chan struct{} // closed when the answer is there, by whoever took the question out of the table

	// set before done is closed
	found Found
	err   error
}

// settle gives the one who waits what came of it. It is called once.
func (w *waiter) settle(found Found, err error) {
	w.found, w.err = found, err
	close(w.done)
}

// Ask asks a peer, and waits for its answer until the context ends.
//
// Busy says that too many questions are under way to this peer; Transient that
// the session is over. What the peer itself refuses has the kind of its code.
func (a *Asks) Ask(ctx context.Context, peer Peer, q Question) (Found, error) {
	if ctx.Err() != nil {
		return Found{}, flow.Ended(ctx, opAsk)
	}
	w, err := a.enter(peer)
	if err != nil {
		a.spec.Counters.Asked(unentered(err))
		return Found{}, err
	}
	err = peer.Tell(session.Out{
		Message: &oap.Find{Obj: q.Obj, Most: uint64(max(q.Most, 0))}, Flags: oap.Req, Corr: w.corr,
		Written: func(err error) {
			if err != nil && a.drop(peer, w) {
				a.spec.Counters.Asked(Lost)
				w.settle(Found{}, unasked(err))
			}
		},
	})
	if err != nil && a.drop(peer, w) {
		a.spec.Counters.Asked(Lost)
		return Found{}, unasked(err)
	}
	return a.await(ctx, peer, w, q.Most)
}

// await waits for what comes of a question. What came in the moment in which
// the context ended is taken.
func (a *Asks) await(ctx context.Context, peer Peer, w *waiter, most int) (Found, error) {
	select {
	case <-w.done:
	case <-ctx.Done():
		if a.drop(peer, w) {
			a.spec.Counters.Asked(Left)
			return Found{}, flow.Ended(ctx, opAsk)
		}
		<-w.done
	}
	if extra := max(most, 0); len(w.found.Providers) > extra {
		w.found.Providers = w.found.Providers[:extra] // nobody asked for these
	}
	return w.found, w.err
}

// enter gives a question its number and its place in the table.
func (a *Asks) enter(peer Peer) (*waiter, error) {
	if a.draining.Load() {
		return nil, drains
	}
	w := &waiter{corr: peer.Corr(), done: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.desk(peer)
	if d == nil {
		return nil, gone
	}
	if len(d.waiting) >= PerPeer {
		return nil, &fault.Error{Op: opAsk, Kind: fault.Busy, Detail: "too many questions are under way to this peer", Next: "Ask another peer, or try again in a moment."}
	}
	if d.waiting == nil {
		d.waiting = map[uint64]*waiter{}
	}
	d.waiting[w.corr] = w
	return w, nil
}

// drop takes a question out of the table. It reports false if somebody was
// first.
func (a *Asks) drop(peer Peer, w *waiter) bool { return a.take(peer, w.corr) == w }

// take takes the question with a number out of the table, if it is there.
func (a *Asks) take(peer Peer, corr uint64) *waiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.desks[peer.Serial()]
	if d == nil {
		return nil
	}
	w := d.waiting[corr]
	delete(d.waiting, corr)
	return w
}

// hear takes an answer of the peer, or its refusal.
func (a *Asks) hear(peer Peer, corr uint64, outcome string, found Found, err error) {
	w := a.take(peer, corr)
	if w == nil {
		a.spec.Counters.Stray()
		return
	}
	a.spec.Counters.Asked(outcome)
	w.settle(found, err)
}

// unentered is what to call a question that got no place.
func unentered(err error) string {
	if err == gone {
		return Lost
	}
	return Busy
}

// unasked is the error when a session does not take our question. If it was
// canceled, it is the session that goes away, and not the caller.
func unasked(err error) error {
	if fault.KindOf(err) == fault.Canceled {
		return gone
	}
	return fault.Wrap(opAsk, err)
}
