package overlay

import "micronode/internal/oap"

// Event is news of the overlay.
type Event struct {
	Type   EventType
	Peer   oap.PeerID
	Addr   string
	PQ     bool
	Detail string // in words
}

// EventType is one of a fixed set.
type EventType string

const (
	// SessionOpened says that a peer is connected.
	SessionOpened EventType = "session opened"
	// SessionClosed says that it is not any more, and why.
	SessionClosed EventType = "session closed"
	// AuthFailure says that somebody was not let in, or was parted from because
	// it handed over a forged letter.
	AuthFailure EventType = "auth failure"
)
