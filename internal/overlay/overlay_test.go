package overlay

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/session"
	"micronode/internal/overlay/stream"
	"micronode/internal/store"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testNode is a node of a network for tests: an overlay on a real socket, with
// a supervisor, a store and an HTTP server of its own.
type testNode struct {
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

// newKey draws a key for a node.
func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	testkit.Must(t, err)
	return key
}

// startNode starts a node. Change may change its spec.
func startNode(t *testing.T, change func(*Spec)) *testNode {
	t.Helper()
	inv := flow.NewInventory()
	supervisor, err := supervise.New(supervise.Options{
		Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}, {Name: "intake"}}, DrainTimeout: 20 * time.Second,
	})
	testkit.Must(t, err)
	m := &testNode{t: t, supervisor: supervisor, metrics: observe.NewMetrics(observe.ReadBuild("test")),
		events: make(chan Event, 4096), done: make(chan *supervise.Report, 1)}
	m.readiness = observe.NewReadiness(inv, supervisor)
	m.store = store.NewRAM(store.RAMSpec{Budget: 64 << 20, MaxObject: 64 << 20})
	spec := Spec{Config: DefaultConfig(), Key: newKey(t), Skew: 2 * time.Minute, Store: m.store, Metrics: m.metrics, Readiness: m.readiness}
	spec.Config.Addr = "127.0.0.1:0"
	spec.Config.HandshakeRate = 10_000 // all nodes have one address
	spec.Config.Exchange = false       // a network has the shape that its test gives it
	// On a machine that is busy with other things, a handshake takes seconds, and
	// a peer that the test plays is silent while the test does something else.
	spec.Config.Handshake, spec.Config.Progress, spec.Config.Write, spec.Config.Idle = time.Minute, time.Minute, time.Minute, time.Minute
	change(&spec)
	testkit.Must(t, spec.Config.Validate())
	stages := Stages{State: "state", Workers: "workers", Intake: "intake"}
	if m.Overlay, err = New(inv, supervisor, stages, spec); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, m.Listen(t.Context()))
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
	t.Cleanup(m.stopNode)
	return m
}

// longTimeouts are the timeouts of a server on a busy machine.
func longTimeouts() ingress.HTTP {
	times := ingress.DefaultHTTP()
	times.Deadline, times.FirstByte, times.Progress = time.Minute, time.Minute, time.Minute
	return times
}

// serve puts the routes behind a real server.
func (n *testNode) serve(inv *flow.Inventory) {
	table, err := ingress.NewTable(n.Routes()...)
	testkit.Must(n.t, err)
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst = 1_000_000, 1_000_000
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: longTimeouts(), Limits: limits,
		Authorise: func(context.Context, ingress.AuthRequest) error { return nil },
		Inventory: inv, Metrics: n.metrics, Logger: slog.New(slog.NewTextHandler(n.t.Output(), nil)),
	})
	testkit.Must(n.t, err)
	listener, err := server.Listen(n.t.Context(), ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:0"})
	testkit.Must(n.t, err)
	n.url = "http://" + listener.Addr().String()
	if err := n.supervisor.Add(supervise.Service{Service: "gateway", Name: "http", Stage: "intake", Serve: listener.Serve, Drain: listener.Drain}); err != nil {
		n.t.Fatal(err)
	}
}

// stopNode drains the node and checks that nothing was left behind.
func (n *testNode) stopNode() {
	if n.stop == nil {
		return
	}
	if n.t.Failed() {
		n.t.Logf("peers of %s: %+v", n.ID(), n.Peers())
	}
	n.stop()
	n.stop = nil
	report := <-n.done
	if len(report.LeftRunning) > 0 {
		n.t.Errorf("left running: %v", report.LeftRunning)
	}
	if err := errors.Join(n.Close(), n.store.Close()); err != nil {
		n.t.Error(err)
	}
}

// contact is how others reach the node.
func (n *testNode) contact() Contact { return Contact{ID: n.ID(), Addrs: []string{n.Addr().String()}} }

// connectNodes makes two nodes dial each other, and waits until they have a
// session.
func connectNodes(t *testing.T, a, b *testNode) {
	t.Helper()
	addContact(t, a, b)
	addContact(t, b, a)
	a.waitSession(b)
	b.waitSession(a)
}

func addContact(t *testing.T, from, to *testNode) {
	t.Helper()
	if _, err := from.AddPeer(to.contact()); err != nil {
		t.Fatal(err)
	}
}

// waitSession waits until there is a session with another node, and returns it.
// Where both connect at once, it may end in favour of the other one's.
func (n *testNode) waitSession(other *testNode) (found *session.Session) {
	n.t.Helper()
	testkit.WaitFor(n.t, fmt.Sprintf("%s sees %s", n.ID(), other.ID()), func() bool {
		found = n.sessions.Find(other.ID())
		return found != nil
	})
	return found
}

// subscribe subscribes a node to a topic.
func (n *testNode) subscribe(topic string) *gossip.Subscription {
	n.t.Helper()
	s, err := n.Subscribe(topic)
	testkit.Must(n.t, err)
	n.t.Cleanup(s.Close)
	return s
}

// receive takes the next message, within a generous time.
func receive(t *testing.T, s *gossip.Subscription) *gossip.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	d, err := s.Recv(ctx)
	testkit.Must(t, err)
	return d
}

// nextEvent is the next event of a node, within a generous time.
func (n *testNode) nextEvent() Event {
	n.t.Helper()
	select {
	case event := <-n.events:
		return event
	case <-time.After(20 * time.Second):
		n.t.Fatal("nothing was told")
		return Event{}
	}
}

// mustPublish publishes, and retries after a refusal.
func (n *testNode) mustPublish(topic, text string) gossip.PublishResult {
	n.t.Helper()
	var outcome gossip.PublishResult
	testkit.WaitFor(n.t, "there is room to publish", func() (ok bool) {
		var err error
		if outcome, err = n.Publish(n.t.Context(), topic, []byte(text)); err != nil && fault.KindOf(err) != fault.Busy {
			n.t.Fatal(err)
		}
		return err == nil
	})
	return outcome
}

func TestARelayOfThree(t *testing.T) {
	a, b, c := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	connectNodes(t, a, b)
	connectNodes(t, b, c)
	far := c.subscribe("news/eu")
	near := a.subscribe("news/eu")
	outcome := a.mustPublish("news/eu", "storm")
	if outcome.Peers != 1 || outcome.Busy != 0 {
		t.Errorf("told %+v", outcome)
	}
	got := receive(t, far)
	if string(got.Data) != "storm" || got.Publisher != a.ID() || got.ID() != outcome.ID() || !got.Signed {
		t.Errorf("heard %+v", got)
	}
	first := got.Seq
	if own := receive(t, near); own.ID() != outcome.ID() {
		t.Errorf("the origin's own subscriber heard %+v", own)
	}
	if err := a.PublishNoID(t.Context(), "news/eu", []byte("calm")); err != nil {
		t.Error(err)
	}
	if got := receive(t, far); string(got.Data) != "calm" || got.Seq != first+1 {
		t.Errorf("heard %+v", got)
	}
	if s := a.sessions.Find(b.ID()); !s.PQ() {
		t.Error("the session is not post-quantum")
	}
}

// sessionDroppingStore is a store whose node loses its session with the first
// peer that asks.
type sessionDroppingStore struct {
	store.Store
	lose chan func() // of one
}

func (s *sessionDroppingStore) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	select {
	case lose := <-s.lose:
		lose()
	default:
	}
	return s.Store.Open(ctx, a)
}

// A session that ends while an object is fetched over it, as the worse of two
// that were made at the same time does, does not end the fetch: it continues
// over the next one, with the only peer there is.
func TestAFetchGoesOnOverTheNextSession(t *testing.T) {
	held := &sessionDroppingStore{lose: make(chan func(), 1)}
	a, b := startNode(t, func(s *Spec) { held.Store, s.Store = s.Store, held }), startNode(t, func(*Spec) {})
	connectOneWay(t, b, a)
	held.lose <- func() {
		s := a.sessions.Find(b.ID())
		s.CloseWithError(nil)
		<-s.Done()
	}
	put, _, err := a.store.Put(t.Context(), strings.NewReader("still here"), store.PutOptions{Size: 10})
	testkit.Must(t, err)
	if info, created, err := b.Fetch(shortContext(t), put.Address, nil); err != nil || !created || info.Size != put.Size {
		t.Errorf("%+v, %t, %v", info, created, err)
	}
}

// The files of a folder come one after the other, whole and in parts, up to the
// first that the peer does not have. What is no folder, and a view that the peer
// does not know, are refused without the end of the session.
func TestTheFilesOfAFolderComeOverTheOverlay(t *testing.T) {
	a, b := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	connectNodes(t, a, b)
	var m client.Manifest
	whole := ""
	for i := range 40 {
		text := strings.Repeat(fmt.Sprintf("file %02d\n", i%30), 500) // some are there twice
		whole += text
		m.Entries = append(m.Entries, client.Entry{Path: fmt.Sprintf("%02d", i), B3: b3.Of([]byte(text)), Size: int64(len(text)), Type: "text/plain"})
		_, _, err := a.store.Put(t.Context(), strings.NewReader(text), store.PutOptions{Size: store.Unknown})
		testkit.Must(t, err)
	}
	put := func() b3.Address {
		raw, err := m.Encode()
		testkit.Must(t, err)
		info, _, err := a.store.Put(t.Context(), bytes.NewReader(raw), store.PutOptions{Size: store.Unknown})
		testkit.Must(t, err)
		return info.Address
	}
	folder := put()
	m.Entries = append(m.Entries, client.Entry{Path: "99", B3: b3.Of([]byte("absent")), Size: 6, Type: "text/plain"})
	broken := put()
	for name, c := range map[string]struct {
		address      b3.Address
		view         oap.View
		from, length int64
		want         string
		kind         fault.Kind // of the error, if nothing is wanted
	}{
		"all of them":          {folder, oap.Files, 0, int64(len(whole)), whole, 0},
		"a part":               {folder, oap.Files, 5_000, 100_000, whole[5_000:105_000], 0},
		"one that is missing":  {broken, oap.Files, int64(len(whole)), 6, "", fault.NotFound},
		"no folder":            {m.Entries[0].B3, oap.Files, 0, 10, "", fault.Malformed},
		"a folder that is not": {b3.Of([]byte("absent")), oap.Files, 0, 10, "", fault.NotFound},
		"an unknown view":      {folder, "/twigs", 0, 10, "", fault.Malformed},
	} {
		var got []byte
		body, err := b.OpenPart(t.Context(), c.address, a.ID(), c.view, c.from, c.length)
		if err == nil {
			got, err = io.ReadAll(body)
			testkit.Must(t, body.Close())
		}
		if string(got) != c.want || (err != nil) != (c.want == "") || err != nil && fault.KindOf(err) != c.kind {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// halfHere is an object that a node fetches, and of which it has some parts.
type halfHere struct {
	stream.Source
	parts oap.Parts
}

func (h halfHere) Parts() oap.Parts    { return h.parts }
func (h halfHere) Tree() b3.Outboard   { return nil }
func (h halfHere) Close() (none error) { return nil }

// A peer is told which parts of an object are here: some while it is fetched, all
// of what is stored, and none of what is neither.
func TestANodeSaysWhichPartsItHas(t *testing.T) {
	arriving, parts := b3.Of([]byte("arriving")), oap.NewParts(5<<20)
	parts.Add(0, 2<<20, 5<<20, false)
	a, b := startNode(t, func(s *Spec) {
		s.Arriving = func(_ context.Context, address b3.Address) (Arriving, error) {
			if address != arriving {
				return nil, fault.New("test", fault.NotFound, "it is not on its way")
			}
			return halfHere{parts: parts}, nil
		}
	}), startNode(t, func(*Spec) {})
	connectNodes(t, a, b)
	stored, _, err := a.store.Put(t.Context(), bytes.NewReader(make([]byte, 3<<20)), store.PutOptions{Size: 3 << 20})
	testkit.Must(t, err)
	for address, want := range map[b3.Address]oap.Parts{arriving: parts, stored.Address: oap.AllParts(3 << 20)} {
		body, err := b.OpenPart(t.Context(), address, a.ID(), oap.Here, 0, 0)
		testkit.Must(t, err)
		got, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%x, %v; want %x", got, err, want)
		}
	}
	_, err = b.OpenPart(t.Context(), b3.Of([]byte("absent")), a.ID(), oap.Here, 0, 0)
	testkit.WantKind(t, err, fault.NotFound, "what is neither here nor on its way")
}

// So many peers may ask for the files of a folder at a time; the next one waits,
// and gives up with its stream. A source that is closed twice leaves once.
func TestManifestsAreBounded(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	raw, err := client.Manifest{}.Encode()
	testkit.Must(t, err)
	folder, _, err := a.store.Put(t.Context(), bytes.NewReader(raw), store.PutOptions{Size: store.Unknown})
	testkit.Must(t, err)
	var open []io.Closer
	for range maxFolders {
		files, err := a.openFiles(t.Context(), folder.Address)
		testkit.Must(t, err)
		open = append(open, files)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.openFiles(over, folder.Address); err == nil {
		t.Error("one more manifest is held")
	}
	testkit.Must(t, errors.Join(open[0].Close(), open[0].Close()))
	files, err := a.openFiles(t.Context(), folder.Address)
	testkit.Must(t, err)
	if _, err := a.openFiles(over, folder.Address); err == nil {
		t.Error("one that was closed twice makes room for two")
	}
	for _, one := range append(open, files) {
		testkit.Must(t, one.Close())
	}
}

func TestAnObjectComesOverTheOverlay(t *testing.T) {
	a, b := startNode(t, func(*Spec) {}), startNode(t, func(*Spec) {})
	connectNodes(t, a, b)
	content := make([]byte, 1_500_000)
	_, _ = rand.Read(content)
	put, _, err := a.store.Put(t.Context(), bytes.NewReader(content), store.PutOptions{Size: int64(len(content))})
	testkit.Must(t, err)
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
