// Package wal is the write-ahead log of the node: it keeps records in files, so
// that what was acknowledged is there after a crash. It does not interpret
// records.
//
// It has two parts. [File] is one file of frames: its format, its checksums,
// how a batch is written, and what of it is there after a crash ([Scanner]).
// The segments of a registry's journal are such files.
//
// [Log] is one such file for a component of the node that has its state in
// memory and wants it back: a mailbox, a graph. Such a component writes down
// what it does, one record after the other, and at the next start the log
// replays all of them to it, in order.
//
// # The few ideas
//
// A record is kept when the disk says so. [Log.Append] returns after a sync.
// Syncs are slow, so callers that wait at the same time share one: the one that
// gets the write lock writes for all of them. There is no task that does it,
// and so nothing to start and nothing to stop.
//
// A crash tears the end off. Every record has a checksum, and says with which
// others it was written. When the log is opened, what is behind the last whole
// record is cut off if it was the batch under way, which was never
// acknowledged. If an acknowledged record is not right, that is damage, and the
// log does not open: a state with a hole in it is worse than none. One case
// cannot be detected: bytes that rot in the very last batch look like a crash.
//
// What was seen stays. A killed process may leave a batch, or a name, that the
// kernel shows and the disk does not have. So opening a log writes the last
// batch once more, and syncs it and the folder, before the owner continues.
//
// A log only grows, until its owner replaces it: [Log.Rewrite] and
// [Log.Compact] write what is left to a new file, which replaces the old one
// atomically.
//
// A failed disk is not retried. After a sync that failed, the content of the
// disk is unknown, and a retry would report success for what is lost. So the
// log refuses everything until it is opened again. A full disk is different:
// room is allocated before anything is written, so a batch that does not fit
// has changed nothing, and the next one may fit again.
//
// A call to the disk has no deadline, because the kernel has none for it: the
// caller that writes waits as long as the disk takes. All others wait for that
// caller, and their wait ends with their context.
//
// # State and file
//
// State changed after Append returns may be in another order than the file, and
// a Rewrite between the two loses a record. [Log.Commit] avoids that: it calls
// back in the order of the file, one at a time, and never during a Rewrite or
// the snapshot of a Compact. [Log.AppendAsync] is for what would be good to
// know after a crash but is not worth a sync.
//
// # Reading back
//
// An owner that does not want everything in memory keeps the [Position] of a
// record and reads it when it is needed: [Log.Read]. Its callbacks get
// positions when the log is opened, with each commit, and after [Log.Compact],
// which copies a log that is too large to block all writers meanwhile.
//
// # What it refuses to do
//
// It has no index: its owner keeps the positions. It knows nothing of what is
// in a record. It does not lock its file against a second process: that is up
// to the owner of the folder.
package wal
