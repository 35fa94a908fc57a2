package pack

import (
	"time"

	"micronode/b3"
	"micronode/fault"
)

// Spec says which packs are mounted, and how carefully.
type Spec struct {
	// Paths are files, or folders of which every *.pmtiles and *.mbtiles is
	// taken. As in a shell, the star does not match names that begin with a dot.
	Paths []string

	// Expect says what the bytes of a file must hash to, by file name. Such a
	// file is read whole before it is mounted.
	Expect map[string]b3.Address

	// Reconcile is how often everything is compared with the disk although
	// nothing was notified. It is 30 s if zero.
	Reconcile time.Duration

	// Settle is how long a file must have been left alone before Serve believes
	// that it is whole. It is 1 s if zero.
	Settle time.Duration

	// DirectoryBytes bounds the memory for the directories of all PMTiles
	// together. Zero means zero: each is read again whenever it is needed.
	DirectoryBytes int64

	// Deep has every archive checked throughout before it is mounted, for as
	// long as CheckTime. Every read is checked in any case: what a deep check
	// adds is that damage is found before somebody asks for it.
	Deep bool

	// CheckTime bounds the deep check of one archive. It is 10 s if zero. An
	// archive that is too large for it is mounted all the same, and its status
	// says so.
	CheckTime time.Duration

	// HashTime bounds how long the hashing of one file may take. It is ten
	// minutes if zero. A file that takes longer is refused.
	HashTime time.Duration

	// OnChange is told the state after every look at the disk that changed it,
	// on the goroutine of Mount or Serve. It may be nil.
	OnChange func(State)
}

// The bounds that are not a matter of taste.
const (
	mostPacks    = 256      // mounted at a time
	mostListed   = 4096     // names of packs that are read from one folder
	longestName  = 128      // bytes of a file name
	longestTile  = 16 << 20 // bytes of a tile, as it is stored
	hashStep     = 4 << 20  // bytes that are hashed before others get their turn
	hashBuffer   = 256 << 10
	debounce     = 100 * time.Millisecond // from a notification to the look that answers it
	longestPause = 50 * time.Millisecond  // between two steps of hashing
)

// withDefaults fills in what was left out.
func (s Spec) withDefaults() Spec {
	for _, d := range []struct {
		given   *time.Duration
		instead time.Duration
	}{
		{&s.Reconcile, 30 * time.Second},
		{&s.Settle, time.Second},
		{&s.CheckTime, 10 * time.Second},
		{&s.HashTime, 10 * time.Minute},
	} {
		if *d.given == 0 {
			*d.given = d.instead
		}
	}
	return s
}

// validate refuses what cannot be meant.
func (s Spec) validate() error {
	if min(s.Reconcile, s.Settle, s.CheckTime, s.HashTime) < 0 || s.DirectoryBytes < 0 {
		return fault.New("pack.new", fault.Malformed, "a time or a size is below zero")
	}
	return nil
}
