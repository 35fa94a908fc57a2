package store

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// The bounds of what is kept of objects that have not arrived whole.
const (
	minPartial     = 1 << 20 // bytes: fetching less again costs next to nothing
	maxPartials    = 16
	partialDivisor = 4 // which part of the budget they may take together
	partialAge     = 7 * 24 * time.Hour
)

// partial is what a Put that failed has left, for one that goes on from there.
type partial struct {
	size int64 // bytes from the front; nothing says that they are right
	cost int64 // its part of the budget
	at   time.Time

	blocks [][]byte // in RAM
}

// partials is all that is kept of objects that have not arrived whole.
type partials struct {
	mu    sync.Mutex //lockblock:leaf two maps
	kept  map[b3.Address]*partial
	taken map[b3.Address]bool // by a Put that goes on from one, or by whoever drops it
}

// Kept returns how many bytes of an object are kept, for a Put with Resume.
func (p *partials) Kept(a b3.Address) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.kept[a]; one != nil {
		return one.size
	}
	return 0
}

// Resumable is Kept, and whether a Put could go on from there now: not if another
// one has what is kept.
func (p *partials) Resumable(a b3.Address) (n int64, free bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.kept[a]; one != nil {
		n = one.size
	}
	return n, !p.taken[a]
}

// take takes an address for a Put, with what is kept of it, which may be nil. It
// reports false if another Put has it.
func (p *partials) take(a b3.Address) (*partial, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[a] {
		return nil, false
	}
	if p.taken == nil {
		p.taken = map[b3.Address]bool{}
	}
	p.taken[a] = true
	one := p.kept[a]
	delete(p.kept, a)
	return one, true
}

// put gives an address back, with what is kept of it from now on, or nil.
func (p *partials) put(a b3.Address, one *partial) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, a)
	if one == nil {
		return
	}
	if p.kept == nil {
		p.kept = map[b3.Address]*partial{}
	}
	p.kept[a] = one
}

// drop drops the oldest until all that are kept are within bounds: so many, so
// many bytes, and not too old. With none, it drops all. Free frees one, which
// is taken meanwhile.
func (p *partials) drop(most int, bytes int64, now time.Time, free func(a b3.Address, one *partial)) (dropped bool) {
	for {
		a, one := p.takeExcess(most, bytes, now)
		if one == nil {
			return dropped
		}
		free(a, one)
		p.put(a, nil)
		dropped = true
	}
}

// takeExcess takes the oldest if there is something to drop.
func (p *partials) takeExcess(most int, bytes int64, now time.Time) (oldest b3.Address, one *partial) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum int64
	for _, other := range p.kept {
		sum += other.cost
	}
	if len(p.kept) == 0 {
		return oldest, nil
	}
	oldest = slices.MinFunc(slices.Collect(maps.Keys(p.kept)), func(a, b b3.Address) int {
		return cmp.Or(p.kept[a].at.Compare(p.kept[b].at), slices.Compare(a[:], b[:]))
	})
	one = p.kept[oldest]
	if len(p.kept) <= most && sum <= bytes && now.Sub(one.at) < partialAge {
		return oldest, nil
	}
	if p.taken == nil {
		p.taken = map[b3.Address]bool{}
	}
	p.taken[oldest] = true
	delete(p.kept, oldest)
	return oldest, one
}

// isWorthKeeping reports whether what has arrived may be used again after an
// error: not if it is wrong, nor if it takes the space that is missing.
func isWorthKeeping(size int64, err error) bool {
	switch fault.KindOf(err) {
	case fault.IntegrityFail, fault.StoreFull, fault.BodyTooLarge, fault.StorageBusy:
		return false
	}
	return err != nil && size >= minPartial
}

// KeptTree reads the tree that is kept beside what has arrived of an object. It is
// NotFound if none is; nothing says that it is right. The caller must close it.
func (d *Disk) KeptTree(a b3.Address) (io.ReadCloser, error) {
	if d.Kept(a) == 0 {
		return nil, notFound("store.tree", a)
	}
	file, err := d.layout.open(d.layout.treePath(a))
	if err != nil {
		return nil, diskFault("store.tree", err)
	}
	return file, nil
}
