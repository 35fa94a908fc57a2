package edge

import (
	"sync"
	"time"
)

// missLimiter limits how many misses clients may cause in a second: a token
// bucket that is shared by origins, and what an origin has by its clients. An
// origin may take as many tokens as are left, and a client as many as are left
// of what its origin may have. So an origin that is requested without end takes
// half of the bucket and, as long as it is alone, the whole refill; who is
// requested, or requests, now and then finds tokens.
//
// The refill repays what was taken, in equal parts for all origins, and for each
// origin in equal parts for its clients. Who owes nothing is removed: there are
// never more of them than tokens were taken in twice the time that it takes to
// fill the bucket.
type missLimiter struct {
	// set at construction
	rate float64 // tokens a second
	size float64 // of the bucket

	mu        sync.Mutex            //lockblock:leaf arithmetic
	updated   time.Time             // time of the last refill
	owed      map[string]originDebt // what each origin has taken and not repaid
	totalOwed float64               // sum of owed
}

// originDebt is what the clients of one origin have taken and not repaid; none
// of it is zero.
type originDebt map[uint64]float64

func (d originDebt) sum() (all float64) {
	for _, owes := range d {
		all += owes
	}
	return all
}

func newMissLimiter(rate, size float64) *missLimiter {
	return &missLimiter{rate: rate, size: size, updated: time.Now(), owed: map[string]originDebt{}}
}

// allow takes a token for a client of an origin, if one is left for it.
func (m *missLimiter) allow(origin string, client uint64, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refill(now)
	left, debt := m.size-m.totalOwed, m.owed[origin]
	all, mine := debt.sum(), debt[client]
	switch may := (left + all) / 2; { // of this origin, as long as the others take nothing
	case left < 1, all > 0 && all+1 > left, mine > 0 && mine+1 > may-all:
		return false
	}
	if debt == nil {
		debt = originDebt{}
		m.owed[origin] = debt
	}
	debt[client]++
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
		for origin, debt := range m.owed {
			rest += debt.repay(each)
			if len(debt) == 0 {
				delete(m.owed, origin)
			}
		}
		tokens = rest
	}
	m.totalOwed = 0
	for _, debt := range m.owed {
		m.totalOwed += debt.sum()
	}
}

// repay repays the same to each client, until it owes nothing, and returns what
// is left.
func (d originDebt) repay(tokens float64) float64 {
	for tokens > 0 && len(d) > 0 {
		each, rest := tokens/float64(len(d)), 0.0
		for client, owes := range d {
			if owes <= each {
				rest += each - owes
				delete(d, client)
			} else {
				d[client] = owes - each
			}
		}
		tokens = rest
	}
	return tokens
}
