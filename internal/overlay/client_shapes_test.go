package overlay

import (
	"testing"

	"micronode/client"
	"micronode/internal/testkit"
)

func TestTheClientReadsWhatTheOverlayAnswers(t *testing.T) {
	testkit.SameJSON[peersResponse, client.PeerList](t)
}
