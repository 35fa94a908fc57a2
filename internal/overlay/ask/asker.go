package ask

import (
	"context"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// pendingQuery is a question without an answer so far.
type pendingQuery struct {
	corr uint64        // set at construction
	done chan struct{} // closed when the answer is there, by the task that removed the question from the table

	// set before done is closed
	found Found
	err   error
}

// complete sets the result and wakes the caller. It is called once.
func (p *pendingQuery) complete(found Found, err error) {
	p.found, p.err = found, err
	close(p.done)
}

// Ask asks a peer, and waits for its answer until the context ends.
//
// Busy says that too many questions are under way to this peer; Transient that
// the session is over. An error of the peer has the kind of its code.
func (queries *Queries) Ask(ctx context.Context, peer Peer, q Question) (Found, error) {
	if ctx.Err() != nil {
		return Found{}, flow.Ended(ctx, opAsk)
	}
	w, err := queries.register(peer)
	if err != nil {
		outcome := Busy
		if err == errSessionLost {
			outcome = Lost
		}
		queries.spec.Counters.Asked(outcome)
		return Found{}, err
	}
	err = peer.SendControl(session.Outgoing{
		Message: &oap.Find{Obj: q.Obj, Most: uint64(max(q.Most, 0))}, Flags: oap.Req, Corr: w.corr,
		Written: func(err error) {
			if err != nil && queries.remove(peer, w) {
				queries.spec.Counters.Asked(Lost)
				w.complete(Found{}, sendError(err))
			}
		},
	})
	if err != nil && queries.remove(peer, w) {
		queries.spec.Counters.Asked(Lost)
		return Found{}, sendError(err)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if queries.remove(peer, w) {
			queries.spec.Counters.Asked(Abandoned)
			return Found{}, flow.Ended(ctx, opAsk)
		}
		<-w.done // the result came in the moment in which the context ended
	}
	if most := max(q.Most, 0); len(w.found.Providers) > most {
		w.found.Providers = w.found.Providers[:most] // more than was asked for
	}
	return w.found, w.err
}

// register gives a question its number and enters it into the table.
func (queries *Queries) register(peer Peer) (*pendingQuery, error) {
	if queries.draining.Load() {
		return nil, errDraining
	}
	w := &pendingQuery{corr: peer.Corr(), done: make(chan struct{})}
	queries.mu.Lock()
	defer queries.mu.Unlock()
	d := queries.queriesOf(peer)
	if d == nil {
		return nil, errSessionLost
	}
	if len(d.pending) >= PerPeer {
		return nil, &fault.Error{Op: opAsk, Kind: fault.Busy, Detail: "too many questions to this peer are in flight", Next: "Ask another peer, or try again in a moment."}
	}
	if d.pending == nil {
		d.pending = map[uint64]*pendingQuery{}
	}
	d.pending[w.corr] = w
	return w, nil
}

// remove removes a question from the table. It reports false if it was removed
// before.
func (queries *Queries) remove(peer Peer, w *pendingQuery) bool {
	return queries.removeByCorr(peer, w.corr) == w
}

// removeByCorr removes the question with a number from the table, if it is
// there.
func (queries *Queries) removeByCorr(peer Peer, corr uint64) *pendingQuery {
	queries.mu.Lock()
	defer queries.mu.Unlock()
	d := queries.bySession[peer.Serial()]
	if d == nil {
		return nil
	}
	w := d.pending[corr]
	delete(d.pending, corr)
	return w
}

// handleAnswer handles an answer of the peer, or its error.
func (queries *Queries) handleAnswer(peer Peer, corr uint64, outcome string, found Found, err error) {
	w := queries.removeByCorr(peer, corr)
	if w == nil {
		queries.spec.Counters.Stray()
		return
	}
	queries.spec.Counters.Asked(outcome)
	w.complete(found, err)
}

// sendError is the error when a session rejects a question. If that was
// canceled, the session ended, and not the caller's context.
func sendError(err error) error {
	if fault.KindOf(err) == fault.Canceled {
		return errSessionLost
	}
	return fault.Wrap(opAsk, err)
}
