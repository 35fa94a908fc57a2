package gossip

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/internal/oap"
)

// maxWanted bounds the messages that a peer has asked for and not been sent
// yet.
const maxWanted = 4096

// maxMissed bounds the messages that a peer rejected and that are announced to
// it before the next round.
const maxMissed = 4096

// link is the state of the engine for one session.
type link struct {
	// set at construction
	peer     Peer
	id       oap.PeerID
	serial   uint64
	maxFrame int
	share    *share      // usage of its peer, over this session and others
	written  func(error) // called when a message is written, or never will be

	// atomic
	closed        atomic.Bool
	pruned        atomic.Bool  // left out of the fan-out
	refusingSince atomic.Int64 // since when it rejects everything, in ms; zero if it does not
	lastFulfilled atomic.Int64 // when it last sent what it was asked for, in ms
	wantedCount   atomic.Int64 // how many messages it has asked for
	repairPending atomic.Bool  // it is in Engine.pendingRepairs
	stalled       atomic.Bool  // a wait for it failed, and it has not written any message since
	hasMissed     atomic.Bool  // it rejected messages, and has not written any since
	hasRoom       atomic.Bool  // it rejected messages, and has room again: they are announced to it soon

	sequencer sequencer // of what waits for the workers

	mu     sync.Mutex //lockblock:leaf a few assignments, or a look-up in a bounded map
	topics topicQuota

	// guarded by mu: announcements to it
	isNew       bool          // nothing was announced to it yet
	cursor      uint64        // messages from this number on were not announced to it
	roundSeqs   [3]uint64     // where the history was at the last rounds
	recheckFrom uint64        // messages from this number on may have been lost by it; none if it is the highest number
	missed      []fingerprint // messages that it rejected and that were not announced to it since

	// guarded by mu: what it asked for
	wanted        []b3.Address
	wantedSet     map[b3.Address]struct{} // the same, as a set
	sendingWanted bool                    // a task is sending it what it asked for

	// guarded by mu: pruning
	backoffs     int   // since it last passed a probe
	backoffUntil int64 // when it ends, in ms
	probing      bool  // it was sent one message as a probe
}

func newLink(e *Engine, p Peer, of *share) *link {
	l := &link{peer: p, id: p.Peer(), serial: p.Serial(), maxFrame: p.MaxFrame(), share: of, isNew: true, cursor: math.MaxUint64, recheckFrom: math.MaxUint64}
	l.topics.limit = e.topics
	l.written = func(err error) {
		if l.stalled.Load() {
			l.stalled.Store(false)
		}
		again := l.hasMissed.Load() && l.hasMissed.CompareAndSwap(true, false)
		if again {
			l.hasRoom.Store(true)
		}
		if again || err == nil && l.wantedCount.Load() > 0 {
			e.scheduleRepair(l)
		}
	}
	return l
}

// addMissed notes which messages a peer rejected. They are announced soon after
// it has room again; those above maxMissed with the next round. If everything
// queued is written before this is noted, they wait for the next message to be
// written, or for the round.
func (l *link) addMissed(prints []fingerprint) {
	if len(prints) == 0 {
		return
	}
	l.mu.Lock()
	l.missed = append(l.missed, prints[:min(len(prints), maxMissed-len(l.missed))]...)
	l.mu.Unlock()
	l.hasMissed.Store(true)
}

func (l *link) takeMissed() []fingerprint {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed := l.missed
	l.missed = nil
	return missed
}

// announceFrom makes sure that a message that could not be sent is announced
// with the next round.
func (l *link) announceFrom(number uint64) {
	if number == 0 {
		return // it is not in the history, so a request for it would fail
	}
	l.mu.Lock()
	l.cursor = min(l.cursor, number)
	l.mu.Unlock()
}

// recheckRecent notes that some of the messages sent recently were refused.
// Busy is sent at most once a second, so they may be from before the last
// round.
func (l *link) recheckRecent() {
	l.mu.Lock()
	l.recheckFrom = min(l.recheckFrom, max(1, l.roundSeqs[0]))
	l.mu.Unlock()
}

// topicQuota is the topics that a peer has used recently. It is guarded by the
// link's mutex.
type topicQuota struct {
	limit     int
	lastUsed  map[string]int64 // when each was used, in ms
	lastSweep int64
}

// touch reports whether a topic was used before, and renews it.
func (q *topicQuota) touch(topic string, nowMs int64) bool {
	at, named := q.lastUsed[topic]
	if named && at != nowMs {
		q.lastUsed[topic] = nowMs
	}
	return named
}

// admitTopic reports whether a message on a topic may come from this peer. A
// topic that was not used for a ttl makes room for another. Old topics are
// looked for once a second at most: a peer with too many must not cause a scan
// of all of them for each message.
func (l *link) admitTopic(topic string, nowMs int64, ttl time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.topics
	if q.touch(topic, nowMs) {
		return true
	}
	if full := len(q.lastUsed) >= q.limit; full && (nowMs-q.lastSweep >= time.Second.Milliseconds() || nowMs < q.lastSweep) {
		q.lastSweep = nowMs
		for old, at := range q.lastUsed {
			if nowMs-at > ttl.Milliseconds() {
				delete(q.lastUsed, old)
			}
		}
	}
	if len(q.lastUsed) >= q.limit {
		return false
	}
	if q.lastUsed == nil {
		q.lastUsed = map[string]int64{}
	}
	q.lastUsed[topic] = nowMs
	return true
}
