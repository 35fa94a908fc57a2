// Package pack mounts map packs: PMTiles and MBTiles files that are copied to a
// disk, replaced while they are being served, and now and then damaged.
//
// A simple map server works until the file changes. Then it serves tiles of the
// new file with the directory of the old one, or keeps two hundred megabytes
// for each version that ever was, or crashes on a forged directory. This
// package is about the day on which the file changes.
//
// # Versions
//
// What is served is never "the file" but a version of it: one content, opened
// once, identified by its stat data (device, inode, size, time of
// modification). [Mounts.Open] acquires the version in service and returns a
// [Pack]; everything that is read through one Pack is of that version. When the
// file is replaced, the new version is opened beside the old one, checked, and
// then swapped in whole. Packs that are open keep reading the old version. It
// is closed, with its file, its directories and its database connections, when
// the last Pack of it is closed, and not before.
//
// Acquiring takes no lock: the table of packs is a snapshot, and a version has
// an atomic reference count that never rises from zero. An Open that finds the
// count at zero retries with the next table.
//
// # Reads are of one version
//
// A file that is replaced by a rename leaves the old one as it was. A file that
// is written to in place does not, and its old bytes are lost. So after every
// read, found or not found, the open file is compared with what it was when it
// was mounted. If it has changed, the result is fault.NotReady, whatever was
// read, the version is never used again, and a scan of the disk is requested.
// The kernel moves the time of modification before a changed byte can be read,
// so reading first and comparing second is enough. Not detected are writes
// through a memory map, and two writes within one tick of a file system with
// coarse timestamps.
//
// # Before it is served
//
// A new file may be incomplete. [Mounts.Serve] waits until it has not changed
// for a second; a file whose time of modification is older than that was moved
// here and is accepted at once. Then it is hashed, if [Spec.Expect] has its
// address, in steps, between which other packs advance. Then its structure is
// read within the bounds of packages pmtiles and mbtiles, and all of it is
// checked within [Spec.CheckTime]. If the file has not changed from the
// beginning to the end, it is mounted.
//
// [Mounts.Mount] does the same without the wait, because a node that starts
// should serve what is there. A file that turns out to be incomplete then
// counts as still being copied.
//
// # When it is bad
//
// When a version is refused, the one before it stays in service; the pack is
// [Degraded], and [Mounts.State] says why and what to do. Without one before it
// the pack is [Bad], and opening it fails with fault.NotReady and the same
// reason. Other packs are not affected. A fault of the file itself is not
// retried before the file changes; a transient failure is retried.
//
// # Noticing
//
// Folders are watched, because a watch on a file stays with the old one when it
// is replaced. Notifications are only a hint to scan: what counts is the
// comparison with the disk, which also runs every thirty seconds, because
// notifications get lost, do not cross every file system, and are not available
// for a folder that does not exist yet. Where there are none at all,
// State.Watch says so and the periodic scan remains.
//
// # Names
//
// A pack has two names: its file name, and that without the extension. A short
// name that two files have is refused rather than guessed. Of two files of one
// name in two folders, the one in the folder that was configured first is
// mounted. At most 256 packs are mounted, and mounted packs take precedence
// over new files. Files that are not mounted are in the state, with the reason.
//
// # What it refuses to do
//
// It starts no goroutine, logs nothing and knows no metrics and no HTTP. It
// writes nothing, anywhere. It ignores metadata of a pack that it does not
// know, or that have the wrong type or size. It does not fetch packs, does not
// repair them, and never serves a tile whose version is in doubt.
package pack
