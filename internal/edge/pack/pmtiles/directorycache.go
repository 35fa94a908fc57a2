package pmtiles

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"

	"micronode/fault"
	"micronode/internal/flow"
)

const (
	// maxLoads is how many directories are read and decoded at one time. Each
	// may need as much memory as its limit allows, whatever the budget of the
	// cache; so this bounds what all of them need together.
	maxLoads = 8

	// maxWaiting is how many callers may wait for directories to be loaded.
	maxWaiting = 4096
)

// DirectoryCache keeps decoded leaf directories in memory, within a number of
// bytes, for all archives that are opened with it. The cache library decides
// what is evicted, by frequency and recency of use. All of its work is done on
// the goroutines of its callers.
type DirectoryCache struct {
	// set at construction
	cache   *otter.Cache[key, *directory] // nil if nothing is to be kept
	flights *flow.Flights[key, *directory]

	archives atomic.Uint64 // the last number assigned
	waiting  atomic.Int64  // callers that wait for a load

	mu      sync.Mutex      //lockblock:leaf a count and a list
	running int             // guarded by mu: loads that are running
	waiters []chan struct{} // guarded by mu: loads that wait for a slot, in order; no more than maxWaiting
}

// key identifies a directory among those of all archives. The length is part of
// it because a hostile archive may give two of them for one offset.
type key struct {
	archive uint64
	offset  uint64
	length  uint32
}

// NewDirectoryCache makes a cache for so many bytes. With none, nothing is
// cached.
func NewDirectoryCache(bytes int64) *DirectoryCache {
	d := &DirectoryCache{flights: flow.NewFlights[key, *directory](flow.FlightsSpec{
		Op: opPrefix + "directory", Start: func(load func(context.Context) error) error { _ = load(context.Background()); return nil },
	})}
	if bytes > 0 {
		d.cache = otter.Must(&otter.Options[key, *directory]{
			MaximumWeight: uint64(bytes),
			Weigher:       func(_ key, dir *directory) uint32 { return uint32(min(dir.cost(), math.MaxUint32)) },
			Executor:      func(task func()) { task() },
		})
	}
	return d
}

// Usage is how many directories are cached, and their bytes.
func (d *DirectoryCache) Usage() (directories int, bytes int64) {
	if d.cache == nil {
		return 0, 0
	}
	d.cache.CleanUp() // applies pending updates to the counts
	return d.cache.EstimatedSize(), int64(d.cache.WeightedSize())
}

// nextNumber assigns a number to an archive.
func (d *DirectoryCache) nextNumber() uint64 { return d.archives.Add(1) }

// lookup returns a directory that is in memory. It is the hot path.
func (d *DirectoryCache) lookup(k key) (*directory, bool) {
	if d.cache == nil {
		return nil, false
	}
	return d.cache.GetIfPresent(k)
}

// load reads a directory, or waits for a load that is running already.
func (d *DirectoryCache) load(k key, a *Archive) (*directory, error) {
	if d.waiting.Add(1) > maxWaiting {
		d.waiting.Add(-1)
		return nil, fault.New(opPrefix+"directory", fault.Busy, "%d callers wait for directories already", maxWaiting)
	}
	defer d.waiting.Add(-1)
	return d.flights.Do(context.Background(), k, func(context.Context) (*directory, error) { return d.run(k, a) })
}

// run loads a directory, on the goroutine of the first caller that wants it.
func (d *DirectoryCache) run(k key, a *Archive) (*directory, error) {
	d.acquireSlot()
	defer d.releaseSlot()
	// Another load may have finished between lookup and load.
	if dir, ok := d.lookup(k); ok {
		return dir, nil
	}
	dir, err := a.readLeaf(k.offset, k.length)
	if err == nil {
		d.insert(k, dir, a)
	}
	return dir, err
}

// acquireSlot waits until fewer than maxLoads are running.
func (d *DirectoryCache) acquireSlot() {
	if turn := d.takeSlot(); turn != nil {
		<-turn
	}
}

// takeSlot takes a slot, or queues for one.
func (d *DirectoryCache) takeSlot() (turn chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running < maxLoads {
		d.running++
		return nil
	}
	turn = make(chan struct{})
	d.waiters = append(d.waiters, turn)
	return turn
}

// releaseSlot passes a slot to the first waiter.
func (d *DirectoryCache) releaseSlot() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiters) == 0 {
		d.running--
		return
	}
	close(d.waiters[0])
	d.waiters = d.waiters[1:]
}

// insert adds a directory to the cache. The archive may be released
// concurrently: Release sets the mark first and evicts second; insert adds the
// directory first and checks the mark second. So none stays behind.
func (d *DirectoryCache) insert(k key, dir *directory, a *Archive) {
	if d.cache == nil || a.released.Load() {
		return
	}
	d.cache.Set(k, dir)
	if a.released.Load() {
		d.cache.Invalidate(k)
	}
	d.cache.CleanUp() // no goroutine would do it later
}

// evictArchive evicts all directories of an archive. It iterates over the whole
// cache, which is fine for something that happens when a file is replaced.
func (d *DirectoryCache) evictArchive(archive uint64) {
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
