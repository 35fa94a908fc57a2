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

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keyOf makes the key of a test node.
func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func idOf(key ed25519.PrivateKey) oap.PeerID { return oap.PeerIDOf(key.Public().(ed25519.PublicKey)) }

// diary is a Handler that keeps everything, and Counters that do the same.
type diary struct {
	mu       sync.Mutex
	opened   []*Session
	letters  []oap.Gossip
	batches  int
	messages []string // kinds
	refusals []oap.Error
	closed   []error

	reasons  []CloseReason
	failures []FailReason
	rejected []oap.Reason
	timeouts []string
	groups   []string
	pressed  []string
	expired  int
	over     int
	retries  int
	slow     int
	sent     int
	taken    int

	onMessage func(*Session, Incoming) error // may be nil
	onArrived func(*Session, []Arrival)      // may be nil
	onOpened  func(*Session)                 // may be nil
}

func (d *diary) Opened(s *Session) {
	d.note(func() { d.opened = append(d.opened, s) })
	if d.onOpened != nil {
		d.onOpened(s)
	}
}

func (d *diary) Arrived(s *Session, list []Arrival) {
	d.note(func() {
		d.batches++
		for _, a := range list {
			d.letters = append(d.letters, a.Gossip.Clone())
		}
	})
	if d.onArrived != nil {
		d.onArrived(s, list)
	}
}

func (d *diary) Message(s *Session, in Incoming) error {
	d.note(func() {
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

func (d *diary) Closed(_ *Session, err error) { d.note(func() { d.closed = append(d.closed, err) }) }

func (d *diary) note(what func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what()
}

func (d *diary) counters() Counters {
	return Counters{
		Closed:           func(r CloseReason) { d.note(func() { d.reasons = append(d.reasons, r) }) },
		HandshakeTimeout: func() { d.note(func() { d.slow++ }) },
		HandshakeFailed:  func(r FailReason) { d.note(func() { d.failures = append(d.failures, r) }) },
		Negotiated:       func(o string) { d.note(func() { d.groups = append(d.groups, o) }) },
		Rejected:         func(r oap.Reason) { d.note(func() { d.rejected = append(d.rejected, r) }) },
		Timeout:          func(op string) { d.note(func() { d.timeouts = append(d.timeouts, op) }) },
		Backpressure:     func(s string) { d.note(func() { d.pressed = append(d.pressed, s) }) },
		Expired:          func(n int) { d.note(func() { d.expired += n }) },
		Over:             func(n int) { d.note(func() { d.over += n }) },
		Retry:            func() { d.note(func() { d.retries++ }) },
		Gossip: func(dir string, frames, bytes int) {
			d.note(func() {
				if dir == sent {
					d.sent += frames
				} else {
					d.taken += frames
				}
			})
		},
	}
}

// node is Sessions with a diary and groups of its own.
type node struct {
	t testing.TB
	*diary
	*Sessions
	inv    *flow.Inventory
	tasks  Tasks
	panics []error
	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup
	route  atomic.Pointer[func(context.Context, string) (net.Conn, error)] // how it dials
}

// reroute changes how the node dials.
func (n *node) reroute(dial func(context.Context, string) (net.Conn, error)) { n.route.Store(&dial) }

// newNode makes one. The spec may be changed before it is used.
func newNode(t testing.TB, key byte, change ...func(*Spec)) *node {
	t.Helper()
	n := &node{t: t, diary: &diary{}, inv: flow.NewInventory()}
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, Total: time.Second,
		OnEvent: func(e supervise.Event) {
			if _, ok := errors.AsType[*supervise.Panic](e.Err); ok {
				n.note(func() { n.panics = append(n.panics, e.Err) })
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	group := func(kind string) *supervise.Group {
		g, err := sup.NewGroup(supervise.GroupSpec{Service: service, Kind: kind, Stage: "all", Max: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	n.tasks = Tasks{Handshakes: group("handshake"), Readers: group("reader"), Writers: group("writer"), Keepers: group("keeper")}
	spec := Spec{
		Key: keyOf(key), Config: DefaultConfig(), Peer: DefaultPeerConfig(), Burst: 64,
		Admit:   func(oap.PeerID, string) error { return nil },
		Handler: n.diary, Tasks: n.tasks, Counters: n.diary.counters(),
	}
	for _, c := range change {
		c(&spec)
	}
	if n.Sessions, err = New(n.inv, spec); err != nil {
		t.Fatal(err)
	}
	n.reroute(dialTCP)
	n.Sessions.dial = func(ctx context.Context, addr string) (net.Conn, error) { return (*n.route.Load())(ctx, addr) }
	n.ctx, n.cancel = context.WithCancel(context.Background())
	t.Cleanup(n.stop)
	return n
}

// serve makes the node listen on loopback, and keep its contacts.
func (n *node) serve() *node {
	n.t.Helper()
	if err := n.Listen(n.ctx, "127.0.0.1:0"); err != nil {
		n.t.Fatal(err)
	}
	n.ended.Go(func() {
		if err := n.Serve(n.ctx); err != nil {
			n.t.Errorf("Serve: %v", err)
		}
	})
	return n.keep()
}

func (n *node) keep() *node {
	n.ended.Go(func() {
		if err := n.Keep(n.ctx); err != nil {
			n.t.Errorf("Keep: %v", err)
		}
	})
	return n
}

// stop cuts what is left and waits until nothing runs any more.
func (n *node) stop() {
	n.t.Helper()
	n.cancel()
	cut, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Drain(cut)
	n.ended.Wait()
	for _, g := range []*supervise.Group{n.tasks.Keepers, n.tasks.Handshakes, n.tasks.Readers, n.tasks.Writers} {
		within, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := g.Wait(within); err != nil {
			n.t.Errorf("tasks are left: %v", err)
		}
		cancel()
	}
}

func (n *node) contact() Contact { return Contact{ID: n.ID(), Addrs: []string{n.Addr().String()}} }

// until waits for something to come true.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// saw asks the diary.
func (d *diary) saw(ask func() bool) func() bool {
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return ask()
	}
}

func (d *diary) failedWith(r FailReason) func() bool {
	return d.saw(func() bool { return slices.Contains(d.failures, r) })
}

func (d *diary) closedWith(r CloseReason) func() bool {
	return d.saw(func() bool { return slices.Contains(d.reasons, r) })
}

// meet makes two nodes have a session, dialed by the first.
func meet(t testing.TB, a, b *node) (*Session, *Session) {
	t.Helper()
	a.SetContacts([]Contact{b.contact()})
	until(t, "a session", func() bool { return a.Find(b.ID()) != nil && b.Find(a.ID()) != nil })
	return a.Find(b.ID()), b.Find(a.ID())
}

// kindOf fails unless an error is of a kind.
func kindOf(t testing.TB, what string, err error, kind fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != kind {
		t.Errorf("%s: %v, want kind %s", what, err, kind)
	}
}

// gossip is a letter of a size, signed by nobody.
func gossip(size int) *oap.Gossip {
	return &oap.Gossip{Msg: bytes.Repeat([]byte{'x'}, size), Hops: 8, Fanout: 3}
}

func parcel(size int) flow.Parcel[Out] {
	return flow.Parcel[Out]{Class: 1, Cost: size, Item: Out{Message: gossip(size), Flags: oap.Event}}
}

type (
	parcelOf = flow.Parcel[Out]
	Ctx      = context.Context
)

func withCancel() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

// writes counts system calls.
type writes struct {
	net.Conn
	n atomic.Int64
}

func (w *writes) Write(b []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(b)
}

func mustWrite(t testing.TB, w *wire, text string) {
	t.Helper()
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func (w *wire) pumpAfter(text string) error {
	_, err := w.Write([]byte(text))
	return err
}
