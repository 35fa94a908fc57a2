package registry

import (
	"encoding/json"
	"testing"
)

// Dashboards that others have made look for these names.
func TestWhatIsPromisedIsCounted(t *testing.T) {
	folder := t.TempDir()
	h := open(t, on(files(t, folder)))
	h.init()
	h.proposed([]json.RawMessage{name("waits", "1")}, alice)
	h.change(name("docs", "1"))
	families, err := h.observed.Gatherer().Gather()
	must(t, err)
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
		if got := h.count(name); got < least {
			t.Errorf("%s is %g", name, got)
		}
	}
	if h.count("registry_checkpoint_age_seconds") <= 0 {
		t.Error("versions that no checkpoint covers do not make the last one older")
	}
	must(t, h.keepCheckpoint(t.Context(), h.view.Load()))
	if age := h.count("registry_checkpoint_age_seconds"); age != 0 {
		t.Errorf("a checkpoint that covers all is %g s old", age)
	}
}
