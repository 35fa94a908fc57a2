package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// reasonFor is the row of readiness about a dependency; empty if there is none.
func reasonFor(v observe.Verdict, dep string) string {
	for _, one := range v.Reasons {
		if one.Dep == dep {
			return one.Reason
		}
	}
	return ""
}

// What a reload leaves to be done stays in the status until it is done, and
// takes the node out of no balancer.
func TestWhatAReloadLeftStaysInTheStatus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.toml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[log]\nlevel = \"info\"\n")
	options := testOptions(t)
	options.Sources.File = file
	n, err := New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	loaded := n.config.Current()
	for _, step := range []struct {
		name              string
		text              string
		rejected, pending string
	}{
		{"a typo", "[log]\nlevel = \"info\"\nlevle = \"debug\"\n", "log.levle", ""},
		{"a restart is needed", "[node]\nworkers = 3\n", "", "node.workers"},
		{"and a typo", "[node]\nworkers = 3\nworkrs = 4\n", "node.workrs", "node.workers"},
		{"all as before", "[log]\nlevel = \"info\"\n", "", ""},
	} {
		write(step.text)
		watcher := config.NewWatcher(flow.NewInventory(), n.loadConfig, loaded, config.Options{OnResult: n.onReload})
		_ = watcher.Trigger("file")
		watcher.Close()
		_ = watcher.Serve(t.Context())
		verdict := n.readiness.Evaluate()
		for dep, want := range map[string]string{"node/config reload": step.rejected, "node/config restart": step.pending} {
			got := reasonFor(verdict, dep)
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s: %s is %q, want something about %q", step.name, dep, got, want)
			}
		}
		if verdict.Degraded {
			t.Errorf("%s: the node is degraded: %v", step.name, verdict.Reasons)
		}
	}
}
