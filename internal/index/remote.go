package index

import (
	"context"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// Remote is the index in another process of the same node, as far as others
// need it: it answers peers, resolves names, fetches objects, and receives the
// objects that are added and removed.
type Remote struct {
	// set at construction
	client         *client.Client
	events         *flow.Queue[objectEvent] // not sent to the other process yet
	mayHaveDropped atomic.Bool              // the queue may have dropped events
	closed         atomic.Bool              // do not retry any more
}

// objectEvent is an object that was added or removed.
type objectEvent struct {
	address b3.Address
	removed bool
}

// NewRemote makes a Remote over a client.
func NewRemote(inv *flow.Inventory, to *client.Client) *Remote {
	return &Remote{client: to, events: flow.NewQueue[objectEvent](inv, flow.QueueSpec{
		Service: service, Name: "news", Cap: maxProvide, Policy: flow.DropOldest, From: "store", To: "index in another process",
	})}
}

// ObjectAdded reports an object that was put into the store. It never waits:
// the other process is informed soon, or when it is available again.
func (r *Remote) ObjectAdded(address b3.Address) { r.push(objectEvent{address: address}) }

// ObjectRemoved reports an object that was removed, in the same way.
func (r *Remote) ObjectRemoved(address b3.Address) {
	r.push(objectEvent{address: address, removed: true})
}

func (r *Remote) push(one objectEvent) {
	if r.events.Len() >= announceHighWater {
		r.mayHaveDropped.Store(true)
	}
	_ = r.events.TryPush(one) // the queue is closed when this process drains
}

// sendRetryInterval is the delay before a failed batch is sent again.
const sendRetryInterval = 500 * time.Millisecond

// Serve sends events to the other process until ctx ends. If some may have been
// dropped while it was unavailable, it is asked to rescan.
func (r *Remote) Serve(ctx context.Context) error {
	for {
		first, err := r.events.Pop(ctx)
		if err != nil {
			return nil // stopped
		}
		batch := []objectEvent{first}
		for len(batch) < maxObjectsPerRequest && r.events.Len() > 0 {
			next, err := r.events.Pop(ctx)
			if err != nil {
				return nil
			}
			batch = append(batch, next)
		}
		for r.sendBatch(ctx, batch) != nil {
			if r.closed.Load() || flow.Sleep(ctx, sendRetryInterval) != nil {
				return nil // the index scans the store when it starts
			}
		}
	}
}

// sendBatch sends a batch, and asks for a rescan if events were dropped before
// it. Sending one twice is harmless.
func (r *Remote) sendBatch(ctx context.Context, batch []objectEvent) (err error) {
	missed := r.mayHaveDropped.Swap(false) // events dropped from now on belong to the next batch
	request := objectsRequest{Objects: []b3.Address{}, Missed: missed}
	for _, one := range batch {
		if one.removed {
			request.Removed = append(request.Removed, one.address)
		} else {
			request.Objects = append(request.Objects, one.address)
		}
	}
	if err = r.client.Call(ctx, "POST", objectsPath, request, nil); err == nil && missed {
		_, err = r.client.Reindex(ctx)
	}
	if err != nil && missed {
		r.mayHaveDropped.Store(true)
	}
	return err
}

// Close stops Serve.
func (r *Remote) Close() {
	r.closed.Store(true)
	r.events.Close()
}

// Answer returns what this node knows, for a question of a peer.
func (r *Remote) Answer(ctx context.Context, id ID) (Answer, error) {
	var response answerResponse
	if err := r.client.Call(ctx, "POST", answerPath, answerRequest{id.String()}, &response); err != nil {
		return Answer{}, fault.Wrap("index.answer", err)
	}
	return response.decode()
}

// Manifest resolves a name or an address.
func (r *Remote) Manifest(ctx context.Context, id string) (b3.Address, error) {
	found, err := r.client.Resolve(ctx, id, client.ResolveOptions{})
	return found.Manifest, fault.Wrap(opResolve, err)
}

// Fetch makes the other process fetch an object into the store, from one of its
// providers.
func (r *Remote) Fetch(ctx context.Context, address b3.Address) (store.Info, bool, error) {
	object, err := r.client.FetchAnywhere(ctx, address)
	return store.Info{Address: object.Address, Size: object.Size, Class: store.Cached}, object.Created, fault.Wrap(opFetch, err)
}

// Arriving is NotFound: what arrives in another process is read when all of it
// is here.
func (r *Remote) Arriving(_ context.Context, address b3.Address) (store.Handle, error) {
	return nil, fault.New(opFetch, fault.NotFound, "%s is not on its way here", address)
}

// IsArriving is never so; see Arriving.
func (r *Remote) IsArriving(b3.Address) (is bool, changed <-chan struct{}) { return false, nil }
