// Package etcd keeps the log of a registry in an etcd cluster: a
// [journal.Journal] that outlives any one machine, and that several nodes may
// write to.
//
// etcd keeps keys in the order in which more than half of its members agreed on
// them. All that a registry asks of it beyond keeping them is one thing: that of
// two nodes that both want to write version 8, exactly one does.
//
// # What lies in etcd
//
// Under the prefix of the registry, and numbers have twenty digits so that they
// sort:
//
//	head                       the last version and its hash, as JSON
//	records/<version>          a record: header, payload, preconditions
//	checkpoints/<size>         a signed checkpoint, and the address of its snapshot
//	snapshots/<size>/<b3>/<n>  the snapshot, in chunks of 512 KiB
//	tiles/<level>/<n>          a full tile of the tree
//	prune                      up to where records were given up, signed
//
// Every value but the head begins with a checksum of the rest: etcd guards its
// log in this way but not its database. A version that is neither there nor
// covered by the prune note is lost, and is reported as damage.
//
// # Appending
//
// One transaction compares the head with the expected one and puts the records
// and the new head. There is no lock and no lease, so nothing has to be taken
// back when a node dies in between. A batch that is beyond what etcd takes at
// once (128 operations, 1.5 MiB) is written in several transactions, each behind
// the head that the one before has made; a reader may see the first of them
// before the last. A single record that is too large is refused before anything
// is sent.
//
// # Outcomes that are not known
//
// A time-out or a broken line says nothing about what happened, and etcd may
// report "no space" for the very transaction that used the last of it, and that
// it carried out. So nothing is guessed. After every error the head and the record are read, from the
// cluster and not from one member's memory. Each record carries a mark of the
// Append that wrote it, which tells it from one with the same bytes by somebody
// else. So one of three things is seen. The record is there with our mark: it
// was kept. The head is another and the record is not ours: it never will be,
// because a head does not take an old value again. Or the head is still the
// expected one, and then the request may yet be waiting in a member that is
// paused. To wait would settle nothing, so the same transaction is sent again.
// Of all that were sent at most one can be carried out; the others find the head
// changed.
//
// If the time is over before that is settled, the error is Timeout or
// StorageBusy and says that the outcome is open. The caller reads the head later.
//
// # Time
//
// Every call has a limit, and the caller's deadline comes first. The limit is
// cut into attempts of a fifth of it, and the client library goes round the
// members; so a member that has fallen silent costs an attempt and not the call.
// It is left for good when it has not answered a ping in 13 seconds; gRPC allows
// no shorter time. What only reads, or writes the same bytes under the same
// key, is tried three times, after pauses of 50 to 100 ms that double.
//
// Changed watches the head. It reads it every five seconds as well, so that a
// watch that was lost silently costs no more than that.
//
// # What it refuses to do
//
// It starts no goroutine of its own; the client library has some, and Close ends
// them. It connects on first use, logs nothing, takes no proxy from the
// environment, and speaks without TLS to this machine only. It does not compact
// or defragment etcd: that is for its operator, whose other data it may hold. It
// moves no history to another store. It believes etcd: who can write to the
// prefix can remove the log, though not change it unnoticed.
package etcd
