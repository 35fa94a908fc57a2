package pack

import (
	"os"
	"testing"

	"micronode/fault"
	"micronode/internal/testkit"
)

func TestAReplacedPack(t *testing.T) {
	for file, make := range map[string]func(int) []byte{
		"a.pmtiles": pmtilesOf,
		"a.mbtiles": func(version int) []byte { return mbtilesOf(t, version) },
	} {
		t.Run(file, func(t *testing.T) {
			s := newFixture(t)
			put(t, s.path(file), make(1))
			s.mount()
			old, err := s.Open("a")
			testkit.Must(t, err)
			before := s.want(file, Serving, "")

			put(t, s.path(file), make(2))
			s.mount()
			if got := s.served("a"); got != 2 {
				t.Errorf("version %d is served", got)
			}
			if got := versionOf(t, old); got != 1 {
				t.Errorf("who has the old one open reads version %d", got)
			}
			after := s.want(file, Serving, "")
			if after.Version == before.Version || after.ETag == before.ETag || !after.Since.After(before.Since) {
				t.Errorf("before %+v, after %+v", before, after)
			}
			if open := s.Counts().Open; open != 2 {
				t.Errorf("%d versions are open, not the old and the new", open)
			}
			old.Close()
			old.Close()
			if open := s.Counts().Open; open != 1 {
				t.Errorf("%d versions are open after the old one was closed", open)
			}

			testkit.Must(t, os.Remove(s.path(file)))
			last, err := s.Open("a")
			testkit.Must(t, err)
			s.mount()
			s.refusedOpen("a", fault.NotFound, "a")
			if got := versionOf(t, last); got != 2 {
				t.Errorf("who has the removed one open reads version %d", got)
			}
			last.Close()
			if len(s.State().Packs) != 0 || s.Counts().Open != 0 {
				t.Errorf("%+v, %+v", s.State(), s.Counts())
			}
		})
	}
}

// A new version that is bad leaves the old one in service, and the state says
// so.
func TestABadReplacement(t *testing.T) {
	for file, make := range map[string]func(int) []byte{
		"a.pmtiles": pmtilesOf,
		"a.mbtiles": func(version int) []byte { return mbtilesOf(t, version) },
	} {
		t.Run(file, func(t *testing.T) {
			s := newFixture(t)
			put(t, s.path(file), make(1))
			s.mount()
			before := s.want(file, Serving, "")
			for _, bad := range [][]byte{make(2)[:5000], []byte("x"), {}} {
				put(t, s.path(file), bad)
				backdate(t, s.path(file))
				s.mount()
				status := s.want(file, Degraded, file)
				if s.served("a") != 1 || status.Version != before.Version || status.Size != before.Size {
					t.Errorf("the old one is not served: %+v", status)
				}
			}
			testkit.Must(t, os.Remove(s.path(file)))
			testkit.Must(t, os.Mkdir(s.path(file), 0o700))
			s.mount()
			s.want(file, Degraded, "not a regular file")
			testkit.Must(t, os.Remove(s.path(file)))

			put(t, s.path(file), make(3))
			s.mount()
			s.want(file, Serving, "")
			if s.served("a") != 3 {
				t.Error("the good one is not served")
			}
		})
	}
}

// The very file that was served before may come back.
func TestABadReplacementThatIsTakenBack(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	s.mount()
	before := s.want("a.pmtiles", Serving, "")
	testkit.Must(t, os.Rename(s.path("a.pmtiles"), s.path("backup")))
	put(t, s.path("a.pmtiles"), []byte("bad"))
	backdate(t, s.path("a.pmtiles"))
	s.mount()
	s.want("a.pmtiles", Degraded, "")
	testkit.Must(t, os.Rename(s.path("backup"), s.path("a.pmtiles")))
	s.mount()
	if after := s.want("a.pmtiles", Serving, ""); after.Version != before.Version || s.Counts().Swaps != 1 {
		t.Errorf("%+v, %+v", after, s.Counts())
	}
}

// A file that is written to in place is never read as if it were the old one,
// and its new content is mounted.
func TestAFileChangedInPlace(t *testing.T) {
	for file, make := range map[string]func(int) []byte{
		"a.pmtiles": pmtilesOf,
		"a.mbtiles": func(version int) []byte { return mbtilesOf(t, version) },
	} {
		t.Run(file, func(t *testing.T) {
			s := newFixture(t)
			put(t, s.path(file), make(1))
			s.mount()
			old, err := s.Open("a")
			testkit.Must(t, err)
			defer old.Close()
			select {
			case <-s.wake: // woken when the paths were set
			default:
			}
			overwrite(t, s.path(file), make(2))
			for _, at := range [][3]uint32{{0, 0, 0}, {2, 3, 3}, {9, 0, 0}} { // an absent tile is checked too
				if _, err := old.Tile(t.Context(), uint8(at[0]), at[1], at[2]); fault.KindOf(err) != fault.NotReady || ownNext(err) == "" || fault.RetryAfterOf(err) == 0 {
					t.Errorf("%v: %v", at, err)
				}
			}
			if fault.KindOf(old.Intact()) != fault.NotReady {
				t.Error("it is called intact")
			}
			select {
			case <-s.wake:
			default:
				t.Error("nobody was asked to look at the disk")
			}
			s.mount()
			if got := s.served("a"); got != 2 {
				t.Errorf("version %d is served", got)
			}
			overwrite(t, s.path(file), []byte("bad"))
			backdate(t, s.path(file))
			s.mount()
			s.want(file, Bad, "")
			s.refusedOpen("a", fault.NotReady, file)
			if got := s.Counts(); got.ChangedInPlace != 2 {
				t.Errorf("the counts are %+v", got)
			}
		})
	}
}

// Even if the times are set back, so that the file looks as it did before.
func TestAFileChangedInPlaceAndDisguised(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	info, err := os.Stat(s.path("a.pmtiles"))
	testkit.Must(t, err)
	s.mount()
	overwrite(t, s.path("a.pmtiles"), pmtilesOf(2))
	if s.served("a") != -1 {
		t.Error("it is served")
	}
	testkit.Must(t, os.Chtimes(s.path("a.pmtiles"), info.ModTime(), info.ModTime()))
	if s.served("a") != -1 {
		t.Error("it is served again")
	}
	s.mount()
	if got := s.served("a"); got != 2 {
		t.Errorf("version %d is served", got)
	}
}
