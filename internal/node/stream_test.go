package node

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"micronode/client"
)

// A stream that was opened with a token ends when that is revoked, within
// seconds, and gives the reason.
func TestAStreamEndsWhenItsTokenIsRevoked(t *testing.T) {
	k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "registry", "index", "mailbox"}, "overlay": {"overlay"}})
	overlay, gate := k.start("overlay"), k.start("gateway")
	overlay.waitReady(t)
	gate.waitReady(t)
	token := overlay.mint(t, overlay.localClient(t), client.MintRequest{Scopes: []string{"admin"}, TTL: time.Hour})
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, overlay.Info().HTTP+"/part/overlay/company", nil)
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	if answer.StatusCode != http.StatusOK || !lines.Scan() {
		t.Fatal(answer.Status)
	}
	if _, err := gate.localClient(t).RevokeToken(t.Context(), client.RevokeRequest{Token: token}); err != nil { // by another process, too
		t.Fatal(err)
	}
	said := ""
	for lines.Scan() {
		said += lines.Text() + "\n"
	}
	if !strings.Contains(said, "event: error") || !strings.Contains(said, "the token was revoked") {
		t.Errorf("%v: %s", lines.Err(), said)
	}
	http.DefaultClient.CloseIdleConnections()
	gate.stopAndWait(t)
	overlay.stopAndWait(t)
}
