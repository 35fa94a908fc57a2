package freshness

import (
	"math"
	"net/http"
	"time"
)

// Response is a response as it was received, or as it is stored.
type Response struct {
	Status int
	Header http.Header

	// RequestTime is when the request that led to this response, or to the
	// latest validation of it, was sent. Zero counts as ResponseTime.
	RequestTime time.Time
	// ResponseTime is when the header of that response had been received.
	ResponseTime time.Time
}

// Request is what a cache needs to know of a request. An empty Method is GET,
// as in net/http.
type Request struct {
	Method string
	Header http.Header
}

// Policy is what the operator decides where the standard leaves it open. The
// zero policy allows no heuristic lifetime and no stale use.
type Policy struct {
	// Heuristic is the longest heuristic lifetime by Last-Modified.
	Heuristic time.Duration
	// Negative is the lifetime of cacheable errors (404, 410 …) that do not
	// state one themselves.
	Negative time.Duration
	// StaleIfError is how long after the end of its lifetime a response may be
	// used when the origin fails, if the response does not say itself.
	StaleIfError time.Duration
}

// forever is the largest duration. Sums saturate there.
const forever = time.Duration(math.MaxInt64)

// saturatingAdd adds two durations that are not negative, without wrapping
// round.
func saturatingAdd(a, b time.Duration) time.Duration {
	if a > forever-b {
		return forever
	}
	return a + b
}

// since is the time from one moment to another, or zero if that is not later.
// Time.Sub saturates at the largest duration.
func since(from, to time.Time) time.Duration {
	return max(0, to.Sub(from))
}

// method returns the method; an empty one is GET.
func (r Request) method() string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}
