package fill

import (
	"net/http"
	"time"

	"micronode/b3"
	"micronode/internal/edge/fill/freshness"
)

// entry is one answer of an origin, as it is remembered. It is never changed:
// what is learnt later makes a new one.
type entry struct {
	key     string
	vary    []string    // names of the headers that it varies by
	sent    http.Header // their values in the request that it answers
	resp    freshness.Response
	until   time.Time // a redirect on the way to it is right until then; zero if none says
	address b3.Address
	size    int64
}

// newEntry is what is remembered of an answer.
func newEntry(key string, sent http.Header, resp freshness.Response, until time.Time) *entry {
	e := &entry{key: key, resp: resp, until: until}
	e.vary, _ = freshness.VaryFields(resp.Header.Values("Vary"))
	for _, name := range e.vary {
		if values, given := sent[http.CanonicalHeaderKey(name)]; given {
			if e.sent == nil {
				e.sent = http.Header{}
			}
			e.sent[http.CanonicalHeaderKey(name)] = values
		}
	}
	return e
}

// renewed is an entry after the origin said that it is still right.
func (e *entry) renewed(resp freshness.Response, until time.Time) *entry {
	fresh := newEntry(e.key, e.sent, resp, until)
	fresh.address, fresh.size = e.address, e.size
	return fresh
}

// answers reports whether it is an answer to what was sent.
func (e *entry) answers(sent http.Header) bool {
	return len(e.vary) == 0 || freshness.Matches(e.vary, e.sent, sent)
}

// variant tells the answers of one key apart.
func (e *entry) variant() string {
	name, _ := freshness.VaryKey(e.resp, freshness.Request{Method: http.MethodGet, Header: e.sent})
	return name
}

// judge says what may be done with it.
func (e *entry) judge(header http.Header, now time.Time, policy freshness.Policy) freshness.Judgement {
	j := freshness.Judge(freshness.Request{Method: http.MethodGet, Header: header}, e.resp, now, policy)
	fresh := j.Verdict == freshness.Fresh || j.Verdict == freshness.StaleWhileRevalidate
	if fresh && !e.until.IsZero() && !now.Before(e.until) {
		j.Verdict = freshness.MustRevalidate
	}
	return j
}

// freshUntil is how long it needs no question, counted from a judgement.
func (e *entry) freshUntil(j freshness.Judgement, now time.Time) time.Time {
	until := now.Add(j.Lifetime - j.Age)
	if !e.until.IsZero() && e.until.Before(until) {
		return e.until
	}
	return until
}

// cost is about what it takes of memory, without the body.
func (e *entry) cost() int64 {
	cost := entryCost + len(e.key)
	for _, header := range []http.Header{e.sent, e.resp.Header} {
		for name, values := range header {
			cost += len(name) + headerCost
			for _, value := range values {
				cost += len(value) + headerCost
			}
		}
	}
	return int64(cost)
}

const (
	entryCost  = 512 // the structs, and the places in maps and lists
	headerCost = 32  // a string or a slice, and its place in a map
)
