package facet

import "time"

// Event is what is told of the facets for the record. It says what was done
// and what came of it, never who asked.
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
	Undelivered EventType = "post not delivered" // this time; the mailbox gives it out again, or keeps it as a dead letter
	HeldUp      EventType = "post held up"       // a part is away; it goes on when that is back
	Followed    EventType = "followed"
	Unfollowed  EventType = "unfollowed"
)

// audit tells an event to whoever keeps a record. It never waits.
func (f *Facets) audit(e Event) {
	e.Time = time.Now()
	_ = f.events.Publish(e) // a closed bus has no readers left
}
