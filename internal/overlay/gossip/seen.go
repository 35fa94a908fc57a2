package gossip

import (
	"sync"
	"sync/atomic"
	"time"
)

// seenShards is a power of two, so that some bits of a fingerprint pick one. A
// batch goes through all of them, so they are few.
const seenShards = 4

// seenBuckets is how many buckets the ttl is divided into. With more of them a
// message is forgotten closer to its time, and the tables of the newest
// messages, which are all that a busy node looks at, are small enough for the
// processor's caches; with fewer there are fewer tables.
const seenBuckets = 512

// seenSet remembers the fingerprints of messages for as long as one could come
// again. It is exact: it has no false positives and no false negatives.
//
// A message's time is part of it, so the same message always belongs in the
// same bucket. A look-up touches one bucket, and a bucket whose youngest
// message has expired is dropped as a whole.
type seenSet struct {
	// set at construction
	ttl      int64 // milliseconds, like all times here
	width    int64 // of a bucket
	capacity int64

	count   atomic.Int64
	horizon atomic.Uint64 // messages from before it may have been forgotten, in one of the shards
	shards  [seenShards]seenShard
}

type seenShard struct {
	mu         sync.Mutex //lockblock:leaf look-ups in a few tables
	buckets    []seenBucket
	horizon    uint64 // messages from before it may have been forgotten
	prefetched uint64 // keeps the loads of prefetch from being optimised away
}

type seenBucket struct {
	slot   uint64 // the times that it is for, divided by the width
	prints fingerprintSet
	usage  []bucketUsage // how many of them each peer holds
}

// bucketUsage is how many entries of a bucket one peer holds.
type bucketUsage struct {
	share   *share
	entries int64
}

// insertResult is the outcome of an insert.
type insertResult uint8

const (
	inserted insertResult = iota // it was not known, and is now
	duplicate
	setFull   // it is not known, and there is no room for it
	shareFull // it is not known, and the share of its peer is used up
	tooOld    // it may have been known and forgotten
)

func newSeenSet(most int, ttl time.Duration) *seenSet {
	ms := max(1, ttl.Milliseconds())
	return &seenSet{ttl: ms, width: max(1, ms/seenBuckets), capacity: int64(most)}
}

// shard picks a shard by the second half of a fingerprint; tables use the first
// half.
func (s *seenSet) shard(f fingerprint) *seenShard { return &s.shards[f.b%seenShards] }

// has reports whether a message was accepted. A message from before the horizon
// counts as known: it may have been.
func (s *seenSet) has(f fingerprint, ts uint64) bool {
	shard := s.shard(f)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return ts < shard.horizon || shard.bucket(ts/uint64(s.width)).contains(f)
}

// insert remembers a message, once. Of several concurrent inserts of the same
// one, exactly one returns inserted.
//
// What lies before the horizon is refused. Its time was valid when the caller
// checked, but since then its bucket was dropped, or the clock was set back;
// accepting it could be accepting it for the second time.
func (s *seenSet) insert(f fingerprint, ts uint64, by *share) insertResult {
	shard := s.shard(f)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return s.insertLocked(shard, f, ts, by)
}

// insertLocked is insert, guarded by the shard's mutex.
func (s *seenSet) insertLocked(shard *seenShard, f fingerprint, ts uint64, by *share) insertResult {
	at := ts / uint64(s.width)
	bucket := shard.bucket(at)
	switch {
	case ts < shard.horizon:
		return tooOld
	case bucket.contains(f):
		return duplicate
	}
	free, held := s.capacity-s.count.Add(1)+1, by.seenEntries.Add(1)
	if free < 1 || held > shareOfFree*free {
		s.count.Add(-1)
		by.seenEntries.Add(-1)
		if free < 1 {
			return setFull
		}
		return shareFull
	}
	if bucket == nil {
		bucket = shard.addBucket(at)
	}
	bucket.prints.insert(f)
	bucket.charge(by)
	return inserted
}

// charge counts an entry for its peer. The peer that was charged last is found
// first: consecutive messages are often from one peer. Guarded by the shard's
// mutex.
func (b *seenBucket) charge(by *share) {
	for i := range b.usage {
		if b.usage[i].share == by {
			b.usage[i].entries++
			b.usage[0], b.usage[i] = b.usage[i], b.usage[0]
			return
		}
	}
	b.usage = append(b.usage, bucketUsage{by, 1})
}

// insertBatch is insert for all messages of a batch, in their order. It stores
// the result in each.
//
// The processor cannot predict the slot of a fingerprint, so each one costs a
// wait for memory. Loading all slots of a shard first makes that one wait for
// all of them together.
func (s *seenSet) insertBatch(batch []arrival) {
	for i := range s.shards {
		shard := &s.shards[i]
		first := 0
		for first < len(batch) && s.shard(batch[first].fingerprint) != shard {
			first++
		}
		if first == len(batch) {
			continue
		}
		shard.mu.Lock()
		var bucket *seenBucket
		for i := first; i < len(batch); i++ {
			one := &batch[i]
			if s.shard(one.fingerprint) != shard {
				continue
			}
			if at := one.message.TS / uint64(s.width); bucket == nil || bucket.slot != at {
				bucket = shard.bucket(at)
			}
			if bucket != nil {
				shard.prefetched += bucket.prints.prefetch(one.fingerprint)
			}
		}
		for i := first; i < len(batch); i++ {
			if one := &batch[i]; s.shard(one.fingerprint) == shard {
				one.result = s.insertLocked(shard, one.fingerprint, one.message.TS, one.link.share)
			}
		}
		shard.mu.Unlock()
	}
}

func (b *seenBucket) contains(f fingerprint) bool { return b != nil && b.prints.has(f) }

// bucket returns the bucket for some time, or nil. Guarded by mu.
func (s *seenShard) bucket(at uint64) *seenBucket {
	for i := len(s.buckets) - 1; i >= 0; i-- {
		if s.buckets[i].slot == at {
			return &s.buckets[i]
		}
	}
	return nil
}

// addBucket makes a bucket. There are never more than fit into the range of
// valid times: the ttl, and how far clocks may be ahead. Guarded by mu.
func (s *seenShard) addBucket(at uint64) *seenBucket {
	fresh := seenBucket{slot: at}
	if n := len(s.buckets); n > 0 {
		fresh.prints.reserve(s.buckets[n-1].prints.count)
	}
	s.buckets = append(s.buckets, fresh)
	return &s.buckets[len(s.buckets)-1]
}

// expire drops the buckets in which every message would be refused for its age.
func (s *seenSet) expire(now time.Time) {
	nowMs := max(0, now.UnixMilli())
	for i := range s.shards {
		gone, horizon := s.shards[i].expire(uint64(nowMs), uint64(s.ttl), uint64(s.width))
		s.count.Add(-int64(gone))
		if horizon > s.horizon.Load() {
			s.horizon.Store(horizon) // no other task expires anything
		}
	}
}

// isForgotten reports whether messages of a time may have been forgotten.
func (s *seenSet) isForgotten(nowMs int64) bool { return uint64(max(0, nowMs)) < s.horizon.Load() }

func (s *seenShard) expire(nowMs, ttl, width uint64) (gone int, horizon uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.buckets[:0]
	for _, b := range s.buckets {
		end := (b.slot + 1) * width
		if end+ttl > nowMs {
			kept = append(kept, b)
			continue
		}
		s.horizon = max(s.horizon, end)
		gone += b.prints.count
		for _, h := range b.usage {
			h.share.seenEntries.Add(-h.entries)
		}
	}
	clear(s.buckets[len(kept):])
	s.buckets = kept
	return gone, s.horizon
}
