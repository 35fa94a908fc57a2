package overlay

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// failingSource is a child of the overlay that fails each time, after it has run
// for a while.
type failingSource struct {
	runs time.Duration
	at   []time.Time
}

func (f *failingSource) Peers(ctx context.Context, _ flow.Version) ([]Contact, flow.Version, error) {
	f.at = append(f.at, time.Now())
	if err := flow.Sleep(ctx, f.runs); err != nil {
		return nil, 0, err
	}
	return nil, 0, fault.New("test", fault.Internal, "boom")
}

// runWithFailingChild runs an overlay without sockets of which one child fails
// each time, an hour later.
func runWithFailingChild(t *testing.T, child *failingSource, alone bool) (verdict observe.Verdict, ended error) {
	inv := flow.NewInventory()
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}, {Name: "intake"}}, DrainTimeout: time.Second})
	testkit.Must(t, err)
	spec := Spec{Config: DefaultConfig(), Key: newKey(t), Skew: 2 * time.Minute, Metrics: observe.NewMetrics(observe.ReadBuild("test")), Sources: []PeerSource{child}, Alone: alone}
	spec.Store = store.NewRAM(store.RAMSpec{Budget: 1 << 20, MaxObject: 1 << 20})
	spec.Readiness = observe.NewReadiness(inv, supervisor)
	spec.Config.Addr = ""
	stages := Stages{State: "state", Workers: "workers", Intake: "intake"}
	o, err := New(inv, supervisor, stages, spec)
	testkit.Must(t, err)
	testkit.Must(t, o.Listen(t.Context()))
	testkit.Must(t, o.Add(supervisor, stages, func(Event) {}))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := supervisor.Run(ctx)
		done <- err
	}()
	time.Sleep(time.Hour)
	verdict = spec.Readiness.Evaluate()
	stop()
	return verdict, <-done
}

// A child that fails is restarted after 100 ms, then after longer pauses, of 2
// s at most, five times. Then the overlay is down: nothing is served in part,
// and readiness says so. A process that runs nothing else ends, and says why.
func TestAChildThatFailsForGood(t *testing.T) {
	for name, alone := range map[string]bool{"in a node": false, "alone": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				child := &failingSource{}
				verdict, ended := runWithFailingChild(t, child, alone)
				if len(child.at) != 6 {
					t.Fatalf("it was started %d times", len(child.at))
				}
				for i := range 5 {
					if pause := child.at[i+1].Sub(child.at[i]); pause < 100*time.Millisecond || pause > 2*time.Second || i == 0 && pause != 100*time.Millisecond {
						t.Errorf("pause %d is %s", i+1, pause)
					}
				}
				if child.at[5].Sub(child.at[0]) <= 500*time.Millisecond {
					t.Error("the pauses do not get longer")
				}
				if verdict.Ready || verdict.WriteReady {
					t.Errorf("readiness says %+v", verdict)
				}
				switch {
				case !alone && ended != nil:
					t.Errorf("the node ended: %v", ended)
				case alone && (ended == nil || !strings.Contains(ended.Error(), "overlay source 1")):
					t.Errorf("the process ended with %v", ended)
				}
			})
		})
	}
}

// A child that fails now and then is never down, and runs again after 2 s at
// most, however often it has failed.
func TestAChildThatFailsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		child := &failingSource{runs: 20 * time.Second}
		verdict, ended := runWithFailingChild(t, child, false)
		if len(child.at) < 100 {
			t.Fatalf("it was started %d times in an hour", len(child.at))
		}
		for i := range child.at[1:] {
			if pause := child.at[i+1].Sub(child.at[i]) - child.runs; pause < 100*time.Millisecond || pause > 2*time.Second {
				t.Errorf("pause %d is %s", i+1, pause)
			}
		}
		if !verdict.Ready || ended != nil {
			t.Errorf("readiness says %+v; the node ended with %v", verdict, ended)
		}
	})
}
