package gossip

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/internal/oap"
)

// maxHolders is how many peers a message remembers as its holders. With more it
// forgets the first ones, and may be announced to a peer that has it: 32 bytes
// too many, and nothing worse.
const maxHolders = 16

// inlineHolders is how many of them are stored in the message itself: the
// sender, and those of the usual fan-out. Most messages need no more.
const inlineHolders = 4

// messageOverhead is what a message costs beside its bytes.
const messageOverhead = 512

// storedMessage is a message that was accepted. All of it but the holders is
// read-only once other tasks can see it.
type storedMessage struct {
	fingerprint fingerprint   // of one that was published here: guarded by history.mu, and zero until it is needed
	publisher   *oap.PeerID   // shared with other messages of the same publisher
	buffer      *sharedBuffer // that it lies in; nil if its memory is not reused
	envelope    oap.Gossip    // the envelope in which it is relayed, the same for all peers
	class       uint64        // of its topic, in the queues of peers
	expires     int64         // the last moment at which it is valid, in ms
	historySeq  uint64        // its number in the history; zero if it is not in it
	size        int32         // of the payload of its frame

	// atomic
	holderCount atomic.Uint32
	id          atomic.Pointer[b3.Address]   // nil until it is needed
	holders     [inlineHolders]atomic.Uint64 // serials of links whose peer has it, or to which it was announced
	moreHolders atomic.Pointer[extraHolders] // the others; nil until there are any
}

type extraHolders [maxHolders - inlineHolders]atomic.Uint64

// topicSeed makes the classes of topics unpredictable, so that a publisher
// cannot choose topics that share the class of another.
var topicSeed = maphash.MakeSeed()

// initialize makes a message of an envelope that was checked, with the hops and
// fan-out with which it is relayed.
func (s *storedMessage) initialize(m *oap.GossipMessage, print fingerprint, origin *oap.PeerID, out oap.Gossip, ttl time.Duration) {
	s.fingerprint, s.publisher, s.envelope = print, origin, out
	s.class = maphash.String(topicSeed, m.Topic)
	s.size = int32(payloadSize(&out))
	s.expires = m.ExpiresAt(ttl).UnixMilli() - 1
}

// messageID returns the message's id and computes it at the first call.
// Concurrent first calls compute the same id.
func (s *storedMessage) messageID() b3.Address {
	if id := s.id.Load(); id != nil {
		return *id
	}
	id := b3.Of(s.envelope.Msg)
	s.id.Store(&id)
	return id
}

// payloadSize returns the length of the payload of a gossip message: its five
// keys, and before each value the head that CBOR gives it.
func payloadSize(g *oap.Gossip) int {
	size := 1 + len("\x63msg") + cborHeadSize(uint64(len(g.Msg))) + len(g.Msg) +
		len("\x64hops") + cborHeadSize(g.Hops) + len("\x64kind\x66gossip") + len("\x66fanout") + cborHeadSize(g.Fanout)
	if len(g.Sig) > 0 {
		size += len("\x63sig") + cborHeadSize(uint64(len(g.Sig))) + len(g.Sig)
	}
	return size
}

// cborHeadSize returns how many bytes CBOR spends on a number or a length.
func cborHeadSize(n uint64) int {
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

// cost is what a message counts in queues.
func (s *storedMessage) cost() int { return oap.HeaderSize + int(s.size) }

// fits reports whether a peer accepts frames as large as this one.
func (s *storedMessage) fits(to *link) bool { return int(s.size) <= to.maxFrame }

// memorySize is what it counts in memory.
func (s *storedMessage) memorySize() int64 {
	return int64(messageOverhead + len(s.envelope.Msg) + len(s.envelope.Sig))
}

func (s *storedMessage) expired(nowMs int64) bool { return nowMs > s.expires }

// addHolder notes that a peer has the message, or is about to get it, or that
// it was announced to it.
func (s *storedMessage) addHolder(serial uint64) {
	if !s.hasHolder(serial) {
		s.holderSlot((s.holderCount.Add(1) - 1) % maxHolders).Store(serial)
	}
}

// removeHolder undoes addHolder.
func (s *storedMessage) removeHolder(serial uint64) {
	for i := range min(s.holderCount.Load(), maxHolders) {
		s.holderSlot(i).CompareAndSwap(serial, 0)
	}
}

func (s *storedMessage) hasHolder(serial uint64) bool {
	for i := range min(s.holderCount.Load(), maxHolders) {
		if s.holderSlot(i).Load() == serial {
			return true
		}
	}
	return false
}

// holderSlot returns the slot of holder i.
func (s *storedMessage) holderSlot(i uint32) *atomic.Uint64 {
	if i < inlineHolders {
		return &s.holders[i]
	}
	if s.moreHolders.Load() == nil {
		s.moreHolders.CompareAndSwap(nil, new(extraHolders))
	}
	return &s.moreHolders.Load()[i-inlineHolders]
}
