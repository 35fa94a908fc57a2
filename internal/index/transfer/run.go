package transfer

import (
	"io"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// run is a part of the object that one lane fetches. All of it is guarded by
// the transfer's mu.
type run struct {
	from  int64
	bytes []byte    // as long as the run
	have  int64     // verified bytes, from the front
	good  uint32    // groups that other objects had, by their bits: they are verified, too
	lane  *lane     // who fetches it; nil if nobody does
	begun time.Time // when it came within reach

	lackedBy map[string]time.Time // sources that did not have it, and until when they are not asked again
}

func (r *run) isComplete() bool { return r.have == int64(len(r.bytes)) }

// isGood reports whether the group at an offset in the run is one that another
// object had.
func (r *run) isGood(at int64) bool { return r.good>>(at/b3.GroupSize)&1 == 1 }

// skipGood counts the groups that follow, and that another object had, as those
// from the front.
func (r *run) skipGood() {
	for !r.isComplete() && r.isGood(r.have) {
		r.have = min(r.have+b3.GroupSize, int64(len(r.bytes)))
	}
}

// missing returns how many bytes are missing next, from the front on, and how
// many in all.
func (r *run) missing() (next, all int64) {
	for at, stopped := r.have, false; at < int64(len(r.bytes)); at += b3.GroupSize {
		n := min(b3.GroupSize, int64(len(r.bytes))-at)
		if stopped = stopped || r.isGood(at); !stopped {
			next += n
		}
		if !r.isGood(at) {
			all += n
		}
	}
	return next, all
}

// runBuffers is the memory of runs.
var runBuffers = sync.Pool{New: func() any { return new([runSize]byte) }}

// appendRun appends the next run of the object. Guarded by mu.
func (t *Transfer) appendRun() *run {
	r := newRun(t.next, t.spec.Size)
	t.runs = append(t.runs, r)
	t.next += int64(len(r.bytes))
	return r
}

// newRun returns the run that begins at an offset of an object. It ends where all
// runs of the object end, wherever a transfer began: so the next one finds in what
// is kept how far each was.
func newRun(from, size int64) *run {
	n := min(runSize-from%runSize, size-from)
	return &run{from: from, begun: time.Now(), bytes: runBuffers.Get().(*[runSize]byte)[:n]}
}

// release gives the memory back. Nobody may use the run any more.
func (r *run) release() {
	runBuffers.Put((*[runSize]byte)(r.bytes[:runSize]))
	r.bytes = nil
}

// part lets package b3, which reads groups by their offset, read them from the
// stream of a part. b3 reads them in order.
type part struct {
	from io.Reader
	at   int64
	n    int64 // bytes that were read
}

func (p *part) ReadAt(b []byte, off int64) (int, error) {
	if off != p.at {
		return 0, fault.New(op, fault.Internal, "a stream at %d was asked for what is at %d", p.at, off)
	}
	n, err := io.ReadFull(p.from, b)
	p.at += int64(n)
	p.n += int64(n)
	switch err {
	case io.ErrUnexpectedEOF, io.EOF:
		// Not io.EOF: to b3 data that ends is wrong, and this is only short.
		err = fault.New(op, fault.UpstreamFailed, "it ended after %d bytes", p.n)
	}
	return n, err
}

// bytesReader reads a slice.
type bytesReader struct{ left []byte }

func (r *bytesReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// groups returns the whole groups that cover some bytes of an object.
func groups(from, n, size int64) (begin, end int64) {
	begin = from / b3.GroupSize * b3.GroupSize
	end = min((from+n+b3.GroupSize-1)/b3.GroupSize*b3.GroupSize, size)
	return begin, end
}
