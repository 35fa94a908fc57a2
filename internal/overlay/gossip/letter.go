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

// nearHolders is how many of them have their place in the letter itself: the
// sender, and those of the usual fan-out. Most letters need no more.
const nearHolders = 4

// letterOverhead is what a letter costs us beside its bytes.
const letterOverhead = 512

// letter is a letter that was taken. All of it but the holders is read-only
// once other tasks can see it.
type letter struct {
	print   fingerprint // of one that was written here: guarded by history.mu, and zero until somebody needs it
	origin  *oap.PeerID // shared with other letters of the same origin
	piece   *piece      // that it lies in; nil if its memory is not used again
	out     oap.Gossip  // the envelope in which it is passed on, to whomever
	class   uint64      // of its topic, in the queues of peers
	expires int64       // the last moment at which it is good, in ms
	number  uint64      // its place in the history; zero if it is not kept
	size    int32       // of the payload of its frame

	// atomic
	told atomic.Uint32
	id   atomic.Pointer[b3.Address] // nil until somebody needs it
	near [nearHolders]atomic.Uint64 // serials of those who have it, or were told of it
	far  atomic.Pointer[farHolders] // the others; nil until there are any
}

type farHolders [maxHolders - nearHolders]atomic.Uint64

// topicSeed makes the classes of topics unforeseeable: nobody can choose topics
// that share the turn of another.
var topicSeed = maphash.MakeSeed()

// newLetter makes a letter of an envelope that was checked, with hops and
// fan-out as they are to be passed on.
func newLetter(l *oap.Letter, print fingerprint, origin *oap.PeerID, out oap.Gossip, ttl time.Duration) *letter {
	one := new(letter)
	one.write(l, print, origin, out, ttl)
	return one
}

// write is newLetter where the letter has its place already.
func (one *letter) write(l *oap.Letter, print fingerprint, origin *oap.PeerID, out oap.Gossip, ttl time.Duration) {
	one.print, one.origin, one.out = print, origin, out
	one.class = maphash.String(topicSeed, l.Topic)
	one.size = int32(payloadSize(&out))
	one.expires = l.Forget(ttl).UnixMilli() - 1
}

// address is the letter's id. The first one who needs it computes it; if that
// are two at once they find the same.
func (l *letter) address() b3.Address {
	if id := l.id.Load(); id != nil {
		return *id
	}
	id := b3.Of(l.out.Msg)
	l.id.Store(&id)
	return id
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
func (l *letter) cost() int { return oap.HeaderSize + int(l.size) }

// fits tells whether a peer takes frames as large as this one.
func (l *letter) fits(to *link) bool { return int(l.size) <= to.maxFrame }

// weight is what it weighs in memory.
func (l *letter) weight() int64 { return int64(letterOverhead + len(l.out.Msg) + len(l.out.Sig)) }

func (l *letter) expired(clock int64) bool { return clock > l.expires }

// mark notes that a peer has the letter, or is about to get it, or was told of
// it.
func (l *letter) mark(serial uint64) {
	if !l.marked(serial) {
		l.holder((l.told.Add(1) - 1) % maxHolders).Store(serial)
	}
}

// unmark takes that back.
func (l *letter) unmark(serial uint64) {
	for i := range min(l.told.Load(), maxHolders) {
		l.holder(i).CompareAndSwap(serial, 0)
	}
}

func (l *letter) marked(serial uint64) bool {
	for i := range min(l.told.Load(), maxHolders) {
		if l.holder(i).Load() == serial {
			return true
		}
	}
	return false
}

// holder is the place of one of the holders.
func (l *letter) holder(i uint32) *atomic.Uint64 {
	if i < nearHolders {
		return &l.near[i]
	}
	if l.far.Load() == nil {
		l.far.CompareAndSwap(nil, new(farHolders))
	}
	return &l.far.Load()[i-nearHolders]
}
