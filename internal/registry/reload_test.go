package registry

import (
	"encoding/json"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// What may change while the node runs does, and nothing is lost by it.
func TestSettingsChangeWhileItRuns(t *testing.T) {
	h := open(t, on(files(t, t.TempDir())))
	h.init()
	open := h.proposed([]json.RawMessage{name("docs", "1")}, alice, bob)
	next := h.spec.Config
	next.ProposalTTL, next.MaxProposals, next.Storage.Retain = 10*time.Minute, 2, 50
	must(t, h.Reconfigure(next))
	waitFor(t, func() bool { return h.count("registry_reload_success_total", "source=config") == 1 })
	second := h.proposed([]json.RawMessage{name("maps", "1")})
	if left := time.Until(second.ExpiresAt); left > 10*time.Minute {
		t.Errorf("it expires in %s", left)
	}
	h.turnedAway("propose", "POST", "/registry/proposals", request(name("more", "1")), "QuotaExceeded")
	h.call("POST", "/registry/commit/"+open.ProposalID, nil, nil, 201)

	next.MaxProposals = 1024
	must(t, h.Reconfigure(next))
	waitFor(t, func() bool { return h.settings.Load().MaxProposals == 1024 })
	h.grow(600)
	next.Storage.CheckpointInterval = time.Millisecond // now one is due, and brings a prune
	must(t, h.Reconfigure(next))
	waitFor(t, func() bool { return len(h.log.of(Pruned)) > 0 })
	if n := h.count("registry_pruned_versions_total"); n == 0 || n > 550 {
		t.Errorf("%v versions were pruned", n)
	}
	if h.count("registry_checkpoints_total") == 0 || h.count("registry_checkpoint_size") != 600 || len(h.told(Checkpointed)) == 0 {
		t.Error("the checkpoint was not counted")
	}
	h.close()
	if err := h.Reconfigure(next); err == nil || h.count("registry_reload_fail_total") != 1 {
		t.Errorf("after the end: %v", err)
	}
}

// However many settings come while the reloader is behind, the last ones win.
func TestTheLastSettingsWin(t *testing.T) {
	inv := flow.NewInventory()
	r, err := New(t.Context(), inv, Spec{Config: DefaultConfig(), Key: logKey, Journal: inMemory(),
		Metrics: observe.NewMetrics(observe.Build{}), Readiness: observe.NewReadiness(inv, nil)})
	must(t, err)
	for i := range 100 {
		next := DefaultConfig()
		next.MaxProposals = i + 1
		must(t, r.Reconfigure(next))
	}
	if r.reloads.Len() > 16 {
		t.Errorf("%d wait", r.reloads.Len())
	}
	r.reloads.Close()
	must(t, r.reload(t.Context()))
	if most := r.settings.Load().MaxProposals; most != 100 {
		t.Errorf("those of number %d won", most)
	}
	must(t, r.Close())
}

// A pruner that has not got to the last orders yet is given no more, and one
// that finds the committer busy waits for the next.
func TestPruningIsSkippedWhenBusy(t *testing.T) {
	inv := flow.NewInventory()
	config := DefaultConfig()
	config.Storage.Retain = 1
	metrics := observe.NewMetrics(observe.Build{})
	r, err := New(t.Context(), inv, Spec{Config: config, Key: logKey, Journal: inMemory(), Metrics: metrics, Readiness: observe.NewReadiness(inv, nil)})
	must(t, err)
	h := &house{t: t, Registry: r, observed: metrics}
	r.orderPruning(&view{}, config.Storage)
	if r.retention.Len() != 0 {
		t.Error("there is nothing to prune, and it was ordered")
	}
	grown := open(t)
	grown.init()
	grown.grow(300)
	for range 10 {
		r.orderPruning(grown.view.Load(), config.Storage)
	}
	if skipped := h.count("registry_prune_skipped_total"); r.retention.Len() != 8 || skipped != 2 {
		t.Errorf("%d wait and %v were skipped", r.retention.Len(), skipped)
	}
	must(t, r.jobs.TryPush(bandCommits, flow.Parcel[*job]{Item: newJob(t.Context(), nil)}))
	r.retention.Close()
	must(t, r.prune(t.Context()))
	if skipped := h.count("registry_prune_skipped_total"); skipped != 10 {
		t.Errorf("%v were skipped", skipped)
	}
	must(t, r.Close())
}

// A checkpoint or a prune that fails is told and counted, and the next one
// tries again.
func TestACheckpointThatFails(t *testing.T) {
	j := &forgetful{Journal: inMemory()}
	j.fails.Store(true)
	h := open(t, on(j), with(func(c *Config) { c.Storage.CheckpointInterval, c.Storage.Retain = time.Millisecond, 10 }))
	h.init()
	waitFor(t, func() bool { return h.count("registry_checkpoints_failed_total") > 0 && len(h.log.of(Failed)) > 0 })
	if h.count("storage_backoff_total", "op=write") == 0 {
		t.Error("it was not counted")
	}
	h.grow(300) // a tile that cannot be kept is no reason not to commit
	j.fails.Store(false)
	waitFor(t, func() bool { return h.count("registry_checkpoint_size") == 300 })
	waitFor(t, func() bool { return h.count("registry_pruned_versions_total") == 256 })
	var version client.RegistryVersion
	if h.call("GET", "/registry/290", nil, &version, 200); len(version.Items) != 291 {
		t.Errorf("%d items", len(version.Items))
	}
	h.refused("GET", "/registry/log/tile/entries/000", nil, "Expired")
	h.call("GET", "/registry/log/tile/0/000", nil, nil, 200)
	j.fails.Store(true)
	if err := h.pruneTo(t.Context(), order{below: 299, size: 300}); fault.KindOf(err) != fault.StorageBusy {
		t.Errorf("a prune that fails: %v", err)
	}
}
