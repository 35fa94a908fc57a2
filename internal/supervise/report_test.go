package supervise_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// What a person reads at three in the morning.
func TestReportReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := nodeStages()
		o.Jitter = highest
		o.Stages = append(o.Stages, supervise.Stage{Name: "extras", DrainTimeout: time.Second})
		w := newHarness(t, o)
		w.add(supervise.Service{Name: "admin", Stage: "admin", Serve: untilDone})
		lives := 0
		w.add(supervise.Service{Service: "registry", Name: "committer", Stage: "state", Serve: func(ctx context.Context) error {
			if lives++; lives < 3 {
				return failing(time.Second)(ctx)
			}
			return untilDone(ctx)
		}})
		w.add(supervise.Service{Service: "edge", Name: "fill", Stage: "workers", Serve: func(context.Context) error { <-release; return nil }})
		w.add(supervise.Service{Service: "index", Name: "warm", Stage: "workers", Serve: func(context.Context) error { return nil }})
		closed := make(chan struct{})
		w.add(supervise.Service{Service: "gateway", Name: "http", Stage: "listeners",
			Serve: func(context.Context) error { <-closed; time.Sleep(120 * ms); return nil },
			Drain: func(context.Context) error { close(closed); return nil }})
		g := w.group(supervise.GroupSpec{Service: "overlay", Kind: "reader", Stage: "listeners", Max: 9})
		for range 3 {
			testkit.Equal(t, "go", g.Go(untilDone), nil)
		}
		w.run(t.Context())
		time.Sleep(time.Minute)
		w.Shutdown("SIGTERM")
		<-w.ended
		close(release)

		want := strings.TrimPrefix(`
shutdown: SIGTERM
drained in 670ms of 3s; 2 restarts, 1 aborted, 1 left running

stage      took   of     service   name       ended         after  remarks
extras     0s     1s     -         -          -             -      -
listeners  120ms  400ms  gateway   http       drained       120ms  -
                         overlay   reader     canceled      0s     3 tasks
workers    550ms  500ms  edge      fill       left running  550ms  -
                         index     warm       finished      0s     -
state      0s     300ms  registry  committer  canceled      0s     2 restarts, last error: boom
admin      0s     200ms  node      admin      canceled      0s     -

aborted: fill
  (still ran at the deadline; give the stage a longer budget, or check what it waits for)

left running: fill
  (ignored the end of its context; SIGQUIT shows where a goroutine is stuck)
`, "\n")
		if w.report.WasClean() {
			t.Error("a shutdown with aborted tasks is clean")
		}
		if got := w.report.String(); got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
		last := w.all()[len(w.all())-1]
		testkit.Equal(t, "the last event", last.Detail, "drained in 670ms of 3s; 2 restarts, 1 aborted, 1 left running")
	})
}

// All is well, so a line is enough; a restart or an error is not well.
func TestACleanShutdownIsALine(t *testing.T) {
	report := supervise.Report{Reason: "stopped by SIGTERM", Took: 12 * ms, Stages: []supervise.StageReport{
		{Name: "intake", Tasks: []supervise.TaskReport{{Name: "http", End: supervise.EndDrained}, {Name: "reader", End: supervise.EndCanceled, Tasks: 3}}},
		{Name: "state", Tasks: []supervise.TaskReport{{Name: "warm", End: supervise.EndFinished}}}}}
	testkit.Equal(t, "the line", report.Line(), "stopped in 12ms (stopped by SIGTERM): 5 tasks, nothing aborted")
	testkit.Equal(t, "clean", report.WasClean(), true)
	for name, spoil := range map[string]func(*supervise.Report){
		"restarts":     func(r *supervise.Report) { r.Restarts = 1 },
		"fatal":        func(r *supervise.Report) { r.Err = errors.New("boom") },
		"an observer":  func(r *supervise.Report) { r.ObserverErr = errors.New("boom") },
		"aborted":      func(r *supervise.Report) { r.Aborted = []string{"fill"} },
		"left running": func(r *supervise.Report) { r.LeftRunning = []string{"fill"} },
		"an error": func(r *supervise.Report) {
			r.Stages = []supervise.StageReport{{Tasks: []supervise.TaskReport{{Err: errors.New("boom")}}}}
		},
		"down": func(r *supervise.Report) {
			r.Stages = []supervise.StageReport{{Tasks: []supervise.TaskReport{{End: supervise.EndDown}}}}
		},
	} {
		spoilt := report
		if spoil(&spoilt); spoilt.WasClean() {
			t.Errorf("%s: it is clean", name)
		}
	}
}
