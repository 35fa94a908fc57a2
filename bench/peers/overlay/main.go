// Command overlay is a node with nothing but the overlay in it. It publishes
// messages, relays them, or receives and counts them. It runs with the defaults
// of a node. Only limits that would reject a bench are raised: the rate and the
// number of connections, and how many messages are remembered.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"micronode/bench/peers/loopclient"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/overlay"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

const topic = "bench/messages"

// options are the flags.
type options struct {
	role     string
	peers    string
	signed   bool
	size     int
	step     int
	inflight int
	fanout   int
	profiles string
}

func main() {
	var o options
	flag.StringVar(&o.role, "role", "", "`publish`, count or relay")
	flag.StringVar(&o.peers, "peers", "", "whom to call, as `ID@HOST:PORT`, with commas between them")
	flag.BoolVar(&o.signed, "signed", false, "sign messages, and take no others")
	flag.IntVar(&o.size, "size", 1024, "`bytes` of a message")
	flag.IntVar(&o.step, "step", 1, "report when so `many` have come")
	flag.IntVar(&o.inflight, "inflight", 0, "how `many` messages may be on their way to one peer; 0 is the default of a node")
	flag.IntVar(&o.fanout, "fanout", 0, "to how `many` peers messages are sent; 0 is the default of a node")
	flag.StringVar(&o.profiles, "profiles", "", "`folder` for a profile of the processor time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		log.Fatal("overlay: ", err)
	}
}

// run plays the role of the node until the bench ends or stops it.
func run(ctx context.Context, o options) error {
	end, err := o.profile()
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	node, ended, err := o.start(ctx)
	if err != nil {
		return err
	}
	played := make(chan error, 1)
	go func() { played <- o.runRole(ctx, node) }()
	select {
	case err = <-played:
	case <-ctx.Done():
	}
	cancel()
	<-ended
	return err
}

// profile writes a CPU profile, if one was requested.
func (o options) profile() (end func(), err error) {
	if o.profiles == "" {
		return func() {}, nil
	}
	file, err := os.Create(filepath.Join(o.profiles, fmt.Sprintf("%s-%d.prof", o.role, os.Getpid())))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); _ = file.Close() }, nil
}

// config is that of a node, with the limits raised that would reject a bench.
func (o options) config() overlay.Config {
	c := overlay.DefaultConfig()
	c.Addr, c.Open = "127.0.0.1:0", true
	if o.peers != "" {
		c.Peers = strings.Split(o.peers, ",")
	}
	c.HandshakeRate = 1_000_000
	c.Gossip.Seen = 100_000_000
	c.Peer.MaxRPS = 0
	if !o.signed {
		c.Gossip.Unsigned = []string{topic}
	}
	override := func(what *int, to int) {
		if to > 0 {
			*what = to
		}
	}
	override(&c.Peer.InflightFrames, o.inflight)
	override(&c.Gossip.RelayFanout, o.fanout)
	return c
}

// start makes a node and runs it until the context ends.
func (o options) start(ctx context.Context) (node *overlay.Overlay, ended <-chan struct{}, err error) {
	inv, stages := flow.NewInventory(), overlay.Stages{State: "state", Workers: "workers", Intake: "intake"}
	supervisor, err := supervise.New(supervise.Options{
		Stages: []supervise.Stage{{Name: stages.State}, {Name: stages.Workers}, {Name: stages.Intake}}, DrainTimeout: 2 * time.Second,
	})
	if err != nil {
		return nil, nil, err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	spec := overlay.Spec{
		Config: o.config(), Key: key, Skew: 2 * time.Minute,
		Store:   store.NewRAM(store.RAMSpec{Budget: 1 << 20, MaxObject: 1 << 20}),
		Metrics: observe.NewMetrics(observe.ReadBuild("bench")), Readiness: observe.NewReadiness(inv, supervisor),
	}
	if err := spec.Config.Validate(); err != nil {
		return nil, nil, err
	}
	if node, err = overlay.New(inv, supervisor, stages, spec); err != nil {
		return nil, nil, err
	}
	if err := node.Listen(ctx); err != nil {
		return nil, nil, err
	}
	if err := node.Add(supervisor, stages, func(overlay.Event) {}); err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = supervisor.Run(ctx) // what it says of the drain is not measured
	}()
	return node, done, nil
}

func (o options) runRole(ctx context.Context, node *overlay.Overlay) error {
	serve := func() error { return loopclient.UntilAlone() }
	if o.role == "count" {
		subscription, err := node.Subscribe(topic)
		if err != nil {
			return err
		}
		defer subscription.Close()
		serve = func() error {
			return o.count(func() ([]byte, error) {
				delivery, err := subscription.Recv(ctx)
				if err != nil {
					return nil, err
				}
				return delivery.Data, nil
			})
		}
	}
	if err := o.awaitPeers(ctx, node); err != nil {
		return err
	}
	fmt.Printf("ready at %s@%s\n", node.ID(), node.Addr())
	switch o.role {
	case "count", "relay":
		return serve()
	case "publish":
		return loopclient.Publish(os.Stdin, o.size, o.goroutines(), func(message []byte) error { return publish(ctx, node, message) })
	}
	return fmt.Errorf("role %q: publish, count or relay, please", o.role)
}

// goroutines is how many publish. Signing is worth a core; publishing without a
// signature is not.
func (o options) goroutines() int {
	if o.signed {
		return runtime.NumCPU()
	}
	return 1
}

// awaitPeers waits until every dialled peer has a session.
func (o options) awaitPeers(ctx context.Context, node *overlay.Overlay) error {
	for {
		active := 0
		for _, one := range node.Peers() {
			if one.State == "active" {
				active++
			}
		}
		if active >= len(o.config().Peers) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// publish sends a message, and retries if the node is busy, as a client would.
func publish(ctx context.Context, node *overlay.Overlay, message []byte) error {
	for {
		err := node.PublishNoID(ctx, topic, message)
		switch fault.KindOf(err) {
		case fault.Busy, fault.NotReady:
			runtime.Gosched()
		default:
			return err
		}
	}
}

// count receives messages. A gap is an error: the window of the bench is
// smaller than what a node buffers for a subscriber.
func (o options) count(next func() ([]byte, error)) error {
	counter := loopclient.NewCounter(loopclient.Reports(), o.size, o.step)
	for {
		message, err := next()
		if err != nil {
			return err
		}
		if err := counter.Take(message); err != nil {
			return err
		}
	}
}
