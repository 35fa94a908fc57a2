package gossip

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
)

// fingerprint tells messages apart, within this node only. It is never zero.
//
// The id of a message is public: every node can compute it, and finding two
// messages that share one is infeasible. To know whether a message came before,
// a node needs less. A keyed universal hash does it in a fraction of the time,
// as long as its key and its values are secret. Both are: the key is drawn at
// random for each engine, and no fingerprint leaves it.
//
// The hash is that of GCM, with the message as additional data and nothing to
// encrypt. For any two different messages of n blocks of 16 bytes the chance to
// collide is at most (n+2)/2^128, over the choice of the key. A message has
// 65,536 blocks at most, so that is less than 2^-110, even for chosen messages;
// with a million of them remembered, a new one is mistaken for an old one with
// a chance below 2^-90. That is exact for all purposes. A constant nonce is
// harmless here: it only adds the same secret number to every hash.
type fingerprint struct{ a, b uint64 }

const fingerprintSize = 16

// fingerprinter takes fingerprints. It is safe for concurrent use.
type fingerprinter struct {
	mac cipher.AEAD
}

var noNonce [12]byte

func newFingerprinter() *fingerprinter {
	var key [16]byte
	_, _ = rand.Read(key[:]) // it never fails; the program ends if there is no randomness
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic("gossip: " + err.Error())
	}
	mac, err := cipher.NewGCM(block)
	if err != nil {
		panic("gossip: " + err.Error())
	}
	return &fingerprinter{mac}
}

// of returns the fingerprint of some bytes. The scratch buffer saves an
// allocation for each message.
func (p *fingerprinter) of(msg []byte, scratch *[fingerprintSize]byte) fingerprint {
	p.mac.Seal(scratch[:0], noNonce[:], nil, msg)
	f := fingerprint{binary.LittleEndian.Uint64(scratch[:8]), binary.LittleEndian.Uint64(scratch[8:])}
	if f == (fingerprint{}) {
		f.a = 1 // zero marks an empty slot in tables; this costs a chance in 2^128
	}
	return f
}

// The tables here use open addressing: a flat array, a power of two long, in
// which an entry is in the slot that its fingerprint names or in the next free
// one behind it. They need no hash of their own, because a fingerprint is one,
// under a secret key: no choice of messages makes them cluster.

const minTableSize = 16

// fingerprintSet is a set of fingerprints. Its zero value is empty.
type fingerprintSet struct {
	slots []fingerprint // zero where a slot is empty
	count int
}

func (s *fingerprintSet) has(f fingerprint) bool {
	return s.count > 0 && s.slots[s.indexOf(f)] == f
}

// indexOf returns where a fingerprint is, or where it would go.
func (s *fingerprintSet) indexOf(f fingerprint) uint64 {
	mask := uint64(len(s.slots) - 1)
	i := f.a & mask
	for s.slots[i] != f && s.slots[i] != (fingerprint{}) {
		i = (i + 1) & mask
	}
	return i
}

// prefetch loads the home slot of a fingerprint.
func (s *fingerprintSet) prefetch(f fingerprint) uint64 {
	if len(s.slots) == 0 {
		return 0
	}
	return s.slots[f.a&uint64(len(s.slots)-1)].a
}

// insert adds a fingerprint that is not in the set.
func (s *fingerprintSet) insert(f fingerprint) {
	if 4*(s.count+1) > 3*len(s.slots) {
		s.grow()
	}
	s.slots[s.indexOf(f)] = f
	s.count++
}

// reserve makes room for so many in an empty set.
func (s *fingerprintSet) reserve(n int) {
	size := minTableSize
	for 3*size < 4*n {
		size *= 2
	}
	s.slots = make([]fingerprint, size)
}

func (s *fingerprintSet) grow() {
	old := s.slots
	s.slots = make([]fingerprint, max(minTableSize, 2*len(old)))
	for _, f := range old {
		if f != (fingerprint{}) {
			s.slots[s.indexOf(f)] = f
		}
	}
}

// historyIndex finds the number of a message by its fingerprint. An entry is
// half of the fingerprint's second half and the lower half of the number; the
// message itself shows whether it is the right one. So an entry is eight bytes,
// and adding or removing one touches no message.
type historyIndex struct {
	slots []indexEntry // zero where a slot is empty
	count int
}

type indexEntry uint64

// indexKey is the part of a fingerprint that is in an entry. Its lowest bit is
// set, so that no entry is zero.
func indexKey(f fingerprint) uint32 { return uint32(f.b) | 1 }

func newIndexEntry(key uint32, number uint64) indexEntry {
	return indexEntry(uint64(key)<<32 | uint64(uint32(number)))
}

func (i indexEntry) key() uint32    { return uint32(i >> 32) }
func (i indexEntry) number() uint32 { return uint32(i) }

// homeSlot is where an entry with this key is if that slot is free.
func (h *historyIndex) homeSlot(key uint32) int { return int(key>>1) & (len(h.slots) - 1) }

func (h *historyIndex) nextSlot(i int) int { return (i + 1) & (len(h.slots) - 1) }

func (h *historyIndex) insert(entry indexEntry) {
	if 2*(h.count+1) > len(h.slots) {
		h.grow()
	}
	h.put(entry)
	h.count++
}

func (h *historyIndex) put(entry indexEntry) {
	i := h.homeSlot(entry.key())
	for h.slots[i] != 0 {
		i = h.nextSlot(i)
	}
	h.slots[i] = entry
}

func (h *historyIndex) grow() {
	old := h.slots
	h.slots = make([]indexEntry, max(minTableSize, 2*len(old)))
	for _, entry := range old {
		if entry != 0 {
			h.put(entry)
		}
	}
}

// remove removes an entry that is in the table. Entries behind it that could be
// in the gap move up, so that look-ups of them do not stop at it.
func (h *historyIndex) remove(entry indexEntry) {
	gap := h.homeSlot(entry.key())
	for h.slots[gap] != entry {
		gap = h.nextSlot(gap)
	}
	mask := len(h.slots) - 1
	for i := h.nextSlot(gap); h.slots[i] != 0; i = h.nextSlot(i) {
		if fromHome := (i - h.homeSlot(h.slots[i].key())) & mask; fromHome >= (i-gap)&mask {
			h.slots[gap], gap = h.slots[i], i
		}
	}
	h.slots[gap] = 0
	h.count--
}
