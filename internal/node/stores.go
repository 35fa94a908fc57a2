package node

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"micronode/b3"
	"micronode/internal/edge"
	"micronode/internal/store"
)

// shelfShare is the part of the store's budget that answers may take that are
// kept ready for the warm lane. It comes on top of the budget.
const shelfShare = 8

// uploads is how many bodies are streamed in at a time; as many may wait.
const uploads = 64

// openStore opens the place where objects are kept, and makes its HTTP face.
func (n *Node) openStore(ctx context.Context, c Config) (err error) {
	switch {
	case c.Store.URL != "":
		n.store, err = openS3(ctx, n.inventory, c.Store)
	case n.folder != nil:
		n.store, err = store.OpenDisk(n.inventory, c.Store.DiskSpec(n.folder.in(objectFolder)))
	default:
		if err = c.Store.CheckRAM(); err == nil {
			n.store = n.newRAM(c.Store.RAMSpec(true))
		}
	}
	if err != nil {
		n.store = nil // not an interface around nothing
		return err
	}
	n.shelf = store.NewShelf(int64(c.Store.RAMBytes)/shelfShare, n.store)
	n.objects = store.NewObjects(n.inventory, store.ObjectsSpec{
		Store: announced{n.store, n.stored, n.removed}, Shelf: n.shelf, Submit: n.submitIdempotent, Uploads: uploads,
	})
	n.registerStoreMetrics()
	return nil
}

// announced is a store that tells of every object that is new in it, and of
// those that are removed.
type announced struct {
	store.Store
	tell, gone func(b3.Address)
}

// Put takes an object in.
func (s announced) Put(ctx context.Context, src io.Reader, o store.PutOptions) (store.Info, bool, error) {
	info, created, err := s.Store.Put(ctx, src, o)
	if err == nil && created {
		s.tell(info.Address)
	}
	return info, created, err
}

// Delete removes one.
func (s announced) Delete(ctx context.Context, address b3.Address) error {
	err := s.Store.Delete(ctx, address)
	if err == nil {
		s.gone(address)
	}
	return err
}

// stored lets the index, and who knows what can be searched, know of an object
// that came in from outside.
func (n *Node) stored(address b3.Address) {
	if n.library != nil {
		n.library.Offer(address)
	}
	if n.index != nil {
		n.index.Has(address)
	} else {
		n.far.index.Has(address)
	}
}

// removed lets who knows what can be searched know of an object that is gone.
func (n *Node) removed(address b3.Address) {
	switch {
	case n.library != nil:
		n.library.Forget(address)
	case n.index == nil:
		n.far.index.Gone(address)
	}
}

// kept is the store as parts use it that take objects in. A store elsewhere tells
// the index by itself.
func (n *Node) kept() store.Store {
	if n.far.store != nil {
		return n.far.store
	}
	return announced{n.store, n.stored, n.removed}
}

// newRAM makes a store in memory that gives up what it does not need.
func (n *Node) newRAM(spec store.RAMSpec) *store.RAM {
	ram := store.NewRAM(n.inventory, spec)
	n.purger.Register(ram.Trim)
	return ram
}

// openEdge opens the edge and the store of its cache, which is its own: what
// origins sent is evicted by other rules than what people put here.
func (n *Node) openEdge(ctx context.Context, c Config) (err error) {
	spec := edge.Spec{
		Config: c.Edge, WorkRate: c.Limits.WorkRate, Amnesia: n.amnesiac(), Metrics: n.metrics, Readiness: n.readiness,
	}
	if spec.Content, err = n.newContent(); err != nil {
		return err
	}
	if n.amnesiac() {
		spec.Store = n.newRAM(c.Edge.RAMSpec())
	} else {
		spec.Folder = n.folder.in(edgeFolder, "entries")
		fleeting := c.Edge.RAMSpec()
		fleeting.Name = "fleeting"
		spec.Fleeting = n.newRAM(fleeting)
		spec.Store, err = store.OpenDisk(n.inventory, c.Edge.DiskSpec(n.folder.in(edgeFolder, objectFolder)))
	}
	if err == nil {
		n.edge, err = edge.New(ctx, n.inventory, spec)
	}
	return err
}

// audit writes what the edge fetched and refused to the log. Fetches are what
// it is there for, so they are only of interest to who looks for something.
func (n *Node) audit(event edge.Event) {
	level := slog.LevelInfo
	if event.Fetched() {
		level = slog.LevelDebug
	}
	if !n.log.Enabled(context.Background(), level) {
		return
	}
	n.tell(level, "edge "+string(event.Type), "url", event.URL, "status", event.Status, "bytes", event.Bytes,
		"took", event.Took, "count", event.Count, "reason", event.Reason)
}

// closeStores lets go of what is kept.
func (n *Node) closeStores() error {
	var problems []error
	if n.edge != nil {
		problems = append(problems, n.edge.Close())
	}
	if n.shelf != nil {
		n.shelf.Clear()
	}
	if n.store != nil {
		problems = append(problems, n.store.Close())
	}
	return errors.Join(problems...)
}
