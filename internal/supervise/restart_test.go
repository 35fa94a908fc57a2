package supervise_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// The contract: 100–500 ms, then doubling, at most 5 s, with jitter over all
// of it.
func TestDelaysAreThePolicys(t *testing.T) {
	for name, c := range map[string]struct {
		jitter func(lo, hi time.Duration) time.Duration
		want   string
	}{
		"lowest":            {lowest, "100ms 100ms 100ms 100ms 100ms 100ms 100ms"},
		"highest":           {highest, "500ms 1s 2s 4s 5s 5s 5s"},
		"beyond the bounds": {func(_, hi time.Duration) time.Duration { return 2 * hi }, "500ms 1s 2s 4s 5s 5s 5s"},
		"below the bounds":  {func(_, _ time.Duration) time.Duration { return -1 }, "100ms 100ms 100ms 100ms 100ms 100ms 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := oneStage()
				o.Jitter = c.jitter
				w := newHarness(t, o)
				var starts []time.Time
				w.add(supervise.Service{Name: "s", Serve: func(ctx context.Context) error {
					starts = append(starts, time.Now())
					if len(starts) == 8 {
						return untilDone(ctx)
					}
					return errBoom
				}})
				w.run(t.Context())
				time.Sleep(time.Minute)
				w.finish()

				var reported, kept []string
				for _, e := range w.only(supervise.EventRestarting) {
					reported = append(reported, e.Delay.String())
				}
				for i := range starts[1:] {
					kept = append(kept, starts[i+1].Sub(starts[i]).String())
				}
				testkit.Equal(t, "delays told", strings.Join(reported, " "), c.want)
				testkit.Equal(t, "delays kept", strings.Join(kept, " "), c.want)
			})
		})
	}
}

func TestDefaultJitterStaysInsideAndVaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := oneStage()
		o.Jitter = nil
		w := newHarness(t, o)
		w.add(supervise.Service{Name: "s", Serve: failing(0),
			Restart: supervise.Restart{Min: ms, First: 100 * ms, Cap: 100 * ms, Limit: 1, Window: time.Second}})
		w.run(t.Context())
		time.Sleep(10 * time.Second)
		w.finish()
		seen := map[time.Duration]bool{}
		for _, e := range w.only(supervise.EventRestarting) {
			seen[e.Delay] = true
			if e.Delay < ms || e.Delay > 100*ms {
				t.Errorf("delay %s", e.Delay)
			}
		}
		if len(seen) < 50 {
			t.Errorf("only %d different delays", len(seen))
		}
	})
}

// More than 5 failures in 60 s: the fifth is not enough, the sixth is.
func TestCrashLoopDegradesAndHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		runs := 0
		w.add(supervise.Service{Name: "s", Serve: func(ctx context.Context) error {
			if runs++; runs <= 6 {
				time.Sleep(900 * ms)
				return errBoom
			}
			return untilDone(ctx)
		}})
		w.run(t.Context())

		time.Sleep(4950 * ms) // five failures, one a second
		testkit.Equal(t, "degraded after five", w.status("s").Degraded, false)
		time.Sleep(time.Second)
		s := w.status("s")
		testkit.Equal(t, "degraded after six", s.Degraded, true)
		testkit.Equal(t, "state in the delay", s.State, supervise.StateBackoff)
		testkit.Equal(t, "last error", s.LastErr, errBoom)
		time.Sleep(100 * ms)
		testkit.Equal(t, "state of the next run", w.status("s").State, supervise.StateDegraded)

		time.Sleep(59900 * ms)
		testkit.Equal(t, "degraded before the window is over", w.status("s").Degraded, true)
		time.Sleep(100 * ms)
		s = w.status("s")
		testkit.Equal(t, "degraded after a stable window", s.Degraded, false)
		testkit.Equal(t, "state", s.State, supervise.StateRunning)
		testkit.Equal(t, "restarts", s.Restarts, 6)
		w.finish()

		cycle := "started, failed, restarting, "
		testkit.Equal(t, "events", w.of("s"), strings.Repeat(cycle, 5)+"started, failed, degraded, restarting, started, recovered")
	})
}

func TestFailuresOutsideTheWindowAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		// One failure in 12.1 s: never more than five within a minute.
		w.add(supervise.Service{Name: "s", Serve: failing(12 * time.Second)})
		w.run(t.Context())
		time.Sleep(time.Hour)
		testkit.Equal(t, "degraded", w.status("s").Degraded, false)
		w.finish()
		testkit.Equal(t, "degraded events", len(w.only(supervise.EventDegraded)), 0)
	})
}

// Two failures exactly a window apart are not within one window.
func TestWindowIsHalfOpen(t *testing.T) {
	for after, want := range map[time.Duration]bool{time.Second: false, time.Second - 1: true} {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, oneStage())
			w.add(supervise.Service{Name: "s", Serve: failing(after),
				Restart: supervise.Restart{First: ms, Cap: ms, Limit: 1, Window: time.Second}}) // no delay, with the lowest jitter
			w.run(t.Context())
			time.Sleep(10 * time.Second)
			w.finish()
			testkit.Equal(t, "degraded by failures "+after.String()+" apart", len(w.only(supervise.EventDegraded)) > 0, want)
		})
	}
}

func TestStableRunResetsTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := oneStage()
		o.Jitter = highest
		w := newHarness(t, o)
		lives := []time.Duration{0, 0, 60 * time.Second, 61 * time.Second, 0}
		w.add(supervise.Service{Name: "s", Serve: func(ctx context.Context) error {
			if len(lives) == 0 {
				return untilDone(ctx)
			}
			time.Sleep(lives[0])
			lives = lives[1:]
			return errBoom
		}})
		w.run(t.Context())
		time.Sleep(5 * time.Minute)
		w.finish()
		var delays []string
		for _, e := range w.only(supervise.EventRestarting) {
			delays = append(delays, e.Delay.String())
		}
		testkit.EqualLists(t, "delays", delays, []string{"500ms", "1s", "500ms", "500ms", "1s"})
	})
}

func TestWhatCountsAsFailure(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(context.Context) error
		check func(error) bool
		count func(supervise.Count) uint64
	}{
		"error": {failing(0), func(err error) bool { return err == errBoom },
			func(c supervise.Count) uint64 { return c.Failed }},
		"panic": {func(context.Context) error { panic("at the disco") }, func(err error) bool {
			p, ok := errors.AsType[*supervise.Panic](err)
			return ok && p.Value == "at the disco" && strings.Contains(string(p.Stack), "TestWhatCountsAsFailure") &&
				fault.KindOf(err) == fault.Internal && err.Error() == "panic: at the disco"
		}, func(c supervise.Count) uint64 { return c.Panicked }},
		"panic with a fault": {func(context.Context) error { panic(fault.Busy) }, func(err error) bool {
			return fault.KindOf(err) == fault.Internal
		}, func(c supervise.Count) uint64 { return c.Panicked }},
		"goexit": {func(context.Context) error { runtime.Goexit(); return nil }, func(err error) bool {
			return err == supervise.ErrGoexit && fault.KindOf(err) == fault.Internal
		}, func(c supervise.Count) uint64 { return c.Failed }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHarness(t, oneStage())
				w.add(supervise.Service{Name: "s", Serve: c.serve, Restart: noRestart(supervise.Down)})
				w.add(supervise.Service{Name: "other", Serve: untilDone})
				w.run(t.Context())
				synctest.Wait()
				s := w.status("s")
				testkit.Equal(t, "state", s.State, supervise.StateDown)
				if !c.check(s.LastErr) {
					t.Errorf("last error: %#v", s.LastErr)
				}
				testkit.Equal(t, "restarts", s.Restarts, 0)
				testkit.Equal(t, "counted", c.count(w.count("s")), 1)
				testkit.Equal(t, "the other one", w.status("other").State, supervise.StateRunning)
				testkit.Equal(t, "phase", w.Phase(), supervise.PhaseRunning)
				w.finish()
				testkit.Equal(t, "ending", w.taskReport("s").End, supervise.EndDown)
				testkit.Equal(t, "events", w.of("s"), "started, failed, down")
			})
		})
	}
}

// noRestart is a policy under which the first failure is a crash loop.
func noRestart(then supervise.CrashLoopAction) supervise.Restart {
	return supervise.Restart{First: ms, Cap: ms, Window: time.Minute, OnCrashLoop: then}
}

func TestFinishedIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		asked := false
		w.add(supervise.Service{Name: "s", Serve: func(context.Context) error { return nil },
			Drain: func(context.Context) error { asked = true; return nil }})
		w.run(t.Context())
		time.Sleep(time.Hour)
		s := w.status("s")
		testkit.Equal(t, "state", s.State, supervise.StateFinished)
		testkit.Equal(t, "live", s.Live, 0)
		testkit.Equal(t, "want", s.Want, 0)
		r := w.finish()
		testkit.Equal(t, "took", r.Took, 0)
		testkit.Equal(t, "asked to drain", asked, false)
		testkit.Equal(t, "events", w.of("s"), "started, finished")
		testkit.Equal(t, "counts", w.count("s"), supervise.Count{Service: "node", Kind: "s", Spawned: 1, Completed: 1})
		testkit.Equal(t, "ending", w.taskReport("s").End, supervise.EndFinished)
	})
}

// The overlay's policy of the contract: five attempts, then it is down and the
// node stays up.
func TestDownAfterTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.add(supervise.Service{Name: "s", Serve: failing(0),
			Restart: supervise.Restart{Min: 100 * ms, First: 100 * ms, Cap: 2 * time.Second, Limit: 5, Window: time.Minute, OnCrashLoop: supervise.Down}})
		w.run(t.Context())
		time.Sleep(time.Hour)
		s := w.status("s")
		testkit.Equal(t, "state", s.State, supervise.StateDown)
		testkit.Equal(t, "restarts", s.Restarts, 5)
		testkit.Equal(t, "phase", w.Phase(), supervise.PhaseRunning)
		down := w.only(supervise.EventDown)
		testkit.Equal(t, "down events", len(down), 1)
		testkit.Equal(t, "detail", down[0].Detail, "more than 5 failures within 1m0s")
		testkit.Equal(t, "error", down[0].Err, errBoom)
		w.finish()
	})
}

func TestFatalDrainsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, nodeStages())
		busy := fault.New("store.open", fault.StorageBusy, "locked")
		w.add(supervise.Service{Name: "vital", Stage: "workers", Serve: func(context.Context) error { time.Sleep(time.Second); return busy },
			Restart: supervise.Restart{Min: ms, First: ms, Cap: ms, Limit: 1, Window: time.Minute, OnCrashLoop: supervise.Fatal}})
		w.add(supervise.Service{Name: "slow", Stage: "workers", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(100 * ms)
			return nil
		}})
		// Another one fails for good during the drain: the first is the reason.
		w.add(supervise.Service{Name: "second", Stage: "admin", Serve: failing(2050 * ms), Restart: noRestart(supervise.Fatal)})
		w.run(t.Context())
		<-w.ended
		if !errors.Is(w.err, busy) || fault.KindOf(w.err) != fault.StorageBusy {
			t.Errorf("Run: %v", w.err)
		}
		if !strings.Contains(w.err.Error(), `"vital" failed for good (more than 1 failures within 1m0s)`) {
			t.Errorf("Run: %v", w.err)
		}
		testkit.Equal(t, "report", w.report.Err, w.err)
		testkit.Equal(t, "reason", w.report.Reason, `"vital" failed for good: store.open: locked`)
		if !strings.Contains(w.report.String(), "\nfatal: supervise.run: ") {
			t.Errorf("the report says:\n%s", w.report)
		}
		testkit.Equal(t, "vital", w.taskReport("vital").End, supervise.EndDown)
		testkit.Equal(t, "slow", w.taskReport("slow").End, supervise.EndCanceled)
		testkit.Equal(t, "second", w.taskReport("second").End, supervise.EndDown)
		testkit.Equal(t, "restarts", w.report.Restarts, 1)
		w.checkCounts()
	})
}

func TestOneInTroubleDoesNotPauseItsSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := oneStage()
		o.Jitter = highest
		w := newHarness(t, o)
		w.add(supervise.Service{Name: "loops", Serve: failing(0)})
		stumbled := false
		w.add(supervise.Service{Name: "stumbles", Serve: func(ctx context.Context) error {
			if stumbled {
				return untilDone(ctx)
			}
			stumbled = true
			return failing(20 * time.Second)(ctx)
		}})
		w.run(t.Context())
		time.Sleep(20*time.Second + 501*ms)
		testkit.Equal(t, "the looping one", w.status("loops").Degraded, true)
		testkit.Equal(t, "the other one", w.status("stumbles"), supervise.Status{Service: "node", Name: "stumbles", Stage: "all",
			State: supervise.StateRunning, Since: time.Now().Add(-ms), Live: 1, Want: 1, Restarts: 1, LastErr: errBoom})

		w.finish()
	})
}

func TestMistakesAreRefusedWithTheNextStep(t *testing.T) {
	good := supervise.Service{Service: "node", Name: "s", Stage: "all", Serve: untilDone}
	next := func(context.Context) (supervise.Job, error) { return nil, nil }
	service := func(change func(*supervise.Service)) func(*supervise.Supervisor) error {
		return func(sup *supervise.Supervisor) error {
			s := good
			change(&s)
			return sup.Add(s)
		}
	}
	policy := func(r supervise.Restart) func(*supervise.Supervisor) error {
		return service(func(s *supervise.Service) { s.Restart = r })
	}
	pool := func(change func(*supervise.Pool)) func(*supervise.Supervisor) error {
		return func(sup *supervise.Supervisor) error {
			p := supervise.Pool{Service: good, N: 2}
			change(&p)
			return sup.AddPool(p)
		}
	}
	group := func(g supervise.GroupSpec) func(*supervise.Supervisor) error {
		return func(sup *supervise.Supervisor) error {
			_, err := sup.NewGroup(g)
			return err
		}
	}
	for name, do := range map[string]func(*supervise.Supervisor) error{
		"no serve":  service(func(s *supervise.Service) { s.Serve = nil }),
		"no name":   service(func(s *supervise.Service) { s.Name = "" }),
		"no label":  service(func(s *supervise.Service) { s.Service = "" }),
		"no stage":  service(func(s *supervise.Service) { s.Stage = "" }),
		"bad stage": service(func(s *supervise.Service) { s.Stage = "al" }),
		"duplicate": func(sup *supervise.Supervisor) error { return errors.Join(sup.Add(good), sup.Add(good)) },
		"pool duplicate": func(sup *supervise.Supervisor) error {
			return errors.Join(sup.Add(good), sup.AddPool(supervise.Pool{Service: good, N: 1}))
		},
		"negative min":    policy(supervise.Restart{Min: -1, First: ms, Cap: ms, Window: ms}),
		"negative limit":  policy(supervise.Restart{First: ms, Cap: ms, Window: ms, Limit: -1}),
		"unknown then":    policy(supervise.Restart{First: ms, Cap: ms, Window: ms, OnCrashLoop: 9}),
		"it would spin":   policy(supervise.Restart{Limit: 3, Window: ms}),
		"min above first": policy(supervise.Restart{Min: 2 * ms, First: ms, Cap: 3 * ms, Window: ms}),
		"first above cap": policy(supervise.Restart{First: 2 * ms, Cap: ms, Window: ms}),
		"no window":       policy(supervise.Restart{First: ms, Cap: ms}),
		"no workers":      pool(func(p *supervise.Pool) { p.N = 0 }),
		"next and serve":  pool(func(p *supervise.Pool) { p.NextJob = next }),
		"neither":         pool(func(p *supervise.Pool) { p.Serve = nil }),
		"pool given up":   pool(func(p *supervise.Pool) { p.Restart = noRestart(supervise.Down) }),
		"group, no kind":  group(supervise.GroupSpec{Service: "node", Stage: "all", Max: 1}),
		"group, no max":   group(supervise.GroupSpec{Service: "node", Kind: "k", Stage: "all"}),
		"group, stage":    group(supervise.GroupSpec{Service: "node", Kind: "k", Stage: "none", Max: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			sup, err := supervise.New(oneStage())
			if err != nil {
				t.Fatal(err)
			}
			if err = do(sup); fault.KindOf(err) != fault.Malformed || fault.DetailOf(err) == "" || fault.NextOf(err) == fault.Malformed.Next() {
				t.Errorf("got %v (%s), next %q", err, fault.KindOf(err), fault.NextOf(err))
			}
		})
	}
	stages := []supervise.Stage{{Name: "all"}}
	for name, o := range map[string]supervise.Options{
		"no stages":       {DrainTimeout: ms},
		"unnamed stage":   {DrainTimeout: ms, Stages: []supervise.Stage{{}}},
		"stage twice":     {DrainTimeout: ms, Stages: []supervise.Stage{{Name: "a"}, {Name: "a"}}},
		"negative budget": {DrainTimeout: ms, Stages: []supervise.Stage{{Name: "a", DrainTimeout: -1}}},
		"no total":        {Stages: stages},
		"negative total":  {Stages: stages, DrainTimeout: -1},
		"negative grace":  {Stages: stages, DrainTimeout: ms, Grace: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := supervise.New(o); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == fault.Malformed.Next() {
				t.Errorf("got %v, next %q", err, fault.NextOf(err))
			}
		})
	}
}

func TestAddAndRunOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, oneStage())
		w.run(t.Context())
		synctest.Wait()
		late := supervise.Service{Service: "node", Name: "late", Stage: "all", Serve: untilDone}
		for what, err := range map[string]error{
			"Add":     w.Add(late),
			"AddPool": w.AddPool(supervise.Pool{Service: late, N: 1}),
			"Run":     func() error { _, err := w.Run(t.Context()); return err }(),
		} {
			if fault.KindOf(err) != fault.Conflict || fault.NextOf(err) == fault.Conflict.Next() {
				t.Errorf("%s: %v", what, err)
			}
		}
		w.finish()
	})
}
