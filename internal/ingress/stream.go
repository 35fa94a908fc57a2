package ingress

import (
	"context"
	"sync"

	"micronode/fault"
)

// errDraining is the reason for which a drain rejects requests and ends
// streams.
var errDraining = &fault.Error{Op: "http", Kind: fault.Canceled, Detail: "this node is draining"}

// streamSet holds the requests that end only when they are cancelled: event
// streams and WebSockets.
type streamSet struct {
	mu    sync.Mutex //lockblock:leaf guards a map
	open  map[*streamHandle]struct{}
	ended bool
}

// streamHandle cancels one of them.
type streamHandle struct{ cancel context.CancelCauseFunc }

// register adds a stream; the returned function removes it.
func (s *streamSet) register(cancel context.CancelCauseFunc) (leave func()) {
	one := &streamHandle{cancel}
	if s.insert(one) {
		cancel(errDraining)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, one)
	}
}

func (s *streamSet) insert(one *streamHandle) (ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*streamHandle]struct{}{}
	}
	s.open[one] = struct{}{}
	return s.ended
}

// endAll cancels all streams, and those that are registered later.
func (s *streamSet) endAll() {
	s.mu.Lock()
	s.ended = true
	handles := make([]*streamHandle, 0, len(s.open))
	for one := range s.open {
		handles = append(handles, one)
	}
	s.mu.Unlock()
	for _, one := range handles {
		one.cancel(errDraining)
	}
}

// reopen accepts new streams after a restart of the listener.
func (s *streamSet) reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = false
}
