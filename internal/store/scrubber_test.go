package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// corrupt changes one bit of an object, as failing memory would.
func corrupt(t *testing.T, r *RAM, a b3.Address, off int64) {
	t.Helper()
	s := r.shard(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[a] == nil {
		t.Fatalf("%s is not stored here", a)
	}
	s.objects[a].bytesAt(off)[0] ^= 4
}

func TestTheScrubberFindsWhatIsCorrupt(t *testing.T) {
	for _, size := range []int64{1, 16 << 10, 3*slabSize + 7} {
		for _, off := range []int64{0, size / 2, size - 1} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				r := NewRAM(RAMSpec{Budget: 16 * slabSize})
				sound := mustPut(t, r, numbered(1, 70_000), Pinned)
				bad := mustPut(t, r, numbered(2, int(size)), Pinned)
				served := make(chan error)
				go func() {
					served <- (&Scrubber{Store: r, Interval: time.Minute, BytesPerSecond: 1 << 20}).Serve(ctx)
				}()
				time.Sleep(90 * time.Second)
				synctest.Wait()
				if n := r.Counts().IntegrityFails; n != 0 {
					t.Fatalf("%d objects are called corrupt, none is", n)
				}

				corrupt(t, r, bad, off)
				time.Sleep(90 * time.Second)
				synctest.Wait()
				if n := r.Counts().IntegrityFails; n != 1 {
					t.Errorf("a bit at %d of %d was changed: %d objects are counted as corrupt", off, size, n)
				}
				if _, err := r.Open(ctx, bad); fault.KindOf(err) != fault.NotFound {
					t.Errorf("open of a corrupt object: %v", err)
				}
				if _, err := r.Stat(ctx, sound); err != nil {
					t.Errorf("stat of a sound object: %v", err)
				}
				audit(t, r)

				mustPut(t, r, numbered(2, int(size)), Pinned)
				time.Sleep(90 * time.Second)
				synctest.Wait()
				if _, err := r.Stat(ctx, bad); err != nil || r.Counts().IntegrityFails != 1 {
					t.Errorf("after it was put again: %v, %+v", err, r.Counts())
				}
				cancel()
				if err := <-served; err != nil {
					t.Errorf("Serve: %v", err)
				}
			})
		}
	}
}

// A corrupt object that is open is removed when it is closed.
func TestCorruptAndOpen(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 4 * slabSize})
	a := mustPut(t, r, numbered(1, 1000), Cached)
	h, err := r.Open(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	corrupt(t, r, a, 500)
	err = r.Verify(context.Background(), a, nil)
	if fault.KindOf(err) != fault.IntegrityFail || !errors.Is(err, b3.ErrMismatch) {
		t.Errorf("verify: %v", err)
	}
	if u := r.Usage(); u.Objects != 0 || u.Lingering != 1000 {
		t.Errorf("%+v", u)
	}
	audit(t, r, h)
	_ = h.Close()
	audit(t, r)
}

// The scrubber keeps its rate: a round over n bytes takes n divided by the
// rate, and then it pauses.
func TestTheScrubberKeepsItsPace(t *testing.T) {
	for name, c := range map[string]struct{ objects, size int }{
		"large objects": {10, 3 * slabSize},
		"tiny objects":  {20_000, 8}, // each is worth 5 ms, too short for a pause of its own
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkPace(t, c.objects, c.size) })
		})
	}
}

func checkPace(t *testing.T, objects, size int) {
	ctx, cancel := context.WithCancel(context.Background())
	r := NewRAM(RAMSpec{Budget: 1024 * slabSize})
	for i := range objects {
		mustPut(t, r, numbered(i, size), Pinned)
	}
	noted := &recorder{ScrubTarget: r}
	served := make(chan error)
	go func() {
		served <- (&Scrubber{Store: noted, Interval: time.Hour, BytesPerSecond: int64(objects*size) / 100}).Serve(ctx)
	}()
	began := time.Now()
	after := func(d time.Duration) (verified int, took time.Duration) {
		time.Sleep(d)
		synctest.Wait()
		verified, last := noted.read()
		return verified, last.Sub(began)
	}
	if n, _ := after(50 * time.Second); n < objects*3/10 || n > objects*6/10 {
		t.Errorf("after half of the time, %d of %d objects were verified", n, objects)
	}
	if n, took := after(60 * time.Second); n != objects || took < 95*time.Second || took > 101*time.Second {
		t.Errorf("%d of %d objects were verified in %s, want all in nearly 100 s", n, objects, took)
	}
	if n, _ := after(50 * time.Minute); n != objects {
		t.Errorf("%d objects were verified, and the pause is not over", n)
	}
	if n, _ := after(15 * time.Minute); n != 2*objects {
		t.Errorf("%d objects were verified after two rounds over %d", n, objects)
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// recorder records what is verified, and when the last one was done.
type recorder struct {
	ScrubTarget
	mu       sync.Mutex
	verified int
	last     time.Time
}

func (r *recorder) read() (verified int, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verified, r.last
}

func (r *recorder) Verify(ctx context.Context, a b3.Address, pace Pace) error {
	err := r.ScrubTarget.Verify(ctx, a, pace)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verified++
	r.last = time.Now()
	return err
}

func TestTheScrubberEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRAM(RAMSpec{Budget: 64 * slabSize})
		mustPut(t, r, numbered(1, 10*slabSize), Pinned)
		if err := (&Scrubber{Store: r}).Serve(context.Background()); err != nil {
			t.Errorf("without a rate: %v", err)
		}

		// In the middle of an object.
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error)
		go func() { served <- (&Scrubber{Store: r, Interval: time.Hour, BytesPerSecond: 1}).Serve(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-served; err != nil {
			t.Errorf("canceled in the middle of an object: %v", err)
		}

		// Because the store is closed.
		go func() {
			served <- (&Scrubber{Store: r, Interval: time.Second, BytesPerSecond: 1 << 30}).Serve(context.Background())
		}()
		time.Sleep(time.Minute)
		_ = r.Close()
		if err := <-served; err != nil {
			t.Errorf("the store was closed: %v", err)
		}
	})
}

// failingTarget is a store that fails.
type failingTarget struct {
	ScrubTarget
	err error
}

func (f failingTarget) Verify(context.Context, b3.Address, Pace) error { return f.err }

func TestTheScrubberReportsTrouble(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 4 * slabSize})
	mustPut(t, r, numbered(1, 1000), Pinned)
	err := (&Scrubber{Store: failingTarget{r, fault.StorageBusy}, Interval: time.Hour, BytesPerSecond: 1 << 20}).Serve(context.Background())
	if fault.KindOf(err) != fault.StorageBusy {
		t.Errorf("Serve of a store in trouble: %v", err)
	}
}

// An object may be removed, and put again, while it is being verified: nothing
// is blocked by it, and the new object is not blamed for the old one.
func TestVerifyHoldsNothingUp(t *testing.T) {
	ctx := context.Background()
	data := numbered(1, 3*slabSize)
	for name, c := range map[string]struct {
		meanwhile func(*RAM, b3.Address) error
		want      fault.Kind
		there     bool
	}{
		"deleted": {func(r *RAM, a b3.Address) error { return r.Delete(ctx, a) }, fault.NotFound, false},
		"replaced": {func(r *RAM, a b3.Address) error {
			corrupt(t, r, a, 5)
			err := r.Delete(ctx, a)
			mustPut(t, r, data, Pinned)
			return err
		}, fault.NotFound, true},
		"evicted": {func(r *RAM, a b3.Address) error {
			mustPut(t, r, numbered(2, 4*slabSize), Pinned)
			return nil
		}, fault.NotFound, false},
		"closed":   {func(r *RAM, a b3.Address) error { return r.Close() }, fault.NotFound, false},
		"in a jam": {func(r *RAM, a b3.Address) error { return fault.Busy }, fault.Busy, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRAM(RAMSpec{Budget: 4 * slabSize})
			a := mustPut(t, r, data, Cached)
			groups := 0
			err := r.Verify(ctx, a, func(context.Context, int64) error {
				if groups++; groups == 6 {
					return c.meanwhile(r, a)
				}
				return nil
			})
			if fault.KindOf(err) != c.want || groups != 6 {
				t.Errorf("verify: %v after %d pieces, want %s after 6", err, groups, c.want.Code())
			}
			if _, there := r.shard(a).objects[a]; there != c.there {
				t.Errorf("it is there: %t, want %t", there, c.there)
			}
			if n := r.Counts().IntegrityFails; n != 0 {
				t.Errorf("%d are counted as corrupt", n)
			}
			audit(t, r)
		})
	}
}

// An object that is put after the last group of its predecessor was hashed is
// not quarantined for it.
func TestQuarantineMeansOneObject(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 4 * slabSize})
	a := mustPut(t, r, numbered(1, 1000), Pinned)
	old := r.shard(a).objects[a]
	_ = r.Delete(context.Background(), a)
	mustPut(t, r, numbered(1, 1000), Pinned)
	r.dropCorrupt(old)
	if _, err := r.Stat(context.Background(), a); err != nil || r.Counts().IntegrityFails != 0 {
		t.Errorf("%v, %+v", err, r.Counts())
	}
	audit(t, r)
}

func TestVerifyOfACallerWhoLeaves(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 4 * slabSize})
	a := mustPut(t, r, numbered(1, 3*slabSize), Pinned)
	ctx, cancel := context.WithCancel(context.Background())
	err := r.Verify(ctx, a, func(context.Context, int64) error {
		cancel()
		return nil
	})
	if fault.KindOf(err) != fault.Canceled {
		t.Errorf("verify: %v", err)
	}
}

// Verifying is not using: otherwise everything in a cache would look as if it
// were in demand.
func TestVerifyIsNotUse(t *testing.T) {
	r := NewRAM(RAMSpec{Budget: 4 * slabSize})
	a := mustPut(t, r, numbered(1, 1000), Cached)
	o := r.shard(a).objects[a]
	before := o.useCount
	for range 5 {
		if err := r.Verify(context.Background(), a, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Stat(context.Background(), a); err != nil {
			t.Fatal(err)
		}
	}
	if o.useCount != before {
		t.Errorf("used %d times before it was verified, %d after", before, o.useCount)
	}
}
