package supervise_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/supervise"
)

func readers(max int) supervise.GroupSpec {
	return supervise.GroupSpec{Service: "overlay", Kind: "reader", Stage: "all", Max: max}
}

func TestGroupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.run(t.Context())
		g := w.group(readers(2))
		release := make(chan struct{})
		wait := func(context.Context) error { <-release; return nil }
		equal(t, "first", g.Go(wait), nil)
		equal(t, "second", g.Go(wait), nil)
		err := g.Go(wait)
		equal(t, "third", fault.KindOf(err), fault.Busy)
		equal(t, "operation", fault.OpOf(err), "supervise.go")
		close(release)
		equal(t, "wait", g.Wait(t.Context()), nil)
		equal(t, "when there is room again", g.Go(wait), nil)
		equal(t, "wait", g.Wait(t.Context()), nil)
		w.finish()
		equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 3, Completed: 3})
	})
}

func TestGroupCapturesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.run(t.Context())
		g := w.group(readers(9))
		for _, fn := range []func(context.Context) error{
			func(context.Context) error { panic("reader") },
			func(context.Context) error { runtime.Goexit(); return nil },
			failing(0),
		} {
			equal(t, "go", g.Go(fn), nil)
		}
		equal(t, "wait", g.Wait(t.Context()), nil)
		synctest.Wait()
		failures := w.only(supervise.EventFailed) // the plain error is the task's own affair
		equal(t, "failures told", len(failures), 2)
		equal(t, "service", failures[0].Service, "overlay")
		equal(t, "name", failures[0].Name, "reader")
		w.finish()
		equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 3, Failed: 2, Panicked: 1})
	})
}

func TestGroupCloseAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.run(t.Context())
		g := w.group(readers(9))
		equal(t, "go", g.Go(func(ctx context.Context) error {
			<-ctx.Done()
			equal(t, "cause", context.Cause(ctx), supervise.ErrClosed)
			time.Sleep(time.Second)
			return nil
		}), nil)
		short, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		equal(t, "wait", fault.KindOf(g.Wait(short)), fault.Timeout)

		g.Close()
		g.Close()
		equal(t, "go after close", fault.KindOf(g.Go(untilDone)), fault.Canceled)
		synctest.Wait()
		list := w.Tasks()
		equal(t, "inventory", list[0], supervise.Task{Service: "overlay", Kind: "reader", Stage: "all",
			State: supervise.StateDraining, Since: list[0].Since, Running: 1})
		equal(t, "wait", g.Wait(t.Context()), nil)
		synctest.Wait()
		equal(t, "inventory without it", len(w.Tasks()), 0)

		// A restarted service makes its group anew; the totals go on.
		again := w.group(readers(9))
		equal(t, "go", again.Go(func(context.Context) error { return nil }), nil)
		equal(t, "wait", again.Wait(t.Context()), nil)
		w.finish()
		equal(t, "counts", w.count("reader"), supervise.Count{Service: "overlay", Kind: "reader", Spawned: 2, Canceled: 1, Completed: 1})
	})
}

func TestGroupDrainsWithItsStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, house())
		stopped, finish := readers(9), readers(9)
		stopped.Stage, finish.Stage = "workers", "workers"
		finish.Kind, finish.Finish = "writer", true
		g, f := w.group(stopped), w.group(finish)
		w.add(supervise.Service{Name: "http", Stage: "listeners", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			equal(t, "a task before its stage is reached", g.Go(func(ctx context.Context) error {
				<-ctx.Done()
				equal(t, "cause", context.Cause(ctx), supervise.ErrDraining)
				return nil
			}), nil)
			for _, d := range []time.Duration{200 * ms, time.Second} {
				equal(t, "one that may finish", f.Go(func(ctx context.Context) error { sleep(ctx, d); return nil }), nil)
			}
			return nil
		}})
		w.add(supervise.Service{Name: "admin", Stage: "admin", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			equal(t, "a task after it", fault.KindOf(g.Go(untilDone)), fault.Canceled)
			_, err := w.NewGroup(stopped)
			equal(t, "a group after it", fault.KindOf(err), fault.Canceled)
			return nil
		}})
		w.run(t.Context())
		synctest.Wait()
		r := w.finish()
		equal(t, "took", r.Took, 500*ms)
		equal(t, "readers", w.ending("reader").How, supervise.HowCanceled)
		equal(t, "writers", w.ending("writer"), supervise.Ending{Service: "overlay", Name: "writer", How: supervise.HowAborted, Tasks: 2, After: 500 * ms})
		sameList(t, "aborted", r.Aborted, []string{"overlay.writer (1 task)"})
		equal(t, "counts", w.count("writer"), supervise.Count{Service: "overlay", Kind: "writer", Spawned: 2, Completed: 1, Aborted: 1})
		list := w.Tasks()
		equal(t, "inventory", list[len(list)-1].State, supervise.StateStopped)
	})
}

func TestGroupThatFinishesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		spec := readers(9)
		spec.Finish = true
		g := w.group(spec)
		equal(t, "a task before Run", g.Go(func(ctx context.Context) error { time.Sleep(100 * ms); return ctx.Err() }), nil)
		w.run(t.Context())
		synctest.Wait()
		w.finish()
		equal(t, "ending", w.ending("reader"), supervise.Ending{Service: "overlay", Name: "reader", How: supervise.HowDrained, Tasks: 1, After: 100 * ms})
	})
}

// One group serves all connections of a service, so a task must be cheap.
func BenchmarkGroupGo(b *testing.B) {
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, Total: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	g, err := sup.NewGroup(readers(1 << 20))
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
