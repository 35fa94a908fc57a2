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
	errSilent       error = fault.New(op, fault.Timeout, "the target was silent until another had answered")
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
	nextWaveAt  time.Time // when the next wave starts in spite of silence
	hedging     bool      // β was due before α had replied
	sparing     bool      // and the budget did not allow it: one target at a time
	queries     []*query  // of the targets that were asked
	unreplied   int       // queries without a reply yet
	refused     []error   // why other targets were not asked
	enoughSince time.Time // since when the answer is enough and the look-up only lingers; zero: it is not
	lingerUntil time.Time // when it then ends in spite of silence
	merged      merger
	out         Outcome
}

// wave is targets that are asked together.
type wave struct {
	name    Wave
	targets []Target
}

// query is the query of one target.
type query struct {
	Target
	wave      Wave
	startedAt time.Time
	took      time.Duration
	done      func(error) // reports to its breaker; nil while it is not running
	replied   bool        // it has answered, or failed at least once
	retries   int         // beyond the first attempt
	retryAt   time.Time   // when it is retried; zero: never
	err       error
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
func Run(ctx context.Context, tasks TaskGroup, p Plan) (Outcome, error) {
	l := newLookup(ctx, tasks, p)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now, ended := time.Now(), l.ctx.Err() != nil
		if !l.enoughSince.IsZero() && (l.out.OwnerAnswered || ended || !now.Before(l.lingerUntil)) {
			return l.finish(errOthersFaster), nil
		}
		if ended {
			err := l.contextError()
			return l.finish(err), err
		}
		l.startDue(now)
		if !slices.ContainsFunc(l.queries, func(q *query) bool { return q.done != nil || !q.retryAt.IsZero() }) {
			return l.finish(nil), l.finalError()
		}
		if next := l.nextWake(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case r := <-l.replies:
			if l.ctx.Err() == nil {
				l.handleReply(r, time.Now())
			}
		case <-timer.C:
		case <-l.ctx.Done():
		}
	}
}

func newLookup(ctx context.Context, tasks TaskGroup, p Plan) *lookup {
	l := &lookup{plan: p, tasks: tasks, startedAt: time.Now(), replies: make(chan reply), out: Outcome{Winner: None}}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	seen := map[string]bool{}
	add := func(name Wave, targets []Target) {
		targets = slices.DeleteFunc(slices.Clone(targets), func(t Target) bool {
			twice := seen[t.Key]
			seen[t.Key] = true
			return twice
		})
		if len(targets) > 0 {
			l.waves = append(l.waves, wave{name, targets})
		}
	}
	add(Alpha, p.Alpha)
	add(Beta, p.Beta)
	if p.Walk != nil {
		add(Walk, []Target{*p.Walk})
	}
	return l
}

// startDue starts what is due: first retries, then waves. A wave starts when no
// query is silent, which is how the first one starts; or when the last one has
// been silent for too long. If no target of a wave may be asked, nextWaveAt
// stays due, and so the wave after it replaces it.
//
// A silent α is followed whatever the budget says. Without it one target is
// asked, and the next when that has been silent for as long: the look-up takes
// longer, and asks no more targets at a time than it has to.
func (l *lookup) startDue(now time.Time) {
	for _, q := range l.queries {
		if !q.retryAt.IsZero() && !now.Before(q.retryAt) {
			q.retryAt = time.Time{}
			if l.ask(q, now) == nil {
				q.retries++
				l.out.Retries++
			}
		}
	}
	for len(l.waves) > 0 {
		silent := l.unreplied > 0
		if silent && now.Before(l.nextWaveAt) {
			return
		}
		if silent && l.lastWave == Alpha { // what starts now is a hedge, which has its own budget
			l.hedging = true
			l.sparing = l.plan.MayHedge != nil && !l.plan.MayHedge()
		}
		l.startWave(now, silent && l.sparing)
	}
}

// startWave asks the next wave: all of it, or its first target that may be
// asked.
func (l *lookup) startWave(now time.Time, spare bool) {
	w := &l.waves[0]
	l.lastWave = w.name
	for len(w.targets) > 0 {
		q := &query{Target: w.targets[0], wave: w.name}
		w.targets = w.targets[1:]
		if err := l.ask(q, now); err != nil {
			l.refused = append(l.refused, err)
			continue
		}
		l.queries = append(l.queries, q)
		l.unreplied++
		l.nextWaveAt = now.Add(l.plan.After)
		l.out.Fired = l.hedging
		if spare {
			break
		}
	}
	if len(w.targets) == 0 {
		l.waves = l.waves[1:]
	}
}

// ask starts the query of a target as a task, if its breaker allows it and a
// task is free.
//
// A deferred call sends the reply, because a panic is a reply, too; the panic
// continues to the group, which reports it. After the end of the look-up late
// replies are discarded. If the group is closed, the look-up ends.
func (l *lookup) ask(q *query, now time.Time) error {
	done := func(error) {}
	if l.plan.Breakers != nil && !q.Composite {
		granted, err := l.plan.Breakers.Allow(q.Key)
		if err != nil {
			return err
		}
		done = granted
	}
	err := l.tasks.Go(func(task context.Context) error {
		ctx, stop := flow.Join(l.ctx, task)
		r := reply{query: q, err: errPanicked}
		defer func() {
			stop()
			if task.Err() != nil {
				l.cancel(context.Cause(task))
			}
			select {
			case l.replies <- r:
			case <-l.ctx.Done():
			}
		}()
		r.answer, r.err = q.Ask(ctx, l.plan.Question)
		return nil
	})
	if err != nil {
		done(context.Canceled)
		return err
	}
	q.done, q.startedAt = done, now
	return nil
}

// handleReply handles a reply. A target that will be retried counts as replied:
// the next wave need not wait for its retries. Once the answer is enough, no
// further target is asked, and the look-up only lingers: for longer if the owner
// of the name is silent.
func (l *lookup) handleReply(r reply, now time.Time) {
	q := r.query
	q.done(r.err)
	q.done, q.err, q.took = nil, r.err, now.Sub(q.startedAt)
	if !q.replied {
		q.replied = true
		l.unreplied--
	}
	if r.err != nil {
		l.scheduleRetry(q, now)
	} else {
		before := l.merged.answer.Name
		if l.merged.add(r.answer, q.Source) && l.out.Source == "" {
			l.out.Source = q.Source
		}
		l.out.OwnerAnswered = l.out.OwnerAnswered || q.Key == l.plan.Owner && r.answer.Name != nil
		enough := !l.merged.empty()
		if l.plan.Enough != nil {
			enough = l.plan.Enough(l.merged.answer)
		}
		if enough && (l.enoughSince.IsZero() || l.merged.answer.Name != before) {
			l.out.Winner, l.out.Source = q.wave, q.Source
		}
		if enough && l.enoughSince.IsZero() {
			l.enoughSince, l.waves = now, nil
			for _, other := range l.queries {
				other.retryAt = time.Time{}
			}
		}
	}
	if l.enoughSince.IsZero() {
		return
	}
	linger := l.plan.Linger
	if slices.ContainsFunc(l.queries, func(other *query) bool { return other.Key == l.plan.Owner && !other.replied }) {
		linger = max(linger, l.plan.After)
	}
	l.lingerUntil = l.enoughSince.Add(linger)
}

// retryBackoff is how long to wait before a target is queried again.
var retryBackoff = flow.Backoff{Min: 50 * time.Millisecond, First: 100 * time.Millisecond, Max: 100 * time.Millisecond}

// scheduleRetry schedules a retry if the failure is temporary, and if the
// budget leaves time for it.
func (l *lookup) scheduleRetry(q *query, now time.Time) {
	kind := fault.KindOf(q.err)
	if kind != fault.Transient && kind != fault.NoRoute || q.retries == Tries-1 || !l.enoughSince.IsZero() {
		return
	}
	pause := retryBackoff.Delay(q.retries)
	if l.plan.RetryDelay != nil {
		pause = l.plan.RetryDelay()
	}
	again := now.Add(pause)
	if end, limited := l.ctx.Deadline(); !limited || again.Before(end) {
		q.retryAt = again
	}
}

// nextWake is when something is due even without a reply; zero: never.
func (l *lookup) nextWake() (next time.Time) {
	if !l.enoughSince.IsZero() {
		return l.lingerUntil
	}
	if len(l.waves) > 0 {
		next = l.nextWaveAt
	}
	for _, q := range l.queries {
		if !q.retryAt.IsZero() && (next.IsZero() || q.retryAt.Before(next)) {
			next = q.retryAt
		}
	}
	return next
}
