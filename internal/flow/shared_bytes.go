package flow

import "sync/atomic"

// SharedBytes is a budget of bytes that several fair queues share: one bound for
// what waits for ten thousand peers. A queue takes and returns without a lock
// that others hold, so items that are offered at the same moment may exceed the
// budget together, by an item for each of them.
type SharedBytes struct {
	limit int64
	used  atomic.Int64
}

// NewSharedBytes makes a budget.
func NewSharedBytes(limit int) *SharedBytes { return &SharedBytes{limit: int64(limit)} }

// Used is how many bytes wait in all queues.
func (s *SharedBytes) Used() int { return int(s.used.Load()) }

// left is how many more may.
func (s *SharedBytes) left() int { return int(max(0, s.limit-s.used.Load())) }

func (s *SharedBytes) add(bytes int) {
	if s != nil {
		s.used.Add(int64(bytes))
	}
}
