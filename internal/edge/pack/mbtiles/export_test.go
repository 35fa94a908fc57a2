package mbtiles

import "time"

// OpenWithin is Open with other bounds.
func OpenWithin(path string, o Options, patience time.Duration, places int) (*Archive, error) {
	return openWithin(path, o, bounds{patience, places})
}

// ForgetPlaces makes a small archive work like a large one, whose tiles are
// looked up by SQLite.
func (a *Archive) ForgetPlaces() { a.places = nil }

// ForgetRows makes an archive work like one whose contents only SQLite can
// read.
func (a *Archive) ForgetRows() {
	a.places, a.layout.rows = nil, ""
	for _, r := range a.readers {
		r.locate = nil
	}
}

// Direct tells whether contents are read without SQLite, and whether the index
// is in memory.
func (a *Archive) Direct() (rows, places bool) { return a.layout.rows != "", a.places != nil }

// Hold takes a reader away until the answer is called.
func (a *Archive) Hold() (giveBack func()) {
	r := <-a.free
	return func() { a.free <- r }
}

// Busy tells whether every reader is in use.
func (a *Archive) Busy() bool { return len(a.free) == 0 }
