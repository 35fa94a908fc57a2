// Package registry is a list that a set of signers governs together: which nodes
// there are, what names mean, and who may decide about both.
//
// A change is proposed, approved by M of N signers, and committed. Each commit
// is a version, chained to the one before it, and a leaf of a tree that
// independent tools can check. Any change of past versions is detected, also one
// by this node; that is what makes the registry worth asking.
//
// # One committer
//
// Everything that changes goes through one task. Handlers decode, check and
// verify signatures on their own goroutines, as many at a time as there are
// cores; then they put a [job] into a bounded queue and wait for its outcome.
// The committer takes what is queued, chains as many commits as there are,
// writes them with one sync, installs the new head, and completes the jobs. So a
// commit that was acknowledged is on the disk, and sixty-four that wait cost
// one sync and not sixty-four.
//
// # What people sign
//
// A signer approves a change, not a position in the log: the operations, what
// every item that they touch was before, and until when. So proposals about
// different items do not disturb each other. One about an item that has changed
// meanwhile is refused, and must be proposed again. A change of the signers
// makes all open proposals stale, so that a key that was removed can never be
// counted again.
//
// # Unknown outcomes
//
// A storage may fail in the middle of a write, or its answer may be lost. The
// committer does not guess then: before the next commit it reads where the log
// ends, and what it finds there has happened.
//
// # Readers
//
// They read a [view]: the head, the items, the tree, as they were together at
// one moment. Reading takes no lock and never waits for a commit.
//
// # The storage is not trusted
//
// What the storage returns is checked against what was signed before it is
// served: a version against its leaf in the tree that is served, a state against
// the head that it ends with, a snapshot against its checkpoint. The verifier
// checks everything that is stored, whether older versions were pruned or not,
// and so does the offline audit of a folder; see verify.go. Package tampertest
// changes logs in every way that we could think of, on every storage.
//
// # The packages below
//
// ledger says what a change is and when it is allowed; tree keeps the tree and
// the notes that are signed over it; bundle packs one version with its proofs;
// journal stores the bytes. This package has the tasks: committer, follower,
// publisher, checkpointer, pruner, verifier, storage health, reloader.
package registry
