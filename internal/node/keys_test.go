package node

import (
	"bytes"
	"strings"
	"testing"

	"micronode/internal/amnesia"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// When a node is closed, its private key is wiped from memory, and memory is
// released once more.
func TestACloseForgetsTheKeys(t *testing.T) {
	n, err := New(t.Context(), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	key := n.identity.private
	if bytes.Equal(key, make([]byte, len(key))) {
		t.Fatal("there is no key")
	}
	purged := 0
	n.purger.Register(func() { purged++ })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(key, make([]byte, len(key))) {
		t.Error("the identity is still in memory")
	}
	if purged != 1 {
		t.Errorf("purged %d times", purged)
	}
}

// With amnesia.enforce=auto and a kernel that cannot enforce it, the node is
// degraded. With off, readiness only notes it.
func TestWhatTheKernelDoesNotEnforceIsDegraded(t *testing.T) {
	for enforce, degraded := range map[string]bool{"auto": true, "off": false} {
		n, err := New(t.Context(), testOptions(t))
		if err != nil {
			t.Fatal(err)
		}
		n.options.Unconfined = false
		n.confined = amnesia.Confinement{Reason: "the kernel has no Landlock", Next: "Use another kernel."}
		n.readiness = observe.NewReadiness(flow.NewInventory(), nil)
		n.reportAmnesia(Config{Amnesia: AmnesiaSection{Enforce: enforce}})
		verdict := n.readiness.Evaluate()
		said := false
		for _, one := range verdict.Reasons {
			said = said || strings.Contains(one.Reason, "Landlock") && one.Next != ""
		}
		if verdict.Degraded != degraded || !said {
			t.Errorf("%s: %+v", enforce, verdict)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}
