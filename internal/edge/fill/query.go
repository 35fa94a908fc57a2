package fill

import (
	"context"
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
)

// query is one Get on its way.
type query struct {
	order
	cache  *Cache
	policy *policy
	header http.Header // of the client

	missed bool // counted as such
}

// answer looks, and if need be waits for a fill, a few times at most: what one
// has waited for may turn out to be for somebody else.
func (q *query) answer(ctx context.Context) (*Answer, error) {
	for round := 0; ; round++ {
		found, now := q.cache.find(q.key, q.sent), time.Now()
		var j freshness.Judgement
		if found != nil {
			j = found.judge(q.header, now, q.policy.keep)
		} else if freshness.RequestDirectives(q.header).OnlyIfCached {
			j.Verdict = freshness.Unusable
		}
		switch j.Verdict {
		case freshness.Unusable:
			return nil, refuse("", fault.New(opGet, fault.Timeout, "it is not here, and the request wants only what is"))
		case freshness.Fresh, freshness.StaleWhileRevalidate:
			answer, err := q.hit(ctx, found, j, now)
			if answer != nil || err != nil {
				return answer, err
			}
			continue // it was evicted: the entry is gone now, so this happens a few times at most
		}
		answer, err := q.fetch(ctx, round, found, j)
		if answer != nil || err != nil {
			return answer, err
		}
	}
}

// hit answers with what is here, and has it refreshed if it is stale. There is
// no answer if the store has evicted the body.
func (q *query) hit(ctx context.Context, found *entry, j freshness.Judgement, now time.Time) (*Answer, error) {
	handle, err := q.cache.open(ctx, found)
	if handle == nil {
		return nil, err
	}
	if j.Verdict == freshness.StaleWhileRevalidate {
		q.cache.refresh(q.order, now)
	}
	q.cache.spec.Counters.Hit()
	answer := newAnswer(found, handle, j.Age, true)
	answer.Stale, answer.Until = j.Verdict != freshness.Fresh, found.freshUntil(j, now)
	return answer, nil
}

// fetch waits for a fill. There is neither an answer nor an error if the fill
// was for somebody else.
func (q *query) fetch(ctx context.Context, round int, found *entry, j freshness.Judgement) (*Answer, error) {
	c := q.cache
	if !q.missed {
		q.missed = true
		c.spec.Counters.Miss()
	}
	f, leader, err := c.join(q.order, round >= patience)
	if err == nil {
		standIn := j.Verdict == freshness.StaleIfError
		err = c.await(ctx, f, standIn)
	}
	if err != nil {
		return q.standIn(ctx, found, j, err)
	}
	out := f.outcome
	if !leader && !(out.shared && out.entry.answers(q.sent)) {
		out.loan.release()
		return nil, nil
	}
	now := time.Now()
	fresh := out.entry.judge(q.header, now, q.policy.keep)
	answer := newAnswer(out.entry, &borrowed{Handle: out.loan.handle, loan: out.loan}, fresh.Age, false)
	answer.Until = out.entry.freshUntil(fresh, now)
	return answer, nil
}

// standIn answers with what is here although it is stale, if that is allowed
// when the origin fails.
func (q *query) standIn(ctx context.Context, found *entry, j freshness.Judgement, failure error) (*Answer, error) {
	switch fault.KindOf(failure) {
	case fault.Timeout, fault.UpstreamFailed, fault.Busy, fault.RateLimited, fault.NotReady:
	default:
		return nil, failure
	}
	if j.Verdict != freshness.StaleIfError {
		return nil, failure
	}
	if answer, err := q.hit(ctx, found, found.judge(q.header, time.Now(), q.policy.keep), time.Now()); err == nil && answer != nil {
		return answer, nil
	}
	return nil, failure
}
