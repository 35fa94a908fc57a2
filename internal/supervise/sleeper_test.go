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
)

func TestSleeperTakesATurnWhenItIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.run(t.Context())
		g := w.group(readers(1))
		var s supervise.Sleeper
		s.Wake() // nobody's task yet
		turns := 0
		equal(t, "enlist", g.Enlist(&s, func(context.Context) supervise.Next {
			if turns++; turns == 3 {
				return supervise.Done
			}
			return supervise.Sleep
		}), nil)
		synctest.Wait()
		equal(t, "turns before it is woken", turns, 0)
		equal(t, "another beside it", fault.KindOf(g.Go(untilDone)), fault.Busy)
		for want := 1; want <= 3; want++ {
			s.Wake()
			synctest.Wait()
			equal(t, "turns", turns, want)
		}
		s.Wake() // it is over
		synctest.Wait()
		equal(t, "turns after the last", turns, 3)
		equal(t, "wait", g.Wait(t.Context()), nil)
		w.finish()
		equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 1, Completed: 1})
	})
}

func TestSleeperThatIsWokenInItsTurnTakesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.run(t.Context())
		g := w.group(readers(1))
		var s supervise.Sleeper
		turns := 0
		equal(t, "enlist", g.Enlist(&s, func(ctx context.Context) supervise.Next {
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
		equal(t, "turns", turns, 2)
		g.Close()
		synctest.Wait()
		equal(t, "turns after the end", turns, 3)
		w.finish()
	})
}

// A turn that is taken here is over when Here returns, and what it leaves is done
// on a goroutine of its own.
func TestSleeperTakesATurnHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.run(t.Context())
		g := w.group(readers(1))
		var s supervise.Sleeper
		var turns []string
		note := func(name string, next supervise.Next) func(context.Context) supervise.Next {
			return func(context.Context) supervise.Next { turns = append(turns, name); return next }
		}
		s.Here(note("nobody's", supervise.Sleep))
		equal(t, "enlist", g.Enlist(&s, func(context.Context) supervise.Next {
			turns = append(turns, "usual")
			if len(turns) < 6 {
				return supervise.Sleep
			}
			return supervise.Done
		}), nil)
		s.Here(note("here", supervise.Sleep))
		sameList(t, "at once", turns, []string{"here"})
		s.Here(note("here", supervise.Fresh))
		synctest.Wait()
		sameList(t, "and the rest", turns, []string{"here", "here", "usual"})
		s.Here(func(context.Context) supervise.Next {
			turns = append(turns, "woken")
			s.Here(note("not here", supervise.Sleep)) // it is awake, so this is a wake
			return supervise.Sleep
		})
		synctest.Wait()
		sameList(t, "woken meanwhile", turns, []string{"here", "here", "usual", "woken", "usual"})
		s.Wake()
		synctest.Wait()
		equal(t, "the last", turns[len(turns)-1], "usual")
		s.Here(note("over", supervise.Sleep))
		equal(t, "turns", len(turns), 6)
		w.finish()
		equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 1, Completed: 1})
	})
}

// Whoever wakes a sleeper is sure of a turn that begins afterwards, and no two
// turns ever overlap.
func TestNoWakeIsLost(t *testing.T) {
	w := newWorld(t, oneStage())
	g := w.group(readers(1))
	var s supervise.Sleeper
	var due, taken atomic.Int64
	busy := 0 // the race detector looks after it
	turn := func(ctx context.Context) supervise.Next {
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
	err := g.Enlist(&s, turn)
	equal(t, "enlist", err, nil)
	const wakers, each = 4, 2000
	var all sync.WaitGroup
	for i := range wakers {
		all.Go(func() {
			for range each {
				due.Add(1)
				if i%2 == 0 {
					s.Wake()
				} else {
					s.Here(turn)
				}
			}
		})
	}
	all.Wait()
	for end := time.Now().Add(20 * time.Second); taken.Load() < wakers*each; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d of %d were taken", taken.Load(), wakers*each)
		}
	}
	g.Close()
	equal(t, "wait", g.Wait(t.Context()), nil)
}

// A sleeper may be woken, and end, while it is still being enlisted. Those that
// were enlisted before it are found all the same when the group ends.
func TestSleeperThatEndsWhileItIsEnlisted(t *testing.T) {
	w := newWorld(t, oneStage())
	g := w.group(readers(2))
	var patient supervise.Sleeper
	equal(t, "enlist", g.Enlist(&patient, func(context.Context) supervise.Next { return supervise.Done }), nil)
	for range 2000 {
		var hasty supervise.Sleeper
		var over atomic.Bool
		turn := func(context.Context) supervise.Next { over.Store(true); return supervise.Done }
		var waker sync.WaitGroup
		waker.Go(func() {
			for !over.Load() {
				hasty.Here(turn)
				runtime.Gosched()
			}
		})
		equal(t, "enlist", g.Enlist(&hasty, turn), nil)
		waker.Wait()
	}
	g.Close()
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	equal(t, "wait", g.Wait(soon), nil)
}

// One that goes on afresh has another goroutine, and leaves its stack behind.
func TestSleeperGoesOnAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.run(t.Context())
		g := w.group(readers(1))
		var s supervise.Sleeper
		var turns []string
		equal(t, "enlist", g.Enlist(&s, func(context.Context) supervise.Next {
			stack := make([]byte, 64)
			stack = stack[:runtime.Stack(stack, false)]
			turns = append(turns, string(stack[:len("goroutine ")+8]))
			if len(turns) == 1 {
				return supervise.Fresh
			}
			return supervise.Done
		}), nil)
		s.Wake()
		synctest.Wait()
		equal(t, "turns", len(turns), 2)
		if turns[0] == turns[1] {
			t.Error("both on the same goroutine:", turns)
		}
		w.finish()
		equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 1, Completed: 1})
	})
}

func TestSleeperCapturesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.run(t.Context())
		g := w.group(readers(9))
		var panics, leaves, here supervise.Sleeper
		equal(t, "enlist", g.Enlist(&panics, func(context.Context) supervise.Next { panic("reader") }), nil)
		equal(t, "enlist", g.Enlist(&leaves, func(context.Context) supervise.Next { runtime.Goexit(); return supervise.Sleep }), nil)
		equal(t, "enlist", g.Enlist(&here, func(context.Context) supervise.Next { return supervise.Sleep }), nil)
		panics.Wake()
		leaves.Wake()
		here.Here(func(context.Context) supervise.Next { panic("writer") }) // whose caller goes on
		synctest.Wait()
		equal(t, "failures told", len(w.only(supervise.EventFailed)), 3)
		equal(t, "wait", g.Wait(t.Context()), nil)
		w.finish()
		equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 3, Failed: 1, Panicked: 2})
	})
}

// A stage waits for those that sleep, and at the deadline they are woken, so
// that they can end.
func TestSleepersAreWokenAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		spec := readers(9)
		spec.Finish = true
		g := w.group(spec)
		var all [3]supervise.Sleeper
		var causes []error
		var mu sync.Mutex
		for i := range all {
			equal(t, "enlist", g.Enlist(&all[i], func(ctx context.Context) supervise.Next {
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
		equal(t, "woken", len(causes), 2)
		equal(t, "cause", causes[0], supervise.ErrAborted)
		sameList(t, "aborted", r.Aborted, []string{"overlay.reader (2 tasks)"})
		equal(t, "left", len(r.LeftRunning), 0)
		equal(t, "enlist after it", fault.KindOf(g.Enlist(&all[1], nil)), fault.Canceled)
	})
}

// A quiet connection wakes up every few seconds, and there are ten thousand.
func TestWakingAllocatesNothing(t *testing.T) {
	w := newWorld(t, oneStage())
	g := w.group(readers(1))
	var s supervise.Sleeper
	turn := make(chan struct{})
	equal(t, "enlist", g.Enlist(&s, func(ctx context.Context) supervise.Next {
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
	equal(t, "wait", g.Wait(t.Context()), nil)
}
