package gossip

import (
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
)

// seenShards is a power of two, so that the first byte of an id picks one.
const seenShards = 16

// seenBuckets is how many buckets the ttl is cut into. With more of them a
// letter is forgotten closer to its time; with fewer, an id whose time is not
// known is found sooner.
const seenBuckets = 16

// seenSet remembers the ids of letters for as long as one could come again. It
// is exact: a letter that was taken is known, and one that was not is not.
//
// A letter's time is part of it, so the same id always has the same time, and
// belongs in the same bucket. A look-up touches one bucket, and a bucket whose
// youngest letter has expired is let go as a whole.
type seenSet struct {
	// set at construction
	ttl   int64 // milliseconds, like all times here
	width int64 // of a bucket
	most  int64

	count  atomic.Int64
	shards [seenShards]seenShard
}

type seenShard struct {
	mu      sync.Mutex //lockblock:leaf look-ups in a few maps
	buckets []seenBucket
	horizon uint64 // letters from before it may have been forgotten
}

type seenBucket struct {
	at  uint64 // the times that it is for, divided by the width
	ids map[b3.Address]struct{}
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

func (s *seenSet) shard(id b3.Address) *seenShard { return &s.shards[id[0]%seenShards] }

// has tells whether a letter was taken. A letter from before the horizon counts
// as known: it may have been.
func (s *seenSet) has(id b3.Address, ts uint64) bool {
	shard := s.shard(id)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return ts < shard.horizon || shard.holds(id, ts/uint64(s.width))
}

// hasAny tells whether a letter was taken of which only the id is known.
func (s *seenSet) hasAny(id b3.Address) bool {
	shard := s.shard(id)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	for i := len(shard.buckets) - 1; i >= 0; i-- {
		if _, here := shard.buckets[i].ids[id]; here {
			return true
		}
	}
	return false
}

// insert remembers a letter, once. Of many who insert the same one, exactly one
// is told that it is fresh.
//
// What lies before the horizon is refused. Its time was good when the caller
// looked, but since then its bucket has gone, or the clock was set back; to take
// it could be to take it for the second time.
func (s *seenSet) insert(id b3.Address, ts uint64) verdict {
	shard := s.shard(id)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	at := ts / uint64(s.width)
	switch {
	case ts < shard.horizon:
		return elapsed
	case shard.holds(id, at):
		return known
	case s.count.Add(1) > s.most:
		s.count.Add(-1)
		return full
	}
	shard.bucket(at).ids[id] = struct{}{}
	return fresh
}

// holds looks into one bucket. Guarded by mu.
func (s *seenShard) holds(id b3.Address, at uint64) bool {
	for i := len(s.buckets) - 1; i >= 0; i-- {
		if s.buckets[i].at == at {
			_, here := s.buckets[i].ids[id]
			return here
		}
	}
	return false
}

// bucket finds or makes a bucket. There are never more than the times that are
// taken have buckets: the ttl, and how far clocks may be ahead. Guarded by mu.
func (s *seenShard) bucket(at uint64) *seenBucket {
	for i := len(s.buckets) - 1; i >= 0; i-- {
		if s.buckets[i].at == at {
			return &s.buckets[i]
		}
	}
	s.buckets = append(s.buckets, seenBucket{at: at, ids: map[b3.Address]struct{}{}})
	return &s.buckets[len(s.buckets)-1]
}

// expire lets the buckets go in which every letter would be refused for its age.
func (s *seenSet) expire(now time.Time) {
	clock := max(0, now.UnixMilli())
	for i := range s.shards {
		s.count.Add(-int64(s.shards[i].expire(uint64(clock), uint64(s.ttl), uint64(s.width))))
	}
}

func (s *seenShard) expire(clock, ttl, width uint64) (gone int) {
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
		gone += len(b.ids)
	}
	clear(s.buckets[len(kept):])
	s.buckets = kept
	return gone
}

// fullness is how much of the room is taken, from 0 to 1.
func (s *seenSet) fullness() float64 { return float64(s.count.Load()) / float64(s.most) }
