package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
)

// upload is a multipart upload. It is not visible before it is completed. It
// belongs to one caller.
type upload struct {
	// set at construction
	bucket *bucket
	op     string
	key    string
	id     string

	parts []minio.CompletePart
	size  int64
}

// beginUpload starts an upload. If the response is lost it is started again;
// the first one is never completed, and removed by a later start.
func (b *bucket) beginUpload(ctx context.Context, op, key string) (*upload, error) {
	u := &upload{bucket: b, op: op, key: key}
	err := b.callWithRetry(ctx, op, func(ctx context.Context) (err error) {
		u.id, err = b.core.NewMultipartUpload(ctx, b.location.bucket, key, minio.PutObjectOptions{})
		return err
	})
	return u, err
}

// add sends the next part.
func (u *upload) add(ctx context.Context, data []byte) error {
	number := len(u.parts) + 1
	sum := sha256.Sum256(data)
	opt := minio.PutObjectPartOptions{Sha256Hex: hex.EncodeToString(sum[:]), DisableContentSha256: true}
	return u.bucket.callWithRetry(ctx, u.op, func(ctx context.Context) error {
		part, err := u.bucket.core.PutObjectPart(ctx, u.bucket.location.bucket, u.key, u.id, number, bytes.NewReader(data), int64(len(data)), opt)
		return u.appendPart(minio.CompletePart{PartNumber: number, ETag: part.ETag}, int64(len(data)), err)
	})
}

// addCopy makes the next part from an existing key.
func (u *upload) addCopy(ctx context.Context, from item) error {
	number := len(u.parts) + 1
	return u.bucket.retry(ctx, func() error {
		return u.bucket.call(ctx, u.op, copyTime(from.size), func(ctx context.Context) error {
			part, err := u.bucket.core.CopyObjectPart(ctx, u.bucket.location.bucket, from.key, u.bucket.location.bucket, u.key, u.id, number, 0, from.size, nil)
			return u.appendPart(minio.CompletePart{PartNumber: number, ETag: trimETag(part.ETag)}, from.size, err)
		})
	})
}

func (u *upload) appendPart(part minio.CompletePart, size int64, err error) error {
	if err == nil {
		u.parts = append(u.parts, part)
		u.size += size
	}
	return err
}

// complete makes the object visible, unless the key exists, and reports whether
// it did. It is not retried: a second call would find no upload, and could not
// tell why.
func (u *upload) complete(ctx context.Context) (created bool, err error) {
	err = u.bucket.ifAbsent(func(conditional bool) error {
		return u.bucket.call(ctx, u.op, copyTime(u.size), func(ctx context.Context) error {
			var opt minio.PutObjectOptions
			if conditional {
				opt.SetMatchETagExcept("*")
			}
			_, err := u.bucket.core.CompleteMultipartUpload(ctx, u.bucket.location.bucket, u.key, u.id, u.parts, opt)
			return err
		})
	})
	if hasStatus(err, http.StatusPreconditionFailed) {
		return false, nil
	}
	return err == nil, err
}

// abort removes what was sent. It may have been completed or aborted before.
func (u *upload) abort(ctx context.Context) error {
	err := u.bucket.callWithRetry(ctx, u.op, func(ctx context.Context) error {
		return u.bucket.core.AbortMultipartUpload(ctx, u.bucket.location.bucket, u.key, u.id)
	})
	if hasStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// uploads lists uploads that were begun before a moment and not completed.
func (b *bucket) uploads(ctx context.Context, op string, before time.Time) (old []*upload, err error) {
	err = b.callWithRetry(ctx, op, func(ctx context.Context) error {
		old = old[:0]
		result, err := b.core.ListMultipartUploads(ctx, b.location.bucket, b.location.prefix, "", "", "", maxSweep)
		for _, found := range result.Uploads {
			if found.Initiated.Before(before) && b.isUploadKey(found.Key) {
				old = append(old, &upload{bucket: b, op: op, key: found.Key, id: found.UploadID})
			}
		}
		return err
	})
	return old, err
}
