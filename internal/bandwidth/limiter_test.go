package bandwidth

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/flow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kib = 1 << 10

// movers moves bytes for a client, with some transfers at a time, until ctx ends.
func movers(ctx context.Context, all *sync.WaitGroup, l *Limiter, transfers, step int) *atomic.Int64 {
	moved, share := new(atomic.Int64), new(Share)
	for range transfers {
		all.Go(func() {
			for {
				granted, err := l.Wait(ctx, Gateway, share, step)
				if err != nil {
					return
				}
				moved.Add(int64(granted))
				l.Count(Gateway, granted)
			}
		})
	}
	return moved
}

// within checks that a number is what it should be, or up to a part off.
func within(t *testing.T, what string, got, want int64, part float64) {
	t.Helper()
	if float64(got) < float64(want)*(1-part) || float64(got) > float64(want)*(1+part) {
		t.Errorf("%s: %d, want %d within %.0f %%", what, got, want, 100*part)
	}
}

func TestALimitIsKeptAndSharedEvenly(t *testing.T) {
	for _, limit := range []int64{32 * kib, 1 << 20, 64 << 20} {
		synctest.Test(t, func(t *testing.T) {
			l := NewLimiter(flow.NewInventory(), "node", "test", limit)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var all sync.WaitGroup
			greedy := movers(ctx, &all, l, 32, 256*kib)
			var modest []*atomic.Int64
			for _, step := range []int{100, 16 * kib, 64 * kib, 1 << 20} {
				modest = append(modest, movers(ctx, &all, l, 1, step))
			}
			all.Wait()
			sum, each := greedy.Load(), limit*20/5
			within(t, "the client with 32 transfers", greedy.Load(), each, 0.05)
			for _, one := range modest {
				sum += one.Load()
				within(t, "a client with one", one.Load(), each, 0.05)
			}
			within(t, "all", sum, limit*20, 0.05)
			if got := l.Bytes(Gateway); got != sum {
				t.Errorf("counted %d of %d bytes", got, sum)
			}
			if l.Waited(Gateway) < 20*time.Second || l.Waited(Fills) != 0 {
				t.Errorf("waited %s and %s", l.Waited(Gateway), l.Waited(Fills))
			}
		})
	}
}

func TestWithoutALimitNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var share Share
		for _, l := range []*Limiter{nil, NewLimiter(flow.NewInventory(), "node", "test", 0)} {
			began := time.Now()
			for range 100 {
				if granted, err := l.Wait(t.Context(), Fills, &share, 1<<30); granted != 1<<30 || err != nil {
					t.Fatal(granted, err)
				}
				l.Charge(Peers, 1<<30)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("waited %s", took)
			}
		}
	})
}

func TestChargesDoNotWaitAndBulkMakesUpForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(flow.NewInventory(), "node", "test", 100*kib)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var all sync.WaitGroup
		bulk := movers(ctx, &all, l, 4, 16*kib)
		for range 200 { // half of the limit
			l.Charge(Peers, 5*kib)
			time.Sleep(100 * time.Millisecond)
		}
		all.Wait()
		within(t, "bulk", bulk.Load(), 20*50*kib, 0.05)
	})
}

func TestBulkIsNotStarvedByCharges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(flow.NewInventory(), "node", "test", 100*kib)
		l.Charge(Peers, 1<<30) // three hours of it
		began := time.Now()
		var share Share
		if _, err := l.Wait(t.Context(), Gateway, &share, kib); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 500*time.Millisecond || took > 1500*time.Millisecond {
			t.Errorf("waited %s, want about a second", took)
		}
	})
}

func TestANewLimitIsTakenUpByThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(flow.NewInventory(), Settings{Up: 32 * kib})
		var share Share
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			for left := 1 << 20; left > 0; {
				granted, err := m.Up().Wait(t.Context(), Gateway, &share, left)
				if err != nil {
					t.Error(err)
					return
				}
				left -= granted
			}
		})
		time.Sleep(time.Second)
		m.Set(Settings{})
		all.Wait()
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("went on for %s after the limit was lifted", took-time.Second)
		}
		m.Set(Settings{Up: 64 * kib})
		if got := m.Up().Limit(); got != 64*kib || m.Down().Limit() != 0 {
			t.Errorf("up %d, down %d", got, m.Down().Limit())
		}
	})
}

func TestAWaitEndsWithItsContextAndGivesBackItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(flow.NewInventory(), "node", "test", 32*kib)
		var share Share
		for range 2 { // what the bucket holds
			if _, err := l.Wait(t.Context(), Gateway, &share, l.Step()); err != nil {
				t.Fatal(err)
			}
		}
		for range 40 { // each waits for a millisecond of the fifty that a turn takes
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := l.Wait(ctx, Gateway, &share, l.Step()); fault.KindOf(err) != fault.Timeout {
				t.Fatal(err)
			}
			cancel()
		}
		if granted, err := l.Wait(t.Context(), Gateway, &share, l.Step()); granted == 0 || err != nil {
			t.Fatal(granted, err)
		}
		if took := l.Waited(Gateway); took > 300*time.Millisecond {
			t.Errorf("waited %s: those that gave up have used the bytes", took)
		}
	})
}

func TestWaitUpToSendsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(flow.NewInventory(), "node", "test", 32*kib)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 50 {
			movers(ctx, &all, l, 1, 64*kib)
		}
		var share Share
		for range 5 {
			began := time.Now()
			if err := l.WaitUpTo(t.Context(), 2*time.Second, Peers, &share, 64*kib); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != 2*time.Second {
				t.Errorf("took %s", took)
			}
		}
		cancel()
		if err := l.WaitUpTo(ctx, time.Second, Peers, &share, 64*kib); fault.KindOf(err) != fault.Canceled {
			t.Error(err)
		}
		all.Wait()
	})
}

func TestWhatDidNotMoveIsUsedNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(flow.NewInventory(), "node", "test", 32*kib)
		var share Share
		began := time.Now()
		for range 10_000 {
			granted, err := l.Wait(t.Context(), Gateway, &share, kib)
			if err != nil {
				t.Fatal(err)
			}
			l.Return(&share, granted-1) // a byte at a time
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("10,000 bytes took %s at 32 KiB/s", took)
		}
	})
}
