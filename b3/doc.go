// Package b3 is about content addresses: names that say what they name.
//
// The address of some bytes is their BLAKE3-256 hash, written as the text
// "b3:" and 64 lower-case hex digits. Whoever holds an address can tell the
// right bytes from wrong ones, wherever they came from: a disk that forgets, a
// cache that mixes things up, a peer that lies. So nothing else in this system
// has to trust the place where bytes are kept. That is the whole idea, and this
// package is the only one that knows how it is done.
//
// # Names
//
// [Parse] and [Address.String] turn text into an [Address] and back. Parse is
// strict: one address has one spelling, so two spellings are two things, and
// a map keyed by text is as good as one keyed by address. An Address is a plain
// array: compare it with ==, use it as a map key, copy it freely. In JSON it is
// its text; a zero address is left out by the omitzero tag.
//
// The world of IPFS writes the same hash as a CID. [Address.CID] and [ParseCID]
// translate between the two. Only a single raw block hashed with BLAKE3 has the
// same address in both worlds, and ParseCID says what is different about any
// other CID.
//
// # Whole contents
//
// [Of] hashes a slice. A [Hasher] hashes what is written to it, in constant
// memory. [NewReader] and [Copy] check while the bytes go by. The check can
// only be finished at the end, and that has a consequence that no interface can
// hide: when the verdict comes, the earlier bytes have already been handed on.
// Use them for destinations that can be thrown away, such as a temporary file
// that is renamed after success.
//
// # Ranges
//
// BLAKE3 is a tree, and so a part can be checked without the whole. The inner
// nodes of the tree are kept beside the data as an [Outboard], made while the
// data is hashed ([TreeHasher]) or from a reader ([NewOutboard]). [Open] joins
// an address, a size, an outboard and the data to a [Verified], whose Range
// yields bytes that are already verified, one group at a time. [VerifyRange]
// does the same in one call.
//
// Only the address is trusted. Three promises follow:
//
//   - No wrong byte is ever given out. A changed byte in a group that covers the
//     range, a changed node of the outboard on the way from the root to such a
//     group, or a wrong size is a [Mismatch].
//   - What lies outside does not disturb. Damage elsewhere in the data, or in
//     the outboard nodes that only stand for other parts, is not even read.
//   - A range costs what it covers, plus the height of the tree. The data is
//     read in whole groups, and exactly those that cover the range.
//
// A group is 16 KiB ([GroupSize]), sixteen of BLAKE3's chunks. That is as much
// as the widest processors hash at one go, so smaller groups would be slower
// to check; and larger ones would make a small range read more than it needs.
// The outboard is then 1/256 of the data: 4,195,400 bytes, 4 MiB and a little, for 1 GiB. An
// object of one group needs no outboard at all.
//
// # The shape of an outboard
//
// First comes what the bao tool's family writes for groups of 16 chunks: the
// size as 8 bytes, little endian, then the parent nodes in pre-order, 64 bytes
// each. Then comes a tail of our own, at most 1,152 bytes: the hashes to the
// left of the last chunk within the last group, from the top down, and the last
// chunk itself.
//
// The tail is there because of the size. A BLAKE3 tree does not state how long
// its content is; only the last chunk, by its number and its length, does. Bao
// therefore has to read the end of the data before it may believe a size, and
// damage there would spoil every range. With the tail the size is proved from
// the outboard and the address alone.
//
// # Errors
//
// Every refusal is typed. [ErrMalformed], [ErrMismatch] and [ErrRange] work with
// errors.Is; [Malformed], [Mismatch] and [OutOfRange] with errors.As. All of
// them have a method FaultCode that names the kind of fault as the rest of the
// system knows it. Errors of the readers and writers that the caller passes in
// come back as they are, wrapped with what was being read.
//
// # What it does not do
//
// It keeps nothing, fetches nothing, starts no goroutine and holds no lock. It
// knows no other hash. The compression function is a library's; what is
// written here is the folding of its results along the tree, because the
// library's own incremental hasher starts goroutines and allocates with every
// write, and its bao functions need the size beforehand, take a size on trust
// or hold a whole range in memory. Small contents, which need no folding of ours,
// are hashed by a second library that is faster with them. The tests hold all of
// it against both libraries and against vectors made with the b3sum tool.
package b3
