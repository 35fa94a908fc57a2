package node

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/overlay"
)

// overlayStages is where the parts of the overlay run.
var overlayStages = overlay.Stages{State: stageState, Workers: stageWorkers, Intake: stageIntake}

// openOverlay makes the overlay and opens its listener.
func (n *Node) openOverlay(ctx context.Context, loaded *config.Loaded[Config]) (err error) {
	c := loaded.Value
	n.overlay, err = overlay.New(n.inventory, n.supervisor, overlayStages, overlay.Spec{
		Config: c.Overlay, Key: n.identity.private, Skew: time.Duration(c.Node.ClockSkew), Store: n.kept(), Join: n.mayJoin,
		Answer: n.answerPeer, Sources: []overlay.PeerSource{members{n.governors()}},
		AnyPort: loaded.Origin("overlay.addr").Layer == config.LayerDefault, Alone: slices.Equal(n.layout.names(), []string{"overlay"}),
		Metrics: n.metrics, Readiness: n.readiness,
	})
	if err != nil {
		n.overlay = nil
		return err
	}
	return n.overlay.Listen(ctx)
}

// mayJoin decides whether a token lets a node in that nobody named.
func (n *Node) mayJoin(token string) error {
	return n.authority.Verify(token, capability.Request{Scope: capability.OverlayJoin})
}

// heardOverlay passes news of the overlay on to the log and the node bus.
func (n *Node) heardOverlay(event overlay.Event) {
	level := slog.LevelInfo
	switch event.Type {
	case overlay.SessionOpened:
		n.Tell(Event{Type: SessionOpened, Name: event.Peer.String(), Detail: event.Addr})
	case overlay.SessionClosed:
		n.Tell(Event{Type: SessionClosed, Name: event.Peer.String(), Detail: event.Detail})
	case overlay.AuthFailure:
		level = slog.LevelWarn
		n.Tell(Event{Type: AuthFailure, Name: event.Peer.String(), Detail: event.Detail})
	}
	n.tell(level, string(event.Type), "peer", event.Peer, "addr", event.Addr, "pq", event.PQ, "detail", event.Detail)
}

// closeOverlay cuts the sessions that a drain left, and those of a node that
// never ran.
func (n *Node) closeOverlay() error {
	if n.overlay == nil {
		return nil
	}
	return n.overlay.Close()
}
