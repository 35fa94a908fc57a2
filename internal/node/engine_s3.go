//go:build !nos3 && !slim

package node

import (
	"context"

	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/store/s3"
)

// openS3 opens an S3-compatible store. The build tag nos3 leaves it out of the
// program.
func openS3(ctx context.Context, inv *flow.Inventory, c store.Config) (store.Store, error) {
	return s3.Open(ctx, inv, s3.Spec{
		Service: "store", URL: c.URL, Region: c.Region, AccessKey: c.AccessKey.Reveal(), SecretKey: c.SecretKey.Reveal(),
		CAFile: c.CAFile, CreateBucket: c.CreateBucket, MaxObject: c.MaxObject(), Timeout: c.Timeout,
	})
}
