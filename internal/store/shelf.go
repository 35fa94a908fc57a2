package store

import (
	"context"
	"net/http"
	"sync"

	"micronode/b3"
	"micronode/internal/ingress"
)

// shelfObject is the largest object that is kept ready.
const shelfObject = 64 << 10

// shelfShards is a power of two, so that a few connections on a few cores
// seldom meet at one lock.
const shelfShards = 64

// Shelf keeps whole answers ready for small pinned objects that were asked for
// before, for the warm lane. It holds copies, within a budget of its own: what
// a connection is writing must not change when the store reuses the memory.
//
// Only pinned objects get here. A cached one may be evicted by the store, and
// is, if nobody seems to use it; hits on the shelf would not count as use.
type Shelf struct {
	// set at construction
	budget int64 // for each shard

	shards [shelfShards]shelfShard
}

// shelfShard is a part of the shelf. When it is full, an answer that somebody
// put there earlier makes room: which one is left to the order of the map,
// which is random, and that is a fair policy for answers that are all cheap to
// make again.
type shelfShard struct {
	mu      sync.RWMutex //lockblock:leaf one map operation
	answers map[string]*ingress.Prepared
	bytes   int64
}

// NewShelf makes a shelf for so many bytes.
func NewShelf(budget int64) *Shelf {
	s := &Shelf{budget: budget / shelfShards}
	for i := range s.shards {
		s.shards[i].answers = map[string]*ingress.Prepared{}
	}
	return s
}

// ShelfPrefix is what every target on the shelf begins with.
const ShelfPrefix = "/o/"

func target(a b3.Address) string { return ShelfPrefix + a.String() }

// shard picks by the last hex digits of the target, which are as good as random.
func (s *Shelf) shard(target []byte) *shelfShard {
	n := len(target)
	if n < 2 {
		return &s.shards[0]
	}
	return &s.shards[(uint(target[n-1])*31+uint(target[n-2]))%shelfShards]
}

// Lookup implements [ingress.Warm].
func (s *Shelf) Lookup(target []byte) (*ingress.Prepared, bool) {
	shard := s.shard(target)
	shard.mu.RLock()
	answer, ok := shard.answers[string(target)] // no copy: the compiler knows this form
	shard.mu.RUnlock()
	return answer, ok
}

// offer puts an object that was just served on the shelf, if it belongs there.
//
// A Delete may come at any time. It makes the object invisible first and drops
// it from the shelf second; here, it is put on the shelf first and looked for
// second. So whichever way the two interleave, what was deleted does not stay.
func (s *Shelf) offer(ctx context.Context, from Opener, handle Handle) {
	address := handle.Address()
	body, whole := handle.Bytes()
	if !whole || len(body) > shelfObject || int64(len(body)) > s.budget {
		return
	}
	if _, there := s.Lookup([]byte(target(address))); there {
		return
	}
	if info, err := from.Stat(ctx, address); err != nil || info.Class != Pinned {
		return
	}
	copied := append([]byte(nil), body...)
	if b3.Of(copied) != address {
		return // the store's scrubber will find it
	}
	s.add(address, copied, handle)
	if _, err := from.Stat(ctx, address); err != nil {
		s.Drop(address)
	}
}

func (s *Shelf) add(address b3.Address, body []byte, handle Handle) {
	header := http.Header{}
	content(handle).Header(header)
	answer, err := ingress.Prepare(ingress.Preparation{Pattern: "/o/{b3}", Header: header, Body: body})
	if err != nil {
		return // the object is served the ordinary way
	}
	key := target(address)
	shard := s.shard([]byte(key))
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if _, there := shard.answers[key]; there {
		return
	}
	for other, old := range shard.answers {
		if shard.bytes+int64(answer.Size()) <= s.budget {
			break
		}
		shard.drop(other, old)
	}
	shard.answers[key] = answer
	shard.bytes += int64(answer.Size())
}

// drop removes an answer. Guarded by mu.
func (s *shelfShard) drop(key string, answer *ingress.Prepared) {
	delete(s.answers, key)
	s.bytes -= int64(answer.Size())
}

// Drop takes an object off the shelf. Connections that are writing it finish.
func (s *Shelf) Drop(address b3.Address) {
	key := target(address)
	shard := s.shard([]byte(key))
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if answer, there := shard.answers[key]; there {
		shard.drop(key, answer)
	}
}

// Clear takes everything off the shelf: at the end, and when memory is purged.
func (s *Shelf) Clear() {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		clear(shard.answers)
		shard.bytes = 0
		shard.mu.Unlock()
	}
}

// Usage is how many answers are kept ready, and their bytes.
func (s *Shelf) Usage() (answers int, bytes int64) {
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.RLock()
		answers += len(shard.answers)
		bytes += shard.bytes
		shard.mu.RUnlock()
	}
	return answers, bytes
}
