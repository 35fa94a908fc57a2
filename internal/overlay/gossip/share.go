package gossip

import (
	"sync/atomic"

	"micronode/internal/oap"
)

// shareOfFree is how many times as many entries in the seen-set one peer may
// hold as are free. So a single peer gets four fifths, two get four ninths
// each, and there is always an entry for the next one.
const shareOfFree = 4

// The share of one peer in what waits for the workers, or was checked by them
// and waits for a message before it: four fifths of the queue. The queue is
// fair when it is full; this keeps a single peer from filling it, or the room
// behind it, and one peer from making the node unready.
const shareItems = ingressItems * 4 / 5

func (e *Engine) shareBytes() int64 { return int64(e.config.IngressBytes) * 4 / 5 }

// share is what the messages of one peer hold, over all of its sessions. It
// outlives them, so that a peer that reconnects has no second one.
type share struct {
	seenEntries atomic.Int64 // in the seen-set
	queued      queueUsage   // in the queue to the workers, and behind it
}

// queueUsage is what waits for workers.
type queueUsage struct{ items, bytes atomic.Int64 }

func (q *queueUsage) add(items, bytes int) (nowItems, nowBytes int64) {
	return q.items.Add(int64(items)), q.bytes.Add(int64(bytes))
}

func (s *share) empty() bool { return s.seenEntries.Load() == 0 && s.queued.items.Load() == 0 }

// shareOf returns the share of a peer.
func (e *Engine) shareOf(id oap.PeerID) *share {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.shares[id]
	if of == nil {
		of = &share{}
		e.shares[id] = of
	}
	return of
}

// pruneShares removes the shares of peers that are disconnected and hold
// nothing. There are never more shares than sessions and seen-set entries.
func (e *Engine) pruneShares() {
	e.mu.Lock()
	defer e.mu.Unlock()
	here := make(map[*share]bool, len(e.links))
	for _, l := range e.links {
		here[l.share] = true
	}
	for id, of := range e.shares {
		if !here[of] && of.empty() {
			delete(e.shares, id)
		}
	}
}

// releaseShare counts a message out of the share of its peer, when it is
// accepted or rejected.
func (q *queued) releaseShare() {
	if q.counted {
		q.link.share.queued.add(-1, -q.size)
	}
}
