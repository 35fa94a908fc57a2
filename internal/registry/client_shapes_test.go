package registry

import (
	"testing"

	"micronode/client"
	"micronode/internal/testkit"
)

func TestTheClientReadsWhatTheStreamSends(t *testing.T) {
	testkit.SameJSON[Committed, client.RegistryUpdated](t)
}
