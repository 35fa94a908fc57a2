package gossip

import (
	"sync"

	"micronode/b3"
)

// history holds the messages that were accepted last, for peers that missed
// them. The oldest make room for the newest. Each has a number, one more than
// the message before it, so that "since then" is a number, too.
//
// Messages are found by their fingerprint, which is needed when one comes again
// or is rejected by a peer. Until that happens the index is not needed, so a
// message is indexed at the next look-up, with all others that came since.
// Peers name messages by their id, and finding an id takes a hash of the
// message, so that is done when a peer names one that is not found, for all
// messages that came since the last time: once for each, however many ids peers
// make up.
type history struct {
	// set at construction
	budget        int64 // bytes
	fingerprinter *fingerprinter

	mu            sync.Mutex     //lockblock:leaf tables and a few numbers
	ring          []historyEntry // a message is at its number, modulo the length, which is a power of two
	byFingerprint historyIndex
	fingerprinted uint64 // messages before this number are in byFingerprint
	firstSeq      uint64 // the number of the oldest message
	nextSeq       uint64 // the number that the next message gets
	bytes         int64
	byID          map[b3.Address]*storedMessage
	indexed       uint64 // messages before this number are in byID
	scratch       [fingerprintSize]byte
}

// historyEntry is a message in the history, with what is needed to evict it:
// the message itself is out of the processor's caches by then. There is at most
// one for each 512 bytes of history, so the ring does not shrink.
type historyEntry struct {
	message *storedMessage
	buffer  *sharedBuffer // that the message lies in
	key     uint32        // zero before it is indexed
	size    int32
}

func newHistory(most int64, prints *fingerprinter) *history {
	return &history{budget: most, fingerprinter: prints, ring: make([]historyEntry, minTableSize), byID: map[b3.Address]*storedMessage{}, fingerprinted: 1, firstSeq: 1, nextSeq: 1, indexed: 1}
}

// add stores messages and gives them their numbers. One that is larger than the
// whole history is not stored. It returns the ids of evicted messages, as far
// as they are known.
func (h *history) add(messages []*storedMessage) (gone []b3.Address) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range messages {
		weight := m.memorySize()
		if weight > h.budget {
			if id := m.id.Load(); id != nil {
				gone = append(gone, *id)
			}
			continue
		}
		for h.bytes+weight > h.budget {
			gone = h.evictOldest(gone)
		}
		if h.nextSeq-h.firstSeq == uint64(len(h.ring)) {
			h.grow()
		}
		m.historySeq = h.nextSeq
		h.nextSeq++
		h.bytes += weight
		*h.entryAt(m.historySeq) = historyEntry{message: m, buffer: m.buffer, size: int32(weight)}
		if buffer := m.buffer; buffer != nil {
			if buffer.inHistory == 0 {
				buffer.ref()
			}
			buffer.inHistory++
		}
	}
	return gone
}

// entryAt returns the ring entry of a number. Guarded by mu.
func (h *history) entryAt(number uint64) *historyEntry { return &h.ring[number&uint64(len(h.ring)-1)] }

// grow doubles the ring. Guarded by mu.
func (h *history) grow() {
	old := h.ring
	h.ring = make([]historyEntry, 2*len(old))
	for n := h.firstSeq; n < h.nextSeq; n++ {
		*h.entryAt(n) = old[n&uint64(len(old)-1)]
	}
}

// evictOldest evicts the oldest message. Guarded by mu.
func (h *history) evictOldest(gone []b3.Address) []b3.Address {
	oldest := h.entryAt(h.firstSeq)
	h.bytes -= int64(oldest.size)
	if h.firstSeq < h.fingerprinted {
		h.byFingerprint.remove(newIndexEntry(oldest.key, h.firstSeq))
	}
	if h.firstSeq < h.indexed {
		id := oldest.message.messageID()
		delete(h.byID, id)
		gone = append(gone, id)
	}
	buffer := oldest.buffer
	*oldest = historyEntry{}
	h.firstSeq++
	if buffer != nil {
		if buffer.inHistory--; buffer.inHistory == 0 {
			buffer.unref()
		}
	}
	return gone
}

// expire evicts the oldest messages as long as they have expired. An expired
// one behind an unexpired one stays, but is not sent. Peers do
// not announce expired messages either, so their ids need not be remembered.
func (h *history) expire(nowMs int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.firstSeq < h.nextSeq && h.entryAt(h.firstSeq).message.expired(nowMs) {
		h.evictOldest(nil)
	}
}

// findByFingerprint returns the message with this fingerprint, or nil. What
// this and the methods below return is retained.
func (h *history) findByFingerprint(f fingerprint) *storedMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.findLocked(f)
	if m != nil {
		m.retain()
	}
	return m
}

// addHolderByFingerprint notes that a peer holds the message with this
// fingerprint, if it is in the history.
func (h *history) addHolderByFingerprint(f fingerprint, serial uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.findLocked(f); m != nil {
		m.addHolder(serial)
	}
}

// findAllByFingerprint returns the messages with these fingerprints that are
// still in the history.
func (h *history) findAllByFingerprint(prints []fingerprint) []*storedMessage {
	here := make([]*storedMessage, 0, len(prints))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range prints {
		if m := h.findLocked(f); m != nil {
			m.retain()
			here = append(here, m)
		}
	}
	return here
}

// findLocked finds a message. First it indexes those that came since the last
// call. Guarded by mu.
func (h *history) findLocked(f fingerprint) *storedMessage {
	for n := max(h.fingerprinted, h.firstSeq); n < h.nextSeq; n++ {
		one := h.entryAt(n)
		one.key = indexKey(h.fingerprintLocked(one.message))
		h.byFingerprint.insert(newIndexEntry(one.key, n))
	}
	h.fingerprinted = h.nextSeq
	if h.byFingerprint.count == 0 {
		return nil
	}
	key := indexKey(f)
	for i := h.byFingerprint.homeSlot(key); h.byFingerprint.slots[i] != 0; i = h.byFingerprint.nextSlot(i) {
		if entry := h.byFingerprint.slots[i]; entry.key() == key {
			if m := h.entryAt(uint64(entry.number())).message; m.fingerprint == f {
				return m
			}
		}
	}
	return nil
}

// fingerprintLocked returns the fingerprint of a message. Guarded by mu.
func (h *history) fingerprintLocked(m *storedMessage) fingerprint {
	if m.fingerprint == (fingerprint{}) {
		m.fingerprint = h.fingerprinter.of(m.envelope.Msg, &h.scratch)
	}
	return m.fingerprint
}

// fingerprintOf is fingerprintLocked for callers without the lock.
func (h *history) fingerprintOf(m *storedMessage) fingerprint {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fingerprintLocked(m)
}

// indexIDs indexes the ids of the messages that came since the last call. It
// reports whether there were any. The hashing is done without the lock.
func (h *history) indexIDs() bool {
	h.mu.Lock()
	first := h.indexed
	h.mu.Unlock()
	messages, next := h.since(first, nil)
	if len(messages) == 0 {
		return false
	}
	for _, m := range messages {
		m.messageID()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range messages {
		if m.historySeq >= h.firstSeq {
			h.byID[m.messageID()] = m
		}
	}
	h.indexed = max(h.indexed, next)
	return true
}

// findByID returns the message with an id that is indexed, or nil.
func (h *history) findByID(id b3.Address) *storedMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.byID[id]
	if m != nil {
		m.retain()
	}
	return m
}

// addHolders notes that a peer holds some messages, those of them that are in
// the history, and returns the ids of the others.
func (h *history) addHolders(ids []b3.Address, serial uint64) (others []b3.Address) {
	others = h.addHoldersIndexed(ids, serial, make([]b3.Address, 0, len(ids)))
	if len(others) > 0 && h.indexIDs() {
		others = h.addHoldersIndexed(others, serial, others[:0])
	}
	return others
}

func (h *history) addHoldersIndexed(ids []b3.Address, serial uint64, others []b3.Address) []b3.Address {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if m := h.byID[id]; m != nil {
			m.addHolder(serial)
		} else {
			others = append(others, id)
		}
	}
	return others
}

// filterHeld returns those of some ids whose messages are in the history.
func (h *history) filterHeld(ids []b3.Address) []b3.Address {
	here := h.filterIndexed(ids)
	if len(here) < len(ids) && h.indexIDs() {
		here = h.filterIndexed(ids)
	}
	return here
}

func (h *history) filterIndexed(ids []b3.Address) []b3.Address {
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

// since appends the messages from a number on, and returns the number that
// comes next.
func (h *history) since(from uint64, into []*storedMessage) ([]*storedMessage, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for n := max(from, h.firstSeq); n < h.nextSeq; n++ {
		m := h.entryAt(n).message
		m.retain()
		into = append(into, m)
	}
	return into, h.nextSeq
}

func (h *history) position() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nextSeq
}
