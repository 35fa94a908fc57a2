package node

import (
	"testing"

	"micronode/client"
	"micronode/internal/testkit"
)

func TestTheClientReadsTheEventsOfTheNode(t *testing.T) {
	testkit.SameJSON[Event, client.NodeEvent](t)
}
