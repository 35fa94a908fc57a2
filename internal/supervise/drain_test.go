package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// nodeStages is the stages of the node, with more total than the budgets need.
func nodeStages() supervise.Options {
	return supervise.Options{
		Stages: []supervise.Stage{{Name: "admin", DrainTimeout: 200 * ms}, {Name: "state", DrainTimeout: 300 * ms},
			{Name: "workers", DrainTimeout: 500 * ms}, {Name: "listeners", DrainTimeout: 400 * ms}},
		DrainTimeout: 3 * time.Second, Grace: 50 * ms, Jitter: lowest,
	}
}

// stepLog is a list that several goroutines write to.
type stepLog struct {
	mu   sync.Mutex
	list []string
}

func (s *stepLog) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, fmt.Sprintf(format, args...))
}

func TestStartInOrderDrainInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log stepLog
		o := nodeStages()
		o.OnEvent = func(e supervise.Event) {
			switch e.Type {
			case supervise.EventStarted:
				log.add("+%s", e.Name)
			case supervise.EventDraining, supervise.EventStageDrained, supervise.EventStopped:
				log.add("%s %s", e.Type, e.Stage)
			}
		}
		w := newHarness(t, o)
		for _, stage := range []string{"listeners", "admin", "workers", "state"} { // the order of Add does not matter
			w.add(supervise.Service{Name: stage + "1", Stage: stage, Serve: func(ctx context.Context) error {
				<-ctx.Done()
				if context.Cause(ctx) != supervise.ErrDraining {
					t.Errorf("%s: cause %v", stage, context.Cause(ctx))
				}
				time.Sleep(10 * ms)
				log.add("-%s", stage)
				return nil
			}})
		}
		testkit.Equal(t, "phase", w.Phase(), supervise.PhaseStarting)
		testkit.Equal(t, "state", w.status("admin1").State, supervise.StateStarting)
		w.run(t.Context())
		synctest.Wait()
		testkit.Equal(t, "phase", w.Phase(), supervise.PhaseRunning)
		r := w.finish()
		testkit.Equal(t, "phase", w.Phase(), supervise.PhaseStopped)
		testkit.Equal(t, "state", w.status("admin1").State, supervise.StateStopped)
		testkit.EqualLists(t, "steps", log.list, []string{"+admin1", "+state1", "+workers1", "+listeners1",
			"draining ", "-listeners", "stage drained listeners", "-workers", "stage drained workers",
			"-state", "stage drained state", "-admin", "stage drained admin", "stopped "})

		testkit.Equal(t, "took", r.Took, 40*ms)
		testkit.Equal(t, "canceled", w.count("admin1").Canceled, 1)
	})
}

// Readiness must have flipped before anything stops.
func TestDrainingEventComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, ready := oneStage(), true
		var sup *supervise.Supervisor
		o.OnEvent = func(e supervise.Event) {
			if e.Type == supervise.EventDraining {
				ready = false
				testkit.Equal(t, "reason", e.Detail, "test over")
				testkit.Equal(t, "phase", sup.Phase(), supervise.PhaseDraining)
				testkit.Equal(t, "state before its stage is reached", sup.Status()[0].State, supervise.StateRunning)
			}
		}
		w := newHarness(t, o)
		sup = w.Supervisor
		stopped := make(chan struct{})
		w.add(supervise.Service{Name: "hook", Serve: func(context.Context) error { <-stopped; return nil },
			Drain: func(context.Context) error {
				testkit.Equal(t, "ready in the hook", ready, false)
				testkit.Equal(t, "state", w.status("hook").State, supervise.StateDraining)
				close(stopped)
				return nil
			}})
		w.add(supervise.Service{Name: "plain", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			testkit.Equal(t, "ready at the end of the context", ready, false)
			return nil
		}})
		w.run(t.Context())
		synctest.Wait()
		w.finish()
		testkit.Equal(t, "hook", w.taskReport("hook").End, supervise.EndDrained)
		testkit.Equal(t, "plain", w.taskReport("plain").End, supervise.EndCanceled)
		testkit.Equal(t, "counts", w.count("hook"), supervise.Count{Service: "node", Kind: "hook", Spawned: 2, Completed: 2})
	})
}

func TestHookLeavesServeAloneUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		began := time.Now()
		w.add(supervise.Service{Name: "s", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			testkit.Equal(t, "context ended after", time.Since(began), time.Second)
			testkit.Equal(t, "cause", context.Cause(ctx), supervise.ErrAborted)
			return nil
		}, Drain: func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			testkit.Equal(t, "deadline", deadline.Sub(began), time.Second)
			return nil
		}})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		testkit.Equal(t, "took", r.Took, time.Second)
		testkit.EqualLists(t, "aborted", r.Aborted, []string{"s"})
		testkit.EqualLists(t, "left", r.LeftRunning, nil)
		testkit.Equal(t, "counted", w.count("s").Aborted, 1)
		testkit.Equal(t, "ending", w.taskReport("s"), supervise.TaskReport{Service: "node", Name: "s", End: supervise.EndAborted, Tasks: 1, After: time.Second})
		testkit.Equal(t, "events", w.of("s"), "started, aborted")
	})
}

// A task that ignores its context is left behind, whatever stage it is in, and
// the drain continues within the budgets.
func TestStragglersAreNamedAndLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := func(context.Context) error { <-release; return nil }
		w := newHarness(t, nodeStages())
		w.add(supervise.Service{Name: "admin", Stage: "admin", Serve: untilDone})
		w.add(supervise.Service{Name: "work", Stage: "workers", Serve: stuck})
		w.add(supervise.Service{Name: "fine", Stage: "workers", Serve: untilDone})
		w.add(supervise.Service{Name: "http", Stage: "listeners", Serve: untilDone, Drain: stuck})
		readers := w.group(supervise.GroupSpec{Service: "overlay", Kind: "reader", Stage: "listeners", Max: 9})
		for range 3 {
			if err := readers.Go(stuck); err != nil {
				t.Fatal(err)
			}
		}
		w.run(t.Context())
		synctest.Wait()
		w.Shutdown("test over")
		<-w.ended

		r := w.report
		testkit.EqualLists(t, "aborted", r.Aborted, []string{"http", "http (drain hook)", "overlay.reader (3 tasks)", "work"})
		testkit.EqualLists(t, "left", r.LeftRunning, []string{"http (drain hook)", "overlay.reader (3 tasks)", "work"})
		testkit.Equal(t, "took", r.Took, 400*ms+50*ms+500*ms+50*ms)
		testkit.Equal(t, "admin, after all that", w.taskReport("admin").End, supervise.EndCanceled)
		testkit.Equal(t, "group", w.taskReport("reader"), supervise.TaskReport{Service: "overlay", Name: "reader", End: supervise.EndLeftRunning, Tasks: 3, After: 450 * ms})
		testkit.Equal(t, "counted", w.count("reader").Aborted, 3)
		testkit.Equal(t, "counted", w.count("http").Aborted, 2)
		testkit.Equal(t, "events of work", w.of("work"), "started, aborted, left running")
		testkit.Equal(t, "events of readers", w.of("reader"), "aborted, left running")
		testkit.Equal(t, "events of http", w.of("http"), "started, aborted, left running")

		running := func() (n int) {
			for _, task := range w.Tasks() {
				n += task.Running
			}
			return n
		}
		testkit.Equal(t, "still running", running(), 5)
		testkit.Equal(t, "state", w.status("work").State, supervise.StateDraining)
		before := len(w.all())
		close(release)
		synctest.Wait()
		testkit.Equal(t, "running once released", running(), 0)
		testkit.Equal(t, "state once released", w.status("work").State, supervise.StateStopped)
		testkit.Equal(t, "events after the last", len(w.all()), before)
		w.checkCounts()
	})
}

// One slow stage does not take the time of the ones after it, and the total
// holds.
func TestTotalHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := supervise.Options{DrainTimeout: time.Second, Grace: 100 * ms, Jitter: lowest,
			Stages: []supervise.Stage{{Name: "admin", DrainTimeout: 500 * ms}, {Name: "state"}, {Name: "greedy"}}}
		w := newHarness(t, o)
		slow := func(ctx context.Context) error { <-ctx.Done(); time.Sleep(90 * ms); return nil }
		w.add(supervise.Service{Name: "admin", Stage: "admin", Serve: slow})
		w.add(supervise.Service{Name: "state", Stage: "state", Serve: slow})
		w.add(supervise.Service{Name: "greedy", Stage: "greedy", Serve: func(context.Context) error { <-release; return nil }})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		testkit.EqualLists(t, "left", r.LeftRunning, []string{"greedy"})
		testkit.EqualLists(t, "aborted", r.Aborted, []string{"greedy"})
		testkit.Equal(t, "greedy's budget", r.Stages[0].Timeout, 500*ms)
		testkit.Equal(t, "state's budget", r.Stages[1].Timeout, 100*ms)
		testkit.Equal(t, "took", r.Took, 500*ms+100*ms+90*ms+90*ms)
		close(release)
	})
}

func TestTotalHoldsWhenAllAreStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := nodeStages()
		o.DrainTimeout, o.Grace = 100*ms, 0 // a default grace that does not fit is cut
		w := newHarness(t, o)
		for _, st := range o.Stages {
			w.add(supervise.Service{Name: st.Name, Stage: st.Name, Serve: func(context.Context) error { <-release; return nil }})
		}
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		testkit.Equal(t, "left", len(r.LeftRunning), 4)
		testkit.Equal(t, "took", r.Took, 100*ms)
		close(release)
	})
}

func TestShutdownIsNeverLost(t *testing.T) {
	t.Run("before Run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, oneStage())
			w.add(supervise.Service{Name: "s", Serve: func(context.Context) error { t.Error("started"); return nil },
				Drain: func(context.Context) error { t.Error("drained"); return nil }})
			w.Shutdown("changed my mind")
			w.run(t.Context())
			r := w.finish()
			testkit.Equal(t, "reason", r.Reason, "changed my mind")
			testkit.Equal(t, "ending", w.taskReport("s").End, supervise.EndNotStarted)
			testkit.Equal(t, "state", w.status("s").State, supervise.StateStopped)
			testkit.Equal(t, "events", w.of("s"), "")
		})
	})
	t.Run("context ended before Run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, oneStage())
			w.add(supervise.Service{Name: "s", Serve: func(context.Context) error { t.Error("started"); return nil }})
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errors.New("SIGTERM"))
			w.run(ctx)
			<-w.ended
			testkit.Equal(t, "reason", w.report.Reason, "SIGTERM")
		})
	})
	t.Run("while it starts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := nodeStages()
			var sup *supervise.Supervisor
			o.OnEvent = func(e supervise.Event) {
				if e.Name == "state" && e.Type == supervise.EventStarted {
					sup.Shutdown("") // from inside the supervisor, as it starts
				}
			}
			w := newHarness(t, o)
			sup = w.Supervisor
			for _, st := range o.Stages {
				w.add(supervise.Service{Name: st.Name, Stage: st.Name, Serve: untilDone})
			}
			w.run(t.Context())
			<-w.ended
			testkit.Equal(t, "reason", w.report.Reason, "shutdown requested")
			testkit.Equal(t, "admin", w.taskReport("admin").End, supervise.EndCanceled)
			testkit.Equal(t, "state", w.taskReport("state").End, supervise.EndCanceled)
			testkit.Equal(t, "workers", w.taskReport("workers").End, supervise.EndNotStarted)
		})
	})
	t.Run("many at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, oneStage())
			w.add(supervise.Service{Name: "s", Serve: untilDone})
			ctx, cancel := context.WithCancel(t.Context())
			w.run(ctx)
			synctest.Wait()
			w.Shutdown("first")
			for range 10 {
				go w.Shutdown("again")
			}
			cancel()
			r := w.finish()
			w.Shutdown("after")
			testkit.Equal(t, "reason", r.Reason, "first")
			testkit.Equal(t, "draining events", len(w.only(supervise.EventDraining)), 1)
		})
	})
	t.Run("by the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, oneStage())
			w.add(supervise.Service{Name: "s", Serve: untilDone})
			ctx, cancel := context.WithCancel(t.Context())
			w.run(ctx)
			synctest.Wait()
			cancel()
			<-w.ended
			testkit.Equal(t, "reason", w.report.Reason, "context canceled")
			testkit.Equal(t, "error", w.err, nil)
			testkit.Equal(t, "ending", w.taskReport("s").End, supervise.EndCanceled)
		})
	})
}

func TestHooksThatMisbehave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		panicky := func(context.Context) error { panic("hook") }
		w.add(supervise.Service{Name: "panics", Serve: untilDone, Drain: panicky})
		w.add(supervise.Service{Name: "errs", Serve: untilDone, Drain: func(context.Context) error { return errBoom }})
		w.add(supervise.Service{Name: "obeys its deadline", Serve: untilDone, Drain: untilDone})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		testkit.Equal(t, "took", r.Took, time.Second)
		testkit.EqualLists(t, "left", r.LeftRunning, nil)
		testkit.EqualLists(t, "aborted", r.Aborted, []string{"panics", "errs", "obeys its deadline", "obeys its deadline (drain hook)"})
		testkit.Equal(t, "panic counted", w.count("panics").Panicked, 1)
		testkit.Equal(t, "error counted", w.count("errs").Failed, 1)
		testkit.Equal(t, "abort counted", w.count("obeys its deadline").Aborted, 2)
		if _, ok := w.taskReport("panics").Err.(*supervise.Panic); !ok {
			t.Errorf("the report has %v", w.taskReport("panics").Err)
		}
		for _, e := range w.only(supervise.EventFailed) {
			testkit.Equal(t, "detail of "+e.Name, e.Detail, "drain hook")
		}
	})
}

// Until its own stage is reached, a service is kept alive: those that drain
// before it may need it.
func TestServicesAreKeptAliveUntilTheirStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, nodeStages())
		w.add(supervise.Service{Name: "http", Stage: "listeners", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(300 * ms)
			return nil
		}})
		lives := 0
		w.add(supervise.Service{Name: "store", Stage: "state", Serve: func(ctx context.Context) error {
			if lives++; lives == 1 && sleep(ctx, time.Second+50*ms) {
				return errBoom
			}
			return untilDone(ctx)
		}})
		w.run(t.Context())
		time.Sleep(time.Second)
		r := w.finish()
		testkit.Equal(t, "lives", lives, 2)
		testkit.Equal(t, "ending", w.taskReport("store").End, supervise.EndCanceled)
		testkit.Equal(t, "took", r.Took, 300*ms)
	})
}

func TestBackoffEndsWithTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := oneStage()
		o.Jitter = highest
		w := newHarness(t, o)
		lives := 0
		asked := 0
		w.add(supervise.Service{Name: "s", Serve: func(context.Context) error { lives++; return errBoom },
			Drain: func(context.Context) error { asked++; return nil }})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		testkit.Equal(t, "took", r.Took, 0)
		testkit.Equal(t, "lives", lives, 1)
		testkit.Equal(t, "asked", asked, 1)
		testkit.Equal(t, "ending", w.taskReport("s").End, supervise.EndBackoff)
		testkit.Equal(t, "restarts", r.Restarts, 0)
	})
}

func TestFailureWhileDrainingIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		stop := make(chan struct{})
		w.add(supervise.Service{Name: "s", Serve: func(context.Context) error { <-stop; return errBoom },
			Drain: func(context.Context) error { close(stop); return nil }, Restart: noRestart(supervise.Fatal)})
		w.add(supervise.Service{Name: "late", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(1050 * ms) // past the deadline, within the grace
			panic("too late")
		}})
		w.run(t.Context())
		synctest.Wait()
		w.finish() // no error: a failure during the drain is not fatal
		testkit.Equal(t, "ending", w.taskReport("s").End, supervise.EndFailed)
		testkit.Equal(t, "error", w.taskReport("s").Err, errBoom)
		testkit.Equal(t, "events", w.of("s"), "started, failed")
		testkit.Equal(t, "ending", w.taskReport("late").End, supervise.EndAborted)
		testkit.Equal(t, "events", w.of("late"), "started, aborted, failed")
		testkit.Equal(t, "counted", w.count("late"), supervise.Count{Service: "node", Kind: "late", Spawned: 1, Aborted: 1})
	})
}

// OnEvent may call everything, and a panic in it loses the event, not the node.
func TestObserverMayCallTheSupervisorAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := oneStage()
		var sup *supervise.Supervisor
		o.OnEvent = func(e supervise.Event) {
			sup.Status()
			sup.Tasks()
			sup.Counts()
			sup.Phase()
			_ = sup.Kill("none", 0)
			if g, err := sup.NewGroup(supervise.GroupSpec{Service: "node", Kind: "k", Stage: "all", Max: 1}); err == nil {
				_ = g.Go(untilDone)
				g.Close()
			}
			if e.Type == supervise.EventFailed {
				panic("observer")
			}
		}
		w := newHarness(t, o)
		sup = w.Supervisor
		w.add(supervise.Service{Name: "s", Serve: failing(time.Second)})
		w.run(t.Context())
		time.Sleep(10 * time.Second)
		testkit.Equal(t, "state", w.status("s").Degraded, true)
		r := w.finish()
		if _, ok := r.ObserverErr.(*supervise.Panic); !ok {
			t.Errorf("the report has %v", r.ObserverErr)
		}
		if !strings.Contains(r.String(), "\nOnEvent: panic: observer\n") {
			t.Errorf("the report says:\n%s", r)
		}
		if n := len(w.Tasks()); n > 2 {
			t.Errorf("closed groups are kept: %d tasks", n)
		}
	})
}

// No event is emitted after Run has returned, even if the observer is slow.
func TestRunWaitsForTheObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, heard := oneStage(), make(chan struct{})
		o.OnEvent = func(e supervise.Event) {
			if e.Type == supervise.EventFailed {
				time.Sleep(time.Minute)
				close(heard)
			}
		}
		w := newHarness(t, o)
		w.add(supervise.Service{Name: "s", Serve: func(ctx context.Context) error { <-ctx.Done(); panic("leaving") }})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		select {
		case <-heard:
		default:
			t.Error("Run returned while the observer was being told")
		}
		testkit.EqualLists(t, "left", r.LeftRunning, nil) // the service has ended; only its event is slow
	})
}

func TestEventsAreInOrderOfSeq(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		for _, name := range []string{"a", "b", "c"} {
			w.add(supervise.Service{Name: name, Serve: failing(10 * ms)})
		}
		w.run(t.Context())
		time.Sleep(2 * time.Second)
		w.finish()
		all := w.all()
		testkit.Equal(t, "last", all[len(all)-1].Type, supervise.EventStopped)
		slices.SortFunc(all, func(a, b supervise.Event) int { return int(a.Seq) - int(b.Seq) })
		for i, e := range all {
			testkit.Equal(t, "seq", e.Seq, uint64(i+1))
			if i > 0 && e.Time.Before(all[i-1].Time) {
				t.Errorf("event %d is before the one before it", i)
			}
		}
	})
}

func TestCausesAreTyped(t *testing.T) {
	for _, err := range []error{supervise.ErrDraining, supervise.ErrAborted, supervise.ErrClosed} {
		testkit.Equal(t, err.Error(), fault.KindOf(err), fault.Canceled)
	}
	testkit.Equal(t, "killed", fault.KindOf(supervise.ErrKilled), fault.Transient)
}
