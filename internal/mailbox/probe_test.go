package mailbox

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// awayEngine is an engine on another machine that may be away.
type awayEngine struct {
	Engine
	mu  sync.Mutex
	err error
}

func (a *awayEngine) set(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *awayEngine) Probe(ctx context.Context) error {
	a.mu.Lock()
	err := a.err
	a.mu.Unlock()
	if fault.KindOf(err) == fault.Timeout {
		<-ctx.Done() // it hangs
	}
	return err
}

func (*awayEngine) Address() string { return "192.0.2.7:4222" }
func (*awayEngine) Calls() Calls    { return Calls{Retries: 3, Timeouts: 2, Failures: 1} }
func (*awayEngine) Usage() Usage    { return Usage{} }

// NATS without a quorum accepts nothing, though it is connected: that is seen within
// two seconds, and so is its return.
func TestAnEngineThatIsAwayIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readiness := observe.NewReadiness(flow.NewInventory(), nil)
		engine := &awayEngine{}
		m := New(flow.NewInventory(), Spec{Engine: engine, Metrics: observe.NewMetrics(observe.Build{}), Readiness: readiness})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.watchHealth(ctx) }()
		time.Sleep(2 * time.Second)
		if v := readiness.Evaluate(); !v.Whole() {
			t.Errorf("with an engine that answers: %+v", v)
		}
		for _, away := range []error{fault.New("probe", fault.StorageBusy, "its cluster has no leader"), fault.New("probe", fault.Timeout, "NATS did not answer in time")} {
			engine.set(away)
			time.Sleep(2 * time.Second)
			v := readiness.Evaluate()
			if v.WriteReady || len(v.Reasons) != 1 || !strings.HasPrefix(v.Reasons[0].Reason, "NATS at 192.0.2.7:4222 has not accepted messages since ") ||
				!strings.HasSuffix(v.Reasons[0].Reason, fault.DetailOf(away)) {
				t.Errorf("two seconds after %v: %+v", away, v)
			}
			engine.set(nil)
			time.Sleep(2 * time.Second)
			if v := readiness.Evaluate(); !v.Whole() {
				t.Errorf("two seconds after it is back: %+v", v)
			}
		}
		stop()
		<-ended
	})
}
