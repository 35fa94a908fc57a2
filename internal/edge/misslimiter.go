package edge

import (
	"sync"
	"time"
)

// missLimiter limits how many misses clients may cause in a second: a token
// bucket that is shared by origins. An origin may take as many tokens as are
// left. So an origin that is requested without end takes half of the bucket
// and, as long as it is alone, the whole refill; an origin that is requested
// now and then finds tokens.
//
// The refill repays what was taken, in equal parts for all origins. An origin
// that owes nothing is removed: there are never more of them than tokens were
// taken in twice the time that it takes to fill the bucket.
type missLimiter struct {
	// set at construction
	rate float64 // tokens a second
	size float64 // of the bucket

	mu        sync.Mutex         //lockblock:leaf arithmetic
	updated   time.Time          // time of the last refill
	owed      map[string]float64 // tokens that each origin has taken and not repaid; never zero
	totalOwed float64            // sum of owed
}

func newMissLimiter(rate, size float64) *missLimiter {
	return &missLimiter{rate: rate, size: size, updated: time.Now(), owed: map[string]float64{}}
}

// allow takes a token for an origin, if one is left for it.
func (m *missLimiter) allow(origin string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refill(now)
	left := m.size - m.totalOwed
	if left < 1 || m.owed[origin] > 0 && m.owed[origin]+1 > left {
		return false
	}
	m.owed[origin]++
	m.totalOwed++
	return true
}

// refill repays what was taken: each origin gets the same, until it owes
// nothing. Guarded by mu.
func (m *missLimiter) refill(now time.Time) {
	tokens := now.Sub(m.updated).Seconds() * m.rate
	if tokens <= 0 {
		return
	}
	m.updated = now
	for tokens > 0 && len(m.owed) > 0 {
		each, rest := tokens/float64(len(m.owed)), 0.0
		for origin, owes := range m.owed {
			if owes <= each {
				rest += each - owes
				delete(m.owed, origin)
			} else {
				m.owed[origin] = owes - each
			}
		}
		tokens = rest
	}
	m.totalOwed = 0
	for _, owes := range m.owed {
		m.totalOwed += owes
	}
}
