package registry

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
)

// Remote is the registry in another process of the same node, as far as other parts
// need it: its names and its nodes. It follows the log as any client does, and
// what it has loaded stays valid while the other process is down.
type Remote struct {
	// set at construction
	client  *client.Client
	changed func()                       // called for every version; it must not block
	state   *flow.Snapshot[*remoteState] // stored by Serve
}

// remoteState is the names and nodes of one version. It is read-only.
type remoteState struct {
	loaded bool // the registry has answered: a name that is not here does not exist
	empty  bool // there is no registry yet
	head   ledger.Head
	names  map[string]b3.Address
	nodes  map[string]Node
}

// NewRemote makes a Remote of the registry that a client reaches. Changed is called
// when there is another version.
func NewRemote(inv *flow.Inventory, to *client.Client, changed func()) *Remote {
	return &Remote{client: to, changed: changed, state: flow.NewSnapshot(inv, flow.SnapshotSpec{
		Service: service, Name: "register", From: "registry in another process", To: "index, overlay",
	}, &remoteState{})}
}

// Name returns what a name means, and as of which version. It never waits.
func (r *Remote) Name(name string) (manifest b3.Address, version uint64, ok bool) {
	now := r.state.Load()
	manifest, ok = now.names[name]
	return manifest, now.head.Version, ok
}

// Ready returns nil once the registry's names are loaded, and an error before.
func (r *Remote) Ready() error {
	if r.state.Load().loaded {
		return nil
	}
	return &fault.Error{Op: "registry.names", Kind: fault.NotReady, Detail: "the registry's names are not loaded yet", RetryAfter: time.Second,
		Next: "Start the registry with `micronode run --only registry`; the node reconnects by itself."}
}

// KeptObjects lists the objects that names stand for, and those that the names of
// open proposals would.
func (r *Remote) KeptObjects(ctx context.Context) (list []b3.Address, err error) {
	if err := r.Ready(); err != nil {
		return nil, err
	}
	open, err := r.client.Proposals(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range open {
		would := &remoteState{names: map[string]b3.Address{}, nodes: map[string]Node{}}
		for _, raw := range one.Ops {
			if err := would.apply(raw); err != nil {
				return nil, err
			}
			list = slices.AppendSeq(list, maps.Values(would.names))
		}
	}
	return slices.AppendSeq(list, maps.Values(r.state.Load().names)), nil
}

// Nodes waits until the registry has changed since a version of the snapshot in this
// process, and lists its nodes.
func (r *Remote) Nodes(ctx context.Context, since flow.Version) (nodes []Node, version flow.Version, err error) {
	now, version, err := r.state.WaitForChange(ctx, since)
	if err != nil {
		return nil, version, err
	}
	for _, id := range slices.Sorted(maps.Keys(now.nodes)) {
		nodes = append(nodes, now.nodes[id])
	}
	return nodes, version, nil
}

// reconnectPause is the pause before the next connection to the other process.
const reconnectPause = 500 * time.Millisecond

// Serve follows the log until ctx ends.
func (r *Remote) Serve(ctx context.Context) error {
	for {
		_ = r.watch(ctx) // readiness reports a part that is down
		if flow.Sleep(ctx, reconnectPause) != nil {
			return nil // ctx has ended
		}
	}
}

// watch subscribes first and reads the head then, so that no version falls
// between the two.
func (r *Remote) watch(ctx context.Context) error {
	updates, err := r.client.WatchRegistry(ctx, nil)
	if err != nil {
		return err
	}
	defer updates.Close()
	if err := r.loadHead(ctx); err != nil {
		return err
	}
	for {
		update, err := updates.Next(ctx)
		switch {
		case errors.Is(err, fault.Lagging):
			err = r.loadHead(ctx)
		case err == nil && update.Version > r.state.Load().head.Version:
			err = r.loadVersion(ctx, update.Version)
		case err == nil && r.state.Load().empty:
			err = r.loadHead(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// loadHead loads the last version with all items.
func (r *Remote) loadHead(ctx context.Context) error {
	head, err := r.client.RegistryHead(ctx)
	if fault.KindOf(err) == fault.NotFound {
		r.install(&remoteState{loaded: true, empty: true})
		return nil
	}
	if err != nil {
		return err
	}
	if now := r.state.Load(); now.loaded && !now.empty && now.head.Hash == head.Hash {
		return nil
	}
	version, err := r.client.RegistryVersion(ctx, head.Version, true)
	if err != nil {
		return err
	}
	next := &remoteState{loaded: true, head: ledger.Head{Version: version.Version, Hash: version.Hash}, names: map[string]b3.Address{}, nodes: map[string]Node{}}
	for _, raw := range version.Items {
		if err := next.put(raw); err != nil {
			return err
		}
	}
	r.install(next)
	return nil
}

// loadVersion loads one version: only its changes, if it follows the one that is loaded.
func (r *Remote) loadVersion(ctx context.Context, number uint64) error {
	now := r.state.Load()
	if now.empty || number != now.head.Version+1 {
		return r.loadHead(ctx)
	}
	version, err := r.client.RegistryVersion(ctx, number, false)
	if err != nil {
		return err
	}
	if version.PrevHash != now.head.Hash {
		return r.loadHead(ctx) // another log
	}
	next := &remoteState{loaded: true, head: ledger.Head{Version: number, Hash: version.Hash}, names: maps.Clone(now.names), nodes: maps.Clone(now.nodes)}
	for _, raw := range version.Ops {
		if err := next.apply(raw); err != nil {
			return err
		}
	}
	r.install(next)
	return nil
}

func (r *Remote) install(next *remoteState) {
	r.state.Store(next)
	r.changed()
}

// apply applies one operation.
func (r *remoteState) apply(raw json.RawMessage) error {
	var op struct {
		Op   string          `json:"op"`
		ID   string          `json:"id"`
		Item json.RawMessage `json:"item"`
	}
	if err := json.Unmarshal(raw, &op); err != nil {
		return fault.WrapKind("registry.names", fault.UpstreamFailed, err)
	}
	if op.Op == "put" {
		return r.put(op.Item)
	}
	delete(r.names, op.ID)
	delete(r.nodes, op.ID)
	return nil
}

// put adds one item, if it is a name or a node.
func (r *remoteState) put(raw json.RawMessage) error {
	item, err := ledger.ParseItem(raw)
	if err != nil {
		return err
	}
	delete(r.names, item.ID)
	delete(r.nodes, item.ID)
	if manifest, ok := item.Manifest(); ok {
		r.names[item.ID] = manifest
	}
	if node, ok := item.Node(); ok {
		r.nodes[item.ID] = node
	}
	return nil
}
