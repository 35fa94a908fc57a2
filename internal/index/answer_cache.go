package index

import (
	"bytes"
	"encoding/hex"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"micronode/b3"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
)

// WarmRoutes lists the answers that the index prepares for the warm lane: to
// plain GETs of what is in the cache.
func (x *Index) WarmRoutes() ingress.WarmRoutes {
	return ingress.WarmRoutes{{Prefix: resolvePrefix, Source: x.answerCache}}
}

// answerCache keeps answers in the form in which they are written, within a
// number of bytes. Each contains its age, so it is valid for a second at most
// and is then rebuilt from the cache.
type answerCache struct {
	// set at construction
	index   *Index
	entries *otter.Cache[b3.Address, preparedAnswer] // nil if nothing is to be kept

	invalidations atomic.Uint64 // counts invalidations
}

type preparedAnswer struct {
	*ingress.PreparedResponse
	validUntil time.Time
}

// preparedOverhead is about the cost of an answer besides its bytes.
const preparedOverhead = 512

func newAnswerCache(x *Index, room int64) *answerCache {
	s := &answerCache{index: x}
	if room > 0 {
		s.entries = otter.Must(&otter.Options[b3.Address, preparedAnswer]{
			MaximumWeight: uint64(room),
			Weigher:       func(_ b3.Address, a preparedAnswer) uint32 { return uint32(a.Size() + preparedOverhead) },
			Executor:      func(task func()) { task() },
		})
	}
	return s
}

// Lookup returns a prepared answer, or prepares one from the cache. Everything
// else is left to the handler.
func (a *answerCache) Lookup(target []byte) (*ingress.PreparedResponse, bool) {
	address, ok := plainAddress(target)
	if !ok || a.entries == nil {
		return nil, false
	}
	now := time.Now()
	if known, ok := a.entries.GetIfPresent(address); ok && now.Before(known.validUntil) {
		return known.PreparedResponse, true
	}
	begun := a.invalidations.Load()
	made, ok := a.index.prepareAnswer(address, now)
	if !ok {
		return nil, false
	}
	a.putUnlessInvalidated(address, made, begun)
	return made.PreparedResponse, true
}

// putUnlessInvalidated stores an answer, unless something was invalidated since
// begun was read.
//
// Invalidation counts first and drops second; here the answer is stored first
// and the count checked second. So in every interleaving an answer made from an
// invalidated entry does not stay.
func (a *answerCache) putUnlessInvalidated(address b3.Address, made preparedAnswer, begun uint64) {
	a.entries.Set(address, made)
	if a.invalidations.Load() != begun {
		a.entries.Invalidate(address)
	}
}

// plainAddress reads the address in a target. The lane accepts only its
// canonical spelling. It does not serve names: their value in the registry or
// on this node may change at any time.
func plainAddress(target []byte) (a b3.Address, ok bool) {
	text, ok := bytes.CutPrefix(target, resolveAddressPrefix)
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

var resolveAddressPrefix = []byte(resolvePrefix + b3.Prefix)

// prepareAnswer makes the answer that the handler would write.
func (x *Index) prepareAnswer(address b3.Address, now time.Time) (preparedAnswer, bool) {
	id := record.ID{Kind: record.CID, Address: address}
	entry, fresh, ok := x.cache.Get(keyOf(id.Question(x.self)), now)
	if !ok || !fresh || len(entry.Answer.Providers) == 0 {
		return preparedAnswer{}, false
	}
	body, header := encodeResolution(Resolution{ID: id, Manifest: address, Source: record.Cache, At: entry.At, Providers: x.rank(entry.Answer.Providers, "", now)}, now, x.selfText)
	prepared, err := ingress.Prepare(ingress.PreparedSpec{Pattern: resolvePattern, Header: header, Body: body, Hits: x.metrics.hits})
	until := now.Add(time.Second - now.Sub(entry.At)%time.Second)
	return preparedAnswer{prepared, earlier(until, x.cache.FreshUntil(entry))}, err == nil
}

// forget removes the answer to a question.
func (a *answerCache) forget(q record.Question) {
	if a.entries != nil {
		a.invalidations.Add(1)
		a.entries.Invalidate(q.Address)
	}
}

// purge removes answers that have expired.
func (a *answerCache) purge(now time.Time) {
	if a.entries == nil {
		return
	}
	for address, one := range a.entries.All() {
		if !now.Before(one.validUntil) {
			a.entries.Invalidate(address)
		}
	}
}

// clear removes all answers.
func (a *answerCache) clear() {
	if a.entries != nil {
		a.invalidations.Add(1)
		a.entries.InvalidateAll()
	}
}
