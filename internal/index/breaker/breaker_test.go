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
	"micronode/internal/index/breaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	window   = 30 * time.Second
	cooldown = 10 * time.Second
	moment   = time.Nanosecond
)

// bed is a table with the usual spec, in fake time.
type bed struct {
	*breaker.Table
	t      *testing.T
	opened int
}

func bubble(t *testing.T, spec breaker.Spec, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{Table: breaker.New(spec), t: t}
		b.OnOpen = func() {
			b.opened++
			_ = b.Counts() // nothing is locked
			_ = b.State("a")
		}
		test(b)
	})
}

// ask asks a target that answers so. It fails the test if it may not be asked.
func (b *bed) ask(key string, results ...error) {
	b.t.Helper()
	for i, result := range results {
		done, err := b.Allow(key)
		if err != nil {
			b.t.Fatalf("question %d to %s: %v", i+1, key, err)
		}
		done(result)
	}
}

// trip opens a breaker.
func (b *bed) trip(key string) {
	b.t.Helper()
	b.ask(key, fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
	b.is(key, breaker.Open)
}

func (b *bed) is(key, state string) {
	b.t.Helper()
	if got := b.State(key); got != state {
		b.t.Errorf("%s is %s, want %s", key, got, state)
	}
}

// refuses checks that a target may not be asked, and when to come back.
func (b *bed) refuses(key string, after time.Duration) {
	b.t.Helper()
	_, err := b.Allow(key)
	if fault.KindOf(err) != fault.BreakerOpen || fault.RetryAfterOf(err) != after {
		b.t.Errorf("asking for %s: %v, come back in %s; want BreakerOpen and %s", key, err, fault.RetryAfterOf(err), after)
	}
}

func (b *bed) counts(closed, halfOpen, open int) {
	b.t.Helper()
	want := map[string]int{breaker.Closed: closed, breaker.HalfOpen: halfOpen, breaker.Open: open}
	if got := b.Counts(); !maps.Equal(got, want) {
		b.t.Errorf("counts %v, want %v", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *bed) {
		b.is("a", breaker.Closed)
		b.counts(0, 0, 0)
		b.ask("a", nil, fault.Timeout, fault.Timeout, fault.Timeout) // four are not enough
		b.is("a", breaker.Closed)
		b.ask("a", nil, fault.Timeout) // at the sixth it is 4 of 6
		b.is("a", breaker.Open)
		b.ask("b", nil)
		b.counts(1, 0, 1)
		time.Sleep(4 * time.Second)
		b.refuses("a", 6*time.Second)
		if b.opened != 1 {
			b.t.Errorf("told %d times that a breaker opened, want once", b.opened)
		}

		time.Sleep(6*time.Second + moment)
		b.counts(1, 1, 0)
		first, err := b.Allow("a")
		if err != nil {
			b.t.Fatal(err)
		}
		second, err := b.Allow("a")
		if err != nil {
			b.t.Fatal(err)
		}
		b.refuses("a", fault.BreakerOpen.RetryAfter()) // both probes are out
		first(nil)
		b.is("a", breaker.HalfOpen)
		second(nil)
		b.is("a", breaker.Closed)
		b.ask("a", nil)
	})
}

func TestFailedProbeOpensAgain(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *bed) {
		b.trip("a")
		time.Sleep(cooldown + moment)
		b.ask("a", nil, errors.New("odd"))
		b.is("a", breaker.Open)
		b.refuses("a", cooldown)
		if b.opened != 2 {
			b.t.Errorf("told %d times that a breaker opened, want twice", b.opened)
		}
	})
}

func TestExactlyTheThresholdIsNotAbove(t *testing.T) {
	bubble(t, breaker.Spec{Threshold: 0.5, Least: 4}, func(b *bed) {
		b.ask("a", nil, nil, fault.Timeout, fault.Timeout)
		b.is("a", breaker.Closed)
		b.ask("a", fault.Timeout)
		b.is("a", breaker.Open)
	})
}

func TestCancelledIsNeutral(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *bed) {
		for range 100 {
			b.ask("a", context.Canceled, fault.New("hedge", fault.Canceled, "others were faster"))
		}
		b.is("a", breaker.Closed)
		b.ask("a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		b.is("a", breaker.Closed) // it is no failure, and no success that would dilute them
		b.ask("a", fault.Timeout)
		b.is("a", breaker.Open)

		time.Sleep(cooldown + moment)
		b.ask("a", context.Canceled, context.Canceled, context.Canceled)
		b.is("a", breaker.HalfOpen) // and no result of a probe
		b.ask("a", nil, nil)
		b.is("a", breaker.Closed)
	})
}

func TestNotFoundIsAnAnswer(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *bed) {
		for range 20 {
			b.ask("a", fault.NotFound)
		}
		b.is("a", breaker.Closed)
	})
}

func TestOldFailuresSlideOut(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *bed) {
		b.ask("a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		time.Sleep(window - 1)
		b.is("a", breaker.Closed)
		time.Sleep(moment)
		b.ask("a", fault.Timeout) // the other four are gone
		b.is("a", breaker.Closed)
	})
	bubble(t, breaker.Spec{}, func(b *bed) {
		b.ask("a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		time.Sleep(window - 1)
		b.ask("a", fault.Timeout) // they are not
		b.is("a", breaker.Open)
	})
}

func TestTargetsAreApart(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *bed) {
		b.trip("a")
		b.ask("b", nil)
		b.is("b", breaker.Closed)
		b.counts(1, 0, 1)
	})
}

func TestTableIsBounded(t *testing.T) {
	bubble(t, breaker.Spec{Max: 3}, func(b *bed) {
		b.trip("open")
		b.ask("x", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		b.ask("y", nil)
		b.ask("x", context.Canceled) // so y was not used for longest
		for i := range 100 {
			b.ask(fmt.Sprint(i), nil)
			if b.State("open") != breaker.Open {
				b.t.Fatalf("the open breaker was forgotten after %d strangers", i+1)
			}
			b.ask("x", context.Canceled)
		}
		b.counts(2, 0, 1)
		b.ask("x", fault.Timeout)
		b.is("x", breaker.Open) // its four failures were not forgotten
		b.trip("z")
		b.counts(0, 0, 3)
		b.ask("new", nil)
		b.is("open", breaker.Closed) // all were open, so the oldest went
		b.counts(1, 0, 2)
	})
}

func TestRollForgets(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *bed) {
		b.trip("a")
		b.ask("b", nil)
		time.Sleep(window)
		b.Roll(time.Now())
		b.counts(1, 1, 0)
		time.Sleep(moment)
		b.Roll(time.Now())
		b.counts(0, 1, 0) // a closed one whose window is empty is as good as new
		time.Sleep(9*window + cooldown - 1)
		b.Roll(time.Now())
		b.counts(0, 1, 0)
		time.Sleep(moment)
		b.Roll(time.Now())
		b.counts(0, 0, 0)
	})
}

// A probe that never comes back must not lock its target out for ever.
func TestLostProbesAreForgotten(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *bed) {
		b.trip("a")
		time.Sleep(cooldown + 1)
		for range 2 {
			if _, err := b.Allow("a"); err != nil {
				b.t.Fatal(err)
			}
		}
		for range 11 {
			time.Sleep(window)
			b.Roll(time.Now())
			_, _ = b.Allow("a") // who asks in vain does not keep it so
		}
		b.ask("a", nil)
		b.is("a", breaker.Closed)
	})
}

func TestReconfigure(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *bed) {
		b.trip("a")
		b.ask("b", fault.Timeout)
		b.ask("c", nil)
		b.Reconfigure(breaker.Spec{Least: 1, Probes: 1, Cooldown: time.Second, Max: 2})
		b.counts(1, 0, 1)
		b.is("a", breaker.Open) // who is open stays so
		time.Sleep(2 * time.Second)
		b.refuses("a", 8*time.Second)
		b.ask("c", fault.Timeout) // one is enough now
		b.is("c", breaker.Open)
		time.Sleep(time.Second + moment)
		b.ask("c", nil)
		b.is("c", breaker.Closed)
		time.Sleep(cooldown)
		b.ask("a", nil)
		b.is("a", breaker.HalfOpen) // it still needs two
		b.ask("a", nil)
		b.is("a", breaker.Closed)
		b.ask("a", fault.Timeout) // and is under the new spec from then on
		b.is("a", breaker.Open)
	})
}

func TestConcurrentUse(t *testing.T) {
	table := breaker.New(breaker.Spec{Max: 8, Least: 2, Cooldown: time.Nanosecond, Probes: 1})
	var opened sync.Map
	table.OnOpen = func() { opened.Store("once", true) }
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
					table.Roll(time.Now())
				case 20:
					table.Reconfigure(breaker.Spec{Max: 8, Least: 2, Cooldown: time.Nanosecond, Probes: 1})
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

// A look-up asks for every target. What a known closed one costs are the two
// closures of done, ours and gobreaker's.
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
