package node

import (
	"context"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// finder is what the edge asks for of the index, here or elsewhere.
type finder interface {
	Manifest(ctx context.Context, id string) (b3.Address, error)
	Fetch(ctx context.Context, address b3.Address) (store.Info, bool, error)
}

// content is the rest of the node as the edge sees it: what is in the store, and
// what others have. What is brought here is brought once for all who wait, and
// lands for the next one if they do not wait long enough.
type content struct {
	// set at construction
	store  func() store.Store
	finder func() finder
	tasks  *supervise.Group

	mu    sync.Mutex //lockblock:leaf a map only
	onWay map[b3.Address]*bringing
}

// bringing is an object on its way here.
type bringing struct {
	done chan struct{}
	err  error // set before done is closed
}

// The bounds of what the edge has brought here.
const (
	mostBringing = 64
	bringTime    = 5 * time.Minute
)

// newContent makes the edge's way to the store and the index. Both may be opened
// later: nobody asks before the node runs.
func (n *Node) newContent() (*content, error) {
	tasks, err := n.supervisor.NewGroup(supervise.GroupSpec{Service: "edge", Kind: "bring", Stage: stageState, Max: mostBringing})
	if err != nil {
		return nil, err
	}
	return &content{
		store: func() store.Store { return n.store }, tasks: tasks, onWay: map[b3.Address]*bringing{},
		finder: func() finder {
			if n.index != nil {
				return n.index
			}
			return n.far.index
		},
	}, nil
}

// Open finds an object that this node has.
func (c *content) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	return c.store().Open(ctx, a)
}

// Manifest says what a name stands for.
func (c *content) Manifest(ctx context.Context, name string) (b3.Address, error) {
	return c.finder().Manifest(ctx, name)
}

// Bring has an object fetched from whoever has it, and waits for it as long as
// ctx allows.
func (c *content) Bring(ctx context.Context, a b3.Address) error {
	on, err := c.join(a)
	if err != nil {
		return err
	}
	select {
	case <-on.done:
		return on.err
	case <-ctx.Done():
		return flow.Ended(ctx, "edge.bring")
	}
}

// join finds the way that an object is on, or sets it on one.
func (c *content) join(a b3.Address) (*bringing, error) {
	c.mu.Lock()
	on, known := c.onWay[a]
	if !known {
		on = &bringing{done: make(chan struct{})}
		c.onWay[a] = on
	}
	c.mu.Unlock()
	if known {
		return on, nil
	}
	err := c.tasks.Go(func(ctx context.Context) error {
		c.fetch(ctx, a, on)
		return nil
	})
	if err != nil {
		c.end(a, on, err)
	}
	return on, err
}

// fetch brings an object here. Those who wait hear of it whatever happens to the
// task: an object that stayed on its way would never be asked for again.
func (c *content) fetch(ctx context.Context, a b3.Address, on *bringing) {
	ctx, cancel := context.WithTimeout(ctx, bringTime)
	defer cancel()
	var err error = fault.New("edge.bring", fault.Internal, "the task that fetched it died")
	defer func() { c.end(a, on, err) }()
	_, _, err = c.finder().Fetch(ctx, a)
}

// end tells those who wait.
func (c *content) end(a b3.Address, on *bringing, err error) {
	c.mu.Lock()
	delete(c.onWay, a)
	c.mu.Unlock()
	on.err = err
	close(on.done)
}
