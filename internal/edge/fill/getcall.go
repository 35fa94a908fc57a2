package fill

import (
	"context"
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
)

// getCall is one call of Get.
type getCall struct {
	fillRequest
	cache  *Cache
	policy *policy
	header http.Header // of the client
	began  time.Time
	admit  func() error // of the request

	countedMiss bool // Miss is counted once
}

// run looks up an entry and, if need be, waits for a fill, a few times at most:
// a fill that it has waited for may be of no use to it.
func (g *getCall) run(ctx context.Context) (*Answer, error) {
	for attempt := 0; ; attempt++ {
		found, now := g.cache.find(g.key, g.forwarded), time.Now()
		var j freshness.Judgement
		if found != nil {
			j = found.judge(g.header, now, g.policy.keep)
		} else if freshness.RequestDirectives(g.header).OnlyIfCached {
			j.Verdict = freshness.Unusable
		}
		switch j.Verdict {
		case freshness.Unusable:
			return nil, refuse("", fault.New(opGet, fault.Timeout, "not in the cache, and the request says only-if-cached"))
		case freshness.Fresh, freshness.StaleWhileRevalidate:
			answer, err := g.hit(ctx, found, j, now)
			if answer != nil || err != nil {
				return answer, err
			}
			continue // it was evicted: the entry is gone now, so this happens a few times at most
		}
		answer, err := g.fetch(ctx, attempt, found, j)
		if answer != nil || err != nil {
			return answer, err
		}
	}
}

// hit answers with an entry, and starts a refresh if it is stale. It returns no
// answer if the store has evicted the body.
func (g *getCall) hit(ctx context.Context, found *entry, j freshness.Judgement, now time.Time) (*Answer, error) {
	handle, err := g.cache.open(ctx, found)
	if handle == nil {
		return nil, err
	}
	if j.Verdict == freshness.StaleWhileRevalidate && checkForwarded(g.forwarded) == nil && g.admit() == nil {
		g.cache.startRefresh(g.fillRequest, now)
	}
	g.cache.spec.Counters.Hit()
	answer := newAnswer(found, handle, j.Age, true)
	answer.Stale, answer.FreshUntil = j.Verdict != freshness.Fresh, found.freshUntil(j, now)
	return answer, nil
}

// fetch waits for a fill. It returns neither an answer nor an error if the
// answer of the fill is for other requests only.
func (g *getCall) fetch(ctx context.Context, round int, found *entry, j freshness.Judgement) (*Answer, error) {
	c := g.cache
	if err := checkForwarded(g.forwarded); err != nil {
		return nil, err
	}
	if !g.countedMiss {
		g.countedMiss = true
		c.spec.Counters.Miss()
	}
	f, leader, err := c.join(g.fillRequest, round >= maxJoins, g.admit)
	if err == nil {
		hasStale := j.Verdict == freshness.StaleIfError
		var body *streamingBody
		if body, err = c.await(ctx, f, hasStale); body != nil {
			return g.follow(ctx, f, body, leader), nil
		}
	}
	if err != nil {
		return g.serveStale(ctx, found, j, err)
	}
	out := f.outcome
	if !leader && !((out.shared || out.sharedFailure) && out.entry.matches(g.forwarded)) {
		out.bodyHandle.release()
		return nil, nil
	}
	if out.failed {
		if answer := g.staleForFailure(ctx, out, found, j); answer != nil {
			return answer, nil
		}
	}
	now := time.Now()
	fresh := out.entry.judge(g.header, now, g.policy.keep)
	answer := newAnswer(out.entry, &handleRef{Handle: out.bodyHandle.handle, shared: out.bodyHandle}, fresh.Age, false)
	answer.FreshUntil = out.entry.freshUntil(fresh, now)
	return answer, nil
}

// follow answers with a body that is still arriving. It returns nil if that is
// for other requests only.
func (g *getCall) follow(ctx context.Context, f *flight, body *streamingBody, leader bool) *Answer {
	if !leader && !(body.shared && body.entry.matches(g.forwarded)) {
		g.cache.leave(f)
		return nil
	}
	now := time.Now()
	j := body.entry.judge(g.header, now, g.policy.keep)
	answer := &Answer{Status: body.entry.resp.Status, Header: body.entry.header(j.Age, false), Age: j.Age, FreshUntil: body.entry.freshUntil(j, now)}
	answer.follower = &follower{ctx: ctx, cache: g.cache, flight: f, body: body, began: g.began}
	return answer
}

// staleForFailure answers with a stale entry instead of a failing response of
// the origin, if that is allowed. Otherwise the failure is the answer, and is
// counted.
func (g *getCall) staleForFailure(ctx context.Context, out outcome, found *entry, j freshness.Judgement) *Answer {
	status := out.entry.resp.Status
	if freshness.ErrorStatus(status) && j.Verdict == freshness.StaleIfError {
		if answer, err := g.serveStale(ctx, found, j, fault.New(opOrigin, fault.UpstreamFailed, "the origin answered %d", status)); err == nil {
			out.bodyHandle.release()
			return answer
		}
	}
	g.cache.countRelayed(Event{URL: g.target.redacted(), Status: status, Took: time.Since(g.began)})
	return nil
}

// serveStale answers with a stale entry, if that is allowed when the origin
// fails.
func (g *getCall) serveStale(ctx context.Context, found *entry, j freshness.Judgement, failure error) (*Answer, error) {
	switch fault.KindOf(failure) {
	case fault.Timeout, fault.UpstreamFailed, fault.Busy, fault.RateLimited, fault.NotReady, fault.BreakerOpen:
	default:
		return nil, failure
	}
	if j.Verdict != freshness.StaleIfError {
		return nil, failure
	}
	if answer, err := g.hit(ctx, found, found.judge(g.header, time.Now(), g.policy.keep), time.Now()); err == nil && answer != nil {
		g.cache.spec.Counters.Stale()
		return answer, nil
	}
	return nil, failure
}
