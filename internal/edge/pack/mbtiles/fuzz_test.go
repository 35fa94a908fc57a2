package mbtiles_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/packtest"
)

// FuzzOpen opens damaged archives. Whatever they hold: no panic, an end in
// time, little memory, a typed refusal, and not one file more in the folder.
func FuzzOpen(f *testing.F) {
	for _, shape := range shapes {
		for _, page := range []int{512, 1024} {
			data, err := os.ReadFile(file(f, packtest.MBSpec{MaxZoom: 1, Size: 700, Shape: shape, PageSize: page}))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(folder, "fuzz.mbtiles")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		before := allocated()
		exercise(t, path)
		if taken := allocated() - before; taken > 64<<20 {
			t.Errorf("%d bytes were allocated", taken)
		}
		if names := entries(t, folder); len(names) != 1 {
			t.Errorf("the folder holds %q", names)
		}
	})
}

func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// exercise does with a file what the edge would, briefly.
func exercise(t *testing.T, path string) {
	archive, err := mbtiles.OpenWithin(path, mbtiles.Options{Readers: 1, Tile: 64 << 10}, 100*time.Millisecond, 100)
	if err != nil {
		if kind := fault.KindOf(err); kind != fault.Malformed && kind != fault.Timeout {
			t.Errorf("refused as %v: %v", kind, err)
		}
		if strings.TrimSpace(fault.NextOf(err)) == "" || fault.DetailOf(err) == "" {
			t.Errorf("refused without a reason or a next step: %v", err)
		}
		return
	}
	defer archive.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, forget := range []func(){func() {}, archive.DropTileIndex} {
		forget()
		for x := range uint32(2) {
			data, found, err := archive.Tile(ctx, 1, x, x)
			if len(data) > 64<<10 || err != nil && (found || data != nil) {
				t.Errorf("%d bytes, %t, %v", len(data), found, err)
			}
		}
		_ = archive.Check(ctx)
	}
}
