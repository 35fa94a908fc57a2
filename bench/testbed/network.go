package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Network is machines of their own on one switch: network namespaces of the
// kernel, so what programs send each other are real packets through real TCP.
// Without a limit a link is as fast as the machine.
type Network struct {
	// set at construction
	testbed *Testbed
	name    string // of the namespace of the switch, and how those of its hosts begin

	// owned by the goroutine of the testbed
	hosts []*Host
}

// Host is a machine on a network.
type Host struct {
	Address string // its IPv4 address

	network *Network
	name    string // of its namespace
}

// link is the network device of a host.
const link = "eth0"

// switchName is the bridge in the namespace of the switch.
const switchName = "switch"

// MakesNetworks says why this machine makes no networks, or nil: it takes root,
// and the command ip.
func (t *Testbed) MakesNetworks(ctx context.Context) error {
	if err := t.Require(ctx, "ip", "iproute2"); err != nil {
		return err
	}
	if _, err := t.RunBounded(ctx, nil, "unshare", "--net", "ip", "link", "add", "probe", "type", "veth"); err != nil {
		return fmt.Errorf("this machine does not let us make networks of our own: %w", err)
	}
	return nil
}

// NewNetwork makes a network without hosts. The testbed removes it.
func (t *Testbed) NewNetwork(ctx context.Context) (*Network, error) {
	if err := t.MakesNetworks(ctx); err != nil {
		return nil, err
	}
	t.networks++
	n := &Network{testbed: t, name: fmt.Sprintf("bench%d-%d", os.Getpid(), t.networks)}
	if err := n.addNamespace(ctx, n.name); err != nil {
		return nil, err
	}
	return n, n.ip(ctx,
		[]string{"-n", n.name, "link", "add", switchName, "type", "bridge"},
		[]string{"-n", n.name, "link", "set", switchName, "up"})
}

// addNamespace adds a namespace, which is removed after the programs in it have
// ended.
func (n *Network) addNamespace(ctx context.Context, name string) error {
	if err := n.ip(ctx, []string{"netns", "add", name}); err != nil {
		return err
	}
	n.testbed.OnClose(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	return n.ip(ctx, []string{"-n", name, "link", "set", "lo", "up"})
}

// ip runs the command ip with each list of arguments.
func (n *Network) ip(ctx context.Context, lines ...[]string) error {
	for _, line := range lines {
		if _, err := n.testbed.RunBounded(ctx, nil, "ip", line...); err != nil {
			return err
		}
	}
	return nil
}

// newHost adds a machine that has no link yet.
func (n *Network) newHost(ctx context.Context) (*Host, error) {
	h := &Host{network: n, name: fmt.Sprintf("%s-%d", n.name, len(n.hosts)+1), Address: fmt.Sprintf("10.78.0.%d", len(n.hosts)+1)}
	n.hosts = append(n.hosts, h)
	return h, n.addNamespace(ctx, h.name)
}

// AddHost connects another machine to the switch. What it sends leaves at no
// more than that many bits a second, as on a line with so much upwards; 0 is no
// limit. What it receives has none of its own.
func (n *Network) AddHost(ctx context.Context, uplink int) (*Host, error) {
	h, err := n.newHost(ctx)
	if err != nil {
		return nil, err
	}
	port := fmt.Sprintf("port%d", len(n.hosts))
	err = n.ip(ctx,
		[]string{"link", "add", link, "netns", h.name, "type", "veth", "peer", "name", port, "netns", n.name},
		[]string{"-n", n.name, "link", "set", port, "master", switchName, "up"},
		[]string{"-n", h.name, "addr", "add", h.Address + "/24", "dev", link},
		[]string{"-n", h.name, "link", "set", link, "up"})
	if err != nil {
		return nil, err
	}
	if uplink > 0 {
		_, err = h.Run(ctx, nil, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", fmt.Sprintf("%dbit", uplink), "burst", "256k", "latency", "50ms")
	}
	return h, err
}

// SetCongestionControl chooses by what rule the host's TCP slows down.
func (h *Host) SetCongestionControl(name string) error {
	return h.within(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_congestion_control", []byte(name), 0o644) })
}

// Start is that of the testbed, on this machine.
func (h *Host) Start(name string, environment []string, path string, arguments ...string) (*Process, error) {
	return h.network.testbed.Start(name, environment, "ip", h.line(path, arguments)...)
}

// Run runs a short command on this machine, with a timeout, and returns what it
// printed.
func (h *Host) Run(ctx context.Context, environment []string, path string, arguments ...string) (string, error) {
	return h.network.testbed.RunBounded(ctx, environment, "ip", h.line(path, arguments)...)
}

// RunLong is Run for what is measured: only the context bounds it.
func (h *Host) RunLong(ctx context.Context, environment []string, path string, arguments ...string) (string, error) {
	return h.network.testbed.Run(ctx, ".", environment, "ip", h.line(path, arguments)...)
}

// line are the arguments of ip that run a command on this machine.
func (h *Host) line(path string, arguments []string) []string {
	return append([]string{"netns", "exec", h.name, path}, arguments...)
}

// namespaces is where the command ip keeps namespaces.
const namespaces = "/run/netns"

// file opens the namespace of the host.
func (h *Host) file() (*os.File, error) {
	return os.Open(filepath.Join(namespaces, h.name))
}
