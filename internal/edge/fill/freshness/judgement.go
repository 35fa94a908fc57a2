package freshness

import (
	"net/http"
	"strconv"
	"time"
)

// Verdict says how a stored response may be used.
type Verdict int

// The verdicts. The zero value is the one that promises nothing.
const (
	MustRevalidate       Verdict = iota // ask the origin; not usable if that fails
	Fresh                               // use it
	StaleWhileRevalidate                // use it, and refresh it in the background
	StaleIfError                        // ask the origin; use it if that fails
	Unusable                            // the client accepts only cached responses: 504
)

var verdictNames = [...]string{"must-revalidate", "fresh", "stale-while-revalidate", "stale-if-error", "unusable"}

// String names the verdict.
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdictNames) {
		return "verdict " + strconv.Itoa(int(v))
	}
	return verdictNames[v]
}

// Judgement is a verdict and what led to it.
type Judgement struct {
	Verdict  Verdict
	Age      time.Duration
	Lifetime time.Duration
	Reason   string // why it is not simply fresh; empty if it is
}

// Judge decides whether a stored response may answer a request (RFC 9111 §4,
// without the choice of the variant: see [Matches]).
func Judge(req Request, resp Response, now time.Time, o Policy) Judgement {
	c := comparison{
		request:  RequestDirectives(req.Header),
		response: ResponseDirectives(resp.Header),
		age:      Age(resp, now),
		lifetime: Lifetime(resp, o),
	}
	j := Judgement{Age: c.age, Lifetime: c.lifetime}
	j.Verdict, j.Reason = c.verdict(o)
	if m := req.method(); m != http.MethodGet && m != http.MethodHead {
		j.Verdict, j.Reason = MustRevalidate, "the method goes to the origin"
	}
	if c.request.OnlyIfCached && (j.Verdict == MustRevalidate || j.Verdict == StaleIfError) {
		j.Verdict = Unusable
		j.Reason += ", and the request says only-if-cached"
	}
	return j
}

// comparison is what Judge knows of a request and a stored response.
type comparison struct {
	request  Directives // of the request
	response Directives // of the response
	age      time.Duration
	lifetime time.Duration
}

// verdict checks the directives that leave no choice first, then the
// permissions.
func (c comparison) verdict(o Policy) (Verdict, string) {
	switch {
	case c.response.NoCache || namesEssential(c.response.NoCacheFields):
		return MustRevalidate, "the response says no-cache"
	case c.request.NoCache || len(c.request.NoCacheFields) > 0:
		return MustRevalidate, "the request says no-cache"
	}
	objection := c.objection()
	if c.fresh() && objection == "" {
		return Fresh, ""
	}
	if !c.fresh() {
		if c.forbidsStale() {
			return MustRevalidate, "it is stale, and the response forbids stale use"
		}
		if objection == "" {
			if reason := c.allowedStale(); reason != "" {
				return StaleWhileRevalidate, reason
			}
			objection = "it is stale"
		}
	}
	if window := c.errorWindow(o); window > 0 && c.staleness() <= window {
		return StaleIfError, objection
	}
	return MustRevalidate, objection
}

// fresh reports whether the lifetime is larger than the age (RFC 9111 §4.2).
func (c comparison) fresh() bool { return c.lifetime > c.age }

// staleness is how long ago the response stopped being fresh.
func (c comparison) staleness() time.Duration { return max(0, c.age-c.lifetime) }

// forbidsStale reports whether the response forbids its use when it is stale
// (RFC 9111 §4.2.4, §5.2.2.2, §5.2.2.8, §5.2.2.10).
func (c comparison) forbidsStale() bool {
	return c.response.MustRevalidate || c.response.ProxyRevalidate || c.response.SMaxAge.Given
}

// objection is why the request does not accept the response as it is, or "":
// max-age (RFC 9111 §5.2.1.1) and min-fresh (§5.2.1.3). An invalid number
// cannot be satisfied.
func (c comparison) objection() string {
	if left := c.request.MinFresh; left.Given && (!left.Valid || c.lifetime < saturatingAdd(c.age, left.Span)) {
		return "it is not as fresh as the request wants it for"
	}
	limit := c.request.MaxAge
	switch {
	case !limit.Given || c.fresh() && c.response.Immutable:
		return ""
	case !limit.Valid || c.age > limit.Span:
		return "it is older than the request wants it"
	case !c.fresh() && !c.request.MaxStale.Given:
		return "it is stale, and the request sets max-age without max-stale"
	}
	return ""
}

// allowedStale is why a stale response may be used at once, or "": the request
// accepts it (max-stale, RFC 9111 §5.2.1.2) or the response offers it
// (stale-while-revalidate, RFC 5861 §3).
func (c comparison) allowedStale() string {
	offer := c.response.StaleWhileRevalidate.Span
	switch {
	case c.request.MaxStale.Valid && c.staleness() <= c.request.MaxStale.Span:
		return "it is stale, and the request accepts that"
	case offer > 0 && c.staleness() <= offer:
		return "it is stale, and the response allows to use it meanwhile"
	}
	return ""
}

// errorWindow is how long after the end of its lifetime the response may be
// used when the origin fails (RFC 5861 §4).
func (c comparison) errorWindow(o Policy) time.Duration {
	own := o.StaleIfError
	if c.response.StaleIfError.Given {
		own = c.response.StaleIfError.Span
	}
	return max(own, c.request.StaleIfError.Span)
}

// ErrorStatus reports whether the status of an origin's response is a failure
// in the sense of stale-if-error (RFC 5861 §4). No response at all is one too.
func ErrorStatus(status int) bool {
	return status == 500 || status == 502 || status == 503 || status == 504
}
