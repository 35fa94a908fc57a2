package supervise

import (
	"math/rand/v2"
	"time"
)

// Restart is a restart policy as data. The delay before a restart has full
// jitter: the n-th since the last stable run (counted from zero) is uniform in
// [Min, min(Cap, First·2ⁿ)], so that services that failed together do not
// restart together.
//
// More than Limit failures within Window are a crash loop, and OnCrashLoop says
// what follows. A run that lasts for Window is stable: it ends the crash loop
// and resets the delay to the first.
//
// The zero Restart stands for the policy of the node's own services.
type Restart struct {
	Min, First, Cap time.Duration
	Limit           int
	Window          time.Duration
	OnCrashLoop     CrashLoopAction
}

// CrashLoopAction is what follows on a crash loop.
type CrashLoopAction uint8

const (
	Degrade CrashLoopAction = iota // keep retrying; the service is degraded until it is stable
	Down                           // stop restarting the service; the others continue
	Fatal                          // stop everything: drain, and Run returns the error
)

// defaultRestart is the policy of the node's own services.
var defaultRestart = Restart{
	Min: 100 * time.Millisecond, First: 500 * time.Millisecond, Cap: 5 * time.Second,
	Limit: 5, Window: time.Minute, OnCrashLoop: Degrade,
}

// check refuses a policy that would restart without a pause, or makes no sense.
func (r Restart) check(op, name string) error {
	switch {
	case r.Min < 0 || r.First < 0 || r.Cap < 0 || r.Window < 0 || r.Limit < 0:
		return malformed(op, "Use durations and a limit of zero or more.", "%q: the restart policy has a negative value", name)
	case r.OnCrashLoop > Fatal:
		return malformed(op, "Use Degrade, Down or Fatal.", "%q: the restart policy's OnCrashLoop is %d", name, r.OnCrashLoop)
	case r.First == 0 || r.First < r.Min || r.Cap < r.First:
		return malformed(op, "Order the delays 0 <= Min <= First <= Cap with First above zero, or leave the policy out.",
			"%q: a restart after [%s, %s], at most %s, is not a backoff", name, r.Min, r.First, r.Cap)
	case r.Window == 0:
		return malformed(op, "Set Window to the time after which a run counts as stable.", "%q: the restart policy has no window", name)
	}
	return nil
}

// maxDelay is the longest n-th delay. Cap is compared before doubling, so that
// a large n cannot overflow.
func (r Restart) maxDelay(n int) time.Duration {
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
	hi := r.maxDelay(n)
	return min(max(jitter(r.Min, hi), r.Min), hi)
}

// uniform is the jitter used unless Options has another.
func uniform(lo, hi time.Duration) time.Duration {
	return lo + rand.N(hi-lo+1)
}
