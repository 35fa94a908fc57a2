package gossip

import (
	"sync"

	"micronode/b3"
)

// maxEvictedIDs is how many ids are remembered before the older ones are forgotten.
const maxEvictedIDs = 32768

// evictedIDs is the ids of messages that have left the history, the newest of
// them, as far as they were known. A peer may still announce them, and a
// request would only bring duplicates, which are dropped. That is allowed, and
// it happens with ids that were forgotten; but after a partition, or under
// load, it would be most of the traffic.
//
// It holds fingerprints of ids, so that peers cannot choose ids that collide in
// its tables.
type evictedIDs struct {
	fingerprinter *fingerprinter // set at construction

	mu                sync.Mutex //lockblock:leaf look-ups in two tables
	current, previous fingerprintSet
}

// add remembers ids. When there are too many the older half is forgotten.
func (e *evictedIDs) add(ids []b3.Address) {
	prints := e.fingerprintsOf(ids)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range prints {
		if e.current.has(f) {
			continue
		}
		if e.current.count >= maxEvictedIDs/2 {
			e.current, e.previous = fingerprintSet{}, e.current
		}
		e.current.insert(f)
	}
}

// exclude removes from some ids those that are remembered.
func (e *evictedIDs) exclude(ids []b3.Address) []b3.Address {
	if len(ids) == 0 || e.empty() {
		return ids
	}
	prints := e.fingerprintsOf(ids)
	others := ids[:0]
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, f := range prints {
		if !e.current.has(f) && !e.previous.has(f) {
			others = append(others, ids[i])
		}
	}
	return others
}

func (e *evictedIDs) empty() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current.count+e.previous.count == 0
}

func (e *evictedIDs) fingerprintsOf(ids []b3.Address) []fingerprint {
	var room [fingerprintSize]byte
	prints := make([]fingerprint, len(ids))
	for i := range ids {
		prints[i] = e.fingerprinter.of(ids[i][:], &room)
	}
	return prints
}
