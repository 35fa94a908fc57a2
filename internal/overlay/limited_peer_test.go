package overlay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"micronode/internal/testkit"
)

// A peer that sends more frames than overlay.peer.max_rps is an event, once a minute,
// and in the list of those that a limit rejects, with the setting.
func TestAPeerThatSendsTooMuchIsNamed(t *testing.T) {
	a, b := startNode(t, func(s *Spec) { s.Config.Peer.MaxRPS = 2 }), startNode(t, func(*Spec) {})
	connectNodes(t, a, b)
	a.subscribe("house")
	sent, limited := 0, 0
	testkit.WaitFor(t, "the peer is named", func() bool {
		for range 10 {
			b.mustPublish("house", fmt.Sprint("message ", sent))
			sent++
		}
		for len(a.events) > 0 {
			event := <-a.events
			if event.Type != PeerLimited {
				continue
			}
			limited++
			if event.Peer != b.ID() || !strings.Contains(event.Detail, "more than 2 frames a second") || !strings.Contains(event.Detail, "overlay.peer.max_rps") {
				t.Errorf("the event is %+v", event)
			}
		}
		return limited > 0
	})
	list := a.spec.Refusals.Recent(time.Now())
	if len(list) != 1 || list[0].Client != b.ID().String() || list[0].Setting != "overlay.peer.max_rps" || list[0].Count < 1 || limited != 1 {
		t.Errorf("the list is %+v, and there were %d events", list, limited)
	}
}
