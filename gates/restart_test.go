//go:build gates

package gates

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"micronode/client"
)

// What a node with a folder has acknowledged is there after it was killed: open
// proposals with their approvals, which can be committed, and peers.
func TestProposalsAndPeersOverAKill(t *testing.T) {
	folder := t.TempDir()
	council := newTestRegistry(t)
	p := startWith(t, nil, []string{"--persist", folder})
	council.initRegistry(p)
	by := council.newClient(p)
	var ids []string
	for range 8 {
		id, err := by.proposeAndApprove(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	other := start(t, nil)
	addr, peer := other.overlayEndpoint()
	if _, err := p.local().AddPeer(t.Context(), peer+"@"+addr); err != nil {
		t.Fatal(err)
	}
	p.kill()
	<-p.exited

	p = startWith(t, nil, []string{"--persist", folder})
	by = council.newClient(p)
	for _, id := range ids {
		var head client.RegistryHead
		if err := by.post(t.Context(), "/registry/commit/"+id, struct{}{}, &head, http.StatusCreated); err != nil {
			t.Error(err)
		}
	}
	peers, err := p.local().Peers(t.Context())
	if err != nil || len(peers) != 1 || peers[0].ID != peer {
		t.Errorf("peers after the restart: %+v, %v", peers, err)
	}
	report(t, "proposals and peers over a kill", "8 proposals committed, 1 peer", fmt.Sprintf("%d proposals, %d peers", len(ids), len(peers)))
	p.stop(syscall.SIGTERM)
	other.stop(syscall.SIGTERM)
}
