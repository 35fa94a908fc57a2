package fill

import (
	"container/list"
	"net/http"
	"slices"
	"strings"
	"time"

	"micronode/b3"
	"micronode/internal/edge/fill/freshness"
)

// entryIndex finds entries. It has no lock of its own; its owner has one.
//
// It evicts the least recently used entry. It does not hold bodies, and only
// counts the references to each.
type entryIndex struct {
	// set at construction
	maxEntries int   // entries
	maxBytes   int64 // of memory for them

	groups   map[string]*group
	lru      list.List // of *slot, most recently used first
	bytes    int64
	bodyRefs map[b3.Address]int // number of references to each body

	// Keys whose answers could not be stored, and until when they stay marked.
	hitForMiss map[string]time.Time
}

const (
	maxVariants   = 16       // of one key
	maxHitForMiss = 4096     // keys that are marked as hit-for-miss
	indexBytes    = 64 << 20 // of memory for entries, without their bodies
)

// group is the entries of one key.
type group struct {
	slots        []*slot // most recently used first
	refreshAfter time.Time
}

// slot is an entry in the index.
type slot struct {
	*entry
	cost    int64
	element *list.Element
}

func newEntryIndex(most int, mostBytes int64) *entryIndex {
	return &entryIndex{maxEntries: most, maxBytes: mostBytes, groups: map[string]*group{}, bodyRefs: map[b3.Address]int{}, hitForMiss: map[string]time.Time{}}
}

// find returns the newest entry that matches the header sent, and marks it as
// used.
func (x *entryIndex) find(key string, sent http.Header) *entry {
	g := x.groups[key]
	if g == nil {
		return nil
	}
	var best *slot
	for _, s := range g.slots {
		if s.matches(sent) && (best == nil || s.resp.ResponseTime.After(best.resp.ResponseTime)) {
			best = s
		}
	}
	if best == nil {
		return nil
	}
	x.touch(g, best)
	return best.entry
}

// findOnly returns the entry of a key that has just one, and marks it as used.
func (x *entryIndex) findOnly(key string) *entry {
	g := x.groups[key]
	if g == nil || len(g.slots) != 1 {
		return nil
	}
	x.touch(g, g.slots[0])
	return g.slots[0].entry
}

// touch marks an entry as used.
func (x *entryIndex) touch(g *group, s *slot) {
	x.lru.MoveToFront(s.element)
	if at := slices.Index(g.slots, s); at > 0 {
		copy(g.slots[1:at+1], g.slots[:at])
		g.slots[0] = s
	}
}

// variant names the expected variant for the header sent: by the Vary of the
// newest entry of the key.
func (x *entryIndex) variant(key string, sent http.Header) string {
	g := x.groups[key]
	if g == nil {
		return ""
	}
	newest := slices.MaxFunc(g.slots, func(a, b *slot) int { return a.resp.ResponseTime.Compare(b.resp.ResponseTime) })
	name, _ := freshness.VaryKey(newest.resp, freshness.Request{Method: http.MethodGet, Header: sent})
	return name
}

// insert adds an entry, replaces those that answer the same requests, and
// returns the ones that were replaced or evicted.
func (x *entryIndex) insert(e *entry) (gone []*entry) {
	g := x.groups[e.key]
	if g == nil {
		g = &group{}
		x.groups[e.key] = g
	}
	s := &slot{entry: e, cost: e.cost()}
	s.element = x.lru.PushFront(s)
	x.bytes += s.cost
	x.retainBody(e.address)
	g.slots = slices.Insert(g.slots, 0, s)
	g.refreshAfter = time.Time{}
	delete(x.hitForMiss, e.key)

	variant := e.variant()
	for _, old := range slices.Clone(g.slots[1:]) {
		if old.matches(e.varyValues) && e.matches(old.varyValues) || old.variant() == variant {
			gone = append(gone, x.remove(old))
		}
	}
	for len(g.slots) > maxVariants {
		gone = append(gone, x.remove(g.slots[len(g.slots)-1]))
	}
	for x.lru.Len() > 1 && (x.lru.Len() > x.maxEntries || x.bytes > x.maxBytes) {
		gone = append(gone, x.remove(x.lru.Back().Value.(*slot)))
	}
	return gone
}

// remove removes an entry.
func (x *entryIndex) remove(s *slot) *entry {
	x.lru.Remove(s.element)
	x.bytes -= s.cost
	x.releaseBody(s.address)
	g := x.groups[s.key]
	g.slots = slices.DeleteFunc(g.slots, func(other *slot) bool { return other == s })
	if len(g.slots) == 0 {
		delete(x.groups, s.key)
	}
	return s.entry
}

// retainBody adds a reference to a body, for an entry or for a fill that is
// about to make one.
func (x *entryIndex) retainBody(a b3.Address) { x.bodyRefs[a]++ }

// releaseBody drops a reference.
func (x *entryIndex) releaseBody(a b3.Address) {
	if x.bodyRefs[a]--; x.bodyRefs[a] == 0 {
		delete(x.bodyRefs, a)
	}
}

// removeEntry removes an entry if it is still there.
func (x *entryIndex) removeEntry(e *entry) bool {
	if s := x.slot(e); s != nil {
		x.remove(s)
		return true
	}
	return false
}

// removeMatching removes the entries that a new answer supersedes, which itself
// cannot be stored.
func (x *entryIndex) removeMatching(key string, sent http.Header) (gone []*entry) {
	if g := x.groups[key]; g != nil {
		for _, s := range slices.Clone(g.slots) {
			if s.matches(sent) {
				gone = append(gone, x.remove(s))
			}
		}
	}
	return gone
}

// holds reports whether an entry is still there.
func (x *entryIndex) holds(e *entry) bool { return x.slot(e) != nil }

func (x *entryIndex) slot(e *entry) *slot {
	g := x.groups[e.key]
	if g == nil {
		return nil
	}
	for _, s := range g.slots {
		if s.entry == e {
			return s
		}
	}
	return nil
}

// purge removes the entries that a purge matches.
func (x *entryIndex) purge(p purgeMatch) (gone []*entry) {
	if p.exact {
		return x.purgeKey(p.key)
	}
	for key := range x.groups {
		if p.matches(key) {
			gone = append(gone, x.purgeKey(key)...)
		}
	}
	for key := range x.hitForMiss {
		if p.matches(key) {
			delete(x.hitForMiss, key)
		}
	}
	return gone
}

func (x *entryIndex) purgeKey(key string) (gone []*entry) {
	delete(x.hitForMiss, key)
	if g := x.groups[key]; g != nil {
		for _, s := range slices.Clone(g.slots) {
			gone = append(gone, x.remove(s))
		}
	}
	return gone
}

// markHitForMiss marks for a while that the answers of a key cannot be stored,
// so that requests do not wait for each other's fills.
func (x *entryIndex) markHitForMiss(key string, now time.Time, span time.Duration) {
	if len(x.hitForMiss) >= maxHitForMiss {
		for other, until := range x.hitForMiss {
			if !now.Before(until) {
				delete(x.hitForMiss, other)
			}
		}
	}
	for other := range x.hitForMiss {
		if len(x.hitForMiss) < maxHitForMiss {
			break
		}
		delete(x.hitForMiss, other) // any: losing a mark costs one wait
	}
	x.hitForMiss[key] = now.Add(span)
}

// isHitForMiss reports whether a key is marked.
func (x *entryIndex) isHitForMiss(key string, now time.Time) bool {
	until, known := x.hitForMiss[key]
	return known && now.Before(until)
}

// delayRefresh notes that a background refresh failed, so that not every
// request tries again.
func (x *entryIndex) delayRefresh(key string, until time.Time) {
	if g := x.groups[key]; g != nil {
		g.refreshAfter = until
	}
}

// mayRefresh reports whether a background refresh may be tried.
func (x *entryIndex) mayRefresh(key string, now time.Time) bool {
	g := x.groups[key]
	return g == nil || !now.Before(g.refreshAfter)
}

// purgeMatch is what a purge matches, in normal form.
type purgeMatch struct {
	key   string // or a prefix of keys
	exact bool
}

// matches reports whether the purge covers a key.
func (p purgeMatch) matches(key string) bool {
	if p.exact {
		return key == p.key
	}
	return strings.HasPrefix(key, p.key)
}
