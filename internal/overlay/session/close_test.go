package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// Section 11: bye, and what follows.

func byeReasons(r *rawPeer) (reasons []string) {
	for _, h := range r.all() {
		if b, ok := h.message.(*oap.Bye); ok {
			reasons = append(reasons, b.Reason)
		}
	}
	return reasons
}

func TestDrain(t *testing.T) {
	inBubble(t, "says bye and closes", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- n.Drain(n.ctx) }()
		<-r.ended
		if got := byeReasons(r); !slices.Equal(got, []string{"draining"}) || len(r.all()) != 2 || r.last().Flags != oap.Event {
			t.Errorf("it got %v", r.kinds())
		}
		_ = r.conn.Close()
		if err := <-ended; err != nil || time.Since(began) != 0 {
			t.Errorf("drained after %s: %v", time.Since(began), err)
		}
		if !slices.Equal(n.reasons, []CloseReason{ClosedDrain}) || n.closed[0] != nil {
			t.Errorf("closed by %v with %v", n.reasons, n.closed)
		}
	})
	inBubble(t, "sends what was queued first", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		var batch []queuedFrame
		for range 30 {
			batch = append(batch, testFrame(10_000))
		}
		if rejected := s.OfferGossip(batch, nil, nil); len(rejected) > 0 {
			t.Fatal("rejected")
		}
		go func() { _ = n.Drain(n.ctx) }()
		<-r.ended
		if got := r.kinds(); len(got) != 32 || got[31] != "bye" {
			t.Errorf("it got %v", got)
		}
	})
	inBubble(t, "waits for open streams", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		r.send(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		if err := s.SendControl(Outgoing{Message: &oap.Start{Stream: 2, Obj: "b3:y"}, Flags: oap.Req}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- n.Drain(n.ctx) }()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if len(n.Active()) != 0 || n.Find(s.Peer()) != nil {
			t.Error("it is still offered to others")
		}
		// What would start an exchange is refused; open streams continue.
		testkit.WantKind(t, s.SendControl(Outgoing{Message: &oap.Want{}}), fault.NotReady, "a want")
		if rejected := s.OfferGossip([]queuedFrame{testFrame(10)}, nil, nil); len(rejected) != 1 {
			t.Error("gossip is taken")
		}
		if err := s.SendBulk(1, 10, Outgoing{Message: &oap.Data{Stream: 1, Bytes: []byte("x")}, Flags: oap.Resp, Corr: 5}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		r.send(oap.Req, 6, &oap.Ping{TS: 3})
		r.send(oap.Req, 7, &oap.Start{Stream: 3, Obj: "b3:z"}) // it crossed the bye
		r.send(oap.Event, 8, testGossip(5))
		r.send(oap.Event, 9, &oap.Have{})
		r.send(oap.Resp, 2, &oap.Data{Stream: 2, Bytes: []byte("y")})
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := r.kinds(); !slices.Equal(got, []string{"hello_ack", "start", "bye", "data", "pong", "end"}) {
			t.Errorf("it got %v", got)
		}
		if last := r.last(); last.message.(*oap.End).Status != "Canceled" || last.Corr != 7 || last.Flags != oap.Resp {
			t.Errorf("the stream that crossed ended with %+v", last)
		}
		if !slices.Equal(n.messages, []string{"start", "data"}) || len(n.gossip) != 0 {
			t.Errorf("the handler saw %v and %d messages", n.messages, len(n.gossip))
		}
		// We end one of the two streams, the peer the other; then the session closes.
		if err := s.SendBulk(1, 10, Outgoing{Message: &oap.End{Stream: 1, Seq: 1, Status: "ok"}, Flags: oap.Resp, Corr: 5}); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		select {
		case <-ended:
			t.Error("a stream was cut")
		default:
		}
		r.send(oap.Resp, 2, &oap.End{Stream: 2, Seq: 1, Status: "ok"})
		<-r.ended
		_ = r.conn.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	inBubble(t, "cuts stragglers", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		r.send(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(n.ctx, 3*time.Second)
		defer cancel()
		err := n.Drain(ctx)
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("drained after %s: %v", took, err)
		}
		<-r.ended
		synctest.Wait()
		if len(n.closed) != 1 || len(n.live) != 0 {
			t.Errorf("closed %v, %d live", n.closed, len(n.live))
		}
	})
	inBubble(t, "never lasts longer than five seconds", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		r.send(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		synctest.Wait()
		began := time.Now()
		_ = n.Drain(n.ctx)
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("drained after %s", took)
		}
	})
	inBubble(t, "cuts at once when told to", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		r.send(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		synctest.Wait()
		now, cancel := context.WithCancel(n.ctx)
		cancel()
		began := time.Now()
		err := n.Drain(now)
		testkit.WantKind(t, err, fault.Timeout, "a drain without time")
		if time.Since(began) != 0 || fault.DetailOf(err) != "cut 1 sessions that had not ended" {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if err := n.Drain(now); err != nil {
			t.Errorf("once more: %v", err)
		}
	})
	inBubble(t, "when never served", func(t *testing.T) {
		if err := newNode(t, 1).Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPeerSaysBye(t *testing.T) {
	inBubble(t, "and nothing is open", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		r.send(oap.Event, 5, testGossip(10))
		r.send(oap.Event, 6, &oap.Bye{Reason: "draining"})
		<-r.ended
		if got := r.kinds(); !slices.Equal(got, []string{"hello_ack"}) {
			t.Errorf("it got %v", got)
		}
		_ = r.conn.Close()
		synctest.Wait()
		if len(n.gossip) != 1 || len(n.closed) != 1 || n.closed[0] != nil || !slices.Equal(n.reasons, []CloseReason{ClosedBye}) {
			t.Errorf("%d messages, closed %v by %v", len(n.gossip), n.closed, n.reasons)
		}
	})
	inBubble(t, "and a stream goes on", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		r.send(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		r.send(oap.Event, 6, &oap.Bye{Reason: "draining"})
		r.send(oap.Event, 7, &oap.Bye{Reason: "a second one is ignored"})
		synctest.Wait()
		if len(n.Active()) != 0 || len(n.closed) != 0 {
			t.Errorf("%d active, closed %v", len(n.Active()), n.closed)
		}
		if rejected := s.OfferGossip([]queuedFrame{testFrame(10)}, nil, nil); len(rejected) != 1 {
			t.Error("gossip is taken")
		}
		for seq := range uint64(3) {
			if err := s.SendBulk(1, 10, Outgoing{Message: &oap.Data{Stream: 1, Seq: seq, Bytes: []byte("x")}, Flags: oap.Resp, Corr: 5}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		if err := s.SendBulk(1, 10, Outgoing{Message: &oap.End{Stream: 1, Seq: 3, Status: "ok"}, Flags: oap.Resp, Corr: 5}); err != nil {
			t.Error(err)
		}
		<-r.ended
		if got := r.kinds(); !slices.Equal(got, []string{"hello_ack", "data", "data", "data", "end"}) {
			t.Errorf("it got %v", got)
		}
	})
	inBubble(t, "and never closes", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		r.send(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		r.send(oap.Event, 6, &oap.Bye{Reason: "draining"})
		began := time.Now()
		<-r.ended
		if took := time.Since(began); took != maxDrainTimeout {
			t.Errorf("given up after %s", took)
		}
	})
	inBubble(t, "while gossip is queued", func(t *testing.T) {
		n := newNode(t, 1)
		bad := dialRaw(t, n, rawTLS(keyOf(2)))
		bad.send(oap.Req, 1, goodHello())
		if _, err := bad.conn.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := n.Active()[0]
		var outcomes []error
		post := func(size int) {
			p := testFrame(size)
			p.Item.Written = func(err error) { outcomes = append(outcomes, err) }
			s.OfferGossip([]queuedFrame{p}, nil, nil)
			synctest.Wait()
		}
		bad.send(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		post(100) // the writer is stuck in this one
		post(100) // and this one is queued
		bad.send(oap.Event, 6, &oap.Bye{Reason: "draining"})
		synctest.Wait()
		bad.reading()
		synctest.Wait()
		if got := bad.kinds(); !slices.Equal(got, []string{"gossip"}) {
			t.Errorf("it got %v", got)
		}
		if len(outcomes) != 2 || outcomes[0] != nil || fault.KindOf(outcomes[1]) != fault.NotReady {
			t.Errorf("told %v", outcomes)
		}
		if s.permits.TryAcquire(64) != 64 {
			t.Error("a permit is missing")
		}
	})
}

func TestEndTellsThePeer(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   oap.Code
		reason CloseReason
	}{
		{fault.New("x", fault.Malformed, "messages that do not verify"), oap.Malformed, ClosedMalformed},
		{fault.New("x", fault.QuotaExceeded, "too much"), oap.QuotaExceeded, ClosedQuota},
		{fault.New("x", fault.Busy, "too much"), oap.Busy, ClosedBusy},
		{fault.New("x", fault.Unauthorized, "out"), oap.Unauth, ClosedUnauth},
	} {
		inBubble(t, string(c.code), func(t *testing.T) {
			n := newNode(t, 1)
			r := handshakeInBubble(t, n, 2)
			s := n.Active()[0]
			s.CloseWithError(c.err)
			s.CloseWithError(nil) // the first cause counts
			r.wantRefused("End", c.code, oap.Event, 0)
			_ = r.conn.Close()
			<-s.Done()
			if !slices.Equal(n.reasons, []CloseReason{c.reason}) || n.closed[0] != c.err {
				t.Errorf("closed by %v with %v", n.reasons, n.closed)
			}
		})
	}
}

// A peer that sent a forged message gets an error with its corr, and a bye with the
// reason for people.
func TestForgerGetsTheReason(t *testing.T) {
	inBubble(t, "error, then bye", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		err := &fault.Error{Op: "gossip.take", Kind: fault.InvalidSig, Detail: "a forged letter", Err: oap.BadSig}
		s.Expel(7, err)
		s.Expel(8, err) // one is enough
		<-r.ended
		all := r.all()
		if len(all) < 2 || r.err != io.EOF {
			t.Fatalf("got %v, then %v", r.kinds(), r.err)
		}
		words, bye := all[len(all)-2], all[len(all)-1]
		if e, ok := words.message.(*oap.Error); !ok || e.Code != oap.Malformed || e.Msg != "a forged letter" || words.Flags != oap.Event || words.Corr != 7 {
			t.Errorf("told %+v, flags %d, corr %d", words.message, words.Flags, words.Corr)
		}
		if b, ok := bye.message.(*oap.Bye); !ok || b.Reason != "forged letter" || bye.Flags != oap.Event {
			t.Errorf("at last %+v, flags %d", bye.message, bye.Flags)
		}
		_ = r.conn.Close()
		<-s.Done()
		if !slices.Equal(n.reasons, []CloseReason{ClosedForged}) || n.closed[0] != error(err) {
			t.Errorf("closed by %v with %v", n.reasons, n.closed)
		}
	})
	t.Run("and called again", func(t *testing.T) {
		a, b := newNode(t, 1, longTimeouts).serve(), newNode(t, 2, longTimeouts).serve()
		first, _ := connectNodes(t, a, b)
		first.Expel(1, &fault.Error{Op: "gossip.take", Kind: fault.InvalidSig, Detail: "a forged letter", Err: oap.BadSig})
		<-first.Done()
		testkit.WaitFor(t, "another session", func() bool { s := a.Find(b.ID()); return s != nil && s != first })
		testkit.WaitFor(t, "the forger counts it as a refusal", b.closedWith(ClosedRefused))
		if !a.closedWith(ClosedForged)() {
			t.Errorf("closed by %v", a.reasons)
		}
		if isPermanent(first.closedBy().err) {
			t.Error("the pause is not the usual one")
		}
	})
}

// If the peer got the reason and does not close, the session ends after a second.
func TestEndDoesNotWaitForThePeer(t *testing.T) {
	inBubble(t, "1s", func(t *testing.T) {
		n := newNode(t, 1)
		handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		began := time.Now()
		s.CloseWithError(fault.Busy)
		if len(n.Active()) != 0 {
			t.Error("it is still offered to others")
		}
		<-s.Done()
		if took := time.Since(began); took != closeGrace {
			t.Errorf("it took %s", took)
		}
	})
	for patience, most := range map[time.Duration]time.Duration{2 * time.Second: 500 * time.Millisecond, time.Minute: closeGrace, 40 * time.Millisecond: 40 * time.Millisecond} {
		inBubble(t, "a drain of "+patience.String(), func(t *testing.T) {
			n := newNode(t, 1)
			handshakeInBubble(t, n, 2)
			began := time.Now()
			within, cancel := context.WithTimeout(n.ctx, patience)
			defer cancel()
			if err := n.Drain(within); (err == nil) != (most < patience) {
				t.Errorf("the drain: %v", err)
			}
			if took := time.Since(began); took != most {
				t.Errorf("it took %s", took)
			}
		})
	}
	inBubble(t, "a drain came first", func(t *testing.T) {
		n := newNode(t, 1)
		testkit.Must(t, n.Drain(n.ctx))
		if n.addLive(&Session{}) || len(n.live) != 0 {
			t.Error("a session joins after the drain")
		}
	})
}

// A reader that panics closes its writer: nothing is left, and the peer gets the
// reason.
func TestHandlerThatPanics(t *testing.T) {
	for _, where := range []string{"message", "arrived", "opened", "written"} {
		inBubble(t, where, func(t *testing.T) {
			n := newNode(t, 1)
			boom := func(here string) {
				if here == where {
					panic("boom")
				}
			}
			n.onMessage = func(*Session, Incoming) error { boom("message"); return nil }
			n.onArrived = func(*Session, []IncomingGossip) { boom("arrived") }
			n.onOpened = func(*Session) { boom("opened") }
			r := dialRaw(t, n, rawTLS(keyOf(2))).reading()
			r.send(oap.Req, 1, goodHello())
			synctest.Wait()
			if where == "written" {
				p := testFrame(10)
				p.Item.Written = func(error) { boom("written") }
				n.Active()[0].OfferGossip([]queuedFrame{p}, nil, nil)
			} else {
				_, _ = r.conn.Write(append(frameOf(t, oap.Event, 2, testGossip(10)), frameOf(t, oap.Event, 3, &oap.Have{})...))
			}
			<-r.ended
			if e, ok := r.last().message.(*oap.Error); where != "written" && (!ok || e.Code != oap.NotReady) {
				t.Errorf("the peer was told %+v", r.last().message)
			}
			_ = r.conn.Close()
			synctest.Wait()
			if len(n.panics) != 1 || len(n.closed) != 1 || len(n.live) != 0 || !slices.Equal(n.reasons, []CloseReason{ClosedError}) {
				t.Errorf("panics %v, closed %v by %v, %d live", n.panics, n.closed, n.reasons, len(n.live))
			}
			for _, stat := range n.inv.Read() {
				if stat.Each == "session" && stat.Instances != 0 {
					t.Errorf("%s is still there", stat.Name)
				}
			}
		})
	}
}

// A handshake that panics affects no other: its permit is released, so the peer can
// connect the next time, and the dialer retries.
func TestHandshakeThatPanics(t *testing.T) {
	inBubble(t, "listener", func(t *testing.T) {
		fine := false
		n := newNode(t, 1, func(s *Spec) {
			s.Config.MaxConns = 1
			s.Admit = func(Candidate) error {
				if !fine {
					panic("boom")
				}
				return nil
			}
		})
		r := dialRaw(t, n, rawTLS(keyOf(2))).reading()
		r.send(oap.Req, 1, goodHello())
		<-r.ended
		_ = r.conn.Close()
		synctest.Wait()
		if len(n.panics) != 1 || !slices.Equal(n.failures, []FailReason{FailedError}) || len(n.pending) != 0 {
			t.Errorf("panics %v, failures %v, %d handshakes", n.panics, n.failures, len(n.pending))
		}
		fine = true
		handshakeInBubble(t, n, 3)
	})
	t.Run("dialer", func(t *testing.T) {
		var calls atomic.Int64
		a, b := newNode(t, 1, longTimeouts, func(s *Spec) {
			s.Token = func(oap.PeerID) string {
				if calls.Add(1) < 3 {
					panic("boom")
				}
				return ""
			}
		}).serve(), newNode(t, 2, longTimeouts).serve()
		connectNodes(t, a, b)
		if !a.check(func() bool {
			return len(a.panics) == 2 && slices.Equal(a.failures, []FailReason{FailedError, FailedError})
		})() {
			t.Errorf("panics %v, failures %v", a.panics, a.failures)
		}
	})
}

// The tasks end with their groups.
func TestGroupsThatClose(t *testing.T) {
	for _, which := range []string{"writers", "readers"} {
		inBubble(t, which, func(t *testing.T) {
			n := newNode(t, 1)
			r := handshakeInBubble(t, n, 2)
			s := n.Active()[0]
			if which == "writers" {
				n.tasks.Writers.Close()
			} else {
				n.tasks.Readers.Close()
			}
			<-s.Done()
			<-r.ended
			if !slices.Equal(n.reasons, []CloseReason{ClosedAborted}) {
				t.Errorf("closed by %v", n.reasons)
			}
			// No room for the tasks of another session: the peer gets an error.
			other := dialRaw(t, n, rawTLS(keyOf(3))).reading()
			other.send(oap.Req, 1, goodHello())
			<-other.ended
			if e, ok := other.last().message.(*oap.Error); !ok || e.Code != oap.Busy {
				t.Errorf("the other one was told %+v", other.last().message)
			}
			_ = other.conn.Close()
			synctest.Wait()
			if !slices.Equal(n.failures, []FailReason{FailedBusy}) || len(n.opened) != 1 || len(n.live) != 0 {
				t.Errorf("counted %v, opened %d, live %d", n.failures, len(n.opened), len(n.live))
			}
		})
	}
}

// Section 11: two connections between two peers.

func TestKeepsOld(t *testing.T) {
	// With the two peers of the document, the one of eights is the smaller.
	seven, eight := idOf(keyOf(7)), idOf(keyOf(8))
	for _, c := range []struct {
		self, peer       oap.PeerID
		oldOurs, newOurs bool
		want             bool
	}{
		{eight, seven, true, false, true}, // we are smaller, and dialed the old one
		{eight, seven, false, true, false},
		{seven, eight, true, false, false},
		{seven, eight, false, true, true},
		{seven, eight, true, true, false}, // same direction: the newer
		{eight, seven, false, false, false},
	} {
		if got := keepsOld(c.self, c.peer, c.oldOurs, c.newOurs); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Both dial at the same instant, in every interleaving that a scheduler and
// random delays come up with. In the end both have one session, and it is the
// same one.
func TestSimultaneousDials(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SampledFrom([][2]byte{{7, 8}, {8, 7}}).Draw(rt, "keys")
		delays := rapid.SliceOfN(rapid.IntRange(0, 3), 64, 64).Draw(rt, "delays")
		wrong := "" // reported to rapid outside of the bubble
		synctest.Test(t, func(t *testing.T) {
			a, b := newNode(t, keys[0]), newNode(t, keys[1])
			var turn atomic.Int64
			lag := func() time.Duration {
				return time.Duration(delays[turn.Add(1)%int64(len(delays))]) * time.Millisecond
			}
			join := func(from, to *node) {
				from.setDial(func(Ctx, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					to.handleConn(&slowConn{theirs, lag(), lag()})
					return &slowConn{ours, lag(), lag()}, nil
				})
				from.SetContacts([]Contact{{ID: to.ID(), Addrs: []string{"x:1"}}})
				from.runDialers()
			}
			join(a, b)
			join(b, a)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			sa, sb := a.Active(), b.Active()
			if len(sa) != 1 || len(sb) != 1 || len(a.live) != 1 || len(b.live) != 1 {
				wrong = fmt.Sprintf("%d and %d sessions, %d and %d connections", len(sa), len(sb), len(a.live), len(b.live))
				return
			}
			if sa[0].dialed == sb[0].dialed {
				wrong = "the two kept different connections"
			}
			if len(a.opened) > 1 && sa[0].dialed != (a.ID().Compare(b.ID()) < 0) {
				wrong = "not that of the smaller ID was kept"
			}
			if opened := len(a.opened); opened > 2 {
				wrong = fmt.Sprintf("it took %d connections", opened)
			}
			for _, r := range slices.Concat(a.reasons, b.reasons) {
				if r != ClosedDuplicate && r != ClosedBye && r != ClosedEOF {
					wrong = fmt.Sprintf("closed by %v and %v", a.reasons, b.reasons)
				}
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// slowConn is a connection with delays.
type slowConn struct {
	net.Conn
	read, write time.Duration
}

func (s *slowConn) Read(b []byte) (int, error) {
	time.Sleep(s.read)
	return s.Conn.Read(b)
}

func (s *slowConn) Write(b []byte) (int, error) {
	time.Sleep(s.write)
	return s.Conn.Write(b)
}

// The same, over real sockets.
func TestSimultaneousDialsOverLoopback(t *testing.T) {
	for i := range 20 {
		a, b := newNode(t, 7, longTimeouts).serve(), newNode(t, 8, longTimeouts).serve()
		go a.SetContacts([]Contact{b.contact()})
		b.SetContacts([]Contact{a.contact()})
		testkit.WaitFor(t, "one connection, the same on both sides", func() bool {
			sa, sb := a.Active(), b.Active()
			a.Sessions.mu.Lock()
			live := len(a.live)
			a.Sessions.mu.Unlock()
			return len(sa) == 1 && len(sb) == 1 && live == 1 && sa[0].dialed != sb[0].dialed
		})
		if i%5 == 0 {
			runtime.Gosched()
		}
		a.stop()
		b.stop()
	}
}

func TestDuplicateOfTheSamePeer(t *testing.T) {
	inBubble(t, "the newer is kept", func(t *testing.T) {
		n := newNode(t, 1)
		first := handshakeInBubble(t, n, 2)
		old := n.Active()[0]
		second := handshakeInBubble(t, n, 2)
		<-first.ended
		if got := byeReasons(first); !slices.Equal(got, []string{"duplicate"}) {
			t.Errorf("the older got %v", first.kinds())
		}
		_ = first.conn.Close()
		<-old.Done()
		if len(n.Active()) != 1 || n.Active()[0] == old || len(byeReasons(second)) != 0 {
			t.Errorf("%d sessions", len(n.Active()))
		}
		if !slices.Equal(n.reasons, []CloseReason{ClosedDuplicate}) {
			t.Errorf("closed by %v", n.reasons)
		}
	})
	inBubble(t, "messages on the older are taken", func(t *testing.T) {
		n := newNode(t, 1)
		first := handshakeInBubble(t, n, 2)
		first.send(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		synctest.Wait()
		handshakeInBubble(t, n, 2)
		first.send(oap.Event, 6, testGossip(10))
		synctest.Wait()
		if len(n.gossip) != 1 || len(n.live) != 2 {
			t.Errorf("%d messages, %d live", len(n.gossip), len(n.live))
		}
		began := time.Now()
		<-first.ended
		if took := time.Since(began); took != drainTimeout {
			t.Errorf("its stream was cut after %s", took)
		}
	})
}

// What is sent.

func TestPost(t *testing.T) {
	inBubble(t, "numbers", func(t *testing.T) {
		n, r, s := stalledSession(t, flow.RejectNew)
		var batch []queuedFrame
		for i := range 15 {
			batch = append(batch, testFrame(100+i))
		}
		if rejected := s.OfferGossip(batch, []Outgoing{{Corr: 99}}, nil); len(rejected) != 1 || rejected[0].Corr != 99 || len(n.backpressure) != 0 {
			t.Errorf("%d were rejected; pressure %v", len(rejected), n.backpressure)
		}
		r.reading()
		synctest.Wait()
		corrs := map[uint64]bool{}
		for _, h := range r.all() {
			corrs[h.Corr] = true
		}
		if len(corrs) != 16 || corrs[0] || n.sent != 16 {
			t.Errorf("the numbers are %v; %d counted", corrs, n.sent)
		}
	})
	inBubble(t, "with patience, and it ends", func(t *testing.T) {
		_, _, s := stalledSession(t, flow.RejectNew)
		for i := range 512 {
			s.OfferGossip([]queuedFrame{frameOnTopic(1, uint64(i))}, nil, nil)
		}
		patience := time.Hour
		time.AfterFunc(time.Second, func() { s.CloseWithError(nil) })
		rejected := s.OfferGossip([]queuedFrame{frameOnTopic(1, 1), frameOnTopic(1, 2)}, nil, &patience)
		if len(rejected) != 2 || patience < time.Hour-time.Minute {
			t.Errorf("%d were rejected, %s is left", len(rejected), patience)
		}
	})
}

func TestExpiredFramesAreNotSent(t *testing.T) {
	inBubble(t, "expired", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		var outcomes []error
		for _, expires := range []int64{time.Now().UnixMilli() - 1, time.Now().UnixMilli(), 0} {
			p := testFrame(10)
			p.Item.Expires = expires
			p.Item.Written = func(err error) { outcomes = append(outcomes, err) }
			s.OfferGossip([]queuedFrame{p}, nil, nil)
			synctest.Wait()
		}
		if n.expired != 1 || len(r.all()) != 3 || len(outcomes) != 3 || fault.KindOf(outcomes[0]) != fault.Expired || outcomes[1] != nil {
			t.Errorf("%d expired, %v came, told %v", n.expired, r.kinds(), outcomes)
		}
	})
}

func TestFrameTooLargeForThePeer(t *testing.T) {
	inBubble(t, "1000", func(t *testing.T) {
		n := newNode(t, 1)
		r := dialRaw(t, n, rawTLS(keyOf(2))).reading()
		hello := goodHello()
		hello.MaxFrame = 1000
		r.send(oap.Req, 1, hello)
		synctest.Wait()
		s := n.Active()[0]
		if s.MaxFrame() != 1000 || s.Chunk() != 949 {
			t.Errorf("max_frame %d, chunk %d", s.MaxFrame(), s.Chunk())
		}
		var outcome error
		p := testFrame(1000)
		p.Item.Written = func(err error) { outcome = err }
		s.OfferGossip([]queuedFrame{p, testFrame(10)}, nil, nil)
		if err := s.SendControl(Outgoing{Message: &oap.Start{Stream: 2, Obj: string(bytes.Repeat([]byte{'x'}, 1000))}, Flags: oap.Req}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		testkit.WantKind(t, outcome, fault.FrameTooLarge, "a message that is too large")
		if got := r.kinds(); !slices.Equal(got, []string{"hello_ack", "gossip"}) || len(s.streams) != 0 {
			t.Errorf("it got %v; open streams %v", got, s.streams)
		}
	})
}

// Control goes before gossip and bulk, and is bounded.
func TestBands(t *testing.T) {
	inBubble(t, "order and bounds", func(t *testing.T) {
		n := newNode(t, 1)
		r := dialRaw(t, n, rawTLS(keyOf(2)))
		r.send(oap.Req, 1, goodHello())
		if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := n.Active()[0]
		s.OfferGossip([]queuedFrame{testFrame(1)}, nil, nil)
		synctest.Wait() // the writer is stuck
		s.OfferGossip([]queuedFrame{testFrame(1)}, nil, nil)
		if err := s.SendBulk(1, 1, Outgoing{Message: &oap.Data{Stream: 1, Bytes: []byte("x")}, Flags: oap.Resp, Corr: 3}); err != nil {
			t.Error(err)
		}
		if err := s.SendControl(Outgoing{Message: &oap.Want{}, Flags: oap.Event}); err != nil {
			t.Error(err)
		}
		if err := s.SendControl(Outgoing{Message: &oap.Error{Code: oap.Busy}, Flags: oap.Event}); err != nil {
			t.Error(err)
		}
		var control, chunks error
		for control == nil {
			control = s.SendControl(Outgoing{Message: &oap.Pong{}, Flags: oap.Resp, Corr: 9})
		}
		for chunks == nil {
			chunks = s.SendBulk(1, 1, Outgoing{Message: &oap.Data{Stream: 1, Bytes: []byte("x")}, Flags: oap.Resp, Corr: 3})
		}
		testkit.WantKind(t, control, fault.Busy, "too much control")
		testkit.WantKind(t, chunks, fault.Busy, "too many chunks")
		testkit.WantKind(t, s.SendControl(Outgoing{Message: &oap.Start{Stream: 8, Obj: "b3:x"}}), fault.Busy, "a stream that finds no room")
		if len(s.streams) != 0 {
			t.Error("it counts as open")
		}
		r.reading()
		synctest.Wait()
		got := r.kinds()
		if len(got) != 1+128+1+64 || got[1] != "want" || slices.Index(got[129:], "data") < 0 || slices.Contains(got[129:], "pong") {
			t.Errorf("%d came: %v", len(got), got)
		}
		for _, h := range r.all() {
			if e, ok := h.message.(*oap.Error); ok && (e.Code != oap.Busy || h.Corr != 0) {
				t.Errorf("an error about the connection has the number %d", h.Corr)
			}
		}
	})
}

func TestCompression(t *testing.T) {
	var text []byte
	for i := range 400 {
		text = fmt.Appendf(text, "%d ", i*i*i*7919)
	}
	for _, c := range []struct {
		setting string
		offered []string
		want    bool
	}{{compressOn, []string{"zstd"}, true}, {compressOff, []string{"zstd"}, false}, {compressOn, nil, false}} {
		inBubble(t, fmt.Sprint(c.setting, c.offered), func(t *testing.T) {
			n := newNode(t, 1, func(s *Spec) { s.Config.Compress = c.setting })
			r := dialRaw(t, n, rawTLS(keyOf(2)))
			hello := goodHello()
			hello.Features.Comp = c.offered
			r.send(oap.Req, 1, hello)
			if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			p := testFrame(1)
			p.Item.Message = &oap.Gossip{Msg: text}
			n.Active()[0].OfferGossip([]queuedFrame{p}, nil, nil)
			header := make([]byte, 5000)
			if _, err := r.conn.Read(header); err != nil {
				t.Fatal(err)
			}
			if comp := oap.Flags(header[6])&oap.Comp != 0; comp != c.want {
				t.Errorf("compressed: %v", comp)
			}
			if !c.want && c.offered == nil {
				r.reading()
				r.write(framed(oap.Event|oap.Comp, 5, compress(encoded(t, testGossip(1)))))
				r.wantCode(t, oap.Malformed)
			}
		})
	}
	n := newNode(t, 1)
	for addr, want := range map[string]bool{"127.0.0.1": false, "::1": false, "192.0.2.1": true} {
		if got := n.compresses(&batchConn{Conn: addrConn{addr: &net.TCPAddr{IP: net.ParseIP(addr)}}}); got != want {
			t.Errorf("auto, %s: %v", addr, got)
		}
	}
}

// addrConn is a connection with a given remote address.
type addrConn struct {
	net.Conn
	addr net.Addr
}

func (a addrConn) RemoteAddr() net.Addr { return a.addr }
func (a addrConn) Close() error         { return nil }

func (r *rawPeer) wantCode(t *testing.T, code oap.Code) {
	t.Helper()
	<-r.ended
	if e, ok := r.last().message.(*oap.Error); !ok || e.Code != code {
		t.Errorf("it was told %+v", r.last().message)
	}
}

// Every frame is completed exactly once, however the session ends.
func TestEveryFrameIsCompletedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 6), 1, 60).Draw(rt, "steps")
		how := rapid.IntRange(0, 4).Draw(rt, "end")
		wrong := "" // reported to rapid outside of the bubble
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, 1, func(s *Spec) { s.Peer.InflightFrames = 20 })
			r := handshakeInBubble(t, n, 2)
			s := n.Active()[0]
			settled, released := map[int]int{}, map[int]int{}
			accepted := map[int]bool{}
			next := 0
			out := func(m oap.Message) Outgoing { // every other one has expired
				id := next
				next++
				accepted[id] = true
				return Outgoing{Message: m, Flags: oap.Event, Corr: uint64(id + 1), Expires: int64(id % 2), Written: func(error) { settled[id]++ }, Release: func() { released[id]++ }}
			}
			for _, step := range steps {
				switch step {
				case 0, 1, 2:
					var batch []queuedFrame
					for range step*20 + 1 {
						batch = append(batch, queuedFrame{Class: uint64(step), Cost: 10, Item: out(testGossip(10))})
					}
					for _, back := range s.OfferGossip(batch, nil, nil) {
						delete(accepted, int(back.Corr)-1)
					}
				case 3:
					id := next
					if s.SendControl(out(&oap.Have{})) != nil {
						delete(accepted, id)
					}
				case 4:
					id := next
					if s.SendBulk(9, 10, out(&oap.Data{Stream: 1, Bytes: []byte("x")})) != nil {
						delete(accepted, id)
					}
				case 5:
					synctest.Wait()
				case 6:
					time.Sleep(time.Millisecond)
				}
			}
			switch how {
			case 0:
				s.CloseWithError(nil)
			case 1:
				s.CloseWithError(fault.Busy)
			case 2:
				_ = r.sock.Close()
			case 3:
				_ = r.conn.CloseWrite()
			case 4:
				n.tasks.Writers.Close()
			}
			<-s.Done()
			synctest.Wait()
			for id := range accepted {
				if settled[id] != 1 || released[id] != 1 {
					wrong = fmt.Sprintf("frame %d was settled %d times, and released %d times", id, settled[id], released[id])
				}
			}
			if len(settled) != len(accepted) || len(released) != len(accepted) {
				wrong = fmt.Sprintf("%d were settled, %d released, %d accepted", len(settled), len(released), len(accepted))
			}
			for _, stat := range n.inv.Read() {
				if stat.Each == "session" && (stat.Instances != 0 || stat.Inside != 0) {
					wrong = fmt.Sprintf("%s: %+v", stat.Name, stat)
				}
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

func TestTwoWritersPanic(t *testing.T) {
	inBubble(t, "two", func(t *testing.T) {
		n := newNode(t, 1)
		handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		s.writing.Store(true)
		defer func() {
			if recover() == nil {
				t.Error("nobody minded")
			}
			s.writing.Store(false)
		}()
		_ = s.flush([]byte("x"))
	})
}
