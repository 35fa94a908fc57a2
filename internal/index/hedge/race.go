package hedge

import (
	"context"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/record"
)

const op = "hedge.run"

var (
	errSlower   error = fault.New(op, fault.Canceled, "others were faster")
	errPanicked error = fault.New(op, fault.Internal, "the target panicked")
)

// race is a look-up under way. It belongs to the goroutine of Run. Racers only
// read what was set at construction, and speak through said.
type race struct {
	// Set at construction.
	plan   Plan
	racers Racers
	ctx    context.Context // of all questions
	cancel context.CancelCauseFunc
	began  time.Time
	said   chan saying // from racers to Run, as long as the context lasts

	// Owned by Run.
	waves   []wave    // that have not started
	last    Wave      // that has
	due     time.Time // when the next wave starts even though somebody is silent; zero: never
	hedging bool      // β was due before α was heard, and the budget allowed it
	runners []*runner // targets that were asked
	silent  int       // those of them of which nothing was heard yet
	refused []error   // why the others were not
	knew    time.Time // since when we know enough and only linger; zero: we do not
	found   merger
	out     Outcome
}

// wave is targets that start together.
type wave struct {
	name    Wave
	targets []Target
}

// saying is what came of one question.
type saying struct {
	runner *runner
	answer record.Answer
	err    error
}

// Run looks something up: it asks the waves of the plan as the rules say until
// the merged answer is enough, or nobody is left, or the context ends. The
// context's deadline is the budget. Run never waits for a target beyond that:
// racers that are still under way belong to their group, end with their
// context, and have no way to reach the outcome any more.
//
// The error is nil if anybody answered; whether that was enough is for the
// caller to see. Otherwise its kind is Timeout or Canceled when the context
// ended first, NoRoute when there was nobody to ask, BreakerOpen when all were
// refused by their breakers (Busy when there was no free racer for one of
// them), and UpstreamFailed when all that were asked failed.
func Run(ctx context.Context, racers Racers, p Plan) (Outcome, error) {
	r := newRace(ctx, racers, p)
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		if r.over(time.Now()) {
			return r.finish(errSlower), nil
		}
		if r.ctx.Err() != nil {
			err := r.expired()
			return r.finish(err), err
		}
		r.advance(time.Now())
		if !slices.ContainsFunc(r.runners, (*runner).active) {
			return r.finish(nil), r.verdict()
		}
		if next := r.next(); next.IsZero() {
			alarm.Stop()
		} else {
			alarm.Reset(time.Until(next))
		}
		select {
		case s := <-r.said:
			if r.ctx.Err() == nil && r.hear(s, time.Now()) {
				return r.finish(errSlower), nil
			}
		case <-alarm.C:
		case <-r.ctx.Done():
		}
	}
}

func newRace(ctx context.Context, racers Racers, p Plan) *race {
	r := &race{plan: p, racers: racers, began: time.Now(), said: make(chan saying), out: Outcome{Winner: None}}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	seen := map[string]bool{}
	add := func(name Wave, targets []Target) {
		targets = slices.DeleteFunc(slices.Clone(targets), func(t Target) bool {
			twice := seen[t.Key]
			seen[t.Key] = true
			return twice
		})
		if len(targets) > 0 {
			r.waves = append(r.waves, wave{name, targets})
		}
	}
	add(Alpha, p.Alpha)
	add(Beta, p.Beta)
	if p.Walk != nil {
		add(Walk, []Target{*p.Walk})
	}
	return r
}

// advance starts what is due: first retries, then waves. A wave starts when
// nobody is silent, which is how the first one does; or when the last one has
// been silent for too long.
func (r *race) advance(now time.Time) {
	for _, run := range r.runners {
		if !run.again.IsZero() && !now.Before(run.again) {
			run.again = time.Time{}
			if r.ask(run, now) == nil {
				run.tries++
				r.out.Retries++
			}
		}
	}
	for len(r.waves) > 0 && (r.silent == 0 || r.overdue(now)) {
		r.start(now)
	}
}

// overdue reports whether the next wave starts in spite of silence. To follow
// α so is to hedge, which has its own budget.
func (r *race) overdue(now time.Time) bool {
	if r.due.IsZero() || now.Before(r.due) {
		return false
	}
	if r.last == Alpha {
		r.hedging = r.plan.MayHedge == nil || r.plan.MayHedge()
		if !r.hedging {
			r.due = time.Time{}
			return false
		}
	}
	return true
}

// start asks the targets of the next wave. If none of them may be asked, the
// time stays due, and so the wave after it takes its place.
func (r *race) start(now time.Time) {
	w := r.waves[0]
	r.waves, r.last = r.waves[1:], w.name
	for _, t := range w.targets {
		run := &runner{Target: t, wave: w.name}
		if err := r.ask(run, now); err != nil {
			r.refused = append(r.refused, err)
			continue
		}
		r.runners = append(r.runners, run)
		r.silent++
		r.due = now.Add(r.plan.After)
		r.out.Fired = r.hedging
	}
}

// ask puts the question to a target, if its breaker lets it and a racer is
// free.
func (r *race) ask(run *runner, now time.Time) error {
	done := func(error) {}
	if r.plan.Breakers != nil {
		granted, err := r.plan.Breakers.Allow(run.Key)
		if err != nil {
			return err
		}
		done = granted
	}
	err := r.racers.Go(func(task context.Context) error { r.question(task, run); return nil })
	if err != nil {
		done(context.Canceled)
		return err
	}
	run.done, run.began = done, now
	return nil
}

// question runs on a racer. What is said is sent by a deferred call, because a
// target that panics has spoken too; the panic goes on to the group, where
// panics are told. When the race is over nobody listens, and what comes late is
// lost. That the group was closed ends the race.
func (r *race) question(task context.Context, run *runner) {
	ctx, stop := flow.Join(r.ctx, task)
	s := saying{runner: run, err: errPanicked}
	defer func() {
		stop()
		if task.Err() != nil {
			r.cancel(context.Cause(task))
		}
		select {
		case r.said <- s:
		case <-r.ctx.Done():
		}
	}()
	s.answer, s.err = run.Ask(ctx, r.plan.Question)
}

// hear takes what a target said, and reports whether we know enough now. A
// target that will be asked again counts as heard: the next wave need not wait
// for its retries.
func (r *race) hear(s saying, now time.Time) (enough bool) {
	run := s.runner
	run.settle(s.err, now)
	if !run.heard {
		run.heard = true
		r.silent--
	}
	if s.err != nil {
		r.schedule(run, now)
		return false
	}
	before := r.found.answer.Name
	if r.found.add(s.answer, run.Source) && r.out.Source == "" {
		r.out.Source = run.Source
	}
	r.out.Final = r.out.Final || run.Key == r.plan.Owner && s.answer.Name != nil
	if !r.enough() {
		return false
	}
	if r.knew.IsZero() || r.found.answer.Name != before {
		r.out.Winner, r.out.Source = run.wave, run.Source
	}
	r.linger(now)
	return r.over(now)
}

// linger notes that we know enough: from now on nobody is asked any more.
func (r *race) linger(now time.Time) {
	if !r.knew.IsZero() {
		return
	}
	r.knew, r.waves = now, nil
	for _, run := range r.runners {
		run.again = time.Time{}
	}
}

// over reports whether we know enough and need not wait for anybody who may
// know better.
func (r *race) over(now time.Time) bool {
	return !r.knew.IsZero() && (r.out.Final || r.ctx.Err() != nil || !now.Before(r.parting()))
}

// parting is when a look-up that knows enough ends, whoever is silent then.
func (r *race) parting() time.Time {
	owner := func(run *runner) bool { return run.Key == r.plan.Owner && !run.heard }
	if slices.ContainsFunc(r.runners, owner) {
		return r.knew.Add(max(r.plan.Linger, r.plan.After))
	}
	return r.knew.Add(r.plan.Linger)
}

func (r *race) enough() bool {
	if r.plan.Enough != nil {
		return r.plan.Enough(r.found.answer)
	}
	return len(r.found.answer.Providers) > 0 || r.found.answer.Name != nil
}

// next is when something is to be done even if nobody says anything.
func (r *race) next() (next time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if len(r.waves) > 0 {
		earlier(r.due)
	}
	if !r.knew.IsZero() {
		earlier(r.parting())
	}
	for _, run := range r.runners {
		earlier(run.again)
	}
	return next
}
