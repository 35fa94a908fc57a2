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

// maxCopySize is the largest object that is copied into the cache.
const maxCopySize = 64 << 10

// copyShards is a power of two, so that a few connections on a few cores seldom
// contend for one lock.
const copyShards = 64

// ObjectCache answers plain requests for objects in the warm lane, before
// net/http sees them.
//
// From a local store, in memory or on disk, it answers for any object of up to
// 1 MiB, whatever its class, and that counts as use. Objects in memory are
// written without copying. Objects on disk are verified and then sent by the
// kernel; and of small pinned objects a copy is kept, within a budget, so that
// the next answer needs no file at all. From a store behind a network it
// answers only with copies of what was served before.
//
// Only pinned objects are copied. The store evicts a cached one that seems to
// be unused; and it would not see the hits on the copy.
type ObjectCache struct {
	// set at construction
	budget   int64      // for each shard
	source   warmOpener // nil if the store is not local
	template *ingress.Template

	shards [copyShards]copyShard
}

// warmOpener is a store that opens an object at once, or not at all.
type warmOpener interface {
	Opener

	// openWarm lends an object, verified by the store. It reports false if
	// there is no such object, or it is too large or too slow to open.
	openWarm(a b3.Address) (warmObject, bool)
}

// warmObject is an object to be sent: in parts, or as a part of a file. Closing
// Done releases it.
type warmObject struct {
	ingress.TemplateValues
	body      [][]byte
	cacheable bool // whether it is worth a copy
}

// copyShard is a part of the cache. When it is full, an earlier copy is
// evicted: which one is left to the random order of the map, and that is a fair
// policy for copies that are all cheap to make again.
type copyShard struct {
	mu     sync.RWMutex //lockblock:leaf one map operation
	copies map[b3.Address][]byte
	bytes  int64
}

// copyOverhead is the cost of a copy besides its bytes: its map entry.
const copyOverhead = 128

// NewObjectCache returns a cache for objects of a store. Copies may take up to
// budget bytes.
func NewObjectCache(budget int64, source Opener) *ObjectCache {
	s := &ObjectCache{budget: budget / copyShards}
	s.source, _ = source.(warmOpener)
	// It never fails: it gets the same header each time, and a test checks it.
	s.template, _ = ingress.NewTemplate(ingress.TemplateSpec{Pattern: objectPattern, Header: objectHeader()})
	for i := range s.shards {
		s.shards[i].copies = map[b3.Address][]byte{}
	}
	return s
}

// objectHeader returns the header that all objects have in common.
func objectHeader() http.Header {
	header := http.Header{}
	ingress.Content{Type: octets, CacheControl: ingress.Immutable}.Header(header)
	ingress.MarkUntrusted(header)
	return header
}

// ObjectPrefix is the beginning of every target in the cache.
const ObjectPrefix = "/o/"

// targetLength is the length of every target of an object.
const targetLength = len(ObjectPrefix) + len(b3.Prefix) + 2*len(b3.Address{})

// parseTarget reads the address in a target. It does not allocate.
func parseTarget(target []byte) (a b3.Address, ok bool) {
	const digits = len(ObjectPrefix) + len(b3.Prefix)
	if len(target) != targetLength {
		return a, false
	}
	if _, err := hex.Decode(a[:], target[digits:]); err != nil {
		return a, false
	}
	var text [targetLength]byte
	canonical, _ := a.AppendText(append(text[:0], ObjectPrefix...)) // documented to be nil
	return a, string(canonical) == string(target)                   // an address has one encoding
}

// shard picks a shard by the last byte of the address, which is as good as
// random.
func (o *ObjectCache) shard(a b3.Address) *copyShard {
	return &o.shards[a[len(a)-1]%copyShards]
}

// Lookup makes the answer for an object, from a copy or from the store.
func (o *ObjectCache) Lookup(target []byte) (*ingress.PreparedResponse, bool) {
	address, ok := parseTarget(target)
	if !ok {
		return nil, false
	}
	var buffer [targetLength]byte // a little more than the tag needs
	tag := append(append(append(buffer[:0], '"'), target[len(ObjectPrefix):]...), '"')
	if body, kept := o.copyOf(address); kept {
		return o.template.Render(ingress.TemplateValues{}, tag, body)
	}
	if o.source == nil {
		return nil, false
	}
	found, ok := o.source.openWarm(address)
	if !ok {
		return nil, false
	}
	if found.cacheable && o.admits(address) {
		o.addCopy(context.Background(), o.source, address, found.body...)
	}
	return o.template.Render(found.TemplateValues, tag, found.body...)
}

// copyOf finds a copy.
func (o *ObjectCache) copyOf(a b3.Address) ([]byte, bool) {
	shard := o.shard(a)
	shard.mu.RLock()
	body, there := shard.copies[a]
	shard.mu.RUnlock()
	return body, there
}

// admissionRatio is how many candidates a full cache rejects for each one that
// it admits. If much more is requested than fits, most copies would be evicted
// again before they are used; what is requested often is admitted all the same.
const admissionRatio = 16

// admits decides whether to make a copy.
func (o *ObjectCache) admits(a b3.Address) bool {
	shard := o.shard(a)
	shard.mu.RLock()
	full := shard.bytes > o.budget*3/4
	shard.mu.RUnlock()
	return !full || rand.Uint32()%admissionRatio == 0
}

// offer adds an object of a store behind a network to the cache, if it
// qualifies: it was just served.
func (o *ObjectCache) offer(ctx context.Context, source Opener, handle Handle) {
	address := handle.Address()
	body, whole := handle.Bytes()
	if !whole {
		return
	}
	if _, there := o.copyOf(address); there {
		return
	}
	if info, err := source.Stat(ctx, address); err != nil || info.Class == Cached {
		return
	}
	o.addCopy(ctx, source, address, body)
}

// addCopy adds a copy of an object.
//
// A Delete may come at any time. It makes the object invisible first and drops
// its copy second; here, the copy is added first and the object looked up
// second. So in every interleaving, a deleted object does not stay.
func (o *ObjectCache) addCopy(ctx context.Context, source Opener, address b3.Address, parts ...[]byte) {
	body := slices.Concat(parts...)
	if len(body) > maxCopySize || int64(len(body)+copyOverhead) > o.budget {
		return
	}
	if b3.Of(body) != address {
		return // the store's scrubber will find it; a copy would never be checked again
	}
	o.insert(address, body)
	if _, err := source.Stat(ctx, address); err != nil {
		o.Drop(address)
	}
}

func (o *ObjectCache) insert(address b3.Address, body []byte) {
	shard := o.shard(address)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if _, there := shard.copies[address]; there {
		return
	}
	cost := int64(len(body) + copyOverhead)
	for other := range shard.copies {
		if shard.bytes+cost <= o.budget {
			break
		}
		shard.drop(other)
	}
	shard.copies[address] = body
	shard.bytes += cost
}

// drop removes a copy, if there is one. Guarded by mu.
func (s *copyShard) drop(a b3.Address) {
	if body, there := s.copies[a]; there {
		delete(s.copies, a)
		s.bytes -= int64(len(body) + copyOverhead)
	}
}

// Drop removes the copy of an object. Connections that are writing it finish.
func (o *ObjectCache) Drop(address b3.Address) {
	shard := o.shard(address)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.drop(address)
}

// Clear removes all copies: at the end, and when memory is purged.
func (o *ObjectCache) Clear() {
	for i := range o.shards {
		shard := &o.shards[i]
		shard.mu.Lock()
		clear(shard.copies)
		shard.bytes = 0
		shard.mu.Unlock()
	}
}

// Usage returns the number of copies, and their size.
func (o *ObjectCache) Usage() (copies int, bytes int64) {
	for i := range o.shards {
		shard := &o.shards[i]
		shard.mu.RLock()
		copies += len(shard.copies)
		bytes += shard.bytes
		shard.mu.RUnlock()
	}
	return copies, bytes
}
