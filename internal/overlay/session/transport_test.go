package session

import (
	"bytes"
	"crypto/sha512"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// Section 1: what TLS accepts.

func TestListenerRefusesByTLS(t *testing.T) {
	good := func() *tls.Config { return rawTLS(keyOf(9)) }
	for _, c := range []struct {
		name   string
		config *tls.Config
		change func(*tls.Config)
		reason FailReason
	}{
		{"TLS 1.2", good(), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }, FailedTLS},
		{"another protocol", good(), func(c *tls.Config) { c.NextProtos = []string{"h2"} }, FailedALPN},
		{"no protocol", good(), func(c *tls.Config) { c.NextProtos = nil }, FailedALPN},
		{"no certificate", good(), func(c *tls.Config) { c.Certificates = nil }, FailedTLS},
		{"an RSA key", rsaTLS(), func(*tls.Config) {}, FailedIdentity},
		{"an ECDSA key", ecdsaTLS(), func(*tls.Config) {}, FailedIdentity},
		{"our own key", rawTLS(keyOf(1)), func(*tls.Config) {}, FailedIdentity},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, 1, longTimeouts).serve()
			c.change(c.config)
			sock := connect(t, n)
			defer sock.Close()
			conn := tls.Client(sock, c.config)
			err := conn.Handshake()
			if err == nil { // the client of TLS 1.3 gets the error at its first read
				_, err = conn.Read(make([]byte, 1))
			}
			if remoteAlert(err) == "" && !strings.Contains(err.Error(), "tls:") {
				t.Errorf("the client sees %v, want an alert", err)
			}
			testkit.WaitFor(t, string(c.reason), n.failedWith(c.reason))
		})
	}
}

func TestGarbageInsteadOfTLS(t *testing.T) {
	n := newNode(t, 1, longTimeouts).serve()
	sock := connect(t, n)
	defer sock.Close()
	if _, err := sock.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "a refusal", n.failedWith(FailedTLS))
}

func TestDialerChecksWhoAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		config *tls.Config
		change func(*tls.Config)
		reason FailReason
	}{
		{"another peer", rawTLS(keyOf(9)), func(*tls.Config) {}, FailedIdentity},
		{"our own key", rawTLS(keyOf(1)), func(*tls.Config) {}, FailedIdentity},
		{"an RSA key", rsaTLS(), func(*tls.Config) {}, FailedIdentity},
		{"another protocol", rawTLS(keyOf(2)), func(c *tls.Config) { c.NextProtos = []string{"h2"} }, FailedALPN},
		{"no protocol", rawTLS(keyOf(2)), func(c *tls.Config) { c.NextProtos = nil }, FailedALPN},
		{"TLS 1.2", rawTLS(keyOf(2)), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }, FailedTLS},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, 1, longTimeouts).runDialers()
			c.change(c.config)
			a := listenRaw(t, n, c.config)
			n.SetContacts([]Contact{{ID: idOf(keyOf(2)), Addrs: []string{"x:1"}}})
			testkit.WaitFor(t, string(c.reason), n.failedWith(c.reason))
			r := <-a.calls
			<-r.ended
			if len(r.all()) != 0 {
				t.Errorf("the dialer sent %v to somebody else", r.kinds())
			}
			testkit.WaitFor(t, "the reason in the list of peers", func() bool { return n.Peers()[0].LastErr != "" })
			if p := n.Peers()[0]; p.State == stateActive {
				t.Errorf("the peer is %+v", p)
			}
		})
	}
}

func TestKeyExchange(t *testing.T) {
	classical := func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }
	t.Run("hybrid with hybrid", func(t *testing.T) {
		a, b := newNode(t, 1, longTimeouts).serve(), newNode(t, 2, longTimeouts).serve()
		sa, sb := connectNodes(t, a, b)
		if !sa.PQ() || !sb.PQ() {
			t.Errorf("post-quantum: dialer %v, listener %v", sa.PQ(), sb.PQ())
		}
		if !slices.Equal(a.negotiated, []string{"hybrid"}) || !slices.Equal(b.negotiated, []string{"hybrid"}) {
			t.Errorf("counted %v and %v", a.negotiated, b.negotiated)
		}
	})
	t.Run("required with hybrid", func(t *testing.T) {
		a := newNode(t, 1, longTimeouts, func(s *Spec) { s.Config.PQ = pqRequired }).serve()
		sa, sb := connectNodes(t, a, newNode(t, 2, longTimeouts).serve())
		if !sa.PQ() || !sb.PQ() {
			t.Error("not post-quantum")
		}
	})
	t.Run("hybrid falls back and says so", func(t *testing.T) {
		n := newNode(t, 1, longTimeouts).serve()
		config := rawTLS(keyOf(2))
		classical(config)
		r := dialRaw(t, n, config).reading()
		r.send(oap.Req, 1, goodHello())
		testkit.WaitFor(t, "an answer", func() bool { return len(r.all()) > 0 })
		if ack := r.all()[0].message.(*oap.HelloAck); ack.Chosen.PQ != "" {
			t.Errorf("the answer says %q", ack.Chosen.PQ)
		}
		testkit.WaitFor(t, "a session", func() bool { return len(n.Active()) == 1 })
		if n.Active()[0].PQ() || n.Peers()[0].PQ || n.negotiated[0] != "classical" {
			t.Errorf("it passes for post-quantum: %v", n.negotiated)
		}
	})
	t.Run("required refuses who lacks it", func(t *testing.T) {
		n := newNode(t, 1, longTimeouts, func(s *Spec) { s.Config.PQ = pqRequired }).serve()
		config := rawTLS(keyOf(2))
		classical(config)
		sock := connect(t, n)
		defer sock.Close()
		if err := tls.Client(sock, config).Handshake(); err == nil {
			t.Error("TLS went through")
		}
		testkit.WaitFor(t, "a refusal", n.failedWith(FailedTLS))
	})
	t.Run("required does not call who lacks it", func(t *testing.T) {
		n := newNode(t, 1, longTimeouts, func(s *Spec) { s.Config.PQ = pqRequired }).runDialers()
		config := rawTLS(keyOf(2))
		classical(config)
		listenRaw(t, n, config)
		n.SetContacts([]Contact{{ID: idOf(keyOf(2)), Addrs: []string{"x:1"}}})
		testkit.WaitFor(t, "a refusal", n.failedWith(FailedTLS))
	})
}

func TestNothingIsResumed(t *testing.T) {
	n := newNode(t, 1, longTimeouts).serve()
	config := rawTLS(keyOf(2))
	config.ClientSessionCache = tickets{t}
	config.ServerName = "any.name.will.do"
	r := dialRaw(t, n, config).reading()
	r.send(oap.Req, 1, goodHello())
	testkit.WaitFor(t, "an answer", func() bool { return len(r.all()) > 0 })
}

// tickets is a cache that must stay empty.
type tickets struct{ t *testing.T }

func (c tickets) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (c tickets) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		c.t.Error("the listener gave a ticket")
	}
}

func TestIdentityOfTheDocument(t *testing.T) {
	n := newNode(t, 7)
	if got, want := n.ID().String(), "m2cks5r3anb4aaok7kdl3osd4fsulcqjix7iynu4yfvlkfocjpta"; got != want {
		t.Errorf("the seed of sevens is %s, want %s", got, want)
	}
	if _, err := New(n.inv, Spec{}); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
		t.Errorf("without a key: %v", err)
	}
}

// Two of our own nodes, over real sockets.

func TestTwoNodesExchangeGossip(t *testing.T) {
	a, b := newNode(t, 1, longTimeouts, func(s *Spec) { s.Config.Compress = compressOn }).serve(), newNode(t, 2, longTimeouts).serve()
	sa, sb := connectNodes(t, a, b)
	if !sa.Dialed() || sb.Dialed() || sa.Peer() != b.ID() || sb.Peer() != a.ID() || sa.Serial() == 0 {
		t.Errorf("they do not know each other: %v %v", sa, sb)
	}
	if sa.MaxFrame() != oap.MaxPayload || sb.Chunk() != oap.Chunk || sa.RTT() <= 0 {
		t.Errorf("max_frame %d, chunk %d, rtt %s", sa.MaxFrame(), sb.Chunk(), sa.RTT())
	}
	written := make(chan error, 3)
	big := testGossip(300_000)
	big.Sig = make([]byte, 64)
	for _, m := range []*oap.Gossip{testGossip(10), big} {
		p := testFrame(len(m.Msg))
		p.Item.Message, p.Item.Written = m, func(err error) { written <- err }
		if rejected := sa.OfferGossip(append([]queuedFrame(nil), p), nil, nil); len(rejected) != 0 {
			t.Fatalf("%d were rejected", len(rejected))
		}
	}
	for range 2 {
		if err := <-written; err != nil {
			t.Errorf("written: %v", err)
		}
	}
	testkit.WaitFor(t, "two messages", b.check(func() bool { return len(b.gossip) == 2 }))
	for _, g := range b.gossip {
		if len(g.Msg) == 300_000 && len(g.Sig) != 64 || len(g.Msg) == 10 && g.Sig != nil || g.Hops != 8 {
			t.Errorf("a message of %d bytes came with a signature of %d", len(g.Msg), len(g.Sig))
		}
	}
	if err := sb.SendControl(Outgoing{Message: &oap.Have{}, Flags: oap.Event}); err != nil {
		t.Error(err)
	}
	if err := sb.SendBulk(4, 100, Outgoing{Message: &oap.Data{Stream: 4, Bytes: []byte("x")}, Flags: oap.Resp, Corr: 9}); err != nil {
		t.Error(err)
	}
	testkit.WaitFor(t, "both messages", a.check(func() bool { return slices.Equal(a.messages, []string{"have", "data"}) }))

	sa.SetBusy(true)
	peers := a.Peers()
	if len(peers) != 1 || peers[0].State != stateBusy || !peers[0].PQ || !peers[0].Dialed || peers[0].Addr != b.Addr().String() || sa.Addr() != peers[0].Addr {
		t.Errorf("the list of peers is %+v", peers)
	}
	if b.Peers()[0].State != stateActive || a.Find(a.ID()) != nil {
		t.Errorf("the other list is %+v", b.Peers())
	}

	sa.CloseWithError(nil)
	<-sa.Done()
	<-sb.Done()
	if !a.closedWith(ClosedBye)() || !b.closedWith(ClosedBye)() {
		t.Errorf("closed by %v and %v", a.reasons, b.reasons)
	}
	testkit.WantKind(t, sa.SendControl(Outgoing{Message: &oap.Pong{}}), fault.Canceled, "Tell after the end")
	testkit.WaitFor(t, "another session after a pause", func() bool { return a.Find(b.ID()) != nil })
}

// Compressed messages that arrive together do not share memory.
func TestCompressedGossipInOneRead(t *testing.T) {
	a, b := newNode(t, 1, longTimeouts, func(s *Spec) { s.Config.Compress = compressOn }).serve(), newNode(t, 2, longTimeouts).serve()
	s, _ := connectNodes(t, a, b)
	var batch []queuedFrame
	var want [][]byte
	for i := range 20 {
		p := testFrame(1000)
		msg := append(bytes.Repeat([]byte{byte(i)}, 500), sha512Of(i)...)
		want = append(want, msg)
		p.Item.Message = &oap.Gossip{Msg: msg, Hops: 8, Fanout: 3}
		batch = append(batch, p)
	}
	if rejected := s.OfferGossip(batch, nil, nil); len(rejected) > 0 {
		t.Fatal("rejected")
	}
	testkit.WaitFor(t, "all messages", b.check(func() bool { return len(b.gossip) == len(want) }))
	for i, g := range b.gossip {
		if !bytes.Equal(g.Msg, want[i]) {
			t.Errorf("message %d is another one", i)
		}
	}
}

// sha512Of returns 64 bytes that do not compress, so that a message stays within
// the ratio that a peer accepts.
func sha512Of(i int) []byte {
	sum := sha512.Sum512([]byte{byte(i)})
	return sum[:]
}

// A write on a socket continues when the peer reads again, and fails when the peer
// is gone or does not read for too long.
func TestBatchConnWritesAllOrFails(t *testing.T) {
	near, far := sockets(t)
	w := newBatchConn(near, time.Minute)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than any socket holds
	got := make(chan []byte, 1)
	go func() {
		all := make([]byte, len(sent))
		n, _ := io.ReadFull(far, all)
		got <- all[:n]
	}()
	if n, err := w.Write(sent); err != nil || n != len(sent) {
		t.Fatalf("wrote %d: %v", n, err)
	}
	if !bytes.Equal(<-got, sent) {
		t.Error("other bytes came")
	}
	impatient := newBatchConn(near, 10*time.Millisecond)
	if _, err := impatient.Write(sent); !timedOut(err) {
		t.Errorf("nobody reads: %v", err)
	}
	_ = far.Close()
	var broken *net.OpError
	for range 2 { // the first may still find room
		gone := newBatchConn(near, time.Minute)
		if _, err := gone.Write(sent); err != nil && !errors.As(err, &broken) {
			t.Errorf("the peer is gone: %v", err)
		}
	}
	if broken == nil || broken.Op != "write" {
		t.Errorf("the peer is gone: %v", broken)
	}
}

// sockets returns the two ends of a connection.
func sockets(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer listener.Close()
	near, err = net.Dial("tcp", listener.Addr().String())
	testkit.Must(t, err)
	far, err = listener.Accept()
	testkit.Must(t, err)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// A batch is one write, and what was written at once is read at once.
func TestBatchIsOneSystemCall(t *testing.T) {
	a, b := newNode(t, 1, longTimeouts).runDialers(), newNode(t, 2, longTimeouts).serve()
	var counted *countingConn
	a.setDial(func(ctx Ctx, addr string) (net.Conn, error) {
		conn, err := dialTCP(ctx, addr)
		counted = &countingConn{Conn: conn}
		return counted, err
	})
	a.SetContacts([]Contact{b.contact()})
	testkit.WaitFor(t, "a session", func() bool { return a.Find(b.ID()) != nil && b.Find(a.ID()) != nil })
	s := a.Find(b.ID())
	before := counted.n.Load()
	var batch []queuedFrame
	for range 60 {
		batch = append(batch, testFrame(1000))
	}
	if rejected := s.OfferGossip(batch, nil, nil); len(rejected) > 0 {
		t.Fatal("rejected")
	}
	testkit.WaitFor(t, "all messages", b.check(func() bool { return len(b.gossip) == 60 }))
	if n := counted.n.Load() - before; n != 1 {
		t.Errorf("60 messages took %d writes", n)
	}
}

// A peer that vanishes without a close_notify has broken the connection; one
// that closes between two frames has not.
func TestHowConnectionsEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		last   []byte
		close  func(*rawPeer)
		reason CloseReason
		broken bool
	}{
		{"close_notify", nil, func(r *rawPeer) { _ = r.conn.Close() }, ClosedEOF, false},
		{"bye and close_notify", []byte("bye"), func(r *rawPeer) { _ = r.conn.Close() }, ClosedBye, false},
		{"only the socket", nil, func(r *rawPeer) { _ = r.sock.Close() }, ClosedBroken, true},
		{"a reset", nil, func(r *rawPeer) { _ = r.sock.(*net.TCPConn).SetLinger(0); _ = r.sock.Close() }, ClosedBroken, true},
		{"inside a frame", []byte{0, 0, 0, 40, 1}, func(r *rawPeer) { _ = r.conn.Close() }, ClosedBroken, true},
		{"broken TLS", nil, func(r *rawPeer) {
			_, _ = r.sock.Write([]byte{23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
		}, ClosedBroken, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, 1, longTimeouts).serve()
			r := handshakeRaw(t, n, 2)
			if string(c.last) == "bye" {
				r.send(oap.Event, 2, &oap.Bye{Reason: "tired"})
			} else if c.last != nil {
				r.write(c.last)
			}
			c.close(r)
			testkit.WaitFor(t, "the end", n.check(func() bool { return len(n.closed) == 1 }))
			if n.reasons[0] != c.reason || (n.closed[0] != nil) != c.broken {
				t.Errorf("closed by %s with %v", n.reasons[0], n.closed[0])
			}
			if broken := slices.Equal(n.ioFailed, []string{"read"}); broken != c.broken {
				t.Errorf("counted %v", n.ioFailed)
			}
			if len(n.Active()) != 0 || len(n.Peers()) != 0 {
				t.Error("it is still listed")
			}
		})
	}
}

func TestListenSaysWhatIsWrong(t *testing.T) {
	n := newNode(t, 1)
	testkit.WantKind(t, n.Serve(n.ctx), fault.NotReady, "Serve before Listen")
	other, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer other.Close()
	testkit.WantKind(t, n.Listen(n.ctx, other.Addr().String()), fault.Conflict, "a port that is taken")
	testkit.WantKind(t, n.Listen(n.ctx, "nonsense"), fault.Malformed, "no address")
	if n.Addr() != nil {
		t.Error("it has an address")
	}
	// Serve opens the same address again after its context ended.
	testkit.Must(t, n.Listen(n.ctx, "127.0.0.1:0"))
	addr := n.Addr().String()
	for range 2 {
		ctx, cancel := withCancel()
		ended := make(chan error)
		go func() { ended <- n.Serve(ctx) }()
		testkit.WaitFor(t, "somebody who listens", func() bool {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		})
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			_ = conn.Close()
			t.Error("somebody still listens")
		}
	}
	if err := n.Drain(n.ctx); err != nil {
		t.Error(err)
	}
	testkit.WantKind(t, n.Serve(n.ctx), fault.NotReady, "Serve after the drain")
	testkit.WantKind(t, n.Listen(n.ctx, "127.0.0.1:0"), fault.NotReady, "Listen after the drain")
}

// TLS answers a request for new keys from the task that reads, while the other one
// writes. The standard library cannot be made to send such a request, so this test
// uses the batchConn directly.
func TestBatchConnKeepsTheOrder(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	w := newBatchConn(near, time.Minute)
	defer w.Close()
	w.beginBatch(false)
	mustWrite(t, w, "a")
	mustWrite(t, w, "b")
	done := make(chan error, 1)
	go func() { done <- w.flushBatch() }()
	got := make([]byte, 1)
	read := func(want string) {
		t.Helper()
		if _, err := io.ReadFull(far, got[:1]); err != nil || string(got) != want {
			t.Fatalf("read %q, %v, want %q", got, err, want)
		}
	}
	read("a") // the writer is in the system call now
	mustWrite(t, w, "c")
	read("b")
	read("c")
	if err := <-done; err != nil {
		t.Error(err)
	}
	go func() { done <- w.writeText("d") }()
	read("d")
	<-done
}

// A peer that makes TLS write while it does not read gets only bounded memory.
func TestBatchConnBoundsUnsolicitedWrites(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	w := newBatchConn(near, time.Minute)
	defer w.Close()
	stuck := make(chan error, 1)
	go func() { stuck <- w.writeText("x") }()
	testkit.WaitFor(t, "a write that is stuck", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.writing && w.pending == nil })
	var err error
	size := 0
	for ; err == nil; size += 1000 {
		_, err = w.Write(make([]byte, 1000))
	}
	if err != errFlooded || size > maxUnsolicited+2000 {
		t.Errorf("after %d bytes: %v", size, err)
	}
	_ = far.Close()
	if err := <-stuck; err == nil {
		t.Error("the stuck write went through")
	}
	if _, err := w.Write([]byte("more")); err == nil {
		t.Error("a wire that failed takes more")
	}
	w.beginBatch(false)
	if err := w.flushBatch(); err == nil {
		t.Error("a wire that failed flushes")
	}
}
