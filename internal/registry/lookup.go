package registry

import (
	"context"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
)

// Name returns what a name means, and as of which version. It never waits.
func (r *Registry) Name(name string) (manifest b3.Address, version uint64, ok bool) {
	v := r.view.Load()
	if v.state == nil {
		return b3.Address{}, 0, false
	}
	item, found := v.state.Item(name)
	if !found {
		return b3.Address{}, 0, false
	}
	manifest, ok = item.Manifest()
	return manifest, v.state.Head().Version, ok
}

// Node is a node that the registry lists.
type Node = ledger.Node

// Nodes waits until the registry has changed since a version of the snapshot in this
// process, and lists its nodes.
func (r *Registry) Nodes(ctx context.Context, since flow.Version) (nodes []Node, now flow.Version, err error) {
	v, now, err := r.view.WaitForChange(ctx, since)
	if err != nil || v.state == nil {
		return nil, now, err
	}
	for item := range v.state.Items() {
		if node, ok := item.Node(); ok {
			nodes = append(nodes, node)
		}
	}
	return nodes, now, nil
}
