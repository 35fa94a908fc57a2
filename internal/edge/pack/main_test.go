package pack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/flow"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deepest is the highest zoom of the packs that tests make.
const deepest = 2

// tileText is a tile that says what it is, from its first byte to its last.
func tileText(version int, z uint8, x, y uint32) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "version %d of %d/%d/%d;", version, z, x, y), 20)
}

// everyTile calls visit for every tile of a test pack.
func everyTile(visit func(z uint8, x, y uint32)) {
	for z := range uint8(deepest + 1) {
		for x := range uint32(1) << z {
			for y := range uint32(1) << z {
				visit(z, x, y)
			}
		}
	}
}

// pmtilesOf makes an archive of one version, with leaf directories.
func pmtilesOf(version int) []byte {
	var tiles []packtest.PMTile
	everyTile(func(z uint8, x, y uint32) {
		tiles = append(tiles, packtest.PMTile{Z: z, X: x, Y: y, Data: tileText(version, z, x, y)})
	})
	return packtest.PMTiles(packtest.PMSpec{Tiles: tiles, LeafSize: 5, InternalCompression: packtest.PMGzip,
		Metadata: fmt.Sprintf(`{"name":"version %d"}`, version)})
}

// mbtilesOf makes a database of one version.
func mbtilesOf(tb testing.TB, version int) []byte {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "made")
	testkit.Must(tb, packtest.MBTiles(path, packtest.MBSpec{
		MaxZoom:  deepest,
		Tile:     func(z uint8, x, y uint32) []byte { return tileText(version, z, x, y) },
		Metadata: map[string]string{"format": "pbf", "name": fmt.Sprintf("version %d", version)},
	}))

	data, err := os.ReadFile(path)
	testkit.Must(tb, err)
	return data
}

// put puts a file in its place by a rename, as it should be done.
func put(tb testing.TB, path string, data []byte) {
	tb.Helper()
	testkit.Must(tb, os.WriteFile(path+".part", data, 0o600))
	testkit.Must(tb, os.Rename(path+".part", path))
}

// overwrite writes to a file in place, as it should not be done.
func overwrite(tb testing.TB, path string, data []byte) {
	tb.Helper()
	testkit.Must(tb, os.WriteFile(path, data, 0o600))
}

// backdate makes a file look as if it had not changed for an hour.
func backdate(tb testing.TB, path string) {
	tb.Helper()
	then := time.Now().Add(-time.Hour)
	testkit.Must(tb, os.Chtimes(path, then, then))
}

// fixture is a folder of packs and the mounts of it.
type fixture struct {
	*Mounts
	tb      testing.TB
	inv     *flow.Inventory
	folder  string
	changes chan State
}

// newFixture makes mounts of a folder. Nothing is mounted yet.
func newFixture(tb testing.TB, change ...func(*Spec)) *fixture {
	tb.Helper()
	s := &fixture{tb: tb, inv: flow.NewInventory(), folder: tb.TempDir(), changes: make(chan State, 100_000)}
	spec := Spec{
		Paths: []string{s.folder}, Deep: true, DirectoryBytes: 1 << 20, Reconcile: time.Hour, QuietPeriod: time.Millisecond,
		OnChange: func(now State) { s.changes <- now },
	}
	for _, one := range change {
		one(&spec)
	}
	var err error
	s.Mounts, err = New(s.inv, spec)
	testkit.Must(tb, err)
	tb.Cleanup(func() {
		s.Close()
		if open := s.Counts().Open; open != 0 {
			tb.Errorf("%d versions are still open after everything was closed", open)
		}
	})
	return s
}

func (s *fixture) path(file string) string { return filepath.Join(s.folder, file) }

// mount mounts what is there.
func (s *fixture) mount() {
	s.tb.Helper()
	testkit.Must(s.tb, s.Mount(context.Background()))
}

// serve runs Serve until the test ends.
func (s *fixture) serve(tb testing.TB) {
	s.start(tb, func(ctx context.Context) error { return s.Serve(ctx) })
}

func (s *fixture) start(tb testing.TB, serve func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Serve: %v", err)
		}
	})
}

// until waits for a state that satisfies a test.
func (s *fixture) until(what string, ok func(State) bool) State {
	s.tb.Helper()
	if now := s.State(); ok(now) {
		return now
	}
	timeout := time.After(time.Minute) // only a test that has failed waits for it
	for {
		select {
		case now := <-s.changes:
			if ok(now) {
				return now
			}
		case <-timeout:
			s.tb.Fatalf("never seen: %s. The state is %+v", what, s.State())
		}
	}
}

// of finds the status of a file.
func (s State) of(file string) (Status, bool) {
	for _, status := range s.Packs {
		if status.File == file {
			return status, true
		}
	}
	return Status{}, false
}

// untilServed waits until a version of a test pack is served, without an error.
func (s *fixture) untilServed(file string, version int) {
	s.tb.Helper()
	s.until(fmt.Sprintf("version %d of %s", version, file), func(now State) bool {
		status, _ := now.of(file)
		return status.Condition == Serving && !status.Pending && s.served(file) == version
	})
}

// served is the version that is served, -1 if there is none.
func (s *fixture) served(name string) int {
	s.tb.Helper()
	p, err := s.Open(name)
	if err != nil {
		return -1
	}
	defer p.Close()
	return versionOf(s.tb, p)
}

// versionOf reads every tile of a pack and checks that all are of one version.
// It is -1 if the file was changed in place meanwhile.
func versionOf(tb testing.TB, p *Pack) int {
	tb.Helper()
	return versionOfTiles(tb, p, everyTile)
}

func versionOfTiles(tb testing.TB, p *Pack, tiles func(visit func(z uint8, x, y uint32))) int {
	tb.Helper()
	version, spoilt := -1, false
	tiles(func(z uint8, x, y uint32) {
		got, err := p.Tile(context.Background(), z, x, y)
		if fault.KindOf(err) == fault.NotReady {
			spoilt = true
			return
		}
		if err != nil {
			tb.Errorf("%s %d/%d/%d: %v", p.File(), z, x, y, err)
			return
		}
		var seen int
		if _, err := fmt.Sscanf(string(got.Data), "version %d of", &seen); err != nil || !bytes.Equal(got.Data, tileText(seen, z, x, y)) {
			tb.Errorf("%s %d/%d/%d is garbage: %.60q", p.File(), z, x, y, got.Data)
			return
		}
		if version != -1 && seen != version {
			tb.Errorf("%s has tiles of versions %d and %d", p.File(), version, seen)
		}
		version = seen
	})
	if spoilt {
		return -1
	}
	return version
}

// want checks a condition and, where something is wrong, words of the reason
// and a next step of its own.
func (s *fixture) want(file string, condition Condition, words string) Status {
	s.tb.Helper()
	status, ok := s.State().of(file)
	if !ok {
		s.tb.Fatalf("%s is not in the state: %+v", file, s.State())
	}
	if status.Condition != condition {
		s.tb.Errorf("%s is %s, not %s: %v", file, status.Condition, condition, status.Err)
	}
	if (status.Err == nil) != (condition == Serving) {
		s.tb.Errorf("%s is %s, and its error is %v", file, status.Condition, status.Err)
	}
	if status.Err != nil && !strings.Contains(fault.DetailOf(status.Err), words) {
		s.tb.Errorf("%s: the reason does not say %q: %v", file, words, status.Err)
	}
	if status.Err != nil && ownNext(status.Err) == "" {
		s.tb.Errorf("%s: no next step for %v", file, status.Err)
	}
	if status.Err != nil && strings.Contains(fault.DetailOf(status.Err), s.folder) {
		s.tb.Errorf("%s: strangers are told where it is: %v", file, status.Err)
	}
	return status
}

// refusedOpen checks that a name cannot be opened, with a kind and a reason.
func (s *fixture) refusedOpen(name string, kind fault.Kind, words string) {
	s.tb.Helper()
	p, err := s.Open(name)
	if err == nil {
		p.Close()
		s.tb.Errorf("%s was opened", name)
		return
	}
	if fault.KindOf(err) != kind || !strings.Contains(fault.DetailOf(err), words) {
		s.tb.Errorf("%s: %v (%s), want %s and %q", name, err, fault.KindOf(err), kind, words)
	}
}

// versionCounter gives every file of a test another version.
var versionCounter atomic.Int64

func nextVersion() int { return int(versionCounter.Add(1)) }
