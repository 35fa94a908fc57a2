package node

import (
	"path/filepath"
	"testing"

	"micronode/internal/testkit"
)

// A port that the user's own node has is as it should be; one of somebody else
// is not.
func TestDoctorKnowsItsOwnNode(t *testing.T) {
	n := start(t, 1)
	n.waitReady(t)
	own := ownAddresses(t.Context(), n.options.Socket)
	for _, address := range []string{n.http.Addr().String(), n.admin.Addr().String()} {
		testkit.Equal(t, "the own node's", checkPort(t.Context(), "port", address, "--http", own).Status, CheckOK)
		testkit.Equal(t, "somebody's", checkPort(t.Context(), "port", address, "--http", nil).Status, CheckWarn)
	}
	if own := ownAddresses(t.Context(), filepath.Join(t.TempDir(), "absent")); own != nil {
		t.Errorf("a node that does not run listens on %q", own)
	}
}
