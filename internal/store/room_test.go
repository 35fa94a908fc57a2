package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"micronode/b3"
	"micronode/fault"
)

func TestAStoreWithoutABudgetRefusesAll(t *testing.T) {
	for _, budget := range []int64{0, -5} {
		r := testRAM(RAMSpec{Budget: budget})
		for _, size := range []int64{Unknown, 0, 3} {
			_, _, err := r.Put(context.Background(), bytes.NewReader(make([]byte, max(0, size))), PutOptions{Size: size})
			if fault.KindOf(err) != fault.StoreFull {
				t.Errorf("budget %d, size %d: %v", budget, size, err)
			}
		}
		audit(t, r)
	}
}

func TestALimitForOneObject(t *testing.T) {
	r := testRAM(RAMSpec{Budget: 1 << 20, MaxObject: 100_000})
	for _, size := range []int64{100_001, Unknown} {
		_, _, err := r.Put(context.Background(), &zeros{n: 100_001}, PutOptions{Size: size})
		if fault.KindOf(err) != fault.BodyTooLarge || fault.NextOf(err) == fault.BodyTooLarge.Next() {
			t.Errorf("size %d: %v, next %q", size, err, fault.NextOf(err))
		}
	}
	mustPut(t, r, make([]byte, 100_000), Pinned)
	audit(t, r)
}

// A body of unknown size that ends just where the room ends is kept.
func TestTheLastByteFits(t *testing.T) {
	for _, size := range []int64{1 << 20, 1<<20 - 1, 1<<20 - slabSize, 1<<20 - slabSize + 1} {
		r := testRAM(RAMSpec{Budget: 1 << 20})
		if _, _, err := r.Put(context.Background(), &zeros{n: size}, PutOptions{Size: Unknown}); err != nil {
			t.Errorf("%d bytes into 1 MiB: %v", size, err)
		}
		audit(t, r)
		if n := r.Counts().Refusals; n != 0 {
			t.Errorf("%d refusals are counted", n)
		}
	}
}

// A small body of unknown size needs no slab while it comes in.
func TestASmallBodyNeedsLittleRoom(t *testing.T) {
	r := testRAM(RAMSpec{Budget: 2 * slabSize})
	mustPut(t, r, make([]byte, slabSize), Pinned)
	mustPut(t, r, make([]byte, slabSize/4*3), Pinned)
	if _, _, err := r.Put(context.Background(), &zeros{n: 900}, PutOptions{Size: Unknown}); err != nil {
		t.Errorf("900 bytes of unknown size, with %d free: %v", r.budget.limit-r.budget.held.Load(), err)
	}
	audit(t, r)
}

// Whether the size was known makes no difference to what an object takes.
func TestAnObjectCostsTheSameHoweverItCame(t *testing.T) {
	for _, size := range []int64{0, 1, 256, 257, 2000, firstBlock, firstBlock + 1, slabSize - 1, slabSize, slabSize + 1, 2 * slabSize, 2*slabSize + 300} {
		r := testRAM(RAMSpec{Budget: 16 * slabSize})
		if _, _, err := r.Put(context.Background(), &zeros{n: size}, PutOptions{Size: Unknown}); err != nil {
			t.Fatal(err)
		}
		if held := r.Usage().Held; held != costOf(size) {
			t.Errorf("%d bytes of unknown size take %d of the budget, want %d", size, held, costOf(size))
		}
		audit(t, r)
	}
}

// Objects that are used all the time can still be evicted when there is nothing
// else: a cache in heavy use is not a full store.
func TestEvenWhatIsUsedMakesRoom(t *testing.T) {
	r := testRAM(RAMSpec{Budget: 8 * slabSize})
	for i := range 8 {
		a := mustPut(t, r, numbered(i, slabSize-entryCost), Cached)
		r.shard(a).objects[a].used = 250 // more than the hand takes away
	}
	mustPut(t, r, numbered(100, 4*slabSize), Pinned)
	audit(t, r)
}

// The hand stops at each object that it passes, however many there are in a
// shard and wherever it stands.
func TestTheHandPassesThroughLargeShards(t *testing.T) {
	r := testRAM(RAMSpec{Budget: 1 << 20})
	var inOne int
	for i := 0; inOne < 3*glance; i++ {
		if data := numbered(i, 8); b3.Of(data)[0] == 7 {
			mustPut(t, r, data, Cached)
			inOne++
		}
	}
	r.hand, r.shards[7].hand = 7, glance+5
	need := r.Usage().Budget
	if _, _, err := r.Put(context.Background(), &zeros{n: need}, PutOptions{Size: need}); err != nil {
		t.Errorf("put of the whole budget: %v", err)
	}
	if n := r.Counts().Evictions; n != 3*glance {
		t.Errorf("%d of %d were evicted", n, 3*glance)
	}
	audit(t, r)
}

// Of two that need more than half of what can be freed, one gets it. If both
// gathered at the same time, both could fail.
func TestOneOfTwoLargePutsSucceeds(t *testing.T) {
	for round := range 50 {
		r := testRAM(RAMSpec{Budget: 64 * slabSize})
		for i := range 64 {
			mustPut(t, r, numbered(i, slabSize/2), Cached)
		}
		var done atomic.Int64
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				size := int64(40 * slabSize)
				_, _, err := r.Put(context.Background(), bytes.NewReader(numbered(1000+i, int(size))), PutOptions{Size: size})
				switch fault.KindOf(err) {
				case 0:
					done.Add(1)
				case fault.StoreFull:
				default:
					t.Errorf("put: %v", err)
				}
			})
		}
		all.Wait()
		if done.Load() != 1 {
			t.Fatalf("round %d: %d of two puts succeeded", round, done.Load())
		}
		audit(t, r)
	}
}

// A store that was full of tiny objects does not keep their maps.
func TestMapsShrink(t *testing.T) {
	r := testRAM(RAMSpec{Budget: 16 << 20})
	var all []b3.Address
	for i := range 20_000 {
		all = append(all, mustPut(t, r, numbered(i, 8), Class(i%2)))
	}
	for _, a := range all[100:] {
		if err := r.Delete(context.Background(), a); err != nil {
			t.Fatal(err)
		}
	}
	for i := range r.shards {
		if s := &r.shards[i]; s.peak > shrinkBelow || cap(s.ring) > shrinkBelow {
			t.Errorf("shard %d has room for %d objects and a ring for %d; it has %d", i, s.peak, cap(s.ring), len(s.objects))
		}
	}
	for i, a := range all {
		if _, err := r.Stat(context.Background(), a); (err == nil) != (i < 100) {
			t.Errorf("object %d: %v", i, err)
		}
	}
	audit(t, r)
}

// A handle that is closed in the middle of a read makes the read fail. It must
// not go on for ever.
func TestClosedInTheMiddleOfARead(t *testing.T) {
	r := testRAM(RAMSpec{Budget: 8 * slabSize})
	for _, size := range []int{1000, 3*slabSize + 5} {
		a := mustPut(t, r, numbered(1, size), Pinned)
		h, err := r.Open(context.Background(), a)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Delete(context.Background(), a); err != nil {
			t.Fatal(err)
		}
		r.release(h.(*handle).object) // as Close does, while the handle does not know yet
		if n, err := h.WriteTo(io.Discard); n != 0 || !errors.Is(err, fs.ErrClosed) {
			t.Errorf("WriteTo of %d bytes: %d, %v", size, n, err)
		}
		if n, err := h.ReadAt(make([]byte, 500), 500); n != 0 || !errors.Is(err, fs.ErrClosed) {
			t.Errorf("ReadAt of %d bytes: %d, %v", size, n, err)
		}
	}
}
