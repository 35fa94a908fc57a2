package registry

import (
	"time"

	"micronode/b3"
	"micronode/internal/registry/ledger"
)

// Event is an audit event: a request to the registry and its result, refusals
// included. In amnesia mode it is the only trace that remains after the node stops.
type Event struct {
	Type     EventType
	Time     time.Time
	Proposal string
	Signer   string
	Version  uint64
	Diff     ledger.Diff // what was proposed or committed
	Detail   string      // text, such as the reason of a refusal
}

// EventType is one of a fixed set.
type EventType string

// The types of events.
const (
	EventInitialised   EventType = "registry initialised"
	EventProposed      EventType = "registry proposed"
	EventApproved      EventType = "registry approved"
	EventCommitted     EventType = "registry committed"
	EventRefused       EventType = "registry refused"
	EventCheckpointed  EventType = "registry checkpoint kept"
	EventPruned        EventType = "registry pruned"
	EventDamaged       EventType = "registry damaged"
	EventStorageFailed EventType = "registry storage failed" // of a checkpoint or a prune; the next one retries
)

// Committed is a version that was just added, as it is announced to other nodes and to
// the subscribers of the stream.
type Committed struct {
	Version uint64     `json:"version"`
	Hash    b3.Address `json:"b3"`
	At      time.Time  `json:"committed_at"`
}
