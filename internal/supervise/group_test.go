package supervise_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func readerGroup(max int) supervise.GroupSpec {
	return supervise.GroupSpec{Service: "overlay", Kind: "reader", Stage: "all", Max: max}
}

func TestGroupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.run(t.Context())
		g := w.group(readerGroup(2))
		release := make(chan struct{})
		wait := func(context.Context) error { <-release; return nil }
		testkit.Equal(t, "first", g.Go(wait), nil)
		testkit.Equal(t, "second", g.Go(wait), nil)
		err := g.Go(wait)
		testkit.Equal(t, "third", fault.KindOf(err), fault.Busy)
		testkit.Equal(t, "operation", fault.OpOf(err), "supervise.go")
		close(release)
		testkit.Equal(t, "wait", g.Wait(t.Context()), nil)
		testkit.Equal(t, "when there is room again", g.Go(wait), nil)
		testkit.Equal(t, "wait", g.Wait(t.Context()), nil)
		w.finish()
		testkit.Equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 3, Completed: 3})
	})
}

func TestGroupCapturesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.run(t.Context())
		g := w.group(readerGroup(9))
		for _, fn := range []func(context.Context) error{
			func(context.Context) error { panic("reader") },
			func(context.Context) error { runtime.Goexit(); return nil },
			failing(0),
		} {
			testkit.Equal(t, "go", g.Go(fn), nil)
		}
		testkit.Equal(t, "wait", g.Wait(t.Context()), nil)
		synctest.Wait()
		failures := w.only(supervise.EventFailed) // the plain error is only counted
		testkit.Equal(t, "failures told", len(failures), 2)
		testkit.Equal(t, "service", failures[0].Service, "overlay")
		testkit.Equal(t, "name", failures[0].Name, "reader")
		w.finish()
		testkit.Equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 3, Failed: 2, Panicked: 1})
	})
}

func TestGroupCloseAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.run(t.Context())
		g := w.group(readerGroup(9))
		testkit.Equal(t, "go", g.Go(func(ctx context.Context) error {
			<-ctx.Done()
			testkit.Equal(t, "cause", context.Cause(ctx), supervise.ErrClosed)
			time.Sleep(time.Second)
			return nil
		}), nil)

		short, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		testkit.Equal(t, "wait", fault.KindOf(g.Wait(short)), fault.Timeout)

		g.Close()
		g.Close()
		testkit.Equal(t, "go after close", fault.KindOf(g.Go(untilDone)), fault.Canceled)
		synctest.Wait()
		list := w.Tasks()
		testkit.Equal(t, "inventory", list[0], supervise.Task{Service: "overlay", Kind: "reader", Stage: "all",
			State: supervise.StateDraining, Since: list[0].Since, Running: 1})

		testkit.Equal(t, "wait", g.Wait(t.Context()), nil)
		synctest.Wait()
		testkit.Equal(t, "inventory without it", len(w.Tasks()), 0)

		// A restarted service makes a new group; the totals continue.
		again := w.group(readerGroup(9))
		testkit.Equal(t, "go", again.Go(func(context.Context) error { return nil }), nil)
		testkit.Equal(t, "wait", again.Wait(t.Context()), nil)
		w.finish()
		testkit.Equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 2, Canceled: 1, Completed: 1})
	})
}

func TestGroupDrainsWithItsStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, nodeStages())
		stopped, finish := readerGroup(9), readerGroup(9)
		stopped.Stage, finish.Stage = "workers", "workers"
		finish.Kind, finish.Finish = "writer", true
		g, f := w.group(stopped), w.group(finish)
		w.add(supervise.Service{Name: "http", Stage: "listeners", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			testkit.Equal(t, "a task before its stage is reached", g.Go(func(ctx context.Context) error {
				<-ctx.Done()
				testkit.Equal(t, "cause", context.Cause(ctx), supervise.ErrDraining)
				return nil
			}), nil)

			for _, d := range []time.Duration{200 * ms, time.Second} {
				testkit.Equal(t, "one that may finish", f.Go(func(ctx context.Context) error { sleep(ctx, d); return nil }), nil)
			}
			return nil
		}})
		w.add(supervise.Service{Name: "admin", Stage: "admin", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			testkit.Equal(t, "a task after it", fault.KindOf(g.Go(untilDone)), fault.Canceled)
			_, err := w.NewGroup(stopped)
			testkit.Equal(t, "a group after it", fault.KindOf(err), fault.Canceled)
			return nil
		}})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		testkit.Equal(t, "took", r.Took, 500*ms)
		testkit.Equal(t, "readers", w.taskReport("reader").End, supervise.EndCanceled)
		testkit.Equal(t, "writers", w.taskReport("writer"), supervise.TaskReport{Service: "overlay", Name: "writer", End: supervise.EndAborted, Tasks: 2, After: 500 * ms})
		testkit.EqualLists(t, "aborted", r.Aborted, []string{"overlay.writer (1 task)"})
		testkit.Equal(t, "counts", w.count("writer"), supervise.Count{Service: "overlay", Kind: "writer", Spawned: 2, Completed: 1, Aborted: 1})
		list := w.Tasks()
		testkit.Equal(t, "inventory", list[len(list)-1].State, supervise.StateStopped)
	})
}

func TestGroupThatFinishesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		spec := readerGroup(9)
		spec.Finish = true
		g := w.group(spec)
		testkit.Equal(t, "a task before Run", g.Go(func(ctx context.Context) error { time.Sleep(100 * ms); return ctx.Err() }), nil)
		w.run(t.Context())
		synctest.Wait()
		w.finish()
		testkit.Equal(t, "ending", w.taskReport("reader"), supervise.TaskReport{Service: "overlay", Name: "reader", End: supervise.EndDrained, Tasks: 1, After: 100 * ms})
	})
}

// One group serves all connections of a service, so a task must be cheap.
func BenchmarkGroupGo(b *testing.B) {
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	g, err := sup.NewGroup(readerGroup(1 << 20))
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	task := func(context.Context) error { done <- struct{}{}; return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Go(task); err != nil {
			b.Fatal(err)
		}
		<-done
	}
}
