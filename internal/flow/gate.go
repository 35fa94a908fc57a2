package flow

import (
	"context"
	"sync"

	"micronode/fault"
)

// gate lets a bounded number of goroutines inside and a bounded number wait in
// line. Lane and Permits are two ways to speak of it.
type gate struct {
	// set at construction
	room      int // how many may be inside
	line      int // how many may wait
	enrolment enrolment
	full      fault.Kind // what a caller gets when the line is full
	late      fault.Kind // what a waiter gets when its deadline passes

	idle waiters[struct{}]

	mu      sync.Mutex //lockblock:leaf a few assignments; waking happens after unlock
	closed  bool
	inside  int
	waiting waitlist[struct{}]
	drained waitlist[struct{}] // who waits for inside to become zero
	counts  Counts
	fullErr error // of the kind full; nil before the first who gets it
}

func (g *gate) enrol(inv *Inventory, entry Entry, full, late fault.Kind) {
	g.room, g.line, g.full, g.late = entry.Cap, entry.Waiting, full, late
	g.enrolment = inv.enrol(entry, g.read)
}

func (g *gate) seam() seam { return g.enrolment.inv.seam }

// op is the name of the gate in errors. Errors are made when somebody gets one:
// there is a gate for each session, and most never refuse anything.
func (g *gate) op() string {
	k := &g.enrolment.key
	return k.kind + " " + k.service + "/" + k.name
}

func (g *gate) closedErr() error {
	return &fault.Error{Op: g.op(), Kind: fault.Canceled, Err: ErrClosed}
}

// enter goes inside, waiting in line until ctx ends if it must.
func (g *gate) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return g.ended(ctx)
	}
	g.seam().point("gate enter")
	g.mu.Lock()
	if err := g.admit(); err != nil {
		g.mu.Unlock()
		return err
	}
	if g.inside < g.room {
		g.inside++
		g.counts.Accepted++
		g.mu.Unlock()
		return nil
	}
	w := g.idle.get()
	g.waiting.add(w)
	g.mu.Unlock()

	settled := await(ctx, g.seam(), &g.mu, &g.waiting, w)
	granted := w.granted
	g.idle.put(w)
	switch {
	case !settled:
		return g.ended(ctx)
	case !granted:
		return g.closedErr()
	default:
		return nil
	}
}

// admit says whether a newcomer may go inside or stand in line. Nobody stands
// in line while there is room, so a newcomer never overtakes. Guarded by mu.
func (g *gate) admit() error {
	switch {
	case g.closed:
		return g.closedErr()
	case g.inside >= g.room && g.waiting.n >= g.line:
		g.counts.Refused++
		if g.fullErr == nil {
			g.fullErr = &fault.Error{Op: g.op(), Kind: g.full}
		}
		return g.fullErr
	default:
		return nil
	}
}

// leave gives the place to the longest waiter, or frees it.
func (g *gate) leave() {
	g.seam().point("gate leave")
	g.mu.Lock()
	if g.inside == 0 {
		g.mu.Unlock()
		panic("flow: " + g.op() + ": left more often than entered; pair each successful call with one release")
	}
	g.counts.Delivered++
	if g.waiting.n > 0 {
		g.counts.Accepted++
		w := g.waiting.settleFirst(struct{}{})
		g.mu.Unlock()
		g.seam().wake(&w.Waiter)
		return
	}
	g.inside--
	var chain *waiting[struct{}]
	if g.inside == 0 {
		chain = g.drained.settleAll(true)
	}
	g.mu.Unlock()
	wakeAll(g.seam(), chain)
}

// enterMany lets as many of n inside as there is room for, without waiting.
func (g *gate) enterMany(n int) int {
	return g.enterFree(n, true)
}

// enterSome lets as many of n inside as there is room for, and waits in line for
// the first one until ctx ends if there is none.
func (g *gate) enterSome(ctx context.Context, n int) (int, error) {
	if got := g.enterFree(n, false); got > 0 || n == 0 {
		return got, nil
	}
	if err := g.enter(ctx); err != nil {
		return 0, err
	}
	return 1 + g.enterFree(n-1, false), nil
}

// enterFree lets as many of n inside as there is room for. The others are
// refused if that is the last word.
func (g *gate) enterFree(n int, last bool) int {
	if n < 0 {
		panic("flow: " + g.op() + ": the number asked for at once must be 0 or more")
	}
	g.seam().point("gate enter")
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0
	}
	got := min(n, g.room-g.inside) // zero while anybody waits in line
	g.inside += got
	g.counts.Accepted += uint64(got)
	if last {
		g.counts.Refused += uint64(n - got)
	}
	return got
}

// leaveMany lets n leave, and the longest waiters in.
func (g *gate) leaveMany(n int) {
	if n < 0 {
		panic("flow: " + g.op() + ": the number released at once must be 0 or more")
	}
	if n == 0 {
		return
	}
	g.seam().point("gate leave")
	g.mu.Lock()
	if g.inside < n {
		g.mu.Unlock()
		panic("flow: " + g.op() + ": left more often than entered; pair each successful call with one release")
	}
	g.counts.Delivered += uint64(n)
	chain, let := g.waiting.settleSome(n)
	g.counts.Accepted += uint64(let)
	g.inside -= n - let
	if g.inside == 0 { // so nobody was let in
		chain = g.drained.settleAll(true)
	}
	g.mu.Unlock()
	wakeAll(g.seam(), chain)
}

// close refuses newcomers and sends the line home. Who is inside stays.
func (g *gate) close() {
	g.seam().point("gate close")
	g.mu.Lock()
	g.closed = true
	chain := g.waiting.settleAll(false)
	g.mu.Unlock()
	wakeAll(g.seam(), chain)
}

// drain closes and waits until nobody is inside, or until ctx ends.
func (g *gate) drain(ctx context.Context) error {
	g.close()
	g.seam().point("gate drain")
	g.mu.Lock()
	if g.inside == 0 {
		g.mu.Unlock()
		return nil
	}
	w := g.idle.get()
	g.drained.add(w)
	g.mu.Unlock()

	settled := await(ctx, g.seam(), &g.mu, &g.drained, w)
	g.idle.put(w)
	if !settled {
		return Ended(ctx, g.op()+" drain")
	}
	return nil
}

// ended counts a caller whose ctx ended and says why in the gate's own terms.
func (g *gate) ended(ctx context.Context) error {
	g.mu.Lock()
	g.counts.Expired++
	g.mu.Unlock()
	err := Ended(ctx, g.op())
	if fault.KindOf(err) == fault.Timeout && g.late != fault.Timeout {
		return fault.WrapKind(g.op(), g.late, err)
	}
	return err
}

func (g *gate) read() (depth int, counts Counts) {
	g.mu.Lock()
	defer g.mu.Unlock()
	counts = g.counts
	counts.Inside = g.inside
	return g.waiting.n, counts
}
