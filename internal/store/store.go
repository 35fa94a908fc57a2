package store

import (
	"context"
	"io"
	"iter"

	"micronode/b3"
)

// Class says whether an object may be given up when room is needed.
type Class uint8

const (
	// Pinned objects stay until they are deleted. It is the zero value, so
	// that nothing is lost because somebody forgot to say.
	Pinned Class = iota

	// Cached objects can be had again from elsewhere and are evicted when room
	// is needed.
	Cached
)

// String is how the class is written in logs and tests.
func (c Class) String() string {
	if c == Cached {
		return "cached"
	}
	return "pinned"
}

// Info describes an object.
type Info struct {
	Address b3.Address
	Size    int64
	Class   Class
}

// Unknown is the Size of a body whose length the caller does not know.
const Unknown int64 = -1

// PutOptions says what the caller knows and wants.
type PutOptions struct {
	// Want is the address that the bytes must have; zero if any will do.
	Want b3.Address

	// Size is how long the body is, or Unknown. A zero Size declares an empty
	// body.
	Size int64

	// Class is what a new object becomes. An object that is here already
	// becomes Pinned if this says so, and never the other way round.
	Class Class
}

// Putter takes objects in.
type Putter interface {
	// Put reads src to its end and keeps what it gave. It reports whether the
	// object is new. If Want is here already, src may be left unread.
	//
	// It fails with fault.StoreFull if there is no room, with
	// fault.BodyTooLarge if no object may be so large, with
	// fault.IntegrityFail if the bytes are not those of Want, with
	// fault.Malformed if there are more or fewer than Size, with the error of
	// src, or because ctx ended. Then nothing is kept.
	//
	// The end of ctx is noticed between two reads. A src that can hang must
	// end with ctx by itself, as the body of a request does.
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
	// Delete makes the object invisible at once. Those who have it open can
	// read it to the end. It is fault.NotFound if there is no such object.
	Delete(ctx context.Context, a b3.Address) error
}

// MaxPage is how many objects a page of List has at most.
const MaxPage = 1024

// Lister tells what is there.
type Lister interface {
	// List returns the next objects after an address, in the order of their
	// addresses, at most limit and at most MaxPage. Start with the zero
	// address and go on with the last one of the page; an empty page is the
	// end. An object that is there all the time is listed once; one that comes
	// or goes meanwhile may be.
	List(ctx context.Context, after b3.Address, limit int) ([]Info, error)
}

// Pinner changes the class of objects.
type Pinner interface {
	Pin(ctx context.Context, a b3.Address) error
	Unpin(ctx context.Context, a b3.Address) error
}

// Verifier checks what is kept.
type Verifier interface {
	// Verify reads the object anew and compares it with its address. What does
	// not match is taken out of view and counted, and the error is
	// fault.IntegrityFail. It is fault.NotFound if the object is not there, or
	// goes while it is looked at. It does not count as use.
	//
	// Before each piece, pace is called with its length, and may wait; nothing
	// is held up meanwhile. It may be nil.
	Verify(ctx context.Context, a b3.Address, pace Pace) error
}

// Pace slows somebody down who is about to work on n bytes. An error stops it.
type Pace func(ctx context.Context, n int64) error

// Meter tells how much is kept. Its methods never wait.
type Meter interface {
	Usage() Usage
	Counts() Counts
}

// Usage is how much a store holds right now. The figures are read one by one,
// so they fit each other only while nothing moves.
type Usage struct {
	Objects   int64 // objects that can be opened
	Bytes     int64 // the sum of their sizes
	Pinned    int64 // the part of Bytes that cannot be evicted
	Lingering int64 // bytes of objects that are gone, but that somebody still has open
	Held      int64 // what counts against the budget: all of the above, with rounding, bookkeeping in RAM, and puts under way
	Idle      int64 // memory that waits to be used again; it is given up where the budget asks for it
	Budget    int64 // zero if the store has none
}

// Counts is what a store has done since it was made. Figures only go up.
type Counts struct {
	Evictions      uint64 // cached objects given up for room
	Refusals       uint64 // puts refused with StoreFull
	Mismatches     uint64 // puts refused because the bytes were not those of Want
	IntegrityFails uint64 // objects found corrupt and taken out of view: integrity_fail_total
}

// Store is everything. Its methods may be called by many at once.
type Store interface {
	Putter
	Opener
	Deleter
	Lister
	Pinner
	Verifier
	Meter

	// Close refuses everything from now on with flow.ErrClosed and lets go of
	// what is kept. What somebody has open goes when the handle is closed.
	Close() error
}

// Handle is an object that is held open. It may be read by many at once, but
// not after Close.
type Handle interface {
	Address() b3.Address
	Size() int64

	io.ReaderAt
	io.WriterTo

	// WriteRange writes the n bytes at off to w. It is the way to answer a
	// request for a range: each store does it as cheaply as it can, and gives
	// out verified bytes only. A range that is not within the object is
	// fault.InvalidRange, and nothing is written.
	WriteRange(w io.Writer, off, n int64) (int64, error)

	// Bytes returns the whole object without copying it, if the store has it
	// in one piece; small objects in RAM are. The slice must not be changed,
	// nor used after Close.
	Bytes() ([]byte, bool)

	// Close lets go of the object. A second Close does nothing.
	Close() error
}

// Walk goes through all objects, a page at a time. It ends after the first
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
