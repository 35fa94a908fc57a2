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
)

// job does one thing on each try and remembers what was done with it.
type job struct {
	again bool
	does  []func(ctx context.Context) // on the first, second, … try

	mu        sync.Mutex
	tries     int
	done      int // tries that came to their end
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

func (j *job) Idempotent() bool { return j.again }

func (j *job) Abandon(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.abandoned = append(j.abandoned, err)
}

// fate is what became of the job, in one line.
func (j *job) fate() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Sprintf("tried %d, done %d, abandoned %d", j.tries, j.done, len(j.abandoned))
}

func crash(context.Context)    { panic("poison") }
func leave(context.Context)    { runtime.Goexit() }
func obey(ctx context.Context) { <-ctx.Done() }
func takes(d time.Duration) func(context.Context) {
	return func(ctx context.Context) { sleep(ctx, d) }
}

// queue is the simplest thing that Next can take jobs from.
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
	return supervise.Pool{Service: supervise.Service{Name: "work", Drain: q.close}, N: n, Next: q.next}
}

func TestDeadWorkersJob(t *testing.T) {
	do := func(f ...func(context.Context)) []func(context.Context) { return f }
	for name, c := range map[string]struct {
		job  *job
		kill bool
		fate string
		kind fault.Kind
	}{
		"panic, idempotent":      {&job{again: true, does: do(crash)}, false, "tried 2, done 1, abandoned 0", 0},
		"panic, not idempotent":  {&job{does: do(crash)}, false, "tried 1, done 0, abandoned 1", fault.Internal},
		"goexit, idempotent":     {&job{again: true, does: do(leave)}, false, "tried 2, done 1, abandoned 0", 0},
		"goexit, not idempotent": {&job{does: do(leave)}, false, "tried 1, done 0, abandoned 1", fault.Internal},
		"killed, idempotent":     {&job{again: true, does: do(obey)}, true, "tried 2, done 1, abandoned 0", 0},
		"killed, not idempotent": {&job{does: do(obey)}, true, "tried 1, done 0, abandoned 1", fault.Transient},
		"poison":                 {&job{again: true, does: do(crash, crash)}, false, "tried 2, done 0, abandoned 1", fault.Internal},
		"poison, by goexit":      {&job{again: true, does: do(leave, leave)}, false, "tried 2, done 0, abandoned 1", fault.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, q := newWorld(t, oneStage()), make(queue, 8)
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
				// No time has passed: the second try came at once, the worker is still out.
				equal(t, "fate", c.job.fate(), c.fate)
				for _, err := range c.job.abandoned {
					equal(t, "kind", fault.KindOf(err), c.kind)
					equal(t, "operation", fault.OpOf(err), "supervise.job")
					if fault.NextOf(err) == c.kind.Next() {
						t.Error("the refusal does not say what to do")
					}
				}
				s := w.status("work")
				equal(t, "state", s.State, supervise.StateBackoff)
				equal(t, "degraded", s.Degraded, true)
				equal(t, "live", s.Live, 0)

				after := &job{}
				q <- after
				time.Sleep(100 * ms)
				synctest.Wait()
				equal(t, "a job for the next life", after.fate(), "tried 1, done 1, abandoned 0")
				s = w.status("work")
				equal(t, "state", s.State, supervise.StateRunning)
				equal(t, "restarts", s.Restarts, 1)
				w.finish()
				equal(t, "ending", w.ending("work").How, supervise.HowDrained)
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
				equal(t, "state before the second try", sup.Status()[0].State, supervise.StateDegraded)
			}
		}
		w := newWorld(t, o)
		sup = w.Supervisor
		w.addPool(poolOf(1, q))
		w.run(t.Context())
		j := &job{again: true, does: []func(context.Context){crash, obey}}
		q <- j
		synctest.Wait()
		equal(t, "state in the second try", w.status("work").State, supervise.StateDegraded)
		if err := w.Kill("work", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "fate", j.fate(), "tried 2, done 0, abandoned 1")
		if !errors.Is(j.abandoned[0], supervise.ErrKilled) {
			t.Errorf("abandoned with %v", j.abandoned[0])
		}
		time.Sleep(time.Second)
		w.finish()
		equal(t, "events", w.of("work"), "started, failed, degraded, failed, restarting, started, recovered")
		equal(t, "counts", w.count("work"), supervise.Count{Service: "node", Kind: "work",
			Spawned: 5, Completed: 3, Failed: 1, Panicked: 1, Restarts: 1}) // two lives, a try, the abandoning, the hook
	})
}

// A job that was handed out but not begun is safe to run whatever it is.
func TestJobNotBegunIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		j, given := &job{}, false
		w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 1,
			Next: func(ctx context.Context) (supervise.Job, error) {
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
		equal(t, "fate", j.fate(), "tried 1, done 1, abandoned 0")
		w.finish()
	})
}

func TestJobsOwnMethodsMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q := newWorld(t, oneStage()), make(queue, 8)
		w.addPool(poolOf(1, q))
		w.run(t.Context())
		rude, coy := &rudeJob{job: job{does: []func(context.Context){crash}}}, &coyJob{job: job{does: []func(context.Context){crash}}}
		q <- rude
		q <- coy
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "Abandon panics: told", rude.told, 1)
		equal(t, "Idempotent panics", coy.fate(), "tried 1, done 0, abandoned 1")
		equal(t, "state", w.status("work").State, supervise.StateRunning)
		equal(t, "panics", w.count("work").Panicked, 4)
		w.finish()
	})
}

type rudeJob struct {
	job
	told int
}

func (j *rudeJob) Abandon(error) { j.told++; panic("rude") }

type coyJob struct{ job }

func (j *coyJob) Idempotent() bool { panic("coy") }

// A dead worker is no crash loop: the pool goes between degraded and running
// as its strength does.
func TestPoolIsDegradedWhileBelowStrength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.addPool(supervise.Pool{Service: supervise.Service{Name: "work", Serve: untilDone}, N: 4})
		w.run(t.Context())
		synctest.Wait()
		equal(t, "strength", w.status("work").Live, 4)
		for range 2 * supervise.Default.Limit { // far beyond what a service could afford
			if err := errors.Join(w.Kill("work", 1), w.Kill("work", 3)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s := w.status("work")
			equal(t, "state", s.State, supervise.StateDegraded)
			equal(t, "degraded", s.Degraded, true)
			equal(t, "live", s.Live, 2)
			equal(t, "want", s.Want, 4)
			equal(t, "last error", s.LastErr, supervise.ErrKilled)
			time.Sleep(time.Second)
			s = w.status("work")
			equal(t, "state", s.State, supervise.StateRunning)
			equal(t, "live", s.Live, 4)
		}
		degraded, recovered := w.only(supervise.EventDegraded), w.only(supervise.EventRecovered)
		equal(t, "degraded", len(degraded), 10)
		equal(t, "recovered", len(recovered), 10)
		for i := range degraded {
			equal(t, "detail", degraded[i].Detail, "3 of 4 workers live")
			equal(t, "detail", recovered[i].Detail, "4 of 4 workers live")
		}
		w.finish()
		equal(t, "counts", w.count("work"), supervise.Count{Service: "node", Kind: "work",
			Spawned: 24, Failed: 20, Canceled: 4, Restarts: 20})
	})
}

func TestBackoffOfWorkers(t *testing.T) {
	delays := func(t *testing.T, next func(context.Context) (supervise.Job, error)) []string {
		var list []string
		synctest.Test(t, func(t *testing.T) {
			o := oneStage()
			o.Jitter = highest
			w := newWorld(t, o)
			w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 1, Next: next})
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
	sameList(t, "a worker that does a job before each death", delays(t, func(context.Context) (supervise.Job, error) {
		if n++; n%2 == 0 {
			return &job{does: []func(context.Context){crash}}, nil
		}
		return &job{}, nil
	}), []string{"500ms", "500ms", "500ms", "500ms"})
	sameList(t, "one that only dies", delays(t, func(context.Context) (supervise.Job, error) {
		return &job{does: []func(context.Context){crash}}, nil
	}), []string{"500ms", "1s", "2s", "4s"})
	sameList(t, "one that gets no jobs", delays(t, func(context.Context) (supervise.Job, error) {
		return nil, fault.StorageBusy
	}), []string{"500ms", "1s", "2s", "4s"})
}

func TestNextThatFailsIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 2,
			Next: func(context.Context) (supervise.Job, error) { return nil, fault.StorageBusy }})
		w.run(t.Context())
		synctest.Wait()
		s := w.status("work")
		equal(t, "state", s.State, supervise.StateBackoff)
		equal(t, "kind", fault.KindOf(s.LastErr), fault.StorageBusy)
		equal(t, "operation", fault.OpOf(s.LastErr), "supervise.next")
		w.finish()
		equal(t, "ending", w.ending("work").How, supervise.HowBackoff)
	})
}

func TestWorkersThatFinishAreNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q := newWorld(t, oneStage()), make(queue, 8)
		w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 3, Next: q.next})
		w.run(t.Context())
		slow := &job{does: []func(context.Context){takes(time.Second)}}
		q <- slow
		synctest.Wait()
		close(q)
		synctest.Wait()
		s := w.status("work")
		equal(t, "state", s.State, supervise.StateRunning)
		equal(t, "live", s.Live, 1)
		equal(t, "want", s.Want, 1)
		time.Sleep(time.Minute)
		equal(t, "state", w.status("work").State, supervise.StateFinished)
		equal(t, "fate", slow.fate(), "tried 1, done 1, abandoned 0")
		w.finish()
		equal(t, "events", w.of("work"), "started, finished, finished, finished")
		equal(t, "ending", w.ending("work").How, supervise.HowFinished)
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
			w := newWorld(t, oneStage())
			q, jobs := queued(20, takes(100*ms))
			w.addPool(poolOf(4, q))
			w.run(t.Context())
			synctest.Wait()
			r := w.finish()
			for _, j := range jobs {
				equal(t, "fate", j.fate(), "tried 1, done 1, abandoned 0")
			}
			equal(t, "took", r.Took, 500*ms)
			equal(t, "ending", w.ending("work"), supervise.Ending{Service: "node", Name: "work",
				How: supervise.HowDrained, Tasks: 4, After: 500 * ms})
		})
	})
	t.Run("without one its jobs are canceled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, oneStage())
			q, jobs := queued(2, obey)
			w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 4, Next: q.next})
			w.run(t.Context())
			synctest.Wait()
			r := w.finish()
			for _, j := range jobs {
				equal(t, "fate", j.fate(), "tried 1, done 0, abandoned 0")
			}
			equal(t, "took", r.Took, 0)
			equal(t, "ending", w.ending("work").How, supervise.HowCanceled)
			equal(t, "degraded events", len(w.only(supervise.EventDegraded)), 0)
		})
	})
	t.Run("too slow a worker is aborted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, oneStage())
			q, _ := queued(1, obey)
			w.addPool(poolOf(2, q))
			w.run(t.Context())
			synctest.Wait()
			r := w.finish()
			equal(t, "aborted", len(r.Aborted), 1)
			equal(t, "counted", w.count("work").Aborted, 1)
			equal(t, "ending", w.ending("work").How, supervise.HowAborted)
			if name := r.Aborted[0]; name != "work[0]" && name != "work[1]" {
				t.Errorf("named %q", name)
			}
		})
	})
	t.Run("a death while draining: the job is looked after, the worker is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, q := newWorld(t, oneStage()), make(queue, 8)
			w.addPool(poolOf(1, q))
			w.run(t.Context())
			j := &job{again: true, does: []func(context.Context){func(ctx context.Context) { sleep(ctx, 100*ms); panic("late") }, takes(100 * ms)}}
			q <- j
			synctest.Wait()
			r := w.finish()
			equal(t, "fate", j.fate(), "tried 2, done 1, abandoned 0")
			equal(t, "took", r.Took, 200*ms)
			equal(t, "restarts", r.Restarts, 0)
			equal(t, "ending", w.ending("work").How, supervise.HowFailed)
		})
	})
	t.Run("without a hook the second try is told to stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, q := newWorld(t, oneStage()), make(queue, 8)
			w.addPool(supervise.Pool{Service: supervise.Service{Name: "work"}, N: 1, Next: q.next})
			w.run(t.Context())
			j := &job{again: true, does: []func(context.Context){func(ctx context.Context) { obey(ctx); panic("late") }, func(ctx context.Context) {
				equal(t, "cause", context.Cause(ctx), supervise.ErrDraining)
			}}}
			q <- j
			synctest.Wait()
			w.finish()
			equal(t, "fate", j.fate(), "tried 2, done 0, abandoned 0")
		})
	})
	t.Run("after the deadline too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, q := newWorld(t, oneStage()), make(queue, 8)
			w.addPool(poolOf(1, q))
			w.run(t.Context())
			j := &job{again: true, does: []func(context.Context){func(ctx context.Context) { obey(ctx); panic("late") }, func(ctx context.Context) {
				equal(t, "cause", context.Cause(ctx), supervise.ErrAborted)
			}}}
			q <- j
			synctest.Wait()
			w.finish()
			equal(t, "fate", j.fate(), "tried 2, done 0, abandoned 0")
		})
	})
	t.Run("a second try that ignores all is left running", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			w, q := newWorld(t, oneStage()), make(queue, 8)
			w.addPool(poolOf(1, q))
			w.run(t.Context())
			j := &job{again: true, does: []func(context.Context){crash, func(context.Context) { <-release }}}
			q <- j
			synctest.Wait()
			r := w.finish()
			sameList(t, "left", r.LeftRunning, []string{"work[0]"})
			close(release)
			synctest.Wait()
			equal(t, "fate", j.fate(), "tried 2, done 0, abandoned 0")
			equal(t, "state", w.status("work").State, supervise.StateStopped)
		})
	})
}

func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oneStage())
		w.add(supervise.Service{Name: "s", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			return nil // a killed task has failed, whatever it returns
		}})
		equal(t, "before Run", fault.KindOf(w.Kill("s", 0)), fault.NotReady)
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
		equal(t, "kill", w.Kill("s", 0), nil)
		synctest.Wait()
		equal(t, "state", w.status("s").State, supervise.StateBackoff)
		equal(t, "last error", w.status("s").LastErr, supervise.ErrKilled)
		equal(t, "in backoff", fault.KindOf(w.Kill("s", 0)), fault.NotReady)
		time.Sleep(time.Second)
		equal(t, "state", w.status("s").State, supervise.StateRunning)
		w.finish()
		equal(t, "counts", w.count("s"), supervise.Count{Service: "node", Kind: "s", Spawned: 2, Failed: 1, Canceled: 1, Restarts: 1})
	})
}
