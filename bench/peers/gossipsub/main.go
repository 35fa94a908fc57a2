// Command gossipsub is a host of libp2p that publishes messages, or receives
// and counts them. Every message is signed, and every signature is verified.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"

	"micronode/bench/peers/loopclient"
)

const topicName = "bench/messages"

// options are the flags.
type options struct {
	role   string
	peer   string // the host to connect to
	size   int
	step   int
	queues int

	goroutines int // that publish
}

func main() {
	var o options
	flag.StringVar(&o.role, "role", "", "`publish` or count")
	flag.StringVar(&o.peer, "peer", "", "`address` of the other host, with its id")
	flag.IntVar(&o.size, "size", 1024, "`bytes` of a message")
	flag.IntVar(&o.step, "step", 1, "report when so `many` have come")
	flag.IntVar(&o.queues, "queues", 1024, "how `many` messages may wait anywhere")
	flag.IntVar(&o.goroutines, "goroutines", runtime.NumCPU(), "how `many` publish at once")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		log.Fatal("gossipsub: ", err)
	}
}

func run(ctx context.Context, o options) error {
	self, err := newHost()
	if err != nil {
		return err
	}
	defer self.Close()
	topic, err := o.join(ctx, self)
	if err != nil {
		return err
	}
	switch o.role {
	case "publish":
		return o.publish(ctx, self, topic)
	case "count":
		return o.count(ctx, self, topic)
	}
	return fmt.Errorf("role %q: publish or count, please", o.role)
}

// newHost listens on loopback with TLS 1.3 over TCP and an Ed25519 key. It does
// no discovery.
func newHost() (host.Host, error) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return nil, err
	}
	return libp2p.New(
		libp2p.Identity(key), libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"),
		libp2p.Transport(tcp.NewTCPTransport), libp2p.Security(libp2ptls.ID, libp2ptls.New),
		libp2p.DisableRelay(), libp2p.DisableMetrics(), libp2p.ResourceManager(nil),
	)
}

// join joins the topic. The queues, which hold 32 messages by default, hold a
// whole window: what gossipsub cannot queue it drops.
func (o options) join(ctx context.Context, self host.Host) (*pubsub.Topic, error) {
	router, err := pubsub.NewGossipSub(ctx, self,
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithPeerOutboundQueueSize(o.queues), pubsub.WithValidateQueueSize(o.queues),
	)
	if err != nil {
		return nil, err
	}
	return router.Join(topicName)
}

// publish waits until the other host has subscribed to the topic.
func (o options) publish(ctx context.Context, self host.Host, topic *pubsub.Topic) error {
	other, err := peer.AddrInfoFromString(o.peer)
	if err != nil {
		return err
	}
	if err := self.Connect(ctx, *other); err != nil {
		return err
	}
	for !slices.Contains(topic.ListPeers(), other.ID) {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("ready")
	return loopclient.Publish(os.Stdin, o.size, o.goroutines, func(message []byte) error {
		return topic.Publish(ctx, slices.Clone(message)) // Publish retains it
	})
}

func (o options) count(ctx context.Context, self host.Host, topic *pubsub.Topic) error {
	subscription, err := topic.Subscribe(pubsub.WithBufferSize(o.queues))
	if err != nil {
		return err
	}
	fmt.Printf("ready at %s/p2p/%s\n", self.Addrs()[0], self.ID())
	counter := loopclient.NewCounter(loopclient.Reports(), o.size, o.step)
	failed := make(chan error, 1)
	go func() { failed <- loopclient.UntilAlone() }()
	go func() { failed <- take(ctx, subscription, counter) }()
	return <-failed
}

func take(ctx context.Context, subscription *pubsub.Subscription, counter *loopclient.Counter) error {
	for {
		message, err := subscription.Next(ctx)
		if err != nil {
			return err
		}
		if err := counter.Take(message.Data); err != nil {
			return err
		}
	}
}
