// Package b3 implements content addresses: names that say what they name.
//
// The address of some bytes is their BLAKE3-256 hash, written as the text
// "b3:" and 64 lower-case hex digits. A program that holds an address can tell
// the right bytes from wrong ones, wherever they came from: a failing disk, a
// broken cache, a malicious peer. So no other part of this system has to trust
// the storage that keeps the bytes. That is the whole idea, and this package
// is the only one that implements it.
//
// # Names
//
// [Parse] and [Address.String] turn text into an [Address] and back. Parse is
// strict: one address has one spelling, so two spellings are two things, and a
// map keyed by text is as good as one keyed by address. An Address is a plain
// array: compare it with ==, use it as a map key, copy it freely. In JSON it
// is its text; the omitzero tag leaves out a zero address.
//
// IPFS writes the same hash as a CID. [Address.CID] and [ParseCID] translate
// between the two. Only a single raw block hashed with BLAKE3 has the same
// address in both, and for any other CID the error of ParseCID says what
// differs.
//
// # Whole contents
//
// [Of] hashes a slice. A [Hasher] hashes what is written to it, in constant
// memory. [NewReader] and [Copy] check the bytes while they stream. The check
// can only finish at the end, and no interface can hide the consequence: when
// the result is known, the earlier bytes have already been passed on. Use them
// for destinations that can be discarded, such as a temporary file that is
// renamed after success.
//
// # Ranges
//
// BLAKE3 is a tree, so a part can be checked without the whole. The inner
// nodes of the tree are kept beside the data as an [Outboard], made while the
// data is hashed ([TreeHasher]) or from a reader ([NewOutboard]). [Open] joins
// an address, a size, an outboard and the data to a [Verified], whose Range
// yields bytes that are already verified, one group at a time. [VerifyRange]
// does the same in one call.
//
// Only the address is trusted. Three guarantees follow:
//
//   - No wrong byte is ever returned. A changed byte in a group that covers the
//     range, a changed node of the outboard on the path from the root to such a
//     group, or a wrong size is a [Mismatch].
//   - Damage outside of the range has no effect. Damage elsewhere in the data,
//     or in outboard nodes that belong only to other parts, is not even read.
//   - A range costs what it covers, plus the height of the tree. The data is
//     read in whole groups, and exactly those that cover the range.
//
// A group is 16 KiB ([GroupSize]), sixteen of BLAKE3's chunks. That is as much
// as the widest processors hash at once, so smaller groups would be slower to
// check, and larger ones would make a small range read more than it needs. The
// outboard is then 1/256 of the data: 4,195,400 bytes, 4 MiB and a little, for
// 1 GiB. An object of one group needs no outboard at all.
//
// # The format of an outboard
//
// It starts with what the bao tool's family writes for groups of 16 chunks:
// the size as 8 bytes, little endian, then the parent nodes in pre-order, 64
// bytes each. Then comes a tail of our own, at most 1,152 bytes: the hashes to
// the left of the last chunk within the last group, from the top down, and the
// last chunk itself.
//
// The tail is there because of the size. A BLAKE3 tree does not state how long
// its content is; only the last chunk, by its number and its length, does. Bao
// therefore has to read the end of the data before it can trust a size, and
// damage there would spoil every range. With the tail the size is proved from
// the outboard and the address alone.
//
// # Errors
//
// Every error is typed. [ErrMalformed], [ErrMismatch] and [ErrRange] work with
// errors.Is; [Malformed], [Mismatch] and [OutOfRange] with errors.As. All of
// them have a method FaultCode that returns the kind of fault as the rest of
// the system knows it. Errors of the readers and writers that the caller
// passes in are returned wrapped with what was being read.
//
// # What it does not do
//
// It stores nothing, fetches nothing, starts no goroutine and holds no lock.
// It knows no other hash. The compression function is a library's; what is
// written here is the folding of its results along the tree, because the
// library's own incremental hasher starts goroutines and allocates with every
// write, and its bao functions need the size beforehand, trust a size unproved
// or hold a whole range in memory. Small contents, which need no folding of
// ours, are hashed by a second library that is faster with them. The tests
// compare all of it with both libraries and with vectors made with the b3sum
// tool.
package b3
