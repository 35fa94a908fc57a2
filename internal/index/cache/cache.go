package cache

import (
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"micronode/internal/index/record"
)

// Key identifies a question: "b3:…" or "name:docs@<peer>", as
// [record.Question.String] writes it.
type Key string

// Entry is an answer and its source. The answer in an entry that came from a
// cache is shared and must not be modified.
type Entry struct {
	Answer   record.Answer
	Source   record.Source
	At       time.Time // when it was found
	Negative bool      // every target answered, and none has it

	// FromOwner says that the record of a name came from its owner, which is
	// connected and can be asked again cheaply. So it is fresh for OwnerTTL
	// only.
	FromOwner bool
}

// Spec configures a cache. Zero means zero: without entries or bytes nothing is
// kept, and without a TTL nothing is fresh.
type Spec struct {
	Entries int
	Bytes   int64

	TTL         time.Duration // of answers
	NegativeTTL time.Duration // of empty answers
	StaleTTL    time.Duration // how much longer an answer is kept for callers that accept a stale one
}

// OwnerTTL is how long a record that came from the owner of the name is fresh,
// if TTL is longer.
const OwnerTTL = time.Second

// storedEntry is an entry in the cache. It is immutable.
type storedEntry struct {
	Entry
	cost int64 // in bytes
}

// Cache keeps answers. It is safe for concurrent use.
type Cache struct {
	// set at construction
	table *otter.Cache[Key, *storedEntry]

	spec  atomic.Pointer[Spec]
	bytes atomic.Int64 // the costs of all entries in the table
}

// New makes an empty cache. It needs no Close.
func New(spec Spec) *Cache {
	c := &Cache{}
	c.spec.Store(&spec)
	c.table = otter.Must(&otter.Options[Key, *storedEntry]{
		MaximumWeight: spec.maxWeight(),
		Weigher:       func(_ Key, k *storedEntry) uint32 { return c.spec.Load().weight(k.cost) },
		// The only place that subtracts bytes: it runs once for every entry
		// that leaves the table, for whatever reason.
		OnAtomicDeletion: func(gone otter.DeletionEvent[Key, *storedEntry]) { c.bytes.Add(-gone.Value.cost) },
		// Maintenance runs on the caller; the default would start goroutines.
		Executor: func(task func()) { task() },
	})
	return c
}

// Get returns the entry of a key, fresh or stale, if there is one.
func (c *Cache) Get(key Key, now time.Time) (e Entry, fresh, ok bool) {
	k, ok := c.table.GetIfPresent(key)
	if !ok {
		return Entry{}, false, false
	}
	switch c.spec.Load().freshnessOf(&k.Entry, now) {
	case stateFresh:
		return k.Entry, true, true
	case stateStale:
		return k.Entry, false, true
	}
	return Entry{}, false, false
}

// Put stores a copy of an entry and replaces the old one. An entry that is too
// large for the cache, or that has no TTL, is not stored; the old one is
// removed all the same, because it is outdated.
func (c *Cache) Put(key Key, e Entry) {
	spec, cost := c.spec.Load(), cost(key, &e)
	if uint64(spec.weight(cost)) > spec.maxWeight() || spec.freshnessOf(&e, e.At) == stateExpired {
		c.Forget(key)
		return
	}
	c.bytes.Add(cost)
	c.table.Set(Key(strings.Clone(string(key))), &storedEntry{clone(e), cost})
}

// Forget removes the entry of a key.
func (c *Cache) Forget(key Key) { c.table.Invalidate(key) }

// Purge removes the entries that Get would not return any more, and returns how
// many there were. The janitor calls it now and then; only memory depends on
// it.
func (c *Cache) Purge(now time.Time) int {
	spec, gone := c.spec.Load(), 0
	for key, k := range c.table.All() {
		if spec.freshnessOf(&k.Entry, now) == stateExpired && c.removeIfSame(key, k) {
			gone++
		}
	}
	c.table.CleanUp()
	return gone
}

// removeIfSame removes an entry unless it has been replaced.
func (c *Cache) removeIfSame(key Key, k *storedEntry) (dropped bool) {
	c.table.ComputeIfPresent(key, func(there *storedEntry) (*storedEntry, otter.ComputeOp) {
		if dropped = there == k; dropped {
			return nil, otter.InvalidateOp
		}
		return nil, otter.CancelOp
	})
	return dropped
}

// Clear removes all entries.
func (c *Cache) Clear() { c.table.InvalidateAll() }

// Len is how many entries there are, including stale ones and those that wait
// for a purge.
func (c *Cache) Len() int {
	c.table.CleanUp()
	return c.table.EstimatedSize()
}

// Bytes is what the entries cost in memory.
func (c *Cache) Bytes() int64 {
	c.table.CleanUp()
	return c.bytes.Load()
}

// Reconfigure changes the limits and the TTLs. When it returns, entries beyond
// the limits are evicted; the others stay. It must not be called concurrently.
func (c *Cache) Reconfigure(spec Spec) {
	old := c.spec.Swap(&spec)
	if old.minWeight() != spec.minWeight() {
		// While some entries have the old weight and some the new one, the
		// maximum allows for either.
		c.table.SetMaximum(max(old.maxWeight(), spec.maxWeight()))
		for key := range c.table.Keys() {
			c.table.ComputeIfPresent(key, c.reweigh)
		}
	}
	c.table.SetMaximum(spec.maxWeight())
}

// reweigh replaces an entry by itself. The table counts that as one deletion
// and one insertion, and so does bytes.
func (c *Cache) reweigh(there *storedEntry) (*storedEntry, otter.ComputeOp) {
	c.bytes.Add(there.cost)
	return there, otter.WriteOp
}

// maxWeight is the sum of weights that the table may hold. It is never zero,
// which the library would take for "no limit"; but no entry weighs so little.
func (s *Spec) maxWeight() uint64 {
	if s.Entries <= 0 || s.Bytes <= 0 {
		return 1
	}
	// Weights have 32 bits, so there cannot be more than that for each entry.
	entries := uint64(min(s.Entries, math.MaxInt32))
	return min(uint64(s.Bytes), entries*math.MaxUint32)
}

// minWeight is the minimum weight of an entry: at this weight, the allowed
// number of entries reaches maxWeight.
func (s *Spec) minWeight() uint32 {
	entries := uint64(max(1, s.Entries))
	return uint32(min((s.maxWeight()+entries-1)/entries, math.MaxUint32))
}

func (s *Spec) weight(cost int64) uint32 {
	return max(s.minWeight(), uint32(min(cost, math.MaxUint32)))
}

// freshness is the state of an entry at some moment.
type freshness int

const (
	stateExpired freshness = iota // not returned
	stateStale                    // returned, marked as stale
	stateFresh                    // returned
)

// freshnessOf returns the freshness of an entry now.
func (s *Spec) freshnessOf(e *Entry, now time.Time) freshness {
	if n := e.Answer.Name; n != nil && !now.Before(n.Expires) {
		return stateExpired
	}
	life, stale := s.ttl(e), s.StaleTTL
	if e.Negative {
		stale = 0
	}
	switch age := now.Sub(e.At).Abs(); {
	case age < life:
		return stateFresh
	case age-max(0, life) < stale:
		return stateStale
	default:
		return stateExpired
	}
}

// ttl is how long an entry is fresh.
func (s *Spec) ttl(e *Entry) time.Duration {
	switch {
	case e.Negative:
		return s.NegativeTTL
	case e.FromOwner:
		return min(s.TTL, OwnerTTL)
	}
	return s.TTL
}

// FreshUntil is the moment from which an entry is no longer fresh.
func (c *Cache) FreshUntil(e Entry) time.Time {
	spec := c.spec.Load()
	until := e.At.Add(max(0, spec.ttl(&e)))
	if n := e.Answer.Name; n != nil && n.Expires.Before(until) {
		return n.Expires
	}
	return until
}
