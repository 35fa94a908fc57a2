package freshness

import (
	"net/http"
	"strconv"
	"time"
)

// Verdict says what may be done with a stored response.
type Verdict int

// The verdicts. The zero value is the one that promises nothing.
const (
	MustRevalidate       Verdict = iota // ask the origin; of no use if that fails
	Fresh                               // use it
	StaleWhileRevalidate                // use it, and refresh it in the background
	StaleIfError                        // ask the origin; use it if that fails
	Unusable                            // the client wants only what is cached: 504
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
		asked:    RequestDirectives(req.Header),
		said:     ResponseDirectives(resp.Header),
		age:      Age(resp, now),
		lifetime: Lifetime(resp, o),
	}
	j := Judgement{Age: c.age, Lifetime: c.lifetime}
	j.Verdict, j.Reason = c.verdict(o)
	if m := req.method(); m != http.MethodGet && m != http.MethodHead {
		j.Verdict, j.Reason = MustRevalidate, "the method goes to the origin"
	}
	if c.asked.OnlyIfCached && (j.Verdict == MustRevalidate || j.Verdict == StaleIfError) {
		j.Verdict = Unusable
		j.Reason += ", and the request says only-if-cached"
	}
	return j
}

// comparison is what is known when a request meets a stored response.
type comparison struct {
	asked    Directives // by the request
	said     Directives // by the response
	age      time.Duration
	lifetime time.Duration
}

// verdict goes from the orders that leave no choice to the permissions.
func (c comparison) verdict(o Policy) (Verdict, string) {
	switch {
	case c.said.NoCache || namesFraming(c.said.NoCacheFields):
		return MustRevalidate, "the response says no-cache"
	case c.asked.NoCache || len(c.asked.NoCacheFields) > 0:
		return MustRevalidate, "the request says no-cache"
	}
	complaint := c.complaint()
	if c.fresh() && complaint == "" {
		return Fresh, ""
	}
	if !c.fresh() {
		if c.bound() {
			return MustRevalidate, "it is stale, and the response forbids to use it so"
		}
		if complaint == "" {
			if reason := c.pardon(); reason != "" {
				return StaleWhileRevalidate, reason
			}
			complaint = "it is stale"
		}
	}
	if window := c.errorWindow(o); window > 0 && c.staleness() <= window {
		return StaleIfError, complaint
	}
	return MustRevalidate, complaint
}

// fresh: the lifetime is larger than the age (RFC 9111 §4.2).
func (c comparison) fresh() bool { return c.lifetime > c.age }

// staleness is how long ago the response stopped to be fresh.
func (c comparison) staleness() time.Duration { return max(0, c.age-c.lifetime) }

// bound reports whether the response forbids to be used when it is stale
// (RFC 9111 §4.2.4, §5.2.2.2, §5.2.2.8, §5.2.2.10).
func (c comparison) bound() bool {
	return c.said.MustRevalidate || c.said.ProxyRevalidate || c.said.SMaxAge.Given
}

// complaint is what the request has against the response as it is, or "":
// max-age (RFC 9111 §5.2.1.1) and min-fresh (§5.2.1.3). A number that cannot be
// read cannot be satisfied.
func (c comparison) complaint() string {
	if left := c.asked.MinFresh; left.Given && (!left.Valid || c.lifetime < plus(c.age, left.Span)) {
		return "it is not as fresh as the request wants it for"
	}
	limit := c.asked.MaxAge
	switch {
	case !limit.Given || c.fresh() && c.said.Immutable:
		return ""
	case !limit.Valid || c.age > limit.Span:
		return "it is older than the request wants it"
	case !c.fresh() && !c.asked.MaxStale.Given:
		return "it is stale, and the request sets max-age without max-stale"
	}
	return ""
}

// pardon is why a stale response may be used at once, or "": the request accepts
// it (max-stale, RFC 9111 §5.2.1.2) or the response offers it
// (stale-while-revalidate, RFC 5861 §3).
func (c comparison) pardon() string {
	offer := c.said.StaleWhileRevalidate.Span
	switch {
	case c.asked.MaxStale.Valid && c.staleness() <= c.asked.MaxStale.Span:
		return "it is stale, and the request accepts that"
	case offer > 0 && c.staleness() <= offer:
		return "it is stale, and the response allows to use it meanwhile"
	}
	return ""
}

// errorWindow is how long after its end the response may stand in for an origin
// that fails (RFC 5861 §4).
func (c comparison) errorWindow(o Policy) time.Duration {
	own := o.StaleIfError
	if c.said.StaleIfError.Given {
		own = c.said.StaleIfError.Span
	}
	return max(own, c.asked.StaleIfError.Span)
}

// ErrorStatus reports whether a response of the origin is a failure for which
// stale-if-error was made (RFC 5861 §4). No response at all is one too.
func ErrorStatus(status int) bool {
	return status == 500 || status == 502 || status == 503 || status == 504
}
