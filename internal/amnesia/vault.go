package amnesia

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"micronode/fault"
)

// Vault lists every arena of the process in one place, so that at the end none
// is forgotten. The node owns it.
type Vault struct {
	mu     sync.Mutex
	closed bool     // guarded by mu
	arenas []*Arena // guarded by mu; the list, not what the arenas hold
}

// Wiped is what became of one arena.
type Wiped struct {
	Name  string
	Bytes int  // how much of it had been handed out
	Clean bool // it was read back, and there was nothing
}

// Report is what became of all of them.
type Report struct{ Arenas []Wiped }

// NewVault makes an empty vault.
func NewVault() *Vault { return &Vault{} }

// NewArena makes an arena and lists it.
func (v *Vault) NewArena(name string, size int) (*Arena, error) {
	a, err := NewArena(name, size)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	closed := v.closed
	if !closed {
		v.arenas = append(v.arenas, a)
	}
	v.mu.Unlock()
	if closed {
		_ = a.Close()
		return nil, fault.New("amnesia.vault", fault.Canceled, "the node is stopping; there is no new arena %q", name)
	}
	return a, nil
}

// all is the list as it is now.
func (v *Vault) all() []*Arena {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]*Arena(nil), v.arenas...)
}

// Stats reports every arena, in the order in which they were made.
func (v *Vault) Stats() []ArenaStat {
	var stats []ArenaStat
	for _, a := range v.all() {
		stats = append(stats, a.Stat())
	}
	return stats
}

// ZeroAll wipes every arena and reads each back. It is for the end, when
// everybody who writes into one has stopped.
func (v *Vault) ZeroAll() Report {
	var report Report
	for _, a := range v.all() {
		a.Zero()
		report.Arenas = append(report.Arenas, Wiped{Name: a.name, Bytes: a.Stat().Used, Clean: a.clean()})
	}
	return report
}

// Close wipes every arena, reads each back, and gives the memory back. After
// that the vault makes no new ones.
func (v *Vault) Close() (Report, error) {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	report := v.ZeroAll()
	var errs []error
	for _, a := range v.all() {
		errs = append(errs, a.Close())
	}
	return report, errors.Join(errs...)
}

// Clean reports whether nothing was left in any of them.
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
		parts = append(parts, fmt.Sprintf("%s %s (%s)", one.Name, state, bytesText(uint64(one.Bytes))))
	}
	if len(parts) == 0 {
		return "no arenas"
	}
	return strings.Join(parts, ", ")
}
