package amnesia

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"micronode/fault"
)

// ArenaSet lists every arena of the process, so that at the end none is
// forgotten. The node owns it.
type ArenaSet struct {
	mu     sync.Mutex
	closed bool     // guarded by mu
	arenas []*Arena // guarded by mu; the list, not what the arenas hold
}

// ArenaReport is the result of wiping one arena.
type ArenaReport struct {
	Name  string
	Bytes int  // how much of it had been allocated
	Clean bool // it was read back, and was all zero
}

// Report is the result of wiping all of them.
type Report struct{ Arenas []ArenaReport }

// NewArenaSet makes an empty set.
func NewArenaSet() *ArenaSet { return &ArenaSet{} }

// NewArena makes an arena and lists it.
func (s *ArenaSet) NewArena(name string, size int) (*Arena, error) {
	a, err := NewArena(name, size)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.arenas = append(s.arenas, a)
	}
	s.mu.Unlock()
	if closed {
		_ = a.Close()
		return nil, fault.New("amnesia.vault", fault.Canceled, "the node is stopping; there is no new arena %q", name)
	}
	return a, nil
}

// list is a copy of the current list.
func (s *ArenaSet) list() []*Arena {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Arena(nil), s.arenas...)
}

// Stats reports every arena, in the order in which they were made.
func (s *ArenaSet) Stats() []ArenaStat {
	var stats []ArenaStat
	for _, a := range s.list() {
		stats = append(stats, a.Stat())
	}
	return stats
}

// ZeroAll wipes every arena and reads each back. It is for the end, when
// nothing writes into them any more.
func (s *ArenaSet) ZeroAll() Report {
	var report Report
	for _, a := range s.list() {
		a.Zero()
		report.Arenas = append(report.Arenas, ArenaReport{Name: a.name, Bytes: a.Stat().Used, Clean: a.isZero()})
	}
	return report
}

// Close wipes every arena, reads each back, and unmaps the memory. After that
// the set makes no new ones.
func (s *ArenaSet) Close() (Report, error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	report := s.ZeroAll()
	var errs []error
	for _, a := range s.list() {
		errs = append(errs, a.Close())
	}
	return report, errors.Join(errs...)
}

// Clean reports whether all of them were read back as zero.
func (r Report) Clean() bool {
	for _, one := range r.Arenas {
		if !one.Clean {
			return false
		}
	}
	return true
}

// String is for the last line of a log: which arenas were wiped.
func (r Report) String() string {
	var parts []string
	for _, one := range r.Arenas {
		state := "zeroed"
		if !one.Clean {
			state = "not clean"
		}
		parts = append(parts, fmt.Sprintf("%s %s (%s)", one.Name, state, formatBytes(uint64(one.Bytes))))
	}
	if len(parts) == 0 {
		return "no arenas"
	}
	return strings.Join(parts, ", ")
}
