package store

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
)

// Damage is an object that was found corrupt and is not here any more.
type Damage struct {
	Address b3.Address
	Size    int64
	Class   Class     // that it had; of one that an earlier run found, Pinned
	Path    string    // of the file, where it can be inspected; empty if it is gone
	At      time.Time // when it was found

	back bool // it was here again since; what is left is its file
}

// maxDamages is how many damaged objects are remembered. If there are more, the
// disk fails, and the first are as telling as the last.
const maxDamages = 256

// damages remembers the damaged objects until they are deleted, and which of them
// were here again.
type damages struct {
	// set at construction
	report func(Damage) // called for each; it must not block. Nil if nobody wants to know

	count atomic.Int64 // of known; it may be read without the lock

	mu    sync.Mutex //lockblock:leaf a map of a bounded size
	known map[b3.Address]Damage
}

// add remembers a damaged object and reports it.
func (m *damages) add(one Damage) {
	m.remember(one)
	if m.report != nil {
		m.report(one)
	}
}

func (m *damages) remember(one Damage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[b3.Address]Damage{}
	}
	if len(m.known) < maxDamages {
		m.known[one.Address] = one
	}
	m.count.Store(int64(len(m.known)))
}

// forget forgets an object, and returns what was known of it.
func (m *damages) forget(a b3.Address) (one Damage, known bool) {
	if m.count.Load() == 0 {
		return one, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	one, known = m.known[a]
	delete(m.known, a)
	m.count.Store(int64(len(m.known)))
	return one, known
}

// markBack notes that an object was here again.
func (m *damages) markBack(a b3.Address) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one, known := m.known[a]; known {
		one.back = true
		m.known[a] = one
	}
}

// list returns the damaged objects that were not here again, those that were found
// first before the others.
func (m *damages) list() (all []Damage) {
	if m.count.Load() == 0 {
		return nil
	}
	m.mu.Lock()
	for _, one := range m.known {
		if !one.back {
			all = append(all, one)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b Damage) int {
		if order := a.At.Compare(b.At); order != 0 {
			return order
		}
		return slices.Compare(a.Address[:], b.Address[:])
	})
	return all
}

// Damaged returns the objects that were found corrupt, until they are here again
// or are deleted. It never waits.
func (d *Disk) Damaged() (all []Damage) {
	for _, one := range d.damages.list() {
		if o, _ := d.find(one.Address); o != nil {
			d.damages.markBack(one.Address)
			continue
		}
		all = append(all, one)
	}
	return all
}

// forgetDamaged forgets an object that was found corrupt, with its files in
// quarantine, and reports whether it was still listed: it is deleted by that.
func (d *Disk) forgetDamaged(a b3.Address) bool {
	one, known := d.damages.forget(a)
	if !known {
		return false
	}
	if one.Path == "" {
		return !one.back
	}
	// There may be several: it came back, and was damaged again.
	files, _ := filepath.Glob(filepath.Join(d.layout.root, quarantineName, strings.TrimPrefix(a.String(), b3.Prefix)+"-*"))
	for _, path := range files {
		_ = os.Remove(path) // what stays is found by the next start
	}
	return !one.back
}

// rememberQuarantined remembers an object whose file an earlier run has put aside.
func (d *Disk) rememberQuarantined(path string, at time.Time) {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	if len(name) < 3 {
		return
	}
	a, size, ours := parseName(name[:2], name[2:3], name)
	if ours {
		d.damages.remember(Damage{Address: a, Size: size, Path: path, At: at})
	}
}
