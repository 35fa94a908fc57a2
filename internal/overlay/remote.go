package overlay

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// reconnectDelay is the pause before a lost process is called again.
const reconnectDelay = 500 * time.Millisecond

// Remote is the overlay in another process of the same node, as far as other
// parts need it: which peers are connected, what they know, what they have.
type Remote struct {
	// set at construction
	client         *client.Client
	connectedPeers *flow.Snapshot[[]ConnectedPeer] // stored by Serve
}

// KeptObjects lists the objects of the shares that last.
func (r *Remote) KeptObjects(ctx context.Context) (list []b3.Address, err error) {
	all, err := r.client.Invitations(ctx)
	for _, one := range all {
		if !one.Object.IsZero() {
			list = append(list, one.Object)
		}
	}
	return list, err
}

// NewRemote returns the overlay that a client reaches.
func NewRemote(inv *flow.Inventory, to *client.Client) *Remote {
	return &Remote{client: to, connectedPeers: flow.NewSnapshot(inv, flow.SnapshotSpec{
		Service: service, Name: "company", From: "overlay in another process", To: "index",
	}, []ConnectedPeer(nil))}
}

// Serve keeps the list of connected peers up to date until ctx ends. While the
// other process is unreachable it is empty.
func (r *Remote) Serve(ctx context.Context) error {
	for {
		r.follow(ctx)
		r.connectedPeers.Store(nil)
		if flow.Sleep(ctx, reconnectDelay) != nil {
			return nil // ctx has ended
		}
	}
}

// follow stores each list that the other process sends, until the stream ends.
func (r *Remote) follow(ctx context.Context) {
	events, err := r.client.Hear(ctx, connectedPeersPath)
	if err != nil {
		return
	}
	defer events.Close()
	for {
		var response connectedPeersResponse
		if err := events.Next(ctx, "company", &response); err != nil {
			return
		}
		r.connectedPeers.Store(response.Peers)
	}
}

// ConnectedPeers lists the peers with an active session. It never waits.
func (r *Remote) ConnectedPeers() []ConnectedPeer { return r.connectedPeers.Load() }

// Ask asks a peer what it knows.
func (r *Remote) Ask(ctx context.Context, peer oap.PeerID, q Question) (Found, error) {
	var found Found
	err := r.client.Call(ctx, "POST", askPath, askRequest{peer.String(), q.Obj, q.Most}, &found)
	return found, fault.Wrap("overlay.ask", err)
}

// Open begins to fetch an object from a peer. The context is that of the whole
// download, which the caller must close.
func (r *Remote) Open(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error) {
	body, err := r.client.Open(ctx, objectPath+address.String()+"?from="+from.String())
	if err != nil {
		return nil, fault.Wrap("overlay.open", err) // not an interface that holds nil
	}
	return body, nil
}

// Publish publishes a message in the other process. It returns how many peers
// accepted it.
func (r *Remote) Publish(ctx context.Context, topic string, data []byte) (int, error) {
	done, err := r.client.Publish(ctx, topic, data)
	return done.Peers, fault.Wrap("overlay.publish", err)
}

// OpenPart is Open for some bytes of an object, or of a view of it.
func (r *Remote) OpenPart(ctx context.Context, address b3.Address, peer oap.PeerID, view oap.View, from, length int64) (io.ReadCloser, error) {
	query := url.Values{"from": {peer.String()}, "offset": {strconv.FormatInt(from, 10)}, "length": {strconv.FormatInt(length, 10)}, "view": {string(view)}}
	body, err := r.client.Open(ctx, objectPath+address.String()+"?"+query.Encode())
	if err != nil {
		return nil, fault.Wrap("overlay.open", err) // not an interface that holds nil
	}
	return body, nil
}
