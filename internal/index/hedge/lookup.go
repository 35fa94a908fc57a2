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
	errOthersFaster error = fault.New(op, fault.Canceled, "others were faster")
	errPanicked     error = fault.New(op, fault.Internal, "the target panicked")
)

// lookup is a look-up in progress. It belongs to the goroutine of Run. Queries
// only read what was set at construction, and send their results to replies.
type lookup struct {
	// Set at construction.
	plan      Plan
	tasks     TaskGroup
	ctx       context.Context // of all queries
	cancel    context.CancelCauseFunc
	startedAt time.Time
	replies   chan reply // from queries to Run, as long as the context lasts

	// Owned by Run.
	waves       []wave    // not started yet
	lastWave    Wave      // that was started
	nextWaveAt  time.Time // when the next wave starts in spite of silence; zero: never
	hedging     bool      // β was due before α had replied, and the budget allowed it
	queries     []*query  // of the targets that were asked
	unreplied   int       // queries without a reply yet
	refused     []error   // why other targets were not asked
	enoughSince time.Time // since when the answer is enough and the look-up only lingers; zero: it is not
	merged      merger
	out         Outcome
}

// wave is targets that are asked together.
type wave struct {
	name    Wave
	targets []Target
}

// reply is the result of one query.
type reply struct {
	query  *query
	answer record.Answer
	err    error
}

// Run looks something up: it asks the waves of the plan as the rules say until
// the merged answer is enough, or no target is left, or the context ends. The
// context's deadline is the budget. Run never waits for a target beyond that:
// queries that are still running belong to their group, end with their context,
// and cannot affect the outcome any more.
//
// The error is nil if anything was found, whether it was enough or not, and if
// it is certain that there is nothing: all targets that could know were asked
// and have answered. Otherwise its kind is Timeout or Canceled when the context
// ended first, NoRoute when there was no target, UpstreamFailed when a target
// failed (Timeout when it ran out of time), BreakerOpen when a breaker refused
// a target (Busy when there was no free task for it), and NotReady when the
// plan was partial.
func Run(ctx context.Context, racers TaskGroup, p Plan) (Outcome, error) {
	r := newLookup(ctx, racers, p)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if r.isDone(time.Now()) {
			return r.finish(errOthersFaster), nil
		}
		if r.ctx.Err() != nil {
			err := r.contextError()
			return r.finish(err), err
		}
		r.advance(time.Now())
		if !slices.ContainsFunc(r.queries, (*query).active) {
			return r.finish(nil), r.finalError()
		}
		if next := r.nextWake(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case s := <-r.replies:
			if r.ctx.Err() == nil && r.handleReply(s, time.Now()) {
				return r.finish(errOthersFaster), nil
			}
		case <-timer.C:
		case <-r.ctx.Done():
		}
	}
}

func newLookup(ctx context.Context, racers TaskGroup, p Plan) *lookup {
	r := &lookup{plan: p, tasks: racers, startedAt: time.Now(), replies: make(chan reply), out: Outcome{Winner: None}}
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

// advance starts what is due: first retries, then waves. A wave starts when no
// query is silent, which is how the first one starts; or when the last one has
// been silent for too long.
func (l *lookup) advance(now time.Time) {
	for _, run := range l.queries {
		if !run.retryAt.IsZero() && !now.Before(run.retryAt) {
			run.retryAt = time.Time{}
			if l.ask(run, now) == nil {
				run.retries++
				l.out.Retries++
			}
		}
	}
	for len(l.waves) > 0 && (l.unreplied == 0 || l.overdue(now)) {
		l.startWave(now)
	}
}

// overdue reports whether the next wave starts in spite of silence. After α
// that is a hedge, which has its own budget.
func (l *lookup) overdue(now time.Time) bool {
	if l.nextWaveAt.IsZero() || now.Before(l.nextWaveAt) {
		return false
	}
	if l.lastWave == Alpha {
		l.hedging = l.plan.MayHedge == nil || l.plan.MayHedge()
		if !l.hedging {
			l.nextWaveAt = time.Time{}
			return false
		}
	}
	return true
}

// startWave asks the targets of the next wave. If none of them may be asked,
// nextWaveAt stays due, and so the wave after it replaces it.
func (l *lookup) startWave(now time.Time) {
	w := l.waves[0]
	l.waves, l.lastWave = l.waves[1:], w.name
	for _, t := range w.targets {
		run := &query{Target: t, wave: w.name}
		if err := l.ask(run, now); err != nil {
			l.refused = append(l.refused, err)
			continue
		}
		l.queries = append(l.queries, run)
		l.unreplied++
		l.nextWaveAt = now.Add(l.plan.After)
		l.out.Fired = l.hedging
	}
}

// ask starts the query of a target, if its breaker allows it and a task is
// free.
func (l *lookup) ask(run *query, now time.Time) error {
	done := func(error) {}
	if l.plan.Breakers != nil {
		granted, err := l.plan.Breakers.Allow(run.Key)
		if err != nil {
			return err
		}
		done = granted
	}
	err := l.tasks.Go(func(task context.Context) error { l.runQuery(task, run); return nil })
	if err != nil {
		done(context.Canceled)
		return err
	}
	run.done, run.startedAt = done, now
	return nil
}

// runQuery runs as a task. A deferred call sends the reply, because a panic is
// a reply, too; the panic continues to the group, which reports it. After the
// end of the look-up late replies are discarded. If the group is closed, the
// look-up ends.
func (l *lookup) runQuery(task context.Context, run *query) {
	ctx, stop := flow.Join(l.ctx, task)
	s := reply{query: run, err: errPanicked}
	defer func() {
		stop()
		if task.Err() != nil {
			l.cancel(context.Cause(task))
		}
		select {
		case l.replies <- s:
		case <-l.ctx.Done():
		}
	}()
	s.answer, s.err = run.Ask(ctx, l.plan.Question)
}

// handleReply handles a reply, and reports whether the look-up is done. A
// target that will be retried counts as replied: the next wave need not wait
// for its retries.
func (l *lookup) handleReply(s reply, now time.Time) (enough bool) {
	run := s.query
	run.finish(s.err, now)
	if !run.replied {
		run.replied = true
		l.unreplied--
	}
	if s.err != nil {
		l.scheduleRetry(run, now)
		return false
	}
	before := l.merged.answer.Name
	if l.merged.add(s.answer, run.Source) && l.out.Source == "" {
		l.out.Source = run.Source
	}
	l.out.OwnerAnswered = l.out.OwnerAnswered || run.Key == l.plan.Owner && s.answer.Name != nil
	if !l.enough() {
		return false
	}
	if l.enoughSince.IsZero() || l.merged.answer.Name != before {
		l.out.Winner, l.out.Source = run.wave, run.Source
	}
	l.linger(now)
	return l.isDone(now)
}

// linger records that the answer is enough: no further target is asked.
func (l *lookup) linger(now time.Time) {
	if !l.enoughSince.IsZero() {
		return
	}
	l.enoughSince, l.waves = now, nil
	for _, run := range l.queries {
		run.retryAt = time.Time{}
	}
}

// isDone reports whether the answer is enough and lingering is over.
func (l *lookup) isDone(now time.Time) bool {
	return !l.enoughSince.IsZero() && (l.out.OwnerAnswered || l.ctx.Err() != nil || !now.Before(l.lingerDeadline()))
}

// lingerDeadline is when a look-up whose answer is enough ends, in spite of
// silence.
func (l *lookup) lingerDeadline() time.Time {
	owner := func(run *query) bool { return run.Key == l.plan.Owner && !run.replied }
	if slices.ContainsFunc(l.queries, owner) {
		return l.enoughSince.Add(max(l.plan.Linger, l.plan.After))
	}
	return l.enoughSince.Add(l.plan.Linger)
}

func (l *lookup) enough() bool {
	if l.plan.Enough != nil {
		return l.plan.Enough(l.merged.answer)
	}
	return len(l.merged.answer.Providers) > 0 || l.merged.answer.Name != nil
}

// nextWake is when something is due even without a reply.
func (l *lookup) nextWake() (next time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if len(l.waves) > 0 {
		earlier(l.nextWaveAt)
	}
	if !l.enoughSince.IsZero() {
		earlier(l.lingerDeadline())
	}
	for _, run := range l.queries {
		earlier(run.retryAt)
	}
	return next
}
