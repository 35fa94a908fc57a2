package node

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"micronode/client"
	"micronode/internal/testkit"
)

// A port that the user's own node has is as it should be; one of somebody else
// is not.
func TestDoctorKnowsItsOwnNode(t *testing.T) {
	n := start(t, 1)
	n.waitReady(t)
	own := ownAddresses(ownStatus(t.Context(), n.options.Socket))
	for _, address := range []string{n.http.Addr().String(), n.admin.Addr().String()} {
		testkit.Equal(t, "the own node's", checkPort(t.Context(), "port", address, "--http", own).Status, CheckOK)
		testkit.Equal(t, "somebody's", checkPort(t.Context(), "port", address, "--http", nil).Status, CheckWarn)
	}
	if own := ownAddresses(ownStatus(t.Context(), filepath.Join(t.TempDir(), "absent"))); own != nil {
		t.Errorf("a node that does not run listens on %q", own)
	}
}

// A page that may not read is in the status, and the doctor says what to add; a
// reload that allows it ends both.
func TestDoctorKnowsARefusedOrigin(t *testing.T) {
	n := start(t, 1)
	n.waitReady(t)
	testkit.Equal(t, "before", checkOrigins(ownStatus(t.Context(), n.options.Socket)).Status, CheckOK)
	for range 2 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.http.Addr().String()+"/edge/packs", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Origin", "https://maps.example.org")
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	var status *client.Status
	testkit.WaitFor(t, "both to be counted", func() bool {
		status = ownStatus(t.Context(), n.options.Socket)
		return len(status.RefusedOrigins) == 1 && status.RefusedOrigins[0].Times == 2
	})
	const line = `[http] cors = ["https://maps.example.org"]`
	if one := status.RefusedOrigins[0]; one.Origin != "https://maps.example.org" || one.Route != "/edge/packs" || !strings.Contains(one.Next, line) {
		t.Errorf("%+v", one)
	}
	if check := checkOrigins(status); check.Status != CheckWarn || !strings.Contains(check.Detail, "https://maps.example.org") || !strings.Contains(check.Next, line) {
		t.Errorf("%+v", check)
	}
	allowed := n.config.Current().Value.HTTP
	allowed.CORS = []string{"https://maps.example.org"}
	n.gateway.Reconfigure(allowed)
	testkit.Equal(t, "afterwards", checkOrigins(ownStatus(t.Context(), n.options.Socket)).Status, CheckOK)
	testkit.Equal(t, "without a node", checkOrigins(nil).Status, CheckOK)
}
