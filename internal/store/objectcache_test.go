package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"micronode/b3"
)

func putAndOffer(t *testing.T, r *RAM, s *ObjectCache, data []byte, class Class) b3.Address {
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

// coldOpener hides that a store is local.
type coldOpener struct{ Opener }

func (o *ObjectCache) has(a b3.Address) bool {
	_, there := o.copyOf(a)
	return there
}

// target is what a client requests.
func target(a b3.Address) string { return ObjectPrefix + a.String() }

func TestObjectCacheKeepsSmallPinnedObjects(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 16 << 20})
	s := NewObjectCache(64*(256<<10), coldOpener{r})
	for name, c := range map[string]struct {
		data  []byte
		class Class
		kept  bool
	}{
		"small and pinned": {[]byte("pinned"), Pinned, true},
		"empty":            {nil, Pinned, true},
		"the largest":      {make([]byte, maxCopySize), Pinned, true},
		"too large":        {make([]byte, maxCopySize+1), Pinned, false},
		"cached":           {[]byte("cached"), Cached, false},
	} {
		if a := putAndOffer(t, r, s, c.data, c.class); s.has(a) != c.kept {
			t.Errorf("%s: on the shelf %t, want %t", name, s.has(a), c.kept)
		}
	}
	answers, size := s.Usage()
	if answers != 3 || size < maxCopySize {
		t.Errorf("%d answers of %d bytes", answers, size)
	}
	a := putAndOffer(t, r, s, []byte("pinned"), Pinned) // again: nothing is added
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

func TestObjectCacheStaysWithinItsBudget(t *testing.T) {
	const budget = copyShards * (4 << 10)
	r := NewRAM(RAMSpec{Budget: 16 << 20})
	s := NewObjectCache(budget, coldOpener{r})
	for i := range 2000 {
		putAndOffer(t, r, s, fmt.Appendf(make([]byte, 1<<10), "%d", i), Pinned)
	}
	if answers, size := s.Usage(); size > budget || answers < copyShards {
		t.Errorf("%d answers of %d bytes, and %d are allowed", answers, size, budget)
	}
}

// An object that no longer matches its address is not added to the cache, where
// it would never be checked again.
func TestObjectCacheTakesNothingCorrupt(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 1 << 20})
	s := NewObjectCache(copyShards*(64<<10), coldOpener{r})
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

// Offers and deletes may interleave in any way: a deleted object is not in the
// cache when both are done.
func TestObjectCacheNeverOutlivesADelete(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 16 << 20})
	s := NewObjectCache(copyShards*(64<<10), coldOpener{r})
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

// Released buffers are reused by the lane, so an answer allocates only what is
// allocated here: nothing for a copy, and a handle for an object in memory.
func TestAnswersAllocateLittle(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 1 << 20})
	defer r.Close()
	s := NewObjectCache(copyShards*(64<<10), coldOpener{r})
	wanted := []byte(target(putAndOffer(t, r, s, []byte("hot"), Pinned)))
	if n := testing.AllocsPerRun(100, func() {
		address, _ := parseTarget(wanted)
		s.copyOf(address)
	}); n != 0 {
		t.Errorf("a copy: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		address, _ := parseTarget(wanted)
		object, _ := r.openWarm(address)
		_ = object.Done.Close()
	}); n > 1 {
		t.Errorf("in memory: %v allocations", n)
	}
}

// Objects of a local store are answered at once. Of small pinned objects on
// disk a copy stays.
func TestObjectCacheAsksAWarmStore(t *testing.T) {
	for name, s := range stores(t) {
		cache := NewObjectCache(copyShards*(256<<10), s)
		for what, c := range map[string]struct {
			size    int
			class   Class
			answers bool
			keeps   bool // on disk
		}{
			"empty":              {0, Pinned, true, true},
			"small":              {1000, Pinned, true, true},
			"the largest kept":   {maxCopySize, Pinned, true, true},
			"not kept":           {maxCopySize + 1, Pinned, true, false},
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
			_, found := cache.Lookup([]byte(target(a)))
			kept := cache.has(a)
			if found != c.answers || kept != (c.keeps && name == "disk") {
				t.Errorf("%s, %s: answered %t, kept %t", name, what, found, kept)
			}
		}
		for _, odd := range []string{"", "/", "/o/", "/o/b3:12", target(b3.Of([]byte("absent"))), strings.ToUpper(target(b3.Of([]byte("small")))),
			target(b3.Of(random(1, 1000)))[:60] + "ABCDEFGHIJ", "/x/" + b3.Of(random(1, 1000)).String(), "/o/b4:" + b3.Of(random(1, 1000)).String()[3:]} {
			if _, found := cache.Lookup([]byte(odd)); found {
				t.Errorf("%s: found something for %q", name, odd)
			}
		}
		_ = s.Close()
		cache.Clear()
		if _, found := cache.Lookup([]byte(target(b3.Of(random(1, 1000))))); found {
			t.Errorf("%s: found something in a closed store", name)
		}
	}
}

// An address has one encoding, and so has a target.
func TestTargets(t *testing.T) {
	a := b3.Of([]byte("x"))
	if got, ok := parseTarget([]byte(target(a))); !ok || got != a {
		t.Errorf("%s, %t", got, ok)
	}
	if _, ok := parseTarget([]byte(strings.Replace(target(a), "b3:", "B3:", 1))); ok {
		t.Error("another spelling")
	}
	upper := ObjectPrefix + b3.Prefix + strings.ToUpper(a.String()[len(b3.Prefix):])
	if _, ok := parseTarget([]byte(upper)); ok {
		t.Error("upper case")
	}
}

// An answer of the cache counts as use: what is requested is not evicted.
func TestObjectCacheUseCounts(t *testing.T) {
	for name, s := range map[string]Store{"RAM": NewRAM(RAMSpec{Budget: 1 << 20}), "disk": testDisk(t, DiskSpec{Budget: 1 << 20})} {
		cache := NewObjectCache(1<<20, s)
		hot := mustPut(t, s, random(1, 50_000), Cached)
		for i := range 60 {
			for range 3 {
				if answer, found := cache.Lookup([]byte(target(hot))); !found || answer == nil {
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

// Lookups and deletes may interleave in any way: a deleted object is not in the
// cache when both are done.
func TestObjectCacheOnDemandNeverOutlivesADelete(t *testing.T) {
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	s := NewObjectCache(copyShards*(64<<10), d)
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

// deletingDisk is a store from which an object is deleted just while it is
// lent.
type deletingDisk struct {
	*Disk
	cache *ObjectCache
}

func (d *deletingDisk) openWarm(a b3.Address) (warmObject, bool) {
	object, ok := d.Disk.openWarm(a)
	_ = d.Delete(context.Background(), a)
	d.cache.Drop(a)
	return object, ok
}

func TestObjectCacheKeepsNothingThatIsDeletedMeanwhile(t *testing.T) {
	d := &deletingDisk{Disk: testDisk(t, DiskSpec{})}
	defer d.Close()
	d.cache = NewObjectCache(copyShards*(64<<10), d)
	a := mustPut(t, d, []byte("short-lived"), Pinned)
	if _, found := d.cache.Lookup([]byte(target(a))); !found {
		t.Error("it was there when it was asked for")
	}
	if d.cache.has(a) {
		t.Error("it was deleted, and is on the shelf")
	}
}

// With far more objects than space, the cache stays within its budget and does
// not turn over with every request.
func TestObjectCacheDoesNotChurn(t *testing.T) {
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	const budget = copyShards * (8 << 10)
	s := NewObjectCache(budget, d)
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
	if answers, size := s.Usage(); size > budget || answers < copyShards {
		t.Errorf("%d answers of %d bytes, and %d are allowed", answers, size, budget)
	}
}
