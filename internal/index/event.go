package index

import (
	"time"
)

// Event is what is told of the index for the record. It says what was done and
// what came of it, never who asked.
type Event struct {
	Type   EventType
	Time   time.Time
	Key    string // what it is about: b3:…, name:…, or the key of a target
	Detail string // in words
}

// EventType is one of a fixed set.
type EventType string

// What can happen.
const (
	NameSet       EventType = "name set"
	NameDeleted   EventType = "name deleted"
	NameShadowed  EventType = "name shadowed" // the registry now says what a name of ours means
	NamePublished EventType = "name published"

	Reindexed EventType = "reindexed"
	Pinned    EventType = "pinned"
	Unpinned  EventType = "unpinned"
	Fetched   EventType = "fetched"

	BreakerOpened EventType = "breaker opened"    // a target failed too often and is left alone
	Lied          EventType = "target lied"       // it answered what cannot be true
	Failed        EventType = "announcing failed" // of an object or a name; the next round tries again
	Reconfigured  EventType = "index reconfigured"
)

// audit tells an event to whoever keeps a record. It never waits.
func (x *Index) audit(e Event) {
	e.Time = time.Now()
	_ = x.events.Publish(e) // a closed bus has no readers left
}
