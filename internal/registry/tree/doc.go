// Package tree lets third parties check that a registry's log only ever grew.
//
// The headers of a log are the leaves of a Merkle tree as in RFC 6962, with
// SHA-256. The root of the tree is 32 bytes that depend on every header. Given
// a signed root, a handful of hashes prove that a header is in the log at its
// index (inclusion), and that a later root belongs to a log that begins with
// the earlier one (consistency). So a change of anything that was published
// once can be detected by every reader.
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
// tile of one level is one hash of the next. Only full tiles are stored, and
// they never change. What is not full yet is the right edge of the tree, one
// unfinished tile per level, and a [Tree] holds that in memory: 8 KiB per
// level, three levels for sixteen million versions.
//
// # Growing
//
// [Tree.Append] hashes once for each node that becomes complete, which is less
// than once per leaf on average. [Tree.Unsaved] returns full tiles; when the
// owner has stored them where the [Loader] finds them, it reports that with
// [Tree.MarkSaved]. In between they can be read all the same.
//
// [Open] starts at a size with at most 255 leaves. The unfinished tiles above
// are made from full ones below. So the leaves of the unfinished tile must
// still exist: prune records at a multiple of 256 versions that is at most the
// size of the checkpoint that will be opened.
//
// # Reading
//
// A [View] is the tree at one size. It costs a few hundred bytes, it shares the
// edge with the tree, and it is immutable: hashes are only ever written after
// those that a view can see. So readers need no lock and the appender never
// waits. A proof reads a tile or two per level. Each tile that comes through
// the loader is checked against the root of the view before any hash of it is
// used or served. If a disk returns other bytes than were written, the result
// is IntegrityFail, never a wrong proof.
//
// # Notes
//
// A [Checkpoint] is signed by the log's key and binds size, root and, if it is
// kept, the snapshot of the ledger together. A [PruneNote] is signed by the
// same key and distinguishes records that were pruned from records that were
// lost. Both have one encoding: a note that differs in any byte from what was
// signed is rejected, and so is one with a second signature.
//
// # What it does not do
//
// It does no I/O of its own, starts no goroutine, knows no clock and makes no
// keys. It does not know what a header says.
package tree
