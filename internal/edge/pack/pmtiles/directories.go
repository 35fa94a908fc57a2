package pmtiles

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"

	"micronode/fault"
)

const (
	// loadsAtOnce is how many directories are read and decoded at one time.
	// Each may need as much memory as its limit allows, whatever the budget of
	// the cache; so this bounds what all of them need together.
	loadsAtOnce = 8

	// mostWaiting is how many callers may wait for directories to be loaded.
	mostWaiting = 4096
)

// Directories keeps decoded leaf directories in memory, within a number of
// bytes, for all archives that are opened with it. Which ones go when there is
// no room is decided by the cache library, by how often and how lately they
// were used. All of its work is done on the goroutines of its callers.
type Directories struct {
	// set at construction
	cache *otter.Cache[key, *directory] // nil if nothing is to be kept

	archives atomic.Uint64 // numbers given out
	waiting  atomic.Int64  // callers that wait for a load

	mu      sync.Mutex      //lockblock:leaf one map operation
	loads   map[key]*load   // guarded by mu: those under way, and those that wait for their turn
	running int             // guarded by mu: those under way
	parked  []chan struct{} // guarded by mu: those that wait, in order; no more than mostWaiting
}

// key tells the directories of all archives apart. The length is part of it
// because an archive may lie and give two of them for one offset.
type key struct {
	archive uint64
	offset  uint64
	length  uint32
}

// load is one directory on its way to memory. Whoever comes second waits for
// the first.
type load struct {
	done chan struct{} // closed when dir and err are set
	dir  *directory
	err  error
}

// NewDirectories makes a cache for so many bytes. With none, nothing is kept.
func NewDirectories(bytes int64) *Directories {
	d := &Directories{loads: map[key]*load{}}
	if bytes > 0 {
		d.cache = otter.Must(&otter.Options[key, *directory]{
			MaximumWeight: uint64(bytes),
			Weigher:       func(_ key, dir *directory) uint32 { return uint32(min(dir.cost(), math.MaxUint32)) },
			Executor:      func(task func()) { task() },
		})
	}
	return d
}

// Usage is how many directories are kept, and their bytes.
func (d *Directories) Usage() (directories int, bytes int64) {
	if d.cache == nil {
		return 0, 0
	}
	d.cache.CleanUp() // what waits to be counted is counted
	return d.cache.EstimatedSize(), int64(d.cache.WeightedSize())
}

// number gives an archive its number.
func (d *Directories) number() uint64 { return d.archives.Add(1) }

// cached returns a directory that is in memory. It is the hot path.
func (d *Directories) cached(k key) (*directory, bool) {
	if d.cache == nil {
		return nil, false
	}
	return d.cache.GetIfPresent(k)
}

// load reads a directory, or waits for somebody who is doing so already.
func (d *Directories) load(k key, a *Archive) (*directory, error) {
	if d.waiting.Add(1) > mostWaiting {
		d.waiting.Add(-1)
		return nil, fault.New(op+"directory", fault.Busy, "%d callers wait for directories already", mostWaiting)
	}
	defer d.waiting.Add(-1)
	mine, first := d.join(k)
	if first {
		d.run(mine, k, a)
	} else {
		<-mine.done
	}
	return mine.dir, mine.err
}

// join finds the load of a directory, or begins it.
func (d *Directories) join(k key) (l *load, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l, ok := d.loads[k]; ok {
		return l, false
	}
	l = &load{done: make(chan struct{}), err: fault.New(op+"directory", fault.Internal, "reading the directory at %d of the leaf directories did not end", k.offset)}
	d.loads[k] = l
	return l, true
}

// run does a load. Those who wait are let go in any case, even if the source
// of the archive panics; then they get the error that the load was born with.
func (d *Directories) run(l *load, k key, a *Archive) {
	d.begin()
	defer func() {
		d.end(k)
		close(l.done)
	}()
	// Somebody may have finished between our look at the cache and join.
	if dir, ok := d.cached(k); ok {
		l.dir, l.err = dir, nil
		return
	}
	if l.dir, l.err = a.readLeaf(k.offset, k.length); l.err == nil {
		d.keep(k, l.dir, a)
	}
}

// begin waits until fewer than loadsAtOnce are under way.
func (d *Directories) begin() {
	if turn := d.park(); turn != nil {
		<-turn
	}
}

// park takes a place among those under way, or one in the line for it.
func (d *Directories) park() (turn chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running < loadsAtOnce {
		d.running++
		return nil
	}
	turn = make(chan struct{})
	d.parked = append(d.parked, turn)
	return turn
}

// end forgets a load and hands its place to the first in the line.
func (d *Directories) end(k key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.loads, k)
	if len(d.parked) == 0 {
		d.running--
		return
	}
	close(d.parked[0])
	d.parked = d.parked[1:]
}

// keep puts a directory into the cache. The archive may be released meanwhile.
// That is marked first and the cache emptied second; here, the directory is put
// there first and the mark looked at second. So none stays behind.
func (d *Directories) keep(k key, dir *directory, a *Archive) {
	if d.cache == nil || a.released.Load() {
		return
	}
	d.cache.Set(k, dir)
	if a.released.Load() {
		d.cache.Invalidate(k)
	}
	d.cache.CleanUp() // no goroutine would do it later
}

// drop forgets all directories of an archive. It looks at every one that is
// kept, which is well for something that happens when a file is replaced.
func (d *Directories) drop(archive uint64) {
	if d.cache == nil {
		return
	}
	for k := range d.cache.Keys() {
		if k.archive == archive {
			d.cache.Invalidate(k)
		}
	}
	d.cache.CleanUp()
}
