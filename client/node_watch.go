package client

import (
	"context"
	"net/http"
	"time"
)

// NodeEvent is an event of a node. The types are shutdown, config_updated,
// service_restarted, session_opened, session_closed, auth_failure,
// registry_updated and ready_changed; later nodes may add some.
type NodeEvent struct {
	Type   string    `json:"type"`
	At     time.Time `json:"at"`
	Name   string    `json:"name,omitempty"`   // of the service, the peer or the version that it is about
	Detail string    `json:"detail,omitempty"` // in words
}

// NodeWatch is the stream of events of a node. It is for one goroutine, and
// must be closed.
type NodeWatch struct {
	stream *Subscription // set at construction: reads the events and ends the stream
}

// WatchNode opens the stream of events of the node. It requires the scope
// admin, or the local socket. The context must live as long as the watch.
func (c *Client) WatchNode(ctx context.Context) (*NodeWatch, error) {
	stream, err := c.newCall(ctx, "client.watchnode", http.MethodGet, "/admin/events").stream(ctx, http.Header{})
	if err != nil {
		return nil, err
	}
	return &NodeWatch{stream}, nil
}

// Next waits for the next event. A [*Lagged] says that events were lost; the
// next call of Next continues. Every other error ends the watch, as with
// [Subscription.Next].
func (w *NodeWatch) Next(ctx context.Context) (happened NodeEvent, err error) {
	err = w.stream.nextEvent(ctx, func(one event) (bool, error) {
		if one.name != "node" {
			return false, nil
		}
		return true, w.stream.call.unmarshal(one.data, &happened)
	})
	if err != nil {
		return NodeEvent{}, err
	}
	return happened, nil
}

// Close ends the watch. The error is always nil.
func (w *NodeWatch) Close() error { return w.stream.Close() }

// ShutdownRequest says why a node is to stop.
type ShutdownRequest struct {
	Reason string `json:"reason,omitempty"` // for its log; empty is "by an operator"
}

// ShuttingDown is the answer: the node drains, and stops within seconds.
type ShuttingDown struct {
	Reason string `json:"reason"`
}

// Shutdown makes the process that answers drain and stop, as SIGTERM does. It
// requires the scope admin, or the local socket.
func (c *Client) Shutdown(ctx context.Context, reason string) error {
	return c.newCall(ctx, "client.shutdown", http.MethodPost, "/admin/shutdown").doJSON(ctx, ShutdownRequest{Reason: reason}, nil)
}
