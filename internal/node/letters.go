package node

import (
	"context"
	"encoding/json"
	"time"

	"micronode/client"
	"micronode/internal/flow"
	"micronode/internal/registry"
)

// committedTopic is where nodes hear that a registry has another version. The
// letter is the event of the registry's stream; who cares asks for the rest.
const committedTopic = "registry/committed"

const (
	letterTime  = 2 * time.Second // for one letter
	letterPause = 500 * time.Millisecond
	mostLetters = 64
)

// publish tells other nodes of a new version. It is a hint, and may be lost: the
// overlay is busy, or nobody is there.
func (n *Node) publish(news registry.Committed) {
	letter, err := json.Marshal(client.RegistryUpdated{Version: news.Head.Version, B3: news.Head.Hash, CommittedAt: news.At})
	if err != nil {
		return // a number, a hash and a time can always be encoded
	}
	if n.letters != nil {
		_ = n.letters.TryPush(letter) // the oldest goes if there are too many, and a closed queue drains
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), letterTime)
	defer cancel()
	_, _ = n.overlay.Publish(ctx, committedTopic, letter) // it never waits for a peer, and counts what it refuses
}

// openLetters makes the queue of what the overlay in another process is to send.
func (n *Node) openLetters() {
	if n.far.overlay == nil {
		return
	}
	n.letters = flow.NewQueue[[]byte](n.inventory, flow.QueueSpec{
		Service: "registry", Name: "letters", Cap: mostLetters, Policy: flow.DropOldest, From: "registry publisher", To: "overlay in another process",
	})
}

// serveLetters hands them over. One that is not taken is tried once more, when
// the overlay may be back.
func (n *Node) serveLetters(ctx context.Context) error {
	for {
		letter, err := n.letters.Pop(ctx)
		if err != nil {
			return nil // told to stop
		}
		if n.send(ctx, letter) != nil && flow.Sleep(ctx, letterPause) == nil {
			_ = n.send(ctx, letter) // a hint that may be lost
		}
	}
}

func (n *Node) send(ctx context.Context, letter []byte) error {
	ctx, cancel := context.WithTimeout(ctx, letterTime)
	defer cancel()
	_, err := n.far.overlay.Publish(ctx, committedTopic, letter)
	return err
}
