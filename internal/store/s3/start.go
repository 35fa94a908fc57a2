package s3

import (
	"context"
	"fmt"
	"time"

	"github.com/minio/minio-go/v7"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

// The work at the start is bounded, so that a large bucket does not keep a node
// from starting.
const (
	sweepAge      = 24 * time.Hour // older temporary keys were abandoned
	maxSweep      = 1000
	maxCountPages = 100
)

// start checks that the bucket can be used, cleans it up and counts it.
func (s *Store) start(ctx context.Context, create bool) error {
	old, err := s.oldTemporaries(ctx)
	if answer, _ := errorResponse(err); answer.Code == "NoSuchBucket" {
		return s.createMissing(ctx, create)
	}
	if err != nil {
		return err
	}
	s.removeAbandoned(ctx, old)
	return s.Recount(ctx)
}

// createMissing creates the bucket, or returns how to.
func (s *Store) createMissing(ctx context.Context, create bool) error {
	b := s.bucket
	if !create {
		scheme := "http"
		if b.location.secure {
			scheme = "https"
		}
		command := fmt.Sprintf("aws --endpoint-url %s://%s s3 mb s3://%s", scheme, b.location.host, b.location.bucket)
		return specFault(fault.NotReady, "Create it: "+command+" or set "+settingCreateBucket+".", "there is no bucket %s", b.location.bucket)
	}
	return b.callWithRetry(ctx, opSpec, func(ctx context.Context) error {
		err := b.core.MakeBucket(ctx, b.location.bucket, minio.MakeBucketOptions{Region: b.region})
		if answer, _ := errorResponse(err); answer.Code == "BucketAlreadyOwnedByYou" {
			return nil // another node was faster, or our own first try was
		}
		return err
	})
}

// oldTemporaries lists old temporary keys. It is the first call of all, and a
// listing, because other calls do not report what is wrong with an access key.
func (s *Store) oldTemporaries(ctx context.Context) (old []string, err error) {
	found, err := s.bucket.list(ctx, opSpec, s.bucket.location.prefix+folderTemporary, "", maxSweep)
	for _, it := range found {
		if time.Since(it.modified) > sweepAge {
			old = append(old, it.key)
		}
	}
	return old, err
}

// removeAbandoned removes abandoned uploads. If the access key lacks
// permission, or the server does not support it, the node starts all the same;
// the next start tries again.
func (s *Store) removeAbandoned(ctx context.Context, old []string) {
	for _, key := range old {
		_ = s.bucket.remove(ctx, opSpec, key)
	}
	uploads, _ := s.bucket.uploads(ctx, opSpec, time.Now().Add(-sweepAge))
	for _, up := range uploads {
		_ = up.abort(ctx)
	}
}

// Recount counts what the bucket holds, and corrects Usage. It runs at the
// start. Concurrent puts and deletes may be counted twice or not at all, and of
// more than about a hundred thousand objects only the first are counted.
func (s *Store) Recount(ctx context.Context) error {
	ctx, cancel, err := s.begin(ctx, opSpec)
	if err != nil {
		return err
	}
	defer cancel()
	var after b3.Address
	var u store.Usage
	for range maxCountPages {
		page, err := s.list(ctx, opSpec, after, store.MaxPage)
		if err != nil {
			return err
		}
		for _, info := range page {
			u.Objects++
			u.Bytes += info.Size
			if info.Class != store.Cached {
				u.Pinned += info.Size
			}
			after = info.Address
		}
		if len(page) < store.MaxPage {
			break
		}
	}
	s.objects.Store(u.Objects)
	s.bytes.Store(u.Bytes)
	s.pinned.Store(u.Pinned)
	return nil
}
