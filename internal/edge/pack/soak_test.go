package pack

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/testkit"
)

// footprint is where a leak would show.
type footprint struct {
	files       int
	directories int
	cached      int64
	versions    int64
}

func (s *fixture) footprint() footprint {
	s.tb.Helper()
	f := footprint{files: testkit.OpenFiles(s.tb, filepath.Dir(s.path("x"))), versions: s.Counts().Open}
	f.directories, f.cached = s.directories.Usage()
	return f
}

// A thousand reloads keep no more than ten: every version without readers is
// closed, with its file, its directories and its connections.
func TestReloadsLeakNothing(t *testing.T) {
	for file, c := range map[string]struct {
		contents [][]byte
		reloads  int
	}{
		"a.pmtiles": {[][]byte{pmtilesOf(1), pmtilesOf(2)}, 1000},
		"a.mbtiles": {[][]byte{mbtilesOf(t, 1), mbtilesOf(t, 2)}, 150},
	} {
		t.Run(file, func(t *testing.T) {
			s := newFixture(t, func(spec *Spec) { spec.OnChange = nil })
			var last *Pack
			reload := func(i int) {
				put(t, s.path(file), c.contents[i%2])
				s.mount()
				p, err := s.Open("a")
				testkit.Must(t, err)
				if _, err := p.Tile(context.Background(), deepest, 1, 2); err != nil {
					t.Fatal(err)
				}
				if last != nil {
					last.Close() // the old version outlives its replacement
				}
				last = p
			}
			for i := range 20 {
				reload(i)
			}
			before, memory := s.footprint(), testkit.WatchMemory()
			for i := range c.reloads {
				reload(i)
			}
			after, grown := s.footprint(), memory.Grown()
			last.Close()
			if after != before || grown > 2<<20 {
				t.Errorf("before %+v, after %d reloads %+v and %d bytes more", before, c.reloads, after, grown)
			}
			if got := s.Counts().Swaps; got != uint64(c.reloads+20) {
				t.Errorf("%d swaps", got)
			}
		})
	}
}

// Whatever happens to the files, readers get tiles of one version, or a refusal
// that fits.
func TestReadersDuringChanges(t *testing.T) {
	files := map[string]func(int) []byte{
		"a.pmtiles": pmtilesOf,
		"b.mbtiles": func(version int) []byte { return mbtilesOf(t, version) },
	}
	s := newFixture(t, func(spec *Spec) { spec.OnChange = nil })
	for file, make := range files {
		put(t, s.path(file), make(nextVersion()))
	}
	s.mount()
	var stop atomic.Bool
	var tiles atomic.Int64
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !stop.Load() {
				for _, name := range []string{"a", "b"} {
					p, err := s.Open(name)
					if kind := fault.KindOf(err); err != nil && kind != fault.NotReady && kind != fault.NotFound {
						t.Errorf("%s: %v", name, err)
					}
					if err != nil {
						continue
					}
					if versionOf(t, p) >= 0 {
						tiles.Add(1)
					}
					p.Close()
				}
			}
		})
	}
	for range 25 {
		for file, make := range files {
			data := make(nextVersion())
			switch rand.IntN(6) {
			case 0:
				overwrite(t, s.path(file), data)
			case 1:
				overwrite(t, s.path(file), data[:len(data)/2])
			case 2:
				_ = os.Remove(s.path(file)) // it may be gone already
			default:
				put(t, s.path(file), data)
			}
		}
		s.mount()
	}
	for file, make := range files {
		put(t, s.path(file), make(nextVersion()))
	}
	s.mount()
	stop.Store(true)
	readers.Wait()
	if tiles.Load() == 0 {
		t.Error("nobody ever read anything")
	}
	if got := s.Counts().Open; got != 2 {
		t.Errorf("%d versions are open", got)
	}
}

// A version that is closed just when a reader acquires it is not reused: the
// reader gets its successor.
func TestAClaimInTheMomentOfASwap(t *testing.T) {
	s := newFixture(t, func(spec *Spec) { spec.OnChange = nil; spec.Deep = false })
	contents := [][]byte{pmtilesOf(0), pmtilesOf(1)}
	put(t, s.path("a.pmtiles"), contents[0])
	s.mount()
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !stop.Load() {
				p, err := s.Open("a")
				if err != nil {
					t.Errorf("Open: %v", err)
					return
				}
				if p.version.users.Load() < 1 {
					t.Error("a version without users was given out")
				}
				if _, err := p.Tile(context.Background(), 0, 0, 0); err != nil {
					t.Errorf("Tile: %v", err)
				}
				p.Close()
			}
		})
	}
	for i := range 150 {
		put(t, s.path("a.pmtiles"), contents[i%2])
		s.mount()
	}
	stop.Store(true)
	readers.Wait()
	if got := s.Counts().Open; got != 1 {
		t.Errorf("%d versions are open", got)
	}
}

// TestModel changes some files at random and compares what is served with a
// small model.
func TestModel(t *testing.T) {
	bytesOf := map[string]map[int][]byte{}
	for _, file := range []string{"a.pmtiles", "b.pmtiles", "c.mbtiles"} {
		bytesOf[file] = map[int][]byte{}
		for version := range 4 {
			if kindOf(file) == mbtilesKind {
				bytesOf[file][version] = mbtilesOf(t, version)
			} else {
				bytesOf[file][version] = pmtilesOf(version)
			}
		}
	}
	names := slices.Sorted(maps.Keys(bytesOf))
	rapid.Check(t, func(r *rapid.T) {
		s := newFixture(t, func(spec *Spec) { spec.OnChange = nil })
		defer s.Close()
		m := model{}
		claims := []claim{}
		defer func() {
			for _, c := range claims {
				c.pack.Close()
			}
		}()
		file := rapid.SampledFrom(names)
		number := rapid.IntRange(0, 3)
		r.Repeat(map[string]func(*rapid.T){
			"replace": func(r *rapid.T) {
				f, v := file.Draw(r, "file"), number.Draw(r, "version")
				put(t, s.path(f), bytesOf[f][v])
				m.write(f, v, true)
			},
			"replace by a bad one": func(r *rapid.T) {
				f := file.Draw(r, "file")
				whole := bytesOf[f][0]
				put(t, s.path(f), whole[:rapid.IntRange(0, len(whole)-1).Draw(r, "cut")])
				backdate(t, s.path(f))
				m.write(f, bad, true)
			},
			"write in place": func(r *rapid.T) {
				f, v := file.Draw(r, "file"), number.Draw(r, "version")
				overwrite(t, s.path(f), bytesOf[f][v])
				m.write(f, v, m.files[f] == nil)
			},
			"spoil in place": func(r *rapid.T) {
				f := file.Draw(r, "file")
				overwrite(t, s.path(f), []byte("spoilt"))
				backdate(t, s.path(f))
				m.write(f, bad, m.files[f] == nil)
			},
			"remove": func(r *rapid.T) {
				f := file.Draw(r, "file")
				_ = os.Remove(s.path(f)) // it may be gone already
				delete(m.files, f)
			},
			"claim": func(r *rapid.T) {
				f := file.Draw(r, "file")
				if len(claims) == 3 {
					claims[0].pack.Close()
					claims = claims[1:]
				}
				if p, err := s.Open(f); err == nil {
					claims = append(claims, claim{p, m.served[f], m.served[f].version})
				}
			},
			"look": func(r *rapid.T) {
				s.mount()
				m.scan()
				for _, f := range names {
					m.compare(r, s, f)
				}
			},
			"": func(r *rapid.T) {
				for _, c := range claims {
					want := c.version
					if c.inode.changedInPlace {
						want = bad
					}
					if got := someVersionOf(t, c.pack); got != want {
						r.Fatalf("a claim on version %d of %s reads %d, not %d", c.version, c.pack.File(), got, want)
					}
				}
			},
		})
	})
}

// someVersionOf is the version of one tile, which is quicker than all of them.
func someVersionOf(tb testing.TB, p *Pack) int {
	return versionOfTiles(tb, p, func(visit func(z uint8, x, y uint32)) { visit(deepest, 2, 1) })
}

const bad = -1

// inode is a file on the disk of the model, whatever its name.
type inode struct {
	version        int
	changedInPlace bool // written to since it was mounted
}

// model is the expected state: what is on the disk, and what is served.
type model struct {
	files  map[string]*inode
	served map[string]*inode
}

// claim is a Pack that is open, and the inode that it was opened on.
type claim struct {
	pack    *Pack
	inode   *inode
	version int
}

// write notes that a file was written: as a new one, or in place.
func (m *model) write(file string, version int, fresh bool) {
	if m.files == nil {
		m.files, m.served = map[string]*inode{}, map[string]*inode{}
	}
	if !fresh {
		m.files[file].changedInPlace = true // for packs that have it open
	}
	m.files[file] = &inode{version: version}
}

// scan does what a scan of the disk should do.
func (m *model) scan() {
	for file, served := range m.served {
		if served.changedInPlace || m.files[file] == nil {
			delete(m.served, file)
		}
	}
	for file, there := range m.files {
		if there.version != bad {
			m.served[file] = there
		}
	}
}

// compare checks that what is served is what the model expects.
func (m *model) compare(r *rapid.T, s *fixture, file string) {
	served, there := m.served[file], m.files[file]
	status, listed := s.State().of(file)
	want := Status{}
	switch {
	case there == nil:
	case served == nil:
		want.Condition = Bad
	case there != served:
		want.Condition = Degraded
	default:
		want.Condition = Serving
	}
	if status.Condition != want.Condition || listed != (there != nil) {
		r.Fatalf("%s is %q, not %q: %v", file, status.Condition, want.Condition, status.Err)
	}
	version := bad
	if served != nil {
		version = served.version
	}
	got := bad
	if p, err := s.Open(file); err == nil {
		got = someVersionOf(s.tb, p)
		p.Close()
	}
	if got != version {
		r.Fatalf("version %d of %s is served, not %d", got, file, version)
	}
}
