package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"micronode/b3"
	"micronode/fault"
)

// GetOptions are the options of Get. All are optional.
type GetOptions struct {
	// Offset and Length select a part. A Length of zero means up to the end.
	// The bytes of a part are not verified here: that takes the whole object,
	// or an outboard (see package b3), which nodes do not serve. The node has
	// verified them on its side.
	Offset, Length int64

	// Fetch makes the node fetch an object that it does not have, from other
	// nodes; the bytes come while it does. That takes a capability with the
	// scope object:put.
	Fetch bool

	// Progress is called with the number of bytes read, and their total, or
	// -1. It is called by the goroutine that reads.
	Progress func(done, total int64)
}

const getOp = "client.get"

// Get opens an object. The context must live until the last byte was read, and
// the Reader must be closed.
func (c *Client) Get(ctx context.Context, address b3.Address, o GetOptions) (*Reader, error) {
	k, err := c.objectCall(ctx, getOp, http.MethodGet, address)
	if err != nil {
		return nil, err
	}
	if o.Fetch {
		k = c.newCall(ctx, getOp, http.MethodGet, "/fetch/"+address.String())
	}
	if o.Offset < 0 || o.Length < 0 || o.Offset+o.Length < 0 {
		return nil, fault.New(getOp, fault.InvalidRange, "%d bytes at offset %d", o.Length, o.Offset)
	}
	src := &objectSource{call: k, ctx: ctx, whole: o.Offset == 0 && o.Length == 0, at: o.Offset, end: -1, size: -1}
	if o.Length > 0 {
		src.end = o.Offset + o.Length
	}
	if err := src.connect(); err != nil {
		return nil, err
	}
	r := &Reader{src: src, in: src, from: o.Offset, address: address, progress: o.Progress}
	if src.whole {
		r.in = b3.NewReader(src, address)
	}
	return r, nil
}

// Reader reads an object. When the connection breaks in the middle, it resumes
// at the same offset. It is for one goroutine.
//
// A whole object is verified as it is read, and ends with [io.EOF] only if all
// its bytes were right; otherwise the end is an error of the kind
// [fault.IntegrityFail]. A program that stops before the end has verified
// nothing.
type Reader struct {
	// set at construction
	src      *objectSource
	in       io.Reader // the source, with or without verification
	from     int64
	address  b3.Address
	progress func(done, total int64)

	// owned by the reading goroutine
	err error // once there is one, it stays
}

// Size is how many bytes the whole object has, or -1 if unknown.
func (r *Reader) Size() int64 { return r.src.size }

// Read reads the next bytes.
func (r *Reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.in.Read(p)
	if n > 0 && r.progress != nil {
		r.progress(r.src.at-r.from, r.total())
	}
	if err != nil {
		r.src.closeResponse()
		r.err = r.classify(err)
	}
	return n, r.err
}

func (r *Reader) total() int64 {
	if r.src.end < 0 {
		return -1
	}
	return r.src.end - r.from
}

// classify turns a mismatch into an error of this package.
func (r *Reader) classify(err error) error {
	if !errors.Is(err, b3.ErrMismatch) {
		return err
	}
	return &fault.Error{Op: getOp, Kind: fault.IntegrityFail, Detail: "the received bytes are not " + r.address.String(),
		Err: &callCause{corr: r.src.call.corrID, cause: err}}
}

// Close closes the connection. The error is always nil.
func (r *Reader) Close() error {
	r.src.closeResponse()
	if r.err == nil {
		r.err = fault.New(getOp, fault.Canceled, "the reader is closed")
	}
	return nil
}

// objectSource is the bytes of an object, or of a part of it, over as many
// connections as it takes. It is used by one goroutine.
type objectSource struct {
	// set at construction
	call  *call
	ctx   context.Context
	whole bool // no part was requested

	at   int64 // offset of the next byte in the object
	end  int64 // end of the requested bytes; -1 if not known
	size int64 // of the object; -1 if not known

	answer     *http.Response // nil between connections
	pendingErr error          // why the connection ended; the next Read handles it
	failures   int            // tries in a row without a new byte
}

// connect retries until there is an answer, or a retry cannot help.
func (s *objectSource) connect() error {
	for {
		err := s.open()
		if err == nil {
			return nil
		}
		if err := s.retry(err); err != nil {
			return err
		}
	}
}

// Read retries after a failure as long as the policy allows. Each byte that
// arrives resets the count of tries.
func (s *objectSource) Read(p []byte) (int, error) {
	for {
		n, err := s.readOnce(p)
		if n > 0 {
			s.failures, s.pendingErr = 0, err
			return n, nil
		}
		if err == nil || err == io.EOF {
			return 0, err
		}
		if err := s.retry(err); err != nil {
			return 0, err
		}
	}
}

func (s *objectSource) retry(err error) error {
	s.closeResponse()
	s.failures++
	return s.call.client.waitRetry(s.ctx, s.failures, err)
}

// readOnce reads what is available, over one connection.
func (s *objectSource) readOnce(p []byte) (int, error) {
	switch err := s.pendingErr; {
	case err != nil:
		s.pendingErr = nil
		return 0, err
	case s.end >= 0 && s.at >= s.end:
		return 0, io.EOF
	case s.ctx.Err() != nil: // buffered bytes would still be returned, and the caller has cancelled
		return 0, s.call.tryError(s.ctx, s.ctx, s.ctx.Err())
	case s.answer == nil:
		if err := s.open(); err != nil {
			return 0, err
		}
	}
	if s.end >= 0 {
		p = p[:min(int64(len(p)), s.end-s.at)]
	}
	n, err := s.answer.Body.Read(p)
	s.at += int64(n)
	switch {
	case err == nil:
		return n, nil
	case s.at == s.end, err == io.EOF && s.end < 0:
		return n, io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, s.call.tryError(s.ctx, s.answer.Request.Context(), err)
}

// open requests the rest of the bytes, and checks the header of the answer.
func (s *objectSource) open() error {
	header := http.Header{"Accept-Encoding": {"identity"}}
	if wanted := s.rangeHeader(); wanted != "" {
		header.Set("Range", wanted)
	}
	answer, err := s.call.send(s.ctx, header, nil)
	if err != nil {
		return err
	}
	s.answer = answer
	if answer.StatusCode == http.StatusPartialContent && header.Get("Range") != "" {
		return s.acceptRange(answer.Header.Get("Content-Range"))
	}
	if answer.StatusCode != http.StatusOK {
		return s.call.unexpected(nil, "HTTP %d is not the response of an object", answer.StatusCode)
	}
	return s.acceptWhole(answer)
}

// rangeHeader is the value of Range for the rest of the bytes, or "" for
// everything.
func (s *objectSource) rangeHeader() string {
	switch {
	case s.whole && s.at == 0:
		return ""
	case s.end < 0:
		return fmt.Sprintf("bytes=%d-", s.at)
	default:
		return fmt.Sprintf("bytes=%d-%d", s.at, s.end-1)
	}
}

// acceptWhole checks an answer with the whole object, which a server may send
// even if a part was requested. Bytes that were read already are skipped.
func (s *objectSource) acceptWhole(answer *http.Response) error {
	if err := s.setSize(answer.ContentLength); err != nil {
		return err
	}
	if s.at > 0 && s.end >= 0 && s.at >= s.end {
		return fault.New(getOp, fault.InvalidRange, "offset %d is not within the %d bytes of the object", s.at, s.size)
	}
	if _, err := io.CopyN(io.Discard, answer.Body, s.at); err != nil {
		return s.call.tryError(s.ctx, answer.Request.Context(), err)
	}
	return nil
}

// acceptRange checks an answer with the requested part.
func (s *objectSource) acceptRange(contentRange string) error {
	var first, last, size int64
	if _, err := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &first, &last, &size); err != nil {
		return s.integrityError("it is a part, but does not say which")
	}
	if err := s.setSize(size); err != nil {
		return err
	}
	if first != s.at || last != s.end-1 {
		return s.integrityError("it is the bytes %d to %d, not %d to %d", first, last, s.at, s.end-1)
	}
	return nil
}

// setSize records the size of the object. It cannot change: the address names
// one content.
func (s *objectSource) setSize(size int64) error {
	switch {
	case size < 0:
		return nil // the size is unknown, which is no contradiction
	case s.size >= 0 && size != s.size:
		return s.integrityError("the object had %d bytes before, and now has %d", s.size, size)
	case s.end < 0 || s.end > size:
		s.end = size
	}
	s.size = size
	return nil
}

// integrityError rejects an answer that cannot be right.
func (s *objectSource) integrityError(format string, args ...any) error {
	err := s.call.unexpected(nil, format, args...)
	err.Kind = fault.IntegrityFail // a retry will not help
	return err
}

// closeResponse closes the connection, if there is one.
func (s *objectSource) closeResponse() {
	if s.answer != nil {
		_ = s.answer.Body.Close() // nothing was written to it
		s.answer = nil
	}
}
