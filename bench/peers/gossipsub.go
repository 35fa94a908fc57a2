package peers

import (
	"context"
	"path/filepath"
	"strconv"

	"micronode/bench/ground"
)

// Gossipsub is libp2p's, with StrictSign: two hosts, two processes, TLS 1.3 over
// TCP, Ed25519 keys. Its queues hold a whole window; everything else is as it
// comes.
func Gossipsub() Carrier {
	return Carrier{Name: "gossipsub " + gossipsubVersion, Most: 2048, Bytes: 8 << 20, Start: startGossipsub}
}

// gossipsubVersion is the one that peers/gossipsub/go.mod requires.
const gossipsubVersion = "v0.16.0"

func startGossipsub(ctx context.Context, g *ground.Ground, task Task) (*Line, error) {
	binary, err := g.Build(ctx, "gossipsub", filepath.Join("bench", "peers", "gossipsub"), ".")
	if err != nil {
		return nil, err
	}
	// Twice the window: some queues also hold what is not a letter.
	queues := []string{"-queues", strconv.Itoa(2 * task.Window)}
	counter, address, err := startReady(ctx, g, "gossipsub count", binary, append(task.arguments("count"), queues...)...)
	if err != nil {
		return nil, err
	}
	publisher, _, err := startReady(ctx, g, "gossipsub publish", binary, append(append(task.arguments("publish"), queues...), "-peer", address)...)
	if err != nil {
		return nil, err
	}
	return newLine(task, publisher, []*ground.Process{counter}), nil
}
