package peers

import (
	"context"
	"path/filepath"
	"strconv"

	"micronode/bench/testbed"
)

// Gossipsub is libp2p's, with StrictSign: two hosts, two processes, TLS 1.3
// over TCP, Ed25519 keys. Its queues hold a whole window; everything else is
// the default.
func Gossipsub() PubSub {
	return PubSub{Name: "gossipsub " + gossipsubVersion, MaxMessages: 2048, MaxBytes: 8 << 20, Start: startGossipsub}
}

// gossipsubVersion is the one that peers/gossipsub/go.mod requires.
const gossipsubVersion = "v0.16.0"

func startGossipsub(ctx context.Context, g *testbed.Testbed, task PubSubTask) (*Pipeline, error) {
	binary, err := g.Build(ctx, "gossipsub", filepath.Join("bench", "peers", "gossipsub"), ".")
	if err != nil {
		return nil, err
	}
	// Twice the window: some queues also hold control messages.
	queues := []string{"-queues", strconv.Itoa(2 * task.Window)}
	counter, address, err := startReady(ctx, g, "gossipsub count", binary, append(task.arguments("count"), queues...)...)
	if err != nil {
		return nil, err
	}
	publisher, _, err := startReady(ctx, g, "gossipsub publish", binary, append(append(task.arguments("publish"), queues...), "-peer", address)...)
	if err != nil {
		return nil, err
	}
	return newPipeline(task, publisher, []*testbed.Process{counter}), nil
}
