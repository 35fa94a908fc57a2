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
)

// house is the stages of the node, with more total than the budgets need.
func house() supervise.Options {
	return supervise.Options{
		Stages: []supervise.Stage{{Name: "admin", Drain: 200 * ms}, {Name: "state", Drain: 300 * ms},
			{Name: "workers", Drain: 500 * ms}, {Name: "listeners", Drain: 400 * ms}},
		Total: 3 * time.Second, Grace: 50 * ms, Jitter: lowest,
	}
}

// steps is a list that several goroutines write to.
type steps struct {
	mu   sync.Mutex
	list []string
}

func (s *steps) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, fmt.Sprintf(format, args...))
}

func TestStartInOrderDrainInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log steps
		o := house()
		o.OnEvent = func(e supervise.Event) {
			switch e.Type {
			case supervise.EventStarted:
				log.add("+%s", e.Name)
			case supervise.EventDraining, supervise.EventStageDrained, supervise.EventStopped:
				log.add("%s %s", e.Type, e.Stage)
			}
		}
		w := newWorld(t, o)
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
		equal(t, "phase", w.Phase(), supervise.PhaseStarting)
		equal(t, "state", w.status("admin1").State, supervise.StateStarting)
		w.run(t.Context())
		synctest.Wait()
		equal(t, "phase", w.Phase(), supervise.PhaseRunning)
		r := w.finish()
		equal(t, "phase", w.Phase(), supervise.PhaseStopped)
		equal(t, "state", w.status("admin1").State, supervise.StateStopped)
		sameList(t, "steps", log.list, []string{"+admin1", "+state1", "+workers1", "+listeners1",
			"draining ", "-listeners", "stage drained listeners", "-workers", "stage drained workers",
			"-state", "stage drained state", "-admin", "stage drained admin", "stopped "})
		equal(t, "took", r.Took, 40*ms)
		equal(t, "canceled", w.count("admin1").Canceled, 1)
	})
}

// Readiness must have flipped before anything stops.
func TestDrainingIsToldFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, ready := oneStage(), true
		var sup *supervise.Supervisor
		o.OnEvent = func(e supervise.Event) {
			if e.Type == supervise.EventDraining {
				ready = false
				equal(t, "reason", e.Detail, "test over")
				equal(t, "phase", sup.Phase(), supervise.PhaseDraining)
				equal(t, "state before its stage is reached", sup.Status()[0].State, supervise.StateRunning)
			}
		}
		w := newWorld(t, o)
		sup = w.Supervisor
		stopped := make(chan struct{})
		w.add(supervise.Service{Name: "hook", Serve: func(context.Context) error { <-stopped; return nil },
			Drain: func(context.Context) error {
				equal(t, "ready in the hook", ready, false)
				equal(t, "state", w.status("hook").State, supervise.StateDraining)
				close(stopped)
				return nil
			}})
		w.add(supervise.Service{Name: "plain", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			equal(t, "ready at the end of the context", ready, false)
			return nil
		}})
		w.run(t.Context())
		synctest.Wait()
		w.finish()
		equal(t, "hook", w.ending("hook").How, supervise.HowDrained)
		equal(t, "plain", w.ending("plain").How, supervise.HowCanceled)
		equal(t, "counts", w.count("hook"), supervise.Count{Service: "node", Kind: "hook", Spawned: 2, Completed: 2})
	})
}

func TestHookLeavesServeAloneUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		began := time.Now()
		w.add(supervise.Service{Name: "s", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			equal(t, "context ended after", time.Since(began), time.Second)
			equal(t, "cause", context.Cause(ctx), supervise.ErrAborted)
			return nil
		}, Drain: func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			equal(t, "deadline", deadline.Sub(began), time.Second)
			return nil
		}})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		equal(t, "took", r.Took, time.Second)
		sameList(t, "aborted", r.Aborted, []string{"s"})
		sameList(t, "left", r.LeftRunning, nil)
		equal(t, "counted", w.count("s").Aborted, 1)
		equal(t, "ending", w.ending("s"), supervise.Ending{Service: "node", Name: "s", How: supervise.HowAborted, Tasks: 1, After: time.Second})
		equal(t, "events", w.of("s"), "started, aborted")
	})
}

// A task that ignores its context is left behind, whatever stage it is in, and
// the walk goes on within the budgets.
func TestStragglersAreNamedAndLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := func(context.Context) error { <-release; return nil }
		w := newWorld(t, house())
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
		sameList(t, "aborted", r.Aborted, []string{"http", "http (drain hook)", "overlay.reader (3 tasks)", "work"})
		sameList(t, "left", r.LeftRunning, []string{"http (drain hook)", "overlay.reader (3 tasks)", "work"})
		equal(t, "took", r.Took, 400*ms+50*ms+500*ms+50*ms)
		equal(t, "admin, after all that", w.ending("admin").How, supervise.HowCanceled)
		equal(t, "group", w.ending("reader"), supervise.Ending{Service: "overlay", Name: "reader", How: supervise.HowLeft, Tasks: 3, After: 450 * ms})
		equal(t, "counted", w.count("reader").Aborted, 3)
		equal(t, "counted", w.count("http").Aborted, 2)
		equal(t, "events of work", w.of("work"), "started, aborted, left running")
		equal(t, "events of readers", w.of("reader"), "aborted, left running")
		equal(t, "events of http", w.of("http"), "started, aborted, left running")

		running := func() (n int) {
			for _, task := range w.Tasks() {
				n += task.Running
			}
			return n
		}
		equal(t, "still running", running(), 5)
		equal(t, "state", w.status("work").State, supervise.StateDraining)
		told := len(w.all())
		close(release)
		synctest.Wait()
		equal(t, "running once released", running(), 0)
		equal(t, "state once released", w.status("work").State, supervise.StateStopped)
		equal(t, "events after the last", len(w.all()), told)
		w.balanced()
	})
}

// One greedy stage does not take the time of the ones after it, and the total
// holds.
func TestTotalHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := supervise.Options{Total: time.Second, Grace: 100 * ms, Jitter: lowest,
			Stages: []supervise.Stage{{Name: "admin", Drain: 500 * ms}, {Name: "state"}, {Name: "greedy"}}}
		w := newWorld(t, o)
		slow := func(ctx context.Context) error { <-ctx.Done(); time.Sleep(90 * ms); return nil }
		w.add(supervise.Service{Name: "admin", Stage: "admin", Serve: slow})
		w.add(supervise.Service{Name: "state", Stage: "state", Serve: slow})
		w.add(supervise.Service{Name: "greedy", Stage: "greedy", Serve: func(context.Context) error { <-release; return nil }})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		sameList(t, "left", r.LeftRunning, []string{"greedy"})
		sameList(t, "aborted", r.Aborted, []string{"greedy"})
		equal(t, "greedy's budget", r.Stages[0].Budget, 500*ms)
		equal(t, "state's budget", r.Stages[1].Budget, 100*ms)
		equal(t, "took", r.Took, 500*ms+100*ms+90*ms+90*ms)
		close(release)
	})
}

func TestTotalHoldsWhenAllAreStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := house()
		o.Total, o.Grace = 100*ms, 0 // a default grace that does not fit is cut
		w := newWorld(t, o)
		for _, st := range o.Stages {
			w.add(supervise.Service{Name: st.Name, Stage: st.Name, Serve: func(context.Context) error { <-release; return nil }})
		}
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		equal(t, "left", len(r.LeftRunning), 4)
		equal(t, "took", r.Took, 100*ms)
		close(release)
	})
}

func TestShutdownIsNeverLost(t *testing.T) {
	t.Run("before Run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, oneStage())
			w.add(supervise.Service{Name: "s", Serve: func(context.Context) error { t.Error("started"); return nil },
				Drain: func(context.Context) error { t.Error("drained"); return nil }})
			w.Shutdown("changed my mind")
			w.run(t.Context())
			r := w.finish()
			equal(t, "reason", r.Reason, "changed my mind")
			equal(t, "ending", w.ending("s").How, supervise.HowNever)
			equal(t, "state", w.status("s").State, supervise.StateStopped)
			equal(t, "events", w.of("s"), "")
		})
	})
	t.Run("context ended before Run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, oneStage())
			w.add(supervise.Service{Name: "s", Serve: func(context.Context) error { t.Error("started"); return nil }})
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errors.New("SIGTERM"))
			w.run(ctx)
			<-w.ended
			equal(t, "reason", w.report.Reason, "SIGTERM")
		})
	})
	t.Run("while it starts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := house()
			var sup *supervise.Supervisor
			o.OnEvent = func(e supervise.Event) {
				if e.Name == "state" && e.Type == supervise.EventStarted {
					sup.Shutdown("") // from inside the supervisor, as it starts
				}
			}
			w := newWorld(t, o)
			sup = w.Supervisor
			for _, st := range o.Stages {
				w.add(supervise.Service{Name: st.Name, Stage: st.Name, Serve: untilDone})
			}
			w.run(t.Context())
			<-w.ended
			equal(t, "reason", w.report.Reason, "shutdown was asked for")
			equal(t, "admin", w.ending("admin").How, supervise.HowCanceled)
			equal(t, "state", w.ending("state").How, supervise.HowCanceled)
			equal(t, "workers", w.ending("workers").How, supervise.HowNever)
		})
	})
	t.Run("many at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, oneStage())
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
			equal(t, "reason", r.Reason, "first")
			equal(t, "draining events", len(w.only(supervise.EventDraining)), 1)
		})
	})
	t.Run("by the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, oneStage())
			w.add(supervise.Service{Name: "s", Serve: untilDone})
			ctx, cancel := context.WithCancel(t.Context())
			w.run(ctx)
			synctest.Wait()
			cancel()
			<-w.ended
			equal(t, "reason", w.report.Reason, "context canceled")
			equal(t, "error", w.err, nil)
			equal(t, "ending", w.ending("s").How, supervise.HowCanceled)
		})
	})
}

func TestHooksThatMisbehave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		panicky := func(context.Context) error { panic("hook") }
		w.add(supervise.Service{Name: "panics", Serve: untilDone, Drain: panicky})
		w.add(supervise.Service{Name: "errs", Serve: untilDone, Drain: func(context.Context) error { return errBoom }})
		w.add(supervise.Service{Name: "obeys its deadline", Serve: untilDone, Drain: untilDone})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		equal(t, "took", r.Took, time.Second)
		sameList(t, "left", r.LeftRunning, nil)
		sameList(t, "aborted", r.Aborted, []string{"panics", "errs", "obeys its deadline", "obeys its deadline (drain hook)"})
		equal(t, "panic counted", w.count("panics").Panicked, 1)
		equal(t, "error counted", w.count("errs").Failed, 1)
		equal(t, "abort counted", w.count("obeys its deadline").Aborted, 2)
		if _, ok := w.ending("panics").Err.(*supervise.Panic); !ok {
			t.Errorf("the report has %v", w.ending("panics").Err)
		}
		for _, e := range w.only(supervise.EventFailed) {
			equal(t, "detail of "+e.Name, e.Detail, "drain hook")
		}
	})
}

// Until its own stage is reached, a service is kept alive: those that drain
// before it may need it.
func TestServicesAreKeptAliveUntilTheirStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, house())
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
		equal(t, "lives", lives, 2)
		equal(t, "ending", w.ending("store").How, supervise.HowCanceled)
		equal(t, "took", r.Took, 300*ms)
	})
}

func TestBackoffEndsWithTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := oneStage()
		o.Jitter = highest
		w := newWorld(t, o)
		lives := 0
		asked := 0
		w.add(supervise.Service{Name: "s", Serve: func(context.Context) error { lives++; return errBoom },
			Drain: func(context.Context) error { asked++; return nil }})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		equal(t, "took", r.Took, 0)
		equal(t, "lives", lives, 1)
		equal(t, "asked", asked, 1)
		equal(t, "ending", w.ending("s").How, supervise.HowBackoff)
		equal(t, "restarts", r.Restarts, 0)
	})
}

func TestFailureWhileDrainingIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		stop := make(chan struct{})
		w.add(supervise.Service{Name: "s", Serve: func(context.Context) error { <-stop; return errBoom },
			Drain: func(context.Context) error { close(stop); return nil }, Restart: supervise.Restart{Then: supervise.Fatal}})
		w.add(supervise.Service{Name: "late", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(1050 * ms) // past the deadline, within the grace
			panic("too late")
		}})
		w.run(t.Context())
		synctest.Wait()
		w.finish() // no error: a failure of somebody who was told to go is not fatal
		equal(t, "ending", w.ending("s").How, supervise.HowFailed)
		equal(t, "error", w.ending("s").Err, errBoom)
		equal(t, "events", w.of("s"), "started, failed")
		equal(t, "ending", w.ending("late").How, supervise.HowAborted)
		equal(t, "events", w.of("late"), "started, aborted, failed")
		equal(t, "counted", w.count("late"), supervise.Count{Service: "node", Kind: "late", Spawned: 1, Aborted: 1})
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
		w := newWorld(t, o)
		sup = w.Supervisor
		w.add(supervise.Service{Name: "s", Serve: failing(time.Second)})
		w.run(t.Context())
		time.Sleep(10 * time.Second)
		equal(t, "state", w.status("s").Degraded, true)
		r := w.finish()
		if _, ok := r.Observer.(*supervise.Panic); !ok {
			t.Errorf("the report has %v", r.Observer)
		}
		if !strings.Contains(r.String(), "\nOnEvent: panic: observer\n") {
			t.Errorf("the report says:\n%s", r)
		}
		if n := len(w.Tasks()); n > 2 {
			t.Errorf("closed groups are kept: %d tasks", n)
		}
	})
}

// Nobody is told anything after Run has returned, even if the telling is slow.
func TestRunWaitsForTheObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, heard := oneStage(), make(chan struct{})
		o.OnEvent = func(e supervise.Event) {
			if e.Type == supervise.EventFailed {
				time.Sleep(time.Minute)
				close(heard)
			}
		}
		w := newWorld(t, o)
		w.add(supervise.Service{Name: "s", Serve: func(ctx context.Context) error { <-ctx.Done(); panic("leaving") }})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		select {
		case <-heard:
		default:
			t.Error("Run returned while the observer was being told")
		}
		sameList(t, "left", r.LeftRunning, nil) // the service has ended; only the news of it is slow
	})
}

func TestEventsAreInOrderOfSeq(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		for _, name := range []string{"a", "b", "c"} {
			w.add(supervise.Service{Name: name, Serve: failing(10 * ms)})
		}
		w.run(t.Context())
		time.Sleep(2 * time.Second)
		w.finish()
		all := w.all()
		equal(t, "last", all[len(all)-1].Type, supervise.EventStopped)
		slices.SortFunc(all, func(a, b supervise.Event) int { return int(a.Seq) - int(b.Seq) })
		for i, e := range all {
			equal(t, "seq", e.Seq, uint64(i+1))
			if i > 0 && e.Time.Before(all[i-1].Time) {
				t.Errorf("event %d is before the one before it", i)
			}
		}
	})
}

func TestCausesAreTyped(t *testing.T) {
	for _, err := range []error{supervise.ErrDraining, supervise.ErrAborted, supervise.ErrClosed} {
		equal(t, err.Error(), fault.KindOf(err), fault.Canceled)
	}
	equal(t, "killed", fault.KindOf(supervise.ErrKilled), fault.Transient)
}
