package pmtiles

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// strictReader is a file that fails the test at a read outside of it.
type strictReader struct {
	t    testing.TB
	data []byte
}

func (s strictReader) ReadAt(b []byte, at int64) (int, error) {
	if at < 0 || at > int64(len(s.data)) || int64(len(b)) > int64(len(s.data))-at {
		s.t.Errorf("%d bytes were read at %d of a file of %d bytes", len(b), at, len(s.data))
		return 0, io.EOF
	}
	return copy(b, s.data[at:]), nil
}

// open opens an archive that must be good.
func open(t testing.TB, data []byte, dirs *DirectoryCache) *Archive {
	t.Helper()
	a, err := Open(strictReader{t, data}, int64(len(data)), dirs, Limits{})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return a
}

// tile reads the bytes at a location.
func tile(t testing.TB, data []byte, p Location) []byte {
	t.Helper()
	if p.Offset < 0 || p.Length <= 0 || p.Offset > int64(len(data)) || int64(p.Length) > int64(len(data))-p.Offset {
		t.Fatalf("place %+v is not inside a file of %d bytes", p, len(data))
	}
	return data[p.Offset:][:p.Length]
}

// wantTiles compares an archive with what should be in it. All other tiles must
// be absent.
func wantTiles(t testing.TB, a *Archive, data []byte, want []packtest.PMTile) {
	t.Helper()
	there := map[uint64]bool{}
	for _, w := range want {
		there[w.ID] = true
		p, found, err := a.Locate(w.Z, w.X, w.Y)
		if err != nil || !found {
			t.Fatalf("tile %d/%d/%d: found %t, %v", w.Z, w.X, w.Y, found, err)
		}
		if !bytes.Equal(tile(t, data, p), w.Data) {
			t.Fatalf("tile %d/%d/%d: %+v has other bytes", w.Z, w.X, w.Y, p)
		}
	}
	// Every tile of the small zooms, and the neighbours of those that are there.
	for id := range uint64(1 + 4 + 16 + 64 + 256) {
		wantAbsent(t, a, id, there)
	}
	for _, w := range want {
		wantAbsent(t, a, w.ID+1, there)
		wantAbsent(t, a, max(w.ID, 1)-1, there)
	}
}

func wantAbsent(t testing.TB, a *Archive, id uint64, there map[uint64]bool) {
	t.Helper()
	if there[id] || id >= endOfIDs {
		return
	}
	z, x, y, err := ZXY(id)
	if err != nil {
		t.Fatal(err)
	}
	if p, found, err := a.Locate(z, x, y); found || err != nil {
		t.Fatalf("tile %d/%d/%d was never written: %+v, %t, %v", z, x, y, p, found, err)
	}
}

// wantFault checks what a user would see: the kind, what is wrong and where,
// and that there is a next step.
func wantFault(t testing.TB, err error, kind fault.Kind, detail string) {
	t.Helper()
	if fault.KindOf(err) != kind || !strings.Contains(fault.DetailOf(err), detail) {
		t.Fatalf("%v (%v), want %v with %q", err, fault.KindOf(err), kind, detail)
	}
	var own *fault.Error
	if !errors.As(err, &own) || !strings.HasPrefix(own.Op, "pmtiles.") || !strings.HasSuffix(fault.NextOf(err), ".") {
		t.Fatalf("%v: op %q, next %q", err, fault.OpOf(err), fault.NextOf(err))
	}
}

// shapes are archives of many kinds.
var shapes = map[string]packtest.PMSpec{
	"one tile":               {},
	"plain":                  {MaxZoom: 4},
	"gzip":                   {MaxZoom: 4, InternalCompression: packtest.PMGzip},
	"runs":                   {MaxZoom: 5, Repeat: 0.8},
	"single runs":            {MaxZoom: 4, Repeat: 0.5, SingleRuns: true},
	"again":                  {MaxZoom: 5, Duplicate: 0.3, Repeat: 0.3},
	"deep zooms only":        {MinZoom: 4, MaxZoom: 5},
	"leaves":                 {MaxZoom: 5, LeafSize: 100, MinSize: 1, MaxSize: 50},
	"leaves, gzip":           {MaxZoom: 5, LeafSize: 64, InternalCompression: packtest.PMGzip},
	"leaves of one":          {MaxZoom: 3, LeafSize: 1},
	"leaves of leaves":       {MaxZoom: 4, LeafSize: 7, Levels: 2},
	"four levels of leaves":  {MaxZoom: 4, LeafSize: 4, Levels: 4, InternalCompression: packtest.PMGzip},
	"unclustered":            {MaxZoom: 4, Unclustered: true, Duplicate: 0.2},
	"unclustered, leaves":    {MaxZoom: 4, Unclustered: true, LeafSize: 20},
	"padded":                 {MaxZoom: 3, Pad: true},
	"sparse":                 {MaxZoom: 6, LeafSize: 30, Keep: func(z uint8, x, y uint32) bool { return (uint32(z)+x*7+y*13)%5 == 0 }},
	"compressed tiles, webp": {MaxZoom: 2, TileCompression: packtest.PMBrotli, Type: packtest.PMWebP},
	"corners of zoom 31": {Tiles: []packtest.PMTile{
		{Z: 31, Data: []byte("nw")}, {Z: 31, X: 1<<31 - 1, Data: []byte("ne")},
		{Z: 31, Y: 1<<31 - 1, Data: []byte("sw")}, {Z: 31, X: 1<<31 - 1, Y: 1<<31 - 1, Data: []byte("se")},
		{Z: 0, Data: []byte("all")},
	}},
}

// check runs Check without a time limit.
func check(a *Archive) error { return a.Check(context.Background()) }

// countingReader counts reads.
type countingReader struct {
	io.ReaderAt
	reads *int
}

func (c countingReader) ReadAt(b []byte, at int64) (int, error) {
	*c.reads++
	return c.ReaderAt.ReadAt(b, at)
}

// failingReader is a file that fails when the test says so.
type failingReader struct {
	io.ReaderAt
	err   *error
	short *int // bytes that a read leaves out
}

func (f failingReader) ReadAt(b []byte, at int64) (int, error) {
	if *f.err != nil {
		return 0, *f.err
	}
	n, err := f.ReaderAt.ReadAt(b, at)
	return max(0, n-*f.short), err
}
