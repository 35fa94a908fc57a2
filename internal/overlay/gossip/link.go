package gossip

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/internal/oap"
)

// maxDue is how many letters a peer may have asked for and not got yet.
const maxDue = 4096

// maxMissed is how many of the letters that a peer turned away it is told of
// before the next round.
const maxMissed = 4096

// link is what the engine knows of a session.
type link struct {
	// set at construction
	peer     Peer
	id       oap.PeerID
	serial   uint64
	maxFrame int
	written  func(error) // told when a letter is written, or never will be

	// atomic
	gone      atomic.Bool
	out       atomic.Bool  // left out of the fan-out
	refusing  atomic.Int64 // since when it takes nothing, in ms; zero if it does
	fulfilled atomic.Int64 // when it last sent what it was asked for, in ms
	owing     atomic.Int64 // how many letters it has asked for
	nudged    atomic.Bool  // it is among the needy
	stuck     atomic.Bool  // it was waited for in vain, and has not written any letter since
	short     atomic.Bool  // it turned letters away, and has not written any since
	roomy     atomic.Bool  // it did, and now it has room: it is told of them soon

	mu     sync.Mutex //lockblock:leaf a few assignments, or a glance at a bounded map
	topics quota

	// guarded by mu: what it is told of
	fresh  bool          // it was told nothing yet
	cursor uint64        // letters from this number on were not announced to it
	rounds [3]uint64     // where the history was at the last rounds
	doubts uint64        // letters from this number on may have been lost on it; none if it is the highest number
	missed []fingerprint // letters that it turned away and was not told of since

	// guarded by mu: what it asked for
	due    []b3.Address
	asked  map[b3.Address]struct{} // the same, to be looked up
	giving bool                    // somebody is sending it what is due

	// guarded by mu: how it is left out
	pause   time.Duration // the last one
	until   int64         // when the pause ends, in ms
	probing bool          // it was sent one letter, to see whether it takes it
}

func newLink(e *Engine, p Peer) *link {
	l := &link{peer: p, id: p.Peer(), serial: p.Serial(), maxFrame: p.MaxFrame(), fresh: true, cursor: math.MaxUint64, doubts: math.MaxUint64}
	l.topics.most = e.topics
	l.written = func(err error) {
		if l.stuck.Load() {
			l.stuck.Store(false)
		}
		again := l.short.Load() && l.short.CompareAndSwap(true, false)
		if again {
			l.roomy.Store(true)
		}
		if again || err == nil && l.owing.Load() > 0 {
			e.nudge(l)
		}
	}
	return l
}

// miss notes which letters a peer turned away. It is told of them soon after it
// has room again, and of those that are too many for that with the next round.
// Should all that waits be written before this is noted, it has to wait for the
// next letter to be written, or for the round.
func (l *link) miss(prints []fingerprint) {
	if len(prints) == 0 {
		return
	}
	l.mu.Lock()
	l.missed = append(l.missed, prints[:min(len(prints), maxMissed-len(l.missed))]...)
	l.mu.Unlock()
	l.short.Store(true)
}

func (l *link) takeMissed() []fingerprint {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed := l.missed
	l.missed = nil
	return missed
}

// owe makes sure that a letter is announced with the next round: it could not
// be sent.
func (l *link) owe(number uint64) {
	if number == 0 {
		return // it is not kept, so nobody could ask for it
	}
	l.mu.Lock()
	l.cursor = min(l.cursor, number)
	l.mu.Unlock()
}

// doubt notes that of the letters which were sent of late some were not taken.
// Busy is told at most once a second, so they may be from before the last round.
func (l *link) doubt() {
	l.mu.Lock()
	l.doubts = min(l.doubts, max(1, l.rounds[0]))
	l.mu.Unlock()
}
