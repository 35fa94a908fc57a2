package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"micronode/b3"
	"micronode/internal/store"
)

const objectSize = 16 << 10

// vary changes the bytes so that each i has its own address.
func vary(data []byte, i int) []byte {
	binary.LittleEndian.PutUint64(data, uint64(i))
	return data
}

// stock puts n pinned objects of a size and returns their addresses.
func stock(b testing.TB, s store.Store, n, size int) []b3.Address {
	b.Helper()
	addresses := make([]b3.Address, n)
	data := make([]byte, size)
	for i := range n {
		info, _, err := s.Put(context.Background(), bytes.NewReader(vary(data, i)), store.PutOptions{Size: int64(size)})
		if err != nil {
			b.Fatal(err)
		}
		addresses[i] = info.Address
	}
	return addresses
}

// get is what a request for a small object does.
func get(s store.Store, a b3.Address, w io.Writer) error {
	h, err := s.Open(context.Background(), a)
	if err != nil {
		return err
	}
	data, _ := h.Bytes()
	_, err = w.Write(data)
	_ = h.Close()
	return err
}

func TestAGetAllocatesOnce(t *testing.T) {
	s := store.NewRAM(store.RAMSpec{Budget: 1 << 20})
	defer s.Close()
	a := stock(t, s, 1, objectSize)[0]
	allocations := testing.AllocsPerRun(200, func() {
		if err := get(s, a, io.Discard); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 1 {
		t.Errorf("a get of 16 KiB allocates %v times, want at most 1: the handle", allocations)
	}
}

func TestAPutAllocatesLittle(t *testing.T) {
	s := store.NewRAM(store.RAMSpec{Budget: 1 << 20})
	defer s.Close()
	data, body := make([]byte, objectSize), bytes.NewReader(nil)
	i := 0
	put := func() {
		i++
		body.Reset(vary(data, i))
		if _, _, err := s.Put(context.Background(), body, store.PutOptions{Size: objectSize, Class: store.Cached}); err != nil {
			t.Fatal(err)
		}
	}
	for range 300 { // until the store is full and the maps have grown
		put()
	}
	if allocations := testing.AllocsPerRun(500, put); allocations > 4 {
		t.Errorf("a put of 16 KiB into a full store allocates %v times, want at most 4", allocations)
	}
}

// full returns a store that is full of cached objects, so that every put
// evicts, and memory is only reused.
func full(b *testing.B) *store.RAM {
	b.Helper()
	s := store.NewRAM(store.RAMSpec{Budget: 64 << 20})
	b.Cleanup(func() { _ = s.Close() })
	data := make([]byte, objectSize)
	for i := range 64 << 20 / objectSize {
		if _, _, err := s.Put(context.Background(), bytes.NewReader(vary(data, -1-i)), store.PutOptions{Size: objectSize, Class: store.Cached}); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func BenchmarkPut16K(b *testing.B) {
	s := full(b)
	data, body := make([]byte, objectSize), bytes.NewReader(nil)
	b.SetBytes(objectSize)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		body.Reset(vary(data, i))
		if _, _, err := s.Put(context.Background(), body, store.PutOptions{Size: objectSize, Class: store.Cached}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut16KParallel(b *testing.B) {
	s := full(b)
	b.SetBytes(objectSize)
	b.ReportAllocs()
	b.ResetTimer()
	var start atomic.Int64 // each worker has contents of its own
	b.RunParallel(func(pb *testing.PB) {
		data, body := make([]byte, objectSize), bytes.NewReader(nil)
		for i := start.Add(1) << 32; pb.Next(); i++ {
			body.Reset(vary(data, int(i)))
			if _, _, err := s.Put(context.Background(), body, store.PutOptions{Size: objectSize, Class: store.Cached}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkPut16MUnknownSize(b *testing.B) {
	s := store.NewRAM(store.RAMSpec{Budget: 64 << 20})
	defer s.Close()
	const size = 16 << 20
	data, body := make([]byte, size), bytes.NewReader(nil)
	b.SetBytes(size)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		body.Reset(vary(data, i))
		if _, _, err := s.Put(context.Background(), body, store.PutOptions{Size: store.Unknown, Class: store.Cached}); err != nil {
			b.Fatal(err)
		}
	}
}

// The time of a get must not grow with the number of objects beyond the effect
// of the processor's caches.
func BenchmarkGet16K(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("of %d", n), func(b *testing.B) {
			s := store.NewRAM(store.RAMSpec{Budget: 256 << 20})
			defer s.Close()
			addresses := stock(b, s, n, objectSize)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := get(s, addresses[i%n], io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGetTiny(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000, 400_000} {
		b.Run(fmt.Sprintf("of %d", n), func(b *testing.B) {
			s := store.NewRAM(store.RAMSpec{Budget: 256 << 20})
			defer s.Close()
			addresses := stock(b, s, n, 8)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := get(s, addresses[i%n], io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGet16KParallel(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("of %d", n), func(b *testing.B) {
			s := store.NewRAM(store.RAMSpec{Budget: 64 << 20})
			defer s.Close()
			addresses := stock(b, s, n, objectSize)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if err := get(s, addresses[i%n], io.Discard); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
