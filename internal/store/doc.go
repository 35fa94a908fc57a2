// Package store keeps objects: bytes under their content address.
//
// An object never changes, because its address is the hash of its bytes. So
// there is nothing to update and no lock that a reader needs: an object is
// there, complete and correct, or it is not there. This package decides how
// much may be kept, what is evicted when space is needed, and how the bytes
// stay valid while they are read.
//
// # One interface, several stores
//
// [Store] is what the rest of the node sees. It is composed of small roles, so
// that a part that only reads depends on an [Opener] and no more. [RAM] is the
// store of a node in amnesia mode, [Disk] that of one with a folder. Others,
// behind an S3 interface, implement the same interface. All have to pass the
// same suite: package storetest. What it checks is what this interface
// promises.
//
// # Admission
//
// Put reads a body, computes its address and makes the object visible, in this
// order. A body that ends early, that is longer or shorter than was declared,
// or that is not what the caller wanted leaves nothing behind. An existing
// object is kept once: the second Put succeeds and reports that it created
// nothing.
//
// # Handles
//
// Open returns a [Handle], and handles are counted. While one is open, the
// bytes of its object are not evicted, not zeroed and not reused. A deleted
// object is invisible at once, but its bytes are freed, and stop to count
// against the budget, when the last handle is closed. So a caller may write
// straight from the memory of the store to a connection, however slow.
//
// # Budget
//
// A store with a budget never holds more. A Put whose size is known reserves
// all of it before the first byte is read, and is rejected with
// fault.StoreFull, at once, if that much cannot be freed; then nothing is
// evicted for it either. A Put of unknown size reserves as it goes, and when it
// cannot continue it releases everything. Because reserved space is never
// revoked, concurrent puts cannot deadlock, and no number of unfinished puts
// exceeds the budget.
//
// Objects are [Pinned] or [Cached]. Pinned ones stay until they are deleted.
// Cached ones are evicted when space is needed and not before, the least used
// first.
//
// # How RAM does it
//
// Objects are found in 256 shards, by the first byte of the address, each under
// a short lock of its own. A reader takes that lock once, to look up and to
// count itself, and none to close.
//
// Bytes are in blocks from the Go heap. An object of at most 64 KiB is one
// block of a fitting size, so that it can be returned as a single slice; a
// larger one is a list of 64 KiB blocks. Free blocks are reused. Both used and
// idle blocks count against the budget.
//
// The cached object to evict is found by the CLOCK algorithm: a hand walks over
// all cached objects, decrements the use count of each, and evicts what is at
// zero. One Put at a time moves the hand, and what it evicts belongs to it, so
// that a large Put is not starved by small ones.
//
// The budget covers the blocks with what rounding adds, and for each small
// object 256 bytes of bookkeeping. Not covered are: the rounding of the budget
// itself to whole 64 KiB; the bookkeeping of larger objects, less than one half
// of a per cent; for each Put of more than 64 KiB that is being hashed, 18 KiB;
// and blocks that were returned to the Go heap until they are collected.
//
// # How Disk does it
//
// The same shards hold the catalogue, at about 200 bytes per object, so that
// nothing but reading and writing bytes touches the disk. It is built when the
// store is opened, from the names of the files alone: half a second of a core
// for 100,000 objects.
//
// An object is one file: its bytes, followed, if they are more than 64 KiB, by
// the outboard that proves them group by group. A body is written to a
// temporary file, synced, and renamed, and the folder is synced; only then is
// it visible. The class of an object is the folder that its file is in, and
// another rename changes it. So at every moment, each object is there, complete
// and of one class, or it is not, and a process can be killed at any of them.
// What it leaves are temporary files, and the next one removes those. A folder
// belongs to one process at a time.
//
// The disk must not be touched under a mutex. A change of a file holds the lock
// of its address instead. Other changes of that address wait. Readers do not
// wait, except while the file is being renamed.
//
// Bytes from disk are verified before they are returned. A small object is read
// and hashed whole. Of a larger one, the groups that a range covers are
// verified along the tree, all of them before the first byte for a range of up
// to 1 MiB, and 1 MiB ahead for a longer one. An open file remembers which
// groups were verified, for a minute and as long as it does not change, and
// only those are copied from the file to a connection by the kernel. After the
// last reader has closed, one file in each shard stays open, so 256 at most. A
// damaged object is removed from the catalogue, counted, and moved to a
// quarantine folder for inspection.
//
// A get of 16 KiB takes four system calls on files (open, look at its flags,
// stat, read) and another to close the file that it replaced; two if the object
// was read a moment ago (stat, read); and none if the [ObjectCache] has it.
//
// The budget covers the bytes, rounded up to 4 KiB. Not covered are outboards,
// which are 1/256 of what they prove, folders, and up to 64 MiB in quarantine.
//
// # Scrubbing
//
// Memory fails too, and so do disks. A [Scrubber] reads all objects again,
// slowly, and removes and counts those that no longer match their address, so
// that the next Open returns NotFound and the object can be fetched again.
//
// # What it does not do
//
// It starts no goroutine, logs nothing and knows no metrics library: [Usage]
// and [Counts] are read by the metrics code. It knows no names, no users and no
// expiry; objects are removed by deleting them. It does not wait for space:
// what is not available now is rejected now.
package store
