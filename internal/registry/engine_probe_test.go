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
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// awayJournal is a journal on another machine that may be away: for writes, for reads,
// or for both.
type awayJournal struct {
	Journal
	mu            sync.Mutex
	writes, reads error
}

func (a *awayJournal) set(writes, reads error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes, a.reads = writes, reads
}

func (a *awayJournal) Probe(ctx context.Context) error {
	a.mu.Lock()
	err := a.writes
	a.mu.Unlock()
	return answerAway(ctx, err)
}

func (a *awayJournal) Head(ctx context.Context) (ledger.Head, error) {
	a.mu.Lock()
	err := a.reads
	a.mu.Unlock()
	if err := answerAway(ctx, err); err != nil {
		return ledger.Head{}, err
	}
	return a.Journal.Head(ctx)
}

// answerAway hangs until ctx ends if the error is a time-out.
func answerAway(ctx context.Context, err error) error {
	if fault.KindOf(err) == fault.Timeout {
		<-ctx.Done()
	}
	return err
}

func (*awayJournal) Engine() string { return "etcd at 192.0.2.7:2379" }

// An engine that would accept no write, or that reads nothing, is named within two
// seconds, though nobody writes or reads; and one that is back is seen within two
// seconds. What the reasons say of reads is true: with writes refused alone, reads are
// ready.
func TestAnEngineThatIsAwayIsNamed(t *testing.T) {
	failed, silent := fault.New("probe", fault.UpstreamFailed, "etcd failed"), fault.New("probe", fault.Timeout, "etcd did not answer in time")
	full := fault.New("probe", fault.StoreFull, "etcd has no space left")
	for name, away := range map[string]struct{ writes, reads error }{
		"both fail":         {failed, failed},
		"both hang":         {silent, silent},
		"writes fail alone": {full, nil},
		"reads fail alone":  {nil, failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				readiness := observe.NewReadiness(flow.NewInventory(), nil)
				j := &awayJournal{Journal: newRAMJournal()}
				r, err := New(t.Context(), flow.NewInventory(), Spec{Config: DefaultConfig(), Key: logKey, Journal: j, Metrics: observe.NewMetrics(observe.Build{}), Readiness: readiness})
				testkit.Must(t, err)
				ctx, stop := context.WithCancel(t.Context())
				var tasks sync.WaitGroup
				tasks.Go(func() { _ = r.runStorageHealth(ctx) })
				tasks.Go(func() { _ = r.runReadHealth(ctx) })
				time.Sleep(2 * time.Second)
				if v := readiness.Evaluate(); !v.WriteReady {
					t.Errorf("with an engine that answers: %+v", v)
				}
				for range 3 {
					time.Sleep(10 * time.Millisecond) // at any moment between two probes
					j.set(away.writes, away.reads)
					time.Sleep(2 * time.Second)
					v := readiness.Evaluate()
					if v.Ready != (away.reads == nil) || v.WriteReady {
						t.Errorf("two seconds after %v: %+v", away, v)
					}
					expectReason(t, v, "registry/storage", "etcd at 192.0.2.7:2379 has not accepted writes since ", away.writes)
					expectReason(t, v, "registry/log", "etcd at 192.0.2.7:2379 has not answered reads since ", away.reads)
					j.set(nil, nil)
					time.Sleep(2 * time.Second)
					if v := readiness.Evaluate(); !v.WriteReady || len(v.Reasons) != 0 {
						t.Errorf("two seconds after it is back: %+v", v)
					}
				}
				stop()
				tasks.Wait()
			})
		})
	}
}

// expectReason checks that a verdict has the reason of an error, and none without one.
func expectReason(t *testing.T, v observe.Verdict, dep, begins string, err error) {
	t.Helper()
	for _, reason := range v.Reasons {
		if reason.Dep != dep {
			continue
		}
		if err == nil || !strings.HasPrefix(reason.Reason, begins) || !strings.HasSuffix(reason.Reason, fault.DetailOf(err)) || strings.Contains(reason.Next, "Reads continue") {
			t.Errorf("the reason for %v: %+v", err, reason)
		}
		return
	}
	if err != nil {
		t.Errorf("no reason for %v: %+v", err, v)
	}
}
