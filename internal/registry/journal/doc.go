// Package journal is the durable, ordered storage of the records of one
// registry.
//
// A registry is a list of versions to which one version is added at a time, and
// that is never rewritten. So its storage needs little: append a batch if the
// head is the one that the writer expects, read a version, and prune old
// versions when a signed note allows it. [Journal] is that interface. [RAM]
// loses everything when it is closed, [Files] keeps it in a folder, and a third
// one, on etcd, is a driver elsewhere. Package journaltest checks all of them
// against the same rules.
//
// # Acknowledged means synced
//
// Append returns when the disk has the batch, and readers see it only then: a
// power cut never takes back what a reader has seen. There is no file that says
// where the log ends. The head is the last valid record, found by reading the
// last segment, so the two cannot disagree.
//
// A torn end and damage are two different things. A torn end is a batch that
// was never acknowledged; it is truncated, and counted. Damage is anything else
// that is invalid, and here nothing is truncated: what can be read is read,
// Append is rejected, and the error says which file, which version, and what to
// do. Package wal, whose files the segments are, distinguishes the two: a frame
// of a later batch after a hole proves that the hole is damage; and so does, in
// a journal, a checkpoint that covers it. Only damage to the very last batch,
// while no checkpoint covers it yet, looks like a torn end.
//
// After a failed write or sync nothing is appended until the journal is opened
// again. Opening reads what is there, writes the last batch once more, and syncs
// it, before it is visible to readers. A full disk is the exception: space is
// allocated before a batch is written, so StoreFull means that nothing was
// written.
//
// # The folder
//
//	segments/<first version>   frames, then an index; see frame.go and index.go
//	checkpoints/<size>         the note and the snapshot
//	tiles/<level>/<number>     hashes of the tree
//	prune                      the last prune note
//
// A segment ends after 4096 versions or 16 MiB, whichever is first, with the
// batch that gets there: a batch is in one segment, and takes one write and one
// sync. When it ends, the offsets of its frames are written after them. So a
// version is found with one read in a segment that is open, and with three in
// one that is not; and opening a journal costs by the length of the last
// segment and by the number of segments, of which it only reads the names.
//
// Tiles are written without a sync, as they can be rebuilt from the records,
// until Prune makes that impossible: it syncs them first. A prune saves its
// note, syncs the tiles, and then removes segments, oldest first; after a crash
// in between, opening the journal completes it. Prune to a multiple of 256
// versions whose tiles were saved: an unfinished tile exists only as its
// records.
//
// # Why the files are our own
//
// This was decided by measuring, with records of 1.5 KiB on ext4: a file that
// grows takes 70–90 µs for a write and an fdatasync, one with reserved blocks
// 45 µs, one that was filled with zeros before 51 µs; for 64 records at a time
// 165, 155 and 90 µs. The file system has to record that reserved blocks are
// now written, and that a growing file has a new length; zeros need neither. So
// segments are filled with zeros, a little at a time, and batches overwrite
// them. hashicorp/raft-wal v0.4.0, which reserves blocks, took 61 µs for one
// record on the same disk. It has an index for each segment, as we do, but it
// keeps its own state in a second database, which stays locked after Close: the
// same process cannot open the log again. And we want to define ourselves what
// is torn, what is damaged, and which disk failures are survived.
//
// # What it does not do
//
// It does not look into records: hashes, signatures and the chain are the
// ledger's, and the caller that opens a log verifies it. It does not lock the
// folder, start goroutines, or decide when to prune. It repairs nothing that is
// damaged.
package journal
