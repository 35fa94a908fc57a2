package overlay

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/observe"
	"micronode/internal/overlay/nearby"
	"micronode/internal/testkit"
)

func TestTheClientReadsNodesNearby(t *testing.T) {
	testkit.SameJSON[client.NearbyList, client.NearbyList](t)
}

// remark is what readiness says of finding nodes nearby; empty if all is well.
func (n *testNode) remark() string {
	for _, one := range n.readiness.Evaluate().Reasons {
		if one.Dep == "overlay/lan" {
			return one.Reason
		}
	}
	return ""
}

// What finding others fares like is told as it is, and the node is ready all the
// while. The default listener opens, so that others can come.
func TestHowFindingNodesFares(t *testing.T) {
	n := startNode(t, func(s *Spec) { s.Config.LAN, s.Config.Addr, s.AnyPort = true, freeAddr(t), true })
	if n.onLoopback() || n.lanPort() == 0 {
		t.Errorf("it is to be found, and listens on %s", n.Addr())
	}
	testkit.WaitFor(t, "the node is ready", func() bool { return n.readiness.Evaluate().Ready })
	refused := &fault.Error{Op: "x", Kind: fault.NotReady, Detail: "multicast DNS is not possible on eth0: operation not permitted", Next: "Look."}
	for _, c := range []struct {
		state nearby.State
		says  string
	}{
		{nearby.State{Problem: errors.Join(refused)}, "not found: multicast DNS is not possible on eth0: operation not permitted"},
		{nearby.State{Networks: []string{"wlan0"}, Announced: true, Problem: errors.Join(refused)}, "in wlan0 only: multicast DNS"},
		{nearby.State{Networks: []string{"wlan0"}}, "do not find this one"},
		{nearby.State{Networks: []string{"wlan0"}, Announced: true}, ""},
	} {
		n.reportLAN(c.state)
		if got := n.remark(); !strings.Contains(got, c.says) || c.says == "" && got != "" {
			t.Errorf("%+v: %q", c.state, got)
		}
		if verdict := n.readiness.Evaluate(); !verdict.Ready || verdict.Degraded {
			t.Errorf("%+v: the node is not ready: %+v", c.state, verdict)
		}
	}
}

// A node without the setting has no such list, no task and no remark.
func TestWithoutTheSettingNobodyIsNearby(t *testing.T) {
	n := startNode(t, func(s *Spec) { s.Config.Addr, s.AnyPort = freeAddr(t), true })
	list, err := n.sdk().Nearby(t.Context())
	if err != nil || len(list) != 0 || !n.onLoopback() || n.lan != nil {
		t.Errorf("%v, %v, at %s", list, err, n.Addr())
	}
	for _, unit := range n.supervisor.Status() {
		if strings.Contains(unit.Name, "lan") {
			t.Errorf("there is a task %s", unit.Name)
		}
	}
	if err := n.sdk().ForgetKnock(t.Context(), n.ID().String()); fault.KindOf(err) != fault.NotFound {
		t.Errorf("forgotten: %v", err)
	}
	if slices.ContainsFunc(n.readiness.Evaluate().Reasons, func(r observe.Reason) bool { return strings.Contains(fmt.Sprint(r), "lan") }) {
		t.Error("there is a remark")
	}
}
