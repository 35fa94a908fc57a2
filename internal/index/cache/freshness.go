package cache

import "time"

// freshness is the state of an entry at some moment.
type freshness int

const (
	stateExpired freshness = iota // not returned
	stateStale                    // returned, marked as stale
	stateFresh                    // returned
)

// freshnessOf returns the freshness of an entry now.
func (s *Spec) freshnessOf(e *Entry, now time.Time) freshness {
	if n := e.Answer.Name; n != nil && !now.Before(n.Expires) {
		return stateExpired
	}
	life, stale := s.ttl(e), s.StaleTTL
	if e.Negative {
		stale = 0
	}
	switch age := now.Sub(e.At).Abs(); {
	case age < life:
		return stateFresh
	case age-max(0, life) < stale:
		return stateStale
	default:
		return stateExpired
	}
}

// ttl is how long an entry is fresh.
func (s *Spec) ttl(e *Entry) time.Duration {
	switch {
	case e.Negative:
		return s.NegativeTTL
	case e.FromOwner:
		return min(s.TTL, OwnerTTL)
	}
	return s.TTL
}

// FreshUntil is the moment from which an entry is no longer fresh.
func (c *Cache) FreshUntil(e Entry) time.Time {
	spec := c.spec.Load()
	until := e.At.Add(max(0, spec.ttl(&e)))
	if n := e.Answer.Name; n != nil && n.Expires.Before(until) {
		return n.Expires
	}
	return until
}
