package s3

import (
	"context"
	"errors"
	"io"
	"net/http"

	"micronode/fault"
)

// stream reads an object from one offset to another, in order, with one call if
// all goes well. Where the line breaks it goes on with another call. It gives
// out what the server sends: somebody else has to verify it. It belongs to one
// caller.
type stream struct {
	// set at construction
	bucket *bucket
	life   *life
	ctx    context.Context
	op     string
	size   int64  // of the whole object; with another one it is another object
	end    int64  // where to stop
	head   []byte // the first bytes of the object, if they are known

	next    int64 // the end of what was read
	reading *reading
}

// Two errors that a stream deals with by itself.
var (
	errMoved = errors.New("the object lies elsewhere now")
	errShape = errors.New("the object has another size than it must have")
)

// ReadAt reads all of p. It is fast if each call goes on where the last one
// stopped. That the object has not the size it must have is an early end; that
// the server fails is not.
func (s *stream) ReadAt(p []byte, off int64) (int, error) {
	if off != s.next {
		s.close()
	}
	if known := int64(len(s.head)); off+int64(len(p)) <= known {
		s.next = off + int64(copy(p, s.head[off:]))
		return len(p), nil
	}
	n, err := s.fill(p, off)
	if errors.Is(err, errShape) {
		return n, io.ErrUnexpectedEOF
	}
	if err == nil {
		s.next = off + int64(n)
	}
	return n, err
}

// fill reads all of p, and persists as long as there is some progress.
func (s *stream) fill(p []byte, off int64) (n int, err error) {
	for try := 1; n < len(p); {
		got, err := s.some(p[n:], off+int64(n))
		n += got
		if err == nil {
			try = 1
			continue
		}
		s.close()
		if !s.another(try, err) {
			return n, err
		}
		try++
	}
	return n, nil
}

// another tells whether to try again, and pauses if it makes sense to.
func (s *stream) another(try int, err error) bool {
	if errors.Is(err, errMoved) {
		return try < tries
	}
	return s.bucket.pause(s.ctx, try, err)
}

// some reads at least one byte.
func (s *stream) some(p []byte, off int64) (int, error) {
	if s.reading == nil {
		if err := s.open(off); err != nil {
			return 0, err
		}
	}
	n, err := s.reading.Read(p)
	switch {
	case n > 0:
		return n, nil // what went wrong will be said again
	case err == io.EOF:
		return 0, s.reading.refusal(errShort)
	default:
		return 0, err
	}
}

// open begins a call for the rest.
func (s *stream) open(off int64) error {
	at := s.life.place.Load()
	r, err := s.bucket.open(s.ctx, s.op, at.key, at.etag, off, s.end-off)
	switch {
	case answered(err, http.StatusPreconditionFailed):
		return s.repin(at)
	case answered(err, http.StatusRequestedRangeNotSatisfiable):
		return errShape
	case fault.KindOf(err) == fault.NotFound && s.life.place.Load() != at:
		return errMoved
	case fault.KindOf(err) == fault.NotFound:
		gone := fault.New(s.op, fault.NotFound, "%s was removed by another node while it was read", s.life.address)
		return gone
	case err != nil:
		return running(err)
	case r.item.size != s.size:
		r.close()
		return errShape
	}
	s.reading = r
	return nil
}

// repin goes on with the version of the object that is there now. Another node
// may have put the same bytes again; should they be others, the verification
// will say so.
func (s *stream) repin(old *place) error {
	found, err := s.bucket.head(s.ctx, s.op, old.key)
	if err != nil {
		return running(err)
	}
	s.life.place.CompareAndSwap(old, &place{key: old.key, etag: found.etag})
	return errMoved
}

func (s *stream) close() {
	if s.reading != nil {
		s.reading.close()
		s.reading = nil
	}
}
