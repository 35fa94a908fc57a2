package flow

import (
	"context"
	"sync"
	"sync/atomic"
)

// SnapshotSpec names a snapshot.
type SnapshotSpec struct {
	Service string
	Name    string
	From    string // the one writer
	To      string
}

// Version counts the values that a snapshot has had.
type Version uint64

// Snapshot holds the current value of something that has one writer and many
// readers: a config, a head, a set of peers. Readers load it without a lock
// and see one whole value, never a mixture of two. Make T a pointer or a small
// struct, and treat what it points to as read-only once it is stored.
type Snapshot[T any] struct {
	// set at construction
	seam seam
	op   string

	current atomic.Pointer[versioned[T]] // stored under mu, loaded without
	idle    waiters[struct{}]

	mu       sync.Mutex //lockblock:leaf a few assignments; waking happens after unlock
	watchers waitlist[struct{}]
}

type versioned[T any] struct {
	value   T
	version Version
}

// NewSnapshot makes a snapshot with its first value and enters it into the
// inventory.
func NewSnapshot[T any](inv *Inventory, spec SnapshotSpec, first T) *Snapshot[T] {
	s := &Snapshot[T]{seam: inv.seam, op: "snapshot " + spec.Service + "/" + spec.Name}
	s.current.Store(&versioned[T]{value: first})
	inv.enrol(Entry{
		Service: spec.Service, Name: spec.Name, Kind: "snapshot", Cap: 1,
		Policy: "last-write-wins", From: spec.From, To: spec.To,
	}, s)
	return s
}

// Load returns the current value.
func (s *Snapshot[T]) Load() T {
	s.seam.point("snapshot load")
	return s.current.Load().value
}

// LoadVersion returns the current value and its version, for use with
// WaitForChange.
func (s *Snapshot[T]) LoadVersion() (T, Version) {
	s.seam.point("snapshot seen")
	now := s.current.Load()
	return now.value, now.version
}

// Store replaces the value and wakes all waiters.
func (s *Snapshot[T]) Store(value T) {
	s.seam.point("snapshot store")
	s.mu.Lock()
	s.current.Store(&versioned[T]{value: value, version: s.current.Load().version + 1})
	chain := s.watchers.dequeueAll(true)
	s.mu.Unlock()
	wakeAll(s.seam, chain)
}

// WaitForChange waits until the version differs from since, and returns the
// value and version of that moment. Values that came and went in between are
// skipped: a snapshot is about what is, not about what was.
func (s *Snapshot[T]) WaitForChange(ctx context.Context, since Version) (T, Version, error) {
	for {
		w, now := s.watch(since)
		if w == nil {
			return now.value, now.version, nil
		}
		dequeued := await(ctx, s.seam, &s.mu, &s.watchers, w)
		s.idle.put(w)
		if !dequeued {
			return now.value, now.version, Ended(ctx, s.op)
		}
	}
}

// watch lists a waiter, or returns the value that is newer than since.
func (s *Snapshot[T]) watch(since Version) (*waiting[struct{}], *versioned[T]) {
	s.seam.point("snapshot watch")
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.current.Load()
	if now.version != since {
		return nil, now
	}
	w := s.idle.get()
	s.watchers.add(w)
	return w, now
}

func (s *Snapshot[T]) read() (depth int, counts Counts) {
	return 0, Counts{Accepted: uint64(s.current.Load().version)}
}
