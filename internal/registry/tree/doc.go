// Package tree lets strangers check that a registry's log only ever grew.
//
// The headers of a log are the leaves of a Merkle tree as in RFC 6962, with
// SHA-256. The root of the tree is 32 bytes that depend on every header. Whoever
// has a signed root can be shown, with a handful of hashes, that a header is in
// the log at its place (inclusion), and that a later root belongs to a log that
// begins with the earlier one (consistency). What was once shown to anybody can
// therefore not be changed without being caught by anybody.
//
// All of it is published as the C2SP specifications say (tlog-tiles,
// tlog-checkpoint, signed-note), so that tools that we did not write can do the
// checking. The hashing and the proofs are golang.org/x/mod's, the paths and
// checkpoints are torchwood's. What is written here is how a tree is kept while
// it grows.
//
// # Tiles
//
// A tile is 256 neighbouring hashes of a level. Level 0 is the leaves; a full
// tile of one level is one hash of the next. Only full tiles are kept by
// somebody, and they never change. What is not full yet is the right edge of
// the tree, one unfinished tile a level, and a [Tree] holds that in memory: 8 KiB
// a level, three levels for sixteen million versions.
//
// # Growing
//
// [Tree.Append] hashes once for each node that becomes complete, which is less
// than once a leaf on average. Full tiles come out of [Tree.Unsaved]; when the
// owner has put them where the [Loader] finds them, he says so with [Tree.Saved].
// In between they can be read all the same.
//
// [Open] starts at a size with at most 255 leaves. The unfinished tiles above
// are made from full ones below. So the leaves of the unfinished tile must still
// be there: whoever prunes records should do it at a multiple of 256 versions
// that is at most the size of the checkpoint that he will open at.
//
// # Reading
//
// A [View] is the tree at one size. It costs a few hundred bytes, it shares the
// edge with the tree, and it never changes: hashes are only ever written behind
// those that a view can see. So readers need no lock and the appender waits for
// nobody. A proof reads a tile or two a level. Each tile that comes through the
// loader is checked against the root of the view before any hash of it is used
// or served. A disk that returns other bytes than it was given is found out, and
// the answer is IntegrityFail, never a wrong proof.
//
// # Notes
//
// A [Checkpoint] is signed by the log's key and binds size, root and, if it is
// kept, the snapshot of the ledger together. A [Prune] note is signed by the same key and
// tells records that were given up from records that were lost. Both have one
// spelling: a note that differs in any byte from what was signed is refused, and
// so is one with a second signature on it.
//
// # What it does not do
//
// It does no I/O of its own, starts no goroutine, knows no clock and makes no
// keys. It does not know what a header says.
package tree
