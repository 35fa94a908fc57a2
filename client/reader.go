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

// GetOptions may all be left out.
type GetOptions struct {
	// Offset and Length ask for a part. A Length of zero means up to the end.
	// The bytes of a part are not verified here: that takes the whole object,
	// or an outboard (see package b3), which a node does not hand out. The
	// node has verified them on its side.
	Offset, Length int64

	// Progress is told how many bytes were read, and how many there will be,
	// or -1. It is called by the goroutine that reads.
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
	if o.Offset < 0 || o.Length < 0 || o.Offset+o.Length < 0 {
		return nil, fault.New(getOp, fault.InvalidRange, "%d bytes at offset %d", o.Length, o.Offset)
	}
	src := &source{call: k, ctx: ctx, whole: o.Offset == 0 && o.Length == 0, at: o.Offset, end: -1, size: -1}
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

// Reader reads an object. When the connection breaks in the middle, it goes on
// where it was. It is for one goroutine.
//
// A whole object is verified as it is read, and ends with [io.EOF] only if all
// its bytes were right; otherwise the end is an error of the kind
// [fault.IntegrityFail]. Whoever stops before the end has verified nothing.
type Reader struct {
	// set at construction
	src      *source
	in       io.Reader // the source, with or without verification
	from     int64
	address  b3.Address
	progress func(done, total int64)

	// owned by the reading goroutine
	end error // once there is one, it stays
}

// Size is how many bytes the whole object has, or -1 if the node did not say.
func (r *Reader) Size() int64 { return r.src.size }

// Read reads the next bytes.
func (r *Reader) Read(p []byte) (int, error) {
	if r.end != nil {
		return 0, r.end
	}
	n, err := r.in.Read(p)
	if n > 0 && r.progress != nil {
		r.progress(r.src.at-r.from, r.total())
	}
	if err != nil {
		r.src.drop()
		r.end = r.judge(err)
	}
	return n, r.end
}

func (r *Reader) total() int64 {
	if r.src.end < 0 {
		return -1
	}
	return r.src.end - r.from
}

// judge gives a mismatch its place among the errors of this package.
func (r *Reader) judge(err error) error {
	if !errors.Is(err, b3.ErrMismatch) {
		return err
	}
	return &fault.Error{Op: getOp, Kind: fault.IntegrityFail, Detail: "what came is not " + r.address.String(),
		Err: &trace{corr: r.src.call.corr, cause: err}}
}

// Close ends the reading. The error is always nil.
func (r *Reader) Close() error {
	r.src.drop()
	if r.end == nil {
		r.end = fault.New(getOp, fault.Canceled, "the reader is closed")
	}
	return nil
}

// source is the bytes of an object, or of a part of it, over as many
// connections as it takes. It belongs to the one who reads.
type source struct {
	// set at construction
	call  *call
	ctx   context.Context
	whole bool // no part was asked for

	at   int64 // of the next byte, from the beginning of the object
	end  int64 // after the last byte that is wanted; -1 if not known
	size int64 // of the object; -1 if not known

	answer *http.Response // nil between connections
	broken error          // why the connection ended, to be dealt with next time
	fails  int            // tries in a row without a new byte
}

// connect tries until there is an answer, or no point in trying.
func (s *source) connect() error {
	for {
		err := s.open()
		if err == nil {
			return nil
		}
		if err := s.again(err); err != nil {
			return err
		}
	}
}

// Read goes on after a failure as long as the policy allows. The tries count
// anew with each byte that comes.
func (s *source) Read(p []byte) (int, error) {
	for {
		n, err := s.some(p)
		if n > 0 {
			s.fails, s.broken = 0, err
			return n, nil
		}
		if err == nil || err == io.EOF {
			return 0, err
		}
		if err := s.again(err); err != nil {
			return 0, err
		}
	}
}

func (s *source) again(err error) error {
	s.drop()
	s.fails++
	return s.call.client.again(s.ctx, s.fails, err)
}

// some reads what there is, over one connection.
func (s *source) some(p []byte) (int, error) {
	switch err := s.broken; {
	case err != nil:
		s.broken = nil
		return 0, err
	case s.end >= 0 && s.at >= s.end:
		return 0, io.EOF
	case s.ctx.Err() != nil: // what is buffered would still come, and nobody wants it
		return 0, s.call.failure(s.ctx, s.ctx, s.ctx.Err())
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
	return n, s.call.failure(s.ctx, s.answer.Request.Context(), err)
}

// open asks for what is still wanted, and looks at what the answer promises.
func (s *source) open() error {
	header := http.Header{"Accept-Encoding": {"identity"}}
	if wanted := s.wanted(); wanted != "" {
		header.Set("Range", wanted)
	}
	answer, err := s.call.send(s.ctx, header, nil)
	if err != nil {
		return err
	}
	s.answer = answer
	if answer.StatusCode == http.StatusPartialContent && header.Get("Range") != "" {
		return s.part(answer.Header.Get("Content-Range"))
	}
	if answer.StatusCode != http.StatusOK {
		return s.call.strange(nil, "HTTP %d does not come with an object", answer.StatusCode)
	}
	return s.entire(answer)
}

// wanted is what is still wanted as a Range, or "" for everything.
func (s *source) wanted() string {
	switch {
	case s.whole && s.at == 0:
		return ""
	case s.end < 0:
		return fmt.Sprintf("bytes=%d-", s.at)
	default:
		return fmt.Sprintf("bytes=%d-%d", s.at, s.end-1)
	}
}

// entire is for an answer with the whole object, which a server may give even
// if a part was asked for. What we have already is skipped.
func (s *source) entire(answer *http.Response) error {
	if err := s.learn(answer.ContentLength); err != nil {
		return err
	}
	if s.at > 0 && s.end >= 0 && s.at >= s.end {
		return fault.New(getOp, fault.InvalidRange, "offset %d is not within the %d bytes of the object", s.at, s.size)
	}
	if _, err := io.CopyN(io.Discard, answer.Body, s.at); err != nil {
		return s.call.failure(s.ctx, answer.Request.Context(), err)
	}
	return nil
}

// part is for an answer with the part that was asked for.
func (s *source) part(contentRange string) error {
	var first, last, size int64
	if _, err := fmt.Sscanf(contentRange, "bytes %d-%d/%d", &first, &last, &size); err != nil {
		return s.refuse("it is a part, but does not say which")
	}
	if err := s.learn(size); err != nil {
		return err
	}
	if first != s.at || last != s.end-1 {
		return s.refuse("it is the bytes %d to %d, not %d to %d", first, last, s.at, s.end-1)
	}
	return nil
}

// learn takes note of the size of the object. It cannot change: the address
// names one content.
func (s *source) learn(size int64) error {
	switch {
	case size < 0:
		return nil // it does not say, and that is no contradiction
	case s.size >= 0 && size != s.size:
		return s.refuse("the object had %d bytes a moment ago, and now has %d", s.size, size)
	case s.end < 0 || s.end > size:
		s.end = size
	}
	s.size = size
	return nil
}

// refuse gives up an answer that cannot be right.
func (s *source) refuse(format string, args ...any) error {
	err := s.call.strange(nil, format, args...)
	err.Kind = fault.IntegrityFail // asking again will not help
	return err
}

// drop ends the connection, if there is one.
func (s *source) drop() {
	if s.answer != nil {
		_ = s.answer.Body.Close() // nothing was written to it
		s.answer = nil
	}
}
