package pack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/flow"
	"micronode/internal/testkit"
)

func TestPacksOfAFolderAreMounted(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("basel.pmtiles"), pmtilesOf(1))
	put(t, s.path("bern.mbtiles"), mbtilesOf(t, 2))
	put(t, s.path("README"), []byte("not a pack"))
	put(t, s.path(".hidden.pmtiles"), []byte("not looked at"))
	s.mount()
	for name, version := range map[string]int{"basel.pmtiles": 1, "basel": 1, "bern.mbtiles": 2, "bern": 2} {
		if got := s.served(name); got != version {
			t.Errorf("%s: version %d is served, not %d", name, got, version)
		}
	}
	state := s.State()
	if len(state.Packs) != 2 || state.Packs[0].Name != "basel" || state.Packs[1].Name != "bern" {
		t.Fatalf("the state is %+v", state)
	}
	basel := s.want("basel.pmtiles", Serving, "")
	if basel.Kind != "pmtiles" || basel.Path != s.path("basel.pmtiles") || basel.Size != int64(len(pmtilesOf(1))) ||
		len(basel.Version) != 64 || basel.ETag != `"`+basel.Version+`"` || !basel.Checked || basel.Verified || basel.Since.IsZero() || basel.Modified.IsZero() {
		t.Errorf("the status is %+v", basel)
	}
	bern := s.want("bern.mbtiles", Serving, "")
	if bern.Tiles.Type != "application/vnd.mapbox-vector-tile" || bern.Tiles.Format != "mvt" || bern.Tiles.MaxZoom != deepest || bern.Kind != "mbtiles" {
		t.Errorf("the status is %+v", bern)
	}
	s.refusedOpen("zurich", fault.NotFound, "zurich")
	s.refusedOpen("", fault.NotFound, "")
	s.refusedOpen(".hidden.pmtiles", fault.NotFound, "hidden")
	s.refusedOpen("a\x1b[2Jb", fault.NotFound, `\x1b`)
	if got := s.Counts(); got.Swaps != 2 || got.Open != 2 || got.Refusals != 0 || got.ChangedInPlace != 0 {
		t.Errorf("the counts are %+v", got)
	}
}

// A bad pack is named, with the reason and what to do, and other packs are not
// affected.
func TestABadPackDisturbsNobody(t *testing.T) {
	good := pmtilesOf(1)
	hostile := packtest.PMTiles(packtest.PMSpec{MaxZoom: 3, LeafSize: 8, Damage: packtest.PMDamage{
		Entries: func(number int, entries []packtest.PMEntry) []packtest.PMEntry {
			if number > 1 {
				entries[0].Offset = 1 << 40
			}
			return entries
		},
	}})
	for name, bad := range map[string][]byte{
		"empty.pmtiles":     {},
		"half.pmtiles":      good[:len(good)/2],
		"garbage.pmtiles":   []byte(strings.Repeat("garbage", 1000)),
		"hostile.pmtiles":   hostile,
		"empty.mbtiles":     {},
		"half.mbtiles":      mbtilesOf(t, 1)[:10_000],
		"garbage.mbtiles":   []byte(strings.Repeat("garbage", 1000)),
		"otherkind.mbtiles": good,
		"otherkind.pmtiles": mbtilesOf(t, 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			put(t, s.path(name), bad)
			put(t, s.path("good.pmtiles"), good)
			backdate(t, s.path(name)) // so that it does not count as being copied
			s.mount()
			status := s.want(name, Bad, "")
			if status.Version != "" || status.Size != int64(len(bad)) || status.Modified.IsZero() {
				t.Errorf("the status is %+v", status)
			}
			s.refusedOpen(name, fault.NotReady, name)
			if s.served("good") != 1 {
				t.Error("the other one is not served")
			}
			if got := s.Counts(); got.Refusals != 1 || got.Open != 1 {
				t.Errorf("the counts are %+v", got)
			}
			s.mount()
			if got := s.Counts(); got.Refusals != 1 {
				t.Errorf("it was refused again: %+v", got)
			}
		})
	}
}

func TestThingsThatAreNotFiles(t *testing.T) {
	s := newFixture(t)
	testkit.Must(t, unix.Mkfifo(s.path("pipe.pmtiles"), 0o600))
	testkit.Must(t, os.Mkdir(s.path("folder.pmtiles"), 0o700))
	testkit.Must(t, os.Symlink("loop.pmtiles", s.path("loop.pmtiles")))
	testkit.Must(t, os.Symlink("nowhere", s.path("dangling.pmtiles")))
	put(t, s.path("good.pmtiles"), pmtilesOf(1))
	s.mount()
	s.want("pipe.pmtiles", Bad, "not a regular file")
	s.want("folder.pmtiles", Bad, "not a regular file")
	s.want("loop.pmtiles", Bad, "cannot be read")
	if _, listed := s.State().of("dangling.pmtiles"); listed {
		t.Error("a link to nowhere is listed")
	}
	if s.served("good") != 1 {
		t.Error("the good one is not served")
	}
	s.refusedOpen("pipe", fault.NotReady, "not a regular file")
}

func TestFilesByThemselves(t *testing.T) {
	folder := t.TempDir()
	here, missing := filepath.Join(folder, "here.pmtiles"), filepath.Join(folder, "missing.pmtiles")
	put(t, here, pmtilesOf(1))
	other := filepath.Join(folder, "map.tiles")
	put(t, other, pmtilesOf(1))
	s := newFixture(t, func(spec *Spec) { spec.Paths = []string{here, missing, other, here, folder} })
	s.mount()
	if s.served("here") != 1 {
		t.Error("not served")
	}
	s.want("missing.pmtiles", Bad, "not there")
	s.refusedOpen("missing", fault.NotFound, "missing.pmtiles is not there")
	s.want("map.tiles", Bad, "neither")
	if n := len(s.State().Packs); n != 3 {
		t.Errorf("%d packs are listed: %+v", n, s.State())
	}
	put(t, missing, pmtilesOf(2))
	s.mount()
	if s.served("missing") != 2 {
		t.Error("it is there now, and not served")
	}
	testkit.Must(t, os.Remove(missing))
	s.mount()
	s.want("missing.pmtiles", Bad, "not there")
	s.refusedOpen("missing", fault.NotFound, "missing.pmtiles is not there")
	if open := s.Counts().Open; open != 1 {
		t.Errorf("%d versions are open", open)
	}
}

func TestAFolderThatIsNotThere(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "maps")
	s := newFixture(t, func(spec *Spec) { spec.Paths = []string{folder} })
	s.mount()
	if got := s.want("maps", Bad, "the folder maps is not there"); got.Kind != "folder" || got.Name != "maps" || got.Path != folder {
		t.Errorf("the status is %+v", got)
	}
	testkit.Must(t, os.Mkdir(folder, 0o700))
	put(t, filepath.Join(folder, "a.pmtiles"), pmtilesOf(1))
	s.mount()
	if s.served("a") != 1 || len(s.State().Packs) != 1 {
		t.Errorf("the state is %+v", s.State())
	}
	testkit.Must(t, os.RemoveAll(folder))
	s.mount()
	s.refusedOpen("a", fault.NotFound, "a")
}

// The packs of a folder that cannot be read are not taken for gone.
func TestAFolderThatCannotBeReadKeepsItsPacks(t *testing.T) {
	root := t.TempDir()
	link := filepath.Join(root, "maps")
	testkit.Must(t, os.Mkdir(filepath.Join(root, "real"), 0o700))
	testkit.Must(t, os.Symlink("real", link))
	put(t, filepath.Join(root, "real", "a.pmtiles"), pmtilesOf(1))
	s := newFixture(t, func(spec *Spec) { spec.Paths = []string{link} })
	s.mount()
	testkit.Must(t, os.Remove(link))
	testkit.Must(t, os.Symlink("maps", link)) // a loop: not even root can read it
	s.mount()
	s.want("maps", Bad, "cannot be read")
	if s.served("a") != 1 {
		t.Error("its pack is gone")
	}
	testkit.Must(t, os.Remove(link))
	testkit.Must(t, os.Symlink("real", link))
	s.mount()
	s.want("a.pmtiles", Serving, "")
	if len(s.State().Packs) != 1 {
		t.Errorf("the state is %+v", s.State())
	}
}

func TestClosedMounts(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	s.mount()
	p, err := s.Open("a")
	testkit.Must(t, err)
	s.Close()
	s.Close()
	if versionOf(t, p) != 1 {
		t.Error("what was open before is not readable any more")
	}
	p.Close()
	s.refusedOpen("a", fault.Canceled, "unmounted")
	if err := s.Mount(t.Context()); fault.KindOf(err) != fault.Canceled {
		t.Errorf("Mount: %v", err)
	}
	if err := s.Serve(t.Context()); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if len(s.State().Packs) != 0 {
		t.Errorf("the state is %+v", s.State())
	}
}

func TestASpecThatCannotBeMeant(t *testing.T) {
	for _, spec := range []Spec{{Reconcile: -1}, {QuietPeriod: -1}, {CheckTime: -1}, {HashTime: -1}, {DirectoryBytes: -1}} {
		if _, err := New(flow.NewInventory(), spec); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	m, err := New(flow.NewInventory(), Spec{})
	testkit.Must(t, err)
	defer m.Close()
	testkit.Must(t, m.Mount(t.Context()))
	if m.spec.Reconcile != 30*time.Second || m.spec.QuietPeriod != time.Second || m.spec.CheckTime != 10*time.Second || m.spec.HashTime != 10*time.Minute {
		t.Errorf("the defaults are %+v", m.spec)
	}
}

// The next step says how to make a file readable; root may read all of them.
func TestAFileThatMayNotBeRead(t *testing.T) {
	err := unreadable("a.pmtiles", os.ErrPermission)
	if !strings.Contains(fault.DetailOf(err), "permission denied") || !strings.Contains(fault.NextOf(err), "user") {
		t.Errorf("%v; %s", err, fault.NextOf(err))
	}
}

// An Open that finds a version that was just closed looks up its successor. A
// closed version is never reused.
func TestAClaimThatComesTooLate(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	s.mount()
	sound := s.table.Load()
	gone := &version{file: "a.pmtiles"}
	if gone.acquire() || gone.users.Load() != 0 {
		t.Error("a version without users was claimed")
	}
	s.table.Store(&table{entries: map[string]*entry{"a": {version: gone}}})
	claimed := make(chan *Pack)
	go func() {
		p, err := s.Open("a")
		if err != nil {
			t.Errorf("Open: %v", err)
		}
		claimed <- p
	}()
	s.table.Store(sound)
	p := <-claimed
	defer p.Close()
	if versionOf(t, p) != 1 || gone.users.Load() != 0 {
		t.Error("the wrong one was claimed")
	}
}
