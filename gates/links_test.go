//go:build gates

package gates

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"micronode/client"
)

// newNetnsNetwork makes network namespaces on one switch. What each sends leaves at
// no more than that many bits a second.
func newNetnsNetwork(t *testing.T, n, uplink int) (all []*netnsNode) {
	t.Helper()
	tag := fmt.Sprintf("mn%d", os.Getpid()%100000)
	hub := &netnsNode{t: t, name: tag + "hub"}
	add := func(name string) {
		mustRun(t, "ip", "netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		mustRun(t, "ip", "-n", name, "link", "set", "lo", "up")
	}
	add(hub.name)
	mustRun(t, "ip", "-n", hub.name, "link", "add", "switch", "type", "bridge")
	mustRun(t, "ip", "-n", hub.name, "link", "set", "switch", "up")
	for i := range n {
		one := &netnsNode{t: t, name: fmt.Sprintf("%s-%d", tag, i), veth: "eth0", addr: fmt.Sprintf("10.77.0.%d", i+1), stderr: &outputBuffer{}}
		one.socket = "micronode-" + one.name
		add(one.name)
		port := fmt.Sprintf("port%d", i)
		mustRun(t, "ip", "link", "add", one.veth, "netns", one.name, "type", "veth", "peer", "name", port, "netns", hub.name)
		mustRun(t, "ip", "-n", hub.name, "link", "set", port, "master", "switch", "up")
		mustRun(t, one.netnsCommand("ip", "addr", "add", one.addr+"/24", "dev", one.veth)...)
		mustRun(t, one.netnsCommand("ip", "link", "set", one.veth, "up")...)
		mustRun(t, one.netnsCommand("tc", "qdisc", "add", "dev", one.veth, "root", "tbf", "rate", fmt.Sprintf("%dbit", uplink), "burst", "256k", "latency", "50ms")...)
		all = append(all, one)
	}
	return all
}

// startAll starts a node on each machine. All know each other.
func startAll(t *testing.T, all []*netnsNode) {
	t.Helper()
	folder := t.TempDir()
	var peers []string
	for i, one := range all {
		peers = append(peers, newKeyFile(t, folder, strconv.Itoa(i))+"@"+one.addr+":9500")
	}
	for i, one := range all {
		var arguments []string
		for j, peer := range peers {
			if j != i {
				arguments = append(arguments, "--peer", peer)
			}
		}
		one.start(filepath.Join(folder, strconv.Itoa(i)), arguments...)
	}
	for _, one := range all {
		for deadline := time.Now().Add(30 * time.Second); one.activePeers() < len(all)-1; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s has %d peers\n%s", one.name, one.activePeers(), one.stderr)
			}
		}
	}
}

// activePeers is how many sessions the node has.
func (n *netnsNode) activePeers() (active int) {
	n.t.Helper()
	var peers []client.Peer
	if err := json.Unmarshal([]byte(n.do("peers", "--json")), &peers); err != nil {
		n.t.Fatal(err)
	}
	for _, one := range peers {
		if one.State == "active" {
			active++
		}
	}
	return active
}

// streamed is how many bytes of objects the node has sent (tx) or received (rx).
func (n *netnsNode) streamed(dir string) (bytes float64) {
	n.t.Helper()
	var status client.Status
	if err := json.Unmarshal([]byte(n.do("status", "--json")), &status); err != nil {
		n.t.Fatal(err)
	}
	text := mustRun(n.t, n.netnsCommand("curl", "--silent", "--fail", "http://"+status.Listen.Admin+"/metrics")...)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "object_stream_bytes_total{") && strings.Contains(line, `dir="`+dir+`"`) {
			bytes, _ = strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		}
	}
	return bytes
}

// getting is a `micronode get` that runs.
type getting struct {
	into string
	done chan struct{}
	took time.Duration // set when done is closed
	err  error         // set when done is closed
}

// get begins to get an object into a file.
func (n *netnsNode) get(address string) *getting {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	n.t.Cleanup(cancel)
	g := &getting{into: filepath.Join(n.t.TempDir(), "copy"), done: make(chan struct{})}
	line := n.netnsCommand(binary, "get", address, "-o", g.into, "--socket", n.socket)
	began := time.Now()
	go func() {
		defer close(g.done)
		out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput()
		g.took = time.Since(began)
		if err != nil {
			g.err = fmt.Errorf("%w: %s", err, out)
		}
	}()
	return g
}

// await waits for it, and compares what has arrived.
func (g *getting) await(t *testing.T, want []byte) time.Duration {
	t.Helper()
	<-g.done
	if g.err != nil {
		t.Fatal(g.err)
	}
	if got, err := os.ReadFile(g.into); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d other bytes arrived, %v", len(got), err)
	}
	return g.took
}

// noiseOf is bytes that nothing compresses.
func noiseOf(size int, seed byte) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // it never fails
	return data
}

// putOn stores bytes on a node and returns their address.
func (n *netnsNode) putOn(data []byte) string {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), "object")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		n.t.Fatal(err)
	}
	address, _, _ := strings.Cut(n.do("put", path), " ")
	return address
}

// A seed is killed half-way of what it sends to four: these go on from each other,
// and complete as soon as somebody has what only the seed had. Nothing that has
// arrived moves again.
func TestSeedKilledHalfWay(t *testing.T) {
	needNetworks(t)
	const receivers, size = 4, 48 << 20
	all := newNetnsNetwork(t, receivers+2, 100_000_000)
	startAll(t, all)
	seed, second, rest := all[0], all[1], all[2:]
	data := noiseOf(size, 2)
	address := seed.putOn(data)
	var gets []*getting
	for _, one := range rest {
		gets = append(gets, one.get(address))
	}
	received := func() (sum float64) {
		for _, one := range rest {
			sum += one.streamed("rx")
		}
		return sum
	}
	for received() < receivers*size/2 {
		time.Sleep(50 * time.Millisecond)
	}
	if err := seed.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// What is in one of them comes to all of them; then nothing moves any more, but
	// what they tell each other of what they have.
	last := received()
	for still := time.Now(); time.Since(still) < 4*time.Second; time.Sleep(200 * time.Millisecond) {
		if now := received(); now > last+64<<10 {
			last, still = now, time.Now()
		}
	}
	alone := last
	second.putOn(data)
	var took time.Duration
	for _, one := range gets {
		took = max(took, one.await(t, data))
	}
	moved := received() / (receivers * size)
	if moved > 1.25 {
		t.Errorf("%.2f times the object moved to each", moved)
	}
	report(t, "a seed killed half-way to four", "all complete from the next one; each byte moves once, but for 25 %",
		fmt.Sprintf("%.0f %% were there before the next one came, %.2f times in all, %s", 100*min(alone/(receivers*size), 1), moved, rounded(took)))
}

// A link is away during a fetch. It goes on by itself when the link is back, and
// nothing moves twice but what was under way.
func TestPartitionDuringAFetch(t *testing.T) {
	needNetworks(t)
	away := 20 * time.Second
	if isLong() {
		away = time.Minute
	}
	const size, atMost = 64 << 20, 4 << 20
	all := newNetnsNetwork(t, 2, 100_000_000)
	startAll(t, all)
	sender, receiver := all[0], all[1]
	data := noiseOf(size, 3)
	address := sender.putOn(data)
	retryMeasurement(t, func() error {
		began := sender.streamed("tx")
		quiet := receiver.get(address).await(t, data)
		if twice := sender.streamed("tx") - began - size; twice > 1<<20 {
			return fmt.Errorf("%.1f MiB moved twice with nothing in the way", twice/(1<<20))
		}
		receiver.do("rm", address)

		began = sender.streamed("tx")
		broken := receiver.get(address)
		for sender.streamed("tx") < began+size/2 {
			time.Sleep(20 * time.Millisecond)
		}
		mustRun(t, receiver.netnsCommand("ip", "link", "set", receiver.veth, "down")...)
		time.Sleep(away)
		mustRun(t, receiver.netnsCommand("ip", "link", "set", receiver.veth, "up")...)
		took := broken.await(t, data)
		twice := sender.streamed("tx") - began - size
		receiver.do("rm", address)
		if twice < 0 || twice > atMost {
			t.Fatalf("%.1f MiB moved twice, want at most %d", twice/(1<<20), atMost>>20)
		}
		lost := took - away - quiet
		report(t, fmt.Sprintf("a link away for %s during a fetch", away), fmt.Sprintf("it goes on within a quarter of that; at most %d MiB twice", atMost>>20),
			fmt.Sprintf("after %s, %.1f MiB twice", rounded(max(lost, 0)), twice/(1<<20)))
		if lost > away/4+quiet/2 {
			return slowErrorf("a fetch of %s took %s with the link away for %s", rounded(quiet), rounded(took), away)
		}
		return nil
	})
}
