package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"
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

// far hides that a store is near.
type far struct{ Opener }

func (s *Shelf) has(a b3.Address) bool {
	_, there := s.kept(a)
	return there
}

// target is what a client asks for.
func target(a b3.Address) string { return ShelfPrefix + a.String() }

func TestShelfKeepsSmallPinnedObjects(t *testing.T) {
	r := NewRAM(flow.NewInventory(), RAMSpec{Service: "store", Budget: 16 << 20})
	s := NewShelf(64*(256<<10), far{r})
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
	s := NewShelf(budget, far{r})
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
	s := NewShelf(shelfShards*(64<<10), far{r})
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
	s := NewShelf(shelfShards*(64<<10), far{r})
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

// What is given back to the lane is used again, so an answer costs nothing but
// what is done here: nothing for a copy, and a handle for what lies in memory.
func TestAnswersAllocateLittle(t *testing.T) {
	r := NewRAM(flow.NewInventory(), RAMSpec{Service: "store", Budget: 1 << 20})
	defer r.Close()
	s := NewShelf(shelfShards*(64<<10), far{r})
	wanted := []byte(target(shelved(t, r, s, []byte("hot"), Pinned)))
	if n := testing.AllocsPerRun(100, func() {
		address, _ := parseTarget(wanted)
		s.kept(address)
	}); n != 0 {
		t.Errorf("a copy: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		address, _ := parseTarget(wanted)
		lent, _ := r.warm(address)
		_ = lent.Done.Close()
	}); n > 1 {
		t.Errorf("in memory: %v allocations", n)
	}
}

// What a store near by has is answered for at once. Of small pinned objects on
// disk a copy stays.
func TestShelfAsksANearStore(t *testing.T) {
	for name, s := range stores(t) {
		shelf := NewShelf(shelfShards*(256<<10), s)
		for what, c := range map[string]struct {
			size    int
			class   Class
			answers bool
			keeps   bool // on disk
		}{
			"empty":              {0, Pinned, true, true},
			"small":              {1000, Pinned, true, true},
			"the largest kept":   {shelfObject, Pinned, true, true},
			"not kept":           {shelfObject + 1, Pinned, true, false},
			"cached":             {1001, Cached, true, false},
			"the largest":        {1 << 20, Pinned, true, false},
			"too large":          {1<<20 + 1, Pinned, false, false},
			"too large, open":    {1<<20 + 2, Pinned, false, false},
			"the largest cached": {1<<20 - 1, Cached, true, false},
		} {
			a := mustPut(t, s, random(1, c.size), c.class)
			if what == "too large, open" {
				h := mustOpen(t, s, a)
				defer h.Close()
			}
			_, found := shelf.Lookup([]byte(target(a)))
			kept := shelf.has(a)
			if found != c.answers || kept != (c.keeps && name == "disk") {
				t.Errorf("%s, %s: answered %t, kept %t", name, what, found, kept)
			}
		}
		for _, odd := range []string{"", "/", "/o/", "/o/b3:12", target(b3.Of([]byte("absent"))), strings.ToUpper(target(b3.Of([]byte("small")))),
			target(b3.Of(random(1, 1000)))[:60] + "ABCDEFGHIJ", "/x/" + b3.Of(random(1, 1000)).String(), "/o/b4:" + b3.Of(random(1, 1000)).String()[3:]} {
			if _, found := shelf.Lookup([]byte(odd)); found {
				t.Errorf("%s: found something for %q", name, odd)
			}
		}
		_ = s.Close()
		shelf.Clear()
		if _, found := shelf.Lookup([]byte(target(b3.Of(random(1, 1000))))); found {
			t.Errorf("%s: found something in a closed store", name)
		}
	}
}

// An address has one spelling, and so has a target.
func TestTargets(t *testing.T) {
	a := b3.Of([]byte("x"))
	if got, ok := parseTarget([]byte(target(a))); !ok || got != a {
		t.Errorf("%s, %t", got, ok)
	}
	if _, ok := parseTarget([]byte(strings.Replace(target(a), "b3:", "B3:", 1))); ok {
		t.Error("another spelling")
	}
	upper := ShelfPrefix + b3.Prefix + strings.ToUpper(a.String()[len(b3.Prefix):])
	if _, ok := parseTarget([]byte(upper)); ok {
		t.Error("upper case")
	}
}

// Answering on the spot counts as use: what is asked for is not evicted.
func TestShelfUseCounts(t *testing.T) {
	for name, s := range map[string]Store{"RAM": testRAM(RAMSpec{Budget: 1 << 20}), "disk": testDisk(t, DiskSpec{Budget: 1 << 20})} {
		shelf := NewShelf(1<<20, s)
		hot := mustPut(t, s, random(1, 50_000), Cached)
		for i := range 60 {
			for range 3 {
				if answer, found := shelf.Lookup([]byte(target(hot))); !found || answer == nil {
					t.Fatalf("%s: evicted after %d puts, although it was asked for all the time", name, i)
				}
			}
			mustPut(t, s, random(uint64(100+i), 50_000), Cached)
		}
		if s.Counts().Evictions == 0 {
			t.Errorf("%s: nothing was evicted; the test has tested nothing", name)
		}
	}
}

// Whoever asks and whoever deletes may meet at any moment: what was deleted is
// not on the shelf when both are done.
func TestShelfOnDemandNeverOutlivesADelete(t *testing.T) {
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	s := NewShelf(shelfShards*(64<<10), d)
	for i := range 300 {
		a := mustPut(t, d, fmt.Appendf(nil, "object %d", i), Pinned)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { s.Lookup([]byte(target(a))) })
		}
		both.Go(func() {
			if err := d.Delete(context.Background(), a); err != nil {
				t.Error(err)
			}
			s.Drop(a)
		})
		both.Wait()
		if s.has(a) {
			t.Fatalf("object %d was deleted and is on the shelf", i)
		}
	}
}

// deleting is a store from which an object is deleted just while it is lent.
type deleting struct {
	*Disk
	shelf *Shelf
}

func (d *deleting) warm(a b3.Address) (loan, bool) {
	lent, ok := d.Disk.warm(a)
	_ = d.Delete(context.Background(), a)
	d.shelf.Drop(a)
	return lent, ok
}

func TestShelfKeepsNothingThatIsDeletedMeanwhile(t *testing.T) {
	d := &deleting{Disk: testDisk(t, DiskSpec{})}
	defer d.Close()
	d.shelf = NewShelf(shelfShards*(64<<10), d)
	a := mustPut(t, d, []byte("short-lived"), Pinned)
	if _, found := d.shelf.Lookup([]byte(target(a))); !found {
		t.Error("it was there when it was asked for")
	}
	if d.shelf.has(a) {
		t.Error("it was deleted, and is on the shelf")
	}
}

// With far more objects than room, the shelf stays within its budget and does
// not turn over with every request.
func TestShelfDoesNotChurn(t *testing.T) {
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	const budget = shelfShards * (8 << 10)
	s := NewShelf(budget, d)
	var targets [][]byte
	for i := range 2000 {
		targets = append(targets, []byte(target(mustPut(t, d, fmt.Appendf(make([]byte, 1<<10), "%d", i), Pinned))))
	}
	for _, wanted := range targets {
		if _, found := s.Lookup(wanted); !found {
			t.Fatal("not found")
		}
	}
	hot := targets[7]
	for range 400 {
		s.Lookup(hot)
	}
	if address, _ := parseTarget(hot); !s.has(address) {
		t.Error("what is asked for all the time does not get on a full shelf")
	}
	if answers, size := s.Usage(); size > budget || answers < shelfShards {
		t.Errorf("%d answers of %d bytes, and %d are allowed", answers, size, budget)
	}
}
