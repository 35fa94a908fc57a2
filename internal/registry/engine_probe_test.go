package registry

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

// awayJournal is a journal on another machine that may be away.
type awayJournal struct {
	Journal
	mu  sync.Mutex
	err error
}

func (a *awayJournal) set(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *awayJournal) Probe(ctx context.Context) error {
	a.mu.Lock()
	err := a.err
	a.mu.Unlock()
	if fault.KindOf(err) == fault.Timeout {
		<-ctx.Done() // it hangs
	}
	return err
}

func (*awayJournal) Engine() string { return "etcd at 192.0.2.7:2379" }

// An engine that would accept no write is named within two seconds, though nothing is
// written, and one that is back is seen within two seconds.
func TestAnEngineThatIsAwayIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readiness := observe.NewReadiness(flow.NewInventory(), nil)
		j := &awayJournal{Journal: newRAMJournal()}
		r, err := New(t.Context(), flow.NewInventory(), Spec{Config: DefaultConfig(), Key: logKey, Journal: j, Metrics: observe.NewMetrics(observe.Build{}), Readiness: readiness})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.runStorageHealth(ctx) }()
		time.Sleep(2 * time.Second)
		if v := readiness.Evaluate(); !v.WriteReady {
			t.Errorf("with an engine that answers: %+v", v)
		}
		for _, away := range []error{fault.New("probe", fault.UpstreamFailed, "etcd failed"), fault.New("probe", fault.Timeout, "etcd did not answer in time")} {
			j.set(away)
			time.Sleep(2 * time.Second)
			v := readiness.Evaluate()
			if v.WriteReady || !v.Ready || len(v.Reasons) != 1 || !strings.HasPrefix(v.Reasons[0].Reason, "etcd at 192.0.2.7:2379 has not accepted writes since ") ||
				!strings.HasSuffix(v.Reasons[0].Reason, fault.DetailOf(away)) {
				t.Errorf("two seconds after %v: %+v", away, v)
			}
			j.set(nil)
			time.Sleep(2 * time.Second)
			if v := readiness.Evaluate(); !v.WriteReady || len(v.Reasons) != 0 {
				t.Errorf("two seconds after it is back: %+v", v)
			}
		}
		stop()
		<-ended
	})
}
