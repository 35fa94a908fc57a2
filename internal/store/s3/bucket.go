package s3

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"micronode/fault"
	"micronode/internal/flow"
)

// How a call that failed transiently is retried.
const maxAttempts = 3

var backoff = flow.Backoff{Min: 50 * time.Millisecond, First: 100 * time.Millisecond, Max: 2 * time.Second}

// copyRate is the assumed copy speed of a server per second. It is silent while
// it copies, so the timeout depends on the size.
const copyRate = 16 << 20

// The library pauses after a call that failed even if it will not retry. We
// retry ourselves, so its pause is zero.
func init() { minio.DefaultRetryUnit = 0 }

// bucket makes the calls: each with its own limit, retried where that is
// harmless, and with an error that names the next step.
type bucket struct {
	// set at construction
	core      *minio.Core
	transport *http.Transport
	location  location
	region    string
	timeout   time.Duration

	noConditions atomic.Bool // the server does not support conditional puts

	retries  atomic.Uint64
	timeouts atomic.Uint64
	failures atomic.Uint64
}

func newBucket(spec Spec, at location) (*bucket, error) {
	transport, err := newTransport(spec)
	if err != nil {
		return nil, err
	}
	core, err := minio.NewCore(at.host, &minio.Options{
		Creds:        credentials.NewStaticV4(spec.AccessKey, spec.SecretKey, ""),
		Secure:       at.secure,
		Transport:    transport,
		Region:       spec.Region,
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   1,
	})
	if err != nil {
		return nil, specFault(fault.Malformed, "Check the host in "+settingURL+".", "%v", err)
	}
	return &bucket{core: core, transport: transport, location: at, region: spec.Region, timeout: spec.Timeout}, nil
}

// call makes a call that must not be repeated.
func (b *bucket) call(ctx context.Context, op string, extra time.Duration, do func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, b.timeout+extra)
	defer cancel()
	if err := do(limited); err != nil {
		return b.refusal(ctx, op, err)
	}
	return nil
}

// callWithRetry makes a call that may be repeated, and retries it after a
// transient failure.
func (b *bucket) callWithRetry(ctx context.Context, op string, do func(ctx context.Context) error) error {
	return b.retry(ctx, func() error { return b.call(ctx, op, 0, do) })
}

// retry calls do until it succeeds, fails permanently, or was tried often
// enough.
func (b *bucket) retry(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || !b.waitBackoff(ctx, attempt, err) {
			return err
		}
	}
}

// waitBackoff waits before another attempt, and reports whether there is one.
func (b *bucket) waitBackoff(ctx context.Context, attempt int, err error) bool {
	if attempt >= maxAttempts || !isTransient(err) {
		return false
	}
	if !backoff.Wait(ctx, attempt-1) {
		return false
	}
	b.retries.Add(1)
	return true
}

// item is the metadata of a key.
type item struct {
	key      string
	etag     string
	size     int64
	modified time.Time
	putID    string // which put created it; only head returns it
}

func itemOf(info minio.ObjectInfo) item {
	return item{key: info.Key, etag: info.ETag, size: info.Size, modified: info.LastModified, putID: info.UserMetadata[putIDKey]}
}

// head describes a key.
func (b *bucket) head(ctx context.Context, op, key string) (found item, err error) {
	err = b.callWithRetry(ctx, op, func(ctx context.Context) error {
		info, err := b.core.StatObject(ctx, b.location.bucket, key, minio.StatObjectOptions{})
		found = itemOf(info)
		return err
	})
	return found, err
}

// has reports whether a key exists.
func (b *bucket) has(ctx context.Context, op, key string) (bool, error) {
	_, err := b.head(ctx, op, key)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil, err
}

// put writes a key, whether it exists or not.
func (b *bucket) put(ctx context.Context, op, key string, data []byte) error {
	return b.callWithRetry(ctx, op, b.putAttempt(key, data, "", false))
}

// putNew writes a key unless it exists, and reports whether it did. A server
// may close the connection before its answer is read, whether it rejects or
// accepts; and it may do the same at the next try. So after a lost answer the
// key is read before another try, and its put ID shows which put created it.
func (b *bucket) putNew(ctx context.Context, op, key string, data []byte) (created bool, err error) {
	putID := cryptorand.Text()
	unanswered := false
	err = b.retry(ctx, func() error {
		if unanswered {
			if there, err := b.has(ctx, op, key); there || err != nil {
				return err
			}
		}
		err := b.ifAbsent(func(conditional bool) error {
			return b.call(ctx, op, 0, b.putAttempt(key, data, putID, conditional))
		})
		if _, answered := errorResponse(err); err != nil && !answered {
			unanswered = true
		}
		return err
	})
	if err != nil && !hasStatus(err, http.StatusPreconditionFailed) {
		return false, err
	}
	if !unanswered {
		return err == nil, nil
	}
	found, err := b.head(ctx, op, key)
	return err == nil && found.putID == putID, err
}

// putIDKey is the metadata with the ID of the put that created a key.
const putIDKey = "Micronode-Put"

// putAttempt is one try of a put. The hash lets the server reject what was
// changed in transit.
func (b *bucket) putAttempt(key string, data []byte, putID string, conditional bool) func(ctx context.Context) error {
	sum := sha256.Sum256(data)
	return func(ctx context.Context) error {
		opt := minio.PutObjectOptions{DisableContentSha256: true}
		if putID != "" {
			opt.UserMetadata = map[string]string{putIDKey: putID}
		}
		if conditional {
			opt.SetMatchETagExcept("*")
		}
		_, err := b.core.PutObject(ctx, b.location.bucket, key, bytes.NewReader(data), int64(len(data)), "", hex.EncodeToString(sum[:]), opt)
		return err
	}
}

// ifAbsent makes a call that must not replace anything. If a server does not
// support such conditions, calls are made without one from then on: what could
// be replaced has the same address, hence the same bytes.
func (b *bucket) ifAbsent(do func(conditional bool) error) error {
	if b.noConditions.Load() {
		return do(false)
	}
	err := do(true)
	if !hasStatus(err, http.StatusNotImplemented) {
		return err
	}
	b.noConditions.Store(true)
	return do(false)
}

// remove deletes a key, if it exists.
func (b *bucket) remove(ctx context.Context, op, key string) error {
	return b.callWithRetry(ctx, op, func(ctx context.Context) error {
		return b.core.RemoveObject(ctx, b.location.bucket, key, minio.RemoveObjectOptions{})
	})
}

// copy copies a key to another one, on the server's side.
func (b *bucket) copy(ctx context.Context, op string, from item, to string) (copied item, err error) {
	err = b.retry(ctx, func() error {
		return b.call(ctx, op, copyTime(from.size), func(ctx context.Context) error {
			same := map[string]string{"x-amz-copy-source-if-match": `"` + from.etag + `"`}
			info, err := b.core.CopyObject(ctx, b.location.bucket, from.key, b.location.bucket, to, same, minio.CopySrcOptions{}, minio.PutObjectOptions{})
			copied = item{key: to, etag: trimETag(info.ETag), size: from.size}
			return err
		})
	})
	return copied, err
}

func copyTime(size int64) time.Duration { return time.Duration(size/copyRate) * time.Second }

// list returns up to limit keys under a prefix, after one of them, in order.
func (b *bucket) list(ctx context.Context, op, prefix, after string, limit int) (found []item, err error) {
	no := false
	err = b.callWithRetry(ctx, op, func(ctx context.Context) error {
		found = found[:0]
		opt := minio.ListObjectsOptions{Prefix: prefix, StartAfter: after, MaxKeys: min(limit, 1000), Recursive: true, FetchOwner: &no}
		for info := range b.core.ListObjectsIter(ctx, b.location.bucket, opt) {
			if info.Err != nil {
				return info.Err
			}
			found = append(found, itemOf(info))
			if len(found) == limit {
				return nil
			}
		}
		return ctx.Err()
	})
	return found, err
}

// responseReader is a response that is being read. It belongs to one caller.
type responseReader struct {
	// set at construction
	bucket *bucket
	op     string
	ctx    context.Context // the caller's
	call   context.Context // ended by cancel, and by the timer
	cancel context.CancelCauseFunc
	timer  *time.Timer
	body   io.ReadCloser
	item   item // the size is that of the whole, not of the part
}

// open starts reading n bytes of a key, at an offset. With an etag, it must
// still be the same version.
func (b *bucket) open(ctx context.Context, op, key, etag string, off, n int64) (*responseReader, error) {
	r := &responseReader{bucket: b, op: op, ctx: ctx}
	r.call, r.cancel = context.WithCancelCause(ctx)
	r.timer = time.AfterFunc(b.timeout, func() { r.cancel(errSlow) }) //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and close stops it
	if err := r.start(key, etag, off, n); err != nil {
		err = r.refusal(err)
		r.close()
		return nil, err
	}
	r.timer.Stop()
	return r, nil
}

func (r *responseReader) start(key, etag string, off, n int64) error {
	var opt minio.GetObjectOptions
	if err := opt.SetRange(off, off+n-1); err != nil {
		return err
	}
	if etag != "" {
		_ = opt.SetMatchETag(etag) // it fails only without one
	}
	body, info, header, err := r.bucket.core.GetObject(r.call, r.bucket.location.bucket, key, opt)
	if err != nil {
		return err
	}
	r.body, r.item = body, itemOf(info)
	r.item.key = key
	return r.parseContentRange(header.Get("Content-Range"), off)
}

// parseContentRange reads the size of the whole object. A server that ignores
// ranges is usable only for reads from the start.
func (r *responseReader) parseContentRange(contentRange string, off int64) error {
	if contentRange == "" && off == 0 {
		return nil
	}
	var first, last int64
	if n, err := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &first, &last, &r.item.size); n != 3 || err != nil || first != off {
		return fmt.Errorf("bytes from %d on were asked for, the answer has range %q", off, contentRange)
	}
	return nil
}

// Read reads on. It fails if nothing arrives for too long.
func (r *responseReader) Read(p []byte) (int, error) {
	r.timer.Reset(r.bucket.timeout)
	n, err := r.body.Read(p)
	r.timer.Stop()
	if err != nil && err != io.EOF {
		err = r.refusal(err)
	}
	return n, err
}

func (r *responseReader) refusal(err error) error {
	if errors.Is(context.Cause(r.call), errSlow) {
		err = errSlow
	}
	return r.bucket.refusal(r.ctx, r.op, err)
}

func (r *responseReader) close() {
	r.timer.Stop()
	r.cancel(nil)
	if r.body != nil {
		_ = r.body.Close() // everything needed was read
	}
}

// fetch reads up to n bytes of a key at an offset, at once.
func (b *bucket) fetch(ctx context.Context, op, key string, off, n int64) (data []byte, found item, err error) {
	err = b.retry(ctx, func() error {
		r, err := b.open(ctx, op, key, "", off, n)
		if err != nil {
			return err
		}
		defer r.close()
		found = r.item
		data = make([]byte, max(0, min(n, found.size-off)))
		return b.readFull(r, data)
	})
	return data, found, err
}

// readFull reads all of p. A response that ends too early is the server's
// fault, not the end of the object.
func (b *bucket) readFull(r *responseReader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return r.refusal(errShort)
	}
	return err
}

// errShort must not be taken for the end of a file.
var errShort = errors.New("the answer ended too early")

// trimETag removes the quotes that some responses have.
func trimETag(etag string) string {
	for len(etag) >= 2 && etag[0] == '"' && etag[len(etag)-1] == '"' {
		etag = etag[1 : len(etag)-1]
	}
	return etag
}
