package pmtiles

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
)

// gatedReader is a file whose reads, after the first one, wait for a gate.
type gatedReader struct {
	io.ReaderAt
	open  chan struct{}
	reads atomic.Int64
}

func (g *gatedReader) ReadAt(b []byte, at int64) (int, error) {
	if g.reads.Add(1) > 1 {
		<-g.open
	}
	return g.ReaderAt.ReadAt(b, at)
}

func openGated(t *testing.T, dirs *DirectoryCache, spec packtest.PMSpec) (*Archive, *gatedReader) {
	t.Helper()
	data := packtest.PMTiles(spec)
	g := &gatedReader{ReaderAt: bytes.NewReader(data), open: make(chan struct{})}
	a, err := Open(g, int64(len(data)), dirs, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return a, g
}

func TestADirectoryIsReadOnce(t *testing.T) {
	data := packtest.PMTiles(packtest.PMSpec{MaxZoom: 4, LeafSize: 50})
	reads := 0
	a, err := Open(countingReader{bytes.NewReader(data), &reads}, int64(len(data)), NewDirectoryCache(1<<20), Limits{})
	if err != nil || reads != 1 {
		t.Fatalf("%d reads to open, %v", reads, err)
	}
	for range 10 {
		if _, found, err := a.Locate(3, 1, 1); !found || err != nil {
			t.Fatal(found, err)
		}
	}
	if n, bytes := a.dirs.Usage(); reads != 2 || n != 1 || bytes != 50*entryBytes+directoryOverhead {
		t.Errorf("%d reads, %d directories of %d bytes kept", reads, n, bytes)
	}
	if err := check(a); err != nil {
		t.Fatal(err)
	}
	if n, _ := a.dirs.Usage(); n != 1 {
		t.Errorf("a check left %d directories in the cache", n)
	}
}

// A tile before the first entry is absent, without reading a directory.
func TestTilesBeforeTheFirstEntry(t *testing.T) {
	spec := packtest.PMSpec{MaxZoom: 4, LeafSize: 50, Keep: func(z uint8, x, y uint32) bool { return z > 2 }}
	spec.Damage.Header = func(h *packtest.PMHeader) { h.MinZoom = 0 }
	data := packtest.PMTiles(spec)
	reads := 0
	a, err := Open(countingReader{bytes.NewReader(data), &reads}, int64(len(data)), nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := a.Locate(1, 0, 0); found || err != nil || reads != 1 {
		t.Errorf("%t, %v after %d reads", found, err, reads)
	}
}

// Concurrent loads of one directory share one read, and all of them get it.
func TestLoadsCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, g := openGated(t, NewDirectoryCache(1<<20), packtest.PMSpec{MaxZoom: 4, LeafSize: 1000})
		var found atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, ok, err := a.Locate(3, 1, 1); ok && err == nil {
					found.Add(1)
				}
			})
		}
		synctest.Wait()
		if g.reads.Load() != 2 {
			t.Errorf("%d reads while all wait, want one to open and one for the directory", g.reads.Load())
		}
		close(g.open)
		all.Wait()
		if found.Load() != 50 || g.reads.Load() != 2 || a.dirs.waiting.Load() != 0 || a.dirs.flights.Len() != 0 {
			t.Errorf("%d found, %d reads, %d waiting, %d loads left", found.Load(), g.reads.Load(), a.dirs.waiting.Load(), a.dirs.flights.Len())
		}
	})
}

// A failed read fails all its waiters, and the next load tries again.
func TestAFailedLoadIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := packtest.PMSpec{MaxZoom: 2, LeafSize: 1000}
		spec.Damage.Directory = func(number int, raw []byte) []byte {
			if number == 1 {
				raw[0] = 0
			}
			return raw
		}
		a, g := openGated(t, NewDirectoryCache(1<<20), spec)
		var failed atomic.Int64
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, _, err := a.Locate(1, 1, 1); fault.KindOf(err) == fault.Malformed {
					failed.Add(1)
				}
			})
		}
		synctest.Wait()
		close(g.open)
		all.Wait()
		if failed.Load() != 10 || g.reads.Load() != 2 {
			t.Errorf("%d failed after %d reads", failed.Load(), g.reads.Load())
		}
		if _, _, err := a.Locate(1, 1, 1); err == nil || g.reads.Load() != 3 {
			t.Errorf("%v after %d reads: a failure was kept", err, g.reads.Load())
		}
	})
}

func TestFewLoadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, g := openGated(t, NewDirectoryCache(1<<20), packtest.PMSpec{MaxZoom: 3, LeafSize: 1})
		var all sync.WaitGroup
		for x := range uint32(8) {
			for y := range uint32(8) {
				all.Go(func() {
					if _, found, err := a.Locate(3, x, y); !found || err != nil {
						t.Error(found, err)
					}
				})
			}
		}
		synctest.Wait()
		if got := g.reads.Load() - 1; got != maxLoads {
			t.Errorf("%d directories are read at once, want %d", got, maxLoads)
		}
		close(g.open)
		all.Wait()
		if a.dirs.running != 0 || len(a.dirs.waiters) != 0 || a.dirs.flights.Len() != 0 {
			t.Errorf("left behind: %d running, %d parked, %d loads", a.dirs.running, len(a.dirs.waiters), a.dirs.flights.Len())
		}
	})
}

func TestTooManyWhoWaitAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, g := openGated(t, NewDirectoryCache(1<<20), packtest.PMSpec{MaxZoom: 3, LeafSize: 1000})
		var all sync.WaitGroup
		for range maxWaiting {
			all.Go(func() {
				if _, found, err := a.Locate(3, 1, 1); !found || err != nil {
					t.Error(found, err)
				}
			})
		}
		synctest.Wait()
		_, _, err := a.Locate(3, 1, 1)
		wantFault(t, err, fault.Busy, "4096 callers wait")
		close(g.open)
		all.Wait()
		if _, found, err := a.Locate(3, 1, 1); !found || err != nil {
			t.Errorf("afterwards: %t, %v", found, err)
		}
	})
}

// panickingReader is a file that panics when the test says so.
type panickingReader struct {
	io.ReaderAt
	now *atomic.Bool
}

func (p panickingReader) ReadAt(b []byte, at int64) (int, error) {
	n, err := p.ReaderAt.ReadAt(b, at)
	if p.now.Load() {
		panic("the disk is on fire")
	}
	return n, err
}

func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := packtest.PMTiles(packtest.PMSpec{MaxZoom: 3, LeafSize: 1000})
		g := &gatedReader{ReaderAt: bytes.NewReader(data), open: make(chan struct{})}
		src := panickingReader{g, new(atomic.Bool)}
		a, err := Open(src, int64(len(data)), NewDirectoryCache(1<<20), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		src.now.Store(true)
		var all sync.WaitGroup
		all.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _, _ = a.Locate(3, 1, 1)
		})
		synctest.Wait()
		all.Go(func() {
			_, _, err := a.Locate(3, 1, 1)
			wantFault(t, err, fault.Internal, "died")
		})
		synctest.Wait()
		close(g.open)
		all.Wait()

		src.now.Store(false)
		if _, found, err := a.Locate(3, 1, 1); !found || err != nil {
			t.Errorf("afterwards: %t, %v", found, err)
		}
		if a.dirs.running != 0 {
			t.Errorf("%d are running", a.dirs.running)
		}
	})
}

// A load that begins just after another has ended finds its result.
func TestALoadLooksOnceMore(t *testing.T) {
	data := packtest.PMTiles(packtest.PMSpec{MaxZoom: 3, LeafSize: 1000})
	reads := 0
	a, err := Open(countingReader{bytes.NewReader(data), &reads}, int64(len(data)), NewDirectoryCache(1<<20), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	k := key{archive: a.number, length: a.root.entries[0].length}
	first, err := a.dirs.load(k, a)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := a.dirs.load(k, a); second != first || err != nil || reads != 2 {
		t.Errorf("%v after %d reads, another directory: %t", err, reads, second != first)
	}
}

// Two entries may give two lengths for one directory; one of them is false, and
// must not find the result of the other.
func TestALengthThatLies(t *testing.T) {
	a := open(t, packtest.PMTiles(leaves(0, func(entries []packtest.PMEntry) []packtest.PMEntry {
		entries[1].Offset, entries[1].Length = entries[0].Offset, entries[0].Length-1
		return entries
	})), NewDirectoryCache(1<<20))
	if _, found, err := a.Locate(0, 0, 0); !found || err != nil {
		t.Fatal(found, err)
	}
	_, _, err := a.Locate(2, 0, 0)
	wantFault(t, err, fault.Malformed, "")
}

func TestTheBudgetHolds(t *testing.T) {
	const budget = 20 << 10
	dirs := NewDirectoryCache(budget)
	for seed := range uint64(4) {
		spec := packtest.PMSpec{MaxZoom: 5, LeafSize: 40, Seed: seed}
		data := packtest.PMTiles(spec)
		a := open(t, data, dirs)
		wantTiles(t, a, data, spec.Contents())
		if n, bytes := dirs.Usage(); n == 0 || bytes == 0 || bytes > budget {
			t.Errorf("after %d archives: %d directories of %d bytes are kept, of %d", seed+1, n, bytes, budget)
		}
	}
}

// A directory that is larger than the budget is read each time, and evicts
// nothing for long.
func TestADirectoryLargerThanTheBudget(t *testing.T) {
	spec := packtest.PMSpec{MaxZoom: 4, LeafSize: 1000}
	data := packtest.PMTiles(spec)
	a := open(t, data, NewDirectoryCache(1000))
	wantTiles(t, a, data, spec.Contents())
	if n, bytes := a.dirs.Usage(); n != 0 || bytes != 0 {
		t.Errorf("%d directories of %d bytes", n, bytes)
	}
}

func TestArchivesDoNotMixTheirDirectories(t *testing.T) {
	dirs := NewDirectoryCache(1 << 20)
	specs := []packtest.PMSpec{{MaxZoom: 4, LeafSize: 50, Seed: 1, MaxSize: 200}, {MaxZoom: 4, LeafSize: 50, Seed: 2, MaxSize: 200}}
	for range 2 {
		for _, spec := range specs {
			data := packtest.PMTiles(spec)
			wantTiles(t, open(t, data, dirs), data, spec.Contents())
		}
	}
}

func TestReleaseGivesBack(t *testing.T) {
	dirs := NewDirectoryCache(1 << 20)
	spec := packtest.PMSpec{MaxZoom: 4, LeafSize: 50}
	data := packtest.PMTiles(spec)
	stays, goes := open(t, data, dirs), open(t, data, dirs)
	wantTiles(t, stays, data, spec.Contents())
	one, _ := dirs.Usage()
	wantTiles(t, goes, data, spec.Contents())
	if two, _ := dirs.Usage(); one == 0 || two != 2*one {
		t.Fatalf("%d directories of one archive, %d of two", one, two)
	}
	goes.Release()
	goes.Release() // releasing twice does no harm
	if left, _ := dirs.Usage(); left != one {
		t.Errorf("%d directories are left, want %d", left, one)
	}
	wantTiles(t, goes, data, spec.Contents())
	if left, _ := dirs.Usage(); left != one {
		t.Errorf("%d directories after a released archive was used, want %d", left, one)
	}
	stays.Release()
	if left, bytes := dirs.Usage(); left != 0 || bytes != 0 {
		t.Errorf("%d directories of %d bytes are left of nothing", left, bytes)
	}
}

// An archive may be released while one of its directories is being loaded.
func TestReleaseWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, g := openGated(t, NewDirectoryCache(1<<20), packtest.PMSpec{MaxZoom: 3, LeafSize: 10})
		var all sync.WaitGroup
		all.Go(func() {
			if _, found, err := a.Locate(3, 1, 1); !found || err != nil {
				t.Error(found, err)
			}
		})
		synctest.Wait()
		a.Release()
		close(g.open)
		all.Wait()
		if n, bytes := a.dirs.Usage(); n != 0 || bytes != 0 {
			t.Errorf("%d directories of %d bytes stayed behind", n, bytes)
		}
	})
}

func TestNothingIsKeptWithoutABudget(t *testing.T) {
	for _, budget := range []int64{0, -1} {
		data := packtest.PMTiles(packtest.PMSpec{MaxZoom: 4, LeafSize: 50})
		reads := 0
		a, err := Open(countingReader{bytes.NewReader(data), &reads}, int64(len(data)), NewDirectoryCache(budget), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, found, err := a.Locate(3, 1, 1); !found || err != nil {
				t.Fatal(found, err)
			}
		}
		if n, bytes := a.dirs.Usage(); reads != 4 || n != 0 || bytes != 0 {
			t.Errorf("%d reads, %d directories of %d bytes kept", reads, n, bytes)
		}
		a.Release()
	}
}

// Many at once, on several archives, with a cache that is too small: for the
// race detector.
func TestTogether(t *testing.T) {
	dirs := NewDirectoryCache(8 << 10)
	spec := packtest.PMSpec{MaxZoom: 4, LeafSize: 20, InternalCompression: packtest.PMGzip}
	data := packtest.PMTiles(spec)
	want := spec.Contents()
	var all sync.WaitGroup
	for range 3 {
		a := open(t, data, dirs)
		for part := range 4 {
			all.Go(func() {
				for i := part; i < len(want); i += 2 {
					p, found, err := a.Locate(want[i].Z, want[i].X, want[i].Y)
					if err != nil || !found || !bytes.Equal(data[p.Offset:][:p.Length], want[i].Data) {
						t.Errorf("tile %d: %t, %v", i, found, err)
						return
					}
				}
				if part == 3 {
					a.Release()
				}
			})
		}
		all.Go(func() {
			if err := check(a); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, bytes := dirs.Usage(); bytes > 8<<10 {
		t.Errorf("%d bytes are kept", bytes)
	}
}
