package pmtiles

import (
	"bytes"
	"testing"

	"micronode/internal/edge/pack/packtest"
)

// hot are the look-ups that serve a map: all directories are in memory.
var hot = map[string]packtest.PMSpec{
	"root":            {MaxZoom: 5, InternalCompression: packtest.PMGzip, MinSize: 10},
	"leaf":            {MaxZoom: 7, LeafSize: 4096, InternalCompression: packtest.PMGzip, MinSize: 10, MaxSize: 20},
	"leaf below leaf": {MaxZoom: 6, LeafSize: 80, Levels: 2, InternalCompression: packtest.PMGzip, MinSize: 10},
}

func hotArchive(t testing.TB, spec packtest.PMSpec) (*Archive, []packtest.PMTile) {
	data := packtest.PMTiles(spec)
	a := open(t, data, NewDirectoryCache(32<<20))
	tiles := spec.Contents()
	for _, tile := range tiles {
		if _, found, err := a.Locate(tile.Z, tile.X, tile.Y); !found || err != nil {
			t.Fatal(found, err)
		}
	}
	return a, tiles
}

func TestLookUpsDoNotAllocate(t *testing.T) {
	for name, spec := range hot {
		a, tiles := hotArchive(t, spec)
		i := 0
		if n := testing.AllocsPerRun(10_000, func() {
			tile := &tiles[i*7919%len(tiles)]
			i++
			if _, found, err := a.Locate(tile.Z, tile.X, tile.Y); !found || err != nil {
				t.Fatal(found, err)
			}
		}); n != 0 {
			t.Errorf("%s: a look-up allocates %v times", name, n)
		}
		if n := testing.AllocsPerRun(100, func() {
			if _, found, err := a.Locate(30, 5, 5); found || err != nil {
				t.Fatal(found, err)
			}
		}); n != 0 {
			t.Errorf("%s: a look-up of an absent tile allocates %v times", name, n)
		}
	}
}

// Reported: 0 allocations a look-up, guarded by TestLookUpsDoNotAllocate.
func BenchmarkLocate(b *testing.B) {
	for name, spec := range hot {
		b.Run(name, func(b *testing.B) {
			a, tiles := hotArchive(b, spec)
			b.ReportAllocs()
			b.ResetTimer()
			i := 0
			for b.Loop() {
				tile := &tiles[i*7919%len(tiles)]
				i++
				if _, found, err := a.Locate(tile.Z, tile.X, tile.Y); !found || err != nil {
					b.Fatal(found, err)
				}
			}
		})
		b.Run(name+", all cores", func(b *testing.B) {
			a, tiles := hotArchive(b, spec)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					tile := &tiles[i*7919%len(tiles)]
					if _, found, err := a.Locate(tile.Z, tile.X, tile.Y); !found || err != nil {
						b.Error(found, err)
						return
					}
				}
			})
		})
	}
}

// A miss: 4096 entries are read, inflated and decoded.
func BenchmarkMiss(b *testing.B) {
	data := packtest.PMTiles(packtest.PMSpec{MaxZoom: 7, LeafSize: 4096, InternalCompression: packtest.PMGzip, MinSize: 10, MaxSize: 2000})
	a, err := Open(bytes.NewReader(data), int64(len(data)), nil, Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, found, err := a.Locate(6, 3, 3); !found || err != nil {
			b.Fatal(found, err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	data := packtest.PMTiles(packtest.PMSpec{MaxZoom: 8, LeafSize: 4096, InternalCompression: packtest.PMGzip, MinSize: 10, MaxSize: 20})
	a, err := Open(bytes.NewReader(data), int64(len(data)), nil, Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := check(a); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(a.header.TileEntries), "entries")
}

func BenchmarkID(b *testing.B) {
	b.ReportAllocs()
	x, y := uint32(8543), uint32(5734)
	for b.Loop() {
		x, y = (x*5+3)&(1<<14-1), (y*9+7)&(1<<14-1) // always another tile, as in real use
		if _, err := ID(14, x, y); err != nil {
			b.Fatal(err)
		}
	}
}
