package index

import (
	"container/list"
	"math"
	"sync"
	"time"
)

// mostRemembered is of how many targets, and of how many providers, is
// remembered how they did.
const mostRemembered = 4096

// fading is the time in which what was seen comes to count half.
const fading = 5 * time.Minute

// history remembers how others did: how long they took, and how often they
// answered. What is old fades; who was not heard of for longest is
// forgotten first.
type history struct {
	most int // set at construction

	mu     sync.Mutex               //lockblock:leaf map and list operations
	byKey  map[string]*list.Element // guarded by mu
	recent *list.List               // guarded by mu: of *past, the last heard of first
}

// past is what is known of one.
type past struct {
	key                 string
	latency             time.Duration // of answers, smoothed
	successes, failures float64
	at                  time.Time // of the last change
}

func newHistory(most int) *history {
	return &history{most: most, byKey: map[string]*list.Element{}, recent: list.New()}
}

// note adds one experience.
func (h *history) note(key string, took time.Duration, good bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, known := h.byKey[key]
	if known {
		h.recent.MoveToFront(at)
	} else {
		h.makeRoom()
		at = h.recent.PushFront(&past{key: key, at: now})
		h.byKey[key] = at
	}
	p := at.Value.(*past)
	p.fade(now)
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

// makeRoom forgets the one who was not heard of for longest. Guarded by mu.
func (h *history) makeRoom() {
	for h.recent.Len() >= h.most {
		last := h.recent.Back()
		delete(h.byKey, last.Value.(*past).key)
		h.recent.Remove(last)
	}
}

// of tells what is known of one; of nobody, nothing.
func (h *history) of(key string, now time.Time) past {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, known := h.byKey[key]
	if !known {
		return past{}
	}
	p := *at.Value.(*past)
	p.fade(now)
	return p
}

// forget drops those of whom nothing was heard for so long that it does not
// count any more.
func (h *history) forget(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at := h.recent.Back(); at != nil && now.Sub(at.Value.(*past).at) > 12*fading; at = h.recent.Back() {
		delete(h.byKey, at.Value.(*past).key)
		h.recent.Remove(at)
	}
}

// len is how many are remembered.
func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.recent.Len()
}

// fade lets what was seen count less by the time that has passed.
func (p *past) fade(now time.Time) {
	if passed := now.Sub(p.at); passed > 0 {
		part := math.Exp2(-float64(passed) / float64(fading))
		p.successes, p.failures, p.at = p.successes*part, p.failures*part, now
	}
}
