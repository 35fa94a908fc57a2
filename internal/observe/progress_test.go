package observe

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/flow"
	"micronode/internal/supervise"
)

func TestATrendDoesNotFlutter(t *testing.T) {
	var one trend
	at := time.Now()
	look := func(fill float64, refused uint64) progressState {
		at = at.Add(sampleInterval)
		return one.add(sample{utilization: fill, fullAt: queueFull, relaxedAt: queueRelaxed, refused: refused}, at)
	}
	steps := []struct {
		fill float64
		want progressState
	}{
		{1, moving}, {1, moving}, {0.4, moving}, {1, moving}, {1, moving}, {1, moving}, {1, saturated}, // four in a row
		{0.4, saturated}, {0.4, saturated}, {0.7, saturated}, {0.4, saturated}, {0.4, saturated}, {0.4, saturated}, {0.4, moving}, // and four to come back
	}
	for i, step := range steps {
		if got := look(step.fill, 0); got != step.want {
			t.Errorf("sample %d at %.1f: %v", i, step.fill, got)
		}
	}
	for i := range uint64(samplesToFlip) {
		if got := look(0, i+1); (got == saturated) != (i+1 == samplesToFlip) {
			t.Errorf("sample %d of a queue that refuses: %v", i, got)
		}
	}
}

// newWatchedReadiness is a table whose progress is watched, in a bubble.
func newWatchedReadiness(t *testing.T, inv *flow.Inventory, supervisor *supervise.Supervisor) *Readiness {
	r := NewReadiness(inv, supervisor)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.WatchProgress(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// advance lets time pass.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const soonSeen = (samplesToFlip + 1) * sampleInterval

// A full component is reported under its name, with its effect; when there is
// room again, that is reported, too.
func TestFullPartsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inv := flow.NewInventory()
		flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 256, Effect: flow.StopsWrites, Next: "Send fewer."})
		flow.NewFair[int](inv, flow.FairSpec{Service: "index", Quantum: 1, Bands: []flow.BandSpec{{Name: "fair", Cap: 8, Bytes: 16}}})
		flow.NewLane(inv, flow.LaneSpec{Service: "gateway", Name: "inflight", Running: 8})
		flow.NewPermits(inv, flow.PermitsSpec{Service: "overlay", Name: "conns", Cap: 2, Waiting: 4, Effect: flow.ReportOnly})
		r := newWatchedReadiness(t, inv, nil)
		for _, c := range []struct {
			service, kind, name  string
			writeReady, degraded bool
		}{
			{"node", "queue", "work", false, false},
			{"index", "queue", "fair", true, true},
			{"gateway", "lane", "inflight", true, true},
			{"overlay", "permits", "conns", true, false},
		} {
			leave, ok := inv.Occupy(c.service, c.kind, c.name)
			if !ok {
				t.Fatal(c.name)
			}
			advance(sampleInterval)
			if v := r.Evaluate(); !v.Whole() {
				t.Errorf("%s: one look is enough for %+v", c.name, v)
			}
			advance(soonSeen)
			v := r.Evaluate()
			if !v.Ready || v.WriteReady != c.writeReady || v.Degraded != c.degraded || len(v.Reasons) != 1 ||
				v.Reasons[0].Dep != c.service+"/"+c.name || !strings.Contains(v.Reasons[0].Reason, "full") || v.Reasons[0].Next == "" {
				t.Errorf("%s is full: %+v", c.name, v)
			}
			if !c.writeReady && (!slices.Equal(v.Missing, []string{"node/work"}) || v.Reasons[0].Next != "Send fewer.") {
				t.Errorf("%+v", v)
			}
			leave()
			advance(soonSeen)
			if v := r.Evaluate(); !v.Whole() || len(v.Reasons) != 0 {
				t.Errorf("%s is empty: %+v", c.name, v)
			}
		}
	})
}

// A queue that is emptied as fast as it is filled is never found full, and
// refuses all the same.
func TestRefusingPartsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inv := flow.NewInventory()
		q := flow.NewQueue[int](inv, flow.QueueSpec{Service: "edge", Name: "work", Cap: 1})
		r := newWatchedReadiness(t, inv, nil)
		for range 2 * samplesToFlip {
			_, _, _ = q.TryPush(1), q.TryPush(2), q.TryPush(3)
			q.TryPop()
			advance(sampleInterval)
		}
		if v := r.Evaluate(); !v.Degraded {
			t.Errorf("it refuses, and the table says %+v", v)
		}
		advance(soonSeen)
		if v := r.Evaluate(); !v.Whole() {
			t.Errorf("it does not any more: %+v", v)
		}
	})
}

// A queue without consumers is reported long before it is full. One that is
// merely slow is not.
func TestStalledPartsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inv := flow.NewInventory()
		q := flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 256, Effect: flow.StopsWrites})
		lane := flow.NewLane(inv, flow.LaneSpec{Service: "index", Name: "names", Running: 1, Waiting: 64, Effect: flow.StopsWrites})
		r := newWatchedReadiness(t, inv, nil)
		for range 8 {
			_ = q.TryPush(1)
		}
		for range 4 {
			advance(stallTimeout - 2*sampleInterval)
			q.TryPop()
		}
		if v := r.Evaluate(); !v.Whole() {
			t.Errorf("it moves, slowly: %+v", v)
		}
		advance(stallTimeout + 2*sampleInterval)
		if v := r.Evaluate(); v.WriteReady || !v.Ready || !strings.Contains(v.Reasons[0].Reason, "does not move") {
			t.Errorf("it does not move: %+v", v)
		}
		for range 4 {
			q.TryPop()
		}
		advance(soonSeen)
		if v := r.Evaluate(); !v.Whole() {
			t.Errorf("it has moved: %+v", v)
		}

		_ = lane.Enter(t.Context())
		advance(10 * stallTimeout)
		if v := r.Evaluate(); !v.Whole() {
			t.Errorf("nobody waits for who is inside: %+v", v)
		}
		go func() { _ = lane.Enter(t.Context()) }()
		advance(stallTimeout + 2*sampleInterval)
		if v := r.Evaluate(); v.WriteReady {
			t.Errorf("somebody waits in vain: %+v", v)
		}
		lane.Leave()
		advance(soonSeen)
		if v := r.Evaluate(); !v.Whole() {
			t.Errorf("the lane moved: %+v", v)
		}
		lane.Leave()
	})
}

// stuckJob ends when it is released, whatever its context says: as one does
// that is stuck in the kernel.
type stuckJob struct{ release <-chan struct{} }

func (j stuckJob) Run(context.Context)         { <-j.release }
func (j stuckJob) Idempotent() bool            { return false }
func (j stuckJob) Abandon(error)               {}
func (j stuckJob) Deadline() (time.Time, bool) { return time.Now().Add(time.Second), true }

// Stuck workers are reported: some of them, and then all of them.
func TestOverdueWorkersAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inv := flow.NewInventory()
		supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		jobs, letGo := make(chan supervise.Job), make(chan struct{})
		next := func(ctx context.Context) (supervise.Job, error) {
			select {
			case j := <-jobs:
				return j, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if err := supervisor.AddPool(supervise.Pool{Service: supervise.Service{Service: "node", Name: "worker", Stage: "all"}, N: 2, NextJob: next, Writes: true}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = supervisor.Run(ctx) }()
		r := newWatchedReadiness(t, inv, supervisor)
		expect := func(when string, writeReady, degraded bool) {
			t.Helper()
			advance(time.Second + soonSeen)
			v := r.Evaluate()
			if !v.Ready || v.WriteReady != writeReady || v.Degraded != degraded {
				t.Errorf("%s: %+v", when, v)
			}
			if !v.Whole() && (v.Reasons[0].Dep != "node/worker" || !strings.Contains(v.Reasons[0].Reason, "are stuck")) {
				t.Errorf("%s: %+v", when, v.Reasons)
			}
		}
		expect("idle", true, false)
		jobs <- stuckJob{letGo}
		expect("one of two", true, true)
		jobs <- stuckJob{letGo}
		expect("both", false, false)
		close(letGo)
		expect("back", true, false)
		stop()
		<-ended
	})
}

// What is not in the inventory can be watched all the same.
func TestAGaugeIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWatchedReadiness(t, flow.NewInventory(), nil)
		var full atomic.Bool
		r.Gauge(Gauge{Service: "overlay", Name: "pressure", Effect: flow.StopsWrites, Reason: "full", Next: "Wait.", Read: func() (float64, uint64) {
			if full.Load() {
				return 1, 0
			}
			return 0, 0
		}})
		full.Store(true)
		advance(soonSeen)
		if v := r.Evaluate(); v.WriteReady || !slices.Equal(v.Missing, []string{"overlay/pressure"}) {
			t.Errorf("%+v", v)
		}
		full.Store(false)
		advance(soonSeen)
		if v := r.Evaluate(); !v.Whole() {
			t.Errorf("%+v", v)
		}
		for _, wrong := range []Gauge{{Service: "kitchen", Name: "a", Next: "b"}, {Service: "overlay", Next: "b"}, {Service: "overlay", Name: "a"}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%+v was taken", wrong)
					}
				}()
				r.Gauge(wrong)
			}()
		}
	})
}
