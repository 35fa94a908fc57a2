package peers

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"micronode/bench/testbed"
)

// profileFolder is where our own nodes write CPU profiles. Empty: nowhere.
var profileFolder string

// Profile has all nodes of the overlay that are started from now on write a
// profile into a folder, one file for each process.
func Profile(folder string) error {
	path, err := filepath.Abs(folder) // the nodes run elsewhere
	if err != nil {
		return err
	}
	profileFolder = path
	return os.MkdirAll(path, 0o755)
}

// Overlay is our own: a publisher, and counters that dial it. Every message
// makes one hop.
func Overlay(signed bool) PubSub {
	return PubSub{Name: "micronode", MaxMessages: overlayWindow, MaxBytes: overlayBytes, Start: func(ctx context.Context, g *testbed.Testbed, task PubSubTask) (*Pipeline, error) {
		nodes := overlayNodes{task: task, signed: signed}
		publisher, address, err := nodes.start(ctx, g, "publish", "")
		if err != nil {
			return nil, err
		}
		counters, err := nodes.startCounters(ctx, g, address)
		if err != nil {
			return nil, err
		}
		return newPipeline(task, publisher, counters), nil
	}}
}

// OverlayRelayed is our own with a node in between, which relays every message.
// Publisher and counters have no other peers. The messages are not signed.
func OverlayRelayed() PubSub {
	return PubSub{Name: "micronode", MaxMessages: relayedWindow, MaxBytes: overlayBytes, Start: func(ctx context.Context, g *testbed.Testbed, task PubSubTask) (*Pipeline, error) {
		nodes := overlayNodes{task: task}
		relay, address, err := nodes.start(ctx, g, "relay", "")
		if err != nil {
			return nil, err
		}
		counters, err := nodes.startCounters(ctx, g, address)
		if err != nil {
			return nil, err
		}
		publisher, _, err := nodes.start(ctx, g, "publish", address)
		if err != nil {
			return nil, err
		}
		return newPipeline(task, publisher, counters, relay), nil
	}}
}

// How much our nodes have in flight. Their queues hold 512 messages and 4 MiB
// for one peer. A permit is released when a message is written, and by then the
// window may have moved on by the size of one write: overlayBurst is what a
// node must be granted on top of the window. With a node in between there are
// two such queues, and a sender that finds one of them full has to wait for a
// moment.
const (
	overlayQueue  = 512
	overlayBurst  = 64
	overlayWindow = overlayQueue - overlayBurst
	relayedWindow = 2*overlayQueue - overlayBurst
	overlayBytes  = 3 << 20
)

// overlayNodes are nodes for one task.
type overlayNodes struct {
	task   PubSubTask
	signed bool
}

// start starts a node that dials another, if there is one to dial.
func (n overlayNodes) start(ctx context.Context, g *testbed.Testbed, role, peer string) (*testbed.Process, string, error) {
	binary, err := buildOverlay(ctx, g)
	if err != nil {
		return nil, "", err
	}
	arguments := append(n.task.arguments(role), "-inflight", strconv.Itoa(min(n.task.Window+overlayBurst, overlayQueue)), "-fanout", strconv.Itoa(max(n.task.Counters, 3)))
	if profileFolder != "" {
		arguments = append(arguments, "-profiles", profileFolder)
	}
	if n.signed {
		arguments = append(arguments, "-signed")
	}
	if peer != "" {
		arguments = append(arguments, "-peers", peer)
	}
	return startReady(ctx, g, "overlay "+role, binary, arguments...)
}

// startCounters starts the counters, which dial the node that publishes or
// relays.
func (n overlayNodes) startCounters(ctx context.Context, g *testbed.Testbed, peer string) (counters []*testbed.Process, err error) {
	for range n.task.Counters {
		counter, _, err := n.start(ctx, g, "count", peer)
		if err != nil {
			return nil, err
		}
		counters = append(counters, counter)
	}
	return counters, nil
}

func buildOverlay(ctx context.Context, g *testbed.Testbed) (string, error) {
	return g.Build(ctx, "overlay", "bench", "./peers/overlay")
}
