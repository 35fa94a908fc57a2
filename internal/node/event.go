package node

// Event is what is told on the node bus. Exactly one kind of news each; a
// reader that missed some reads the state they led to instead.
type Event struct {
	Type   EventType
	Name   string // the service, for ServiceRestarted; the peer, for news of the overlay; the version, for news of the registry
	Detail string // in words, for logs
}

// EventType is one of a fixed set.
type EventType string

const (
	// Shutdown starts the same drain that SIGTERM does.
	Shutdown EventType = "shutdown"
	// ConfigUpdated says that another configuration is in force.
	ConfigUpdated EventType = "config updated"
	// ServiceRestarted says that a service failed and runs again.
	ServiceRestarted EventType = "service restarted"
	// SessionOpened says that a peer, Name, is connected.
	SessionOpened EventType = "session opened"
	// SessionClosed says that it is not any more.
	SessionClosed EventType = "session closed"
	// AuthFailure says that somebody was not let in, or handed over a forged letter.
	AuthFailure EventType = "auth failure"
	// RegistryUpdated says that the registry has a new version: its number is
	// Name, its hash Detail.
	RegistryUpdated EventType = "registry updated"
	// ReadyChanged says that readiness is another than before.
	ReadyChanged EventType = "ready changed"
)
