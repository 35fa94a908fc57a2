package node

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/overlay"
)

// overlayStages are the stages of the overlay's services.
var overlayStages = overlay.Stages{State: stageState, Workers: stageWorkers, Intake: stageIntake}

// openOverlay makes the overlay and opens its listener.
func (n *Node) openOverlay(ctx context.Context, loaded *config.Loaded[Config]) (err error) {
	c := loaded.Value
	kept, keep, err := n.keptPeers()
	if err != nil {
		return err
	}
	n.overlay, err = overlay.New(n.inventory, n.supervisor, overlayStages, overlay.Spec{
		Config: c.Overlay, Key: n.identity.private, Skew: time.Duration(c.Node.ClockSkew), Store: n.storeForWrites(), Join: n.authoriseJoin,
		Answer: n.answerPeer, Arriving: n.openArriving, Sources: []overlay.PeerSource{registryPeers{n.registryReader()}},
		Addrs: func() []string {
			at, _ := n.buildSelf(n.config.Current().Value) // the readiness says why there are none
			return at.Overlay
		},
		Moved: func() {
			if n.http != nil { // otherwise it is found out when all listeners are there
				n.refreshSelf()
			}
		},
		Kept: kept, Keep: keep,
		AnyPort: loaded.Origin("overlay.addr").Layer == config.LayerDefault, Alone: slices.Equal(n.layout.names(), []string{"overlay"}),
		Bandwidth: n.bandwidth, Metrics: n.metrics, Readiness: n.readiness, Refusals: &n.refusals,
	})
	if err != nil {
		n.overlay = nil
		return err
	}
	if err := n.overlay.Listen(ctx); err != nil {
		return err
	}
	if at, wanted := n.overlayAddr(), c.Overlay.Addr; at != "" && portOf(at) != portOf(wanted) && portOf(wanted) != "0" && loaded.Origin("overlay.addr").Layer == config.LayerDefault {
		n.notes = append(n.notes, wanted+" is taken, so overlay.addr is "+at)
	}
	return nil
}

// portOf is the port of an address. The rest of it changes when the overlay opens
// for others.
func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// openArriving opens an object that the index of this process is fetching.
func (n *Node) openArriving(ctx context.Context, address b3.Address) (overlay.Arriving, error) {
	if n.index == nil {
		return nil, fault.New("overlay.open", fault.NotFound, "%s is not here", address)
	}
	arriving, err := n.index.ArrivingHere(ctx, address)
	if err != nil {
		return nil, err // not an interface that holds nil
	}
	return arriving, nil
}

// keptPeers are the peers that were kept in the folder, and how they are kept
// there; nothing in amnesia.
func (n *Node) keptPeers() (kept []byte, keep func(context.Context, []byte) error, err error) {
	if n.amnesiac() {
		return nil, nil, nil
	}
	kept, err = os.ReadFile(n.folder.join(peersFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, folderError(n.folder.path, err)
	}
	return kept, func(ctx context.Context, text []byte) error {
		return n.submitIdempotent(ctx, func(context.Context) error { return n.folder.write(peersFile, text) })
	}, nil
}

// authoriseJoin decides whether a token admits a node that is not configured as
// a peer.
func (n *Node) authoriseJoin(token string) error {
	return n.authority.Verify(token, capability.Request{Scope: capability.OverlayJoin})
}

// onOverlayEvent passes events of the overlay on to the log and the node bus.
func (n *Node) onOverlayEvent(event overlay.Event) {
	level := slog.LevelInfo
	switch event.Type {
	case overlay.SessionOpened:
		n.PublishEvent(Event{Type: SessionOpened, Name: event.Peer.String(), Detail: event.Addr})
	case overlay.SessionClosed:
		n.PublishEvent(Event{Type: SessionClosed, Name: event.Peer.String(), Detail: event.Detail})
	case overlay.PeerLimited, overlay.LANTrouble:
		level = slog.LevelWarn
	case overlay.AuthFailure:
		level = slog.LevelWarn
		n.PublishEvent(Event{Type: AuthFailure, Name: event.Peer.String(), Detail: event.Detail})
	}
	n.logAsync(level, string(event.Type), "peer", event.Peer, "addr", event.Addr, "pq", event.PQ, "detail", event.Detail)
}

// closeOverlay closes the sessions that a drain left, and those of a node that
// never ran.
func (n *Node) closeOverlay() error {
	if n.overlay == nil {
		return nil
	}
	return n.overlay.Close()
}
