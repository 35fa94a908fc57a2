package breaker

import (
	"sync"
	"time"

	"micronode/fault"
)

// maxCallers is how many callers of one target are kept apart in a window. What
// further ones do counts for the target, but is held against none of them.
const maxCallers = 256

// callers is how the callers of one target fared in the current window and the
// one before. A time-out says something about the target, or about what was
// asked: only how others fare meanwhile can tell.
type callers struct {
	mu     sync.Mutex //lockblock:leaf counts
	window time.Duration
	since  time.Time // when the current window began
	now    tally
	before tally
	trials int // calls under way that an open breaker let pass
}

// tally is what was answered and what was not, in all and by caller.
type tally struct {
	all      results
	byCaller map[uint64]results
}

type results struct{ answered, failed int }

// add counts a result.
func (t *tally) add(caller uint64, answered bool) {
	one, known := t.byCaller[caller]
	for _, r := range []*results{&t.all, &one} {
		if answered {
			r.answered++
		} else {
			r.failed++
		}
	}
	if !known && len(t.byCaller) == maxCallers {
		return
	}
	if t.byCaller == nil {
		t.byCaller = map[uint64]results{}
	}
	t.byCaller[caller] = one
}

// advance begins the next window when it is due. Guarded by mu.
func (c *callers) advance(now time.Time) {
	switch passed := now.Sub(c.since); {
	case passed >= 2*c.window:
		c.since, c.now, c.before = now, tally{}, tally{}
	case passed >= c.window:
		c.since, c.now, c.before = now, tally{}, c.now
	}
}

// judge counts a result and returns what it says about the target. A time-out
// says nothing if the target answers other callers more often than not: one
// client that asks for what cannot be found must not cut all others off. It
// counts if there are no others, or if they wait for answers, too.
func (c *callers) judge(caller uint64, err error, now time.Time) error {
	kind := fault.KindOf(err)
	if kind == fault.Canceled {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(now)
	own, before := c.now.byCaller[caller], c.before.byCaller[caller]
	answered := c.now.all.answered + c.before.all.answered - own.answered - before.answered
	failed := c.now.all.failed + c.before.all.failed - own.failed - before.failed
	c.now.add(caller, err == nil || kind == fault.NotFound)
	if kind == fault.Timeout && answered > 0 && answered >= failed {
		return fault.Canceled
	}
	return err
}

// beginTrial lets a caller that has not failed itself pass an open breaker.
func (c *callers) beginTrial(caller uint64, most int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mayTry(caller, most, now) {
		return false
	}
	c.trials++
	return true
}

// mayTry says whether it would. Guarded by mu.
func (c *callers) mayTry(caller uint64, most int, now time.Time) bool {
	c.advance(now)
	return c.trials < most && c.now.byCaller[caller].failed+c.before.byCaller[caller].failed == 0
}

// checkTrial is mayTry for others than beginTrial.
func (c *callers) checkTrial(caller uint64, most int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mayTry(caller, most, now)
}

func (c *callers) endTrial() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trials--
}
