package mbtiles_test

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"

	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/packtest"
)

// The file of the benchmarks: every tile of zooms 0 to 6, about 46 MB.
var world6 = packtest.MBSpec{Seed: 1, MaxZoom: 6, Size: 8448}

// BenchmarkTile reads random tiles of zoom 6, as the edge's benchmark does
// over HTTP: from a small file, whose index is in memory, and as from a large
// one, where SQLite looks the tile up; by one caller and by sixteen.
func BenchmarkTile(b *testing.B) {
	for _, c := range []struct {
		name   string
		change func(*packtest.MBSpec)
	}{
		{"table", func(*packtest.MBSpec) {}},
		{"table-64KiB-pages", func(s *packtest.MBSpec) { s.PageSize = 65536 }},
		{"table-1KiB-pages", func(s *packtest.MBSpec) { s.PageSize = 1024 }},
		{"view", func(s *packtest.MBSpec) { s.Shape = packtest.MBView }},
		{"shallow", func(s *packtest.MBSpec) { s.Shape = packtest.MBShallow }},
		{"withoutrowid", func(s *packtest.MBSpec) { s.Shape = packtest.MBWithoutRowID }},
	} {
		spec := world6
		c.change(&spec)
		b.Run(c.name, func(b *testing.B) {
			path := file(b, spec)
			for name, forget := range map[string]func(*mbtiles.Archive){"small": func(*mbtiles.Archive) {}, "large": (*mbtiles.Archive).DropTileIndex} {
				archive := open(b, path, mbtiles.Options{})
				forget(archive)
				b.Run(name+"/one", func(b *testing.B) { readTiles(b, archive, 0) })
				b.Run(name+"/many", func(b *testing.B) { readTiles(b, archive, 8) })
			}
		})
	}
}

// BenchmarkBuffer is Tile for a caller that reuses a buffer.
func BenchmarkBuffer(b *testing.B) {
	archive := open(b, file(b, world6), mbtiles.Options{})
	random, buf := rand.New(rand.NewPCG(1, 2)), make([]byte, 16<<10)
	b.ReportAllocs()
	defer processorTime(b)()
	for b.Loop() {
		if _, found, err := archive.TileInto(b.Context(), buf, 6, random.Uint32N(64), random.Uint32N(64)); err != nil || !found {
			b.Fatal(found, err)
		}
	}
}

// BenchmarkMount opens, checks and closes the file.
func BenchmarkMount(b *testing.B) {
	path := file(b, world6)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			archive, err := mbtiles.Open(path, mbtiles.Options{})
			if err != nil {
				b.Fatal(err)
			}
			archive.Close()
		}
	})
	b.Run("check", func(b *testing.B) {
		archive := open(b, path, mbtiles.Options{})
		for b.Loop() {
			if err := archive.Check(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func readTiles(b *testing.B, archive *mbtiles.Archive, parallel int) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	one := func(random *rand.Rand) {
		data, found, err := archive.Tile(ctx, 6, random.Uint32N(64), random.Uint32N(64))
		if err != nil || !found || len(data) != world6.Size {
			b.Error(len(data), found, err)
		}
	}
	b.ReportAllocs()
	defer processorTime(b)()
	if parallel == 0 {
		random := rand.New(rand.NewPCG(1, 2))
		for b.Loop() {
			one(random)
		}
		return
	}
	b.SetParallelism(parallel)
	b.RunParallel(func(pb *testing.PB) {
		random := rand.New(rand.NewPCG(rand.Uint64(), 2))
		for pb.Next() {
			one(random)
		}
	})
}

// processorTime reports the processor time of an operation. The machine of a
// benchmark is rarely idle, and this varies less than wall-clock time.
func processorTime(b *testing.B) (report func()) {
	used := func() int64 {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return usage.Utime.Nano() + usage.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}
