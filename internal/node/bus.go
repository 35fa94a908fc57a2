package node

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/ingress"
)

// busRoutes is the node bus for operators: its events, and the shutdown.
func (n *Node) busRoutes() []ingress.Route {
	return []ingress.Route{
		{Service: service, Methods: []string{http.MethodGet}, Pattern: "/admin/events", Handler: n.handleEvents, Class: ingress.Stream, Scope: string(capability.Admin),
			Docs: ingress.Docs{Summary: "Stream the events of the node",
				Description: "Server-sent events, or a WebSocket on Upgrade: node for each event from now on; lagged if events were lost, after which GET /admin/status has the current state.",
				Responses: []ingress.Response{{Status: http.StatusOK, Type: "text/event-stream", Doc: "Events, until the client leaves."},
					{Status: http.StatusSwitchingProtocols, Doc: "A WebSocket, if it was asked for."}},
				Kinds: []fault.Kind{fault.Busy}}},
		{Service: service, Methods: []string{http.MethodPost}, Pattern: "/admin/shutdown", Handler: n.handleShutdown, Class: ingress.Control, Scope: string(capability.Admin), BodyCap: 4 << 10,
			Docs: ingress.Docs{Summary: "Drain the process and stop it, as on SIGTERM",
				Request: client.ShutdownRequest{}, Responses: []ingress.Response{{Status: http.StatusAccepted, Body: client.ShuttingDown{}, Doc: "It will."}}}},
	}
}

// maxReason is how much of the reason for a shutdown gets into the log.
const maxReason = 200

// handleShutdown publishes the shutdown on the bus, as a part of the node
// would.
func (n *Node) handleShutdown(w http.ResponseWriter, r *http.Request) error {
	var request client.ShutdownRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	reason := strings.TrimSpace(request.Reason)
	if reason == "" {
		reason = "by an operator"
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	if err := ingress.WriteJSON(w, http.StatusAccepted, client.ShuttingDown{Reason: reason}); err != nil {
		return err
	}
	n.PublishEvent(Event{Type: Shutdown, Detail: reason}) // the drain lets this answer finish
	return nil
}

// busReaders is how many readers the bus has, and operatorReaders how many of
// them are for GET /admin/events. The node itself needs the rest.
const (
	busReaders      = 64
	operatorReaders = busReaders - 8
)

// readerShares counts the readers of events by the token that they were opened
// with, together with all tokens that were derived from the same one.
type readerShares struct {
	mu    sync.Mutex //lockblock:leaf guards a map
	held  map[capability.TokenID]int
	total int
}

// acquire takes a reader for a token. A token gets as many as it leaves free: so
// one token gets half of them, and however many are greedy, one is left for the
// next.
func (s *readerShares) acquire(token string) (release func(), err error) {
	id, err := capability.RootID(token)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if free := operatorReaders - s.total; s.held[id] >= free {
		return nil, &fault.Error{Op: "node.events", Kind: fault.Busy, Detail: "this token has its share of the readers of events",
			Next: "Close a stream that you do not read, or share one stream."}
	}
	if s.held == nil {
		s.held = map[capability.TokenID]int{}
	}
	s.held[id]++
	s.total++
	return func() { s.release(id) }, nil
}

func (s *readerShares) release(id capability.TokenID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.held[id]--; s.held[id] == 0 {
		delete(s.held, id)
	}
}

func (n *Node) handleEvents(w http.ResponseWriter, r *http.Request) error {
	if token := ingress.Bearer(r.Header); token != "" && !ingress.Local(r) {
		release, err := n.eventReaders.acquire(token)
		if err != nil {
			return err
		}
		defer release()
	}
	reader, err := n.bus.Subscribe("operator", nil)
	if err != nil {
		return err
	}
	defer reader.Close()
	next := func(ctx context.Context) (ingress.Event, error) {
		event, err := reader.Recv(ctx)
		if err != nil {
			return ingress.Event{}, err
		}
		data, err := json.Marshal(event)
		return ingress.Event{Name: "node", Data: data}, err
	}
	if ingress.IsUpgrade(r) {
		return ingress.WebSocket(w, r, next)
	}
	return ingress.SSE(w, r, next)
}

// Event is an event on the node bus. Each has exactly one type; a reader that
// lost some reads the resulting state instead.
type Event struct {
	Type   EventType `json:"type"`
	At     time.Time `json:"at"`               // when it was published
	Name   string    `json:"name,omitempty"`   // the service, for ServiceRestarted; the peer, for events of the overlay; the version, for those of the registry
	Detail string    `json:"detail,omitempty"` // in words, for logs

	number uint64 // among all that were published; see recentEvents
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
