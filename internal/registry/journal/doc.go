// Package journal keeps the records of one registry: where they are, in which
// order, and that they stay.
//
// A registry is a list of versions to which one version is added at a time, and
// that is never rewritten. So its storage needs little: to add a batch behind
// the head that the writer believes in, and to refuse it if the head is another;
// to read a version; and to give up old versions when a signed note says so.
// [Journal] is that little. [RAM] forgets everything when it is closed, [Files]
// keeps it in a folder, and a third one, on etcd, is a driver elsewhere. Package
// journaltest holds all of them to the same promises.
//
// # Acknowledged means synced
//
// Append returns when the disk has the batch, and readers see it only then: what
// somebody has seen is not taken back by a power cut. There is no file that says
// where the log ends. The head is the last record that is right, found by
// reading the last segment, so the two cannot disagree.
//
// The end of a log can be torn, and its middle can be damaged, and these are two
// things. A torn end is a batch that nobody was told of; it is cut off, and
// counted. Damage is anything else that is not right, and here nothing is cut
// off: what can be read is read, Append is refused, and the error says which
// file, which version, and what to do. To tell one from the other, each frame
// says with which others it was written. A batch is begun only after the one
// before it was synced, so a frame of a later batch behind a hole proves that the
// hole is damage; and so does a checkpoint that covers it. What cannot be told
// from a torn end is damage to the very last batch that no checkpoint covers yet.
//
// After a failed write or sync nothing is appended until the journal is opened
// again, because the kernel may have dropped what it could not write, and the
// next sync that succeeds would say nothing about it. Opening reads what is
// there, writes the last batch once more, and syncs it, before anybody sees it.
// A disk that is full is the exception: room is made before a batch is written,
// so StoreFull means that nothing has happened.
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
// sync. When it ends, the places of its frames are written behind them. So a
// version is found with one read in a segment that is open, and with three in
// one that is not; and opening a journal costs by the length of the last segment
// and by the number of segments, of which it only reads the names.
//
// Tiles are written without a sync, as they can be made again, until Prune makes
// that impossible: it syncs them first. A prune keeps its note, syncs the tiles,
// and then removes segments, oldest first; a crash in between is made good when
// the journal is opened. Who prunes should ask for a multiple of 256 versions
// whose tiles were saved: of a tile that is not full yet, the records are all
// there is.
//
// # Why the files are our own
//
// This was decided by measuring, with records of 1.5 KiB on ext4: a file that
// grows takes 70–90 µs for a write and an fdatasync, one with reserved blocks
// 45 µs, one that was filled with zeros before 51 µs; for 64 records at a time
// 165, 155 and 90 µs. Blocks that are only reserved have to be noted down as
// written by the file system, a file that grows has a new length, and zeros have
// neither. So segments are filled with zeros, a little at a time, and batches go
// over them. hashicorp/raft-wal v0.4.0, which reserves blocks, took 61 µs for one
// record on the same disk. It has an index for each segment, as we do, but it
// keeps its own state in a second database, which stays locked after Close: the
// same process cannot open the log again. And what was torn, what is damaged, and
// what a disk may do in between are the questions that we want to answer
// ourselves.
//
// # What it refuses to do
//
// It does not look into records: hashes, signatures and the chain are the
// ledger's, and whoever opens a log verifies it. It does not lock the folder,
// start goroutines, or decide when to prune. It repairs nothing that is damaged.
package journal
