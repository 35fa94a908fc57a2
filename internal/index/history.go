package index

import (
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxRemembered is the capacity of each history: of targets, of providers, of
// offenders.
const maxRemembered = 4096

// halfLife is the half-life of what was observed.
const halfLife = 5 * time.Minute

// history records how long others took to answer, and how often they did. Old
// observations decay; the least recently updated entry is evicted first.
type history struct {
	mu     sync.Mutex                            //lockblock:leaf map and list operations
	recent *simplelru.LRU[string, *outcomeStats] // guarded by mu: by when they were updated
}

// outcomeStats is what is known of one key.
type outcomeStats struct {
	latency             time.Duration // of answers, smoothed
	successes, failures float64
	updatedAt           time.Time // of the last change
}

func newHistory(capacity int) *history {
	recent, _ := simplelru.NewLRU[string, *outcomeStats](capacity, nil) // fails only without any capacity
	return &history{recent: recent}
}

// observe adds one observation.
func (h *history) observe(key string, took time.Duration, good bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, known := h.recent.Get(key)
	if !known {
		p = &outcomeStats{updatedAt: now}
		h.recent.Add(key, p)
	}
	p.decay(now)
	if !good {
		p.failures++
		return
	}
	p.successes++
	if p.latency == 0 {
		p.latency = took
	} else {
		p.latency += (took - p.latency) / 4
	}
}

// get returns what is known of a key; if nothing, the zero value.
func (h *history) get(key string, now time.Time) outcomeStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.recent.Peek(key)
	if !ok {
		return outcomeStats{}
	}
	p := *known
	p.decay(now)
	return p
}

// prune removes entries that were not updated for so long that they do not
// count any more.
func (h *history) prune(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		_, oldest, ok := h.recent.GetOldest()
		if !ok || now.Sub(oldest.updatedAt) <= 12*halfLife {
			return
		}
		h.recent.RemoveOldest()
	}
}

// decay reduces the counts by the time that has passed.
func (o *outcomeStats) decay(now time.Time) {
	if passed := now.Sub(o.updatedAt); passed > 0 {
		part := math.Exp2(-float64(passed) / float64(halfLife))
		o.successes, o.failures, o.updatedAt = o.successes*part, o.failures*part, now
	}
}
