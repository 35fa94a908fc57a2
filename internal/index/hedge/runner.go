package hedge

import (
	"math/rand/v2"
	"time"

	"micronode/fault"
)

// runner is a target that was asked.
type runner struct {
	Target
	wave  Wave
	began time.Time
	took  time.Duration
	done  func(error) // tells its breaker; nil when it is not under way
	heard bool        // it has answered, or failed at least once
	tries int         // after the first
	again time.Time   // when it is asked again; zero: never
	err   error
}

func (run *runner) active() bool { return run.done != nil || !run.again.IsZero() }

// settle ends a question and tells the breaker how.
func (run *runner) settle(err error, now time.Time) {
	run.err, run.took = err, now.Sub(run.began)
	run.done(err)
	run.done = nil
}

// cutOff ends the question of a target that was under way when all had to end.
// One that did not have the time that is fair is not to blame.
func (r *race) cutOff(run *runner, why error, now time.Time) {
	if now.Sub(run.began) < r.plan.Fair && fault.KindOf(why) == fault.Timeout {
		run.done(errSlower)
		run.done = func(error) {}
	}
	run.settle(why, now)
}

// schedule plans a retry if the failure is one that passes, and if the budget
// leaves time for it.
func (r *race) schedule(run *runner, now time.Time) {
	kind := fault.KindOf(run.err)
	if kind != fault.Transient && kind != fault.NoRoute || run.tries == Retries || !r.knew.IsZero() {
		return
	}
	pause := 50*time.Millisecond + rand.N(50*time.Millisecond)
	if r.plan.Pause != nil {
		pause = r.plan.Pause()
	}
	again := now.Add(pause)
	if end, limited := r.ctx.Deadline(); !limited || again.Before(end) {
		run.again = again
	}
}
