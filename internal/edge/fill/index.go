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

// index finds entries. It has no lock of its own; its owner has one.
//
// The one that was not used for longest goes first. Bodies are not its
// business: it only knows how many entries refer to each.
type index struct {
	// set at construction
	most      int   // entries
	mostBytes int64 // of memory for them

	groups map[string]*group
	recent list.List // of *slot, the last used in front
	bytes  int64
	bodies map[b3.Address]int // how many refer to each

	// Keys whose answers could not be kept, until when that is remembered.
	loners map[string]time.Time
}

const (
	mostVariants = 16       // of one key
	mostLoners   = 4096     // keys that are remembered as not worth waiting for
	indexBytes   = 64 << 20 // of memory for entries, without their bodies
)

// group is the entries of one key.
type group struct {
	slots []*slot // the last used first
	rest  time.Time
}

// slot is the place of an entry.
type slot struct {
	*entry
	cost   int64
	recent *list.Element
}

func newIndex(most int, mostBytes int64) *index {
	return &index{most: most, mostBytes: mostBytes, groups: map[string]*group{}, bodies: map[b3.Address]int{}, loners: map[string]time.Time{}}
}

// find returns the entry that answers what was sent, and counts it as used. Of
// several, it is the newest.
func (x *index) find(key string, sent http.Header) *entry {
	g := x.groups[key]
	if g == nil {
		return nil
	}
	var best *slot
	for _, s := range g.slots {
		if s.answers(sent) && (best == nil || s.resp.ResponseTime.After(best.resp.ResponseTime)) {
			best = s
		}
	}
	if best == nil {
		return nil
	}
	x.use(g, best)
	return best.entry
}

// only returns the entry of a key that has no other, and counts it as used.
func (x *index) only(key string) *entry {
	g := x.groups[key]
	if g == nil || len(g.slots) != 1 {
		return nil
	}
	x.use(g, g.slots[0])
	return g.slots[0].entry
}

// use counts an entry as used.
func (x *index) use(g *group, s *slot) {
	x.recent.MoveToFront(s.recent)
	if at := slices.Index(g.slots, s); at > 0 {
		copy(g.slots[1:at+1], g.slots[:at])
		g.slots[0] = s
	}
}

// variant names the answer to what was sent, as far as one can know before it
// is here: by what the last answer of the key varies by.
func (x *index) variant(key string, sent http.Header) string {
	g := x.groups[key]
	if g == nil {
		return ""
	}
	newest := slices.MaxFunc(g.slots, func(a, b *slot) int { return a.resp.ResponseTime.Compare(b.resp.ResponseTime) })
	name, _ := freshness.VaryKey(newest.resp, freshness.Request{Method: http.MethodGet, Header: sent})
	return name
}

// insert adds an entry in the place of those that answer the same, and returns
// the ones that had to go.
func (x *index) insert(e *entry) (gone []*entry) {
	g := x.groups[e.key]
	if g == nil {
		g = &group{}
		x.groups[e.key] = g
	}
	s := &slot{entry: e, cost: e.cost()}
	s.recent = x.recent.PushFront(s)
	x.bytes += s.cost
	x.lift(e.address)
	g.slots = slices.Insert(g.slots, 0, s)
	g.rest = time.Time{}
	delete(x.loners, e.key)

	variant := e.variant()
	for _, old := range slices.Clone(g.slots[1:]) {
		if old.answers(e.sent) && e.answers(old.sent) || old.variant() == variant {
			gone = append(gone, x.take(old))
		}
	}
	for len(g.slots) > mostVariants {
		gone = append(gone, x.take(g.slots[len(g.slots)-1]))
	}
	for x.recent.Len() > 1 && (x.recent.Len() > x.most || x.bytes > x.mostBytes) {
		gone = append(gone, x.take(x.recent.Back().Value.(*slot)))
	}
	return gone
}

// take takes an entry out.
func (x *index) take(s *slot) *entry {
	x.recent.Remove(s.recent)
	x.bytes -= s.cost
	x.lower(s.address)
	g := x.groups[s.key]
	g.slots = slices.DeleteFunc(g.slots, func(other *slot) bool { return other == s })
	if len(g.slots) == 0 {
		delete(x.groups, s.key)
	}
	return s.entry
}

// lift counts one who refers to a body: an entry, or a fill that is about to
// make one.
func (x *index) lift(a b3.Address) { x.bodies[a]++ }

// lower counts one less.
func (x *index) lower(a b3.Address) {
	if x.bodies[a]--; x.bodies[a] == 0 {
		delete(x.bodies, a)
	}
}

// drop takes out an entry if it is still there.
func (x *index) drop(e *entry) bool {
	if s := x.slot(e); s != nil {
		x.take(s)
		return true
	}
	return false
}

// outdate takes out what the origin has just answered otherwise, with something
// that cannot be kept.
func (x *index) outdate(key string, sent http.Header) (gone []*entry) {
	if g := x.groups[key]; g != nil {
		for _, s := range slices.Clone(g.slots) {
			if s.answers(sent) {
				gone = append(gone, x.take(s))
			}
		}
	}
	return gone
}

// holds reports whether an entry is still there.
func (x *index) holds(e *entry) bool { return x.slot(e) != nil }

func (x *index) slot(e *entry) *slot {
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

// purge takes out what a purge covers.
func (x *index) purge(p purge) (gone []*entry) {
	if p.exact {
		return x.purgeKey(p.key)
	}
	for key := range x.groups {
		if p.covers(key) {
			gone = append(gone, x.purgeKey(key)...)
		}
	}
	for key := range x.loners {
		if p.covers(key) {
			delete(x.loners, key)
		}
	}
	return gone
}

func (x *index) purgeKey(key string) (gone []*entry) {
	delete(x.loners, key)
	if g := x.groups[key]; g != nil {
		for _, s := range slices.Clone(g.slots) {
			gone = append(gone, x.take(s))
		}
	}
	return gone
}

// lonely remembers for a while that the answers of a key cannot be kept, so
// that nobody waits for somebody else's.
func (x *index) lonely(key string, now time.Time, span time.Duration) {
	if len(x.loners) >= mostLoners {
		for other, until := range x.loners {
			if !now.Before(until) {
				delete(x.loners, other)
			}
		}
	}
	for other := range x.loners {
		if len(x.loners) < mostLoners {
			break
		}
		delete(x.loners, other) // any: to forget costs one wait
	}
	x.loners[key] = now.Add(span)
}

// isLonely reports whether that is remembered.
func (x *index) isLonely(key string, now time.Time) bool {
	until, known := x.loners[key]
	return known && now.Before(until)
}

// rest remembers that a refresh in the background failed, so that not every
// request tries again.
func (x *index) rest(key string, until time.Time) {
	if g := x.groups[key]; g != nil {
		g.rest = until
	}
}

// rested reports whether a refresh in the background may be tried.
func (x *index) rested(key string, now time.Time) bool {
	g := x.groups[key]
	return g == nil || !now.Before(g.rest)
}

// purge is what a Purge covers, in normal form.
type purge struct {
	key   string // or what keys begin with
	exact bool
}

// covers reports whether a key is meant.
func (p purge) covers(key string) bool {
	if p.exact {
		return key == p.key
	}
	return strings.HasPrefix(key, p.key)
}
