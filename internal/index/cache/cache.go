package cache

import (
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"micronode/internal/index/record"
)

// Key names a question: "b3:…" or "name:docs@<peer>", as
// [record.Question.String] writes it.
type Key string

// Entry is an answer and where it is from. The answer in an entry that came
// from a cache is shared: look at it, but do not change it.
type Entry struct {
	Answer   record.Answer
	Source   record.Source
	At       time.Time // when it was found
	Negative bool      // everybody who was asked answered, and nobody has it

	// Of the record of a name: that its owner showed it, who is at hand and can
	// be asked again at little cost. So it is fresh for NearLife only.
	Near bool

	// How it was found, for who wants to know.
	Fired  bool   // a second wave was sent
	Winner string // the wave that answered
}

// Spec is what a cache may hold, and for how long. Zero means zero: without
// entries or bytes nothing is kept, and without a life nothing is fresh.
type Spec struct {
	Entries int
	Bytes   int64

	TTL      time.Duration // of answers
	Negative time.Duration // of "nobody has it"
	Stale    time.Duration // how much longer an answer is kept for who asks for a stale one
}

// NearLife is how long the record of a name is fresh that its owner showed, if
// answers live for longer.
const NearLife = time.Second

// kept is an entry in the cache. It is never changed.
type kept struct {
	Entry
	cost int64 // in bytes
}

// Cache keeps answers. It is for use by many goroutines at once.
type Cache struct {
	// set at construction
	table *otter.Cache[Key, *kept]

	spec  atomic.Pointer[Spec]
	bytes atomic.Int64 // the costs of all that is in the table
}

// New makes an empty cache. It holds nothing that must be closed.
func New(spec Spec) *Cache {
	c := &Cache{}
	c.spec.Store(&spec)
	c.table = otter.Must(&otter.Options[Key, *kept]{
		MaximumWeight: spec.room(),
		Weigher:       func(_ Key, k *kept) uint32 { return c.spec.Load().weight(k.cost) },
		// The only place where bytes are taken off: it runs once for every
		// entry that leaves the table, whatever made it leave.
		OnAtomicDeletion: func(gone otter.DeletionEvent[Key, *kept]) { c.bytes.Add(-gone.Value.cost) },
		// Upkeep is done by whoever calls; the default would start goroutines.
		Executor: func(task func()) { task() },
	})
	return c
}

// Get finds the entry of a key. It is fresh, or stale and only for who asked
// for that, or there is none.
func (c *Cache) Get(key Key, now time.Time) (e Entry, fresh, ok bool) {
	k, ok := c.table.GetIfPresent(key)
	if !ok {
		return Entry{}, false, false
	}
	switch c.spec.Load().judge(&k.Entry, now) {
	case isFresh:
		return k.Entry, true, true
	case isStale:
		return k.Entry, false, true
	}
	return Entry{}, false, false
}

// Put keeps a copy of an entry, in place of what was kept under the key. An
// entry that is too large for the cache, or that has no life, is not kept, and
// what was there before is forgotten all the same, because it is no longer what
// is known.
func (c *Cache) Put(key Key, e Entry) {
	spec, cost := c.spec.Load(), cost(key, &e)
	if uint64(spec.weight(cost)) > spec.room() || spec.judge(&e, e.At) == isGone {
		c.Forget(key)
		return
	}
	c.bytes.Add(cost)
	c.table.Set(Key(strings.Clone(string(key))), &kept{clone(e), cost})
}

// Forget drops the entry of a key.
func (c *Cache) Forget(key Key) { c.table.Invalidate(key) }

// Purge drops the entries that Get would not give out any more, and returns how
// many there were. The janitor calls it now and then; only memory depends on it.
func (c *Cache) Purge(now time.Time) int {
	spec, gone := c.spec.Load(), 0
	for key, k := range c.table.All() {
		if spec.judge(&k.Entry, now) == isGone && c.drop(key, k) {
			gone++
		}
	}
	c.table.CleanUp()
	return gone
}

// drop removes an entry unless there is another under its key by now.
func (c *Cache) drop(key Key, k *kept) (dropped bool) {
	c.table.ComputeIfPresent(key, func(there *kept) (*kept, otter.ComputeOp) {
		if dropped = there == k; dropped {
			return nil, otter.InvalidateOp
		}
		return nil, otter.CancelOp
	})
	return dropped
}

// Clear drops everything.
func (c *Cache) Clear() { c.table.InvalidateAll() }

// Len is how many entries there are, stale ones and those that wait for a purge
// included.
func (c *Cache) Len() int {
	c.table.CleanUp()
	return c.table.EstimatedSize()
}

// Bytes is what the entries cost in memory.
func (c *Cache) Bytes() int64 {
	c.table.CleanUp()
	return c.bytes.Load()
}

// Reconfigure changes the bounds and the lives. Entries for which there is no
// room any more are gone when it returns; the others stay. It is for one caller
// at a time.
func (c *Cache) Reconfigure(spec Spec) {
	old := c.spec.Swap(&spec)
	if old.share() != spec.share() {
		// While some entries still have the old weight and some the new one,
		// there is room for either.
		c.table.SetMaximum(max(old.room(), spec.room()))
		for key := range c.table.Keys() {
			c.table.ComputeIfPresent(key, c.weighAgain)
		}
	}
	c.table.SetMaximum(spec.room())
}

// weighAgain writes an entry over itself. The table counts that as one that
// left and one that came, and so do we.
func (c *Cache) weighAgain(there *kept) (*kept, otter.ComputeOp) {
	c.bytes.Add(there.cost)
	return there, otter.WriteOp
}

// room is the sum of weights that the table may hold. It is never zero, which
// the library would take for "no bound"; but no entry weighs so little.
func (s *Spec) room() uint64 {
	if s.Entries <= 0 || s.Bytes <= 0 {
		return 1
	}
	// Shares are numbers of 32 bits, so there cannot be more room than that for
	// each entry.
	entries := uint64(min(s.Entries, math.MaxInt32))
	return min(uint64(s.Bytes), entries*math.MaxUint32)
}

// share is what an entry weighs at least: with no more than this for each, all
// entries that are allowed fill the room.
func (s *Spec) share() uint32 {
	entries := uint64(max(1, s.Entries))
	return uint32(min((s.room()+entries-1)/entries, math.MaxUint32))
}

func (s *Spec) weight(cost int64) uint32 {
	return max(s.share(), uint32(min(cost, math.MaxUint32)))
}
