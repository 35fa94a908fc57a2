package session

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keyOf makes the key of a test node.
func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func idOf(key ed25519.PrivateKey) oap.PeerID { return oap.PeerIDOf(key.Public().(ed25519.PublicKey)) }

// recorder is a Handler that records everything, and Counters that do the same.
type recorder struct {
	mu       sync.Mutex
	opened   []*Session
	gossip   []oap.Gossip
	batches  int
	messages []string // kinds
	refusals []oap.Error
	closed   []error

	reasons           []CloseReason
	failures          []FailReason
	rejected          []oap.Reason
	timeouts          []string
	ioFailed          []string
	negotiated        []string
	backpressure      []string
	expired           int
	rateLimited       int
	retries           int
	handshakeTimeouts int
	sent              int
	taken             int

	onMessage func(*Session, Incoming) error   // may be nil
	onArrived func(*Session, []IncomingGossip) // may be nil
	onOpened  func(*Session)                   // may be nil
}

func (d *recorder) Opened(s *Session) {
	d.record(func() { d.opened = append(d.opened, s) })
	if d.onOpened != nil {
		d.onOpened(s)
	}
}

func (d *recorder) Gossip(s *Session, list []IncomingGossip) {
	d.record(func() {
		d.batches++
		for _, a := range list {
			d.gossip = append(d.gossip, a.Gossip.Clone())
		}
	})
	if d.onArrived != nil {
		d.onArrived(s, list)
	}
}

func (d *recorder) Message(s *Session, in Incoming) error {
	d.record(func() {
		d.messages = append(d.messages, oap.KindOf(in.Message))
		if e, ok := in.Message.(*oap.Error); ok {
			d.refusals = append(d.refusals, *e)
		}
	})
	if d.onMessage != nil {
		return d.onMessage(s, in)
	}
	return nil
}

func (d *recorder) Closed(_ *Session, err error) {
	d.record(func() { d.closed = append(d.closed, err) })
}

func (d *recorder) record(what func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what()
}

func (d *recorder) counters() Counters {
	return Counters{
		Closed:           func(r CloseReason) { d.record(func() { d.reasons = append(d.reasons, r) }) },
		HandshakeTimeout: func() { d.record(func() { d.handshakeTimeouts++ }) },
		HandshakeFailed:  func(r FailReason) { d.record(func() { d.failures = append(d.failures, r) }) },
		Negotiated:       func(o string) { d.record(func() { d.negotiated = append(d.negotiated, o) }) },
		Rejected:         func(r oap.Reason) { d.record(func() { d.rejected = append(d.rejected, r) }) },
		Timeout:          func(op string) { d.record(func() { d.timeouts = append(d.timeouts, op) }) },
		IOFailed:         func(op string) { d.record(func() { d.ioFailed = append(d.ioFailed, op) }) },
		Backpressure:     func(s string) { d.record(func() { d.backpressure = append(d.backpressure, s) }) },
		Expired:          func(n int) { d.record(func() { d.expired += n }) },
		RateLimited:      func(*Session, int) { d.record(func() { d.rateLimited++ }) },
		Retry:            func() { d.record(func() { d.retries++ }) },
		Gossip: func(dir string, frames, bytes int) {
			d.record(func() {
				if dir == dirSent {
					d.sent += frames
				} else {
					d.taken += frames
				}
			})
		},
	}
}

// node is Sessions with a recorder and groups of its own.
type node struct {
	t testing.TB
	*recorder
	*Sessions
	inv    *flow.Inventory
	tasks  Tasks
	panics []error
	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup
	route  atomic.Pointer[func(context.Context, string) (net.Conn, error)] // how it dials
}

// setDial changes how the node dials.
func (n *node) setDial(dial func(context.Context, string) (net.Conn, error)) { n.route.Store(&dial) }

// newNode makes a node. The spec may be changed before it is used.
func newNode(t testing.TB, key byte, change ...func(*Spec)) *node {
	t.Helper()
	n := &node{t: t, recorder: &recorder{}, inv: flow.NewInventory()}
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second,
		OnEvent: func(e supervise.Event) {
			if _, ok := errors.AsType[*supervise.Panic](e.Err); ok {
				n.record(func() { n.panics = append(n.panics, e.Err) })
			}
		}})
	testkit.Must(t, err)
	group := func(kind string) *supervise.Group {
		g, err := sup.NewGroup(supervise.GroupSpec{Service: service, Kind: kind, Stage: "all", Max: 1 << 16})
		testkit.Must(t, err)
		return g
	}
	n.tasks = Tasks{Handshakes: group("handshake"), Readers: group("reader"), Writers: group("writer"), Dialers: group("keeper")}
	spec := Spec{
		Key: keyOf(key), Config: DefaultConfig(), Peer: DefaultPeerConfig(), Burst: 64,
		Admit:   func(Candidate) error { return nil },
		Handler: n.recorder, Tasks: n.tasks, Counters: n.recorder.counters(),
	}
	for _, c := range change {
		c(&spec)
	}
	if n.Sessions, err = New(n.inv, spec); err != nil {
		t.Fatal(err)
	}
	n.setDial(dialTCP)
	n.Sessions.dial = func(ctx context.Context, addr string) (net.Conn, error) { return (*n.route.Load())(ctx, addr) }
	n.ctx, n.cancel = context.WithCancel(context.Background())
	t.Cleanup(n.stop)
	return n
}

// serve makes the node listen on loopback, and dial its contacts.
func (n *node) serve() *node {
	n.t.Helper()
	testkit.Must(n.t, n.Listen(n.ctx, "127.0.0.1:0"))
	n.ended.Go(func() {
		if err := n.Serve(n.ctx); err != nil {
			n.t.Errorf("Serve: %v", err)
		}
	})
	return n.runDialers()
}

func (n *node) runDialers() *node {
	n.ended.Go(func() {
		if err := n.RunDialers(n.ctx); err != nil {
			n.t.Errorf("Keep: %v", err)
		}
	})
	return n
}

// stop cancels what is left and waits until nothing runs any more.
func (n *node) stop() {
	n.t.Helper()
	n.cancel()
	cut, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Drain(cut)
	n.ended.Wait()
	for _, g := range []*supervise.Group{n.tasks.Dialers, n.tasks.Handshakes, n.tasks.Readers, n.tasks.Writers} {
		within, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := g.Wait(within); err != nil {
			n.t.Errorf("tasks are left: %v", err)
		}
		cancel()
	}
}

func (n *node) contact() Contact { return Contact{ID: n.ID(), Addrs: []string{n.Addr().String()}} }

// check makes a condition that is evaluated under the recorder's lock.
func (d *recorder) check(ask func() bool) func() bool {
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return ask()
	}
}

func (d *recorder) failedWith(r FailReason) func() bool {
	return d.check(func() bool { return slices.Contains(d.failures, r) })
}

func (d *recorder) closedWith(r CloseReason) func() bool {
	return d.check(func() bool { return slices.Contains(d.reasons, r) })
}

// connectNodes opens a session between two nodes, dialed by the first.
func connectNodes(t testing.TB, a, b *node) (*Session, *Session) {
	t.Helper()
	a.SetContacts([]Contact{b.contact()})
	testkit.WaitFor(t, "a session", func() bool { return a.Find(b.ID()) != nil && b.Find(a.ID()) != nil })
	return a.Find(b.ID()), b.Find(a.ID())
}

// testGossip makes an unsigned message of a size.
func testGossip(size int) *oap.Gossip {
	return &oap.Gossip{Msg: bytes.Repeat([]byte{'x'}, size), Hops: 8, Fanout: 3}
}

func testFrame(size int) flow.FairItem[Outgoing] {
	return flow.FairItem[Outgoing]{Class: 1, Cost: size, Item: Outgoing{Message: testGossip(size), Flags: oap.Event}}
}

type (
	queuedFrame = flow.FairItem[Outgoing]
	Ctx         = context.Context
)

func withCancel() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

// countingConn counts system calls.
type countingConn struct {
	net.Conn
	n atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

func mustWrite(t testing.TB, w *batchConn, text string) {
	t.Helper()
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func (b *batchConn) writeText(text string) error {
	_, err := b.Write([]byte(text))
	return err
}
