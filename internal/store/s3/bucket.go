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
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"micronode/fault"
	"micronode/internal/flow"
)

// How a call that failed in passing is tried again.
const (
	tries     = 3
	pauseLow  = 50 * time.Millisecond
	pauseHigh = 100 * time.Millisecond
	pauseMost = 2 * time.Second
)

// copyRate is what a server is trusted to copy in a second. It says nothing
// while it copies, so the time is allowed for by the size.
const copyRate = 16 << 20

// The library pauses after a call that failed even if it will not try again.
// Trying again is our own affair, so its pause is none.
func init() { minio.DefaultRetryUnit = 0 }

// bucket makes the calls: each with a limit of its own, tried again where that
// is harmless, and with an error that says what to do.
type bucket struct {
	// set at construction
	core      *minio.Core
	transport *http.Transport
	at        location
	region    string
	timeout   time.Duration

	unconditional atomic.Bool // the server does not know conditional puts

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
		return nil, wrong(fault.Malformed, "Check the host in "+setURL+".", "%v", err)
	}
	return &bucket{core: core, transport: transport, at: at, region: spec.Region, timeout: spec.Timeout}, nil
}

// once makes a call that must not be repeated.
func (b *bucket) once(ctx context.Context, op string, extra time.Duration, do func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, b.timeout+extra)
	defer cancel()
	if err := do(limited); err != nil {
		return b.refusal(ctx, op, err)
	}
	return nil
}

// again makes a call that may be repeated, and repeats it if it fails in
// passing.
func (b *bucket) again(ctx context.Context, op string, do func(ctx context.Context) error) error {
	return b.persist(ctx, func() error { return b.once(ctx, op, 0, do) })
}

// persist does something until it succeeds, fails for good, or was tried often
// enough.
func (b *bucket) persist(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if err == nil || !b.pause(ctx, try, err) {
			return err
		}
	}
}

// pause waits before another try, and reports whether there is to be one. A
// pause that the caller's deadline does not leave time for is not begun.
func (b *bucket) pause(ctx context.Context, try int, err error) bool {
	if try >= tries || !passing(err) {
		return false
	}
	wait := pauseLow + rand.N(pauseHigh-pauseLow)
	wait = min(wait<<(try-1), pauseMost)
	if left, bounded := flow.Remaining(ctx); bounded && left <= wait {
		return false
	}
	if flow.Sleep(ctx, wait) != nil {
		return false
	}
	b.retries.Add(1)
	return true
}

// item is what is known of a key.
type item struct {
	key      string
	etag     string
	size     int64
	modified time.Time
	mark     string // which put made it; only head tells
}

func itemOf(info minio.ObjectInfo) item {
	return item{key: info.Key, etag: info.ETag, size: info.Size, modified: info.LastModified, mark: info.UserMetadata[putMark]}
}

// head describes a key.
func (b *bucket) head(ctx context.Context, op, key string) (found item, err error) {
	err = b.again(ctx, op, func(ctx context.Context) error {
		info, err := b.core.StatObject(ctx, b.at.bucket, key, minio.StatObjectOptions{})
		found = itemOf(info)
		return err
	})
	return found, err
}

// has tells whether a key is there.
func (b *bucket) has(ctx context.Context, op, key string) (bool, error) {
	_, err := b.head(ctx, op, key)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil, err
}

// put writes a key, whatever is there.
func (b *bucket) put(ctx context.Context, op, key string, data []byte) error {
	return b.again(ctx, op, b.writing(key, data, "", false))
}

// putNew writes a key unless it is there, and reports whether it did. A server
// that refuses may cut the line before its refusal is heard, and one that
// accepts may do so too; it may well do the same at the next try. So who was not
// answered looks before trying again, and the mark on the key tells whose it is.
func (b *bucket) putNew(ctx context.Context, op, key string, data []byte) (created bool, err error) {
	mark := cryptorand.Text()
	unheard := false
	err = b.persist(ctx, func() error {
		if unheard {
			if there, err := b.has(ctx, op, key); there || err != nil {
				return err
			}
		}
		err := b.conditionally(func(conditional bool) error {
			return b.once(ctx, op, 0, b.writing(key, data, mark, conditional))
		})
		if _, answered := answerOf(err); err != nil && !answered {
			unheard = true
		}
		return err
	})
	if err != nil && !answered(err, http.StatusPreconditionFailed) {
		return false, err
	}
	if !unheard {
		return err == nil, nil
	}
	found, err := b.head(ctx, op, key)
	return err == nil && found.mark == mark, err
}

// putMark is the metadata that tells which put made a key.
const putMark = "Micronode-Put"

// writing is one try of a put. The hash lets the server refuse what was changed
// on the way.
func (b *bucket) writing(key string, data []byte, mark string, conditional bool) func(ctx context.Context) error {
	sum := sha256.Sum256(data)
	return func(ctx context.Context) error {
		opt := minio.PutObjectOptions{DisableContentSha256: true}
		if mark != "" {
			opt.UserMetadata = map[string]string{putMark: mark}
		}
		if conditional {
			opt.SetMatchETagExcept("*")
		}
		_, err := b.core.PutObject(ctx, b.at.bucket, key, bytes.NewReader(data), int64(len(data)), "", hex.EncodeToString(sum[:]), opt)
		return err
	}
}

// conditionally makes a call that must not replace anything. A server that does
// not know of such conditions is asked without one from then on: what could be
// replaced has the same address, hence the same bytes.
func (b *bucket) conditionally(do func(conditional bool) error) error {
	if b.unconditional.Load() {
		return do(false)
	}
	err := do(true)
	if !answered(err, http.StatusNotImplemented) {
		return err
	}
	b.unconditional.Store(true)
	return do(false)
}

// remove deletes a key, if it is there.
func (b *bucket) remove(ctx context.Context, op, key string) error {
	return b.again(ctx, op, func(ctx context.Context) error {
		return b.core.RemoveObject(ctx, b.at.bucket, key, minio.RemoveObjectOptions{})
	})
}

// copy copies a key to another one, on the server's side.
func (b *bucket) copy(ctx context.Context, op string, from item, to string) (copied item, err error) {
	err = b.persist(ctx, func() error {
		return b.once(ctx, op, copyTime(from.size), func(ctx context.Context) error {
			same := map[string]string{"x-amz-copy-source-if-match": `"` + from.etag + `"`}
			info, err := b.core.CopyObject(ctx, b.at.bucket, from.key, b.at.bucket, to, same, minio.CopySrcOptions{}, minio.PutObjectOptions{})
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
	err = b.again(ctx, op, func(ctx context.Context) error {
		found = found[:0]
		opt := minio.ListObjectsOptions{Prefix: prefix, StartAfter: after, MaxKeys: min(limit, 1000), Recursive: true, FetchOwner: &no}
		for info := range b.core.ListObjectsIter(ctx, b.at.bucket, opt) {
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

// reading is an answer that is being read. It belongs to one caller.
type reading struct {
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

// open begins to read n bytes of a key, at an offset. With an etag, it must
// still be the same.
func (b *bucket) open(ctx context.Context, op, key, etag string, off, n int64) (*reading, error) {
	r := &reading{bucket: b, op: op, ctx: ctx}
	r.call, r.cancel = context.WithCancelCause(ctx)
	r.timer = time.AfterFunc(b.timeout, func() { r.cancel(errSlow) }) //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and close stops it
	if err := r.begin(key, etag, off, n); err != nil {
		err = r.refusal(err)
		r.close()
		return nil, err
	}
	r.timer.Stop()
	return r, nil
}

func (r *reading) begin(key, etag string, off, n int64) error {
	var opt minio.GetObjectOptions
	if err := opt.SetRange(off, off+n-1); err != nil {
		return err
	}
	if etag != "" {
		_ = opt.SetMatchETag(etag) // it fails only without one
	}
	body, info, header, err := r.bucket.core.GetObject(r.call, r.bucket.at.bucket, key, opt)
	if err != nil {
		return err
	}
	r.body, r.item = body, itemOf(info)
	r.item.key = key
	return r.measure(header.Get("Content-Range"), off)
}

// measure learns the size of the whole. A server that ignores ranges is of use
// only if we begin at the beginning.
func (r *reading) measure(contentRange string, off int64) error {
	if contentRange == "" && off == 0 {
		return nil
	}
	var first, last int64
	if n, err := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &first, &last, &r.item.size); n != 3 || err != nil || first != off {
		return fmt.Errorf("bytes from %d on were asked for, the answer has range %q", off, contentRange)
	}
	return nil
}

// Read reads on. Where nothing comes for too long, it gives up.
func (r *reading) Read(p []byte) (int, error) {
	r.timer.Reset(r.bucket.timeout)
	n, err := r.body.Read(p)
	r.timer.Stop()
	if err != nil && err != io.EOF {
		err = r.refusal(err)
	}
	return n, err
}

func (r *reading) refusal(err error) error {
	if errors.Is(context.Cause(r.call), errSlow) {
		err = errSlow
	}
	return r.bucket.refusal(r.ctx, r.op, err)
}

func (r *reading) close() {
	r.timer.Stop()
	r.cancel(nil)
	if r.body != nil {
		_ = r.body.Close() // nothing is lost that somebody still wants
	}
}

// fetch reads up to n bytes of a key at an offset, in one piece.
func (b *bucket) fetch(ctx context.Context, op, key string, off, n int64) (data []byte, found item, err error) {
	err = b.persist(ctx, func() error {
		r, err := b.open(ctx, op, key, "", off, n)
		if err != nil {
			return err
		}
		defer r.close()
		found = r.item
		data = make([]byte, max(0, min(n, found.size-off)))
		return b.fill(r, data)
	})
	return data, found, err
}

// fill reads all of p. An answer that ends too early is the server's fault, not
// the end of the object.
func (b *bucket) fill(r *reading, p []byte) error {
	_, err := io.ReadFull(r, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return r.refusal(errShort)
	}
	return err
}

// errShort must not be taken for the end of a file by anybody.
var errShort = errors.New("the answer ended too early")

// trimETag takes the quotes off that some answers have.
func trimETag(etag string) string {
	for len(etag) >= 2 && etag[0] == '"' && etag[len(etag)-1] == '"' {
		etag = etag[1 : len(etag)-1]
	}
	return etag
}
