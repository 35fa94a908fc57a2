package gossip_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/session"
)

// neighbour is a session that ends in the same process: what is posted to it
// arrives at another engine.
type neighbour struct {
	id   oap.PeerID
	at   *gossip.Engine
	back *neighbour
}

func (n *neighbour) Peer() oap.PeerID       { return n.id }
func (n *neighbour) Serial() uint64         { return 1 }
func (n *neighbour) MaxFrame() int          { return oap.MaxPayload }
func (n *neighbour) Tell(session.Out) error { return nil }
func (n *neighbour) Refuse(uint64, error)   {}
func (n *neighbour) Expel(uint64, error)    {}
func (n *neighbour) SetBusy(bool)           {}

func (n *neighbour) PostHere(batch []flow.Parcel[session.Out], turned []session.Out, patience *time.Duration) []session.Out {
	return n.Post(batch, turned, patience)
}

func (n *neighbour) Post(batch []flow.Parcel[session.Out], turned []session.Out, _ *time.Duration) []session.Out {
	for _, p := range batch {
		n.at.Arrived(n.back, []session.Arrival{{Gossip: *p.Item.Message.(*oap.Gossip), Corr: 1}})
	}
	return turned
}

// Two nodes that know each other. One publishes, the other has a subscriber.
func Example() {
	var engines [2]*gossip.Engine
	var peers [2][]gossip.Peer
	var ids [2]oap.PeerID
	for i := range engines {
		key := ed25519.NewKeyFromSeed(append(make([]byte, 31), byte(i)))
		ids[i] = oap.PeerIDOf(key.Public().(ed25519.PublicKey))
		engines[i] = gossip.New(flow.NewInventory(), gossip.Spec{
			Key: key, Config: gossip.DefaultConfig(), Topics: 128, Skew: 2 * time.Minute,
			Peers: func() []gossip.Peer { return peers[i] },
		})
	}
	there := &neighbour{id: ids[1], at: engines[1]}
	back := &neighbour{id: ids[0], at: engines[0], back: there}
	there.back = back
	peers = [2][]gossip.Peer{{there}, {back}}
	engines[0].Opened(there)
	engines[1].Opened(back)

	reader, err := engines[1].Subscribe("news/eu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reader.Close()
	ctx := context.Background()
	outcome, err := engines[0].Publish(ctx, "news/eu", []byte("storm"))
	fmt.Println("peers:", outcome.Peers, err)

	engines[1].Drain()       // so that the worker ends when it has nothing left to do
	_ = engines[1].Work(ctx) // a node has several tasks that do this
	letter, err := reader.Recv(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s (signed: %v, by the publisher: %v)\n", letter.Topic, letter.Data, letter.Signed, letter.Origin == ids[0])
	// Output:
	// peers: 1 <nil>
	// news/eu: storm (signed: true, by the publisher: true)
}
