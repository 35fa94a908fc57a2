package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/breaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	window   = 30 * time.Second
	cooldown = 10 * time.Second
	moment   = time.Nanosecond
)

// fixture is a table in fake time.
type fixture struct {
	*breaker.Table
	t          *testing.T
	openEvents int
}

func bubble(t *testing.T, spec breaker.Spec, test func(b *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &fixture{Table: breaker.New(spec), t: t}
		b.OnOpen = func(string) {
			b.openEvents++
			_ = b.Counts() // nothing is locked
			_ = b.State("a")
		}
		test(b)
	})
}

// call calls a target that answers so. It fails the test if the call is
// refused.
func (f *fixture) call(key string, results ...error) {
	f.t.Helper()
	for i, result := range results {
		done, err := f.Allow(key)
		if err != nil {
			f.t.Fatalf("question %d to %s: %v", i+1, key, err)
		}
		done(result)
	}
}

// trip opens a breaker.
func (f *fixture) trip(key string) {
	f.t.Helper()
	f.call(key, fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
	f.wantState(key, breaker.Open)
}

func (f *fixture) wantState(key, state string) {
	f.t.Helper()
	if got := f.State(key); got != state {
		f.t.Errorf("%s is %s, want %s", key, got, state)
	}
}

// wantRefusal checks that a target may not be called, and when to retry.
func (f *fixture) wantRefusal(key string, after time.Duration) {
	f.t.Helper()
	_, err := f.Allow(key)
	if fault.KindOf(err) != fault.BreakerOpen || fault.RetryAfterOf(err) != after {
		f.t.Errorf("asking for %s: %v, come back in %s; want BreakerOpen and %s", key, err, fault.RetryAfterOf(err), after)
	}
}

func (f *fixture) wantCounts(closed, halfOpen, open int) {
	f.t.Helper()
	want := map[string]int{breaker.Closed: closed, breaker.HalfOpen: halfOpen, breaker.Open: open}
	if got := f.Counts(); !maps.Equal(got, want) {
		f.t.Errorf("counts %v, want %v", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		b.wantState("a", breaker.Closed)
		b.wantCounts(0, 0, 0)
		b.call("a", nil, fault.UpstreamFailed, fault.UpstreamFailed, fault.UpstreamFailed) // four are not enough
		b.wantState("a", breaker.Closed)
		b.call("a", nil, fault.UpstreamFailed) // at the sixth it is 4 of 6
		b.wantState("a", breaker.Open)
		b.call("b", nil)
		b.wantCounts(1, 0, 1)
		time.Sleep(4 * time.Second)
		b.wantRefusal("a", 6*time.Second)
		if b.openEvents != 1 {
			b.t.Errorf("told %d times that a breaker opened, want once", b.openEvents)
		}

		time.Sleep(6*time.Second + moment)
		b.wantCounts(1, 1, 0)
		first, err := b.Allow("a")
		if err != nil {
			b.t.Fatal(err)
		}
		second, err := b.Allow("a")
		if err != nil {
			b.t.Fatal(err)
		}
		b.wantRefusal("a", fault.BreakerOpen.RetryAfter()) // both probes are out
		first(nil)
		b.wantState("a", breaker.HalfOpen)
		second(nil)
		b.wantState("a", breaker.Closed)
		b.call("a", nil)
	})
}

// Check takes no probe: however often it is called, there are as many probes as
// there were.
func TestCheckTakesNoProbe(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		if err := b.Check("a"); err != nil || len(b.Counts()) == 0 || b.Counts()[breaker.Closed] != 0 {
			t.Errorf("of a target that nobody asked: %v, %v", err, b.Counts())
		}
		b.trip("a")
		time.Sleep(cooldown / 2)
		if err := b.Check("a"); fault.KindOf(err) != fault.BreakerOpen || fault.RetryAfterOf(err) != cooldown/2 {
			t.Errorf("open: %v, come back in %s", err, fault.RetryAfterOf(err))
		}
		time.Sleep(cooldown/2 + moment)
		for range 10 {
			if err := b.Check("a"); err != nil {
				t.Errorf("half-open: %v", err)
			}
		}
		b.call("a", nil, nil)
		if state := b.State("a"); state != breaker.Closed {
			t.Errorf("after its probes it is %s", state)
		}
	})
}

func TestFailedProbeOpensAgain(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		b.trip("a")
		time.Sleep(cooldown + moment)
		b.call("a", nil, errors.New("odd"))
		b.wantState("a", breaker.Open)
		b.wantRefusal("a", cooldown)
		if b.openEvents != 2 {
			b.t.Errorf("told %d times that a breaker opened, want twice", b.openEvents)
		}
	})
}

func TestExactlyTheThresholdIsNotAbove(t *testing.T) {
	bubble(t, breaker.Spec{Threshold: 0.5, MinResults: 4}, func(b *fixture) {
		b.call("a", nil, nil, fault.UpstreamFailed, fault.UpstreamFailed)
		b.wantState("a", breaker.Closed)
		b.call("a", fault.UpstreamFailed)
		b.wantState("a", breaker.Open)
	})
}

func TestCancelledIsNeutral(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		for range 100 {
			b.call("a", context.Canceled, fault.New("hedge", fault.Canceled, "others were faster"))
		}
		b.wantState("a", breaker.Closed)
		b.call("a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		b.wantState("a", breaker.Closed) // it is no failure, and no success that would dilute them
		b.call("a", fault.Timeout)
		b.wantState("a", breaker.Open)

		time.Sleep(cooldown + moment)
		b.call("a", context.Canceled, context.Canceled, context.Canceled)
		b.wantState("a", breaker.HalfOpen) // and no result of a probe
		b.call("a", nil, nil)
		b.wantState("a", breaker.Closed)
	})
}

func TestNotFoundIsAnAnswer(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		for range 20 {
			b.call("a", fault.NotFound)
		}
		b.wantState("a", breaker.Closed)
	})
}

func TestOldFailuresSlideOut(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		b.call("a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		time.Sleep(window - 1)
		b.wantState("a", breaker.Closed)
		time.Sleep(moment)
		b.call("a", fault.Timeout) // the other four are gone
		b.wantState("a", breaker.Closed)
	})
	bubble(t, breaker.Spec{}, func(b *fixture) {
		b.call("a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		time.Sleep(window - 1)
		b.call("a", fault.Timeout) // they are not
		b.wantState("a", breaker.Open)
	})
}

func TestTargetsAreApart(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		b.trip("a")
		b.call("b", nil)
		b.wantState("b", breaker.Closed)
		b.wantCounts(1, 0, 1)
	})
}

func TestTableIsBounded(t *testing.T) {
	bubble(t, breaker.Spec{MaxTargets: 3}, func(b *fixture) {
		b.trip("open")
		b.call("x", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		b.call("y", nil)
		b.call("x", context.Canceled) // so y was not the least recently used
		for i := range 100 {
			b.call(fmt.Sprint(i), nil)
			if b.State("open") != breaker.Open {
				b.t.Fatalf("the open breaker was forgotten after %d strangers", i+1)
			}
			b.call("x", context.Canceled)
		}
		b.wantCounts(2, 0, 1)
		b.call("x", fault.Timeout)
		b.wantState("x", breaker.Open) // its four failures were not forgotten
		b.trip("z")
		b.wantCounts(0, 0, 3)
		b.call("new", nil)
		b.wantState("open", breaker.Closed) // all were open, so the oldest was evicted
		b.wantCounts(1, 0, 2)
	})
}

func TestRollForgets(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		b.trip("a")
		b.call("b", nil)
		time.Sleep(window)
		b.Prune(time.Now())
		b.wantCounts(1, 1, 0)
		time.Sleep(moment)
		b.Prune(time.Now())
		b.wantCounts(0, 1, 0) // a closed one whose window is empty is as good as new
		time.Sleep(9*window + cooldown - 1)
		b.Prune(time.Now())
		b.wantCounts(0, 1, 0)
		time.Sleep(moment)
		b.Prune(time.Now())
		b.wantCounts(0, 0, 0)
	})
}

// A probe that never returns must not lock its target out for ever.
func TestLostProbesAreForgotten(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		b.trip("a")
		time.Sleep(cooldown + 1)
		for range 2 {
			if _, err := b.Allow("a"); err != nil {
				b.t.Fatal(err)
			}
		}
		for range 11 {
			time.Sleep(window)
			b.Prune(time.Now())
			_, _ = b.Allow("a") // a refused call does not keep it so
		}
		b.call("a", nil)
		b.wantState("a", breaker.Closed)
	})
}

func TestReconfigure(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		b.trip("a")
		b.call("b", fault.Timeout)
		b.call("c", nil)
		b.Reconfigure(breaker.Spec{MinResults: 1, Probes: 1, Cooldown: time.Second, MaxTargets: 2})
		b.wantCounts(1, 0, 1)
		b.wantState("a", breaker.Open) // an open one stays open
		time.Sleep(2 * time.Second)
		b.wantRefusal("a", 8*time.Second)
		b.call("c", fault.Timeout) // one is enough now
		b.wantState("c", breaker.Open)
		time.Sleep(time.Second + moment)
		b.call("c", nil)
		b.wantState("c", breaker.Closed)
		time.Sleep(cooldown)
		b.call("a", nil)
		b.wantState("a", breaker.HalfOpen) // it still needs two
		b.call("a", nil)
		b.wantState("a", breaker.Closed)
		b.call("a", fault.Timeout) // and is under the new spec from then on
		b.wantState("a", breaker.Open)
	})
}

func TestConcurrentUse(t *testing.T) {
	table := breaker.New(breaker.Spec{MaxTargets: 8, MinResults: 2, Cooldown: time.Nanosecond, Probes: 1})
	var opened sync.Map
	table.OnOpen = func(string) { opened.Store("once", true) }
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 2000 {
				key := fmt.Sprint((worker + i) % 16)
				if done, err := table.Allow(key); err == nil {
					done([]error{nil, fault.Timeout, context.Canceled, fault.Timeout}[i%4])
				}
				switch i % 100 {
				case 10:
					table.Prune(time.Now())
				case 20:
					table.Reconfigure(breaker.Spec{MaxTargets: 8, MinResults: 2, Cooldown: time.Nanosecond, Probes: 1})
				case 30:
					total := 0
					for _, n := range table.Counts() {
						total += n
					}
					if total > 8 {
						t.Errorf("%d targets in a table of 8", total)
					}
				}
				_ = table.State(key)
			}
		})
	}
	all.Wait()
	if _, some := opened.Load("once"); !some {
		t.Error("nobody was told that a breaker opened")
	}
}

// A look-up calls Allow for every target. What a known closed one costs are the
// two closures of done, ours and gobreaker's.
func TestAllowAllocatesLittle(t *testing.T) {
	table := breaker.New(breaker.Spec{})
	ask := func() {
		done, err := table.Allow("a")
		if err != nil {
			t.Fatal(err)
		}
		done(nil)
	}
	if got := testing.AllocsPerRun(1000, ask); got > 2 {
		t.Errorf("%v allocations, want at most 2", got)
	}
}

func BenchmarkAllow(b *testing.B) {
	table := breaker.New(breaker.Spec{})
	b.ReportAllocs()
	for b.Loop() {
		done, _ := table.Allow("a")
		done(nil)
	}
}
