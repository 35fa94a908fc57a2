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

// inProcessPeer is a session that ends in the same process: what is sent to it
// arrives at another engine.
type inProcessPeer struct {
	id   oap.PeerID
	at   *gossip.Engine
	back *inProcessPeer
}

func (i *inProcessPeer) Peer() oap.PeerID                   { return i.id }
func (i *inProcessPeer) Serial() uint64                     { return 1 }
func (i *inProcessPeer) MaxFrame() int                      { return oap.MaxPayload }
func (i *inProcessPeer) SendControl(session.Outgoing) error { return nil }
func (i *inProcessPeer) Refuse(uint64, error)               {}
func (i *inProcessPeer) Expel(uint64, error)                {}
func (i *inProcessPeer) SetBusy(bool)                       {}

func (i *inProcessPeer) OfferGossipInline(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, patience *time.Duration) []session.Outgoing {
	return i.OfferGossip(batch, rejected, patience)
}

func (i *inProcessPeer) OfferGossip(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, _ *time.Duration) []session.Outgoing {
	for _, p := range batch {
		i.at.HandleGossip(i.back, []session.IncomingGossip{{Gossip: *p.Item.Message.(*oap.Gossip), Corr: 1}})
	}
	return rejected
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
	there := &inProcessPeer{id: ids[1], at: engines[1]}
	back := &inProcessPeer{id: ids[0], at: engines[0], back: there}
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

	engines[1].Drain()       // so that the worker ends when the queue is empty
	_ = engines[1].Work(ctx) // a node has several tasks that do this
	message, err := reader.Recv(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s (signed: %v, by the publisher: %v)\n", message.Topic, message.Data, message.Signed, message.Publisher == ids[0])
	// Output:
	// peers: 1 <nil>
	// news/eu: storm (signed: true, by the publisher: true)
}
