package fill

import (
	"net/http"
	"time"

	"micronode/b3"
	"micronode/internal/edge/fill/freshness"
)

// entry is one stored response of an origin. It is immutable: a revalidation
// makes a new one.
type entry struct {
	key           string
	vary          []string    // names of the headers that it varies by
	varyValues    http.Header // their values in the request that it answers
	resp          freshness.Response
	redirectUntil time.Time // end of the lifetime of the redirects that led to it; zero if none has one
	address       b3.Address
	size          int64
}

// newEntry makes an entry of a response.
func newEntry(key string, sent http.Header, resp freshness.Response, until time.Time) *entry {
	e := &entry{key: key, resp: resp, redirectUntil: until}
	e.vary, _ = freshness.VaryFields(resp.Header.Values("Vary"))
	for _, name := range e.vary {
		if values, given := sent[http.CanonicalHeaderKey(name)]; given {
			if e.varyValues == nil {
				e.varyValues = http.Header{}
			}
			e.varyValues[http.CanonicalHeaderKey(name)] = values
		}
	}
	return e
}

// revalidated is an entry after the origin revalidated it.
func (e *entry) revalidated(resp freshness.Response, until time.Time) *entry {
	fresh := newEntry(e.key, e.varyValues, resp, until)
	fresh.address, fresh.size = e.address, e.size
	return fresh
}

// matches reports whether it answers a request with these headers.
func (e *entry) matches(sent http.Header) bool {
	return len(e.vary) == 0 || freshness.Matches(e.vary, e.varyValues, sent)
}

// variant distinguishes the entries of one key.
func (e *entry) variant() string {
	name, _ := freshness.VaryKey(e.resp, freshness.Request{Method: http.MethodGet, Header: e.varyValues})
	return name
}

// judge decides how the entry may be used.
func (e *entry) judge(header http.Header, now time.Time, policy freshness.Policy) freshness.Judgement {
	j := freshness.Judge(freshness.Request{Method: http.MethodGet, Header: header}, e.resp, now, policy)
	fresh := j.Verdict == freshness.Fresh || j.Verdict == freshness.StaleWhileRevalidate
	if fresh && !e.redirectUntil.IsZero() && !now.Before(e.redirectUntil) {
		j.Verdict = freshness.MustRevalidate
	}
	return j
}

// freshUntil is when the entry stops being fresh, by a judgement made now.
func (e *entry) freshUntil(j freshness.Judgement, now time.Time) time.Time {
	until := now.Add(j.Lifetime - j.Age)
	if !e.redirectUntil.IsZero() && e.redirectUntil.Before(until) {
		return e.redirectUntil
	}
	return until
}

// cost is about how much memory it takes, without the body.
func (e *entry) cost() int64 {
	cost := entryCost + len(e.key)
	for _, header := range []http.Header{e.varyValues, e.resp.Header} {
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
	entryCost  = 512 // the structs, and their slots in maps and lists
	headerCost = 32  // a string or a slice, and its slot in a map
)
