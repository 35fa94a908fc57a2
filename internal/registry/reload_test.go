package registry

import (
	"encoding/json"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/testkit"
)

// Settings that may change while the node runs take effect, and nothing is lost.
func TestSettingsChangeWhileItRuns(t *testing.T) {
	h := startRegistry(t, withJournal(openFiles(t, t.TempDir())))
	h.init()
	open := h.proposeApproved([]json.RawMessage{putName("docs", "1")}, alice, bob)
	next := h.spec.Config
	next.ProposalTTL, next.MaxProposals, next.Storage.Retain = 10*time.Minute, 4, 50
	testkit.Must(t, h.Reconfigure(next))
	testkit.WaitFor(t, "the settings are applied", func() bool { return h.metricSum("registry_reload_success_total", "source=config") == 1 })
	second := h.proposeApproved([]json.RawMessage{putName("maps", "1")})
	if latest := time.Now().Add(10 * time.Minute); second.ExpiresAt.After(latest) {
		t.Errorf("it expires at %s, and not by %s", second.ExpiresAt, latest)
	}
	h.expectWriteRefused("propose", "POST", "/registry/proposals", proposalRequest(putName("more", "1")), "QuotaExceeded")
	h.call("POST", "/registry/commit/"+open.ProposalID, nil, nil, 201)

	next.MaxProposals = 1024
	testkit.Must(t, h.Reconfigure(next))
	testkit.WaitFor(t, "the settings are applied", func() bool { return h.settings.Load().MaxProposals == 1024 })
	h.grow(600)
	next.Storage.CheckpointInterval = time.Millisecond // now one is due, and brings a prune
	testkit.Must(t, h.Reconfigure(next))
	testkit.WaitFor(t, "versions are pruned", func() bool { return len(h.log.ofType(EventPruned)) > 0 })
	if n := h.metricSum("registry_pruned_versions_total"); n == 0 || n > 550 {
		t.Errorf("%v versions were pruned", n)
	}
	if h.metricSum("registry_checkpoints_total") == 0 || h.metricSum("registry_checkpoint_size") != 600 || len(h.flushedEvents(EventCheckpointed)) == 0 {
		t.Error("the checkpoint was not counted")
	}
	h.close()
	if err := h.Reconfigure(next); err == nil || h.metricSum("registry_reload_fail_total") != 1 {
		t.Errorf("after the end: %v", err)
	}
}

// However many settings arrive while the reloader is behind, the last ones win.
func TestTheLastSettingsWin(t *testing.T) {
	inv := flow.NewInventory()
	r, err := New(t.Context(), inv, Spec{Config: DefaultConfig(), Key: logKey, Journal: newRAMJournal(),
		Metrics: observe.NewMetrics(observe.Build{}), Readiness: observe.NewReadiness(inv, nil)})
	testkit.Must(t, err)
	for i := range 100 {
		next := DefaultConfig()
		next.MaxProposals = i + 1
		testkit.Must(t, r.Reconfigure(next))
	}
	if r.reloads.Len() > 16 {
		t.Errorf("%d wait", r.reloads.Len())
	}
	r.reloads.Close()
	testkit.Must(t, r.runReloader(t.Context()))
	if most := r.settings.Load().MaxProposals; most != 100 {
		t.Errorf("those of number %d won", most)
	}
	testkit.Must(t, r.Close())
}

// When the pruner's queue is full, orders are skipped, and so is an order while
// commits are queued.
func TestPruningIsSkippedWhenBusy(t *testing.T) {
	inv := flow.NewInventory()
	config := DefaultConfig()
	config.Storage.Retain = 1
	metrics := observe.NewMetrics(observe.Build{})
	r, err := New(t.Context(), inv, Spec{Config: config, Key: logKey, Journal: newRAMJournal(), Metrics: metrics, Readiness: observe.NewReadiness(inv, nil)})
	testkit.Must(t, err)
	h := &testRegistry{t: t, Registry: r, observed: metrics}
	r.enqueuePrune(&view{}, config.Storage)
	if r.pruneOrders.Len() != 0 {
		t.Error("there is nothing to prune, and it was ordered")
	}
	grown := startRegistry(t)
	grown.init()
	grown.grow(300)
	for range 10 {
		r.enqueuePrune(grown.view.Load(), config.Storage)
	}
	if skipped := h.metricSum("registry_prune_skipped_total"); r.pruneOrders.Len() != 8 || skipped != 2 {
		t.Errorf("%d wait and %v were skipped", r.pruneOrders.Len(), skipped)
	}
	testkit.Must(t, r.jobs.TryPush(bandCommits, flow.FairItem[*job]{Item: newJob(t.Context(), nil)}))
	r.pruneOrders.Close()
	testkit.Must(t, r.runPruner(t.Context()))
	if skipped := h.metricSum("registry_prune_skipped_total"); skipped != 10 {
		t.Errorf("%v were skipped", skipped)
	}
	testkit.Must(t, r.Close())
}

// A checkpoint or a prune that fails is audited and counted, and the next one
// retries.
func TestACheckpointThatFails(t *testing.T) {
	j := &recordsOnlyJournal{Journal: newRAMJournal()}
	j.fails.Store(true)
	h := startRegistry(t, withJournal(j), withConfig(func(c *Config) { c.Storage.CheckpointInterval, c.Storage.Retain = time.Millisecond, 10 }))
	h.init()
	testkit.WaitFor(t, "the failure is counted and audited", func() bool {
		return h.metricSum("registry_checkpoints_failed_total") > 0 && len(h.log.ofType(EventStorageFailed)) > 0
	})
	if h.metricSum("storage_backoff_total", "op=write") == 0 {
		t.Error("it was not counted")
	}
	h.grow(300) // commits go on although a tile cannot be saved
	j.fails.Store(false)
	testkit.WaitFor(t, "the checkpoint covers all", func() bool { return h.metricSum("registry_checkpoint_size") == 300 })
	testkit.WaitFor(t, "versions are pruned", func() bool { return h.metricSum("registry_pruned_versions_total") == 256 })
	var version client.RegistryVersion
	if h.call("GET", "/registry/290", nil, &version, 200); len(version.Items) != 291 {
		t.Errorf("%d items", len(version.Items))
	}
	h.expectRefusal("GET", "/registry/log/tile/entries/000", nil, "Expired")
	h.call("GET", "/registry/log/tile/0/000", nil, nil, 200)
	j.fails.Store(true)
	if err := h.pruneTo(t.Context(), pruneOrder{below: 299, size: 300}); fault.KindOf(err) != fault.StorageBusy {
		t.Errorf("a prune that fails: %v", err)
	}
}
