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
)

// Section 11: bye, and what follows.

func byes(r *raw) (reasons []string) {
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
		r := shake(t, n, 2)
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- n.Drain(n.ctx) }()
		<-r.ended
		if got := byes(r); !slices.Equal(got, []string{"draining"}) || len(r.all()) != 2 || r.last().Flags != oap.Event {
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
		r := shake(t, n, 2)
		s := n.Active()[0]
		var batch []parcelOf
		for range 30 {
			batch = append(batch, parcel(10_000))
		}
		if turned := s.Post(batch, nil, nil); len(turned) > 0 {
			t.Fatal("turned away")
		}
		go func() { _ = n.Drain(n.ctx) }()
		<-r.ended
		if got := r.kinds(); len(got) != 32 || got[31] != "bye" {
			t.Errorf("it got %v", got)
		}
	})
	inBubble(t, "waits for open streams", func(t *testing.T) {
		n := newNode(t, 1)
		r := shake(t, n, 2)
		s := n.Active()[0]
		r.say(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		if err := s.Tell(Out{Message: &oap.Start{Stream: 2, Obj: "b3:y"}, Flags: oap.Req}); err != nil {
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
		// What starts something is refused, what goes on goes on.
		kindOf(t, "a want", s.Tell(Out{Message: &oap.Want{}}), fault.NotReady)
		if turned := s.Post([]parcelOf{parcel(10)}, nil, nil); len(turned) != 1 {
			t.Error("gossip is taken")
		}
		if err := s.Give(1, 10, Out{Message: &oap.Data{Stream: 1, Bytes: []byte("x")}, Flags: oap.Resp, Corr: 5}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		r.say(oap.Req, 6, &oap.Ping{TS: 3})
		r.say(oap.Req, 7, &oap.Start{Stream: 3, Obj: "b3:z"}) // it crossed the bye
		r.say(oap.Event, 8, gossip(5))
		r.say(oap.Event, 9, &oap.Have{})
		r.say(oap.Resp, 2, &oap.Data{Stream: 2, Bytes: []byte("y")})
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := r.kinds(); !slices.Equal(got, []string{"hello_ack", "start", "bye", "data", "pong", "end"}) {
			t.Errorf("it got %v", got)
		}
		if last := r.last(); last.message.(*oap.End).Status != "Canceled" || last.Corr != 7 || last.Flags != oap.Resp {
			t.Errorf("the stream that crossed ended with %+v", last)
		}
		if !slices.Equal(n.messages, []string{"start", "data"}) || len(n.letters) != 0 {
			t.Errorf("the handler saw %v and %d letters", n.messages, len(n.letters))
		}
		// One of the two streams ends here, the other there; then it is over.
		if err := s.Give(1, 10, Out{Message: &oap.End{Stream: 1, Seq: 1, Status: "ok"}, Flags: oap.Resp, Corr: 5}); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		select {
		case <-ended:
			t.Error("a stream was cut")
		default:
		}
		r.say(oap.Resp, 2, &oap.End{Stream: 2, Seq: 1, Status: "ok"})
		<-r.ended
		_ = r.conn.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	inBubble(t, "cuts stragglers", func(t *testing.T) {
		n := newNode(t, 1)
		r := shake(t, n, 2)
		r.say(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
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
		r := shake(t, n, 2)
		r.say(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		synctest.Wait()
		began := time.Now()
		_ = n.Drain(n.ctx)
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("drained after %s", took)
		}
	})
	inBubble(t, "cuts at once when told to", func(t *testing.T) {
		n := newNode(t, 1)
		r := shake(t, n, 2)
		r.say(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		synctest.Wait()
		now, cancel := context.WithCancel(n.ctx)
		cancel()
		began := time.Now()
		err := n.Drain(now)
		kindOf(t, "a drain without time", err, fault.Timeout)
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
		r := shake(t, n, 2)
		r.say(oap.Event, 5, gossip(10))
		r.say(oap.Event, 6, &oap.Bye{Reason: "draining"})
		<-r.ended
		if got := r.kinds(); !slices.Equal(got, []string{"hello_ack"}) {
			t.Errorf("it got %v", got)
		}
		_ = r.conn.Close()
		synctest.Wait()
		if len(n.letters) != 1 || len(n.closed) != 1 || n.closed[0] != nil || !slices.Equal(n.reasons, []CloseReason{ClosedBye}) {
			t.Errorf("%d letters, closed %v by %v", len(n.letters), n.closed, n.reasons)
		}
	})
	inBubble(t, "and a stream goes on", func(t *testing.T) {
		n := newNode(t, 1)
		r := shake(t, n, 2)
		s := n.Active()[0]
		r.say(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		r.say(oap.Event, 6, &oap.Bye{Reason: "draining"})
		r.say(oap.Event, 7, &oap.Bye{Reason: "a second one is ignored"})
		synctest.Wait()
		if len(n.Active()) != 0 || len(n.closed) != 0 {
			t.Errorf("%d active, closed %v", len(n.Active()), n.closed)
		}
		if turned := s.Post([]parcelOf{parcel(10)}, nil, nil); len(turned) != 1 {
			t.Error("gossip is taken")
		}
		for seq := range uint64(3) {
			if err := s.Give(1, 10, Out{Message: &oap.Data{Stream: 1, Seq: seq, Bytes: []byte("x")}, Flags: oap.Resp, Corr: 5}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		if err := s.Give(1, 10, Out{Message: &oap.End{Stream: 1, Seq: 3, Status: "ok"}, Flags: oap.Resp, Corr: 5}); err != nil {
			t.Error(err)
		}
		<-r.ended
		if got := r.kinds(); !slices.Equal(got, []string{"hello_ack", "data", "data", "data", "end"}) {
			t.Errorf("it got %v", got)
		}
	})
	inBubble(t, "and never closes", func(t *testing.T) {
		n := newNode(t, 1)
		r := shake(t, n, 2)
		r.say(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		r.say(oap.Event, 6, &oap.Bye{Reason: "draining"})
		began := time.Now()
		<-r.ended
		if took := time.Since(began); took != drainMost {
			t.Errorf("given up after %s", took)
		}
	})
	inBubble(t, "while gossip is queued", func(t *testing.T) {
		n := newNode(t, 1)
		bad := callRaw(t, n, rawTLS(keyOf(2)))
		bad.say(oap.Req, 1, goodHello())
		if _, err := bad.conn.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := n.Active()[0]
		var outcomes []error
		post := func(size int) {
			p := parcel(size)
			p.Item.Written = func(err error) { outcomes = append(outcomes, err) }
			s.Post([]parcelOf{p}, nil, nil)
			synctest.Wait()
		}
		bad.say(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		post(100) // the writer is stuck in this one
		post(100) // and this one waits
		bad.say(oap.Event, 6, &oap.Bye{Reason: "draining"})
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
		{fault.New("x", fault.Malformed, "letters that do not verify"), oap.Malformed, ClosedMalformed},
		{fault.New("x", fault.QuotaExceeded, "too much"), oap.QuotaExceeded, ClosedQuota},
		{fault.New("x", fault.Busy, "too much"), oap.Busy, ClosedBusy},
		{fault.New("x", fault.Unauthorized, "out"), oap.Unauth, ClosedError},
	} {
		inBubble(t, string(c.code), func(t *testing.T) {
			n := newNode(t, 1)
			r := shake(t, n, 2)
			s := n.Active()[0]
			s.End(c.err)
			s.End(nil) // the first one counts
			r.refused("End", c.code, oap.Event, 0)
			_ = r.conn.Close()
			<-s.Done()
			if !slices.Equal(n.reasons, []CloseReason{c.reason}) || n.closed[0] != c.err {
				t.Errorf("closed by %v with %v", n.reasons, n.closed)
			}
		})
	}
}

// A peer that handed over a forged letter is told which one, and people read why.
func TestForgerIsTold(t *testing.T) {
	inBubble(t, "error, then bye", func(t *testing.T) {
		n := newNode(t, 1)
		r := shake(t, n, 2)
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
		a, b := newNode(t, 1, patient).serve(), newNode(t, 2, patient).serve()
		first, _ := meet(t, a, b)
		first.Expel(1, &fault.Error{Op: "gossip.take", Kind: fault.InvalidSig, Detail: "a forged letter", Err: oap.BadSig})
		<-first.Done()
		until(t, "another session", func() bool { s := a.Find(b.ID()); return s != nil && s != first })
		until(t, "the forger counts it as a refusal", b.closedWith(ClosedRefused))
		if !a.closedWith(ClosedForged)() {
			t.Errorf("closed by %v", a.reasons)
		}
		if hopeless(first.ended().err) {
			t.Error("the pause is not the usual one")
		}
	})
}

// A peer that was told and does not close is left after a second.
func TestEndDoesNotWaitForThePeer(t *testing.T) {
	inBubble(t, "1s", func(t *testing.T) {
		n := newNode(t, 1)
		shake(t, n, 2)
		s := n.Active()[0]
		began := time.Now()
		s.End(fault.Busy)
		if len(n.Active()) != 0 {
			t.Error("it is still offered to others")
		}
		<-s.Done()
		if took := time.Since(began); took != lastWords {
			t.Errorf("it took %s", took)
		}
	})
	inBubble(t, "a drain came first", func(t *testing.T) {
		n := newNode(t, 1)
		if err := n.Drain(n.ctx); err != nil {
			t.Fatal(err)
		}
		if n.join(&Session{}) || len(n.live) != 0 {
			t.Error("a session joins after the drain")
		}
	})
}

// A reader that dies closes its writer: nothing is left, and the peer is told.
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
			n.onArrived = func(*Session, []Arrival) { boom("arrived") }
			n.onOpened = func(*Session) { boom("opened") }
			r := callRaw(t, n, rawTLS(keyOf(2))).reading()
			r.say(oap.Req, 1, goodHello())
			synctest.Wait()
			if where == "written" {
				p := parcel(10)
				p.Item.Written = func(error) { boom("written") }
				n.Active()[0].Post([]parcelOf{p}, nil, nil)
			} else {
				_, _ = r.conn.Write(append(frameOf(t, oap.Event, 2, gossip(10)), frameOf(t, oap.Event, 3, &oap.Have{})...))
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

// A handshake that panics costs nobody else anything: whoever called gets in the
// next time, because the place is free again, and the keeper goes on calling.
func TestHandshakeThatPanics(t *testing.T) {
	inBubble(t, "listener", func(t *testing.T) {
		fine := false
		n := newNode(t, 1, func(s *Spec) {
			s.Config.MaxConns = 1
			s.Admit = func(oap.PeerID, string) error {
				if !fine {
					panic("boom")
				}
				return nil
			}
		})
		r := callRaw(t, n, rawTLS(keyOf(2))).reading()
		r.say(oap.Req, 1, goodHello())
		<-r.ended
		_ = r.conn.Close()
		synctest.Wait()
		if len(n.panics) != 1 || !slices.Equal(n.failures, []FailReason{FailedError}) || len(n.shaking) != 0 {
			t.Errorf("panics %v, failures %v, %d handshakes", n.panics, n.failures, len(n.shaking))
		}
		fine = true
		shake(t, n, 3)
	})
	t.Run("dialer", func(t *testing.T) {
		var calls atomic.Int64
		a, b := newNode(t, 1, patient, func(s *Spec) {
			s.Token = func(oap.PeerID) string {
				if calls.Add(1) < 3 {
					panic("boom")
				}
				return ""
			}
		}).serve(), newNode(t, 2, patient).serve()
		meet(t, a, b)
		if !a.saw(func() bool {
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
			r := shake(t, n, 2)
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
			// No room for the tasks of another one: it is told.
			other := callRaw(t, n, rawTLS(keyOf(3))).reading()
			other.say(oap.Req, 1, goodHello())
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
		wrong := "" // rapid must hear of it outside of the bubble
		synctest.Test(t, func(t *testing.T) {
			a, b := newNode(t, keys[0]), newNode(t, keys[1])
			var turn atomic.Int64
			lag := func() time.Duration {
				return time.Duration(delays[turn.Add(1)%int64(len(delays))]) * time.Millisecond
			}
			join := func(from, to *node) {
				from.reroute(func(Ctx, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					to.welcome(&laggard{theirs, lag(), lag()})
					return &laggard{ours, lag(), lag()}, nil
				})
				from.SetContacts([]Contact{{ID: to.ID(), Addrs: []string{"x:1"}}})
				from.keep()
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

// laggard takes its time.
type laggard struct {
	net.Conn
	read, write time.Duration
}

func (l *laggard) Read(b []byte) (int, error) {
	time.Sleep(l.read)
	return l.Conn.Read(b)
}

func (l *laggard) Write(b []byte) (int, error) {
	time.Sleep(l.write)
	return l.Conn.Write(b)
}

// The same, over real sockets.
func TestSimultaneousDialsOverLoopback(t *testing.T) {
	for i := range 20 {
		a, b := newNode(t, 7, patient).serve(), newNode(t, 8, patient).serve()
		go a.SetContacts([]Contact{b.contact()})
		b.SetContacts([]Contact{a.contact()})
		until(t, "one connection, the same on both sides", func() bool {
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
		first := shake(t, n, 2)
		old := n.Active()[0]
		second := shake(t, n, 2)
		<-first.ended
		if got := byes(first); !slices.Equal(got, []string{"duplicate"}) {
			t.Errorf("the older got %v", first.kinds())
		}
		_ = first.conn.Close()
		<-old.Done()
		if len(n.Active()) != 1 || n.Active()[0] == old || len(byes(second)) != 0 {
			t.Errorf("%d sessions", len(n.Active()))
		}
		if !slices.Equal(n.reasons, []CloseReason{ClosedDuplicate}) {
			t.Errorf("closed by %v", n.reasons)
		}
	})
	inBubble(t, "letters on the older are taken", func(t *testing.T) {
		n := newNode(t, 1)
		first := shake(t, n, 2)
		first.say(oap.Req, 5, &oap.Start{Stream: 1, Obj: "b3:x"})
		synctest.Wait()
		shake(t, n, 2)
		first.say(oap.Event, 6, gossip(10))
		synctest.Wait()
		if len(n.letters) != 1 || len(n.live) != 2 {
			t.Errorf("%d letters, %d live", len(n.letters), len(n.live))
		}
		began := time.Now()
		<-first.ended
		if took := time.Since(began); took != drainUsual {
			t.Errorf("its stream was cut after %s", took)
		}
	})
}

// What is sent.

func TestPost(t *testing.T) {
	inBubble(t, "permits, then room", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Peer.InflightFrames = 10 })
		r := callRaw(t, n, rawTLS(keyOf(2)))
		r.say(oap.Req, 1, goodHello())
		if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := n.Active()[0]
		var batch []parcelOf
		for i := range 15 {
			batch = append(batch, parcel(100+i))
		}
		turned := s.Post(batch, []Out{{Corr: 99}}, nil)
		if len(turned) != 6 || turned[0].Corr != 99 || len(turned[1].Message.(*oap.Gossip).Msg) != 110 {
			t.Errorf("%d were turned away", len(turned))
		}
		if len(n.pressed) != 1 {
			t.Errorf("pressure: %v", n.pressed)
		}
		r.reading()
		synctest.Wait()
		if len(r.all()) != 10 || s.permits.TryAcquire(11) != 10 || n.sent != 10 {
			t.Errorf("%d came; %d counted", len(r.all()), n.sent)
		}
		corrs := map[uint64]bool{}
		for _, h := range r.all() {
			corrs[h.Corr] = true
		}
		if len(corrs) != 10 || corrs[0] {
			t.Errorf("the numbers are %v", corrs)
		}
	})
	inBubble(t, "with patience", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Peer.InflightFrames = 2 })
		r := callRaw(t, n, rawTLS(keyOf(2)))
		r.say(oap.Req, 1, goodHello())
		if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s, began, patience := n.Active()[0], time.Now(), 5*time.Millisecond
		turned := s.Post([]parcelOf{parcel(10), parcel(11), parcel(12), parcel(13)}, nil, &patience)
		if took := time.Since(began); len(turned) != 2 || took != 5*time.Millisecond || patience != 0 || len(n.pressed) != 1 {
			t.Errorf("%d were turned away after %s, %s is left; pressure %v", len(turned), took, patience, n.pressed)
		}
		if turned = s.Post([]parcelOf{parcel(14)}, nil, &patience); len(turned) != 1 || time.Since(began) != 5*time.Millisecond {
			t.Errorf("with no patience left it waited until %s", time.Since(began))
		}
		time.AfterFunc(3*time.Millisecond, func() { r.reading() })
		patience = 5 * time.Millisecond
		turned = s.Post([]parcelOf{parcel(15), parcel(16), parcel(17), parcel(18), parcel(19)}, nil, &patience)
		if len(turned) != 0 || patience != 2*time.Millisecond {
			t.Errorf("%d were turned away by a peer that reads; %s is left", len(turned), patience)
		}
		synctest.Wait()
		if len(r.all()) != 7 || s.permits.TryAcquire(3) != 2 {
			t.Errorf("%d came", len(r.all()))
		}
	})
	inBubble(t, "with patience, and it ends", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Peer.InflightFrames = 1 })
		r := callRaw(t, n, rawTLS(keyOf(2)))
		r.say(oap.Req, 1, goodHello())
		if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s, patience := n.Active()[0], time.Hour
		time.AfterFunc(time.Second, func() { s.End(nil) })
		turned := s.Post([]parcelOf{parcel(10), parcel(11)}, nil, &patience)
		if len(turned) != 1 || patience < time.Hour-time.Minute {
			t.Errorf("%d were turned away, %s is left", len(turned), patience)
		}
	})
	for _, drop := range []flow.Policy{flow.RejectNew, flow.DropOldest} {
		inBubble(t, "a full queue, "+drop.String(), func(t *testing.T) {
			n := newNode(t, 1, func(s *Spec) { s.Peer.InflightFrames, s.Drop = 10_000, drop })
			r := callRaw(t, n, rawTLS(keyOf(2)))
			r.say(oap.Req, 1, goodHello())
			if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s := n.Active()[0]
			s.Post([]parcelOf{parcel(1)}, nil, nil)
			synctest.Wait() // the writer is stuck
			var turned []Out
			for i := range 600 {
				p := parcel(10)
				p.Item.Corr = uint64(1000 + i)
				turned = s.Post([]parcelOf{p}, turned, nil)
			}
			first := map[flow.Policy]uint64{flow.RejectNew: 1512, flow.DropOldest: 1000}[drop]
			if len(turned) != 88 || turned[0].Corr != first {
				t.Errorf("%d turned away, the first is %d", len(turned), turned[0].Corr)
			}
			if inside := 10_000 - s.permits.TryAcquire(10_000); inside != 513 {
				t.Errorf("%d permits are out", inside)
			}
		})
	}
}

func TestExpiredFramesAreNotSent(t *testing.T) {
	inBubble(t, "expired", func(t *testing.T) {
		n := newNode(t, 1)
		r := shake(t, n, 2)
		s := n.Active()[0]
		var outcomes []error
		for _, expires := range []int64{time.Now().UnixMilli() - 1, time.Now().UnixMilli(), 0} {
			p := parcel(10)
			p.Item.Expires = expires
			p.Item.Written = func(err error) { outcomes = append(outcomes, err) }
			s.Post([]parcelOf{p}, nil, nil)
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
		r := callRaw(t, n, rawTLS(keyOf(2))).reading()
		hello := goodHello()
		hello.MaxFrame = 1000
		r.say(oap.Req, 1, hello)
		synctest.Wait()
		s := n.Active()[0]
		if s.MaxFrame() != 1000 || s.Chunk() != 949 {
			t.Errorf("max_frame %d, chunk %d", s.MaxFrame(), s.Chunk())
		}
		var outcome error
		p := parcel(1000)
		p.Item.Written = func(err error) { outcome = err }
		s.Post([]parcelOf{p, parcel(10)}, nil, nil)
		if err := s.Tell(Out{Message: &oap.Start{Stream: 2, Obj: string(bytes.Repeat([]byte{'x'}, 1000))}, Flags: oap.Req}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		kindOf(t, "a letter that is too large", outcome, fault.FrameTooLarge)
		if got := r.kinds(); !slices.Equal(got, []string{"hello_ack", "gossip"}) || len(s.streams) != 0 {
			t.Errorf("it got %v; open streams %v", got, s.streams)
		}
	})
}

// Control goes before gossip and chunks, and is bounded.
func TestBands(t *testing.T) {
	inBubble(t, "order and bounds", func(t *testing.T) {
		n := newNode(t, 1)
		r := callRaw(t, n, rawTLS(keyOf(2)))
		r.say(oap.Req, 1, goodHello())
		if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := n.Active()[0]
		s.Post([]parcelOf{parcel(1)}, nil, nil)
		synctest.Wait() // the writer is stuck
		s.Post([]parcelOf{parcel(1)}, nil, nil)
		if err := s.Give(1, 1, Out{Message: &oap.Data{Stream: 1, Bytes: []byte("x")}, Flags: oap.Resp, Corr: 3}); err != nil {
			t.Error(err)
		}
		if err := s.Tell(Out{Message: &oap.Want{}, Flags: oap.Event}); err != nil {
			t.Error(err)
		}
		if err := s.Tell(Out{Message: &oap.Error{Code: oap.Busy}, Flags: oap.Event}); err != nil {
			t.Error(err)
		}
		var control, chunks error
		for control == nil {
			control = s.Tell(Out{Message: &oap.Pong{}, Flags: oap.Resp, Corr: 9})
		}
		for chunks == nil {
			chunks = s.Give(1, 1, Out{Message: &oap.Data{Stream: 1, Bytes: []byte("x")}, Flags: oap.Resp, Corr: 3})
		}
		kindOf(t, "too much control", control, fault.Busy)
		kindOf(t, "too many chunks", chunks, fault.Busy)
		kindOf(t, "a stream that finds no room", s.Tell(Out{Message: &oap.Start{Stream: 8, Obj: "b3:x"}}), fault.Busy)
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
	}{{on, []string{"zstd"}, true}, {off, []string{"zstd"}, false}, {on, nil, false}} {
		inBubble(t, fmt.Sprint(c.setting, c.offered), func(t *testing.T) {
			n := newNode(t, 1, func(s *Spec) { s.Config.Compress = c.setting })
			r := callRaw(t, n, rawTLS(keyOf(2)))
			hello := goodHello()
			hello.Features.Comp = c.offered
			r.say(oap.Req, 1, hello)
			if _, err := r.conn.Read(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			p := parcel(1)
			p.Item.Message = &oap.Gossip{Msg: text}
			n.Active()[0].Post([]parcelOf{p}, nil, nil)
			header := make([]byte, 5000)
			if _, err := r.conn.Read(header); err != nil {
				t.Fatal(err)
			}
			if comp := oap.Flags(header[6])&oap.Comp != 0; comp != c.want {
				t.Errorf("compressed: %v", comp)
			}
			if !c.want && c.offered == nil {
				r.reading()
				r.write(framed(oap.Event|oap.Comp, 5, squeeze(encoded(t, gossip(1)))))
				r.refusedLoosely(t, oap.Malformed)
			}
		})
	}
	n := newNode(t, 1)
	for addr, want := range map[string]bool{"127.0.0.1": false, "::1": false, "192.0.2.1": true} {
		if got := n.compresses(&wire{Conn: at{addr: &net.TCPAddr{IP: net.ParseIP(addr)}}}); got != want {
			t.Errorf("auto, %s: %v", addr, got)
		}
	}
}

// at is a connection to somewhere.
type at struct {
	net.Conn
	addr net.Addr
}

func (a at) RemoteAddr() net.Addr { return a.addr }
func (a at) Close() error         { return nil }

func (r *raw) refusedLoosely(t *testing.T, code oap.Code) {
	t.Helper()
	<-r.ended
	if e, ok := r.last().message.(*oap.Error); !ok || e.Code != code {
		t.Errorf("it was told %+v", r.last().message)
	}
}

// Every frame is settled exactly once, however the session ends.
func TestEveryFrameIsSettledOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 6), 1, 60).Draw(rt, "steps")
		how := rapid.IntRange(0, 4).Draw(rt, "end")
		wrong := "" // rapid must hear of it outside of the bubble
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, 1, func(s *Spec) { s.Peer.InflightFrames = 20 })
			r := shake(t, n, 2)
			s := n.Active()[0]
			settled, released := map[int]int{}, map[int]int{}
			accepted := map[int]bool{}
			next := 0
			out := func(m oap.Message) Out { // every other one is too old to be sent
				id := next
				next++
				accepted[id] = true
				return Out{Message: m, Flags: oap.Event, Corr: uint64(id + 1), Expires: int64(id % 2), Written: func(error) { settled[id]++ }, Release: func() { released[id]++ }}
			}
			for _, step := range steps {
				switch step {
				case 0, 1, 2:
					var batch []parcelOf
					for range step*20 + 1 {
						batch = append(batch, parcelOf{Class: uint64(step), Cost: 10, Item: out(gossip(10))})
					}
					for _, back := range s.Post(batch, nil, nil) {
						delete(accepted, int(back.Corr)-1)
					}
				case 3:
					id := next
					if s.Tell(out(&oap.Have{})) != nil {
						delete(accepted, id)
					}
				case 4:
					id := next
					if s.Give(9, 10, out(&oap.Data{Stream: 1, Bytes: []byte("x")})) != nil {
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
				s.End(nil)
			case 1:
				s.End(fault.Busy)
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
		shake(t, n, 2)
		s := n.Active()[0]
		s.inUse.Store(true)
		defer func() {
			if recover() == nil {
				t.Error("nobody minded")
			}
			s.inUse.Store(false)
		}()
		_ = s.flush([]byte("x"))
	})
}
