package gossip

import (
	"sync"

	"micronode/b3"
)

// history holds the letters that were taken last, for peers that missed them.
// The oldest make room for the newest. Each has a number, one more than the
// letter before it, so that "since then" is a number, too.
//
// Letters are found by their fingerprint, which is needed when one comes again or
// is turned away. On a path where neither happens nobody looks, so a letter gets
// its place in the table when somebody does, with all others that came since.
// Peers name letters by their id, and to find an id means to hash the letter, so
// that is done when a peer names one that is not found, for all letters that came
// since the last time: once for each, however many ids peers make up.
type history struct {
	// set at construction
	most   int64 // bytes
	prints *fingerprinter

	mu      sync.Mutex //lockblock:leaf tables and a few numbers
	ring    []held     // a letter is at its number, modulo the length, which is a power of two
	places  places
	placed  uint64 // letters before this number are in places
	first   uint64 // the number of the oldest letter
	next    uint64 // the number that the next letter gets
	bytes   int64
	byID    map[b3.Address]*letter
	indexed uint64 // letters before this number are in byID
	room    [fingerprintSize]byte
}

// held is a letter in the history, with what must be known to let it go: the
// letter itself is out of the processor's caches by then. There are at most
// one for each 512 bytes of history, so the ring does not shrink.
type held struct {
	letter *letter
	piece  *piece // that the letter lies in
	key    uint32 // zero before it has its place
	weight int32
}

func newHistory(most int64, prints *fingerprinter) *history {
	return &history{most: most, prints: prints, ring: make([]held, smallestTable), byID: map[b3.Address]*letter{}, placed: 1, first: 1, next: 1, indexed: 1}
}

// add keeps letters and gives them their numbers. One that is larger than the
// whole history is not kept. It returns the ids of those that are here no more,
// as far as they are known.
func (h *history) add(letters []*letter) (gone []b3.Address) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range letters {
		weight := l.weight()
		if weight > h.most {
			if id := l.id.Load(); id != nil {
				gone = append(gone, *id)
			}
			continue
		}
		for h.bytes+weight > h.most {
			gone = h.drop(gone)
		}
		h.append(l, weight)
	}
	return gone
}

// append puts a letter behind the others. Guarded by mu.
func (h *history) append(l *letter, weight int64) {
	if h.next-h.first == uint64(len(h.ring)) {
		h.grow()
	}
	l.number = h.next
	h.next++
	h.bytes += weight
	*h.at(l.number) = held{letter: l, piece: l.piece, weight: int32(weight)}
	if p := l.piece; p != nil {
		if p.kept == 0 {
			p.hold()
		}
		p.kept++
	}
}

// at is the place of a number in the ring. Guarded by mu.
func (h *history) at(number uint64) *held { return &h.ring[number&uint64(len(h.ring)-1)] }

// grow doubles the ring. Guarded by mu.
func (h *history) grow() {
	old := h.ring
	h.ring = make([]held, 2*len(old))
	for n := h.first; n < h.next; n++ {
		*h.at(n) = old[n&uint64(len(old)-1)]
	}
}

// drop lets the oldest go. Guarded by mu.
func (h *history) drop(gone []b3.Address) []b3.Address {
	oldest := h.at(h.first)
	h.bytes -= int64(oldest.weight)
	if h.first < h.placed {
		h.places.remove(newPlace(oldest.key, h.first))
	}
	if h.first < h.indexed {
		id := oldest.letter.address()
		delete(h.byID, id)
		gone = append(gone, id)
	}
	piece := oldest.piece
	*oldest = held{}
	h.first++
	if piece != nil {
		if piece.kept--; piece.kept == 0 {
			piece.letGo()
		}
	}
	return gone
}

// expire lets the oldest go as long as their time is over. One behind them may
// have to wait for its turn; it is not given out any more. Nobody announces
// them either, so their ids need not be remembered.
func (h *history) expire(clock int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.first < h.next && h.at(h.first).letter.expired(clock) {
		h.drop(nil)
	}
}

// like is the letter with this fingerprint, or nil. What is given out here and
// below is pinned.
func (h *history) like(f fingerprint) *letter {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lookUp(f)
	if l != nil {
		l.pin()
	}
	return l
}

// markLike notes that a peer holds the letter with this fingerprint, if it is
// here.
func (h *history) markLike(f fingerprint, serial uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lookUp(f); l != nil {
		l.mark(serial)
	}
}

// those is the letters with these fingerprints that are still here.
func (h *history) those(prints []fingerprint) []*letter {
	here := make([]*letter, 0, len(prints))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range prints {
		if l := h.lookUp(f); l != nil {
			l.pin()
			here = append(here, l)
		}
	}
	return here
}

// lookUp finds a letter. Guarded by mu.
func (h *history) lookUp(f fingerprint) *letter {
	h.catchUp()
	if h.places.count == 0 {
		return nil
	}
	key := placeKey(f)
	for i := h.places.home(key); h.places.slots[i] != 0; i = h.places.after(i) {
		if p := h.places.slots[i]; p.key() == key {
			if l := h.at(uint64(p.number())).letter; l.print == f {
				return l
			}
		}
	}
	return nil
}

// catchUp gives the letters that came since it was last done their places.
// Guarded by mu.
func (h *history) catchUp() {
	for n := max(h.placed, h.first); n < h.next; n++ {
		one := h.at(n)
		one.key = placeKey(h.print(one.letter))
		h.places.insert(newPlace(one.key, n))
	}
	h.placed = h.next
}

// print is the fingerprint of a letter. Guarded by mu.
func (h *history) print(l *letter) fingerprint {
	if l.print == (fingerprint{}) {
		l.print = h.prints.of(l.out.Msg, &h.room)
	}
	return l.print
}

// printOf is print for who does not hold the lock.
func (h *history) printOf(l *letter) fingerprint {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.print(l)
}

// index finds the ids of the letters that came since it was last done. It
// reports whether there were any. The hashing is done without the lock.
func (h *history) index() bool {
	letters, next := h.since(h.unindexed(), nil)
	if len(letters) == 0 {
		return false
	}
	for _, l := range letters {
		l.address()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range letters {
		if l.number >= h.first {
			h.byID[l.address()] = l
		}
	}
	h.indexed = max(h.indexed, next)
	return true
}

func (h *history) unindexed() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.indexed
}

// find is the letter with an id that was found to be here before, or nil.
func (h *history) find(id b3.Address) *letter {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.byID[id]
	if l != nil {
		l.pin()
	}
	return l
}

// mark notes that a peer holds some letters, those of them that are here, and
// returns the ids of the others.
func (h *history) mark(ids []b3.Address, serial uint64) (others []b3.Address) {
	others = h.markKnown(ids, serial, make([]b3.Address, 0, len(ids)))
	if len(others) > 0 && h.index() {
		others = h.markKnown(others, serial, others[:0])
	}
	return others
}

func (h *history) markKnown(ids []b3.Address, serial uint64, others []b3.Address) []b3.Address {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if l := h.byID[id]; l != nil {
			l.mark(serial)
		} else {
			others = append(others, id)
		}
	}
	return others
}

// holding is those of some ids whose letters are here.
func (h *history) holding(ids []b3.Address) []b3.Address {
	here := h.known(ids)
	if len(here) < len(ids) && h.index() {
		here = h.known(ids)
	}
	return here
}

func (h *history) known(ids []b3.Address) []b3.Address {
	here := make([]b3.Address, 0, len(ids))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if h.byID[id] != nil {
			here = append(here, id)
		}
	}
	return here
}

// since appends the letters from a number on, and says which number comes next.
func (h *history) since(from uint64, into []*letter) ([]*letter, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n := max(from, h.first); n < h.next; n++ {
		l := h.at(n).letter
		l.pin()
		into = append(into, l)
	}
	return into, h.next
}

func (h *history) position() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next
}
