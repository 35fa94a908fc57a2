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
	ReasonNotAllowed = "not_allowed"    // the origin, or what is asked of it, is not allowed
	ReasonInflate    = "decompress_cap" // the body is a bomb
	ReasonBody       = "body_cap"       // the body is too large
	ReasonTimeout    = "timeout"        // it took too long
	ReasonRate       = "rate_limit"     // the service takes no more misses in this second
	ReasonValidator  = "etag_invalid"   // a validator that is none, or that is not ours
	ReasonBusy       = "busy"           // the queue is full
	ReasonUpstream   = "upstream"       // the origin failed in some other way
)

// refusal is an error that knows what it is counted as.
type refusal struct {
	reason string
	error
}

func (r *refusal) Unwrap() error { return r.error }

func refuse(reason string, err error) error { return &refusal{reason, err} }

// reasonOf is what an error is counted as; empty if it is not counted, because
// nobody was refused: the client left, or the node is draining.
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
	default:
		return ""
	}
}

// upstream is a failure of the origin that is not worth a reason of its own.
func upstream(cause error, format string, args ...any) error {
	err := fault.New(opOrigin, fault.UpstreamFailed, format, args...)
	err.Err = cause
	return err
}

// Event tells the audit what the cache did.
type Event struct {
	Type   EventType
	URL    string // without what is in the query
	Status int    // what the origin answered; zero if it did not
	Bytes  int64  // of the body
	Took   time.Duration
	Reason string // of a refusal: one of the reasons
	Count  int    // of a purge: how many answers were forgotten
}

// Fetched reports whether an origin answered: what the cache is there for.
func (e Event) Fetched() bool { return e.Type == EventFilled || e.Type == EventRevalidated }

// EventType is what an event is about.
type EventType string

// The types of events.
const (
	EventFilled      EventType = "fill"        // an answer was fetched
	EventRevalidated EventType = "revalidated" // what we hold is still right
	EventRefused     EventType = "refusal"
	EventPurged      EventType = "purge"
)

// Counters is where the cache counts. Each may be called by many at once; nil
// counts nothing.
type Counters struct {
	Hit       func() // answered from what was here, fresh or stale
	Miss      func() // had to ask the origin
	Coalesced func() // a miss that joined a fill under way
	Retry     func() // one more try
	Unwritten func() // an answer, or what is remembered of one, that the disk did not take
	Filled    func(time.Duration)
	Reject    func(reason string)
}

// orNothing replaces what is nil, so that nobody has to look.
func (c Counters) orNothing() Counters {
	for _, count := range []*func(){&c.Hit, &c.Miss, &c.Coalesced, &c.Retry, &c.Unwritten} {
		if *count == nil {
			*count = func() {}
		}
	}
	if c.Filled == nil {
		c.Filled = func(time.Duration) {}
	}
	if c.Reject == nil {
		c.Reject = func(string) {}
	}
	return c
}
