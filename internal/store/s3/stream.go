package s3

import (
	"context"
	"errors"
	"io"
	"net/http"

	"micronode/fault"
)

// stream reads an object from one offset to another, in order, with one call if
// all goes well. If the connection breaks it continues with another call. It
// returns what the server sends: the caller has to verify it. It belongs to one
// caller.
type stream struct {
	// set at construction
	bucket *bucket
	object *openObject
	ctx    context.Context
	op     string
	size   int64  // of the whole object; with another size it is another object
	end    int64  // where to stop
	prefix []byte // the first bytes of the object, if they are known

	next     int64 // the end of what was read
	response *responseReader
}

// Two errors that a stream handles by itself.
var (
	errMoved     = errors.New("the object was moved")
	errWrongSize = errors.New("the object has the wrong size")
)

// ReadAt reads all of p. It is fast if each call continues where the last one
// stopped. A wrong size of the object is an early end; a failure of the server
// is not.
func (s *stream) ReadAt(p []byte, off int64) (int, error) {
	if off != s.next {
		s.close()
	}
	if known := int64(len(s.prefix)); off+int64(len(p)) <= known {
		s.next = off + int64(copy(p, s.prefix[off:]))
		return len(p), nil
	}
	n, err := s.readFull(p, off)
	if errors.Is(err, errWrongSize) {
		return n, io.ErrUnexpectedEOF
	}
	if err == nil {
		s.next = off + int64(n)
	}
	return n, err
}

// readFull reads all of p, and retries as long as there is some progress.
func (s *stream) readFull(p []byte, off int64) (n int, err error) {
	for attempt := 1; n < len(p); {
		got, err := s.readSome(p[n:], off+int64(n))
		n += got
		if err == nil {
			attempt = 1
			continue
		}
		s.close()
		if !s.shouldRetry(attempt, err) {
			return n, err
		}
		attempt++
	}
	return n, nil
}

// shouldRetry reports whether to try again, after a pause if that makes sense.
func (s *stream) shouldRetry(attempt int, err error) bool {
	if errors.Is(err, errMoved) {
		return attempt < maxAttempts
	}
	return s.bucket.waitBackoff(s.ctx, attempt, err)
}

// readSome reads at least one byte.
func (s *stream) readSome(p []byte, off int64) (int, error) {
	if s.response == nil {
		if err := s.open(off); err != nil {
			return 0, err
		}
	}
	n, err := s.response.Read(p)
	switch {
	case n > 0:
		return n, nil // the error will be returned again
	case err == io.EOF:
		return 0, s.response.refusal(errShort)
	default:
		return 0, err
	}
}

// open starts a call for the rest.
func (s *stream) open(off int64) error {
	at := s.object.version.Load()
	r, err := s.bucket.open(s.ctx, s.op, at.key, at.etag, off, s.end-off)
	switch {
	case hasStatus(err, http.StatusPreconditionFailed):
		return s.refreshVersion(at)
	case hasStatus(err, http.StatusRequestedRangeNotSatisfiable):
		return errWrongSize
	case fault.KindOf(err) == fault.NotFound && s.object.version.Load() != at:
		return errMoved
	case fault.KindOf(err) == fault.NotFound:
		gone := fault.New(s.op, fault.NotFound, "%s was removed by another node while it was read", s.object.address)
		return gone
	case err != nil:
		return hideUnauthorized(err)
	case r.item.size != s.size:
		r.close()
		return errWrongSize
	}
	s.response = r
	return nil
}

// refreshVersion continues with the present version of the object. Another node
// may have put the same bytes again; if they differ, the verification fails.
func (s *stream) refreshVersion(old *objectVersion) error {
	found, err := s.bucket.head(s.ctx, s.op, old.key)
	if err != nil {
		return hideUnauthorized(err)
	}
	s.object.version.CompareAndSwap(old, &objectVersion{key: old.key, etag: found.etag})
	return errMoved
}

func (s *stream) close() {
	if s.response != nil {
		s.response.close()
		s.response = nil
	}
}
