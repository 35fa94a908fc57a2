package supervise

import (
	"math/rand/v2"
	"time"
)

// Restart is a restart policy as data. The delay before a restart has full
// jitter: the n-th since the last stable run (counted from zero) is uniform in
// [Min, min(Cap, First·2ⁿ)], so that services that fell together do not come
// back together.
//
// More than Limit failures within Window are a crash loop, and Then says what
// follows. A run that lasts for Window is stable: it ends the crash loop and
// takes the delay back to the first.
//
// The zero Restart stands for Default.
type Restart struct {
	Min, First, Cap time.Duration
	Limit           int
	Window          time.Duration
	Then            Then
}

// Then is what follows on a crash loop.
type Then uint8

const (
	Degrade Then = iota // keep trying; the service is degraded until it is stable
	Down                // give up on the service; the others go on
	Fatal               // give up on everything: drain, and Run returns the error
)

// Default is the policy of the node's own services.
var Default = Restart{
	Min: 100 * time.Millisecond, First: 500 * time.Millisecond, Cap: 5 * time.Second,
	Limit: 5, Window: time.Minute, Then: Degrade,
}

// Once is the policy of a task that runs once: no failure is allowed, so the
// first one is a crash loop and the task is down. Restart{Then: Fatal} is the
// same for a task that the node cannot live without.
var Once = Restart{Then: Down}

// never reports whether the policy gives up at the first failure, so that its
// delays and window mean nothing.
func (r Restart) never() bool { return r.Limit == 0 && r.Then != Degrade }

// check refuses a policy that would spin, or that says nothing sensible.
func (r Restart) check(op, name string) error {
	switch {
	case r.Min < 0 || r.First < 0 || r.Cap < 0 || r.Window < 0 || r.Limit < 0:
		return malformed(op, "Use durations and a limit of zero or more.", "%q: the restart policy has a negative value", name)
	case r.Then > Fatal:
		return malformed(op, "Use Degrade, Down or Fatal.", "%q: the restart policy's Then is %d", name, r.Then)
	case r.never():
		return nil
	case r.First == 0 || r.First < r.Min || r.Cap < r.First:
		return malformed(op, "Order the delays 0 <= Min <= First <= Cap with First above zero, or use supervise.Default.",
			"%q: a restart after [%s, %s], at most %s, is not a backoff", name, r.Min, r.First, r.Cap)
	case r.Window == 0:
		return malformed(op, "Set Window to the time after which a run counts as stable.", "%q: the restart policy has no window", name)
	}
	return nil
}

// ceiling is the longest n-th delay. Cap is compared before doubling, so that
// a large n cannot overflow.
func (r Restart) ceiling(n int) time.Duration {
	longest := r.First
	for range n {
		if longest > r.Cap/2 {
			return r.Cap
		}
		longest *= 2
	}
	return longest
}

// delay draws the n-th delay. A jitter of the caller's own cannot leave the
// policy's bounds.
func (r Restart) delay(n int, jitter func(lo, hi time.Duration) time.Duration) time.Duration {
	hi := r.ceiling(n)
	return min(max(jitter(r.Min, hi), r.Min), hi)
}

// uniform is the jitter used unless Options has another.
func uniform(lo, hi time.Duration) time.Duration {
	return lo + rand.N(hi-lo+1)
}
