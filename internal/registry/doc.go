// Package registry is a list that a team governs together: which nodes there
// are, what names mean, and who may decide about both.
//
// A change is proposed, approved by M of N signers, and committed. Each commit
// is a version, chained to the one before it, and a leaf of a tree that tools
// which we did not write can check. Nobody can change the past without being
// found out, this node included; that is what makes it worth asking.
//
// # One committer
//
// Everything that changes goes through one task. Handlers decode, check and
// verify signatures on their own goroutines, as many at a time as there are
// cores; then they put a [job] into a bounded queue and wait for its outcome.
// The committer takes what waits, puts as many commits as there are behind each
// other, writes them with one sync, shows the new head, and answers. So a
// commit that was acknowledged is on the disk, and sixty-four that wait cost
// one sync and not sixty-four.
//
// # What people sign
//
// A signer approves a change, not a place in the log: the operations, what
// every item that they touch was before, and until when. So proposals about
// different items do not disturb each other. One about an item that has changed
// meanwhile is refused, and must be proposed again. A change of the signers
// makes all open proposals stale, so that a key that was taken out can never be
// counted again.
//
// # Outcomes that are not known
//
// A storage may fail in the middle of a write, or its answer may be lost. Then
// nobody guesses: before the next commit the committer reads where the log ends,
// and what it finds there has happened.
//
// # Readers
//
// They read a [view]: the head, the items, the tree, as they were together at
// one moment. Reading takes no lock and never waits for a commit.
//
// # The rooms
//
// ledger says what a change is and when it is allowed; tree keeps the tree and
// the notes that are signed over it; bundle packs one version with its proofs;
// journal keeps the bytes. This package has the tasks, one a file: committer,
// follower, publisher, checkpointer, pruner, verifier, gate, reloader.
package registry
