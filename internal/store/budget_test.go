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
		r := NewRAM(RAMSpec{Budget: budget})
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
	r := NewRAM(RAMSpec{Budget: 1 << 20, MaxObject: 100_000})
	for _, size := range []int64{100_001, Unknown} {
		_, _, err := r.Put(context.Background(), &zeros{n: 100_001}, PutOptions{Size: size})
		if fault.KindOf(err) != fault.BodyTooLarge || fault.NextOf(err) == fault.BodyTooLarge.Next() {
			t.Errorf("size %d: %v, next %q", size, err, fault.NextOf(err))
		}
	}
	mustPut(t, r, make([]byte, 100_000), Pinned)
	audit(t, r)
}

// A body of unknown size that ends exactly at the end of the budget is stored.
func TestTheLastByteFits(t *testing.T) {
	for _, size := range []int64{1 << 20, 1<<20 - 1, 1<<20 - slabSize, 1<<20 - slabSize + 1} {
		r := NewRAM(RAMSpec{Budget: 1 << 20})
		if _, _, err := r.Put(context.Background(), &zeros{n: size}, PutOptions{Size: Unknown}); err != nil {
			t.Errorf("%d bytes into 1 MiB: %v", size, err)
		}
		audit(t, r)
		if n := r.Counts().Refusals; n != 0 {
			t.Errorf("%d refusals are counted", n)
		}
	}
}

// A small body of unknown size needs no slab while it is read.
func TestASmallBodyNeedsLittleRoom(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 2 * slabSize})
	mustPut(t, r, make([]byte, slabSize), Pinned)
	mustPut(t, r, make([]byte, slabSize/4*3), Pinned)
	if _, _, err := r.Put(context.Background(), &zeros{n: 900}, PutOptions{Size: Unknown}); err != nil {
		t.Errorf("900 bytes of unknown size, with %d free: %v", r.budget.limit-r.budget.held.Load(), err)
	}
	audit(t, r)
}

// Whether the size was known makes no difference to the cost of an object.
func TestAnObjectCostsTheSameHoweverItCame(t *testing.T) {
	for _, size := range []int64{0, 1, 256, 257, 2000, firstBlockSize, firstBlockSize + 1, slabSize - 1, slabSize, slabSize + 1, 2 * slabSize, 2*slabSize + 300} {
		r := NewRAM(RAMSpec{Budget: 16 * slabSize})
		if _, _, err := r.Put(context.Background(), &zeros{n: size}, PutOptions{Size: Unknown}); err != nil {
			t.Fatal(err)
		}
		if held := r.Usage().Held; held != ramCost(size) {
			t.Errorf("%d bytes of unknown size take %d of the budget, want %d", size, held, ramCost(size))
		}
		audit(t, r)
	}
}

// Objects that are used all the time can still be evicted when there is nothing
// else: a cache in heavy use is not a full store.
func TestEvenWhatIsUsedMakesRoom(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 8 * slabSize})
	for i := range 8 {
		a := mustPut(t, r, numbered(i, slabSize-objectOverhead), Cached)
		r.shard(a).objects[a].useCount = 250 // more than the hand decrements
	}
	mustPut(t, r, numbered(100, 4*slabSize), Pinned)
	audit(t, r)
}

// The hand stops at each object that it passes, however many there are in a
// shard and wherever it is.
func TestTheClockPassesThroughLargeShards(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 1 << 20})
	var inOne int
	for i := 0; inOne < 3*sweepBatch; i++ {
		if data := numbered(i, 8); b3.Of(data)[0] == 7 {
			mustPut(t, r, data, Cached)
			inOne++
		}
	}
	r.clockShard, r.shards[7].clockHand = 7, sweepBatch+5
	need := r.Usage().Budget
	if _, _, err := r.Put(context.Background(), &zeros{n: need}, PutOptions{Size: need}); err != nil {
		t.Errorf("put of the whole budget: %v", err)
	}
	if n := r.Counts().Evictions; n != 3*sweepBatch {
		t.Errorf("%d of %d were evicted", n, 3*sweepBatch)
	}
	audit(t, r)
}

// Of two puts that need more than half of what can be freed, one gets it. If
// both evicted at the same time, both could fail.
func TestOneOfTwoLargePutsSucceeds(t *testing.T) {
	for round := range 50 {
		r := NewRAM(RAMSpec{Budget: 64 * slabSize})
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
	r := NewRAM(RAMSpec{Budget: 16 << 20})
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
		if s := &r.shards[i]; s.peak > minShrinkPeak || cap(s.ring) > minShrinkPeak {
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
// not loop forever.
func TestClosedInTheMiddleOfARead(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 8 * slabSize})
	for _, size := range []int{1000, 3*slabSize + 5} {
		a := mustPut(t, r, numbered(1, size), Pinned)
		h, err := r.Open(context.Background(), a)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Delete(context.Background(), a); err != nil {
			t.Fatal(err)
		}
		r.release(h.(*ramHandle).object) // as Close does, before the handle is marked closed
		if n, err := h.WriteTo(io.Discard); n != 0 || !errors.Is(err, fs.ErrClosed) {
			t.Errorf("WriteTo of %d bytes: %d, %v", size, n, err)
		}
		if n, err := h.ReadAt(make([]byte, 500), 500); n != 0 || !errors.Is(err, fs.ErrClosed) {
			t.Errorf("ReadAt of %d bytes: %d, %v", size, n, err)
		}
	}
}

// endless returns arbitrary bytes forever.
type endless struct{ given int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.given += int64(len(p))
	return len(p), nil
}

// Unverified bytes evict nothing, however many there are. When they are
// verified, they do, and leave headroom for the next ones.
func TestUnverifiedBytesEvictNothing(t *testing.T) {
	const budget, headroom, size = 8 << 20, 2 << 20, 256 << 10
	for name, s := range map[string]Store{
		"RAM":  NewRAM(RAMSpec{Budget: budget, Headroom: headroom}),
		"disk": testDisk(t, DiskSpec{Budget: budget, Headroom: headroom}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			for i := range 2 * budget / size { // twice as many as fit
				mustPut(t, s, numbered(i, size), Cached)
			}
			full := s.Usage()
			if full.Held > budget-headroom {
				t.Fatalf("cached objects hold %d of %d, and %d of that are headroom", full.Held, budget, headroom)
			}
			before := s.Counts().Evictions
			want := b3.Of([]byte("something else"))
			for _, declared := range []int64{Unknown, headroom * 2, size} {
				liar := &endless{}
				_, _, err := s.Put(ctx, liar, PutOptions{Want: want, Size: declared, Class: Cached, Unverified: true})
				if kind := fault.KindOf(err); kind != fault.StoreFull && kind != fault.Malformed {
					t.Errorf("%d bytes declared: %v", declared, err)
				}
				if liar.given > headroom+size {
					t.Errorf("%d bytes declared, and %d were taken", declared, liar.given)
				}
			}
			if u, n := s.Usage(), s.Counts().Evictions-before; n != 0 || u.Objects != full.Objects || u.Held != full.Held {
				t.Errorf("a liar evicted %d objects: %+v, want %+v", n, u, full)
			}
			for i := range 40 {
				good := numbered(1000+i, size)
				if _, created, err := s.Put(ctx, bytes.NewReader(good), PutOptions{Want: b3.Of(good), Size: Unknown, Class: Cached, Unverified: true}); err != nil || !created {
					t.Fatalf("object %d: %v %v", i, created, err)
				}
				if _, err := s.Stat(ctx, b3.Of(good)); err != nil {
					t.Fatalf("object %d is gone: %v", i, err)
				}
				if held := s.Usage().Held; held > budget-headroom {
					t.Fatalf("after object %d, %d of %d are held", i, held, budget)
				}
			}
			if s.Counts().Evictions == before {
				t.Error("forty good objects evicted nothing")
			}
		})
	}
}

// An object that needs the headroom itself stays, and pinned objects may use
// it.
func TestTheHeadroomIsUsed(t *testing.T) {
	const budget, headroom = 8 << 20, 2 << 20
	for name, fresh := range map[string]func() Store{
		"RAM":  func() Store { return NewRAM(RAMSpec{Budget: budget, Headroom: headroom}) },
		"disk": func() Store { return testDisk(t, DiskSpec{Budget: budget, Headroom: headroom}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh()
			large := numbered(1, 7<<20)
			if _, _, err := s.Put(t.Context(), bytes.NewReader(large), PutOptions{Want: b3.Of(large), Size: int64(len(large)), Class: Cached, Unverified: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Stat(t.Context(), b3.Of(large)); err != nil {
				t.Errorf("it was evicted for its own sake: %v", err)
			}
			for i := range 7 {
				mustPut(t, s, numbered(10+i, 1<<20), Pinned)
			}
			if u := s.Usage(); u.Pinned != 7<<20 {
				t.Errorf("%+v", u)
			}
		})
	}
}
