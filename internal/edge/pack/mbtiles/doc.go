// Package mbtiles reads MBTiles archives: map tiles in a SQLite file. It serves
// untrusted files; SQLite reads them.
//
// # What it promises
//
// An [Archive] is read-only. Open opens the file once, and SQLite reads it
// through that handle as an immutable one, so it takes no locks, looks for no
// journal and makes no file beside it, not even a temporary one. Every wait ends with the caller's context: the wait for one of the
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
// take all memory before the first row is queried. So a connection may read
// 2 MiB of the file, for 5 s, until its schema is accepted: a larger one, and
// views built on views, or on WITH, are refused. All this happens with the
// limits of SQLite set low, and an authoriser that allows columns to be read
// and nothing else: no function, no recursion, no pragma. SQLite is asked for
// its query plan, and a plan that sorts or gathers rows is refused too. What
// remains can be slow but not large, and slow queries are interrupted.
//
// # How a tile is read
//
// By its row, in a file of up to 100,000 tiles: Open reads an index of all tiles
// into memory, 16 bytes each, so that a look-up needs no index of the file. This
// is also how a small file without an index can be served. It is used for a
// table tiles, and for a view that joins a table of coordinates with one of
// contents in the way that all known writers do. The first tile is read in both
// ways, and the index in memory is not used if they differ.
//
// By its coordinates in all other files: SQLite finds the tile by the index of
// the file. A large file without an index is refused, with the command that
// makes one.
//
// # Costs
//
// Processor time for a random tile of 8 KiB from a file of 46 MB that is in the
// page cache, garbage collection included, on two busy cores; the least of
// seven runs. The benchmarks of the package print it for other machines.
//
//	small file, into the caller's buffer   7 µs   no allocation
//	small file                            15 µs   1 allocation: the tile
//	large file, table                     19 µs   4 allocations
//	large file, view                      24 µs   8 allocations
//	table WITHOUT ROWID                   40 µs   4 allocations
//
// Half of the cost of a tile is the memory for it: [Archive.TileInto] reads
// into a buffer of the caller. Open takes some 2 ms for that file, Check 30 ms.
//
// A reader holds a connection with half a MiB of cache.
package mbtiles
