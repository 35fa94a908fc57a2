package hedge

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/index/record"
)

// finish cancels all running queries, and makes the outcome. It reports to the
// breakers itself: a target that ignores its context would keep its breaker
// waiting. A target that had less than MinSilence is not charged with a
// time-out; one that had as much is, also if another was faster in the end.
func (l *lookup) finish(why error) Outcome {
	l.cancel(why)
	now, o := time.Now(), l.out
	for _, q := range l.queries {
		cut := q.done != nil
		if cut {
			reported := why
			switch long := now.Sub(q.startedAt) >= l.plan.MinSilence; {
			case !long && fault.KindOf(why) == fault.Timeout:
				reported = errOthersFaster
			case long && l.plan.MinSilence > 0 && why == errOthersFaster:
				reported = errSilent
			}
			q.done(reported)
			q.done, q.err, q.took = nil, why, now.Sub(q.startedAt)
		}
		switch {
		case q.err == nil:
			o.Answered++
		case cut && fault.KindOf(why) == fault.Canceled:
			o.Canceled++
		default:
			o.Failed++
		}
		o.Targets = append(o.Targets, Report{Key: q.Key, Source: q.Source, Wave: q.wave, Took: q.took, Err: q.err})
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
	if !l.merged.empty() || l.conclusive() {
		return nil
	}
	if slices.ContainsFunc(l.queries, func(q *query) bool { return q.err == nil }) {
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
	failed := func(q *query) bool { return q.err != nil || q.done != nil }
	return len(l.queries) > 0 && len(l.refused) == 0 && !l.plan.Partial && !slices.ContainsFunc(l.queries, failed)
}

// inconclusiveError is why an empty answer is not certain although a target
// answered: another one that could know failed, or was not asked.
func (l *lookup) inconclusiveError() error {
	for _, q := range l.queries {
		if q.err != nil {
			kind := fault.KindOf(q.err)
			switch kind {
			case fault.Timeout, fault.BreakerOpen, fault.Busy, fault.NotReady: // the last three come from a target that stands for many
			default:
				kind = fault.UpstreamFailed
			}
			return &fault.Error{Op: op, Kind: kind, Err: q.err, RetryAfter: fault.RetryAfterOf(q.err), Detail: "some targets have no answer, and others failed"}
		}
	}
	if len(l.refused) > 0 {
		return l.refusal()
	}
	return fault.New(op, fault.NotReady, "the targets that were asked have no answer, and not all targets were asked")
}

// refusal is why targets were not asked, and when to retry. A refusal that came
// from this node, not from a breaker, comes first.
func (l *lookup) refusal() error {
	for _, err := range l.refused {
		if fault.KindOf(err) != fault.BreakerOpen {
			return fault.Wrap(op, err)
		}
	}
	return fault.Wrap(op, slices.MinFunc(l.refused, func(a, b error) int {
		return cmp.Compare(fault.RetryAfterOf(a), fault.RetryAfterOf(b))
	}))
}

// maxProviders bounds the merged answer: targets are untrusted.
const maxProviders = 256

// merger merges the answers of several targets. Providers with the same ID are
// one provider.
type merger struct {
	answer    record.Answer
	indexByID map[string]int // of a provider in the answer
}

// add merges an answer and reports whether there was anything in it. It copies
// what it keeps: the slices of the target stay unchanged. Providers without an
// ID cannot be compared, so each of them is a new one.
func (m *merger) add(a record.Answer, source record.Source) bool {
	if newest := record.Newer(m.answer.Name, a.Name); newest != m.answer.Name {
		m.answer.Name, m.answer.NamedBy = newest, cmp.Or(a.NamedBy, source)
	}
	for i := range a.Providers {
		p := &a.Providers[i]
		at, known := m.indexByID[p.ID]
		if !known || p.ID == "" {
			if at = len(m.answer.Providers); at == maxProviders {
				continue
			}
			if m.indexByID == nil {
				m.indexByID = map[string]int{}
			}
			m.indexByID[p.ID] = at
			m.answer.Providers = append(m.answer.Providers, record.Provider{ID: p.ID, Source: cmp.Or(p.Source, source)})
		}
		m.answer.Providers[at].Merge(p)
	}
	return a.Name != nil || len(a.Providers) > 0
}

// empty reports whether nothing was found.
func (m *merger) empty() bool { return m.answer.Name == nil && len(m.answer.Providers) == 0 }
