//go:build noetcd || slim

package node

import (
	"context"

	"micronode/fault"
	"micronode/internal/registry"
)

// openEtcd fails: this program was built without etcd.
func openEtcd(context.Context, registry.Storage) (registry.Journal, error) {
	return nil, &fault.Error{Op: "node.registry", Kind: fault.RejectPolicy, Detail: "this program was built without etcd",
		Next: "Leave registry.storage.url empty, or use the default program: this one is slim."}
}
