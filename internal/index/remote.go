package index

import (
	"context"
	"sync"
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
	arrivals       remoteArrivals
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

// Fetch makes the other process fetch an object into the store, from its
// providers. It can be read meanwhile; see Arriving.
func (r *Remote) Fetch(ctx context.Context, address b3.Address) (store.Info, bool, error) {
	for {
		var begun beginResponse
		if err := r.client.Call(ctx, "POST", beginPath, beginRequest{address}, &begun); err != nil {
			return store.Info{}, false, fault.Wrap(opFetch, err)
		}
		done := r.arrivals.begin(address, begun.Size)
		object, err := r.client.FetchAnywhere(ctx, address)
		done()
		if fault.KindOf(err) == fault.Timeout && ctx.Err() == nil {
			continue // that was the request's own: the fetch goes on, or the next begin says why not
		}
		return store.Info{Address: object.Address, Size: object.Size, Class: store.Cached}, object.Created, fault.Wrap(opFetch, err)
	}
}

// Arriving opens an object that the other process is fetching for this one. It is
// NotFound if none is. What is read waits for its bytes as long as ctx allows.
func (r *Remote) Arriving(ctx context.Context, address b3.Address) (store.Handle, error) {
	if size, _ := r.arrivals.find(address); size > 0 {
		return store.OpenFetching(ctx, r.client, address, size), nil
	}
	return nil, fault.New(opFetch, fault.NotFound, "%s is not on its way here", address)
}

// IsArriving reports whether an object that the other process is fetching for
// this one can be read already, and returns what is closed when that may have
// changed.
func (r *Remote) IsArriving(address b3.Address) (is bool, changed <-chan struct{}) {
	size, changed := r.arrivals.find(address)
	return size > 0, changed
}

// remoteArrivals is the objects that another process fetches for this one, and
// that can be read already.
type remoteArrivals struct {
	mu      sync.Mutex //lockblock:leaf a map, and a channel that is closed
	running map[b3.Address]remoteArrival
	changed chan struct{} // closed at the next change; nil if nobody waits
}

// remoteArrival is one of them: its size, and how many calls wait for all of it.
type remoteArrival struct {
	size  int64
	calls int
}

// begin lists an object. Done ends that.
func (a *remoteArrivals) begin(address b3.Address, size int64) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		a.running = map[b3.Address]remoteArrival{}
	}
	a.running[address] = remoteArrival{size, a.running[address].calls + 1}
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		one := a.running[address]
		if one.calls--; one.calls > 0 {
			a.running[address] = one
		} else {
			delete(a.running, address)
		}
	}
}

// find returns the size of an object, or 0 if it is not listed, and what is closed
// when that may have changed.
func (a *remoteArrivals) find(address b3.Address) (size int64, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one, listed := a.running[address]; listed {
		return one.size, nil
	}
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return 0, a.changed
}
