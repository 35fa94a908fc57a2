package pack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
	"micronode/internal/testkit"
)

// A file that became something else while it was opened is checked again.
func TestAPipeInThePlaceOfAFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a.pmtiles")
	put(t, path, pmtilesOf(1))
	seen, err := statFile(path, pmtilesKind)
	testkit.Must(t, err)
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, unix.Mkfifo(path, 0o600))
	one := newCandidate(path, "a.pmtiles", pmtilesKind, seen, Spec{})
	defer one.close()
	if _, err := one.step(t.Context(), time.Hour); !errors.Is(err, errChanged) {
		t.Errorf("a pipe: %v", err)
	}
}

func TestWhatIsExpected(t *testing.T) {
	first, second := pmtilesOf(1), pmtilesOf(2)
	s := newFixture(t, func(spec *Spec) {
		spec.Expect = map[string]b3.Address{"a.pmtiles": b3.Of(first), "b.pmtiles": b3.Of(first), "gone.pmtiles": b3.Of(first)}
	})
	put(t, s.path("a.pmtiles"), first)
	put(t, s.path("b.pmtiles"), second)
	put(t, s.path("c.pmtiles"), second)
	backdate(t, s.path("b.pmtiles"))
	s.mount()
	a := s.want("a.pmtiles", Serving, "")
	address := b3.Of(first).String()
	if !a.Verified || a.ETag != `"`+address+`"` || "b3:"+a.Version != address {
		t.Errorf("the status is %+v", a)
	}
	b := s.want("b.pmtiles", Bad, "edge.expect")
	if fault.KindOf(b.Err) != fault.IntegrityFail || b.Verified {
		t.Errorf("the status is %+v", b)
	}
	if c := s.want("c.pmtiles", Serving, ""); c.Verified {
		t.Errorf("the status is %+v", c)
	}
	// Another one, however well-formed, does not replace it.
	put(t, s.path("a.pmtiles"), second)
	backdate(t, s.path("a.pmtiles"))
	s.mount()
	s.want("a.pmtiles", Degraded, "edge.expect")
	if s.served("a") != 1 {
		t.Error("the right one is not served any more")
	}
	// The right bytes in another file are the same version.
	put(t, s.path("a.pmtiles"), first)
	s.mount()
	if again := s.want("a.pmtiles", Serving, ""); again.Version != a.Version || s.served("a") != 1 {
		t.Errorf("the status is %+v", again)
	}
}

func TestAHashThatTakesTooLong(t *testing.T) {
	data := pmtilesOf(1)
	s := newFixture(t, func(spec *Spec) {
		spec.Expect = map[string]b3.Address{"a.pmtiles": b3.Of(data)}
		spec.HashTime = time.Nanosecond
	})
	put(t, s.path("a.pmtiles"), data)
	backdate(t, s.path("a.pmtiles"))
	s.mount()
	if got := s.want("a.pmtiles", Bad, "within 1ns"); fault.KindOf(got.Err) != fault.Timeout {
		t.Errorf("the status is %+v", got)
	}
	s.mount()
	if got := s.Counts().Refusals; got != 1 {
		t.Errorf("it was tried %d times", got)
	}
}

// A Mount whose ctx ends leaves the rest to Serve.
func TestAMountThatIsCutShort(t *testing.T) {
	big := bigPack(t)
	s := newFixture(t, func(spec *Spec) { spec.Expect = map[string]b3.Address{"big.pmtiles": b3.Of(big)} })
	put(t, s.path("big.pmtiles"), big)
	put(t, s.path("small.pmtiles"), pmtilesOf(1))
	ctx, cancel := context.WithCancel(t.Context())
	s.spec.OnChange = func(State) { cancel() } // after the first step
	if err := s.Mount(ctx); fault.KindOf(err) != fault.Canceled {
		t.Errorf("Mount: %v", err)
	}
	s.want("big.pmtiles", Waiting, "is being verified")
	s.want("small.pmtiles", Serving, "")
	s.refusedOpen("big", fault.NotReady, "is being verified")
	s.spec.OnChange = nil
	s.mount()
	if got := s.want("big.pmtiles", Serving, ""); !got.Verified {
		t.Errorf("the status is %+v", got)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Mount(ended); fault.KindOf(err) != fault.Canceled {
		t.Errorf("Mount: %v", err)
	}
}

// bigPack is a pack that takes several steps to hash.
func bigPack(tb testing.TB) []byte {
	tb.Helper()
	return packtest.PMTiles(packtest.PMSpec{MaxZoom: 1, MinSize: 3 << 20})
}

// A check that runs out of time found nothing wrong so far.
func TestADeepCheckIsBounded(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"too short": func(spec *Spec) { spec.CheckTime = time.Nanosecond },
		"none":      func(spec *Spec) { spec.Deep = false },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, change)
			put(t, s.path("a.pmtiles"), pmtilesOf(1))
			put(t, s.path("b.mbtiles"), mbtilesOf(t, 1))
			s.mount()
			for _, file := range []string{"a.pmtiles", "b.mbtiles"} {
				if got := s.want(file, Serving, ""); got.Checked {
					t.Errorf("%s is called checked", file)
				}
			}
		})
	}
}

// Without a deep check, damage is found by the read that meets it, and is not
// reported as a mistake of the caller.
func TestDamageThatIsMetLater(t *testing.T) {
	s := newFixture(t, func(spec *Spec) { spec.Deep = false })
	put(t, s.path("a.pmtiles"), packtest.PMTiles(packtest.PMSpec{MaxZoom: 3, LeafSize: 8, InternalCompression: packtest.PMGzip, Damage: packtest.PMDamage{
		Stored: func(number int, raw []byte) []byte {
			if number == 3 {
				copy(raw[12:], "damaged!")
			}
			return raw
		},
	}}))
	s.mount()
	s.want("a.pmtiles", Serving, "")
	p, err := s.Open("a")
	testkit.Must(t, err)
	defer p.Close()
	kinds := map[fault.Kind]int{}
	for x := range uint32(8) {
		for y := range uint32(8) {
			_, err := p.Tile(t.Context(), 3, x, y)
			kinds[fault.KindOf(err)]++
		}
	}
	if kinds[fault.IntegrityFail] == 0 || kinds[0] == 0 || len(kinds) != 2 {
		t.Errorf("the tiles end in %v", kinds)
	}
}

func TestALiveDatabase(t *testing.T) {
	s := newFixture(t)
	live := s.path("live.mbtiles")
	testkit.Must(t, packtest.MBTiles(live, packtest.MBSpec{MaxZoom: 1, WAL: true}))
	backdate(t, live)
	s.mount()
	status := s.want("live.mbtiles", Bad, "")
	if next := fault.NextOf(status.Err); !strings.Contains(next, "wal_checkpoint") {
		t.Errorf("the next step is %q", next)
	}
	// Once the journal is gone, the database is checked again, although it has
	// not changed itself.
	testkit.Must(t, os.Remove(live+"-wal"))
	s.mount()
	s.want("live.mbtiles", Serving, "")
}

// candidateOf makes a candidate of a file as it is now, ready to be opened.
func candidateOf(t *testing.T, s *fixture, file string) *candidate {
	t.Helper()
	seen, err := statFile(s.path(file), kindOf(file))
	testkit.Must(t, err)
	one := newCandidate(s.path(file), file, kindOf(file), seen, s.spec)
	t.Cleanup(one.close)
	if done, err := one.step(t.Context(), time.Hour); !done || err != nil {
		t.Fatal(done, err)
	}
	return one
}

// A change of a file between two checks is noticed at the second. SQLite opens
// a database by its name, which may lead to another file by then.
func TestAFileThatChangesWhileItIsOpened(t *testing.T) {
	contents := map[string][][]byte{
		"a.pmtiles": {pmtilesOf(1), pmtilesOf(2)},
		"a.mbtiles": {mbtilesOf(t, 1), mbtilesOf(t, 2)},
	}
	for name, change := range map[string]func(t *testing.T, path string, data []byte){
		"replaced":  func(t *testing.T, path string, data []byte) { put(t, path, data) },
		"written":   func(t *testing.T, path string, data []byte) { overwrite(t, path, data) },
		"truncated": func(t *testing.T, path string, data []byte) { overwrite(t, path, data[:100]) },
		"removed":   func(t *testing.T, path string, _ []byte) { testkit.Must(t, os.Remove(path)) },
	} {
		for file, data := range contents {
			t.Run(name+" "+file, func(t *testing.T) {
				s := newFixture(t)
				put(t, s.path(file), data[0])
				one := candidateOf(t, s, file)
				change(t, s.path(file), data[1])
				v, err := s.open(t.Context(), one)
				if v != nil && kindOf(file) == pmtilesKind && (name == "replaced" || name == "removed") {
					// The open file is still the old one, and whole.
					one.handle = nil
					p := &Pack{version: v}
					if versionOf(t, p) != 1 {
						t.Error("it is not the old one")
					}
					p.Close()
					return
				}
				if !errors.Is(err, errChanged) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// A disk that fails is not a damaged pack.
func TestADiskThatFails(t *testing.T) {
	data := pmtilesOf(1)
	s := newFixture(t, func(spec *Spec) { spec.Expect = map[string]b3.Address{"a.pmtiles": b3.Of(data)} })
	put(t, s.path("a.pmtiles"), data)
	seen, err := statFile(s.path("a.pmtiles"), pmtilesKind)
	testkit.Must(t, err)
	one := newCandidate(s.path("a.pmtiles"), "a.pmtiles", pmtilesKind, seen, s.spec)
	one.handle, err = os.OpenFile(s.path("a.pmtiles"), os.O_WRONLY, 0) // reads fail
	testkit.Must(t, err)
	defer one.close()
	one.began = time.Now()
	if _, err := one.step(t.Context(), time.Hour); fault.KindOf(err) != fault.NotReady || isPermanent(err) || !strings.Contains(fault.DetailOf(err), "cannot be read") {
		t.Errorf("while it is hashed: %v", err)
	}
	if err := candidateFault(one, fault.New("pmtiles.open", fault.Internal, "reading failed")); fault.KindOf(err) != fault.NotReady || isPermanent(err) {
		t.Errorf("while it is opened: %v", err)
	}
	v := &version{file: "a.pmtiles", state: seen, handle: one.handle, descriptor: one.handle.Fd(), archive: &pmtilesArchive{file: one.handle}}
	v.finishInit()
	if _, err := v.readAt(make([]byte, 10), 0); fault.KindOf(err) != fault.Internal {
		t.Errorf("while it is served: %v", err)
	}
}

// A file that is incomplete when the node starts may still be being copied.
func TestAFileThatIsBeingCopiedAtTheStart(t *testing.T) {
	s := newFixture(t, func(spec *Spec) { spec.QuietPeriod = time.Hour })
	whole := pmtilesOf(1)
	put(t, s.path("a.pmtiles"), whole[:len(whole)/2])
	put(t, s.path("b.pmtiles"), whole)
	s.mount()
	s.want("a.pmtiles", Waiting, "the writes stop")
	s.want("b.pmtiles", Serving, "") // a complete file need not wait
	put(t, s.path("b.pmtiles"), pmtilesOf(2)[:1000])
	s.mount()
	if b := s.want("b.pmtiles", Serving, ""); !b.Pending || s.served("b") != 1 {
		t.Errorf("the status is %+v", b)
	}
	put(t, s.path("a.pmtiles"), whole)
	s.mount()
	s.want("a.pmtiles", Serving, "")
}
