package store

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"micronode/b3"
	"micronode/internal/flow"
)

func shelved(t *testing.T, r *RAM, s *Shelf, data []byte, class Class) b3.Address {
	t.Helper()
	info, _, err := r.Put(t.Context(), bytes.NewReader(data), PutOptions{Size: int64(len(data)), Class: class})
	if err != nil {
		t.Fatal(err)
	}
	handle, err := r.Open(t.Context(), info.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	s.offer(t.Context(), r, handle)
	return info.Address
}

func (s *Shelf) has(a b3.Address) bool {
	_, there := s.Lookup([]byte(target(a)))
	return there
}

func TestShelfKeepsSmallPinnedObjects(t *testing.T) {
	r := NewRAM(flow.NewInventory(), RAMSpec{Service: "store", Budget: 16 << 20})
	s := NewShelf(64 * (256 << 10))
	for name, c := range map[string]struct {
		data  []byte
		class Class
		kept  bool
	}{
		"small and pinned": {[]byte("pinned"), Pinned, true},
		"empty":            {nil, Pinned, true},
		"the largest":      {make([]byte, shelfObject), Pinned, true},
		"too large":        {make([]byte, shelfObject+1), Pinned, false},
		"cached":           {[]byte("cached"), Cached, false},
	} {
		if a := shelved(t, r, s, c.data, c.class); s.has(a) != c.kept {
			t.Errorf("%s: on the shelf %t, want %t", name, s.has(a), c.kept)
		}
	}
	answers, size := s.Usage()
	if answers != 3 || size < shelfObject {
		t.Errorf("%d answers of %d bytes", answers, size)
	}
	a := shelved(t, r, s, []byte("pinned"), Pinned) // again: nothing is added
	if again, _ := s.Usage(); again != answers {
		t.Errorf("%d answers after the same offer", again)
	}
	s.Drop(a)
	s.Drop(a)
	if s.has(a) {
		t.Error("dropped, and still there")
	}
	s.Clear()
	if answers, size := s.Usage(); answers != 0 || size != 0 {
		t.Errorf("%d answers of %d bytes after all were cleared", answers, size)
	}
	if _, there := s.Lookup([]byte("x")); there {
		t.Error("found something for a target that is none")
	}
}

func TestShelfStaysWithinItsBudget(t *testing.T) {
	const budget = shelfShards * (4 << 10)
	r := NewRAM(flow.NewInventory(), RAMSpec{Service: "store", Budget: 16 << 20})
	s := NewShelf(budget)
	for i := range 2000 {
		shelved(t, r, s, fmt.Appendf(make([]byte, 1<<10), "%d", i), Pinned)
	}
	if answers, size := s.Usage(); size > budget || answers < shelfShards {
		t.Errorf("%d answers of %d bytes, and %d are allowed", answers, size, budget)
	}
}

// What the store holds no longer is what the address says: it is not put on
// the shelf, where nobody would look at it again.
func TestShelfTakesNothingCorrupt(t *testing.T) {
	r := NewRAM(flow.NewInventory(), RAMSpec{Service: "store", Budget: 1 << 20})
	s := NewShelf(shelfShards * (64 << 10))
	info, _, err := r.Put(t.Context(), bytes.NewReader([]byte("sound")), PutOptions{Size: 5})
	if err != nil {
		t.Fatal(err)
	}
	handle, err := r.Open(t.Context(), info.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	whole, _ := handle.Bytes()
	whole[0] ^= 1
	s.offer(t.Context(), r, handle)
	if s.has(info.Address) {
		t.Error("a corrupt object is on the shelf")
	}
}

// Whoever offers and whoever deletes may meet at any moment: what was deleted
// is not on the shelf when both are done.
func TestShelfNeverOutlivesADelete(t *testing.T) {
	r := NewRAM(flow.NewInventory(), RAMSpec{Service: "store", Budget: 16 << 20})
	s := NewShelf(shelfShards * (64 << 10))
	for i := range 500 {
		data := fmt.Appendf(nil, "object %d", i)
		info, _, err := r.Put(t.Context(), bytes.NewReader(data), PutOptions{Size: int64(len(data))})
		if err != nil {
			t.Fatal(err)
		}
		handle, err := r.Open(t.Context(), info.Address)
		if err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() { s.offer(context.Background(), r, handle) })
		both.Go(func() {
			if err := r.Delete(context.Background(), info.Address); err != nil {
				t.Error(err)
			}
			s.Drop(info.Address)
		})
		both.Wait()
		handle.Close()
		if s.has(info.Address) {
			t.Fatalf("object %d was deleted and is on the shelf", i)
		}
	}
}

func TestShelfLookupDoesNotAllocate(t *testing.T) {
	r := NewRAM(flow.NewInventory(), RAMSpec{Service: "store", Budget: 1 << 20})
	s := NewShelf(shelfShards * (64 << 10))
	wanted := []byte(target(shelved(t, r, s, []byte("hot"), Pinned)))
	if n := testing.AllocsPerRun(100, func() { s.Lookup(wanted) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
