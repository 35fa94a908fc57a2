package testbed

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// needNetworks skips a test where no networks can be made.
func needNetworks(t *testing.T, g *Testbed) {
	t.Helper()
	if err := g.MakesNetworks(t.Context()); err != nil {
		t.Skip(err)
	}
}

// Machines of a network reach each other and nobody else, at their rate, and nothing
// of them is left.
func TestNetwork(t *testing.T) {
	g := newTestbed(t)
	needNetworks(t, g)
	n, err := g.NewNetwork(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var hosts []*Host
	for _, uplink := range []int{0, 100_000_000} {
		one, err := n.AddHost(t.Context(), uplink)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, one)
	}
	for i, one := range hosts {
		out, err := one.Run(t.Context(), nil, "bash", "-c", "exec 3<>/dev/udp/"+hosts[1-i].Address+"/9 && echo hello >&3 && cat /proc/net/route && tc qdisc show dev eth0")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Contains(out, "rate 100Mbit"), i == 1; got != want || strings.Contains(out, "00000000\t0000") && strings.Contains(out, "\t00000000\t01") {
			t.Errorf("host %d: %s", i, out)
		}
	}
	if err := hosts[0].SetCongestionControl("reno"); err != nil {
		t.Error(err)
	}
	if out, err := hosts[0].Run(t.Context(), nil, "cat", "/proc/sys/net/ipv4/tcp_congestion_control"); err != nil || strings.TrimSpace(out) != "reno" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := hosts[0].Start("sleeper", nil, "sleep", "600"); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("ip", "netns", "list").CombinedOutput(); err != nil || strings.Contains(string(out), n.name) {
		t.Errorf("%s, %v", out, err)
	}
}

// A line loses its share of the packets, and the others are late by what was asked
// for.
func TestLine(t *testing.T) {
	g := newTestbed(t)
	needNetworks(t, g)
	l, err := g.NewLine(t.Context(), Quality{Delay: 20 * time.Millisecond, Loss: 0.2, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if out, err := l.B.RunLong(ctx, nil, "bash", "-c", "for i in {1..500}; do echo $i > /dev/udp/"+l.A.Address+"/9; done"); err != nil {
		t.Fatal(err, out)
	}
	for l.passed.Load()+l.lost.Load() < 500 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if lost := l.Lost(); lost < 0.12 || lost > 0.28 {
		t.Errorf("%.2f of the packets were lost, want 0.2", lost)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
