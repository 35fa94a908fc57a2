package node

// Event is what is told on the node bus. Exactly one kind of news each; a
// reader that missed some reads the state they led to instead.
type Event struct {
	Type   EventType
	Name   string // the service, for ServiceRestarted
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
	// ReadyChanged says that readiness is another than before.
	ReadyChanged EventType = "ready changed"
)
