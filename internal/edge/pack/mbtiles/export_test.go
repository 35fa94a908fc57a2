package mbtiles

import "time"

// OpenWithin is Open with other limits.
func OpenWithin(path string, o Options, timeout time.Duration, maxIndexed int) (*Archive, error) {
	return openWithin(path, o, openLimits{timeout, maxIndexed})
}

// DropTileIndex makes a small archive work like a large one, whose tiles are
// looked up by SQLite.
func (a *Archive) DropTileIndex() { a.tileIndex = nil }

// DropShortcut makes an archive work like one whose contents only SQLite can
// read.
func (a *Archive) DropShortcut() {
	a.tileIndex, a.layout.rows = nil, ""
	for _, r := range a.readers {
		r.locate = nil
	}
}

// Direct tells whether contents are read without SQLite, and whether the index
// is in memory.
func (a *Archive) Direct() (rows, indexed bool) { return a.layout.rows != "", a.tileIndex != nil }

// Hold acquires a reader until release is called.
func (a *Archive) Hold() (release func()) {
	r := <-a.free
	return func() { a.free <- r }
}

// Busy tells whether every reader is in use.
func (a *Archive) Busy() bool { return len(a.free) == 0 }
