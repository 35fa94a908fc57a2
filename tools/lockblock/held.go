package lockblock

import (
	"cmp"
	"go/token"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// holding is a lock that may be held, and where it was taken.
type holding struct {
	lock lock
	pos  token.Pos
}

// state is what is known at one point of a function.
type state struct {
	held     map[string]holding // locks that this function took and may still hold, on some path here
	released map[string]lock    // locks of the caller that were released on every path here
	deferred map[*ssa.Defer]bool
}

func newState() *state {
	return &state{held: map[string]holding{}, released: map[string]lock{}, deferred: map[*ssa.Defer]bool{}}
}

func (s *state) clone() *state {
	c := newState()
	c.join(s)
	for key, l := range s.released {
		c.released[key] = l
	}
	return c
}

// join merges another path to the same point and reports whether that changed anything. Held and deferred grow, released shrinks.
func (s *state) join(other *state) bool {
	changed := false
	for key, h := range other.held {
		if have, ok := s.held[key]; !ok || h.pos < have.pos {
			s.held[key] = h
			changed = true
		}
	}
	for d := range other.deferred {
		changed = changed || !s.deferred[d]
		s.deferred[d] = true
	}
	for key := range s.released {
		if _, ok := other.released[key]; !ok {
			delete(s.released, key)
			changed = true
		}
	}
	return changed
}

func (s *state) take(l lock, pos token.Pos) { s.held[l.Key] = holding{l, pos} }

// drop releases a lock. One that this function did not take belongs to its caller.
func (s *state) drop(l lock) {
	if _, ok := s.held[l.Key]; !ok {
		s.released[l.Key] = l
	}
	delete(s.held, l.Key)
}

// holdings lists what is held in the order of taking.
func (s *state) holdings() []holding {
	list := make([]holding, 0, len(s.held))
	for _, h := range s.held {
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b holding) int {
		return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(a.lock.Key, b.lock.Key))
	})
	return list
}

func (s *state) heldLocks() []lock {
	var list []lock
	for _, h := range s.holdings() {
		list = append(list, h.lock)
	}
	return list
}

func (s *state) releasedLocks() []lock {
	list := make([]lock, 0, len(s.released))
	for _, l := range s.released {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b lock) int { return cmp.Compare(a.Key, b.Key) })
	return list
}
