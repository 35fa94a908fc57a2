package store

import (
	"context"
	"fmt"
	"io"
	"testing"

	"micronode/b3"
)

// targetsOf puts n pinned objects of 1 KiB and returns their targets.
func targetsOf(b *testing.B, s Store, n int) [][]byte {
	b.Helper()
	targets := make([][]byte, n)
	for i := range n {
		targets[i] = []byte(target(mustPut(b, s, numbered(i, 1<<10), Pinned)))
	}
	return targets
}

// The cost of making an answer, apart from writing it: of an object that was
// requested before, and of any of many.
func BenchmarkObjectCacheMakesAnAnswer(b *testing.B) {
	for name, make := range map[string]func() Store{
		"RAM":  func() Store { return NewRAM(RAMSpec{Budget: 1 << 30}) },
		"disk": func() Store { return testDisk(b, DiskSpec{}) },
	} {
		for _, n := range []int{1, 100_000} {
			b.Run(fmt.Sprintf("%s of %d", name, n), func(b *testing.B) {
				s := make()
				defer s.Close()
				targets := targetsOf(b, s, n)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					address, _ := parseTarget(targets[i*7919%n])
					object, found := s.(warmOpener).openWarm(address)
					if !found {
						b.Fatal("not found")
					}
					_ = object.Done.Close()
				}
			})
		}
	}
}

// The cost of adding a copy when the cache is full.
func BenchmarkObjectCacheKeepsACopy(b *testing.B) {
	d := testDisk(b, DiskSpec{})
	defer d.Close()
	cache := NewObjectCache(1<<20, d)
	var all []b3.Address
	for i := range 4000 {
		all = append(all, mustPut(b, d, numbered(i, 1<<10), Pinned))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		cache.addCopy(context.Background(), d, all[i%4000], numbered(i%4000, 1<<10))
	}
}

// The cost of a GET that net/http serves, of an object that was read last, and
// of any.
func BenchmarkDiskGet16K(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("of %d", n), func(b *testing.B) {
			d := testDisk(b, DiskSpec{})
			defer d.Close()
			var all []b3.Address
			for i := range n {
				all = append(all, mustPut(b, d, numbered(i, 16<<10), Pinned))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				h, err := d.Open(context.Background(), all[i*7919%n])
				if err != nil {
					b.Fatal(err)
				}
				if _, err := h.WriteTo(io.Discard); err != nil {
					b.Fatal(err)
				}
				_ = h.Close()
			}
		})
	}
}

func BenchmarkDiskPut16K(b *testing.B) {
	for name, sync := range map[string]bool{"with a sync": true, "without": false} {
		b.Run(name, func(b *testing.B) {
			d := testDisk(b, DiskSpec{Budget: 64 << 20, Sync: sync})
			defer d.Close()
			b.ReportAllocs()
			b.SetBytes(16 << 10)
			for i := 0; b.Loop(); i++ {
				mustPut(b, d, numbered(i, 16<<10), Cached)
			}
		})
	}
}

// How long a store takes to open.
func BenchmarkOpenDisk(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("of %d", n), func(b *testing.B) {
			folder := b.TempDir()
			d := testDisk(b, DiskSpec{Folder: folder})
			for i := range n {
				mustPut(b, d, numbered(i, 100), Class(i%2))
			}
			_ = d.Close()
			for b.Loop() {
				d := testDisk(b, DiskSpec{Folder: folder})
				if d.Usage().Objects != int64(n) {
					b.Fatal(d.Usage())
				}
				_ = d.Close()
			}
		})
	}
}
