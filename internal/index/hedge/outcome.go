package hedge

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"micronode/fault"
)

// finish calls off everybody who is still under way, and adds up. Breakers are
// told here and not by the racers: a target that ignores its context would
// keep its breaker waiting.
func (r *race) finish(why error) Outcome {
	r.cancel(why)
	now, o := time.Now(), r.out
	for _, run := range r.runners {
		cut := run.done != nil
		if cut {
			r.cutOff(run, why, now)
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
	o.Answer, o.Took = r.found.answer, now.Sub(r.began)
	o.Asked, o.Refused = len(r.runners), len(r.refused)
	o.Conclusive = o.Asked > 0 && o.Answered == o.Asked && r.shortage() == nil
	return o
}

// expired is the error of a look-up whose context ended.
func (r *race) expired() error {
	if errors.Is(r.ctx.Err(), context.DeadlineExceeded) {
		return fault.New(op, fault.Timeout, "%d targets were asked, and together they did not say enough within %s", len(r.runners), time.Since(r.began).Round(time.Millisecond))
	}
	return fault.WrapKind(op, fault.Canceled, context.Cause(r.ctx))
}

// verdict is the error of a look-up in which nobody is left to ask. One
// answer, even an empty one, is none.
func (r *race) verdict() error {
	if slices.ContainsFunc(r.runners, func(run *runner) bool { return run.err == nil }) {
		return nil
	}
	if len(r.runners) > 0 {
		return &fault.Error{Op: op, Kind: fault.UpstreamFailed, Err: r.runners[0].err,
			Detail: "nobody who was asked gave an answer"}
	}
	if len(r.refused) == 0 {
		return fault.New(op, fault.NoRoute, "there is nobody to ask")
	}
	if err := r.shortage(); err != nil {
		return fault.Wrap(op, err)
	}
	soonest := slices.MinFunc(r.refused, func(a, b error) int {
		return cmp.Compare(fault.RetryAfterOf(a), fault.RetryAfterOf(b))
	})
	return fault.Wrap(op, soonest)
}

// shortage is the first refusal that was not a breaker's but our own.
func (r *race) shortage() error {
	for _, err := range r.refused {
		if fault.KindOf(err) != fault.BreakerOpen {
			return err
		}
	}
	return nil
}
