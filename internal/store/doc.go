// Package store keeps objects: bytes under the address that names them.
//
// An object never changes, because its address is the hash of its bytes. So
// there is nothing to update and nothing to lock for a reader: an object is
// there, whole and right, or it is not there. What is left to decide is how
// much may be kept, what is given up when room is needed, and how nobody pulls
// the bytes away from under somebody who reads them. This package decides that.
//
// # One interface, several places
//
// [Store] is what the rest of the node sees. It is put together from small
// roles, so that a part that only reads asks for an [Opener] and no more.
// [RAM] is the store of a node in amnesia. Others, on disk or behind an S3
// interface, are reached through the same interface and have to pass the same
// suite: package storetest. What it checks is what this interface promises.
//
// # Admission
//
// Put reads a body, finds its address and makes the object visible, in this
// order. A body that ends early, that is longer or shorter than was declared,
// or that is not what the caller wanted leaves nothing behind. An object that
// is here already is kept once: the second Put succeeds and says that it
// created nothing.
//
// # Handles
//
// Open returns a [Handle], and handles are counted. While one is open, the
// bytes of its object are not evicted, not zeroed and not reused. A deleted
// object is invisible at once, but its bytes go, and stop to count against the
// budget, when the last handle is closed. So a caller may write straight from
// the memory of the store to a connection, however slow.
//
// # Room
//
// A store with a budget promises never to hold more. A Put whose size is known
// reserves all of it before the first byte is read, and is refused with
// fault.StoreFull, at once, if that much cannot be freed; then nothing is
// evicted for it either. A Put of unknown size reserves as it goes, and when it
// cannot go on it gives everything back. Because what was reserved is never
// taken away again, puts under way cannot wait for each other, and there is no
// number of them, half finished, that goes over the budget.
//
// Objects are [Pinned] or [Cached]. Pinned ones stay until they are deleted.
// Cached ones are given up when room is needed and not before, those that were
// not used for long first.
//
// # How RAM does it
//
// Objects are found in 256 shards, by the first byte of the address, each under
// a short lock of its own. A reader takes that lock once, to look up and to
// count itself, and none to close.
//
// Bytes lie in blocks from the Go heap. An object of at most 64 KiB is one
// block of a fitting size, so that it can be given out as a single slice; a
// larger one is a row of 64 KiB blocks. Blocks that come free are used again.
// Both what is in use and what waits for use counts against the budget.
//
// Which cached object goes is found by a clock: a hand walks over all cached
// objects, takes one from the use count of each, and evicts what stands at
// zero. One Put at a time moves the hand, and what it evicts belongs to it, so
// that a large Put is not starved by small ones.
//
// The budget covers the blocks with what rounding adds, and for each small
// object 256 bytes of bookkeeping. Not covered are: the rounding of the budget
// itself to whole 64 KiB; the bookkeeping of larger objects, less than one half
// of a per cent; for each Put of more than 64 KiB that hashes at this very
// moment, 18 KiB; and blocks that were given back to the Go heap until its
// collector comes by.
//
// # Checking again
//
// Memory fails too. A [Scrubber] reads all objects again, slowly, and what is
// no longer what its address says is taken out of view and counted, so that the
// next Open says NotFound and somebody can fetch the object anew.
//
// # What it refuses to do
//
// It starts no goroutine, logs nothing and knows no metrics library: [Usage]
// and [Counts] are read by who observes. It knows no names, no users and no
// expiry; who wants an object gone deletes it. It does not wait for room: what
// cannot be had now is refused now.
package store
