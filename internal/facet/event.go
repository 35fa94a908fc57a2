package facet

import "time"

// Event is an event of the facets for the audit log. It says what was done and
// what the result was, never who asked.
type Event struct {
	Type   EventType
	Time   time.Time
	Facet  string // feed, graph, search or media
	Key    string // what it is about
	Detail string // in words
}

// EventType is one of a fixed set.
type EventType string

// What can happen.
const (
	Posted      EventType = "posted"
	Undelivered EventType = "post not delivered" // this time; the mailbox redelivers it, or keeps it as a dead letter
	HeldUp      EventType = "post held up"       // an owner is away; it continues when that is back
	Followed    EventType = "followed"
	Unfollowed  EventType = "unfollowed"
)

// audit publishes an event to the audit log. It never waits.
func (f *Facets) audit(e Event) {
	e.Time = time.Now()
	_ = f.events.Publish(e) // a closed bus has no readers left
}
