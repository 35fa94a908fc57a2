// Package pack mounts map packs: PMTiles and MBTiles files that somebody copies
// to a disk, replaces while people look at the map, and now and then breaks.
//
// A map server is easily written so that it works until the file changes. Then
// it serves tiles of the new file with the directory of the old one, or keeps
// two hundred megabytes for each version that ever was, or falls over a
// directory that somebody made up. This package is about the day on which the
// file changes.
//
// # Versions
//
// What is served is never "the file" but a version of it: one content, opened
// once, described by what the file system says of it (device, inode, size, time
// of modification). [Mounts.Open] claims the version in service and returns a
// [Pack]; everything that is read through one Pack is of that version. When the
// file is replaced, the new version is opened beside the old one, checked, and
// then swapped in whole. Who had a claim keeps reading the old one. It is
// closed, with its file, its directories and its database connections, when the
// last claim is given up, and not before.
//
// A claim costs no lock: the table of packs is a snapshot, and a version is
// counted with one atomic number that never comes back from zero. A claim that
// comes too late looks at the next table.
//
// # Reads that cannot lie
//
// A file that is replaced by a rename leaves the old one as it was. A file that
// is written to in place does not, and nothing can bring the old bytes back. So
// after every read, found or not found, the open file is compared with what it
// was when it was mounted. If it has changed, the answer is fault.NotReady,
// whatever was read, the version is never used again, and somebody is asked to
// look at the disk. The kernel moves the time of modification before it lets
// anybody see a changed byte, which makes reading first and comparing second
// enough. What stays out of reach are writes through a memory map, and clocks
// of the file system so coarse that two writes have one time.
//
// # Before it is served
//
// A new file is not believed to be whole. [Mounts.Serve] waits until it has
// been left alone for a second; a file whose time of modification is older than
// that was moved here and is taken at once. Then it is hashed, if [Spec.Expect]
// says what it must be, in steps, between which others get their turn. Then its
// structure is read within the bounds of packages pmtiles and mbtiles, and the
// whole of it is checked for as long as that may take. If at the end the file
// is still as it was at the beginning, it is mounted.
//
// [Mounts.Mount] does the same without the wait, because a node that starts
// should serve what is there. What then turns out not to be whole counts as
// still being copied.
//
// # When it is bad
//
// A version that is refused leaves the one before it in service; the pack is
// [Degraded], and [Mounts.State] says why and what to do. Without one before it
// the pack is [Bad], and asking for it is fault.NotReady with the same reason.
// All others go on. What is wrong with a file itself is not tried again before
// the file is another; a passing failure is, by itself.
//
// # Noticing
//
// Folders are watched, because a watch on a file stays with the old one when it
// is replaced. Notifications are only a hint to look: what counts is the
// comparison with the disk, which also runs every thirty seconds, because
// notifications get lost, do not cross every file system, and cannot be had for
// a folder that does not exist yet. Where there are none at all, State.Watch
// says so and the periodic look does the work.
//
// # Names
//
// A pack is asked for by its file name, or by that without the extension. A
// short name that two files have is refused rather than guessed. Of two files
// of one name in two folders, the one in the folder that was configured first
// is mounted. At most 256 packs are mounted, and what is mounted is not pushed
// out by what comes later. Whatever is not mounted is in the state, with the
// reason.
//
// # What it refuses to do
//
// It starts no goroutine, logs nothing and knows no metrics and no HTTP. It
// writes nothing, anywhere. It takes nothing over from the metadata of a pack
// that it does not know, or that has the wrong type or size. It does not fetch
// packs, does not repair them, and never serves a tile of which it is not sure
// which version it belongs to.
package pack
