package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// job does one thing on each attempt and records what was done with it.
type job struct {
	idempotent bool
	does       []func(ctx context.Context) // on the first, second, … attempt

	mu        sync.Mutex
	tries     int
	done      int // attempts that came to their end
	abandoned []error
}

func (j *job) Run(ctx context.Context) {
	j.mu.Lock()
	do := func(context.Context) {}
	if j.tries < len(j.does) {
		do = j.does[j.tries]
	}
	j.tries++
	j.mu.Unlock()
	do(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	if ctx.Err() == nil {
		j.done++
	}
}

func (j *job) Idempotent() bool { return j.idempotent }

func (j *job) Abandon(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.abandoned = append(j.abandoned, err)
}

// summary is the outcome of the job, in one line.
func (j *job) summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Sprintf("tried %d, done %d, abandoned %d", j.tries, j.done, len(j.abandoned))
}

func crash(context.Context)            { panic("poison") }
func goexit(context.Context)           { runtime.Goexit() }
func waitCanceled(ctx context.Context) { <-ctx.Done() }
func sleepFor(d time.Duration) func(context.Context) {
	return func(ctx context.Context) { sleep(ctx, d) }
}

// queue is the simplest source for NextJob.
type queue chan supervise.Job

func (q queue) next(ctx context.Context) (supervise.Job, error) {
	select {
	case j, ok := <-q:
		if !ok {
			return nil, fault.New("queue.pop", fault.Canceled, "closed")
		}
		return j, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (q queue) close(context.Context) error { close(q); return nil }

// poolOf is a pool over a queue that its drain closes.
func poolOf(n int, q queue) supervise.Pool {
	return supervise.Pool{Service: supervise.Service{Name: "work", Drain: q.close}, N: n, NextJob: q.next}
}

func TestDeadWorkersJob(t *testing.T) {
	do := func(f ...func(context.Context)) []func(context.Context) { return f }
	for name, c := range map[string]struct {
		job  *job
		kill bool
		fate string
		kind fault.Kind
	}{
		"panic, idempotent":      {&job{idempotent: true, does: do(crash)}, false, "tried 2, done 1, abandoned 0", 0},
		"panic, not idempotent":  {&job{does: do(crash)}, false, "tried 1, done 0, abandoned 1", fault.Internal},
		"goexit, idempotent":     {&job{idempotent: true, does: do(goexit)}, false, "tried 2, done 1, abandoned 0", 0},
		"goexit, not idempotent": {&job{does: do(goexit)}, false, "tried 1, done 0, abandoned 1", fault.Internal},
		"killed, idempotent":     {&job{idempotent: true, does: do(waitCanceled)}, true, "tried 2, done 1, abandoned 0", 0},
		"killed, not idempotent": {&job{does: do(waitCanceled)}, true, "tried 1, done 0, abandoned 1", fault.Transient},
		"poison":                 {&job{idempotent: true, does: do(crash, crash)}, false, "tried 2, done 0, abandoned 1", fault.Internal},
		"poison, by goexit":      {&job{idempotent: true, does: do(goexit, goexit)}, false, "tried 2, done 0, abandoned 1", fault.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, q := newHarness(t, oneStage()), make(queue, 8)
				w.addPool(poolOf(1, q))
				w.run(t.Context())
				q <- c.job
				synctest.Wait()
				if c.kill {
					if err := w.Kill("work", 0); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				// No time has passed: the retry came at once, the worker is
				// still in backoff.
				testkit.Equal(t, "fate", c.job.summary(), c.fate)
				for _, err := range c.job.abandoned {
					testkit.Equal(t, "kind", fault.KindOf(err), c.kind)
					testkit.Equal(t, "operation", fault.OpOf(err), "supervise.job")
					if fault.NextOf(err) == c.kind.Next() {
						t.Error("the refusal does not say what to do")
					}
				}
				s := w.status("work")
				testkit.Equal(t, "state", s.State, supervise.StateBackoff)
				testkit.Equal(t, "degraded", s.Degraded, true)
				testkit.Equal(t, "live", s.Live, 0)

				after := &job{}
				q <- after
				time.Sleep(100 * ms)
				synctest.Wait()
				testkit.Equal(t, "a job for the next life", after.summary(), "tried 1, done 1, abandoned 0")
				s = w.status("work")
				testkit.Equal(t, "state", s.State, supervise.StateRunning)
				testkit.Equal(t, "restarts", s.Restarts, 1)
				w.finish()
				testkit.Equal(t, "ending", w.taskReport("work").End, supervise.EndDrained)
			})
		})
	}
}

func TestKilledSecondTryIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, q := oneStage(), make(queue, 8)
		var sup *supervise.Supervisor
		o.OnEvent = func(e supervise.Event) {
			if e.Type == supervise.EventDegraded {
				testkit.Equal(t, "state before the second try", sup.Status()[0].State, supervise.StateDegraded)
			}
		}
		w := newHarness(t, o)
		sup = w.Supervisor
		w.addPool(poolOf(1, q))
		w.run(t.Context())
		j := &job{idempotent: true, does: []func(context.Context){crash, waitCanceled}}
		q <- j
		synctest.Wait()
		testkit.Equal(t, "state in the second try", w.status("work").State, supervise.StateDegraded)
		if err := w.Kill("work", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		testkit.Equal(t, "fate", j.summary(), "tried 2, done 0, abandoned 1")
		if !errors.Is(j.abandoned[0], supervise.ErrKilled) {
			t.Errorf("abandoned with %v", j.abandoned[0])
		}
		time.Sleep(time.Second)
		w.finish()
		testkit.Equal(t, "events", w.of("work"), "started, failed, degraded, failed, restarting, started, recovered")
		testkit.Equal(t, "counts", w.count("work"), supervise.Count{Service: "node", Kind: "work",
			Spawned: 5, Completed: 3, Failed: 1, Panicked: 1, Restarts: 1})
		// two runs, a retry, the abandoning, the hook
	})
}

// A job that was taken but not started is safe to run whatever it is.
func TestJobNotBegunIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		j, given := &job{}, false
		w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 1,
			NextJob: func(ctx context.Context) (supervise.Job, error) {
				<-ctx.Done()
				if given {
					return nil, ctx.Err()
				}
				given = true
				return j, nil
			}})
		w.run(t.Context())
		synctest.Wait()
		if err := w.Kill("work", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		testkit.Equal(t, "fate", j.summary(), "tried 1, done 1, abandoned 0")
		w.finish()
	})
}

func TestJobsOwnMethodsMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q := newHarness(t, oneStage()), make(queue, 8)
		w.addPool(poolOf(1, q))
		w.run(t.Context())
		rude, coy := &panicOnAbandonJob{job: job{does: []func(context.Context){crash}}}, &panicOnIdempotentJob{job: job{does: []func(context.Context){crash}}}
		q <- rude
		q <- coy
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Equal(t, "Abandon panics: told", rude.abandonCalls, 1)
		testkit.Equal(t, "Idempotent panics", coy.summary(), "tried 1, done 0, abandoned 1")
		testkit.Equal(t, "state", w.status("work").State, supervise.StateRunning)
		testkit.Equal(t, "panics", w.count("work").Panicked, 4)
		w.finish()
	})
}

type panicOnAbandonJob struct {
	job
	abandonCalls int
}

func (j *panicOnAbandonJob) Abandon(error) { j.abandonCalls++; panic("rude") }

type panicOnIdempotentJob struct{ job }

func (j *panicOnIdempotentJob) Idempotent() bool { panic("coy") }

// A dead worker is no crash loop: the pool changes between degraded and running
// as its strength does.
func TestPoolIsDegradedWhileBelowStrength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.addPool(supervise.Pool{Service: supervise.Service{Name: "work", Serve: untilDone}, N: 4})
		w.run(t.Context())
		synctest.Wait()
		testkit.Equal(t, "strength", w.status("work").Live, 4)
		for range 10 { // far beyond what a service could afford
			if err := errors.Join(w.Kill("work", 1), w.Kill("work", 3)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s := w.status("work")
			testkit.Equal(t, "state", s.State, supervise.StateDegraded)
			testkit.Equal(t, "degraded", s.Degraded, true)
			testkit.Equal(t, "live", s.Live, 2)
			testkit.Equal(t, "want", s.Want, 4)
			testkit.Equal(t, "last error", s.LastErr, supervise.ErrKilled)
			time.Sleep(time.Second)
			s = w.status("work")
			testkit.Equal(t, "state", s.State, supervise.StateRunning)
			testkit.Equal(t, "live", s.Live, 4)
		}
		degraded, recovered := w.only(supervise.EventDegraded), w.only(supervise.EventRecovered)
		testkit.Equal(t, "degraded", len(degraded), 10)
		testkit.Equal(t, "recovered", len(recovered), 10)
		for i := range degraded {
			testkit.Equal(t, "detail", degraded[i].Detail, "3 of 4 workers live")
			testkit.Equal(t, "detail", recovered[i].Detail, "4 of 4 workers live")
		}
		w.finish()
		testkit.Equal(t, "counts", w.count("work"), supervise.Count{Service: "node", Kind: "work",
			Spawned: 24, Failed: 20, Canceled: 4, Restarts: 20})

	})
}

func TestBackoffOfWorkers(t *testing.T) {
	delays := func(t *testing.T, next func(context.Context) (supervise.Job, error)) []string {
		var list []string
		synctest.Test(t, func(t *testing.T) {
			o := oneStage()
			o.Jitter = highest
			w := newHarness(t, o)
			w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 1, NextJob: next})
			w.run(t.Context())
			time.Sleep(10 * time.Second)
			w.finish()
			for _, e := range w.only(supervise.EventRestarting) {
				list = append(list, e.Delay.String())
			}
		})
		return list[:4]
	}
	n := 0
	testkit.EqualLists(t, "a worker that does a job before each death", delays(t, func(context.Context) (supervise.Job, error) {
		if n++; n%2 == 0 {
			return &job{does: []func(context.Context){crash}}, nil
		}
		return &job{}, nil
	}), []string{"500ms", "500ms", "500ms", "500ms"})

	testkit.EqualLists(t, "one that only dies", delays(t, func(context.Context) (supervise.Job, error) {
		return &job{does: []func(context.Context){crash}}, nil
	}), []string{"500ms", "1s", "2s", "4s"})

	testkit.EqualLists(t, "one that gets no jobs", delays(t, func(context.Context) (supervise.Job, error) {
		return nil, fault.StorageBusy
	}), []string{"500ms", "1s", "2s", "4s"})

}

func TestNextThatFailsIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 2,
			NextJob: func(context.Context) (supervise.Job, error) { return nil, fault.StorageBusy }})
		w.run(t.Context())
		synctest.Wait()
		s := w.status("work")
		testkit.Equal(t, "state", s.State, supervise.StateBackoff)
		testkit.Equal(t, "kind", fault.KindOf(s.LastErr), fault.StorageBusy)
		testkit.Equal(t, "operation", fault.OpOf(s.LastErr), "supervise.next")
		w.finish()
		testkit.Equal(t, "ending", w.taskReport("work").End, supervise.EndBackoff)
	})
}

func TestWorkersThatFinishAreNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q := newHarness(t, oneStage()), make(queue, 8)
		w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 3, NextJob: q.next})
		w.run(t.Context())
		slow := &job{does: []func(context.Context){sleepFor(time.Second)}}
		q <- slow
		synctest.Wait()
		close(q)
		synctest.Wait()
		s := w.status("work")
		testkit.Equal(t, "state", s.State, supervise.StateRunning)
		testkit.Equal(t, "live", s.Live, 1)
		testkit.Equal(t, "want", s.Want, 1)
		time.Sleep(time.Minute)
		testkit.Equal(t, "state", w.status("work").State, supervise.StateFinished)
		testkit.Equal(t, "fate", slow.summary(), "tried 1, done 1, abandoned 0")
		w.finish()
		testkit.Equal(t, "events", w.of("work"), "started, finished, finished, finished")
		testkit.Equal(t, "ending", w.taskReport("work").End, supervise.EndFinished)
	})
}

func TestDrainOfAPool(t *testing.T) {
	queued := func(n int, does func(context.Context)) (queue, []*job) {
		q, jobs := make(queue, 64), []*job{}
		for range n {
			j := &job{does: []func(context.Context){does}}
			jobs = append(jobs, j)
			q <- j
		}
		return q, jobs
	}
	t.Run("with a hook the queue is emptied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, oneStage())
			q, jobs := queued(20, sleepFor(100*ms))
			w.addPool(poolOf(4, q))
			w.run(t.Context())
			synctest.Wait()
			r := w.finish()
			for _, j := range jobs {
				testkit.Equal(t, "fate", j.summary(), "tried 1, done 1, abandoned 0")
			}
			testkit.Equal(t, "took", r.Took, 500*ms)
			testkit.Equal(t, "ending", w.taskReport("work"), supervise.TaskReport{Service: "node", Name: "work",
				End: supervise.EndDrained, Tasks: 4, After: 500 * ms})

		})
	})
	t.Run("without one its jobs are canceled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, oneStage())
			q, jobs := queued(2, waitCanceled)
			w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 4, NextJob: q.next})
			w.run(t.Context())
			synctest.Wait()
			r := w.finish()
			for _, j := range jobs {
				testkit.Equal(t, "fate", j.summary(), "tried 1, done 0, abandoned 0")
			}
			testkit.Equal(t, "took", r.Took, 0)
			testkit.Equal(t, "ending", w.taskReport("work").End, supervise.EndCanceled)
			testkit.Equal(t, "degraded events", len(w.only(supervise.EventDegraded)), 0)
		})
	})
	t.Run("too slow a worker is aborted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, oneStage())
			q, _ := queued(1, waitCanceled)
			w.addPool(poolOf(2, q))
			w.run(t.Context())
			synctest.Wait()
			r := w.finish()
			testkit.Equal(t, "aborted", len(r.Aborted), 1)
			testkit.Equal(t, "counted", w.count("work").Aborted, 1)
			testkit.Equal(t, "ending", w.taskReport("work").End, supervise.EndAborted)
			if name := r.Aborted[0]; name != "work[0]" && name != "work[1]" {
				t.Errorf("named %q", name)
			}
		})
	})
	t.Run("a death while draining: the job is looked after, the worker is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, q := newHarness(t, oneStage()), make(queue, 8)
			w.addPool(poolOf(1, q))
			w.run(t.Context())
			j := &job{idempotent: true, does: []func(context.Context){func(ctx context.Context) { sleep(ctx, 100*ms); panic("late") }, sleepFor(100 * ms)}}
			q <- j
			synctest.Wait()
			r := w.finish()
			testkit.Equal(t, "fate", j.summary(), "tried 2, done 1, abandoned 0")
			testkit.Equal(t, "took", r.Took, 200*ms)
			testkit.Equal(t, "restarts", r.Restarts, 0)
			testkit.Equal(t, "ending", w.taskReport("work").End, supervise.EndFailed)
		})
	})
	t.Run("without a hook the second try is told to stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, q := newHarness(t, oneStage()), make(queue, 8)
			w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 1, NextJob: q.next})
			w.run(t.Context())
			j := &job{idempotent: true, does: []func(context.Context){func(ctx context.Context) { waitCanceled(ctx); panic("late") }, func(ctx context.Context) {
				testkit.Equal(t, "cause", context.Cause(ctx), supervise.ErrDraining)
			}}}
			q <- j
			synctest.Wait()
			w.finish()
			testkit.Equal(t, "fate", j.summary(), "tried 2, done 0, abandoned 0")
		})
	})
	t.Run("after the deadline too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, q := newHarness(t, oneStage()), make(queue, 8)
			w.addPool(poolOf(1, q))
			w.run(t.Context())
			j := &job{idempotent: true, does: []func(context.Context){func(ctx context.Context) { waitCanceled(ctx); panic("late") }, func(ctx context.Context) {
				testkit.Equal(t, "cause", context.Cause(ctx), supervise.ErrAborted)
			}}}
			q <- j
			synctest.Wait()
			w.finish()
			testkit.Equal(t, "fate", j.summary(), "tried 2, done 0, abandoned 0")
		})
	})
	t.Run("a second try that ignores all is left running", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			w, q := newHarness(t, oneStage()), make(queue, 8)
			w.addPool(poolOf(1, q))
			w.run(t.Context())
			j := &job{idempotent: true, does: []func(context.Context){crash, func(context.Context) { <-release }}}
			q <- j
			synctest.Wait()
			r := w.finish()
			testkit.EqualLists(t, "left", r.LeftRunning, []string{"work[0]"})
			close(release)
			synctest.Wait()
			testkit.Equal(t, "fate", j.summary(), "tried 2, done 0, abandoned 0")
			testkit.Equal(t, "state", w.status("work").State, supervise.StateStopped)
		})
	})
}

func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.add(supervise.Service{Name: "s", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			return nil // a killed task has failed, whatever it returns
		}})
		testkit.Equal(t, "before Run", fault.KindOf(w.Kill("s", 0)), fault.NotReady)
		w.run(t.Context())
		synctest.Wait()
		for _, c := range []struct {
			name   string
			worker int
		}{{"nobody", 0}, {"s", 1}, {"s", -1}} {
			err := w.Kill(c.name, c.worker)
			if fault.KindOf(err) != fault.NotFound || fault.NextOf(err) == fault.NotFound.Next() {
				t.Errorf("Kill(%q, %d): %v", c.name, c.worker, err)
			}
		}
		testkit.Equal(t, "kill", w.Kill("s", 0), nil)
		synctest.Wait()
		testkit.Equal(t, "state", w.status("s").State, supervise.StateBackoff)
		testkit.Equal(t, "last error", w.status("s").LastErr, supervise.ErrKilled)
		testkit.Equal(t, "in backoff", fault.KindOf(w.Kill("s", 0)), fault.NotReady)
		time.Sleep(time.Second)
		testkit.Equal(t, "state", w.status("s").State, supervise.StateRunning)
		w.finish()
		testkit.Equal(t, "counts", w.count("s"), supervise.Count{Service: "node", Kind: "s", Spawned: 2, Failed: 1, Canceled: 1, Restarts: 1})
	})
}

// dueJob is a job with a deadline.
type dueJob struct {
	job
	due time.Time
}

func (j *dueJob) Deadline() (time.Time, bool) { return j.due, true }

// A worker that runs a job past its deadline is overdue: by the deadline of the
// job, and by that of the pool if the job has none. It is not when the job has
// returned, nor when it waits for work.
func TestWorkersThatDoNotComeBackAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		jobs := make(queue, 2)
		w.addPool(supervise.Pool{Service: supervise.Service{Service: "test", Name: "pool", Stage: "only"}, N: 3, NextJob: jobs.next, Writes: true})
		w.run(t.Context())
		check := func(after time.Duration, overdue int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := w.status("pool"); got.Overdue != overdue || got.Live != 3 || !got.Writes {
				t.Errorf("%d workers are overdue, not %d: %+v", got.Overdue, overdue, got)
			}
		}
		check(time.Hour, 0)
		said := &dueJob{due: time.Now().Add(2 * time.Second)}
		said.does = []func(context.Context){sleepFor(2 * time.Minute)}
		jobs <- said
		jobs <- &job{does: []func(context.Context){sleepFor(2 * time.Minute)}}
		check(2*time.Second, 0)
		check(time.Second, 1)
		check(56*time.Second, 1)
		check(2*time.Second, 2)
		check(time.Minute, 0)
		close(jobs)
		w.finish()
	})
}

// A worker whose job reports progress is not overdue, whatever the age of the
// job and its deadline; one minute after the last report it is.
func TestWorkersThatMoveAreNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		jobs := make(queue, 2)
		w.addPool(supervise.Pool{Service: supervise.Service{Service: "test", Name: "pool", Stage: "only"}, N: 2, NextJob: jobs.next})
		w.run(t.Context())
		moves := func(ctx context.Context) {
			for range 20 {
				time.Sleep(30 * time.Second)
				supervise.Progress(ctx)
			}
			time.Sleep(5 * time.Minute)
		}
		said := &dueJob{due: time.Now().Add(40 * time.Second)}
		said.does = []func(context.Context){moves}
		jobs <- said
		jobs <- &job{does: []func(context.Context){moves}}
		for range 20 {
			time.Sleep(29500 * time.Millisecond)
			synctest.Wait()
			testkit.Equal(t, "overdue while they move", w.status("pool").Overdue, 0)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(59 * time.Second)
		testkit.Equal(t, "overdue soon after", w.status("pool").Overdue, 0)
		time.Sleep(2 * time.Second)
		testkit.Equal(t, "overdue when they stopped", w.status("pool").Overdue, 2)
		time.Sleep(5 * time.Minute)
		close(jobs)
		w.finish()
		supervise.Progress(t.Context()) // of no job: nothing happens
	})
}
