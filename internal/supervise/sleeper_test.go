package supervise_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestSleeperTakesATurnWhenItIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.run(t.Context())
		g := w.group(readerGroup(1))
		var s supervise.Sleeper
		s.Wake() // not added to a group yet
		turns := 0
		testkit.Equal(t, "enlist", g.AddSleeper(&s, func(context.Context) supervise.TurnResult {
			if turns++; turns == 3 {
				return supervise.Done
			}
			return supervise.Sleep
		}), nil)

		synctest.Wait()
		testkit.Equal(t, "turns before it is woken", turns, 0)
		testkit.Equal(t, "another beside it", fault.KindOf(g.Go(untilDone)), fault.Busy)
		for want := 1; want <= 3; want++ {
			s.Wake()
			synctest.Wait()
			testkit.Equal(t, "turns", turns, want)
		}
		s.Wake() // it is over
		synctest.Wait()
		testkit.Equal(t, "turns after the last", turns, 3)
		testkit.Equal(t, "wait", g.Wait(t.Context()), nil)
		w.finish()
		testkit.Equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 1, Completed: 1})
	})
}

func TestSleeperThatIsWokenInItsTurnTakesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.run(t.Context())
		g := w.group(readerGroup(1))
		var s supervise.Sleeper
		turns := 0
		testkit.Equal(t, "enlist", g.AddSleeper(&s, func(ctx context.Context) supervise.TurnResult {
			turns++
			if ctx.Err() != nil {
				return supervise.Done
			}
			time.Sleep(time.Second)
			return supervise.Sleep
		}), nil)

		s.Wake()
		time.Sleep(100 * ms)
		s.Wake()
		s.Wake() // two wakes in one turn are one
		time.Sleep(10 * time.Second)
		synctest.Wait()
		testkit.Equal(t, "turns", turns, 2)
		g.Close()
		synctest.Wait()
		testkit.Equal(t, "turns after the end", turns, 3)
		w.finish()
	})
}

// A turn that runs inline is over when RunInline returns, and what it leaves is
// done on a goroutine of its own.
func TestSleeperTakesATurnHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.run(t.Context())
		g := w.group(readerGroup(1))
		var s supervise.Sleeper
		var turns []string
		note := func(name string, next supervise.TurnResult) func(context.Context) supervise.TurnResult {
			return func(context.Context) supervise.TurnResult { turns = append(turns, name); return next }
		}
		s.RunInline(note("nobody's", supervise.Sleep))
		testkit.Equal(t, "enlist", g.AddSleeper(&s, func(context.Context) supervise.TurnResult {
			turns = append(turns, "usual")
			if len(turns) < 6 {
				return supervise.Sleep
			}
			return supervise.Done
		}), nil)

		s.RunInline(note("here", supervise.Sleep))
		testkit.EqualLists(t, "at once", turns, []string{"here"})
		s.RunInline(note("here", supervise.Respawn))
		synctest.Wait()
		testkit.EqualLists(t, "and the rest", turns, []string{"here", "here", "usual"})
		s.RunInline(func(context.Context) supervise.TurnResult {
			turns = append(turns, "woken")
			s.RunInline(note("not here", supervise.Sleep)) // it is awake, so this is a wake
			return supervise.Sleep
		})
		synctest.Wait()
		testkit.EqualLists(t, "woken meanwhile", turns, []string{"here", "here", "usual", "woken", "usual"})
		s.Wake()
		synctest.Wait()
		testkit.Equal(t, "the last", turns[len(turns)-1], "usual")
		s.RunInline(note("over", supervise.Sleep))
		testkit.Equal(t, "turns", len(turns), 6)
		w.finish()
		testkit.Equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 1, Completed: 1})
	})
}

// Every wake is followed by a turn that begins afterwards, and no two turns
// ever overlap.
func TestNoWakeIsLost(t *testing.T) {
	w := newHarness(t, oneStage())
	g := w.group(readerGroup(1))
	var s supervise.Sleeper
	var due, taken atomic.Int64
	busy := 0 // the race detector checks it
	turn := func(ctx context.Context) supervise.TurnResult {
		if busy++; busy != 1 {
			t.Error("two turns at a time")
		}
		taken.Add(due.Swap(0))
		busy--
		if ctx.Err() != nil {
			return supervise.Done
		}
		return supervise.Sleep
	}
	err := g.AddSleeper(&s, turn)
	testkit.Equal(t, "enlist", err, nil)
	const wakers, each = 4, 2000
	var all sync.WaitGroup
	for i := range wakers {
		all.Go(func() {
			for range each {
				due.Add(1)
				if i%2 == 0 {
					s.Wake()
				} else {
					s.RunInline(turn)
				}
			}
		})
	}
	all.Wait()
	testkit.WaitFor(t, "all wakes are taken", func() bool { return taken.Load() >= wakers*each })
	g.Close()
	testkit.Equal(t, "wait", g.Wait(t.Context()), nil)
}

// A sleeper may be woken, and end, while it is still being added. Those that
// were added before it are found all the same when the group ends.
func TestSleeperThatEndsWhileItIsEnlisted(t *testing.T) {
	const hurry = 2000
	w := newHarness(t, oneStage())
	g := w.group(readerGroup(1 + hurry)) // one that has returned Done counts until it is counted out
	var patient supervise.Sleeper
	testkit.Equal(t, "enlist", g.AddSleeper(&patient, func(context.Context) supervise.TurnResult { return supervise.Done }), nil)
	for range hurry {
		var hasty supervise.Sleeper
		var over atomic.Bool
		turn := func(context.Context) supervise.TurnResult { over.Store(true); return supervise.Done }
		var waker sync.WaitGroup
		waker.Go(func() {
			for !over.Load() {
				hasty.RunInline(turn)
				runtime.Gosched()
			}
		})
		err := g.AddSleeper(&hasty, turn)
		if err != nil {
			over.Store(true) // no turn will run
		}
		waker.Wait()
		if err != nil {
			t.Fatal("enlist:", err)
		}
	}
	g.Close()
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	testkit.Equal(t, "wait", g.Wait(soon), nil)
}

// A sleeper that respawns has another goroutine, and leaves its stack behind.
func TestSleeperGoesOnAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.run(t.Context())
		g := w.group(readerGroup(1))
		var s supervise.Sleeper
		var turns []string
		testkit.Equal(t, "enlist", g.AddSleeper(&s, func(context.Context) supervise.TurnResult {
			stack := make([]byte, 64)
			stack = stack[:runtime.Stack(stack, false)]
			turns = append(turns, string(stack[:len("goroutine ")+8]))
			if len(turns) == 1 {
				return supervise.Respawn
			}
			return supervise.Done
		}), nil)

		s.Wake()
		synctest.Wait()
		testkit.Equal(t, "turns", len(turns), 2)
		if turns[0] == turns[1] {
			t.Error("both on the same goroutine:", turns)
		}
		w.finish()
		testkit.Equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 1, Completed: 1})
	})
}

func TestSleeperCapturesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.run(t.Context())
		g := w.group(readerGroup(9))
		var panics, leaves, here supervise.Sleeper
		testkit.Equal(t, "enlist", g.AddSleeper(&panics, func(context.Context) supervise.TurnResult { panic("reader") }), nil)
		testkit.Equal(t, "enlist", g.AddSleeper(&leaves, func(context.Context) supervise.TurnResult { runtime.Goexit(); return supervise.Sleep }), nil)
		testkit.Equal(t, "enlist", g.AddSleeper(&here, func(context.Context) supervise.TurnResult { return supervise.Sleep }), nil)
		panics.Wake()
		leaves.Wake()
		here.RunInline(func(context.Context) supervise.TurnResult { panic("writer") }) // its caller continues
		synctest.Wait()
		testkit.Equal(t, "failures told", len(w.only(supervise.EventFailed)), 3)
		testkit.Equal(t, "wait", g.Wait(t.Context()), nil)
		w.finish()
		testkit.Equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 3, Failed: 1, Panicked: 2})
	})
}

// A stage waits for those that sleep, and at the deadline they are woken, so
// that they can end.
func TestSleepersAreWokenAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		spec := readerGroup(9)
		spec.Finish = true
		g := w.group(spec)
		var all [3]supervise.Sleeper
		var causes []error
		var mu sync.Mutex
		for i := range all {
			testkit.Equal(t, "enlist", g.AddSleeper(&all[i], func(ctx context.Context) supervise.TurnResult {
				mu.Lock()
				defer mu.Unlock()
				if ctx.Err() == nil {
					return supervise.Done
				}
				causes = append(causes, context.Cause(ctx))
				return supervise.Done
			}), nil)

		}
		w.run(t.Context())
		synctest.Wait()
		all[1].Wake() // it ends by itself
		synctest.Wait()
		r := w.finish()
		testkit.Equal(t, "woken", len(causes), 2)
		testkit.Equal(t, "cause", causes[0], supervise.ErrAborted)
		testkit.EqualLists(t, "aborted", r.Aborted, []string{"overlay.reader (2 tasks)"})
		testkit.Equal(t, "left", len(r.LeftRunning), 0)
		testkit.Equal(t, "enlist after it", fault.KindOf(g.AddSleeper(&all[1], nil)), fault.Canceled)
	})
}

// A quiet connection wakes up every few seconds, and there are ten thousand.
func TestWakingAllocatesNothing(t *testing.T) {
	w := newHarness(t, oneStage())
	g := w.group(readerGroup(1))
	var s supervise.Sleeper
	turn := make(chan struct{})
	testkit.Equal(t, "enlist", g.AddSleeper(&s, func(ctx context.Context) supervise.TurnResult {
		if ctx.Err() != nil {
			return supervise.Done
		}
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
		}
		return supervise.Sleep
	}), nil)

	got := testing.AllocsPerRun(200, func() {
		s.Wake()
		<-turn
	})
	if got > 0.5 { // a new goroutine now and then
		t.Errorf("%v allocations a turn", got)
	}
	g.Close()
	testkit.Equal(t, "wait", g.Wait(t.Context()), nil)
}
