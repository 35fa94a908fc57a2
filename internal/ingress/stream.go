package ingress

import (
	"context"
	"sync"

	"micronode/fault"
)

// errDraining is why a request is refused, and a stream ended, by a drain.
var errDraining = &fault.Error{Op: "http", Kind: fault.Canceled, Detail: "this node is draining"}

// streams knows what ends only when it is told to: event streams and
// WebSockets.
type streams struct {
	mu    sync.Mutex //lockblock:leaf guards a map
	open  map[*ending]struct{}
	ended bool
}

// ending is how one of them is told.
type ending struct{ cancel context.CancelCauseFunc }

// add enters a stream; the returned function takes it out.
func (s *streams) add(cancel context.CancelCauseFunc) (leave func()) {
	one := &ending{cancel}
	if s.enter(one) {
		cancel(errDraining)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, one)
	}
}

func (s *streams) enter(one *ending) (ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*ending]struct{}{}
	}
	s.open[one] = struct{}{}
	return s.ended
}

// end tells all of them, and those that come later.
func (s *streams) end() {
	s.mu.Lock()
	s.ended = true
	told := make([]*ending, 0, len(s.open))
	for one := range s.open {
		told = append(told, one)
	}
	s.mu.Unlock()
	for _, one := range told {
		one.cancel(errDraining)
	}
}

// reopen lets new ones in after a restart of the listener.
func (s *streams) reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = false
}
