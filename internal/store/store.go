package store

import (
	"context"
	"errors"
	"io"
	"iter"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

// Class reports whether an object may be evicted when space is needed.
type Class uint8

const (
	// Pinned objects stay until they are deleted. It is the zero value, so that
	// an unset class loses nothing.
	Pinned Class = iota

	// Cached objects can be fetched again from elsewhere and are evicted when
	// space is needed.
	Cached

	// Named objects stay as long as a name of the node stands for them. Whoever
	// keeps the names makes them Cached when none does.
	Named
)

// String returns the class as written in logs, in answers and on disk.
func (c Class) String() string {
	switch c {
	case Cached:
		return "cached"
	case Named:
		return "named"
	default:
		return "pinned"
	}
}

// With returns the class of an object of this class after it was put with
// another: the one that keeps it longer.
func (c Class) With(put Class) Class {
	if c == Cached || put == Pinned {
		return put
	}
	return c
}

// Info describes an object.
type Info struct {
	Address b3.Address
	Size    int64
	Class   Class
}

// Unknown is the Size of a body whose length the caller does not know.
const Unknown int64 = -1

// PutOptions describes the body of a Put.
type PutOptions struct {
	// Want is the address that the bytes must have; zero if any will do.
	Want b3.Address

	// Size is how long the body is, or Unknown. A zero Size declares an empty
	// body.
	Size int64

	// Unverified marks bytes from an untrusted source. Until they have turned
	// out to be those of Want, which must be given, they evict nothing: they
	// get what is free, and the headroom that the store keeps for them, or
	// StoreFull.
	Unverified bool

	// Class is what a new object becomes. An existing object becomes Pinned, or
	// Named if it was Cached, if this says so, and never the other way round.
	Class Class

	// Resume, if it is given, makes the store keep what has arrived of Want when
	// the Put fails, and lets a later one go on from there: on disk even after
	// the process has ended. It is called before src is read, with what is kept,
	// if anything is; it verifies that, and writes what is right of it, from the
	// front on, to good. Then src has only the rest. A store that cannot keep
	// anything ignores it.
	Resume func(kept io.ReaderAt, n int64, good io.Writer) error

	// Tree is that of Want, proven. With Resume it is kept beside what has arrived,
	// so that it need not be fetched again. A store that cannot ignores it.
	Tree b3.Outboard

	// Ahead, if it is given with Resume, is called before src is read, with a place
	// for bytes of Want that have arrived before those in front of them: they are
	// kept too, even if the process is killed. They may be wrong, and src has them
	// again. What is written after Put has ended is lost. A store that cannot keep
	// them does not call it.
	Ahead func(w io.WriterAt)

	// Arrival, if it is given, lets others read what is stored so far, while
	// Put runs. A store that cannot do that ignores it.
	Arrival *Arrival
}

// Putter stores objects.
type Putter interface {
	// Put reads src to its end and stores it. It reports whether the object is
	// new. If Want exists already, src may be left unread.
	//
	// It fails with fault.StoreFull if there is no space, with
	// fault.BodyTooLarge if the object exceeds the maximum size, with
	// fault.IntegrityFail if the bytes are not those of Want, with
	// fault.Malformed if there are more or fewer than Size, with the error of
	// src, or because ctx ended. Then nothing is kept, but for Resume.
	//
	// The end of ctx is noticed between two reads. A src that can hang must end
	// with ctx by itself, as the body of a request does.
	Put(ctx context.Context, src io.Reader, opt PutOptions) (info Info, created bool, err error)
}

// Opener finds objects.
type Opener interface {
	// Open returns a handle that the caller must close. It is
	// fault.NotFound if there is no such object. Where reading can wait, ctx
	// bounds the reads from the handle too.
	Open(ctx context.Context, a b3.Address) (Handle, error)

	// Stat describes an object without opening it, and does not count as use.
	Stat(ctx context.Context, a b3.Address) (Info, error)
}

// Deleter removes objects.
type Deleter interface {
	// Delete makes the object invisible at once. Open handles can be read to
	// the end. It is fault.NotFound if there is no such object.
	Delete(ctx context.Context, a b3.Address) error

	// Evict does the same if the object is Cached, and reports whether it was.
	// It is false, too, if there is no such object.
	Evict(ctx context.Context, a b3.Address) (bool, error)
}

// MaxPage is how many objects a page of List has at most.
const MaxPage = 1024

// Lister lists objects.
type Lister interface {
	// List returns the next objects after an address, in the order of their
	// addresses, at most limit and at most MaxPage. Start with the zero address
	// and continue with the last one of the page; an empty page is the end. An
	// object that exists all the time is listed once; one that is put or
	// deleted meanwhile may be.
	List(ctx context.Context, after b3.Address, limit int) ([]Info, error)
}

// Pinner changes the class of objects.
type Pinner interface {
	Pin(ctx context.Context, a b3.Address) error
	Unpin(ctx context.Context, a b3.Address) error

	// Reclass gives an object another class if it has the class from, and
	// reports whether it had: what somebody else has pinned meanwhile stays
	// pinned. It is fault.NotFound if there is no such object.
	Reclass(ctx context.Context, a b3.Address, from, to Class) (bool, error)
}

// Verifier checks stored objects.
type Verifier interface {
	// Verify reads the object again and compares it with its address. A corrupt
	// object is removed and counted, and the error is fault.IntegrityFail. It
	// is fault.NotFound if the object does not exist, or is removed while it is
	// being read. It does not count as use.
	//
	// Before each chunk, pace is called with its length, and may wait; nothing
	// is blocked meanwhile. It may be nil.
	Verify(ctx context.Context, a b3.Address, pace Pace) error
}

// Pace throttles a caller that is about to process n bytes. An error stops it.
type Pace func(ctx context.Context, n int64) error

// Meter reports how much is stored. Its methods never wait.
type Meter interface {
	Usage() Usage
	Counts() Counts
}

// Usage is how much a store holds right now. The figures are read one by one,
// so they are consistent only while nothing changes.
type Usage struct {
	Objects   int64 // objects that can be opened
	Bytes     int64 // the sum of their sizes
	Pinned    int64 // the part of Bytes that cannot be evicted
	Lingering int64 // bytes of deleted or evicted objects that are still open
	Held      int64 // what counts against the budget: all of the above, with rounding, bookkeeping in RAM, and running puts
	Idle      int64 // memory kept for reuse; it is released when the budget needs it
	Budget    int64 // zero if the store has none
}

// Calls counts the results of calls to a store on another machine. The counters
// only increase.
type Calls struct {
	Retries  uint64 // calls that were retried: backoff_retries_total
	Timeouts uint64 // calls that were not answered in time: io_timeouts_total
	Failures uint64 // calls that failed in another way: io_errors_total
}

// Counts is what a store has done since it was created. The counters only
// increase.
type Counts struct {
	Evictions      uint64 // cached objects evicted for space
	Refusals       uint64 // puts rejected with StoreFull
	Mismatches     uint64 // puts rejected because the bytes were not those of Want
	IntegrityFails uint64 // objects found corrupt and removed: integrity_fail_total
}

// Store is the whole interface. It is safe for concurrent use.
type Store interface {
	Putter
	Opener
	Deleter
	Lister
	Pinner
	Verifier
	Meter

	// Close rejects all later calls with flow.ErrClosed and releases the
	// objects. Those that are open are released when their handle is closed.
	Close() error
}

// Handle is an open object. It is safe for concurrent use, but not after Close.
type Handle interface {
	Address() b3.Address
	Size() int64

	io.ReaderAt
	io.WriterTo

	// WriteRange writes the n bytes at off to w. It is the way to answer a
	// request for a range: each store does it as cheaply as it can, and writes
	// verified bytes only. A range that is not within the object is
	// fault.InvalidRange, and nothing is written.
	WriteRange(w io.Writer, off, n int64) (int64, error)

	// Bytes returns the whole object without copying it, if the store has it
	// contiguous in memory; small objects in RAM are. The slice must not be
	// changed, nor used after Close.
	Bytes() ([]byte, bool)

	// Close releases the object. A second Close does nothing.
	Close() error
}

// Walk iterates over all objects, a page at a time. It ends after the first
// error.
func Walk(ctx context.Context, l Lister) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		var after b3.Address
		for {
			page, err := l.List(ctx, after, MaxPage)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
				after = info.Address
			}
			if len(page) == 0 {
				return
			}
		}
	}
}

// ReadBody reads at least one byte from the body of a put, or returns an error.
// It is for implementations of Store.
func ReadBody(ctx context.Context, src io.Reader, p []byte) (int, error) {
	const maxEmptyReads = 100
	for range maxEmptyReads {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if n, err := src.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// BodyFault classifies the error of a body. HTTP bodies report a client that
// disconnected by an unexpected EOF.
func BodyFault(ctx context.Context, err error) error {
	if ended := flow.Ended(ctx, opPut); ended != nil {
		return ended
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.WrapKind(opPut, fault.BrokenPipe, err)
	}
	return fault.Wrap(opPut, err)
}
