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

// Remote is the registry in another process of the same node, as far as others
// need it: its names and its nodes. It follows the log as any client does, and
// what it knows stays good while the other process is away.
type Remote struct {
	// set at construction
	client  *client.Client
	changed func()                    // is told of every version; it must not block
	known   *flow.Snapshot[*register] // stored by Serve
}

// register is the names and nodes of one version. It is read-only.
type register struct {
	heard bool // somebody has answered: what is not here is not there
	empty bool // there is no registry yet
	head  ledger.Head
	names map[string]b3.Address
	nodes map[string]Node
}

// NewRemote makes a registry of the one that a client reaches. Changed is called
// when there is another version.
func NewRemote(inv *flow.Inventory, to *client.Client, changed func()) *Remote {
	return &Remote{client: to, changed: changed, known: flow.NewSnapshot(inv, flow.SnapshotSpec{
		Service: service, Name: "register", From: "registry in another process", To: "index, overlay",
	}, &register{})}
}

// Name says what a name means, and as of which version. It never waits.
func (r *Remote) Name(name string) (manifest b3.Address, version uint64, ok bool) {
	now := r.known.Load()
	manifest, ok = now.names[name]
	return manifest, now.head.Version, ok
}

// Known is why nobody can say yet which names there are, or nil.
func (r *Remote) Known() error {
	if r.known.Load().heard {
		return nil
	}
	return &fault.Error{Op: "registry.names", Kind: fault.NotReady, Detail: "the registry has not been heard yet, and a name may be one of its own", RetryAfter: time.Second,
		Next: "Start the registry with `micronode run --only registry`; it is asked again by itself."}
}

// Nodes waits until the registry is another than it was at a version of this
// process, and lists its nodes.
func (r *Remote) Nodes(ctx context.Context, since flow.Version) (nodes []Node, version flow.Version, err error) {
	now, version, err := r.known.Changed(ctx, since)
	if err != nil {
		return nil, version, err
	}
	for _, id := range slices.Sorted(maps.Keys(now.nodes)) {
		nodes = append(nodes, now.nodes[id])
	}
	return nodes, version, nil
}

// comeBack is the pause before a process that went away is asked again.
const comeBack = 500 * time.Millisecond

// Serve follows the log until ctx ends.
func (r *Remote) Serve(ctx context.Context) error {
	for {
		_ = r.watch(ctx) // readiness tells of a part that is away
		if flow.Sleep(ctx, comeBack) != nil {
			return nil // told to stop
		}
	}
}

// watch subscribes first and reads the head then, so that no version falls
// between the two.
func (r *Remote) watch(ctx context.Context) error {
	news, err := r.client.WatchRegistry(ctx, nil)
	if err != nil {
		return err
	}
	defer news.Close()
	if err := r.readAll(ctx); err != nil {
		return err
	}
	for {
		update, err := news.Next(ctx)
		switch {
		case errors.Is(err, fault.Lagging):
			err = r.readAll(ctx)
		case err == nil && update.Version > r.known.Load().head.Version:
			err = r.read(ctx, update.Version)
		case err == nil && r.known.Load().empty:
			err = r.readAll(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// readAll takes over the last version with everything in it.
func (r *Remote) readAll(ctx context.Context) error {
	head, err := r.client.RegistryHead(ctx)
	if fault.KindOf(err) == fault.NotFound {
		r.install(&register{heard: true, empty: true})
		return nil
	}
	if err != nil {
		return err
	}
	if now := r.known.Load(); now.heard && !now.empty && now.head.Hash == head.Hash {
		return nil
	}
	version, err := r.client.RegistryVersion(ctx, head.Version, true)
	if err != nil {
		return err
	}
	next := &register{heard: true, head: ledger.Head{Version: version.Version, Hash: version.Hash}, names: map[string]b3.Address{}, nodes: map[string]Node{}}
	for _, raw := range version.Items {
		if err := next.put(raw); err != nil {
			return err
		}
	}
	r.install(next)
	return nil
}

// read takes over one version: what it changed, if it follows on what is known.
func (r *Remote) read(ctx context.Context, number uint64) error {
	now := r.known.Load()
	if now.empty || number != now.head.Version+1 {
		return r.readAll(ctx)
	}
	version, err := r.client.RegistryVersion(ctx, number, false)
	if err != nil {
		return err
	}
	if version.PrevHash != now.head.Hash {
		return r.readAll(ctx) // another log
	}
	next := &register{heard: true, head: ledger.Head{Version: number, Hash: version.Hash}, names: maps.Clone(now.names), nodes: maps.Clone(now.nodes)}
	for _, raw := range version.Ops {
		if err := next.apply(raw); err != nil {
			return err
		}
	}
	r.install(next)
	return nil
}

func (r *Remote) install(next *register) {
	r.known.Store(next)
	r.changed()
}

// apply does what one operation says.
func (g *register) apply(raw json.RawMessage) error {
	var op struct {
		Op   string          `json:"op"`
		ID   string          `json:"id"`
		Item json.RawMessage `json:"item"`
	}
	if err := json.Unmarshal(raw, &op); err != nil {
		return fault.WrapKind("registry.names", fault.UpstreamFailed, err)
	}
	if op.Op == "put" {
		return g.put(op.Item)
	}
	delete(g.names, op.ID)
	delete(g.nodes, op.ID)
	return nil
}

// put takes one item, if it is of a kind that others need.
func (g *register) put(raw json.RawMessage) error {
	item, err := ledger.ParseItem(raw)
	if err != nil {
		return err
	}
	delete(g.names, item.ID)
	delete(g.nodes, item.ID)
	if manifest, ok := item.Manifest(); ok {
		g.names[item.ID] = manifest
	}
	if node, ok := item.Node(); ok {
		g.nodes[item.ID] = node
	}
	return nil
}
