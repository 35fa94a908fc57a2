package gossip

import (
	"sync"

	"micronode/b3"
)

// pastIDs is how many ids are remembered before the older ones are forgotten.
const pastIDs = 32768

// past is the ids of letters that have left the history, the newest of them, as
// far as they were known. A peer may still announce them, and to ask for them
// would be to get what is dropped as a duplicate. That is allowed, and it is what
// happens with those that were forgotten; but after a partition, or under load,
// it would be most of what is sent.
//
// It holds fingerprints of ids, so that nobody can choose ids for its tables.
type past struct {
	prints *fingerprinter // set at construction

	mu         sync.Mutex //lockblock:leaf look-ups in two tables
	young, old table
}

// add remembers ids. When there are too many the older half is let go.
func (p *past) add(ids []b3.Address) {
	prints := p.printsOf(ids)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range prints {
		if p.young.has(f) {
			continue
		}
		if p.young.count >= pastIDs/2 {
			p.young, p.old = table{}, p.young
		}
		p.young.insert(f)
	}
}

// without takes out of some ids those that are remembered.
func (p *past) without(ids []b3.Address) []b3.Address {
	if len(ids) == 0 || p.empty() {
		return ids
	}
	prints := p.printsOf(ids)
	others := ids[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range prints {
		if !p.young.has(f) && !p.old.has(f) {
			others = append(others, ids[i])
		}
	}
	return others
}

func (p *past) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.young.count+p.old.count == 0
}

func (p *past) printsOf(ids []b3.Address) []fingerprint {
	var room [fingerprintSize]byte
	prints := make([]fingerprint, len(ids))
	for i := range ids {
		prints[i] = p.prints.of(ids[i][:], &room)
	}
	return prints
}
