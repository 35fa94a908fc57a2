// Package pmtiles finds map tiles in PMTiles archives.
//
// An archive of the PMTiles format, version 3, is one file with all tiles of a
// map in it. A header of 127 bytes says where its sections are; directories say
// where each tile is; the tiles themselves follow. This package reads header,
// directories and metadata, and returns the position of a tile in the file. The
// caller then reads the tile, in one read, and serves it as it is stored.
//
// # The shape of an archive
//
// Every tile has an id: zoom after zoom, and within a zoom along a Hilbert
// curve ([ID] and [ZXY]). A directory is a list of entries that ascends by id.
// An entry is for a run of tiles with the same bytes, or for a leaf directory
// that has the tiles from here to the next entry. Small archives have a root
// directory and nothing else, and then a look-up is a binary search in memory.
// Large ones have leaf directories, which are read when they are first needed
// and kept in [DirectoryCache], which all archives of a node share.
//
// # Archives are not trusted
//
// The file may have come from anywhere. So every number in it is a claim. A
// length is compared with the file and with [Limits] before anything is
// allocated or read; sums that could overflow are never formed; a count of
// entries is accepted only if there are bytes for so many; inflating stops at
// its limit; leaf directories may be nested four deep, so that a directory that
// points to itself ends there. A directory is checked whole when it is decoded:
// its ids ascend, its runs do not overlap, and each entry points into its
// section. So a [Location] is always inside the file.
//
// Faults are refused with fault.Malformed, or fault.RatioCap if the archive
// would take too much memory, and the error says what is wrong, at which byte,
// and what to do. An archive whose directories or metadata are compressed with
// anything but gzip is refused too: the format allows it, no common tool writes
// it. Tiles may be compressed in any way, because they are passed on as they
// are.
//
// [Open] reads the header and the root directory, 16 KiB at most. Damage
// further on is found by the look-up that meets it, or by [Archive.Check],
// which walks everything. Check refuses what would make a tile wrong or
// unreachable. What is merely odd, such as bounds without an area, is left to
// [Archive.Remarks]: such archives exist, and the tiles in them are good.
//
// # What it costs
//
// A look-up whose directories are in memory takes no lock and allocates
// nothing. One that has to load a leaf directory shares the read with
// concurrent look-ups. At most eight are being loaded at one time, each taking
// at most about three times Limits.Directory while it is decoded; a caller
// waits as long as the reads of the file take. If 4096 callers wait already, it
// is rejected with fault.Busy.
//
// # What it refuses to do
//
// It starts no goroutine, opens no file, knows no URL, and does not read tiles.
// It does not notice that a file is replaced while it is open: the owner of the
// file compares its size and time, and opens a new archive.
package pmtiles
