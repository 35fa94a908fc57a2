package gossip

import (
	"sync"
	"sync/atomic"
	"time"
)

// seenShards is a power of two, so that some bits of a fingerprint pick one. A
// batch goes through all of them, so they are few.
const seenShards = 4

// seenBuckets is how many buckets the ttl is cut into. With more of them a
// letter is forgotten closer to its time, and the tables of the newest letters,
// which are all that a busy node looks at, are small enough for the processor's
// caches; with fewer there are fewer tables.
const seenBuckets = 512

// seenSet remembers the fingerprints of letters for as long as one could come
// again. It is exact: a letter that was taken is known, and one that was not is
// not.
//
// A letter's time is part of it, so the same letter always belongs in the same
// bucket. A look-up touches one bucket, and a bucket whose youngest letter has
// expired is let go as a whole.
type seenSet struct {
	// set at construction
	ttl   int64 // milliseconds, like all times here
	width int64 // of a bucket
	most  int64

	count     atomic.Int64
	forgotten atomic.Uint64 // letters from before it may have been forgotten, in one of the shards
	shards    [seenShards]seenShard
}

type seenShard struct {
	mu      sync.Mutex //lockblock:leaf look-ups in a few tables
	buckets []seenBucket
	horizon uint64 // letters from before it may have been forgotten
	glanced uint64 // what was looked at for no other reason than to have it at hand
}

type seenBucket struct {
	at     uint64 // the times that it is for, divided by the width
	prints table
}

// verdict is what the set says of a letter that wants to be remembered.
type verdict uint8

const (
	fresh verdict = iota // it was not known, and now it is
	known
	full    // it is not known, and there is no room for it
	elapsed // nobody can tell any more
)

func newSeenSet(most int, ttl time.Duration) *seenSet {
	ms := max(1, ttl.Milliseconds())
	return &seenSet{ttl: ms, width: max(1, ms/seenBuckets), most: int64(most)}
}

// shard goes by the second half of a fingerprint; in tables the first one counts.
func (s *seenSet) shard(f fingerprint) *seenShard { return &s.shards[f.b%seenShards] }

// has tells whether a letter was taken. A letter from before the horizon counts
// as known: it may have been.
func (s *seenSet) has(f fingerprint, ts uint64) bool {
	shard := s.shard(f)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return ts < shard.horizon || shard.find(ts/uint64(s.width)).holds(f)
}

// insert remembers a letter, once. Of many who insert the same one, exactly one
// is told that it is fresh.
//
// What lies before the horizon is refused. Its time was good when the caller
// looked, but since then its bucket has gone, or the clock was set back; to take
// it could be to take it for the second time.
func (s *seenSet) insert(f fingerprint, ts uint64) verdict {
	shard := s.shard(f)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return s.insertInto(shard, f, ts)
}

// insertInto is insert, guarded by the shard's mutex.
func (s *seenSet) insertInto(shard *seenShard, f fingerprint, ts uint64) verdict {
	at := ts / uint64(s.width)
	bucket := shard.find(at)
	switch {
	case ts < shard.horizon:
		return elapsed
	case bucket.holds(f):
		return known
	case s.count.Add(1) > s.most:
		s.count.Add(-1)
		return full
	}
	if bucket == nil {
		bucket = shard.add(at)
	}
	bucket.prints.insert(f)
	return fresh
}

// insertAll is insert for all letters of a batch, in their order, and tells each
// what came of it.
func (s *seenSet) insertAll(batch []newcomer) {
	for i := range s.shards {
		s.insertShare(&s.shards[i], batch)
	}
}

// insertShare inserts those letters of a batch that belong to one shard. A
// fingerprint is at no place that the processor could foresee, so each one costs
// a wait for memory. To look at all places first makes that one wait for all of
// them together.
func (s *seenSet) insertShare(shard *seenShard, batch []newcomer) {
	first := 0
	for first < len(batch) && s.shard(batch[first].print) != shard {
		first++
	}
	if first == len(batch) {
		return
	}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	var bucket *seenBucket
	for i := first; i < len(batch); i++ {
		one := &batch[i]
		if s.shard(one.print) != shard {
			continue
		}
		if at := one.letter.TS / uint64(s.width); bucket == nil || bucket.at != at {
			bucket = shard.find(at)
		}
		if bucket != nil {
			shard.glanced += bucket.prints.glance(one.print)
		}
	}
	for i := first; i < len(batch); i++ {
		if one := &batch[i]; s.shard(one.print) == shard {
			one.verdict = s.insertInto(shard, one.print, one.letter.TS)
		}
	}
}

func (b *seenBucket) holds(f fingerprint) bool { return b != nil && b.prints.has(f) }

// find is the bucket for some time, or nil. Guarded by mu.
func (s *seenShard) find(at uint64) *seenBucket {
	for i := len(s.buckets) - 1; i >= 0; i-- {
		if s.buckets[i].at == at {
			return &s.buckets[i]
		}
	}
	return nil
}

// add makes a bucket. There are never more than the times that are taken have
// buckets: the ttl, and how far clocks may be ahead. Guarded by mu.
func (s *seenShard) add(at uint64) *seenBucket {
	fresh := seenBucket{at: at}
	if n := len(s.buckets); n > 0 {
		fresh.prints.expect(s.buckets[n-1].prints.count)
	}
	s.buckets = append(s.buckets, fresh)
	return &s.buckets[len(s.buckets)-1]
}

// expire lets the buckets go in which every letter would be refused for its age.
func (s *seenSet) expire(now time.Time) {
	clock := max(0, now.UnixMilli())
	for i := range s.shards {
		gone, horizon := s.shards[i].expire(uint64(clock), uint64(s.ttl), uint64(s.width))
		s.count.Add(-int64(gone))
		if horizon > s.forgotten.Load() {
			s.forgotten.Store(horizon) // nobody else expires anything
		}
	}
}

// full tells whether no more letters are taken.
func (s *seenSet) full() bool { return s.count.Load() >= s.most }

// elapsed tells whether letters of a time may have been forgotten.
func (s *seenSet) elapsed(clock int64) bool { return uint64(max(0, clock)) < s.forgotten.Load() }

func (s *seenShard) expire(clock, ttl, width uint64) (gone int, horizon uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.buckets[:0]
	for _, b := range s.buckets {
		end := (b.at + 1) * width
		if end+ttl > clock {
			kept = append(kept, b)
			continue
		}
		s.horizon = max(s.horizon, end)
		gone += b.prints.count
	}
	clear(s.buckets[len(kept):])
	s.buckets = kept
	return gone, s.horizon
}

// fullness is how much of the room is taken, from 0 to 1.
func (s *seenSet) fullness() float64 { return float64(s.count.Load()) / float64(s.most) }
