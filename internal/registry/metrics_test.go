package registry

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// Existing dashboards use these names.
func TestWhatIsPromisedIsCounted(t *testing.T) {
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)))
	h.init()
	h.proposeApproved([]json.RawMessage{putName("waits", "1")}, alice)
	h.commitChange(putName("docs", "1"))
	families, err := h.observed.Gatherer().Gather()
	testkit.Must(t, err)
	there := map[string]bool{}
	for _, family := range families {
		there[family.GetName()] = true
	}
	for _, name := range []string{
		"registry_updates_total", "registry_pending_proposals", "commit_cas_fail_total", "storage_backoff_total", "registry_recoveries_total",
		"audit_chain_verify_seconds", "registry_checkpoint_age_seconds", "registry_storage_bytes", "registry_log_segments",
		"registry_reload_success_total", "registry_reload_fail_total",
	} {
		if !there[name] {
			t.Errorf("there is no %s", name)
		}
	}
	for name, least := range map[string]float64{"registry_storage_bytes": 1000, "registry_log_segments": 1} {
		if got := h.metricSum(name); got < least {
			t.Errorf("%s is %g", name, got)
		}
	}
	if h.metricSum("registry_checkpoint_age_seconds") <= 0 {
		t.Error("versions that no checkpoint covers do not make the last one older")
	}
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	if age := h.metricSum("registry_checkpoint_age_seconds"); age != 0 {
		t.Errorf("a checkpoint that covers all is %g s old", age)
	}
}

// erringJournal is a storage whose reads return a given error, and which counts calls
// like one on other machines.
type erringJournal struct {
	Journal
	answer  atomic.Pointer[error]
	retries atomic.Uint64
}

func (e *erringJournal) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	if err := e.answer.Load(); err != nil {
		return ledger.Record{}, *err
	}
	return e.Journal.Read(ctx, version)
}

func (e *erringJournal) Calls() journal.Calls { return journal.Calls{Retries: e.retries.Load()} }

// Back-off of the storage is counted as such, and wrong data as an I/O error. A
// missing version and a cancelled call are neither.
func TestWhatTheStorageDoesIsCounted(t *testing.T) {
	j := &erringJournal{Journal: newRAMJournal()}
	h := startRegistry(t, withJournal(j))
	h.init()
	h.commitChange(putName("docs", "1"))
	for _, one := range []struct {
		kind                      fault.Kind
		backoff, timeouts, errors float64
	}{
		{fault.StorageBusy, 1, 0, 0},
		{fault.StoreFull, 1, 0, 0},
		{fault.UpstreamFailed, 1, 0, 0},
		{fault.Timeout, 1, 1, 0},
		{fault.IntegrityFail, 0, 0, 1},
		{fault.Internal, 0, 0, 1},
		{fault.NotFound, 0, 0, 0},
		{fault.Expired, 0, 0, 0},
		{fault.Canceled, 0, 0, 0},
	} {
		var answer error = fault.New("test.read", one.kind, "so it is")
		j.answer.Store(&answer)
		counts := func() [3]float64 {
			return [3]float64{h.metricSum("storage_backoff_total", "op=read"), h.metricSum("io_timeouts_total", "op=read"), h.metricSum("io_errors_total", "op=read")}
		}
		before := counts()
		h.expectRefusal("GET", "/registry/0?items=false", nil, one.kind.Code())
		if after := counts(); after != [3]float64{before[0] + one.backoff, before[1] + one.timeouts, before[2] + one.errors} {
			t.Errorf("%s: counted from %v to %v", one.kind, before, after)
		}
	}
	j.answer.Store(nil)
	j.retries.Store(3)
	testkit.WaitFor(t, "the retries are counted", func() bool { return h.metricSum("backoff_retries_total", "op=storage") == 3 })
	h.CountRejectedConfig()
	if n := h.metricSum("registry_reload_fail_total", "reason=rejected"); n != 1 {
		t.Errorf("%v configurations were rejected", n)
	}
}

// Settings that were coalesced because the reloader was behind, and those that came
// after the end, are counted.
func TestSettingsThatAreNotTakenAreCounted(t *testing.T) {
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	metrics.Attach(observe.Sources{Inventory: inv})
	r, err := New(t.Context(), inv, Spec{Config: DefaultConfig(), Key: logKey, Journal: newRAMJournal(), Metrics: metrics, Readiness: observe.NewReadiness(inv, nil)})
	testkit.Must(t, err)
	h := &testRegistry{t: t, Registry: r, observed: metrics}
	for range 20 {
		testkit.Must(t, r.Reconfigure(DefaultConfig()))
	}
	if n := h.metricSum("config_coalesced_total"); n != 4 { // sixteen are queued, and the newest of them was overwritten
		t.Errorf("%v were overwritten", n)
	}
	r.reloads.Close()
	if err := r.Reconfigure(DefaultConfig()); err == nil || h.metricSum("registry_reload_fail_total", "reason=draining") != 1 {
		t.Errorf("after the end: %v", err)
	}
	testkit.Must(t, r.Close())
}
