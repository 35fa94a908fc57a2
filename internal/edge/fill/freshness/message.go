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

// Request is what a cache has to know of a request. An empty Method is GET, as
// in net/http.
type Request struct {
	Method string
	Header http.Header
}

// Policy is what the operator decides where the standard leaves it open. Zero
// means zero: the empty policy guesses nothing and forgives nothing.
type Policy struct {
	// Heuristic is the longest lifetime that may be guessed from Last-Modified.
	Heuristic time.Duration
	// Negative is the lifetime of cacheable errors (404, 410 …) that do not say
	// one themselves.
	Negative time.Duration
	// StaleIfError is how long after its end a response may still stand in for
	// an origin that fails, if the response does not say so itself.
	StaleIfError time.Duration
}

// forever is the largest duration. Sums stop there.
const forever = time.Duration(math.MaxInt64)

// plus adds two durations that are not negative, without ever wrapping round.
func plus(a, b time.Duration) time.Duration {
	if a > forever-b {
		return forever
	}
	return a + b
}

// since is the time from one moment to another, or zero if it is not later.
// Time.Sub stops at the largest duration by itself.
func since(from, to time.Time) time.Duration {
	return max(0, to.Sub(from))
}

// method returns the method that is meant: none is GET.
func (r Request) method() string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}
