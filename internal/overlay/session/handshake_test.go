package session

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// Section 5: how the listener chooses.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name     string
		versions []uint64
		comp     []string
		frame    uint64
		most     int
		want     parameters
		comped   string
	}{
		{"the usual", []uint64{1}, []string{"zstd"}, 1 << 20, 1 << 20, parameters{1 << 20, 65536, true}, "zstd"},
		{"newer versions too", []uint64{3, 2, 1}, nil, 1 << 20, 1 << 20, parameters{1 << 20, 65536, false}, ""},
		{"other compressions first", []uint64{1}, []string{"br", "zstd", "x"}, 1 << 20, 1 << 20, parameters{1 << 20, 65536, true}, "zstd"},
		{"only others", []uint64{1}, []string{"br"}, 1 << 20, 1 << 20, parameters{1 << 20, 65536, false}, ""},
		{"more than there is", []uint64{1}, nil, 1 << 63, 1 << 20, parameters{1 << 20, 65536, false}, ""},
		{"a chunk just fits", []uint64{1}, nil, 65536 + 51, 1 << 20, parameters{65536 + 51, 65536, false}, ""},
		{"a chunk does not fit theirs", []uint64{1}, nil, 65536 + 50, 1 << 20, parameters{65536 + 50, 65535, false}, ""},
		{"a chunk does not fit ours", []uint64{1}, nil, 1 << 20, 1051, parameters{1 << 20, 1000, false}, ""},
		{"next to nothing", []uint64{1}, nil, 1, 1 << 20, parameters{1, 1, false}, ""},
	} {
		ack, got, err := negotiate(&oap.Hello{Versions: c.versions, Features: oap.Features{Comp: c.comp}, MaxFrame: c.frame}, c.most, oap.Chunk, true)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
			continue
		}
		want := oap.HelloAck{Chosen: oap.Chosen{Ver: 1, Comp: c.comped, PQ: "hybrid"}, Limits: oap.Limits{MaxFrame: uint64(c.most), Chunk: uint64(c.want.chunk)}}
		if *ack != want {
			t.Errorf("%s: the answer is %+v, want %+v", c.name, *ack, want)
		}
	}
	_, _, err := negotiate(&oap.Hello{Versions: []uint64{2, 3}, MaxFrame: 1}, 1<<20, oap.Chunk, false)
	if oap.CodeOf(err) != oap.BadVersion || fault.NextOf(err) == "" {
		t.Errorf("no version in common: %v", err)
	}
}

// Section 5: how the dialer checks.
func TestAgree(t *testing.T) {
	good := func(change func(*oap.HelloAck)) *oap.HelloAck {
		ack := &oap.HelloAck{Chosen: oap.Chosen{Ver: 1, Comp: "zstd", PQ: "whatever"}, Limits: oap.Limits{MaxFrame: 1 << 20, Chunk: 65536}}
		change(ack)
		return ack
	}
	for _, c := range []struct {
		name   string
		change func(*oap.HelloAck)
		want   parameters
	}{
		{"the usual", func(*oap.HelloAck) {}, parameters{1 << 20, 65536, true}},
		{"no compression", func(a *oap.HelloAck) { a.Chosen.Comp = "" }, parameters{1 << 20, 65536, false}},
		{"huge limits", func(a *oap.HelloAck) { a.Limits = oap.Limits{MaxFrame: 1 << 63, Chunk: 1 << 63} }, parameters{1 << 20, 65536, true}},
		{"small limits", func(a *oap.HelloAck) { a.Limits = oap.Limits{MaxFrame: 1000, Chunk: 900} }, parameters{1000, 900, true}},
	} {
		if got, err := checkHelloAck(good(c.change)); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	for _, change := range []func(*oap.HelloAck){
		func(a *oap.HelloAck) { a.Chosen.Ver = 2 },
		func(a *oap.HelloAck) { a.Chosen.Comp = "br" },
	} {
		if _, err := checkHelloAck(good(change)); oap.CodeOf(err) != oap.Malformed {
			t.Errorf("taken: %v", err)
		}
	}
}

// Section 5: what the listener refuses.
func TestListenerRefuses(t *testing.T) {
	hello := encoded(t, goodHello())
	plain := []func(*Spec){}
	for _, c := range []struct {
		name   string
		spec   []func(*Spec)
		frame  []byte
		code   oap.Code
		flags  oap.Flags
		corr   uint64
		reason FailReason
	}{
		{"a ping first", plain, framed(oap.Req, 4, encoded(t, &oap.Ping{})), oap.Malformed, oap.Resp, 4, FailedMalformed},
		{"a hello that is no request", plain, framed(oap.Event, 4, hello), oap.Malformed, oap.Event, 4, FailedMalformed},
		{"an unknown kind first", plain, framed(oap.Req, 4, later), oap.Malformed, oap.Resp, 4, FailedMalformed},
		{"no message", plain, framed(oap.Req, 4, []byte("hi")), oap.Malformed, oap.Resp, 4, FailedMalformed},
		{"a compressed hello", plain, framed(oap.Req|oap.Comp, 4, compress(hello)), oap.Malformed, oap.Resp, 4, FailedMalformed},
		{"another version of frames", plain, []byte{0, 0, 0, 40, 9}, oap.BadVersion, oap.Event, 0, FailedVersion},
		{"a frame that is too large", plain, []byte{0xff, 0, 0, 0}, oap.FrameTooLarge, oap.Event, 0, FailedMalformed},
		{"no version in common", plain, framed(oap.Req, 4, encoded(t, &oap.Hello{Versions: []uint64{9}, MaxFrame: 5})), oap.BadVersion, oap.Resp, 4, FailedVersion},
		{"a peer that is not known", []func(*Spec){func(s *Spec) {
			s.Admit = func(peer Candidate) error {
				if peer.ID != idOf(keyOf(2)) || peer.Token != "" || peer.Addr == "" {
					t.Errorf("asked about %+v", peer)
				}
				return fault.New("overlay.admit", fault.Unauthorized, "who are you?")
			}
		}}, framed(oap.Req, 4, hello), oap.Unauth, oap.Resp, 4, FailedUnauth},
		{"not ready", []func(*Spec){func(s *Spec) {
			s.Ready = func() error { return fault.New("overlay.ready", fault.NotReady, "still starting") }
		}}, framed(oap.Req, 4, hello), oap.NotReady, oap.Resp, 4, FailedNotReady},
		{"too many", []func(*Spec){func(s *Spec) {
			s.Ready = func() error { return fault.New("overlay.ready", fault.Busy, "full") }
		}}, framed(oap.Req, 4, hello), oap.Busy, oap.Resp, 4, FailedBusy},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			n := newNode(t, 1, c.spec...)
			r := dialRaw(t, n, rawTLS(keyOf(2))).reading()
			r.write(c.frame)
			synctest.Wait()
			r.wantRefused(c.name, c.code, c.flags, c.corr)
			_ = r.conn.Close()
			synctest.Wait()
			if !slices.Equal(n.failures, []FailReason{c.reason}) || len(n.opened) != 0 {
				t.Errorf("counted %v, opened %d", n.failures, len(n.opened))
			}
			if n.conns.TryAcquire(1) != 1 || n.inv.Read()[0].Inside > 1 {
				t.Error("its place was not given back")
			}
			n.conns.Release()
		})
	}
}

func TestListenerShowsTheToken(t *testing.T) {
	inBubble(t, "token", func(t *testing.T) {
		var shown string
		n := newNode(t, 1, func(s *Spec) { s.Admit = func(peer Candidate) error { shown = peer.Token; return nil } })
		r := dialRaw(t, n, rawTLS(keyOf(2))).reading()
		hello := goodHello()
		hello.Token = "capability"
		r.send(oap.Req, 99, hello)
		synctest.Wait()
		if last := r.last(); shown != "capability" || last.Corr != 99 || last.Flags != oap.Resp {
			t.Errorf("shown %q, answered %+v", shown, last)
		}
	})
}

// Section 5: what the dialer refuses, and what it sends.
func TestDialerRefuses(t *testing.T) {
	good := &oap.HelloAck{Chosen: oap.Chosen{Ver: 1}, Limits: oap.Limits{MaxFrame: 1 << 20, Chunk: 65536}}
	version2 := *good
	version2.Chosen.Ver = 2
	brotli := *good
	brotli.Chosen.Comp = "br"
	for _, c := range []struct {
		name   string
		frame  []byte
		code   oap.Code // that it answers with; empty for none
		flags  oap.Flags
		corr   uint64
		reason FailReason
		slowly bool
	}{
		{"an answer that is no response", framed(oap.Event, 1, encoded(t, good)), oap.Malformed, oap.Event, 1, FailedMalformed, false},
		{"an answer to another request", framed(oap.Resp, 2, encoded(t, good)), oap.Malformed, oap.Event, 2, FailedMalformed, false},
		{"a version that was not offered", framed(oap.Resp, 1, encoded(t, &version2)), oap.Malformed, oap.Event, 1, FailedMalformed, false},
		{"a compression that was not offered", framed(oap.Resp, 1, encoded(t, &brotli)), oap.Malformed, oap.Event, 1, FailedMalformed, false},
		{"a hello", framed(oap.Req, 1, encoded(t, goodHello())), oap.Malformed, oap.Resp, 1, FailedMalformed, false},
		{"gossip first", framed(oap.Event, 1, encoded(t, testGossip(1))), oap.Malformed, oap.Event, 1, FailedMalformed, false},
		{"a compressed answer", framed(oap.Resp|oap.Comp, 1, compress(encoded(t, good))), oap.Malformed, oap.Event, 1, FailedMalformed, false},
		{"Unauth", framed(oap.Resp, 1, encoded(t, &oap.Error{Code: oap.Unauth})), "", 0, 0, FailedUnauth, true},
		{"BadVersion", framed(oap.Resp, 1, encoded(t, &oap.Error{Code: oap.BadVersion})), "", 0, 0, FailedVersion, true},
		{"Malformed", framed(oap.Event, 0, encoded(t, &oap.Error{Code: oap.Malformed})), "", 0, 0, FailedMalformed, true},
		{"Busy", framed(oap.Resp, 1, encoded(t, &oap.Error{Code: oap.Busy})), "", 0, 0, FailedBusy, false},
		{"NotReady", framed(oap.Resp, 1, encoded(t, &oap.Error{Code: oap.NotReady})), "", 0, 0, FailedNotReady, false},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			n := newNode(t, 1, func(s *Spec) { s.Token = func(oap.PeerID) string { return "mine" } })
			a := listenRaw(t, n, rawTLS(keyOf(2)))
			result := make(chan error, 1)
			go func() { _, err := n.dialPeer(n.ctx, idOf(keyOf(2)), "x:1"); result <- err }()
			r := <-a.calls
			synctest.Wait()
			first := r.last()
			hello, ok := first.message.(*oap.Hello)
			if !ok || first.Flags != oap.Req || hello.Token != "mine" || hello.MaxFrame != 1<<20 || !slices.Equal(hello.Versions, []uint64{1}) ||
				hello.Features.PQ != "hybrid" || !slices.Equal(hello.Features.Comp, []string{"zstd"}) {
				t.Errorf("the hello is %+v", first.message)
			}
			r.write(c.frame)
			synctest.Wait()
			if c.code != "" {
				r.wantRefused(c.name, c.code, c.flags, c.corr)
			} else {
				<-r.ended
				if len(r.all()) != 1 {
					t.Errorf("an error was answered: %v", r.kinds())
				}
			}
			_ = r.conn.Close()
			err := <-result
			if err == nil || isPermanent(err) != c.slowly || fault.NextOf(err) == "" {
				t.Errorf("the call ended with %v; left alone for longer: %v", err, isPermanent(err))
			}
			synctest.Wait()
			if !slices.Equal(n.failures, []FailReason{c.reason}) {
				t.Errorf("counted %v", n.failures)
			}
		})
	}
}

// The listener may send other frames directly after its hello_ack, and they
// may be compressed already.
func TestFramesBehindTheAnswer(t *testing.T) {
	inBubble(t, "in one write", func(t *testing.T) {
		n := newNode(t, 1)
		a := listenRaw(t, n, rawTLS(keyOf(2)))
		go func() { _, _ = n.dialPeer(n.ctx, idOf(keyOf(2)), "x:1") }()
		r := <-a.calls
		synctest.Wait()
		all := frameOf(t, oap.Resp, 1, &oap.HelloAck{Chosen: oap.Chosen{Ver: 1, Comp: "zstd"}, Limits: oap.Limits{MaxFrame: 1 << 20, Chunk: 65536}})
		all = append(all, framed(oap.Event|oap.Comp, 1, compress(encoded(t, testGossip(100))))...)
		all = append(all, frameOf(t, oap.Event, 2, testGossip(50))...)
		r.write(all)
		synctest.Wait()
		if len(n.gossip) != 2 || len(n.Active()) != 1 {
			t.Errorf("%d messages, %d sessions", len(n.gossip), len(n.Active()))
		}
	})
}

// From accept to the end of the handshake there are two seconds, TLS included.
func TestHandshakeTakesTooLong(t *testing.T) {
	inBubble(t, "silence instead of TLS", func(t *testing.T) {
		n := newNode(t, 1)
		sock := connect(t, n)
		began := time.Now()
		if _, err := sock.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("read: %v", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("closed after %s", took)
		}
		synctest.Wait()
		if !slices.Equal(n.failures, []FailReason{FailedTimeout}) || n.handshakeTimeouts != 1 || !slices.Equal(n.timeouts, []string{"handshake"}) {
			t.Errorf("counted %v, %d, %v", n.failures, n.handshakeTimeouts, n.timeouts)
		}
	})
	inBubble(t, "silence instead of a hello", func(t *testing.T) {
		n := newNode(t, 1)
		sock := connect(t, n)
		began := time.Now()
		time.Sleep(1500 * time.Millisecond)
		r := newRawPeer(t, sock, tls.Client(sock, rawTLS(keyOf(2))))
		testkit.Must(t, r.conn.Handshake())
		last := r.reading().awaitClose()
		if took := last.at.Sub(began); took != 2*time.Second {
			t.Errorf("given up after %s", took)
		}
		r.wantRefused("no hello", oap.Timeout, oap.Event, 0)
		_ = sock.Close()
		synctest.Wait()
		if !slices.Equal(n.failures, []FailReason{FailedTimeout}) {
			t.Errorf("counted %v", n.failures)
		}
	})
	inBubble(t, "a byte of the hello at a time", func(t *testing.T) {
		n := newNode(t, 1)
		r := dialRaw(t, n, rawTLS(keyOf(2))).reading()
		began := time.Now()
		var err error
		for _, b := range framed(oap.Req, 1, encoded(t, goodHello())) {
			if _, err = r.conn.Write([]byte{b}); err != nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := r.awaitClose().at.Sub(began); took != 2*time.Second {
			t.Errorf("given up after %s", took)
		}
	})
	inBubble(t, "a listener that says nothing", func(t *testing.T) {
		n := newNode(t, 1)
		n.setDial(func(Ctx, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			return ours, nil
		})
		began := time.Now()
		_, err := n.dialPeer(n.ctx, idOf(keyOf(2)), "x:1")
		testkit.WantKind(t, err, fault.Timeout, "the call")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("given up after %s", took)
		}
	})
	inBubble(t, "nobody answers the call", func(t *testing.T) {
		n := newNode(t, 1)
		n.setDial(func(ctx Ctx, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() })
		_, err := n.dialPeer(n.ctx, idOf(keyOf(2)), "x:1")
		testkit.WantKind(t, err, fault.NoRoute, "the call")
		if !slices.Equal(n.timeouts, []string{"connect"}) || len(n.ioFailed) > 0 || !slices.Equal(n.failures, []FailReason{FailedDial}) {
			t.Errorf("counted %v, %v", n.timeouts, n.failures)
		}
	})
	inBubble(t, "a peer that does not read", func(t *testing.T) {
		n := newNode(t, 1)
		sock := connect(t, n)
		conn := tls.Client(&neverReads{Conn: sock}, rawTLS(keyOf(2)))
		go func() { _ = conn.Handshake() }()
		time.Sleep(2*time.Second + closeGrace + time.Millisecond)
		synctest.Wait()
		if !slices.Equal(n.failures, []FailReason{FailedTimeout}) {
			t.Errorf("counted %v", n.failures)
		}
		_ = sock.Close()
	})
}

// neverReads never reads.
type neverReads struct{ net.Conn }

func (n *neverReads) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// A drain in the middle of a handshake ends it.
func TestDrainEndsHandshakes(t *testing.T) {
	inBubble(t, "before the hello", func(t *testing.T) {
		n := newNode(t, 1)
		r := dialRaw(t, n, rawTLS(keyOf(2))).reading()
		began := time.Now()
		if err := n.Drain(n.ctx); err != nil {
			t.Error(err)
		}
		<-r.ended
		if time.Since(began) > time.Second {
			t.Error("it was waited for")
		}
	})
	inBubble(t, "after the drain", func(t *testing.T) {
		n := newNode(t, 1)
		if err := n.Drain(n.ctx); err != nil {
			t.Error(err)
		}
		r := dialRaw(t, n, rawTLS(keyOf(2))).reading()
		r.send(oap.Req, 1, goodHello())
		r.wantRefused("drained", oap.NotReady, oap.Resp, 1)
	})
}
