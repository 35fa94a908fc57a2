package store

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"micronode/b3"
	"micronode/internal/ingress"
)

// shelfObject is the largest object of which a copy is kept ready.
const shelfObject = 64 << 10

// shelfShards is a power of two, so that a few connections on a few cores
// seldom meet at one lock.
const shelfShards = 64

// Shelf answers plain requests for objects in the warm lane, before net/http
// sees them.
//
// From a store that is near, in memory or on disk, it answers for any object of
// up to 1 MiB, whatever its class, and the use counts. What lies in memory is
// written from where it lies. What lies on disk is verified and then sent by the
// kernel; and of small pinned objects a copy is kept, within a budget, so that
// the next answer needs no file at all. From a store behind a network it answers
// only with copies of what was served before.
//
// Only pinned objects are kept. A cached one may be evicted by the store, and
// is, if nobody seems to use it; and hits on the shelf would not be seen there.
type Shelf struct {
	// set at construction
	budget   int64 // for each shard
	from     near  // nil if the store is not near
	template *ingress.Template

	shards [shelfShards]shelfShard
}

// near is a store that gives an object at once, or not at all.
type near interface {
	Opener

	// warm lends an object, verified as the store does it. It reports false if
	// there is no such object, or it is too large or too slow to be had.
	warm(a b3.Address) (loan, bool)
}

// loan is an object to be sent: in parts, or as a part of a file. It is given
// back by closing Done.
type loan struct {
	ingress.Particular
	body [][]byte
	keep bool // a copy of it is worth keeping
}

// shelfShard is a part of the shelf. When it is full, a copy that somebody put
// there earlier makes room: which one is left to the order of the map, which is
// random, and that is a fair policy for copies that are all cheap to make again.
type shelfShard struct {
	mu     sync.RWMutex //lockblock:leaf one map operation
	copies map[b3.Address][]byte
	bytes  int64
}

// shelfEntry is what a copy takes besides its bytes: its place in the map.
const shelfEntry = 128

// NewShelf makes a shelf for objects of a store. Copies may take so many bytes.
func NewShelf(budget int64, from Opener) *Shelf {
	s := &Shelf{budget: budget / shelfShards}
	s.from, _ = from.(near)
	// It never fails: it gets the same header each time, and tests look at it.
	s.template, _ = ingress.NewTemplate(ingress.TemplateSpec{Pattern: objectPattern, Header: objectHeader()})
	for i := range s.shards {
		s.shards[i].copies = map[b3.Address][]byte{}
	}
	return s
}

// objectHeader is what all objects have in common.
func objectHeader() http.Header {
	header := http.Header{}
	ingress.Content{Type: octets, CacheControl: immutable}.Header(header)
	ingress.Untrusted(header)
	return header
}

// ShelfPrefix is what every target on the shelf begins with.
const ShelfPrefix = "/o/"

// targetLength is that of every target of an object.
const targetLength = len(ShelfPrefix) + len(b3.Prefix) + 2*len(b3.Address{})

// parseTarget reads the address in a target. It costs no allocation.
func parseTarget(target []byte) (a b3.Address, ok bool) {
	const digits = len(ShelfPrefix) + len(b3.Prefix)
	if len(target) != targetLength {
		return a, false
	}
	if _, err := hex.Decode(a[:], target[digits:]); err != nil {
		return a, false
	}
	var text [targetLength]byte
	again, _ := a.AppendText(append(text[:0], ShelfPrefix...)) // documented to be nil
	return a, string(again) == string(target)                  // an address has one spelling
}

// shard picks by the last byte of the address, which is as good as random.
func (s *Shelf) shard(a b3.Address) *shelfShard {
	return &s.shards[a[len(a)-1]%shelfShards]
}

// Lookup implements [ingress.Warm].
func (s *Shelf) Lookup(target []byte) (*ingress.Prepared, bool) {
	address, ok := parseTarget(target)
	if !ok {
		return nil, false
	}
	var room [targetLength]byte // a little more than the tag needs
	tag := append(append(append(room[:0], '"'), target[len(ShelfPrefix):]...), '"')
	if body, kept := s.kept(address); kept {
		return s.template.Answer(ingress.Particular{}, tag, body)
	}
	if s.from == nil {
		return nil, false
	}
	lent, ok := s.from.warm(address)
	if !ok {
		return nil, false
	}
	if lent.keep && s.admits(address) {
		s.keep(context.Background(), s.from, address, lent.body...)
	}
	return s.template.Answer(lent.Particular, tag, lent.body...)
}

// kept finds a copy.
func (s *Shelf) kept(a b3.Address) ([]byte, bool) {
	shard := s.shard(a)
	shard.mu.RLock()
	body, there := shard.copies[a]
	shard.mu.RUnlock()
	return body, there
}

// admission is how many of those who come to a full shelf go away again, for
// each one that is let in. If much more is asked for than fits, most copies
// would be thrown out again before anybody asks for them; what is asked for
// often gets in all the same.
const admission = 16

// admits decides whether to make a copy.
func (s *Shelf) admits(a b3.Address) bool {
	shard := s.shard(a)
	shard.mu.RLock()
	full := shard.bytes > s.budget*3/4
	shard.mu.RUnlock()
	return !full || rand.Uint32()%admission == 0
}

// offer puts an object that was just served on the shelf, if it belongs there.
// Where the store is near, Lookup does that.
func (s *Shelf) offer(ctx context.Context, from Opener, handle Handle) {
	if s.from != nil {
		return
	}
	address := handle.Address()
	body, whole := handle.Bytes()
	if !whole {
		return
	}
	if _, there := s.kept(address); there {
		return
	}
	if info, err := from.Stat(ctx, address); err != nil || info.Class != Pinned {
		return
	}
	s.keep(ctx, from, address, body)
}

// keep puts a copy of an object on the shelf.
//
// A Delete may come at any time. It makes the object invisible first and drops
// it from the shelf second; here, it is put on the shelf first and looked for
// second. So whichever way the two interleave, what was deleted does not stay.
func (s *Shelf) keep(ctx context.Context, from Opener, address b3.Address, parts ...[]byte) {
	body := slices.Concat(parts...)
	if len(body) > shelfObject || int64(len(body)+shelfEntry) > s.budget {
		return
	}
	if b3.Of(body) != address {
		return // the store's scrubber will find it; here, nobody would look at it again
	}
	s.add(address, body)
	if _, err := from.Stat(ctx, address); err != nil {
		s.Drop(address)
	}
}

func (s *Shelf) add(address b3.Address, body []byte) {
	shard := s.shard(address)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if _, there := shard.copies[address]; there {
		return
	}
	cost := int64(len(body) + shelfEntry)
	for other := range shard.copies {
		if shard.bytes+cost <= s.budget {
			break
		}
		shard.drop(other)
	}
	shard.copies[address] = body
	shard.bytes += cost
}

// drop removes a copy, if there is one. Guarded by mu.
func (s *shelfShard) drop(a b3.Address) {
	if body, there := s.copies[a]; there {
		delete(s.copies, a)
		s.bytes -= int64(len(body) + shelfEntry)
	}
}

// Drop takes an object off the shelf. Connections that are writing it finish.
func (s *Shelf) Drop(address b3.Address) {
	shard := s.shard(address)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.drop(address)
}

// Clear takes everything off the shelf: at the end, and when memory is purged.
func (s *Shelf) Clear() {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		clear(shard.copies)
		shard.bytes = 0
		shard.mu.Unlock()
	}
}

// Usage is how many copies are kept, and what they take.
func (s *Shelf) Usage() (copies int, bytes int64) {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.RLock()
		copies += len(shard.copies)
		bytes += shard.bytes
		shard.mu.RUnlock()
	}
	return copies, bytes
}
