package cache

import "time"

// verdict is what an entry is worth at some moment.
type verdict int

const (
	isGone  verdict = iota // not given to anybody
	isStale                // given to who asks for it
	isFresh                // given to everybody
)

// judge says what an entry is worth now.
func (s *Spec) judge(e *Entry, now time.Time) verdict {
	if n := e.Answer.Name; n != nil && !now.Before(n.Expires) {
		return isGone
	}
	life, stale := s.life(e), s.Stale
	if e.Negative {
		stale = 0
	}
	switch age := now.Sub(e.At).Abs(); {
	case age < life:
		return isFresh
	case age-max(0, life) < stale:
		return isStale
	default:
		return isGone
	}
}

// life is how long an entry is fresh.
func (s *Spec) life(e *Entry) time.Duration {
	switch {
	case e.Negative:
		return s.Negative
	case e.Near:
		return min(s.TTL, NearLife)
	}
	return s.TTL
}

// FreshUntil is the moment from which an entry is no longer fresh.
func (c *Cache) FreshUntil(e Entry) time.Time {
	spec := c.spec.Load()
	until := e.At.Add(max(0, spec.life(&e)))
	if n := e.Answer.Name; n != nil && n.Expires.Before(until) {
		return n.Expires
	}
	return until
}
