package supervise_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/internal/supervise"
)

// life is one run of a scripted service: how long, and how it ends.
type life struct {
	lasts time.Duration
	ends  string // "error", "panic", "goexit" or "nil"
}

// script is a service: its lives, after which it runs until it is stopped.
type script struct {
	policy supervise.Restart
	lives  []life
}

// play is a Serve that follows a script and writes down when it was started.
func (s script) play(starts *[]time.Duration, zero time.Time) func(context.Context) error {
	return func(ctx context.Context) error {
		*starts = append(*starts, time.Since(zero))
		if len(*starts) > len(s.lives) {
			return untilDone(ctx)
		}
		l := s.lives[len(*starts)-1]
		if !sleep(ctx, l.lasts) {
			return ctx.Err()
		}
		switch l.ends {
		case "error":
			return errBoom
		case "panic":
			panic(errBoom)
		case "goexit":
			runtime.Goexit()
		}
		return nil
	}
}

// expectation is what must be seen of a script when it is stopped.
type expectation struct {
	starts   []time.Duration
	state    supervise.State
	degraded bool
	how      supervise.EndState
	count    supervise.Count
	fatal    bool
	at       time.Duration // of the fatal failure
}

// predict is the reference: one service, one loop, no goroutines.
func (s script) predict(name string, stop time.Duration, highest bool) expectation {
	e := expectation{count: supervise.Count{Service: "node", Kind: name}}
	var now time.Duration
	var failures []time.Duration
	delay := s.policy.First
	for i := 0; ; i++ {
		e.starts = append(e.starts, now)
		e.count.Spawned++
		end, ends := stop+1, "told"
		if i < len(s.lives) {
			end, ends = now+s.lives[i].lasts, s.lives[i].ends
		}
		if min(end, stop)-now >= s.policy.Window {
			e.degraded, delay = false, s.policy.First
		}
		switch {
		case end > stop:
			e.count.Canceled++
			e.how, e.state = supervise.EndCanceled, supervise.StateRunning
			if e.degraded {
				e.state = supervise.StateDegraded
			}
			return e
		case ends == "nil":
			e.count.Completed++
			e.how, e.state = supervise.EndFinished, supervise.StateFinished
			return e
		case ends == "panic":
			e.count.Panicked++
		default:
			e.count.Failed++
		}
		failures = slices.DeleteFunc(append(failures, end), func(at time.Duration) bool { return end-at >= s.policy.Window })
		if len(failures) > s.policy.Limit {
			if s.policy.OnCrashLoop != supervise.Degrade {
				e.how, e.state = supervise.EndDown, supervise.StateDown
				e.fatal, e.at = s.policy.OnCrashLoop == supervise.Fatal, end
				return e
			}
			e.degraded = true
		}
		wait := s.policy.Min
		if highest {
			wait = delay
		}
		delay = min(2*delay, s.policy.Cap)
		if now = end + wait; now > stop {
			e.how, e.state = supervise.EndBackoff, supervise.StateBackoff
			return e
		}
		e.count.Restarts++
	}
}

// drawScript makes times of service i that are i µs past a whole millisecond,
// so that no two services ever do anything at the same instant.
func drawScript(t *rapid.T, i int) script {
	millis := func(label string, lo, hi int) time.Duration {
		return time.Duration(rapid.IntRange(lo, hi).Draw(t, label)) * ms
	}
	var s script
	s.policy.Min = millis("min", 0, 50)
	s.policy.First = s.policy.Min + millis("first", 1, 100)
	s.policy.Cap = s.policy.First + millis("cap", 0, 1000)
	s.policy.Limit = rapid.IntRange(0, 4).Draw(t, "limit")
	s.policy.Window = millis("window", 1, 1000)
	s.policy.OnCrashLoop = rapid.SampledFrom([]supervise.CrashLoopAction{supervise.Degrade, supervise.Degrade, supervise.Down, supervise.Fatal}).Draw(t, "then")
	for range rapid.IntRange(0, 12).Draw(t, "lives") {
		l := life{millis("lasts", 0, 300), rapid.SampledFrom([]string{"error", "error", "error", "panic", "goexit", "nil"}).Draw(t, "ends")}
		if rapid.IntRange(0, 3).Draw(t, "stable") == 0 {
			l.lasts = s.policy.Window + millis("longer", 0, 2) // on and around the edge
		}
		s.lives = append(s.lives, l)
	}
	if len(s.lives) > 0 {
		s.lives[0].lasts += time.Duration(i) * time.Microsecond
	}
	return s
}

func TestSupervisorIsAsTheReference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		scripts := make([]script, rapid.IntRange(1, 5).Draw(rt, "services"))
		for i := range scripts {
			scripts[i] = drawScript(rt, i+1)
		}
		stop := time.Duration(rapid.IntRange(0, 5000).Draw(rt, "stop"))*ms + 500*time.Microsecond
		high := rapid.Bool().Draw(rt, "highest")
		var wrong string
		synctest.Test(t, func(t *testing.T) { wrong = compare(t, scripts, stop, high) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// compare plays the scripts and says where what happened is not as predicted.
func compare(t *testing.T, scripts []script, stop time.Duration, high bool) (wrong string) {
	fatal := false
	for i, s := range scripts { // the first fatal failure stops all
		if e := s.predict(fmt.Sprint(i), stop, high); e.fatal && e.at < stop {
			stop, fatal = e.at, true
		}
	}
	differ := func(what string, got, want any) {
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w && wrong == "" {
			wrong = fmt.Sprintf("%s: got %s, want %s", what, g, w)
		}
	}
	o := oneStage()
	if high {
		o.Jitter = highest
	}
	w, zero := newHarness(t, o), time.Now()
	starts := make([][]time.Duration, len(scripts))
	for i, s := range scripts {
		w.add(supervise.Service{Name: fmt.Sprint(i), Serve: s.play(&starts[i], zero), Restart: s.policy})
	}
	w.run(t.Context())
	time.Sleep(stop)
	synctest.Wait()
	before := w.Status()
	w.Shutdown("the script is over")
	<-w.ended

	differ("fatal", w.err != nil, fatal)
	differ("took", w.report.Took, time.Duration(0))
	w.checkCounts()
	for i, s := range scripts {
		name := fmt.Sprint(i)
		e := s.predict(name, stop, high)
		differ(name+": starts", starts[i], e.starts)
		differ(name+": degraded", before[i].Degraded, e.degraded)
		differ(name+": restarts", before[i].Restarts, e.count.Restarts)
		differ(name+": counts", w.count(name), e.count)
		differ(name+": ending", w.taskReport(name).End, e.how)
		if !fatal {
			differ(name+": state", before[i].State, e.state)
		}
	}
	return wrong
}

// Whatever jobs and kills a pool is given: no job is lost, none is run more
// often than it may be, none is abandoned twice, and the pool is at full
// strength again.
func TestPoolLosesNoJob(t *testing.T) {
	type plan struct {
		again bool
		does  []string
		takes time.Duration
	}
	rapid.Check(t, func(rt *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(rt, "workers")
		plans := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) plan {
			return plan{rapid.Bool().Draw(rt, "idempotent"),
				rapid.SliceOfN(rapid.SampledFrom([]string{"work", "work", "panic", "goexit"}), 2, 2).Draw(rt, "does"),
				time.Duration(rapid.IntRange(0, 50).Draw(rt, "takes")) * ms}
		}), 1, 30).Draw(rt, "jobs")
		kills := rapid.SliceOfN(rapid.IntRange(0, 400), 0, 20).Draw(rt, "kills") // one after so many ms, of worker mod N

		var wrong string
		synctest.Test(t, func(t *testing.T) {
			w, q := newHarness(t, oneStage()), make(queue, len(plans))
			w.addPool(poolOf(workers, q))
			jobs := make([]*job, len(plans))
			for i, p := range plans {
				jobs[i] = &job{idempotent: p.again}
				for _, what := range p.does {
					jobs[i].does = append(jobs[i].does, map[string]func(context.Context){
						"work":   sleepFor(p.takes),
						"panic":  func(ctx context.Context) { sleep(ctx, p.takes); panic("planned") },
						"goexit": func(ctx context.Context) { sleep(ctx, p.takes); runtime.Goexit() },
					}[what])
				}
				q <- jobs[i]
			}
			w.run(t.Context())
			time.Sleep(500 * time.Microsecond) // so that no kill meets the end of a job
			for _, k := range kills {
				time.Sleep(time.Duration(k) * ms)
				_ = w.Kill("work", k%workers) // NotReady if it is dead already
			}
			time.Sleep(5 * time.Minute)
			s := w.status("work")
			w.finish()
			if s.State != supervise.StateRunning || s.Live != workers {
				wrong = fmt.Sprintf("the pool did not recover: %+v", s)
			}
			for i, j := range jobs {
				often := 1
				if j.idempotent {
					often = 2
				}
				if j.done+len(j.abandoned) != 1 || j.tries > often {
					wrong = fmt.Sprintf("job %d (%+v): %s", i, plans[i], j.summary())
				}
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// Whatever the tasks do when they are asked to stop: the drain ends within the
// total, names those that still run and none that reacted to its abort, and no
// stage is touched before the one above it has stopped or was left.
func TestDrainAlwaysEnds(t *testing.T) {
	type plan struct {
		stage int
		kind  string // "plain", "hook", "group" or "finish"
		takes time.Duration
		deaf  bool // does not react to its abort
	}
	rapid.Check(t, func(rt *rapid.T) {
		o := supervise.Options{Jitter: lowest}
		o.DrainTimeout = time.Duration(rapid.IntRange(1, 1000).Draw(rt, "total")) * ms
		o.Grace = time.Duration(rapid.IntRange(0, 200).Draw(rt, "grace")) * ms
		for i := range rapid.IntRange(1, 4).Draw(rt, "stages") {
			o.Stages = append(o.Stages, supervise.Stage{Name: fmt.Sprint(i), DrainTimeout: time.Duration(rapid.IntRange(0, 400).Draw(rt, "drain")) * ms})
		}
		plans := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) plan {
			return plan{rapid.IntRange(0, len(o.Stages)-1).Draw(rt, "stage"),
				rapid.SampledFrom([]string{"plain", "hook", "group", "finish"}).Draw(rt, "kind"),
				time.Duration(rapid.IntRange(0, 600).Draw(rt, "takes"))*ms + 500*time.Microsecond,
				rapid.Bool().Draw(rt, "deaf")}
		}), 0, 8).Draw(rt, "tasks")

		var wrong string
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			var early stepLog
			w := newHarness(t, o)
			asked := make([]chan struct{}, len(plans))
			for i, p := range plans {
				name, stage := fmt.Sprint("t", i), o.Stages[p.stage].Name
				asked[i] = make(chan struct{})
				task := func(ctx context.Context) error {
					select {
					case <-asked[i]:
					case <-ctx.Done():
					}
					if n := len(w.only(supervise.EventStageDrained)); n < len(o.Stages)-1-p.stage {
						early.add("%s was told to stop after only %d stages", name, n)
					}
					over := time.After(p.takes)
					if p.deaf {
						select {
						case <-over:
						case <-release:
						}
						return nil
					}
					select {
					case <-over:
					case <-ctx.Done():
					}
					return nil
				}
				switch p.kind {
				case "plain":
					w.add(supervise.Service{Name: name, Stage: stage, Serve: task})
				case "hook":
					w.add(supervise.Service{Name: name, Stage: stage, Serve: task,
						Drain: func(context.Context) error { close(asked[i]); return nil }})
				default:
					g := w.group(supervise.GroupSpec{Service: "node", Kind: name, Stage: stage, Max: 1, Finish: p.kind == "finish"})
					if err := g.Go(task); err != nil {
						t.Error(err)
					}
				}
			}
			w.run(t.Context())
			synctest.Wait()
			w.Shutdown("enough")
			<-w.ended
			for _, e := range early.list {
				wrong = e
			}
			if w.report.Took > o.DrainTimeout {
				wrong = fmt.Sprintf("took %s of %s", w.report.Took, o.DrainTimeout)
			}
			named := map[string]bool{}
			for _, label := range w.report.LeftRunning { // "t1", or "node.t1 (1 task)"
				label, _, _ = strings.Cut(strings.TrimPrefix(label, "node."), " ")
				named[label] = true
			}
			for _, task := range w.Tasks() {
				if task.Running > 0 && !named[task.Kind] {
					wrong = fmt.Sprintf("%s runs, and only %q are named", task.Kind, w.report.LeftRunning)
				}
			}
			for i, p := range plans {
				if name := fmt.Sprint("t", i); named[name] && !p.deaf {
					wrong = fmt.Sprintf("%s noticed its abort, and yet is named", name)
				}
			}
			close(release)
			synctest.Wait()
			w.checkCounts()
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}
