package node

import (
	"context"
	"encoding/json"
	"time"

	"micronode/internal/flow"
	"micronode/internal/registry"
)

// committedTopic is the topic on which nodes announce new versions of a
// registry. The message is the event of the registry's stream; a node that
// needs more fetches it.
const committedTopic = "registry/committed"

const (
	commitMessageTimeout = 2 * time.Second // for one message
	commitMessageRetry   = 500 * time.Millisecond
	maxCommitMessages    = 64
)

// publishCommit announces a new version to other nodes. It is a hint, and may
// be lost: the overlay is busy, or has no peers.
func (n *Node) publishCommit(commit registry.Committed) {
	message, err := json.Marshal(commit)
	if err != nil {
		return // a number, a hash and a time can always be encoded
	}
	if n.commitMessages != nil {
		_ = n.commitMessages.TryPush(message) // drops the oldest if it is full; a closed queue means a drain
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitMessageTimeout)
	defer cancel()
	_, _ = n.overlay.Publish(ctx, committedTopic, message) // never waits for a peer, and counts what it refuses
}

// openCommitMessages makes the queue of messages for the overlay in another
// process.
func (n *Node) openCommitMessages() {
	if n.remoteClients.overlay == nil {
		return
	}
	n.commitMessages = flow.NewQueue[[]byte](n.inventory, flow.QueueSpec{
		Service: "registry", Name: "commit_messages", Cap: maxCommitMessages, Policy: flow.DropOldest, From: "registry publisher", To: "overlay in another process",
	})
}

// serveCommitMessages sends them to the overlay. A message that fails is tried
// once more, when the overlay may be back.
func (n *Node) serveCommitMessages(ctx context.Context) error {
	for {
		message, err := n.commitMessages.Pop(ctx)
		if err != nil {
			return nil // stopped
		}
		if n.sendCommitMessage(ctx, message) != nil && flow.Sleep(ctx, commitMessageRetry) == nil {
			_ = n.sendCommitMessage(ctx, message) // a hint that may be lost
		}
	}
}

func (n *Node) sendCommitMessage(ctx context.Context, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, commitMessageTimeout)
	defer cancel()
	_, err := n.remoteClients.overlay.Publish(ctx, committedTopic, message)
	return err
}
