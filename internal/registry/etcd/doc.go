// Package etcd keeps the log of a registry in an etcd cluster: a
// [journal.Journal] that outlives any one machine, and that several nodes may
// write to.
//
// etcd keeps keys in the order in which a majority of its members agreed on
// them. Beyond storage, a registry requires one thing of it: of two nodes that
// both want to write version 8, exactly one does.
//
// # Keys
//
// Under the prefix of the registry. Numbers have twenty digits so that they
// sort:
//
//	head                       the last version and its hash, as JSON
//	records/<version>          a record: header, payload, preconditions
//	checkpoints/<size>         a signed checkpoint, and the address of its snapshot
//	snapshots/<size>/<b3>/<n>  the snapshot, in chunks of 512 KiB
//	tiles/<level>/<n>          a full tile of the tree
//	prune                      up to where records were pruned, signed
//
// Every value but the head begins with a checksum of the rest: etcd checksums
// its log but not its database. A version that is neither there nor covered by
// the prune note is lost, and is reported as damage.
//
// # Appending
//
// One transaction compares the head with the expected one and puts the records
// and the new head. There is no lock and no lease, so nothing has to be cleaned
// up when a node dies in between. A batch that exceeds etcd's limits for one
// transaction (128 operations, 1.5 MiB) is written in several, each after the
// head that the one before has made; a reader may see the first of them before
// the last. A single record that is too large is rejected before anything is
// sent.
//
// # Unknown outcomes
//
// A timeout or a broken connection does not tell whether the transaction was
// executed, and etcd may report "no space" for the very transaction that used
// the last of it, and that it executed. So nothing is guessed. After every
// error the head and the record are read, from the cluster and not from one
// member's memory. Each record carries the id of the Append that wrote it,
// which distinguishes it from one with the same bytes by another writer. There
// are three cases. The record is there with our id: it was written. The head is
// another and the record is not ours: it never will be, because a head never
// takes an old value again. Or the head is still the expected one, and then the
// request may still be pending in a paused member. Waiting would not resolve
// that, so the same transaction is sent again. Of all that were sent at most
// one can be executed; the others find the head changed.
//
// If the time is over before that is resolved, the error is Timeout or
// StorageBusy and says that the outcome is open. The caller reads the head
// later.
//
// # Time
//
// Every call has a limit, and the caller's deadline comes first. The limit is
// divided into attempts of a fifth of it, and the client library rotates
// through the members; so a silent member costs an attempt and not the call.
// Its connection is closed when it has not answered a ping in 13 seconds; gRPC
// allows no shorter time. What only reads, or writes the same bytes under the
// same key, is tried three times, after pauses of 50 to 100 ms that double.
//
// Changed watches the head. It reads it every five seconds as well, so that a
// watch that was lost silently costs no more than that.
//
// # What it does not do
//
// It starts no goroutine of its own; the client library has some, and Close
// ends them. It connects on first use, logs nothing, takes no proxy from the
// environment, and connects without TLS to this machine only. It does not
// compact or defragment etcd: that is for its operator, whose other data it may
// hold. It moves no history to another store. It trusts etcd: a client with
// write access to the prefix can remove the log, though not change it
// unnoticed.
package etcd
