package pack

import (
	"time"

	"micronode/b3"
	"micronode/fault"
)

// Spec says which packs are mounted, and how they are checked.
type Spec struct {
	// Paths are files, or folders of which every *.pmtiles and *.mbtiles is
	// used. As in a shell, the star does not match names that begin with a dot.
	Paths []string

	// Expect is the address that the bytes of a file must have, by file name.
	// Such a file is read whole before it is mounted.
	Expect map[string]b3.Address

	// Reconcile is how often everything is compared with the disk without a
	// notification. It is 30 s if zero.
	Reconcile time.Duration

	// QuietPeriod is how long a file must have been unchanged before Serve
	// takes it for complete. It is 1 s if zero.
	QuietPeriod time.Duration

	// DirectoryBytes bounds the memory for the directories of all PMTiles
	// together. Zero means zero: each is read again whenever it is needed.
	DirectoryBytes int64

	// Deep enables a full check of every archive before it is mounted, within
	// CheckTime. Every read is checked in any case: a deep check finds damage
	// before the first request for it.
	Deep bool

	// CheckTime bounds the deep check of one archive. It is 10 s if zero. An
	// archive that is too large for it is mounted all the same, and its status
	// says so.
	CheckTime time.Duration

	// HashTime bounds how long the hashing of one file may take. It is ten
	// minutes if zero. A file that takes longer is refused.
	HashTime time.Duration

	// OnChange is called with the state after every scan that changed it, on
	// the goroutine of Mount or Serve. It may be nil.
	OnChange func(State)
}

// Bounds that are not configurable.
const (
	maxPacks   = 256      // mounted at a time
	maxListed  = 4096     // names of packs that are read from one folder
	maxName    = 128      // bytes of a file name
	maxTile    = 16 << 20 // bytes of a tile, as it is stored
	hashStep   = 4 << 20  // bytes that are hashed before other packs advance
	hashBuffer = 256 << 10
	debounce   = 100 * time.Millisecond // from a notification to its scan
	maxPause   = 50 * time.Millisecond  // between two steps of hashing
)

// withDefaults fills in zero fields.
func (s Spec) withDefaults() Spec {
	for _, d := range []struct {
		given   *time.Duration
		instead time.Duration
	}{
		{&s.Reconcile, 30 * time.Second},
		{&s.QuietPeriod, time.Second},
		{&s.CheckTime, 10 * time.Second},
		{&s.HashTime, 10 * time.Minute},
	} {
		if *d.given == 0 {
			*d.given = d.instead
		}
	}
	return s
}

// validate rejects specs that cannot work.
func (s Spec) validate() error {
	if min(s.Reconcile, s.QuietPeriod, s.CheckTime, s.HashTime) < 0 || s.DirectoryBytes < 0 {
		return fault.New("pack.new", fault.Malformed, "a time or a size is below zero")
	}
	return nil
}
