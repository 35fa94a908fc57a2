package mbtiles

import "time"

// OpenWithin is Open with other limits.
func OpenWithin(path string, o Options, timeout time.Duration, maxIndexed int) (*Archive, error) {
	return openWithin(path, o, openLimits{timeout, maxIndexed})
}

// DropTileIndex makes a small archive work like a large one, whose tiles are
// looked up by SQLite.
func (a *Archive) DropTileIndex() { a.tileIndex = nil }

// InMemory tells whether the tiles of the archive can be listed by rows, and
// whether that index is in memory.
func (a *Archive) InMemory() (rows, indexed bool) { return a.layout.rows != "", a.tileIndex != nil }

// Hold acquires a reader until release is called.
func (a *Archive) Hold() (release func()) {
	r := <-a.free
	return func() { a.free <- r }
}

// Busy tells whether every reader is in use.
func (a *Archive) Busy() bool { return len(a.free) == 0 }
