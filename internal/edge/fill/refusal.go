package fill

import (
	"errors"
	"time"

	"micronode/fault"
)

// The reasons for which the cache refuses, as they are counted. There are no
// others.
const (
	ReasonAmnesia    = "amnesia"        // it does not fit into memory, and there is no disk
	ReasonNotAllowed = "not_allowed"    // the origin, or the request, is not allowed
	ReasonInflate    = "decompress_cap" // the body is a decompression bomb
	ReasonBody       = "body_cap"       // the body is too large
	ReasonTimeout    = "timeout"        // it took too long
	ReasonRate       = "rate_limit"     // the service accepts no more misses in this second
	ReasonValidator  = "etag_invalid"   // an invalid validator, or one that is not ours
	ReasonBusy       = "busy"           // the queue is full
	ReasonUpstream   = "upstream"       // the origin failed in some other way
	ReasonBreaker    = "breaker"        // the breaker of the origin is open
)

// refusal is an error with the reason that it is counted under.
type refusal struct {
	reason string
	error
}

func (r *refusal) Unwrap() error { return r.error }

func refuse(reason string, err error) error { return &refusal{reason, err} }

// reasonOf is the reason that an error is counted under; empty if it is no
// refusal: the client disconnected, or the node is draining.
func reasonOf(err error) string {
	if known, ok := errors.AsType[*refusal](err); ok {
		return known.reason
	}
	switch fault.KindOf(err) {
	case fault.Busy:
		return ReasonBusy
	case fault.RateLimited:
		return ReasonRate
	case fault.Timeout:
		return ReasonTimeout
	case fault.UpstreamFailed:
		return ReasonUpstream
	case fault.BreakerOpen:
		return ReasonBreaker
	default:
		return ""
	}
}

// upstreamFault is a failure of the origin without a reason of its own.
func upstreamFault(cause error, format string, args ...any) error {
	err := fault.New(opOrigin, fault.UpstreamFailed, format, args...)
	err.Err = cause
	return err
}

// Event reports to the audit what the cache did.
type Event struct {
	Type   EventType
	URL    string // without the query
	Status int    // of the origin's response; zero if there was none
	Bytes  int64  // of the body
	Took   time.Duration
	Reason string // of a refusal: one of the reasons
	Detail string // of a refusal: why, in words
	Count  int    // of a purge: how many answers were removed
}

// Fetched reports whether an origin answered.
func (e Event) Fetched() bool { return e.Type == EventFilled || e.Type == EventRevalidated }

// EventType is what an event is about.
type EventType string

// The types of events.
const (
	EventFilled        EventType = "fill"        // an answer was fetched
	EventRevalidated   EventType = "revalidated" // an entry is still valid
	EventRefused       EventType = "refusal"
	EventPurged        EventType = "purge"
	EventBreakerOpened EventType = "breaker opened" // an origin failed too often
)

// Counters is where the cache counts. Each may be called concurrently; nil
// counts nothing.
type Counters struct {
	Hit           func()          // answered from an entry, fresh or stale
	Miss          func()          // had to ask the origin
	Coalesced     func()          // a miss that joined a fill under way
	Stale         func()          // answered with a stale entry, because the origin could not be asked or failed
	BreakerOpened func()          // an origin failed too often, and its breaker opened
	Retry         func()          // one more try
	TimedOut      func(op string) // a try that timed out: connect or fill
	GivenUp       func()          // a fill under way that nobody waited for any more
	WriteFailed   func()          // a body or an entry that the disk did not accept
	Filled        func(time.Duration)
	Reject        func(reason string)
}

// withDefaults replaces nil functions, so that callers need no check.
func (c Counters) withDefaults() Counters {
	for _, count := range []*func(){&c.Hit, &c.Miss, &c.Coalesced, &c.Stale, &c.BreakerOpened, &c.Retry, &c.GivenUp, &c.WriteFailed} {
		if *count == nil {
			*count = func() {}
		}
	}
	if c.Filled == nil {
		c.Filled = func(time.Duration) {}
	}
	if c.TimedOut == nil {
		c.TimedOut = func(string) {}
	}
	if c.Reject == nil {
		c.Reject = func(string) {}
	}
	return c
}
