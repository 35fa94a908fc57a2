// Package mbtiles reads MBTiles archives: maps in tiles, kept in a SQLite
// file. It serves files that strangers made, at the speed of reading them.
//
// # What it promises
//
// An [Archive] is opened for reading and for nothing else. SQLite is told that
// the file is immutable, so it takes no locks, looks for no journal and makes
// no file beside it, not even a temporary one. Every wait ends with the
// caller's context: the wait for one of the readers, and the work of SQLite.
// The length of a tile is checked before memory is taken for it. What is wrong
// with a file is a fault with a next step.
//
// # A file that is being written
//
// With immutable=1 SQLite would serve a half-written file without a word. So
// [Open] looks once, before: a lock that a writer holds, a -wal with content,
// or a -journal that would be rolled back, and the file is refused with
// NotReady and the command that sets it right. It also compares the size and
// the time of the file before and after. A writer that comes later is not seen
// by its locks any more, only by the size and the time of the file: [Archive.Check]
// compares them, and so does whoever serves tiles, after each read. The right
// way to replace an archive is to rename a finished one over it; those who
// have the old one open keep it.
//
// # Hostile files
//
// A SQLite file brings its own program: the views of its schema. SQLite reads
// the schema whole and unfolds views into each other, and either can be made
// to take all memory before the first row is asked for. So the schema is read
// by this package first, within bounds: views built on views, or on WITH, are
// refused. Then SQLite may see it, with its limits set low, and an authoriser
// that allows columns to be read and nothing else: no function, no recursion,
// no pragma. SQLite is asked for its plan, and a plan that sorts or gathers
// rows is refused too. What remains can be slow but not large, and what is slow
// is interrupted.
//
// # How a tile is read
//
// Through SQL, a tile of 8 KiB costs about 26 µs, and half of that is memory
// that SQLite maps and unmaps for each value. So SQLite only finds the row, by
// the index of the file, and this package reads the contents of the row from
// the pages: the leaf, then the overflow pages, as many in one read as lie side
// by side. In a file of up to 100,000 tiles SQLite does not even do that: the
// places of all tiles are read into memory by Open, 16 bytes each. This is
// also how a small file without an index can be served; a large one is
// refused, with the command that makes the index.
//
// The shortcut is taken for a table tiles, and for a view that joins a table
// of places with one of contents in the way that all known writers do. The
// first tile is read in both ways, and the shortcut given up if they differ.
// Other views, and tables WITHOUT ROWID, are read through SQL.
//
// # Costs
//
// Time of the processor for a random tile of 8 KiB from a file of 46 MB that
// the system has in its cache, the collection of garbage included, on two busy
// cores. The benchmarks of the package print it for other machines.
//
//	small file, into the caller's buffer   3.5 µs   no allocation
//	small file                             7 µs     1 allocation: the tile
//	large file                            13 µs     4 allocations
//	through SQL                           26 µs     4 allocations
//	table WITHOUT ROWID                  100 µs     4 allocations, and more where memory is not warm
//
// Half of the cost of a tile is the memory for it: [Archive.TileInto] reads
// into a buffer that the caller keeps. Open takes some 10 ms for that file;
// Check reads all of it, in about 0.2 s.
//
// A reader holds a connection with half a MiB of cache and 130 KiB of buffers.
package mbtiles
