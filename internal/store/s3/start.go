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

// What is done at the start is bounded, so that a large bucket does not keep a
// node from starting.
const (
	sweepAge   = 24 * time.Hour // older temporaries were abandoned
	sweepMost  = 1000
	countPages = 100
)

// start makes sure that the bucket can be used, sweeps it and counts it.
func (s *Store) start(ctx context.Context, create bool) error {
	old, err := s.temporaries(ctx)
	if answer, _ := answerOf(err); answer.Code == "NoSuchBucket" {
		return s.missing(ctx, create)
	}
	if err != nil {
		return err
	}
	s.sweep(ctx, old)
	return s.Recount(ctx)
}

// missing creates the bucket, or says how to.
func (s *Store) missing(ctx context.Context, create bool) error {
	b := s.bucket
	if !create {
		scheme := "http"
		if b.at.secure {
			scheme = "https"
		}
		command := fmt.Sprintf("aws --endpoint-url %s://%s s3 mb s3://%s", scheme, b.at.host, b.at.bucket)
		return wrong(fault.NotReady, "Create it: "+command+" or set "+setCreate+".", "there is no bucket %s", b.at.bucket)
	}
	return b.again(ctx, opSpec, func(ctx context.Context) error {
		err := b.core.MakeBucket(ctx, b.at.bucket, minio.MakeBucketOptions{Region: b.region})
		if answer, _ := answerOf(err); answer.Code == "BucketAlreadyOwnedByYou" {
			return nil // another node was faster, or our own first try was
		}
		return err
	})
}

// temporaries lists those that are old. It is the first call of all, and a
// listing, because other calls do not say what is wrong with a key.
func (s *Store) temporaries(ctx context.Context) (old []string, err error) {
	found, err := s.bucket.list(ctx, opSpec, s.bucket.at.prefix+folderTemporary, "", sweepMost)
	for _, it := range found {
		if time.Since(it.modified) > sweepAge {
			old = append(old, it.key)
		}
	}
	return old, err
}

// sweep removes what was abandoned. A key that may not do that, or a server that
// cannot, is no reason not to start; the next start tries again.
func (s *Store) sweep(ctx context.Context, old []string) {
	for _, key := range old {
		_ = s.bucket.remove(ctx, opSpec, key)
	}
	uploads, _ := s.bucket.uploads(ctx, opSpec, time.Now().Add(-sweepAge))
	for _, up := range uploads {
		_ = up.abort(ctx)
	}
}

// Recount counts what the bucket holds, and corrects what Usage tells. It is
// done at the start. What is put or deleted meanwhile may be counted twice or
// not at all, and of more than about a hundred thousand objects only the first
// are counted.
func (s *Store) Recount(ctx context.Context) error {
	ctx, cancel, err := s.begin(ctx, opSpec)
	if err != nil {
		return err
	}
	defer cancel()
	var after b3.Address
	var u store.Usage
	for range countPages {
		page, err := s.list(ctx, opSpec, after, store.MaxPage)
		if err != nil {
			return err
		}
		for _, info := range page {
			u.Objects++
			u.Bytes += info.Size
			if info.Class == store.Pinned {
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
