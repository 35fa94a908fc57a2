package pack

import (
	"cmp"
	"slices"
	"time"
)

// State is what is mounted, what is not, and why.
type State struct {
	Packs []Status // sorted by name, then by path

	// Watch says why changes are noticed late; nil if they are noticed at once.
	Watch error
}

// Condition is the condition of a pack.
type Condition string

// The conditions.
const (
	Serving  Condition = "serving"
	Degraded Condition = "degraded" // an older version is served, or not under every name
	Waiting  Condition = "waiting"  // not served yet, but nothing is wrong
	Bad      Condition = "bad"
)

// Status is the state of one pack: one that is mounted, one that should be, or
// a folder that should hold some.
type Status struct {
	Name string // the file name without its extension
	File string
	Path string
	Kind string // pmtiles, mbtiles, folder, or empty

	Condition Condition
	Pending   bool  // there is a newer file that is not mounted yet
	Err       error // what is wrong, with a next step; nil if and only if it is serving

	// Of the version that is served; without one, of the file.
	Size     int64
	Modified time.Time

	// Of the version that is served; zero without one.
	Version  string
	ETag     string
	Verified bool // its bytes have the expected address
	Checked  bool // the deep check was completed
	Tiles    Tiles

	Since time.Time // when any of this last changed
}

// Tiles describes the format, zooms and bounds of a pack's tiles.
type Tiles struct {
	Type             string // media type
	Format           string // extension: mvt, png, jpg, webp, avif; empty if unknown
	MinZoom, MaxZoom uint8
	Bounds           [4]float64 // west, south, east, north, in degrees; zero if unknown
}

// same compares all fields but Since.
func (s Status) same(o Status) bool {
	if !sameError(s.Err, o.Err) {
		return false
	}
	s.Err, o.Err = nil, nil
	s.Since, o.Since = time.Time{}, time.Time{}
	return s == o
}

func (s State) same(o State) bool {
	return sameError(s.Watch, o.Watch) && slices.EqualFunc(s.Packs, o.Packs, Status.same)
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}

// sort sorts the packs and sets Since; unchanged ones take it from the state
// before.
func (s *State) sort(before State, now time.Time) {
	slices.SortFunc(s.Packs, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path))
	})
	old := make(map[string]Status, len(before.Packs))
	for _, status := range before.Packs {
		old[status.Path] = status
	}
	for i := range s.Packs {
		s.Packs[i].Since = now
		if was, ok := old[s.Packs[i].Path]; ok && was.same(s.Packs[i]) {
			s.Packs[i].Since = was.Since
		}
	}
}

// refusedStatus is the status of a file or folder that is not mounted at all.
func refusedStatus(s foundFile, of kind, reason error) Status {
	status := Status{
		Name: printable(stemOf(s.file)), File: printable(s.file), Path: s.path, Kind: string(of),
		Condition: Bad, Err: reason, Size: s.state.size,
	}
	if of == folderKind {
		status.Name = status.File
	}
	if s.state.modified != 0 {
		status.Modified = time.Unix(0, s.state.modified)
	}
	return status
}
