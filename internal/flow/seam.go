package flow

import "context"

// Seam is the one place where flow lets another goroutine run, stops the
// calling one, or starts one that was stopped. In a node the seam is the Go
// runtime. The explorer (package explore) has its own, decides at each call
// which goroutine continues, and so walks through the interleavings of the very
// code that runs in a node.
//
// Every state transition of flow happens inside one short critical section with
// no call of the seam in it. Between two calls a goroutine is therefore alone,
// and the explorer misses nothing by switching only here.
type Seam interface {
	// Point is called before each state transition, with no lock held.
	Point(at string)

	// Park stops the calling goroutine until Wake(w) or until ctx ends, and
	// reports whether it was woken. A Wake that came first is not lost.
	Park(ctx context.Context, w *Waiter) (woken bool)

	// Wake lets the goroutine that is parked on w, or is about to park,
	// continue. It is called at most once for each time w is listed, and never
	// blocks.
	Wake(w *Waiter)
}

// Waiter is what a goroutine parks on.
type Waiter struct {
	ready chan struct{}
}

// seam is a Seam, or the Go runtime if it is nil. The nil check is all that
// the explorer costs in a node.
type seam struct{ other Seam }

func (s seam) point(at string) {
	if s.other != nil {
		s.other.Point(at)
	}
}

func (s seam) park(ctx context.Context, w *Waiter) bool {
	if s.other != nil {
		return s.other.Park(ctx, w)
	}
	select {
	case <-w.ready:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s seam) wake(w *Waiter) {
	if s.other != nil {
		s.other.Wake(w)
		return
	}
	select {
	case w.ready <- struct{}{}:
	default: // one slot, and one wake for each listing
		panic("flow: a waiter was woken twice; this is a bug in flow")
	}
}
