package pack

import (
	"context"
	"math/rand/v2"
	"testing"

	"micronode/internal/edge/pack/packtest"
	"micronode/internal/testkit"
)

// TestAllocations guards what the hot path allocates: Open makes one small
// allocation, and a tile that is read into a buffer none.
func TestAllocations(t *testing.T) {
	s := newFixture(t)
	put(t, s.path("a.pmtiles"), pmtilesOf(1))
	put(t, s.path("b.mbtiles"), mbtilesOf(t, 1))
	s.mount()
	ctx := context.Background()
	for name, most := range map[string]float64{"a": 0, "b": 1} {
		p, err := s.Open(name)
		testkit.Must(t, err)
		buf := make([]byte, 4096)
		read := func() {
			if _, err := p.TileInto(ctx, buf, deepest, 1, 2); err != nil {
				t.Fatal(err)
			}
		}
		read()
		if got := testing.AllocsPerRun(200, read); got > most {
			t.Errorf("%s: %v allocations for a tile into a buffer, at most %v are allowed", name, got, most)
		}
		absent := func() { _, _ = p.Tile(ctx, deepest+1, 1, 2) }
		if got := testing.AllocsPerRun(200, absent); got > 0 {
			t.Errorf("%s: %v allocations for a tile that is not there", name, got)
		}
		p.Close()
	}
	claim := func() {
		p, err := s.Open("a")
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
	}
	if got := testing.AllocsPerRun(200, claim); got > 1 {
		t.Errorf("%v allocations for a claim", got)
	}
}

// BenchmarkTile reads random tiles of one zoom, the way a request does.
func BenchmarkTile(b *testing.B) {
	const zoom, size = 6, 11_000
	s := newFixture(b, func(spec *Spec) { spec.DirectoryBytes = 32 << 20 })
	put(b, s.path("a.pmtiles"), packtest.PMTiles(packtest.PMSpec{MaxZoom: zoom, MinSize: size, LeafSize: 1000, InternalCompression: packtest.PMGzip}))
	testkit.Must(b, packtest.MBTiles(s.path("b.mbtiles"), packtest.MBSpec{MaxZoom: zoom, Size: size}))
	s.mount()
	ctx := context.Background()
	for _, name := range []string{"a.pmtiles", "b.mbtiles"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(size)
			b.RunParallel(func(pb *testing.PB) {
				buf := make([]byte, size)
				for pb.Next() {
					at := rand.Uint32()
					p, err := s.Open(name)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := p.TileInto(ctx, buf, zoom, at%64, at>>8%64); err != nil {
						b.Fatal(err)
					}
					p.Close()
				}
			})
		})
	}
}
