//go:build nos3 || slim

package node

import (
	"context"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// openS3 fails: this program was built without S3.
func openS3(context.Context, *flow.Inventory, store.Config) (store.Store, error) {
	return nil, &fault.Error{Op: "store.s3", Kind: fault.RejectPolicy, Detail: "store.url is set, and this program was built without S3",
		Next: "Leave store.url out, or use the default program: this one is slim."}
}
