package nats

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
)

const service = "mailbox"

// Mailbox keeps messages and notes in NATS JetStream. Several of them, on
// several nodes, may be open under one name.
type Mailbox struct {
	// set at construction
	spec  Spec
	line  *line
	life  context.Context // ends with Close
	end   context.CancelCauseFunc
	turn  chan struct{} // whoever reads everything anew has put something in
	lane  *flow.Lane
	wakes *flow.Queue[struct{}] // to the sweeper: something is due earlier than it thinks
	looks *flow.Queue[struct{}] // to the one who looks after the streams

	live  atomic.Bool // the index was complete once
	state atomic.Pointer[state]

	mu sync.Mutex

	// guarded by mu
	index    *index
	follower *follower
	queues   map[string][]*waiter // by box, in the order in which they came
	armed    time.Time            // when the sweeper looks next; zero if it waits for a wake
	resting  bool                 // the sweeper could not write down what it had to, and does not try before it looks next
	odd      error                // a record that cannot be read
}

// follower is where we are in reading what happens.
type follower struct {
	pos     uint64
	stop    func()
	waiting []milestone
	odd     error // a record that it was shown and that cannot be read
}

// milestone is somebody who waits until a sequence was read.
type milestone struct {
	seq     uint64
	reached chan struct{}
}

// state is what was last seen of the boards.
type state struct{ boards, notes, bytes int64 }

var (
	_ mailbox.Engine   = (*Mailbox)(nil)
	_ mailbox.Tasked   = (*Mailbox)(nil)
	_ mailbox.Examined = (*Mailbox)(nil)
)

// Open gets ready to use servers. It does not wait for them, so that a node can
// start before its NATS.
func Open(ctx context.Context, inv *flow.Inventory, spec Spec) (*Mailbox, error) {
	if err := flow.Ended(ctx, opOpen); err != nil {
		return nil, err
	}
	servers, secure, err := spec.complete()
	if err != nil {
		return nil, err
	}
	m := &Mailbox{spec: spec, turn: make(chan struct{}, 1), queues: map[string][]*waiter{}}
	m.life, m.end = context.WithCancelCause(context.WithoutCancel(ctx))
	m.index = newIndex(spec.Limits, m.serve)
	m.state.Store(&state{})
	m.lane = flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "receivers", Running: max(1, spec.Limits.Waiting), From: "handlers, facets", To: "boxes"})
	m.wakes = flow.NewQueue[struct{}](inv, flow.QueueSpec{Service: service, Name: "wakes", Cap: 1, Policy: flow.Coalesce,
		From: "whoever sends or receives", To: "mailbox sweeper"})
	m.looks = flow.NewQueue[struct{}](inv, flow.QueueSpec{Service: service, Name: "looks", Cap: 1, Policy: flow.Coalesce,
		From: "whoever posts", To: "mailbox keeper"})
	if m.line, err = dial(spec, servers, secure, m.hurry); err != nil {
		m.lane.Retire()
		m.wakes.Retire()
		m.looks.Retire()
		return nil, err
	}
	return m, nil
}

// hurry makes the keeper look at once.
func (m *Mailbox) hurry() { _ = m.looks.TryPush(struct{}{}) } // it coalesces

// Close implements mailbox.Engine. What is kept stays in NATS, leases included.
func (m *Mailbox) Close() error {
	if m.life.Err() != nil {
		return nil
	}
	m.end(flow.ErrClosed)
	m.lane.Close()
	m.wakes.Close()
	m.looks.Close()
	m.turn <- struct{}{} // for good: nobody begins to follow any more
	m.mu.Lock()
	f := m.follower
	m.mu.Unlock()
	if f != nil {
		f.stop()
	}
	m.line.close()
	return nil
}

// begin starts an operation: its context ends with the mailbox too, and the
// index is there.
func (m *Mailbox) begin(ctx context.Context, op string) (context.Context, context.CancelFunc, error) {
	if m.life.Err() != nil {
		return nil, nil, fault.Wrap(op, flow.ErrClosed)
	}
	if err := flow.Ended(ctx, op); err != nil {
		return nil, nil, err
	}
	joined, cancel := flow.Join(ctx, m.life)
	if m.live.Load() {
		return joined, cancel, nil
	}
	limited, stop := context.WithTimeout(joined, m.spec.Timeout)
	defer stop()
	if err := m.readFirst(limited, op); err != nil {
		cancel()
		return nil, nil, err
	}
	return joined, cancel, nil
}

// readFirst makes the index if there is none yet.
func (m *Mailbox) readFirst(ctx context.Context, op string) error {
	return m.inTurn(ctx, op, func() error {
		if m.live.Load() {
			return nil
		}
		return m.readAll(ctx, op)
	})
}

// inTurn runs something that one at a time may do.
func (m *Mailbox) inTurn(ctx context.Context, op string, do func() error) error {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
		return do()
	case <-ctx.Done():
		return m.line.refusal(ctx, op, ctx.Err())
	}
}

// readAll reads all records anew, and forgets what is not there any more. What
// was known meanwhile stays known: JetStream decides about everything anyway.
func (m *Mailbox) readAll(ctx context.Context, op string) error {
	if err := m.line.prepare(ctx, op); err != nil {
		return err
	}
	f := &follower{}
	m.mu.Lock()
	m.index.turn++ // before anything can be heard
	m.mu.Unlock()
	stop, err := m.line.follow(ctx, op, func(e entry) { m.hear(f, e) }, func(err error) { m.strange(f, err) }, m.behind)
	if err != nil {
		return err
	}
	f.stop = stop
	m.mu.Lock()
	old := m.follower
	m.follower = f
	m.mu.Unlock()
	if old != nil {
		old.stop()
	}
	if err := m.catchUp(ctx, op); err != nil {
		return err
	}
	m.enter()
	m.index.tidy()
	m.odd = f.odd // what could not be read before may be gone
	m.leave()
	m.live.Store(true)
	return nil
}

// hear takes note of a record that a follower was shown.
func (m *Mailbox) hear(f *follower, e entry) {
	m.mu.Lock()
	defer m.leave()
	if e.token != "" {
		m.index.apply(time.Now(), e)
	}
	f.passed(e.seq)
}

// passed says how far a follower has come. The caller holds mu.
func (f *follower) passed(seq uint64) {
	f.pos = max(f.pos, seq)
	kept := f.waiting[:0]
	for _, one := range f.waiting {
		if one.seq <= f.pos {
			close(one.reached)
		} else {
			kept = append(kept, one)
		}
	}
	f.waiting = kept
}

// strange keeps a record that cannot be read, for Health.
func (m *Mailbox) strange(f *follower, err error) {
	m.mu.Lock()
	m.odd, f.odd = err, err
	m.mu.Unlock()
}

// sawOdd tells whether there was a record that cannot be read.
func (m *Mailbox) sawOdd() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.odd != nil
}

// behind says that a follower has left something out.
func (m *Mailbox) behind() {
	m.line.stale.Store(true)
	m.hurry()
}

// refresh reads everything anew if something may have been left out.
func (m *Mailbox) refresh(ctx context.Context, op string) error {
	if !m.line.stale.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.spec.Timeout)
	defer cancel()
	return m.inTurn(ctx, op, func() error {
		if !m.line.stale.Swap(false) {
			return nil
		}
		err := m.readAll(ctx, op)
		if err != nil {
			m.line.stale.Store(true)
		}
		return err
	})
}

// glance is after how long it is looked whether what is waited for is still
// there.
const glance = 200 * time.Millisecond

// reach waits until the index knows all that had happened when it was called.
func (m *Mailbox) reach(ctx context.Context, op string) error {
	if err := m.refresh(ctx, op); err != nil {
		return err
	}
	return m.catchUp(ctx, op)
}

// catchUp is reach, with the follower that there is.
func (m *Mailbox) catchUp(ctx context.Context, op string) error {
	end, err := m.line.end(ctx, op)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.spec.Timeout)
	defer cancel()
	for began := time.Now(); ; {
		m.mu.Lock()
		f := m.follower
		there := f.pos >= end
		step := milestone{seq: end, reached: make(chan struct{})}
		if !there {
			f.waiting = append(f.waiting, step)
		}
		m.mu.Unlock()
		if there || awaits(ctx, step.reached, glance) {
			return nil
		}
		if err := flow.Ended(ctx, op); err != nil {
			return m.line.refusal(ctx, op, err)
		}
		// The last record may have ended by itself, and then nobody is ever shown
		// it. What counts is the last one that is there.
		tail, err := m.line.tail(ctx, op)
		if err != nil {
			return err
		}
		m.mu.Lock()
		missed := f.pos < tail
		if !missed {
			f.passed(end)
		}
		m.mu.Unlock()
		if missed && time.Since(began) > followBeat {
			m.behind()
		}
	}
}

// awaits waits for something, for a while, and reports whether it came.
func awaits(ctx context.Context, what <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-what:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// enter locks the index and lets time pass.
func (m *Mailbox) enter() time.Time {
	m.mu.Lock()
	now := time.Now()
	m.index.advance(now)
	return now
}

// leave unlocks the index. If something is due earlier than the sweeper thinks,
// it is told.
func (m *Mailbox) leave() {
	next, any := m.index.next()
	hurry := any && (m.armed.IsZero() || next.Before(m.armed)) || len(m.index.doomed) > 0 && !m.resting
	m.mu.Unlock()
	if hurry {
		_ = m.wakes.TryPush(struct{}{}) // it coalesces
	}
}

// Usage implements mailbox.Engine.
func (m *Mailbox) Usage() mailbox.Usage {
	if m.life.Err() != nil {
		return mailbox.Usage{}
	}
	m.enter()
	defer m.leave()
	u, s := m.index.usage, m.state.Load()
	u.Boxes, u.Boards, u.Notes = int64(len(m.index.boxes)), s.boards, s.notes
	u.Bytes = m.index.bytes + s.bytes
	return u
}

// Health implements mailbox.Examined.
func (m *Mailbox) Health() error {
	const op = "mailbox.nats.health"
	if !m.line.connected.Load() {
		return m.line.refusal(context.Background(), op, errAway)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return fault.Wrap(op, m.odd)
}
