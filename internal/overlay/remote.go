package overlay

import (
	"context"
	"io"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// comeBack is the pause before a process that went away is asked again.
const comeBack = 500 * time.Millisecond

// Remote is the overlay in another process of the same node, as far as others
// need it: who is connected, what they know, what they have.
type Remote struct {
	// set at construction
	client  *client.Client
	company *flow.Snapshot[[]Neighbour] // stored by Serve
}

// NewRemote makes an overlay of the one that a client reaches.
func NewRemote(inv *flow.Inventory, to *client.Client) *Remote {
	return &Remote{client: to, company: flow.NewSnapshot(inv, flow.SnapshotSpec{
		Service: service, Name: "company", From: "overlay in another process", To: "index",
	}, []Neighbour(nil))}
}

// Serve keeps the list of neighbours up to date until ctx ends. While the other
// process is away there are none.
func (r *Remote) Serve(ctx context.Context) error {
	for {
		r.follow(ctx)
		r.company.Store(nil)
		if flow.Sleep(ctx, comeBack) != nil {
			return nil // told to stop
		}
	}
}

// follow takes over what the other process tells, until it stops.
func (r *Remote) follow(ctx context.Context) {
	events, err := r.client.Hear(ctx, seamCompany)
	if err != nil {
		return
	}
	defer events.Close()
	for {
		var told toldCompany
		if err := events.Next(ctx, "company", &told); err != nil {
			return
		}
		r.company.Store(told.neighbours())
	}
}

func (t toldCompany) neighbours() (list []Neighbour) {
	for _, one := range t.Neighbours {
		if id, err := oap.ParsePeerID(one.ID); err == nil {
			list = append(list, Neighbour{ID: id, Addr: one.Addr, RTT: one.RTT})
		}
	}
	return list
}

// Neighbours lists the peers with an active session. It never waits.
func (r *Remote) Neighbours() []Neighbour { return r.company.Load() }

// Ask asks a peer what it knows.
func (r *Remote) Ask(ctx context.Context, peer oap.PeerID, q Question) (Found, error) {
	var answer toldFound
	err := r.client.Call(ctx, "POST", seamAsk, toldQuestion{peer.String(), q.Obj, q.Most}, &answer)
	return answer.found(), fault.Wrap("overlay.ask", err)
}

// Open begins to fetch an object from a peer. The context is that of the whole
// download, which the caller must close.
func (r *Remote) Open(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error) {
	body, err := r.client.Open(ctx, seamObject+address.String()+"?from="+from.String())
	if err != nil {
		return nil, fault.Wrap("overlay.open", err) // not an interface around nothing
	}
	return body, nil
}

// Publish has the other process send a message. It returns how many peers it was
// handed to.
func (r *Remote) Publish(ctx context.Context, topic string, data []byte) (int, error) {
	done, err := r.client.Publish(ctx, topic, data)
	return done.Peers, fault.Wrap("overlay.publish", err)
}
