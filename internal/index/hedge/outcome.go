package hedge

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"micronode/fault"
)

// finish cancels all running queries, and makes the outcome. It reports to the
// breakers itself: a target that ignores its context would keep its breaker
// waiting.
func (l *lookup) finish(why error) Outcome {
	l.cancel(why)
	now, o := time.Now(), l.out
	for _, run := range l.queries {
		cut := run.done != nil
		if cut {
			l.cancelQuery(run, why, now)
		}
		switch {
		case run.err == nil:
			o.Answered++
		case cut && fault.KindOf(why) == fault.Canceled:
			o.Canceled++
		default:
			o.Failed++
		}
		o.Targets = append(o.Targets, Report{Key: run.Key, Source: run.Source, Wave: run.wave, Took: run.took, Err: run.err})
	}
	o.Answer, o.Took = l.merged.answer, now.Sub(l.startedAt)
	o.Asked, o.Refused = len(l.queries), len(l.refused)
	o.Conclusive = l.conclusive()
	return o
}

// contextError is the error of a look-up whose context ended.
func (l *lookup) contextError() error {
	if errors.Is(l.ctx.Err(), context.DeadlineExceeded) {
		return fault.New(op, fault.Timeout, "%d targets were asked, and their answers were not sufficient within %s", len(l.queries), time.Since(l.startedAt).Round(time.Millisecond))
	}
	return fault.WrapKind(op, fault.Canceled, context.Cause(l.ctx))
}

// finalError is the error of a look-up without targets left. It is nil if
// anything was found, or if the empty answer is certain.
func (l *lookup) finalError() error {
	if l.merged.answer.Name != nil || len(l.merged.answer.Providers) > 0 || l.conclusive() {
		return nil
	}
	if slices.ContainsFunc(l.queries, func(run *query) bool { return run.err == nil }) {
		return l.inconclusiveError()
	}
	if len(l.queries) > 0 {
		return &fault.Error{Op: op, Kind: fault.UpstreamFailed, Err: l.queries[0].err,
			Detail: "no target that was asked answered"}
	}
	if len(l.refused) == 0 && l.plan.Partial {
		return fault.New(op, fault.NotReady, "the targets that could know are not reachable yet")
	}
	if len(l.refused) == 0 {
		return fault.New(op, fault.NoRoute, "there is no target to ask")
	}
	return l.refusal()
}

// conclusive reports whether all targets that could know were asked and have
// answered.
func (l *lookup) conclusive() bool {
	failed := func(run *query) bool { return run.err != nil || run.done != nil }
	return len(l.queries) > 0 && len(l.refused) == 0 && !l.plan.Partial && !slices.ContainsFunc(l.queries, failed)
}

// inconclusiveError is why an empty answer is not certain although a target
// answered: another one that could know failed, or was not asked.
func (l *lookup) inconclusiveError() error {
	for _, run := range l.queries {
		if run.err != nil {
			kind := fault.KindOf(run.err)
			switch kind {
			case fault.Timeout, fault.BreakerOpen, fault.Busy, fault.NotReady: // the last three come from a target that stands for many
			default:
				kind = fault.UpstreamFailed
			}
			return &fault.Error{Op: op, Kind: kind, Err: run.err, RetryAfter: fault.RetryAfterOf(run.err), Detail: "some targets have no answer, and others failed"}
		}
	}
	if len(l.refused) > 0 {
		return l.refusal()
	}
	return fault.New(op, fault.NotReady, "the targets that were asked have no answer, and not all targets were asked")
}

// refusal is why targets were not asked, and when to retry.
func (l *lookup) refusal() error {
	if err := l.capacityRefusal(); err != nil {
		return fault.Wrap(op, err)
	}
	soonest := slices.MinFunc(l.refused, func(a, b error) int {
		return cmp.Compare(fault.RetryAfterOf(a), fault.RetryAfterOf(b))
	})
	return fault.Wrap(op, soonest)
}

// capacityRefusal is the first refusal that came from this node, not from a
// breaker.
func (l *lookup) capacityRefusal() error {
	for _, err := range l.refused {
		if fault.KindOf(err) != fault.BreakerOpen {
			return err
		}
	}
	return nil
}
