package interop

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/mailbox/nats"
)

// TestMailboxOnNATS tests the mailbox on JetStream with NATS itself: servers
// that are processes of their own, on this machine.
func TestMailboxOnNATS(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "natsserver")
	if out, err := exec.Command("go", "build", "-o", binary, "./natsserver").CombinedOutput(); err != nil {
		t.Fatalf("go build ./natsserver: %v\n%s", err, out)
	}
	for name, test := range map[string]func(t *testing.T, binary string){
		"conformance":           natsConformance,
		"each server is killed": natsKilled,
		"paused":                natsPaused,
		"the quorum is killed":  natsQuorumKilled,
		"started later":         natsStartedLater,
		"two nodes":             natsTwoNodes,
		"a token":               natsToken,
		"certificates":          natsCertificates,
		"no room":               natsFull,
		"pages of boards":       natsPages,
		"boards of many nodes":  natsBoardsOfMany,
	} {
		t.Run(name, func(t *testing.T) { test(t, binary) })
	}
}

// natsCluster is the servers of a cluster.
type natsCluster struct {
	scheme  string
	servers []*natsServer
}

// natsServer is a child process that is one server.
type natsServer struct {
	flags         []string
	client        string // host:port
	serverProcess        // for its process
}

// startNATS runs so many servers and waits until all of them listen.
func startNATS(t *testing.T, binary string, n int, flags ...string) *natsCluster {
	t.Helper()
	c := newNATSCluster(t, binary, n, flags...)
	var starting sync.WaitGroup
	for _, s := range c.servers {
		starting.Go(func() { s.run(t) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return c
}

// newNATSCluster configures servers without starting them.
func newNATSCluster(t *testing.T, binary string, n int, flags ...string) *natsCluster {
	t.Helper()
	c := &natsCluster{scheme: "nats"}
	if strings.Contains(strings.Join(flags, " "), "-cert") {
		c.scheme = "nats+tls"
	}
	ports := freePorts(t, 2*n)
	var routes []string
	for _, peer := range ports[n:] {
		routes = append(routes, "nats://"+peer)
	}
	for i := range n {
		s := &natsServer{client: ports[i], serverProcess: serverProcess{binary: binary}}
		s.flags = append([]string{"-name", fmt.Sprint("s", i), "-folder", t.TempDir(), "-client", ports[i]}, flags...)
		if n > 1 {
			s.flags = append(s.flags, "-peer", ports[n+i], "-routes", strings.Join(routes, ","))
		}
		c.servers = append(c.servers, s)
	}
	t.Cleanup(func() {
		for _, s := range c.servers {
			if s.process != nil {
				s.kill()
			}
		}
	})
	return c
}

// run starts the server and waits until it listens.
func (s *natsServer) run(t *testing.T) {
	s.process = exec.Command(s.binary, s.flags...)
	out, err := s.process.StdoutPipe()
	if err == nil {
		err = s.process.Start()
	}
	if err != nil {
		t.Error(err)
		return
	}
	if !bufio.NewScanner(out).Scan() {
		t.Errorf("the NATS server ended before it was ready")
	}
}

// url names the servers, or only some of them.
func (c *natsCluster) url(servers ...*natsServer) string {
	if len(servers) == 0 {
		servers = c.servers
	}
	var all []string
	for _, s := range servers {
		all = append(all, c.scheme+"://"+s.client)
	}
	return strings.Join(all, ",")
}

// openNATS opens a mailbox as a node does, tasks and all. It can be ended before
// the test ends.
func openNATS(t *testing.T, spec nats.Spec) *nats.Mailbox {
	t.Helper()
	if spec.Limits == (mailbox.Limits{}) {
		spec.Limits = mailboxtest.Limits()
	}
	m, err := nats.Open(t.Context(), flow.NewInventory(), spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for _, task := range m.Tasks() {
		tasks.Go(func() {
			if err := task.Serve(ctx); err != nil {
				t.Errorf("%s: %v", task.Name, err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
		_ = m.Close()
	})
	return m
}

// natsConformance runs the suite that every engine has to pass, with streams of
// their own for each check.
func natsConformance(t *testing.T, binary string) {
	c := startNATS(t, binary, 1)
	var count atomic.Int64
	var mu sync.Mutex
	specs := map[mailbox.Engine]nats.Spec{}
	open := func(t *testing.T, spec nats.Spec) mailbox.Engine {
		m := openNATS(t, spec)
		mu.Lock()
		specs[m] = spec
		mu.Unlock()
		return m
	}
	mailboxtest.Run(t, mailboxtest.Spec{
		MinVisibility: 200 * time.Millisecond,
		Open: func(t *testing.T, limits mailbox.Limits) mailbox.Engine {
			return open(t, nats.Spec{URL: c.url(), Name: fmt.Sprint("suite-", count.Add(1)), Limits: limits, Timeout: 20 * time.Second})
		},
		Reopen: func(t *testing.T, e mailbox.Engine) mailbox.Engine {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			spec := specs[e]
			mu.Unlock()
			return open(t, spec)
		},
	})
}

// natsTimeout is how long an expected event is waited for.
const natsTimeout = time.Minute

func natsEventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(natsTimeout); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came about that %s", what)
		}
	}
}

// isUnavailable reports whether an error says, in one of several ways, that the
// servers cannot be reached at the moment.
func isUnavailable(err error) bool {
	switch fault.KindOf(err) {
	case fault.Timeout, fault.StorageBusy, fault.NotReady:
		return fault.NextOf(err) != ""
	}
	return false
}

// mailboxHistory is what clients of a mailbox have observed, while servers are
// killed and started.
type mailboxHistory struct {
	t *testing.T

	mu sync.Mutex

	// guarded by mu
	sent        map[string]bool      // acknowledged to the sender
	leasedUntil map[string]time.Time // the earliest end of a lease
	acked       map[string]time.Time // since when a message is acknowledged
	ambiguous   map[string]bool      // an Ack whose outcome is unknown

	ackedCount atomic.Int64 // acknowledged messages
}

// leaseDuration is how long leases last: not long, because a lease whose
// response was lost has to expire.
const leaseDuration = 3 * time.Second

// send sends messages until stop is closed. What fails is sent again with the
// same key, so in the end each one is there once.
func (h *mailboxHistory) send(stop <-chan struct{}, m mailbox.Engine, name string) {
	for i := 0; ; i++ {
		message := mailbox.Message{Box: "jobs", Key: fmt.Sprint(name, i), Body: fmt.Appendf(nil, "%s %d", name, i), MaxDeliveries: 1000}
		for {
			sent, err := m.Send(h.t.Context(), message)
			if err == nil {
				h.mu.Lock()
				if h.sent[sent.ID] {
					h.t.Errorf("the ID %s was given out twice", sent.ID)
				}
				h.sent[sent.ID] = true
				h.mu.Unlock()
				break
			}
			if !isUnavailable(err) {
				h.t.Errorf("Send: %v", err)
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rand.IntN(40)) * time.Millisecond): // the rate of a client
		}
	}
}

// receive receives and acknowledges until stop is closed.
func (h *mailboxHistory) receive(stop <-chan struct{}, m mailbox.Engine) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		began := time.Now()
		got, err := m.Receive(h.t.Context(), "jobs", leaseDuration, time.Second)
		switch {
		case err == nil:
			h.recordDelivery(got, began)
			h.ack(m, got)
		case fault.KindOf(err) != fault.NotFound && !isUnavailable(err):
			h.t.Errorf("Receive: %v", err)
		}
	}
}

// recordDelivery checks that a message was available: it was neither
// acknowledged before the request, nor leased to another receiver.
func (h *mailboxHistory) recordDelivery(got mailbox.Delivery, began time.Time) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, gone := h.acked[got.ID]; gone && at.Before(began) {
		h.t.Errorf("%s was handed out %v after it was acknowledged", got.ID, began.Sub(at))
	}
	if until := h.leasedUntil[got.ID]; now.Before(until) {
		h.t.Errorf("%s was handed out %v before its lease ended", got.ID, until.Sub(now))
	}
	h.leasedUntil[got.ID] = began.Add(leaseDuration)
}

func (h *mailboxHistory) ack(m mailbox.Engine, got mailbox.Delivery) {
	for {
		err := m.Ack(h.t.Context(), "jobs", got.Receipt)
		kind := fault.KindOf(err)
		h.mu.Lock()
		switch {
		case err == nil, kind == fault.NotFound && h.ambiguous[got.Receipt]:
			if _, before := h.acked[got.ID]; !before {
				h.ackedCount.Add(1)
			}
			h.acked[got.ID] = time.Now()
			delete(h.leasedUntil, got.ID)
		case kind != fault.NotFound && !isUnavailable(err):
			h.t.Errorf("Ack: %v", err)
		default:
			h.ambiguous[got.Receipt] = true
		}
		h.mu.Unlock()
		if err == nil || kind == fault.NotFound {
			return
		}
	}
}

// natsQuorumKilled kills two servers of three. The probe of a node fails within its
// time, although a server is connected and answers reads; and when one is back, it
// passes, and so does a message.
func natsQuorumKilled(t *testing.T, binary string) {
	c := startNATS(t, binary, 3)
	m := openNATS(t, nats.Spec{URL: c.url(), Replicas: 3, Timeout: 10 * time.Second})
	probe := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond) // as a node does
		defer cancel()
		return m.Probe(ctx)
	}
	natsEventually(t, "the cluster accepts messages", func() bool { return probe() == nil })
	for range 2 {
		began := time.Now()
		c.servers[1].kill()
		c.servers[2].kill()
		var err error
		natsEventually(t, "a cluster without a quorum is noticed", func() bool { err = probe(); return err != nil })
		t.Logf("noticed after %s: %v", time.Since(began).Round(time.Millisecond), err)
		if !isUnavailable(err) {
			t.Errorf("the probe fails with %v", err)
		}
		for range 3 {
			if probe() == nil {
				t.Error("the probe passes without a quorum")
			}
		}
		began = time.Now()
		c.servers[1].run(t)
		natsEventually(t, "a quorum that is back is noticed", func() bool { return probe() == nil })
		t.Logf("back after %s", time.Since(began).Round(time.Millisecond))
		if _, err := m.Send(t.Context(), mailbox.Message{Box: "jobs"}); err != nil {
			t.Errorf("the probe passes, and a message is refused: %v", err)
		}
		c.servers[2].run(t)
		look := c.newJetStream(t)
		natsEventually(t, "the cluster is whole again", func() bool { return isClusterHealthy(t, look) })
	}
}

// natsKilled kills one server of three after the other, and starts each again,
// while two nodes send, receive and acknowledge. So the leader is killed at
// least once, and so is each server that a node is connected to.
func natsKilled(t *testing.T, binary string) {
	c := startNATS(t, binary, 3)
	var nodes []*nats.Mailbox
	for range 2 {
		nodes = append(nodes, openNATS(t, nats.Spec{URL: c.url(), Replicas: 3, Timeout: 10 * time.Second}))
	}
	natsEventually(t, "the cluster keeps messages", func() bool {
		_, err := nodes[0].Send(t.Context(), mailbox.Message{Box: "first"})
		return err == nil
	})
	look := c.newJetStream(t)
	p := &mailboxHistory{t: t, sent: map[string]bool{}, leasedUntil: map[string]time.Time{}, acked: map[string]time.Time{}, ambiguous: map[string]bool{}}
	stopSending, stopReceiving := make(chan struct{}), make(chan struct{})
	var sending, receiving sync.WaitGroup
	for i, m := range nodes {
		for j := range 2 {
			sending.Go(func() { p.send(stopSending, m, fmt.Sprint("sender ", i, j, " message ")) })
			receiving.Go(func() { p.receive(stopReceiving, m) })
		}
	}
	progress := func(what string) {
		before := p.ackedCount.Load()
		natsEventually(t, what, func() bool { return p.ackedCount.Load() >= before+20 })
	}
	progress("messages get through")
	for i, victim := range c.servers {
		victim.kill()
		progress(fmt.Sprintf("messages get through without server %d", i))
		victim.run(t)
		natsEventually(t, "the cluster is whole again", func() bool { return isClusterHealthy(t, look) })
	}
	close(stopSending)
	sending.Wait()
	natsEventually(t, "all that was sent is dealt with", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for id := range p.sent {
			if _, done := p.acked[id]; !done {
				return false
			}
		}
		return true
	})
	close(stopReceiving)
	receiving.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.acked {
		if !p.sent[id] {
			t.Errorf("%s was received, and nobody sent it", id)
		}
	}
	t.Logf("%d messages", len(p.sent))
	for i, m := range nodes {
		natsEventually(t, "nothing is left", func() bool { return m.Usage().Messages == 1 })
		if u := m.Usage(); u.Dead != 0 {
			t.Errorf("node %d: %+v", i, u)
		}
	}
}

// newJetStream makes a client of NATS's own, to inspect the streams beside the
// mailbox.
func (c *natsCluster) newJetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	conn, err := natsclient.Connect(strings.ReplaceAll(c.url(), "nats+tls", "tls"), natsclient.MaxReconnects(-1), natsclient.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// isClusterHealthy reports whether all servers have all of the streams.
func isClusterHealthy(t *testing.T, js jetstream.JetStream) bool {
	for _, name := range []string{"micronode-mail", "micronode-notes"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		stream, err := js.Stream(ctx, name)
		cancel()
		if err != nil {
			return false
		}
		cluster := stream.CachedInfo().Cluster
		if cluster == nil || cluster.Leader == "" || len(cluster.Replicas) != 2 {
			return false
		}
		for _, replica := range cluster.Replicas {
			if !replica.Current || replica.Offline {
				return false
			}
		}
	}
	return true
}

// natsPaused stops the only server without closing its connections.
func natsPaused(t *testing.T, binary string) {
	c := startNATS(t, binary, 1)
	others := goleak.IgnoreCurrent()
	m, err := nats.Open(t.Context(), flow.NewInventory(), nats.Spec{URL: c.url(), Limits: mailboxtest.Limits()})
	if err != nil {
		t.Fatal(err)
	}
	send := func(ctx context.Context, body string) error {
		_, err := m.Send(ctx, mailbox.Message{Box: "jobs", Key: body, Body: []byte(body)})
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(send(t.Context(), "1"))
	must(send(t.Context(), "2"))
	got, err := m.Receive(t.Context(), "jobs", time.Hour, 0)
	must(err)
	c.servers[0].pause(t)
	for what, do := range map[string]func(ctx context.Context) error{
		"send":    func(ctx context.Context) error { return send(ctx, "3") },
		"receive": func(ctx context.Context) error { _, err := m.Receive(ctx, "jobs", 0, time.Hour); return err },
		"empty":   func(ctx context.Context) error { _, err := m.Receive(ctx, "nothing", 0, 0); return err },
		"ack":     func(ctx context.Context) error { return m.Ack(ctx, "jobs", got.Receipt) },
		"nack":    func(ctx context.Context) error { return m.Nack(ctx, "jobs", got.Receipt, 0, "") },
		"extend":  func(ctx context.Context) error { return m.Extend(ctx, "jobs", got.Receipt, 0) },
		"dead":    func(ctx context.Context) error { _, err := m.Dead(ctx, "jobs", "", 10); return err },
		"post":    func(ctx context.Context) error { return m.Post(ctx, []string{"wall"}, mailbox.Note{ID: "1"}) },
		"board":   func(ctx context.Context) error { _, err := m.Notes(ctx, "wall", "", 10); return err },
	} {
		ctx, end := withDeadline(t, 500*time.Millisecond)
		err := do(ctx)
		end(what)
		if !isUnavailable(err) {
			t.Errorf("%s while NATS is paused: %v", what, err)
		}
	}
	m.Usage() // it does not wait
	c.servers[0].signal(t, syscall.SIGCONT)
	natsEventually(t, "messages are taken again", func() bool { return send(t.Context(), "3") == nil })
	natsEventually(t, "it is well again", func() bool { return m.Health() == nil })

	c.servers[0].pause(t)
	_, end := withDeadline(t, time.Second)
	must(m.Close())
	end("close")
	expectNoLeaks(t, others)
	c.servers[0].signal(t, syscall.SIGCONT)
}

// natsStartedLater opens a mailbox before there is a server, and then stops the
// server for a while.
func natsStartedLater(t *testing.T, binary string) {
	c := newNATSCluster(t, binary, 1)
	m := openNATS(t, nats.Spec{URL: c.url()})
	send := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Send(ctx, mailbox.Message{Box: "jobs", Key: "k", Body: []byte("x")})
		return err
	}
	if err := send(); !isUnavailable(err) {
		t.Errorf("Send without a server: %v", err)
	}
	if err := m.Health(); !isUnavailable(err) {
		t.Errorf("Health without a server: %v", err)
	}
	c.servers[0].run(t)
	natsEventually(t, "a message is taken", func() bool { return send() == nil })
	natsEventually(t, "it is well", func() bool { return m.Health() == nil })
	c.servers[0].kill()
	if err := send(); !isUnavailable(err) {
		t.Errorf("Send without a server any more: %v", err)
	}
	c.servers[0].run(t)
	natsEventually(t, "the message is there still", func() bool {
		got, err := m.Receive(t.Context(), "jobs", 0, 0)
		return err == nil && string(got.Body) == "x" && got.Deliveries == 1
	})
}

// natsTwoNodes uses one mailbox from two nodes.
func natsTwoNodes(t *testing.T, binary string) {
	c := startNATS(t, binary, 1)
	here, there := openNATS(t, nats.Spec{URL: c.url()}), openNATS(t, nats.Spec{URL: c.url()})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		sent, err := here.Send(ctx, mailbox.Message{Box: "jobs", Key: fmt.Sprint(i), Body: fmt.Append(nil, i)})
		must(err)
		again, err := there.Send(ctx, mailbox.Message{Box: "jobs", Key: fmt.Sprint(i), Body: fmt.Append(nil, i)})
		if err != nil || again.ID != sent.ID || !again.Repeated {
			t.Fatalf("sent again at the other node: %+v, %v", again, err)
		}
		got, err := there.Receive(ctx, "jobs", time.Hour, 0)
		if err != nil || got.ID != sent.ID {
			t.Fatalf("what was sent here cannot be had there: %+v, %v", got, err)
		}
		_, err = here.Receive(ctx, "jobs", time.Hour, 0)
		expectKind(t, err, "what is leased there", fault.NotFound)
		must(here.Extend(ctx, "jobs", got.Receipt, time.Hour))
		must(here.Ack(ctx, "jobs", got.Receipt))
		expectKind(t, there.Ack(ctx, "jobs", got.Receipt), "what was acknowledged here", fault.NotFound)
	}

	// A waiting receiver gets what is sent elsewhere.
	heard := make(chan error, 1)
	go func() {
		got, err := there.Receive(ctx, "later", time.Hour, natsTimeout)
		if err == nil {
			err = there.Nack(ctx, "later", got.Receipt, 0, "not for me")
		}
		heard <- err
	}()
	_, err := here.Send(ctx, mailbox.Message{Box: "later", MaxDeliveries: 1})
	must(err)
	must(<-heard)
	dead, err := here.Dead(ctx, "later", "", 10)
	if err != nil || len(dead) != 1 || dead[0].Reason != "not for me" {
		t.Errorf("dead letters here: %+v, %v", dead, err)
	}
	must(here.Post(ctx, []string{"wall"}, mailbox.Note{ID: "1", Body: []byte("hello")}))
	notes, err := there.Notes(ctx, "wall", "", 10)
	if err != nil || len(notes) != 1 || string(notes[0].Body) != "hello" {
		t.Errorf("notes there: %+v, %v", notes, err)
	}

	// A lease outlives the node that granted it, and so does its receipt.
	_, err = here.Send(ctx, mailbox.Message{Box: "orphans", Body: []byte("long")})
	must(err)
	long, err := here.Receive(ctx, "orphans", time.Hour, 0)
	must(err)
	_, err = here.Send(ctx, mailbox.Message{Box: "orphans", Body: []byte("short")})
	must(err)
	_, err = here.Receive(ctx, "orphans", 100*time.Millisecond, 0)
	must(err)
	must(here.Close())
	short, err := there.Receive(ctx, "orphans", time.Hour, natsTimeout)
	if err != nil || string(short.Body) != "short" || short.Deliveries != 2 {
		t.Errorf("after the lease of a node that is gone: %+v, %v", short, err)
	}
	must(there.Ack(ctx, "orphans", long.Receipt))
	must(there.Ack(ctx, "orphans", short.Receipt))
	natsEventually(t, "only the dead letter is left", func() bool { u := there.Usage(); return u.Messages == 0 && u.Dead == 1 })
}

// natsToken uses a server that requires authentication.
func natsToken(t *testing.T, binary string) {
	c := startNATS(t, binary, 1, "-token", "right")
	for _, token := range []string{"", "hush-hush"} {
		m := openNATS(t, nats.Spec{URL: c.url(), Token: token, Timeout: time.Second})
		_, err := m.Send(t.Context(), mailbox.Message{Box: "jobs"})
		for what, err := range map[string]error{"Send": err, "Health": m.Health()} {
			expectKind(t, err, what+" with a wrong token", fault.NotReady)
			if !strings.Contains(fault.NextOf(err), "mailbox.token") {
				t.Errorf("%s: the next step is %q", what, fault.NextOf(err))
			}
			if token != "" && strings.Contains(fmt.Sprintf("%v %+v", err, err), token) {
				t.Errorf("%s: the token is in %v", what, err)
			}
		}
	}
	m := openNATS(t, nats.Spec{URL: c.url(), Token: "right"})
	if _, err := m.Send(t.Context(), mailbox.Message{Box: "jobs"}); err != nil {
		t.Error(err)
	}
}

// natsCertificates uses a server with mutual TLS.
func natsCertificates(t *testing.T, binary string) {
	cert, key := selfSigned(t)
	stranger, strangerKey := selfSigned(t)
	c := startNATS(t, binary, 1, "-cert", cert, "-key", key, "-authority", cert)
	for name, spec := range map[string]nats.Spec{
		"another authority":    {CAFile: stranger, CertFile: cert, KeyFile: key},
		"no certificate":       {CAFile: cert},
		"a wrong certificate":  {CAFile: cert, CertFile: stranger, KeyFile: strangerKey},
		"the system's, and no": {},
	} {
		spec.URL, spec.Timeout = c.url(), time.Second
		_, err := openNATS(t, spec).Send(t.Context(), mailbox.Message{Box: "jobs"})
		if !isUnavailable(err) || !strings.Contains(fault.NextOf(err), "mailbox.c") {
			t.Errorf("%s: %v: the next step is %q", name, err, fault.NextOf(err))
		}
	}
	m := openNATS(t, nats.Spec{URL: c.url(), CAFile: cert, CertFile: cert, KeyFile: key})
	if _, err := m.Send(t.Context(), mailbox.Message{Box: "jobs"}); err != nil {
		t.Error(err)
	}
}

// natsFull uses servers that have no space for the streams, or for a message.
func natsFull(t *testing.T, binary string) {
	small := openNATS(t, nats.Spec{URL: startNATS(t, binary, 1, "-store", fmt.Sprint(1<<20)).url()})
	_, err := small.Send(t.Context(), mailbox.Message{Box: "jobs"})
	expectKind(t, err, "a server without room", fault.StoreFull)

	narrow := openNATS(t, nats.Spec{URL: startNATS(t, binary, 1, "-payload", fmt.Sprint(64<<10)).url()})
	_, err = narrow.Send(t.Context(), mailbox.Message{Box: "jobs", Body: make([]byte, 100<<10)})
	expectKind(t, err, "a message beyond what the server takes", fault.BodyTooLarge)
	if _, err := narrow.Send(t.Context(), mailbox.Message{Box: "jobs", Body: make([]byte, 10<<10)}); err != nil {
		t.Error(err)
	}
}
