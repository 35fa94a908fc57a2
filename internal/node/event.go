package node

import "time"

// Event is an event on the node bus. Each has exactly one type; a reader that
// lost some reads the resulting state instead.
type Event struct {
	Type   EventType `json:"type"`
	At     time.Time `json:"at"`               // when it was published
	Name   string    `json:"name,omitempty"`   // the service, for ServiceRestarted; the peer, for events of the overlay; the version, for those of the registry
	Detail string    `json:"detail,omitempty"` // in words, for logs
}

// EventType is one of a fixed set.
type EventType string

const (
	// Shutdown starts the same drain that SIGTERM does.
	Shutdown EventType = "shutdown"
	// ConfigUpdated means that another configuration is in force.
	ConfigUpdated EventType = "config_updated"
	// ServiceRestarted means that a service failed and runs again.
	ServiceRestarted EventType = "service_restarted"
	// SessionOpened means that the peer Name has connected.
	SessionOpened EventType = "session_opened"
	// SessionClosed means that the peer Name has disconnected.
	SessionClosed EventType = "session_closed"
	// AuthFailure means that a peer was rejected, or sent a forged message.
	AuthFailure EventType = "auth_failure"
	// RegistryUpdated means that the registry has a new version; its number is
	// Name, its hash Detail.
	RegistryUpdated EventType = "registry_updated"
	// ReadyChanged means that readiness has changed.
	ReadyChanged EventType = "ready_changed"
)
