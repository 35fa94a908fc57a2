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
// [RAM] is the store of a node in amnesia, [Disk] that of one with a folder to
// keep things in. Others, behind an S3 interface, are reached through the same
// interface. All have to pass the same suite: package storetest. What it checks
// is what this interface promises.
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
// # How Disk does it
//
// What there is, is remembered in the same shards, at about 200 bytes an object,
// so that nothing but reading and writing bytes touches the disk. It is found
// out when the store is opened, from the names of the files alone: half a second
// of a core for 100,000 objects.
//
// An object is one file: its bytes, and behind them, if they are more than
// 64 KiB, the outboard that proves them piece by piece. A body is written to a
// temporary file, synced, and renamed, and the folder is synced; only then is it
// seen by anybody. The class of an object is the folder that its file is in, and
// another rename changes it. So at every moment, each object is there, whole and
// of one class, or it is not, and a process can be killed at any of them. What
// it leaves are temporary files, and the next one removes those. A folder belongs
// to one process at a time.
//
// The disk may not be touched under a lock, so whoever changes a file is on an
// errand: nobody else changes the file, or the object's being there, until it is
// over. Those who want to, wait; those who read, do not, but for the moment in
// which a file goes from one name to another.
//
// Bytes from disk are verified before they are given out. A small object is read
// and hashed whole. Of a larger one, the groups that a range covers are verified
// along the tree, all of them before the first byte for a range of up to 1 MiB,
// and 1 MiB ahead for a longer one. An open file remembers which groups were
// right, for a minute and as long as it does not change, and only those does the
// kernel copy from the file to a connection by itself. After the last reader has
// gone, one file in each shard stays open, so 256 at most. What is damaged is
// taken out of view, counted, and moved to a folder where somebody can look at
// it.
//
// A get of 16 KiB takes four system calls on files (open, look at its flags,
// stat, read) and another to close the file that made room for it; two if the
// object was read a moment ago (stat, read); and none if the [Shelf] has it.
//
// The budget covers the bytes, rounded up to 4 KiB. Not covered are outboards,
// which are 1/256 of what they prove, folders, and up to 64 MiB in quarantine.
//
// # Checking again
//
// Memory fails too, and so do disks. A [Scrubber] reads all objects again,
// slowly, and what is no longer what its address says is taken out of view and
// counted, so that the next Open says NotFound and somebody can fetch the object
// anew.
//
// # What it refuses to do
//
// It starts no goroutine, logs nothing and knows no metrics library: [Usage]
// and [Counts] are read by who observes. It knows no names, no users and no
// expiry; who wants an object gone deletes it. It does not wait for room: what
// cannot be had now is refused now.
package store
