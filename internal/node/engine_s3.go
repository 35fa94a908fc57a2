//go:build !nos3

package node

import (
	"context"

	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/store/s3"
)

// openS3 reaches for objects in an S3-compatible store. It is left out of the
// program by the build tag nos3.
func openS3(ctx context.Context, inv *flow.Inventory, c store.Config) (store.Store, error) {
	return s3.Open(ctx, inv, s3.Spec{
		Service: "store", URL: c.URL, Region: c.Region, AccessKey: c.AccessKey.Reveal(), SecretKey: c.SecretKey.Reveal(),
		CAFile: c.CAFile, CreateBucket: c.CreateBucket, MaxObject: c.MaxObject(), Timeout: c.Timeout,
	})
}
