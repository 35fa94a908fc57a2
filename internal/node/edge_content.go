package node

import (
	"context"
	"net/netip"
	"sync"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// objectFinder is the part of the index that the edge uses, local or remote.
type objectFinder interface {
	Manifest(ctx context.Context, id string) (b3.Address, error)
	Fetch(ctx context.Context, address b3.Address) (store.Info, bool, error)

	// Arriving opens an object that is being fetched and can be read already.
	// IsArriving reports whether there is one, and returns what is closed when
	// that may have changed.
	Arriving(ctx context.Context, address b3.Address) (store.Handle, error)
	IsArriving(address b3.Address) (is bool, changed <-chan struct{})
}

// edgeContent gives the edge access to the store and to objects of other nodes.
// An object is fetched once for all waiting requests, and the fetch goes on for
// the next request if they time out.
type edgeContent struct {
	// set at construction
	store func() store.Store
	index func() objectFinder
	tasks *supervise.Group

	mu              sync.Mutex //lockblock:leaf maps only
	flights         map[b3.Address]*flight
	flightsByClient map[netip.Addr]int // running fetches, by the client that asked first; never zero
}

// flight is a running fetch of an object.
type flight struct {
	client netip.Addr // the client that asked first; invalid if it has no share
	done   chan struct{}
	err    error // set before done is closed
}

// maxFlights is how many objects the edge fetches at a time.
const maxFlights = 64

// newEdgeContent gives the edge access to the store and the index. Both may be
// opened later: they are used only when the node runs.
func (n *Node) newEdgeContent() (*edgeContent, error) {
	tasks, err := n.supervisor.NewGroup(supervise.GroupSpec{Service: "edge", Kind: "bring", Stage: stageState, Max: maxFlights})
	if err != nil {
		return nil, err
	}
	return &edgeContent{
		store: func() store.Store { return n.store }, tasks: tasks, flights: map[b3.Address]*flight{}, flightsByClient: map[netip.Addr]int{},
		index: func() objectFinder {
			if n.index != nil {
				return n.index
			}
			return n.remoteClients.index
		},
	}, nil
}

// Open opens an object that this node has, or that is on its way and can be read
// already.
func (c *edgeContent) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	handle, err := c.store().Open(ctx, a)
	if fault.KindOf(err) != fault.NotFound {
		return handle, err
	}
	arriving, notYet := c.index().Arriving(ctx, a)
	if notYet == nil {
		return arriving, nil
	}
	// A fetch that was there when the store had not got it may have ended since.
	return c.store().Open(ctx, a)
}

// ResolveManifest returns what a name stands for.
func (c *edgeContent) ResolveManifest(ctx context.Context, name string) (b3.Address, error) {
	return c.index().Manifest(ctx, name)
}

// Fetch fetches an object from its providers, and waits as long as ctx allows
// until it can be read: a large one before all of it is here.
func (c *edgeContent) Fetch(ctx context.Context, client netip.Addr, a b3.Address) error {
	running, err := c.joinFlight(client, a)
	if err != nil {
		return err
	}
	for {
		arriving, changed := c.index().IsArriving(a)
		if arriving {
			return nil
		}
		select {
		case <-running.done:
			return running.err
		case <-changed:
		case <-ctx.Done():
			return flow.Ended(ctx, "edge.bring")
		}
	}
}

// joinFlight joins the running fetch of an object, or starts one. A client may
// have as many as are still free: half of them if it is alone, and always one
// if there is a free one at all.
func (c *edgeContent) joinFlight(client netip.Addr, a b3.Address) (*flight, error) {
	c.mu.Lock()
	joined, known := c.flights[a]
	overShare := !known && client.IsValid() && c.flightsByClient[client] > 0 && c.flightsByClient[client] >= maxFlights-len(c.flights)
	if !known && !overShare {
		joined = &flight{client: client, done: make(chan struct{})}
		c.flights[a] = joined
		c.flightsByClient[client]++
	}
	c.mu.Unlock()
	if overShare {
		return nil, &fault.Error{Op: "edge.bring", Kind: fault.Busy, Detail: "this client has used its share of the concurrent fetches",
			Next: "Try again when some of its fetches have finished."}
	}
	if known {
		return joined, nil
	}
	err := c.tasks.Go(func(ctx context.Context) error {
		c.runFlight(ctx, a, joined)
		return nil
	})
	if err != nil {
		c.finishFlight(a, joined, err)
	}
	return joined, err
}

// runFlight fetches an object. It always finishes the flight, whatever happens
// to the task: otherwise the object could never be fetched again. The index ends
// a fetch in which nothing moves.
func (c *edgeContent) runFlight(ctx context.Context, a b3.Address, running *flight) {
	var err error = fault.New("edge.bring", fault.Internal, "the fetch ended unexpectedly")
	defer func() { c.finishFlight(a, running, err) }()
	_, _, err = c.index().Fetch(ctx, a)
}

// finishFlight removes the flight and wakes all waiters.
func (c *edgeContent) finishFlight(a b3.Address, ended *flight, err error) {
	c.mu.Lock()
	delete(c.flights, a)
	if c.flightsByClient[ended.client]--; c.flightsByClient[ended.client] == 0 {
		delete(c.flightsByClient, ended.client)
	}
	c.mu.Unlock()
	ended.err = err
	close(ended.done)
}
