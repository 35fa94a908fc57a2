package index

import (
	"bytes"
	"encoding/hex"
	"time"

	"github.com/maypok86/otter/v2"

	"micronode/b3"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
)

// Shelves is what the index keeps ready for the warm lane: answers to plain
// GETs of what it remembers.
func (x *Index) Shelves() ingress.Shelves {
	return ingress.Shelves{{Prefix: resolvePrefix, Warm: x.shelf}}
}

// shelf keeps answers in the form in which they are written, within a number of
// bytes. Each says how old it is, so it holds for a second at most and is then
// made again from the cache.
type shelf struct {
	// set at construction
	index *Index
	ready *otter.Cache[b3.Address, readyAnswer] // nil if nothing is to be kept
}

type readyAnswer struct {
	*ingress.Prepared
	until time.Time
}

// readyOverhead is about what an answer costs beside its bytes.
const readyOverhead = 512

func newShelf(x *Index, room int64) *shelf {
	s := &shelf{index: x}
	if room > 0 {
		s.ready = otter.Must(&otter.Options[b3.Address, readyAnswer]{
			MaximumWeight: uint64(room),
			Weigher:       func(_ b3.Address, a readyAnswer) uint32 { return uint32(a.Size() + readyOverhead) },
			Executor:      func(task func()) { task() },
		})
	}
	return s
}

// Lookup finds a ready answer, or makes one of what the cache holds. Everything
// else is for the handler: to find, or to explain.
func (s *shelf) Lookup(target []byte) (*ingress.Prepared, bool) {
	address, ok := plainAddress(target)
	if !ok || s.ready == nil {
		return nil, false
	}
	now := time.Now()
	if known, ok := s.ready.GetIfPresent(address); ok && now.Before(known.until) {
		return known.Prepared, true
	}
	made, ok := s.index.prepare(address, now)
	if !ok {
		return nil, false
	}
	s.ready.Set(address, made)
	return made.Prepared, true
}

// plainAddress reads the address in a target. Only one in its one spelling is
// for the lane. Names are not: what the registry or this node says of one may
// change at any time.
func plainAddress(target []byte) (a b3.Address, ok bool) {
	text, ok := bytes.CutPrefix(target, resolveAddress)
	if !ok || len(text) != hex.EncodedLen(len(a)) {
		return a, false
	}
	for _, c := range text {
		if 'A' <= c && c <= 'F' {
			return a, false
		}
	}
	_, err := hex.Decode(a[:], text)
	return a, err == nil
}

var resolveAddress = []byte(resolvePrefix + b3.Prefix)

// prepare makes the answer that the handler would give.
func (x *Index) prepare(address b3.Address, now time.Time) (readyAnswer, bool) {
	id := record.ID{Kind: record.CID, Address: address}
	entry, fresh, ok := x.cache.Get(keyOf(id.Question(x.self)), now)
	if !ok || !fresh || len(entry.Answer.Providers) == 0 {
		return readyAnswer{}, false
	}
	body, header := encoded(tell(x.resolution(id, address, recalled(entry, true), entry.Answer.Providers), now))
	prepared, err := ingress.Prepare(ingress.Preparation{Pattern: resolvePattern, Header: header, Body: body, Hits: x.metrics.hits})
	until := now.Add(time.Second - now.Sub(entry.At)%time.Second)
	return readyAnswer{prepared, sooner(until, x.cache.FreshUntil(entry))}, err == nil
}

// forget drops the answer to a question.
func (s *shelf) forget(q record.Question) {
	if s.ready != nil {
		s.ready.Invalidate(q.Address)
	}
}

// purge drops answers that do not hold any more.
func (s *shelf) purge(now time.Time) {
	if s.ready == nil {
		return
	}
	for address, one := range s.ready.All() {
		if !now.Before(one.until) {
			s.ready.Invalidate(address)
		}
	}
}

// clear drops all answers.
func (s *shelf) clear() {
	if s.ready != nil {
		s.ready.InvalidateAll()
	}
}
