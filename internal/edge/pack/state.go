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

// Condition is how a pack is doing.
type Condition string

// The conditions.
const (
	Serving  Condition = "serving"
	Degraded Condition = "degraded" // an older version is served, or not under every name
	Waiting  Condition = "waiting"  // not served yet, but nothing is wrong
	Bad      Condition = "bad"
)

// Status is how one pack is doing: one that is mounted, one that should be, or
// a folder that should hold some.
type Status struct {
	Name string // the file name without its extension
	File string
	Path string
	Kind string // pmtiles, mbtiles, folder, or empty

	Condition Condition
	Pending   bool  // there is a newer file that is not mounted yet
	Err       error // what is wrong; its next step says what to do. nil if and only if it is serving

	// Of the version that is served; without one, of the file.
	Size     int64
	Modified time.Time

	// Of the version that is served; zero without one.
	Version  string
	ETag     string
	Verified bool // its bytes are those that were expected
	Checked  bool // it was checked throughout
	Tiles    Tiles

	Since time.Time // when any of this was last another
}

// Tiles says what kind of tiles a pack has, and where.
type Tiles struct {
	Type             string // media type
	Format           string // extension: mvt, png, jpg, webp, avif; empty if unknown
	MinZoom, MaxZoom uint8
	Bounds           [4]float64 // west, south, east, north, in degrees; zero if unknown
}

// same compares all but Since.
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

// sort puts the packs in order and gives each the time since when it is as it
// is, which those that have not changed take from the state before.
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

// refusedStatus is the status of something that is not mounted at all.
func refusedStatus(s sighting, of kind, reason error) Status {
	status := Status{
		Name: printable(stemOf(s.file)), File: printable(s.file), Path: s.path, Kind: string(of),
		Condition: Bad, Err: reason, Size: s.look.size,
	}
	if of == folderKind {
		status.Name = status.File
	}
	if s.look.modified != 0 {
		status.Modified = time.Unix(0, s.look.modified)
	}
	return status
}
