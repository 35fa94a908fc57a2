package peers

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"micronode/bench/ground"
)

// profiles is where our own nodes write where their processor time went. Empty:
// nowhere.
var profiles string

// Profile has all nodes of the overlay that are started from now on write a
// profile into a folder, one file for each process.
func Profile(folder string) error {
	path, err := filepath.Abs(folder) // the nodes run elsewhere
	if err != nil {
		return err
	}
	profiles = path
	return os.MkdirAll(path, 0o755)
}

// Overlay is our own: a publisher, and counters that call it. Every letter
// makes one hop.
func Overlay(signed bool) Carrier {
	return Carrier{Name: "micronode", Most: overlayWindow, Bytes: overlayBytes, Start: func(ctx context.Context, g *ground.Ground, task Task) (*Line, error) {
		nodes := overlayNodes{task: task, signed: signed}
		publisher, address, err := nodes.start(ctx, g, "publish", "")
		if err != nil {
			return nil, err
		}
		counters, err := nodes.counters(ctx, g, address)
		if err != nil {
			return nil, err
		}
		return newLine(task, publisher, counters), nil
	}}
}

// OverlayRelayed is our own with a node in between, which passes every letter
// on. Publisher and counters know nobody else. The letters are not signed.
func OverlayRelayed() Carrier {
	return Carrier{Name: "micronode", Most: relayedWindow, Bytes: overlayBytes, Start: func(ctx context.Context, g *ground.Ground, task Task) (*Line, error) {
		nodes := overlayNodes{task: task}
		relay, address, err := nodes.start(ctx, g, "relay", "")
		if err != nil {
			return nil, err
		}
		counters, err := nodes.counters(ctx, g, address)
		if err != nil {
			return nil, err
		}
		publisher, _, err := nodes.start(ctx, g, "publish", address)
		if err != nil {
			return nil, err
		}
		return newLine(task, publisher, counters, relay), nil
	}}
}

// How much our nodes have under way. Their queues hold 512 letters and 4 MiB for
// one peer. A permit is given back when a letter is written, and by then the
// window may have moved on by what one write takes: overlayBurst is what a node
// must be granted on top of the window. With a node in between there are two such
// queues, and whoever finds one of them full is made to wait for a moment.
const (
	overlayQueue  = 512
	overlayBurst  = 64
	overlayWindow = overlayQueue - overlayBurst
	relayedWindow = 2*overlayQueue - overlayBurst
	overlayBytes  = 3 << 20
)

// overlayNodes are nodes for one task.
type overlayNodes struct {
	task   Task
	signed bool
}

// start starts a node that calls another, if there is one to call.
func (n overlayNodes) start(ctx context.Context, g *ground.Ground, role, peer string) (*ground.Process, string, error) {
	binary, err := buildOverlay(ctx, g)
	if err != nil {
		return nil, "", err
	}
	arguments := append(n.task.arguments(role), "-inflight", strconv.Itoa(min(n.task.Window+overlayBurst, overlayQueue)), "-fanout", strconv.Itoa(max(n.task.Counters, 3)))
	if profiles != "" {
		arguments = append(arguments, "-profiles", profiles)
	}
	if n.signed {
		arguments = append(arguments, "-signed")
	}
	if peer != "" {
		arguments = append(arguments, "-peers", peer)
	}
	return startReady(ctx, g, "overlay "+role, binary, arguments...)
}

// counters start those who take letters, and who call the node that has them.
func (n overlayNodes) counters(ctx context.Context, g *ground.Ground, peer string) (counters []*ground.Process, err error) {
	for range n.task.Counters {
		counter, _, err := n.start(ctx, g, "count", peer)
		if err != nil {
			return nil, err
		}
		counters = append(counters, counter)
	}
	return counters, nil
}

func buildOverlay(ctx context.Context, g *ground.Ground) (string, error) {
	return g.Build(ctx, "overlay", "bench", "./peers/overlay")
}
