package overlay

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/overlay/gossip"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member is a node of a network for tests: an overlay on a real socket, with a
// supervisor, a store and an HTTP face of its own.
type member struct {
	*Overlay
	t          *testing.T
	store      store.Store
	readiness  *observe.Readiness
	metrics    *observe.Metrics
	supervisor *supervise.Supervisor
	events     chan Event
	url        string

	stop context.CancelFunc
	done chan *supervise.Report
}

// newKey draws a key for a member.
func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// join starts a member. Change may change what it is made of.
func join(t *testing.T, change func(*Spec)) *member {
	t.Helper()
	inv := flow.NewInventory()
	supervisor, err := supervise.New(supervise.Options{
		Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}, {Name: "intake"}}, Total: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, supervisor: supervisor, metrics: observe.NewMetrics(observe.ReadBuild("test")),
		events: make(chan Event, 4096), done: make(chan *supervise.Report, 1)}
	m.readiness = observe.NewReadiness(inv, supervisor)
	m.store = store.NewRAM(inv, store.RAMSpec{Service: "store", Budget: 64 << 20, MaxObject: 64 << 20})
	spec := Spec{Config: DefaultConfig(), Key: newKey(t), Skew: 2 * time.Minute, Store: m.store, Metrics: m.metrics, Readiness: m.readiness}
	spec.Config.Addr = "127.0.0.1:0"
	spec.Config.HandshakeRate = 10_000 // all members have one address
	// On a machine that is busy with other things, a handshake takes seconds, and
	// a peer that the test plays is silent while the test does something else.
	spec.Config.Handshake, spec.Config.Progress, spec.Config.Write, spec.Config.Idle = time.Minute, time.Minute, time.Minute, time.Minute
	change(&spec)
	if err := spec.Config.Validate(); err != nil {
		t.Fatal(err)
	}
	stages := Stages{State: "state", Workers: "workers", Intake: "intake"}
	if m.Overlay, err = New(inv, supervisor, stages, spec); err != nil {
		t.Fatal(err)
	}
	if err := m.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Add(supervisor, stages, func(event Event) { m.events <- event }); err != nil {
		t.Fatal(err)
	}
	m.serve(inv)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		report, _ := supervisor.Run(ctx)
		m.done <- report
	}()
	t.Cleanup(m.leave)
	return m
}

// patient is how long a server waits that may share its machine with others.
func patient() ingress.HTTP {
	times := ingress.DefaultHTTP()
	times.Deadline, times.FirstByte, times.Progress = time.Minute, time.Minute, time.Minute
	return times
}

// serve puts the routes behind a real server.
func (m *member) serve(inv *flow.Inventory) {
	table, err := ingress.NewTable(m.Routes()...)
	if err != nil {
		m.t.Fatal(err)
	}
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst = 1_000_000, 1_000_000
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: patient(), Limits: limits,
		Authorise: func(context.Context, ingress.Ask) error { return nil },
		Inventory: inv, Metrics: m.metrics, Logger: slog.New(slog.NewTextHandler(m.t.Output(), nil)),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	listener, err := server.Listen(m.t.Context(), ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:0"})
	if err != nil {
		m.t.Fatal(err)
	}
	m.url = "http://" + listener.Addr().String()
	if err := m.supervisor.Add(supervise.Service{Service: "gateway", Name: "http", Stage: "intake", Serve: listener.Serve, Drain: listener.Drain}); err != nil {
		m.t.Fatal(err)
	}
}

// leave drains the member and looks that nothing was left behind.
func (m *member) leave() {
	if m.stop == nil {
		return
	}
	m.stop()
	m.stop = nil
	report := <-m.done
	if len(report.LeftRunning) > 0 {
		m.t.Errorf("left running: %v", report.LeftRunning)
	}
	if err := errors.Join(m.Close(), m.store.Close()); err != nil {
		m.t.Error(err)
	}
}

// contact is how others reach the member.
func (m *member) contact() Contact { return Contact{ID: m.ID(), Addrs: []string{m.Addr().String()}} }

// meet makes two members dial each other, and waits until they have a session.
func meet(t *testing.T, a, b *member) {
	t.Helper()
	link(t, a, b)
	link(t, b, a)
	a.sees(b)
	b.sees(a)
}

func link(t *testing.T, from, to *member) {
	t.Helper()
	if _, err := from.AddPeer(to.contact()); err != nil {
		t.Fatal(err)
	}
}

// sees waits until there is a session with another member.
func (m *member) sees(other *member) {
	m.t.Helper()
	m.until(fmt.Sprintf("%s sees %s", m.ID(), other.ID()), func() bool { return m.sessions.Find(other.ID()) != nil })
}

// until waits for something that other tasks bring about.
func (m *member) until(what string, holds func() bool) {
	m.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			m.t.Fatalf("it never came true that %s; peers: %+v", what, m.Peers())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// hear subscribes a member to a topic.
func (m *member) hear(topic string) *gossip.Subscription {
	m.t.Helper()
	s, err := m.Subscribe(topic)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(s.Close)
	return s
}

// heard takes the next message, within a generous time.
func heard(t *testing.T, s *gossip.Subscription) *gossip.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	d, err := s.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// news is the next event of a member, within a generous time.
func (m *member) news() Event {
	m.t.Helper()
	select {
	case event := <-m.events:
		return event
	case <-time.After(20 * time.Second):
		m.t.Fatal("nothing was told")
		return Event{}
	}
}

// say publishes, and waits out a refusal.
func (m *member) say(topic, text string) gossip.Outcome {
	m.t.Helper()
	for {
		outcome, err := m.Publish(m.t.Context(), topic, []byte(text))
		if err == nil {
			return outcome
		}
		if fault.KindOf(err) != fault.Busy {
			m.t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestARelayOfThree(t *testing.T) {
	a, b, c := join(t, func(*Spec) {}), join(t, func(*Spec) {}), join(t, func(*Spec) {})
	meet(t, a, b)
	meet(t, b, c)
	far := c.hear("news/eu")
	near := a.hear("news/eu")
	outcome := a.say("news/eu", "storm")
	if outcome.Peers != 1 || outcome.Busy != 0 {
		t.Errorf("told %+v", outcome)
	}
	got := heard(t, far)
	if string(got.Data) != "storm" || got.Origin != a.ID() || got.ID() != outcome.ID() || !got.Signed {
		t.Errorf("heard %+v", got)
	}
	first := got.Seq
	if own := heard(t, near); own.ID() != outcome.ID() {
		t.Errorf("the origin's own subscriber heard %+v", own)
	}
	if err := a.Send(t.Context(), "news/eu", []byte("calm")); err != nil {
		t.Error(err)
	}
	if got := heard(t, far); string(got.Data) != "calm" || got.Seq != first+1 {
		t.Errorf("heard %+v", got)
	}
	if s := a.sessions.Find(b.ID()); !s.PQ() {
		t.Error("the session is not post-quantum")
	}
}

func TestAnObjectComesOverTheOverlay(t *testing.T) {
	a, b := join(t, func(*Spec) {}), join(t, func(*Spec) {})
	meet(t, a, b)
	content := make([]byte, 1_500_000)
	_, _ = rand.Read(content)
	put, _, err := a.store.Put(t.Context(), bytes.NewReader(content), store.PutOptions{Size: int64(len(content))})
	if err != nil {
		t.Fatal(err)
	}
	info, created, err := b.Fetch(t.Context(), put.Address, nil)
	if err != nil || !created || info.Size != put.Size {
		t.Fatalf("%+v, %t, %v", info, created, err)
	}
	if _, created, err := b.Fetch(t.Context(), put.Address, nil); err != nil || created {
		t.Errorf("the second time: %t, %v", created, err)
	}
	if _, _, err := b.Fetch(t.Context(), b3.Of([]byte("nobody has this")), nil); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what nobody has: %v", err)
	}
}
