//go:build gates

package gates

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"micronode/internal/testkit"
)

// newNetnsLAN makes machines that are connected by a switch.
func newNetnsLAN(t *testing.T, machines int) (list []*shell) {
	t.Helper()
	tag := fmt.Sprintf("mn%d", os.Getpid()%100000)
	hub := &netnsNode{name: tag + "s"}
	mustRun(t, "ip", "netns", "add", hub.name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", hub.name).Run() })
	mustRun(t, hub.netnsCommand("ip", "link", "add", "br0", "type", "bridge")...)
	mustRun(t, hub.netnsCommand("ip", "link", "set", "br0", "up")...)
	for i := range machines {
		one := &netnsNode{t: t, name: fmt.Sprint(tag, "m", i), veth: fmt.Sprint(tag, "v", i), addr: fmt.Sprint("10.78.0.", i+1), stderr: &outputBuffer{}}
		mustRun(t, "ip", "netns", "add", one.name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", one.name).Run() })
		port := fmt.Sprint(tag, "p", i)
		mustRun(t, "ip", "link", "add", one.veth, "netns", one.name, "type", "veth", "peer", "name", port, "netns", hub.name)
		mustRun(t, hub.netnsCommand("ip", "link", "set", port, "master", "br0", "up")...)
		mustRun(t, one.netnsCommand("ip", "link", "set", "lo", "up")...)
		mustRun(t, one.netnsCommand("ip", "addr", "add", one.addr+"/24", "dev", one.veth)...)
		mustRun(t, one.netnsCommand("ip", "link", "set", one.veth, "up")...)
		one.socket = fmt.Sprint("micronode-", os.Getuid()) // the default; each network has its own
		list = append(list, &shell{one, t.TempDir()})
	}
	return list
}

// Four default nodes join one that invites them, on machines of their own. Its
// machine dies; all messages of the others arrive at all of them.
func TestTheIntroducerDies(t *testing.T) {
	needNetworks(t)
	const members, each = 4, 5
	machines := newNetnsLAN(t, members+1)
	hub, others := machines[0], machines[1:]
	for _, one := range machines {
		one.run("micronode run")
	}
	invitation := invitationText.FindString(hub.typed(fmt.Sprintf("micronode invite --uses %d", members)))
	for _, one := range others {
		one.typed("micronode join " + invitation)
	}
	active := func(one *shell) int {
		return strings.Count(one.typed("micronode peers --json"), `"active"`)
	}
	for _, one := range others {
		testkit.WaitFor(t, "all members are connected", func() bool { return active(one) == members })
	}
	mustRun(t, hub.netnsCommand("ip", "link", "set", hub.veth, "down")...)
	for _, one := range others {
		testkit.WaitFor(t, "the introducer is missed", func() bool { return active(one) == members-1 })
	}

	received := make([]*outputBuffer, members)
	var ends []*exec.Cmd
	for i, one := range others {
		received[i] = &outputBuffer{}
		command := one.command(fmt.Sprintf("micronode sub news --count %d", members*each))
		command.Stdout, command.Stderr = received[i], received[i]
		testkit.Must(t, command.Start())
		t.Cleanup(func() { _ = command.Process.Kill() })
		ends = append(ends, command)
		one.awaitSubscriber()
	}
	for i := range each {
		for j, one := range others {
			one.typed(fmt.Sprintf("micronode pub news '%d from %d'", i, j))
		}
	}
	arrived := 0
	for i, end := range ends {
		if err := end.Wait(); err != nil {
			t.Errorf("member %d received %s: %v", i, received[i], err)
			continue
		}
		arrived += members * each
	}
	report(t, "the node that invited all others dies", "99 % of the messages of the others arrive", fmt.Sprintf("%d of %d", arrived, members*members*each))
}
