package stream

import (
	"context"
	"io"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// Section is a part of an object, or of a view of it, that one peer sends. Nothing of
// it is verified, and it is not resumed elsewhere: that is for a caller that
// asks several peers for parts and has the tree. It belongs to one task.
type Section struct {
	// set at construction
	ctx      context.Context // of the whole part, which is why it is kept
	receiver *receiver
	limit    int64 // how many bytes were asked for; 0 is all

	// owned by the reading task
	current chunk
	unread  []byte // of current
	n       int64  // bytes that were returned
	err     error  // why nothing more comes; io.EOF at the end
}

// FetchSection asks a peer for some bytes of an object, or of a view of it, from an
// offset on; a length of 0 is all of them. It returns when the first bytes are
// here, or the end. A peer of an earlier version sends more than was asked for,
// which is dropped, and refuses a view that it does not know as Malformed.
//
// The caller must Close the Section.
func (s *Streams) FetchSection(ctx context.Context, peer Peer, address b3.Address, view oap.View, from, length int64) (*Section, error) {
	if s.draining.Load() {
		return nil, fault.New(opFetch, fault.NotReady, "this node is draining")
	}
	k, err := s.openReceiver(peer, address, view, from, length)
	if err != nil {
		return nil, err
	}
	p := &Section{ctx: ctx, receiver: k, limit: length}
	if p.fill(); p.err != nil && p.err != io.EOF {
		_ = p.Close()
		return nil, p.err
	}
	return p, nil
}

// Read returns the next bytes.
func (p *Section) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if p.fill(); len(p.unread) == 0 {
		return 0, p.err
	}
	n := copy(b, p.unread)
	p.unread = p.unread[n:]
	p.n += int64(n)
	if len(p.unread) == 0 {
		p.current.release()
		p.current, p.unread = chunk{}, nil
		p.receiver.chunkRead()
	}
	return n, nil
}

// fill makes sure that there are unread bytes, or an error.
func (p *Section) fill() {
	for len(p.unread) == 0 && p.err == nil {
		if p.limit > 0 && p.n == p.limit {
			p.err = io.EOF
			return
		}
		a, err := p.receiver.nextArrival(p.ctx)
		switch {
		case err != nil:
			p.err = err
		case !a.end:
			p.current, p.unread = a.chunk, a.chunk.bytes
			if p.limit > 0 {
				p.unread = p.unread[:min(int64(len(p.unread)), p.limit-p.n)]
			}
		case a.err != nil:
			p.err = a.err
		default:
			p.err = io.EOF
		}
	}
}

// Close ends the part. A sender that is not done gets an end.
func (p *Section) Close() error {
	p.current.release()
	p.current, p.unread = chunk{}, nil
	if p.err == nil {
		p.err = fault.New(opFetch, fault.Canceled, "the part was closed")
	}
	p.receiver.close(fault.Canceled.Code())
	return nil
}
