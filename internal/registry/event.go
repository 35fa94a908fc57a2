package registry

import (
	"time"

	"micronode/internal/registry/ledger"
)

// Event is what is told of the registry for the record: who asked for what, and
// what came of it. Refusals are told, too. In amnesia nothing else outlives the
// node, so whoever must know later listens to these.
type Event struct {
	Type     EventType
	Time     time.Time
	Proposal string
	Signer   string
	Version  uint64
	Diff     ledger.Diff // what was proposed or committed
	Detail   string      // in words: the reason of a refusal
}

// EventType is one of a fixed set.
type EventType string

// What can happen.
const (
	Initialised  EventType = "registry initialised"
	Proposed     EventType = "registry proposed"
	Approved     EventType = "registry approved"
	CommittedNow EventType = "registry committed"
	Refused      EventType = "registry refused"
	Checkpointed EventType = "registry checkpoint kept"
	Pruned       EventType = "registry pruned"
	Damaged      EventType = "registry damaged"
	Failed       EventType = "registry storage failed" // a checkpoint or a prune; the next one tries again
)

// Committed is a version that was just added.
type Committed struct {
	Head ledger.Head
	At   time.Time
}
