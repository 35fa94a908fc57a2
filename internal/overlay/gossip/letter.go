package gossip

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/internal/oap"
)

// maxHolders is how many peers a letter remembers as its holders. With more of
// them it forgets the first ones, and then somebody is told of a letter that it
// has: 32 bytes too many, and nothing worse.
const maxHolders = 16

// letterOverhead is what a letter costs us beside its bytes.
const letterOverhead = 512

// letter is a letter that was taken. All of it but the holders is read-only
// once other tasks can see it.
type letter struct {
	id      b3.Address
	origin  oap.PeerID
	out     oap.Gossip // the envelope in which it is passed on, to whomever
	class   uint64     // of its topic, in the queues of peers
	size    int        // of the payload of its frame
	expires int64      // the last moment at which it is good, in ms
	number  uint64     // its place in the history; zero if it is not kept

	// atomic
	told    atomic.Uint32
	holders [maxHolders]atomic.Uint64 // serials of those who have it, or were told of it
}

// topicSeed makes the classes of topics unforeseeable: nobody can choose topics
// that share the turn of another.
var topicSeed = maphash.MakeSeed()

// newLetter makes a letter of an envelope that was checked, with hops and
// fan-out as they are to be passed on.
func newLetter(l *oap.Letter, id b3.Address, origin oap.PeerID, out oap.Gossip, ttl time.Duration) *letter {
	return &letter{
		id: id, origin: origin, out: out, class: maphash.String(topicSeed, l.Topic),
		size: payloadSize(&out), expires: l.Forget(ttl).UnixMilli() - 1,
	}
}

// payloadSize is how long the payload of a gossip message is: its five keys,
// and before each value the head that CBOR gives it.
func payloadSize(g *oap.Gossip) int {
	size := 1 + len("\x63msg") + headSize(uint64(len(g.Msg))) + len(g.Msg) +
		len("\x64hops") + headSize(g.Hops) + len("\x64kind\x66gossip") + len("\x66fanout") + headSize(g.Fanout)
	if len(g.Sig) > 0 {
		size += len("\x63sig") + headSize(uint64(len(g.Sig))) + len(g.Sig)
	}
	return size
}

// headSize is how many bytes CBOR spends on a number or a length.
func headSize(n uint64) int {
	switch {
	case n < 24:
		return 1
	case n < 1<<8:
		return 2
	case n < 1<<16:
		return 3
	case n < 1<<32:
		return 5
	}
	return 9
}

// cost is what a letter weighs in queues.
func (l *letter) cost() int { return oap.HeaderSize + l.size }

// weight is what it weighs in memory.
func (l *letter) weight() int64 { return int64(letterOverhead + len(l.out.Msg) + len(l.out.Sig)) }

func (l *letter) expired(clock int64) bool { return clock > l.expires }

// mark notes that a peer has the letter, or is about to get it, or was told of
// it.
func (l *letter) mark(serial uint64) {
	if !l.marked(serial) {
		l.holders[(l.told.Add(1)-1)%maxHolders].Store(serial)
	}
}

// unmark takes that back.
func (l *letter) unmark(serial uint64) {
	for i := range l.holders {
		l.holders[i].CompareAndSwap(serial, 0)
	}
}

func (l *letter) marked(serial uint64) bool {
	for i := range min(l.told.Load(), maxHolders) {
		if l.holders[i].Load() == serial {
			return true
		}
	}
	return false
}
