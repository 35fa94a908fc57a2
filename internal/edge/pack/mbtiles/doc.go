// Package mbtiles reads MBTiles archives: map tiles in a SQLite file. It serves
// untrusted files, at the speed of reading them.
//
// # What it promises
//
// An [Archive] is read-only. SQLite opens the file as immutable, so it takes no
// locks, looks for no journal and makes no file beside it, not even a temporary
// one. Every wait ends with the caller's context: the wait for one of the
// readers, and the work of SQLite. The length of a tile is checked before
// memory is allocated for it. Whatever is wrong with a file is a fault with a
// next step.
//
// # A file that is being written
//
// With immutable=1 SQLite would serve a half-written file without an error. So
// [Open] checks once, before: if a writer holds a lock, a -wal has content, or
// a -journal would be rolled back, the file is refused with NotReady and the
// command that repairs it. It also compares the size and the time of the file
// before and after. Locks of later writers are not seen, only the size and the
// time of the file: [Archive.Check] compares them, and the caller that serves
// tiles has to, after each read. The right way to replace an archive is to
// rename a finished one over it; open archives keep the old file.
//
// # Hostile files
//
// A SQLite file brings its own program: the views of its schema. SQLite reads
// the whole schema and expands views into each other, and either can be made to
// take all memory before the first row is queried. So this package reads the
// schema first, within bounds: views built on views, or on WITH, are refused.
// Then SQLite may read it, with its limits set low, and an authoriser that
// allows columns to be read and nothing else: no function, no recursion, no
// pragma. SQLite is asked for its query plan, and a plan that sorts or gathers
// rows is refused too. What remains can be slow but not large, and slow queries
// are interrupted.
//
// # How a tile is read
//
// Through SQL, a tile of 8 KiB costs about 26 µs, and half of that is memory
// that SQLite maps and unmaps for each value. So SQLite only finds the row, by
// the index of the file, and this package reads the contents of the row from
// the pages: the leaf, then the overflow pages, as many in one read as are
// adjacent. In a file of up to 100,000 tiles SQLite is not needed for that
// either: Open reads an index of all tiles into memory, 16 bytes each. This is
// also how a small file without an index can be served; a large one is refused,
// with the command that makes the index.
//
// The shortcut is used for a table tiles, and for a view that joins a table of
// coordinates with one of contents in the way that all known writers do. The
// first tile is read in both ways, and the shortcut is not used if they differ.
// Other views, and tables WITHOUT ROWID, are read through SQL.
//
// # Costs
//
// Processor time for a random tile of 8 KiB from a file of 46 MB that is in the
// page cache, garbage collection included, on two busy cores. The benchmarks of
// the package print it for other machines.
//
//	small file, into the caller's buffer   3.5 µs   no allocation
//	small file                             7 µs     1 allocation: the tile
//	large file                            13 µs     4 allocations
//	through SQL                           26 µs     4 allocations
//	table WITHOUT ROWID                  100 µs     4 allocations, and more where memory is not warm
//
// Half of the cost of a tile is the memory for it: [Archive.TileInto] reads
// into a buffer of the caller. Open takes some 10 ms for that file; Check reads
// all of it, in about 0.2 s.
//
// A reader holds a connection with half a MiB of cache and 130 KiB of buffers.
package mbtiles
