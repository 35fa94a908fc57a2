package pack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/testkit"
)

func TestNamesThatAreNotSane(t *testing.T) {
	s := newFixture(t)
	long := strings.Repeat("x", 121) + ".pmtiles"
	for _, name := range []string{"bell\a.pmtiles", "line\nbreak.mbtiles", "\xff\xfe.pmtiles", long, "c1\u0085.pmtiles"} {
		put(t, filepath.Join(s.folder, "made"), pmtilesOf(1))
		testkit.Must(t, os.Rename(s.path("made"), s.path(name)))
	}
	fits := strings.Repeat("x", 120) + ".pmtiles"
	put(t, s.path(fits), pmtilesOf(2))
	put(t, s.path("Zürich – Süd.pmtiles"), pmtilesOf(3))
	s.mount()
	var bad int
	for _, status := range s.State().Packs {
		if status.Condition == Serving {
			continue
		}
		bad++
		if strings.ContainsAny(status.File+status.Name+fault.DetailOf(status.Err), "\a\n\u0085") || !utf8.ValidString(status.File) || fault.KindOf(status.Err) != fault.Malformed || ownNext(status.Err) == "" {
			t.Errorf("the status is %+v", status)
		}
	}
	if bad != 5 {
		t.Errorf("%d were refused: %+v", bad, s.State())
	}
	if s.served(fits) != 2 || s.served("Zürich – Süd") != 3 {
		t.Error("the sane ones are not served")
	}
	s.refusedOpen("bell\a", fault.NotFound, "")
	if err := checkName(".pmtiles"); fault.KindOf(err) != fault.Malformed {
		t.Errorf("no name at all: %v", err)
	}
}

func TestAStemThatTwoFilesHave(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("basel.pmtiles"), pmtilesOf(1))
	s.mount()
	put(t, s.path("basel.mbtiles"), mbtilesOf(t, 2))
	s.mount()
	s.refusedOpen("basel", fault.Conflict, "basel")
	if s.served("basel.pmtiles") != 1 || s.served("basel.mbtiles") != 2 {
		t.Error("they are not served by their file names")
	}
	s.want("basel.pmtiles", Degraded, "basel.mbtiles")
	s.want("basel.mbtiles", Degraded, "basel.pmtiles")
	// That one of them is bad does not resolve the ambiguity.
	put(t, s.path("basel.mbtiles"), []byte("bad"))
	backdate(t, s.path("basel.mbtiles"))
	s.mount()
	s.refusedOpen("basel", fault.Conflict, "basel")
	testkit.Must(t, os.Remove(s.path("basel.mbtiles")))
	s.mount()
	s.want("basel.pmtiles", Serving, "")
	if s.served("basel") != 1 {
		t.Error("the stem is free again, and does not work")
	}
}

// A file name is never ambiguous, even if it is the stem of another.
func TestAFileNameThatIsAStem(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	put(t, s.path("a.pmtiles.mbtiles"), mbtilesOf(t, 2))
	s.mount()
	for name, version := range map[string]int{"a": 1, "a.pmtiles": 1, "a.pmtiles.mbtiles": 2} {
		if got := s.served(name); got != version {
			t.Errorf("%s: version %d", name, got)
		}
	}
	s.want("a.pmtiles", Serving, "")
	s.want("a.pmtiles.mbtiles", Degraded, "a.pmtiles")
}

func TestTwoFilesOfOneName(t *testing.T) {
	other := t.TempDir()
	s := newFixture(t)
	s.SetPaths([]string{s.folder, other})
	put(t, filepath.Join(other, "a.pmtiles"), pmtilesOf(2))
	s.mount()
	if s.served("a") != 2 {
		t.Error("not served")
	}
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	s.mount()
	if s.served("a") != 1 {
		t.Error("the first folder does not come first")
	}
	var second Status
	for _, status := range s.State().Packs {
		if status.Path == filepath.Join(other, "a.pmtiles") {
			second = status
		}
	}
	if second.Condition != Bad || fault.KindOf(second.Err) != fault.Conflict || ownNext(second.Err) == "" {
		t.Errorf("the second one: %+v", second)
	}
	if open := s.Counts().Open; open != 1 {
		t.Errorf("%d versions are open", open)
	}
}

func TestTooManyPacks(t *testing.T) {
	s := newFixture(t, func(spec *Spec) { spec.Deep = false })
	data := packtest.PMTiles(packtest.PMSpec{})
	for i := range maxPacks {
		put(t, s.path(fmt.Sprintf("m%03d.pmtiles", i)), data)
	}
	s.mount()
	put(t, s.path("a.pmtiles"), data)
	put(t, s.path("z.pmtiles"), data)
	s.mount()
	state := s.State()
	if len(state.Packs) != maxPacks+2 || s.Counts().Open != maxPacks {
		t.Fatalf("%d packs are listed, %d are open", len(state.Packs), s.Counts().Open)
	}
	s.want("a.pmtiles", Bad, "exceeds the maximum")
	s.want("z.pmtiles", Bad, "exceeds the maximum")
	s.refusedOpen("a", fault.NotFound, "")
	for i := range maxPacks {
		s.want(fmt.Sprintf("m%03d.pmtiles", i), Serving, "")
	}
	testkit.Must(t, os.Remove(s.path("m000.pmtiles")))
	s.mount()
	s.want("a.pmtiles", Serving, "")
	s.want("z.pmtiles", Bad, "exceeds the maximum")
}

func TestAFolderWithFarTooManyPacks(t *testing.T) {
	s := newFixture(t, func(spec *Spec) { spec.Deep = false })
	put(t, s.path("zzzz.pmtiles"), pmtilesOf(1))
	s.mount()
	for i := range maxListed + 10 {
		testkit.Must(t, os.Link(s.path("zzzz.pmtiles"), s.path(fmt.Sprintf("x%d.pmtiles", i))))
	}
	s.mount()
	s.want(filepath.Base(s.folder), Bad, "more than 4096")
	if s.served("zzzz") != 1 || s.Counts().Open != maxPacks {
		t.Error("what was served before is not served any more, or too much is")
	}
	if n := len(s.State().Packs); n > maxListed+2 {
		t.Errorf("%d packs are listed", n)
	}
}
