package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	kzstd "github.com/klauspost/compress/zstd"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// inBubble runs a test in which time is faked and peers are reached in memory.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		emptyPools()
		defer emptyPools()
		synctest.Test(t, test)
	})
}

// emptyPools keeps what a bubble leaves in pools from the next one. A decoder of
// zstd has a channel inside, and a channel belongs to the bubble it was made in.
func emptyPools() {
	runtime.GC()
	runtime.GC() // for the victim caches, which the first one has filled
}

// handshakeInBubble dials a node and finishes the handshake, in a bubble.
func handshakeInBubble(t *testing.T, n *node, key byte) *rawPeer {
	t.Helper()
	r := dialRaw(t, n, rawTLS(keyOf(key))).reading()
	r.send(oap.Req, 1, goodHello())
	synctest.Wait()
	if _, ok := r.last().message.(*oap.HelloAck); !ok {
		t.Fatalf("the answer to a hello is %+v", r.last().message)
	}
	return r
}

// compress compresses at any ratio.
func compress(plain []byte) []byte {
	w, err := kzstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer w.Close()
	return w.EncodeAll(plain, nil)
}

func patched(b []byte, at int, value byte) []byte {
	b[at] = value
	return b
}

// Sections 2, 3, 4 and 10: every kind of bad frame, and what follows.
func TestBadFrames(t *testing.T) {
	ping := encoded(t, &oap.Ping{TS: 1})
	long := make([]byte, 4)
	binary.BigEndian.PutUint32(long, 27+oap.MaxPayload+1)
	for _, c := range []struct {
		name   string
		frame  []byte
		code   oap.Code
		flags  oap.Flags
		corr   uint64
		reason oap.Reason
	}{
		{"the length alone is too large", long, oap.FrameTooLarge, oap.Event, 0, oap.TooLarge},
		{"the length is too short", []byte{0, 0, 0, 26}, oap.Malformed, oap.Event, 0, oap.TooShort},
		{"version 2", []byte{0, 0, 0, 40, 2}, oap.BadVersion, oap.Event, 0, oap.WrongVersion},
		{"a tenant", patched(framed(oap.Req, 5, ping), 22, 1), oap.Malformed, oap.Event, 0, oap.WrongTenant},
		{"an empty payload in a request", framed(oap.Req, 5, nil), oap.Malformed, oap.Resp, 5, oap.BadMessage},
		{"an empty payload in an event", framed(oap.Event, 5, nil), oap.Malformed, oap.Event, 5, oap.BadMessage},
		{"no CBOR", framed(oap.Event, 6, []byte("hi")), oap.Malformed, oap.Event, 6, oap.BadMessage},
		{"bytes behind the message", framed(oap.Req, 7, append(slices.Clone(ping), 0)), oap.Malformed, oap.Resp, 7, oap.BadMessage},
		{"damaged zstd", framed(oap.Event|oap.Comp, 8, []byte("not zstd at all")), oap.Malformed, oap.Event, 8, oap.Damaged},
		{"a bomb", framed(oap.Req|oap.Comp, 9, compress(make([]byte, 100_000))), oap.RatioCap, oap.Resp, 9, oap.Bomb},
		{"a second hello", framed(oap.Req, 10, encoded(t, goodHello())), oap.Malformed, oap.Resp, 10, 0},
		{"a hello_ack", framed(oap.Resp, 11, encoded(t, &oap.HelloAck{Chosen: oap.Chosen{Ver: 1}, Limits: oap.Limits{MaxFrame: 1, Chunk: 1}})), oap.Malformed, oap.Event, 11, 0},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			n := newNode(t, 1)
			r := handshakeInBubble(t, n, 2)
			r.write(c.frame)
			synctest.Wait()
			r.wantRefused(c.name, c.code, c.flags, c.corr)
			_ = r.conn.Close()
			synctest.Wait()
			if c.reason != 0 && !slices.Equal(n.rejected, []oap.Reason{c.reason}) {
				t.Errorf("counted %v", n.rejected)
			}
			if !slices.Equal(n.reasons, []CloseReason{ClosedMalformed}) || len(n.closed) != 1 || n.closed[0] == nil {
				t.Errorf("closed by %v with %v", n.reasons, n.closed)
			}
			if len(n.messages)+len(n.gossip) != 0 {
				t.Errorf("the handler saw %v", n.messages)
			}
		})
	}
}

func encoded(t testing.TB, m oap.Message) []byte {
	t.Helper()
	b, err := oap.Encode(nil, m)
	testkit.Must(t, err)
	return b
}

// What we announce is what we enforce.
func TestOurMaxFrame(t *testing.T) {
	inBubble(t, "64 KiB", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Config.MaxFrameBytes = 64 << 10 })
		r := handshakeInBubble(t, n, 2)
		ack := r.all()[0].message.(*oap.HelloAck)
		if ack.Limits.MaxFrame != 64<<10 || ack.Limits.Chunk != 64<<10-dataOverhead {
			t.Errorf("the limits are %+v", ack.Limits)
		}
		r.write(framed(oap.Event, 2, make([]byte, 64<<10+1))[:4])
		synctest.Wait()
		r.wantRefused("one byte more", oap.FrameTooLarge, oap.Event, 0)
	})
}

// Sections 2 and 12: what must be accepted.
func TestGoodFrames(t *testing.T) {
	payload := encoded(t, testGossip(10))
	for _, c := range []struct {
		name  string
		frame []byte
		count int
	}{
		{"flags that have no meaning", framed(oap.Event|0xfff0, 2, payload), 1},
		{"gossip as a request", framed(oap.Req, 2, payload), 1},
		{"gossip without flags", framed(0, 2, payload), 1},
		{"compressed gossip", framed(oap.Event|oap.Comp, 2, compress(payload)), 1},
		{"gossip in another encoding", framed(oap.Event, 2, reordered), 1},
		{"an unknown event", framed(oap.Event, 2, later), 0},
		{"an unknown response", framed(oap.Resp, 2, later), 0},
		{"a pong that nobody asked for", framed(oap.Resp, 2, encoded(t, &oap.Pong{TS: 4})), 0},
		{"an error about a request that nobody made", framed(oap.Resp, 99, encoded(t, &oap.Error{Code: oap.Malformed})), 0},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			n := newNode(t, 1)
			r := handshakeInBubble(t, n, 2)
			r.write(c.frame)
			synctest.Wait()
			if len(n.gossip) != c.count || n.taken != c.count || len(n.closed) != 0 || len(r.all()) != 1 {
				t.Errorf("%d messages came, closed %v, answers %v", len(n.gossip), n.closed, r.kinds())
			}
			if c.count == 1 && !bytes.Equal(n.gossip[0].Msg, testGossip(10).Msg) {
				t.Errorf("the message is %q", n.gossip[0].Msg)
			}
		})
	}
}

var (
	later     = []byte("\xa2\x61x\x01\x64kind\x65later")
	reordered = []byte("\xa4\x64kind\x66gossip\x63msg\x4axxxxxxxxxx\x64hops\x08\x66fanout\x03")
)

func TestUnknownRequestIsRefusedAndTheSessionStays(t *testing.T) {
	inBubble(t, "later", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		r.write(framed(oap.Req, 5, later))
		synctest.Wait()
		last := r.last()
		if e, ok := last.message.(*oap.Error); !ok || e.Code != oap.Malformed || e.Msg != "unknown kind later" || last.Flags != oap.Resp || last.Corr != 5 {
			t.Errorf("the answer is %+v, flags %d, corr %d", last.message, last.Flags, last.Corr)
		}
		if len(n.Active()) != 1 {
			t.Error("the session is gone")
		}
	})
}

// All gossip of one read is delivered in one call, in order, before what came after.
func TestGossipComesTogether(t *testing.T) {
	inBubble(t, "ten and a have", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		var all []byte
		for i := range 10 {
			all = append(all, frameOf(t, oap.Event, uint64(i+2), testGossip(100+i))...)
		}
		all = append(all, frameOf(t, oap.Event, 20, &oap.Have{IDs: []b3.Address{{1}}})...)
		all = append(all, frameOf(t, oap.Event, 21, testGossip(5))...)
		n.onMessage = func(*Session, Incoming) error {
			if len(n.gossip) != 10 {
				t.Errorf("have came behind %d messages", len(n.gossip))
			}
			return nil
		}
		r.write(all)
		synctest.Wait()
		if len(n.gossip) != 11 || n.batches != 2 {
			t.Errorf("%d messages came in %d calls", len(n.gossip), n.batches)
		}
		for i, g := range n.gossip[:10] {
			if len(g.Msg) != 100+i {
				t.Errorf("message %d has %d bytes", i, len(g.Msg))
			}
		}
	})
}

// Gossip belongs to the receiver: what arrives next does not overwrite it.
func TestGossipIsOwned(t *testing.T) {
	inBubble(t, "two", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		for _, c := range "abc" {
			r.send(oap.Event, 2, &oap.Gossip{Msg: bytes.Repeat([]byte{byte(c)}, 500)})
			synctest.Wait()
		}
		for i, g := range n.gossip {
			if !bytes.Equal(g.Msg, bytes.Repeat([]byte{"abc"[i]}, 500)) {
				t.Errorf("message %d was overwritten", i)
			}
		}
	})
}

// Section 6: what is passed to the Handler, and what follows if the Handler refuses
// it.
func TestMessagesArePassedOn(t *testing.T) {
	messages := []oap.Message{
		&oap.Have{}, &oap.Want{}, &oap.Start{Stream: 1, Obj: "b3:x"}, &oap.Data{Stream: 2, Bytes: []byte("x")},
		&oap.Ack{Stream: 1, UpTo: 3}, &oap.End{Stream: 1, Status: "ok"}, &oap.Error{Code: oap.Busy, Msg: "full"},
	}
	inBubble(t, "all", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		for i, m := range messages {
			r.send(oap.Event, uint64(i+2), m)
		}
		synctest.Wait()
		if want := []string{"have", "want", "start", "data", "ack", "end", "error"}; !slices.Equal(n.messages, want) {
			t.Errorf("the handler saw %v", n.messages)
		}
		if len(n.refusals) != 1 || n.refusals[0] != (oap.Error{Code: oap.Busy, Msg: "full"}) {
			t.Errorf("refusals: %v", n.refusals)
		}
		if len(n.Active()) != 1 {
			t.Error("the session ended")
		}
	})
	for _, flags := range []oap.Flags{oap.Req, oap.Event} {
		inBubble(t, "refused", func(t *testing.T) {
			n := newNode(t, 1)
			n.onMessage = func(*Session, Incoming) error {
				return fault.New("stream.start", fault.QuotaExceeded, "too much")
			}
			r := handshakeInBubble(t, n, 2)
			r.send(flags, 8, &oap.Start{Stream: 1, Obj: "b3:x"})
			synctest.Wait()
			want := oap.Event
			if flags == oap.Req {
				want = oap.Resp
			}
			r.wantRefused("a refusal of the handler", oap.QuotaExceeded, want, 8)
			_ = r.conn.Close()
			synctest.Wait()
			if !slices.Equal(n.reasons, []CloseReason{ClosedQuota}) {
				t.Errorf("closed by %v", n.reasons)
			}
		})
	}
}

// Section 10: errors that end the connection, and those that do not.
func TestErrorsOfThePeer(t *testing.T) {
	for _, code := range []oap.Code{oap.Busy, oap.QuotaExceeded, oap.NotReady} {
		inBubble(t, string(code), func(t *testing.T) {
			n := newNode(t, 1)
			r := handshakeInBubble(t, n, 2)
			r.send(oap.Event, 0, &oap.Error{Code: code})
			synctest.Wait()
			if len(n.refusals) != 1 || len(n.Active()) != 1 {
				t.Errorf("the handler saw %v, %d sessions", n.refusals, len(n.Active()))
			}
		})
	}
	for _, code := range []oap.Code{oap.Malformed, oap.Timeout, oap.Unauth, "SomethingNew"} {
		inBubble(t, string(code), func(t *testing.T) {
			n := newNode(t, 1)
			r := handshakeInBubble(t, n, 2)
			r.send(oap.Event, 0, &oap.Error{Code: code, Msg: "go away"})
			synctest.Wait()
			<-r.ended
			if got := r.kinds(); !slices.Equal(got, []string{"hello_ack"}) {
				t.Errorf("an error was answered: %v", got)
			}
			_ = r.conn.Close()
			synctest.Wait()
			if len(n.closed) != 1 || n.closed[0] == nil || !slices.Equal(n.reasons, []CloseReason{ClosedRefused}) {
				t.Fatalf("closed %v by %v", n.closed, n.reasons)
			}
			if _, ok := errors.AsType[peerError](n.closed[0]); !ok {
				t.Errorf("%v does not say who said so", n.closed[0])
			}
		})
	}
}

// After an error that ends the connection, what still arrives is discarded for
// a second: a reset would destroy the error in transit.
func TestLastWordsAreNotEaten(t *testing.T) {
	inBubble(t, "a peer that keeps sending", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		r.write(framed(oap.Event, 5, []byte("hi")))
		began := time.Now()
		var err error
		for err == nil {
			_, err = r.conn.Write(framed(oap.Event, 6, make([]byte, 1000)))
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took < closeGrace || took > closeGrace+100*time.Millisecond {
			t.Errorf("cut after %s", took)
		}
		r.wantRefused("bad frame", oap.Malformed, oap.Event, 5)
	})
	inBubble(t, "in the handshake", func(t *testing.T) {
		n := newNode(t, 1)
		r := dialRaw(t, n, rawTLS(keyOf(2))).reading()
		r.write(framed(oap.Event, 5, []byte("hi")))
		began := time.Now()
		var err error
		for err == nil {
			_, err = r.conn.Write(framed(oap.Event, 6, make([]byte, 1000)))
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took < closeGrace || took > closeGrace+100*time.Millisecond {
			t.Errorf("cut after %s", took)
		}
		r.wantRefused("bad frame", oap.Malformed, oap.Event, 5)
	})
}

// A refusal is sent to the peer at most once a second.
func TestRefuse(t *testing.T) {
	inBubble(t, "three a second", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		for range 3 {
			s.Refuse(7, fault.New("gossip.take", fault.Busy, "full"))
			time.Sleep(400 * time.Millisecond)
		}
		s.Refuse(8, fault.Busy)
		synctest.Wait()
		all := r.all()[1:]
		if len(all) != 2 || all[0].Corr != 7 || all[1].Corr != 8 || all[0].Flags != oap.Event {
			t.Errorf("told %d times: %+v", len(all), all)
		}
		if e := all[0].message.(*oap.Error); e.Code != oap.Busy || e.Msg != "full" {
			t.Errorf("told %+v", e)
		}
	})
}

// overlay.peer.max_rps: more frames than that are dropped.
func TestMaxRPS(t *testing.T) {
	inBubble(t, "10", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Peer.MaxRPS = 10 })
		r := handshakeInBubble(t, n, 2)
		for i := range 25 {
			r.send(oap.Event, uint64(100+i), testGossip(10))
		}
		r.send(oap.Req, 200, &oap.Start{Stream: 1, Obj: "b3:x"})
		r.send(oap.Event, 201, &oap.Have{})
		r.send(oap.Event, 202, &oap.Ack{})
		synctest.Wait()
		if len(n.gossip) != 10 || n.rateLimited != 17 {
			t.Errorf("%d messages were taken, %d were too many", len(n.gossip), n.rateLimited)
		}
		if !slices.Equal(n.messages, []string{"ack"}) {
			t.Errorf("the handler saw %v: what belongs to a stream under way is taken, what starts something is not", n.messages)
		}
		answers := r.all()[1:]
		if len(answers) != 2 {
			t.Fatalf("answers: %v", r.kinds())
		}
		for _, a := range answers {
			switch m := a.message.(type) {
			case *oap.Error:
				if m.Code != oap.QuotaExceeded || a.Corr != 110 || a.Flags != oap.Event {
					t.Errorf("told %+v about %d", m, a.Corr)
				}
			case *oap.End:
				if m.Status != "QuotaExceeded" || m.Seq != 0 || a.Corr != 200 || a.Flags != oap.Resp {
					t.Errorf("the stream ended with %+v", m)
				}
			}
		}
		time.Sleep(time.Second)
		r.send(oap.Event, 300, testGossip(10))
		synctest.Wait()
		if len(n.gossip) != 11 {
			t.Error("a second later none is taken")
		}
	})
}

// A find is passed to the Handler, unless the peer sends too many or this node
// drains; then it is refused with its corr. The refusal of our own find is passed
// to the Handler, too.
func TestQuestions(t *testing.T) {
	inBubble(t, "too many", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Peer.MaxRPS = 2 })
		r := handshakeInBubble(t, n, 2)
		for i := range 3 {
			r.send(oap.Req, uint64(100+i), &oap.Find{Obj: "b3:x", Most: 1})
		}
		r.send(oap.Resp, 7, &oap.Found{})
		r.send(oap.Resp, 8, &oap.Error{Code: oap.Malformed, Msg: "unknown kind find"})
		synctest.Wait()
		if !slices.Equal(n.messages, []string{"find", "find", "found", "error"}) || n.rateLimited != 1 || len(n.closed) != 0 {
			t.Errorf("the handler saw %v, %d were too many, closed %v", n.messages, n.rateLimited, n.closed)
		}
		answers := r.all()[1:]
		if len(answers) != 1 || answers[0].Corr != 102 || answers[0].Flags != oap.Resp || answers[0].message.(*oap.Error).Code != oap.QuotaExceeded {
			t.Errorf("answered %+v", answers)
		}
	})
	inBubble(t, "draining", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		r.send(oap.Req, 1, &oap.Start{Stream: 1, Obj: "b3:x"}) // so that the session stays open
		synctest.Wait()
		s.drain(&closeCause{reason: ClosedDrain}, true, time.Now().Add(time.Second))
		r.send(oap.Req, 9, &oap.Find{Obj: "b3:x", Most: 1})
		synctest.Wait()
		if !slices.Equal(n.messages, []string{"start"}) {
			t.Errorf("the handler saw %v", n.messages)
		}
		if last := r.all()[2]; last.Corr != 9 || last.Flags != oap.Resp || last.message.(*oap.Error).Code != oap.NotReady {
			t.Errorf("answered %+v", last)
		}
		if err := s.SendControl(Outgoing{Message: &oap.Find{Obj: "x"}, Flags: oap.Req}); fault.KindOf(err) != fault.NotReady {
			t.Errorf("one who leaves asks: %v", err)
		}
	})
}

// Section 10.

func TestClocks(t *testing.T) {
	inBubble(t, "a silent peer is asked twice and given up", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		began := time.Now()
		last := r.awaitClose()
		if got := r.kinds(); !slices.Equal(got, []string{"hello_ack", "ping", "ping", "error"}) {
			t.Fatalf("it got %v", got)
		}
		for i, want := range []time.Duration{0, 5, 10, 15} {
			if after := r.all()[i].at.Sub(began); after != want*time.Second {
				t.Errorf("%s came after %s", oap.KindOf(r.all()[i].message), after)
			}
		}
		if e := last.message.(*oap.Error); e.Code != oap.Timeout || last.Corr != 0 || last.Flags != oap.Event {
			t.Errorf("the last word is %+v", e)
		}
		_ = r.conn.Close()
		synctest.Wait()
		if !slices.Equal(n.timeouts, []string{"idle"}) || !slices.Equal(n.reasons, []CloseReason{ClosedIdle}) {
			t.Errorf("counted %v, %v", n.timeouts, n.reasons)
		}
		testkit.WantKind(t, n.closed[0], fault.Timeout, "the end")
	})
	inBubble(t, "a quiet peer that answers lives", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		for i := range 100 {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			ping := r.last()
			p, ok := ping.message.(*oap.Ping)
			if !ok || ping.Flags != oap.Req || len(r.all()) != i+2 {
				t.Fatalf("after %d rounds: %v", i, r.kinds())
			}
			if p.TS != uint64(time.Now().UnixMilli()) {
				t.Errorf("the ping says %d", p.TS)
			}
			time.Sleep(30 * time.Millisecond)
			r.send(oap.Resp, ping.Corr, &oap.Pong{TS: p.TS})
			synctest.Wait()
			if s.RTT() != 30*time.Millisecond {
				t.Fatalf("the round trip took %s", s.RTT())
			}
		}
		if len(n.Active()) != 1 {
			t.Error("it is gone")
		}
	})
	inBubble(t, "any frame is a sign of life", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		for range 20 {
			time.Sleep(4 * time.Second)
			r.send(oap.Event, 2, testGossip(1))
		}
		synctest.Wait()
		if len(r.all()) != 1 || len(n.Active()) != 1 {
			t.Errorf("it was asked: %v", r.kinds())
		}
	})
	inBubble(t, "stopping inside a frame", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		time.Sleep(3 * time.Second)
		r.write(framed(oap.Event, 5, encoded(t, testGossip(100)))[:40])
		began := time.Now()
		last := r.awaitClose()
		if took := last.at.Sub(began); took != 5*time.Second {
			t.Errorf("given up after %s", took)
		}
		r.wantRefused("progress", oap.Timeout, oap.Event, 0)
		_ = r.conn.Close()
		synctest.Wait()
		if !slices.Equal(n.timeouts, []string{"read"}) || !slices.Equal(n.reasons, []CloseReason{ClosedProgress}) {
			t.Errorf("counted %v, %v", n.timeouts, n.reasons)
		}
	})
	inBubble(t, "less patience than the deadline that is set", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Config.Progress = time.Second })
		r := handshakeInBubble(t, n, 2)
		time.Sleep(time.Second)
		r.write([]byte{0})
		began := time.Now()
		if took := r.awaitClose().at.Sub(began); took != time.Second {
			t.Errorf("given up after %s", took)
		}
	})
	inBubble(t, "a byte a second", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		began := time.Now()
		frame := framed(oap.Event, 5, encoded(t, testGossip(100)))
		var err error
		for i := 0; err == nil && i < len(frame); i++ {
			_, err = r.conn.Write(frame[i : i+1])
			time.Sleep(time.Second)
		}
		last := r.awaitClose()
		if took := last.at.Sub(began); took != 15*time.Second {
			t.Errorf("given up after %s", took)
		}
		r.wantRefused("a byte a second", oap.Timeout, oap.Event, 0)
	})
	inBubble(t, "a slow frame that gets on", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		frame := framed(oap.Event, 5, encoded(t, testGossip(100)))
		for part := range slices.Chunk(frame, 50) {
			r.write(part)
			time.Sleep(4 * time.Second)
		}
		synctest.Wait()
		if len(n.gossip) != 1 || len(n.Active()) != 1 {
			t.Errorf("%d messages, closed %v", len(n.gossip), n.closed)
		}
	})
}

func TestPings(t *testing.T) {
	inBubble(t, "are answered with what they say", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		r.send(oap.Req, 77, &oap.Ping{TS: 1 << 63})
		synctest.Wait()
		last := r.last()
		if p, ok := last.message.(*oap.Pong); !ok || p.TS != 1<<63 || last.Flags != oap.Resp || last.Corr != 77 {
			t.Errorf("the answer is %+v", last)
		}
	})
	inBubble(t, "too many are refused", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		for i := range 10 {
			r.send(oap.Req, uint64(i+2), &oap.Ping{})
		}
		synctest.Wait()
		pongs, refused := 0, 0
		for _, h := range r.all()[1:] {
			switch m := h.message.(type) {
			case *oap.Pong:
				pongs++
			case *oap.Error:
				refused++
				if m.Code != oap.QuotaExceeded || h.Flags != oap.Resp || h.Corr < 7 {
					t.Errorf("refused with %+v", h)
				}
			}
		}
		if pongs != 5 || refused != 5 || len(n.Active()) != 1 {
			t.Errorf("%d answers, %d refusals", pongs, refused)
		}
	})
	inBubble(t, "once a second is fine", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		for i := range 60 {
			time.Sleep(time.Second)
			r.send(oap.Req, uint64(i+2), &oap.Ping{})
		}
		synctest.Wait()
		if slices.Contains(r.kinds(), "error") {
			t.Error("it was refused")
		}
	})
}

// A peer that never reads: the write times out, other sessions are not affected,
// and the queue is bounded.
func TestPeerThatNeverReads(t *testing.T) {
	inBubble(t, "5s", func(t *testing.T) {
		n := newNode(t, 1)
		good := handshakeInBubble(t, n, 3)
		bad := dialRaw(t, n, rawTLS(keyOf(2)))
		bad.send(oap.Req, 1, goodHello())
		if _, err := bad.conn.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := n.Find(idOf(keyOf(2)))
		began := time.Now()
		results := 0
		failed := 0
		rejected := 0
		for range 1000 {
			p := testFrame(1000)
			p.Item.Written = func(err error) {
				results++
				if err != nil {
					failed++
				}
			}
			rejected += len(s.OfferGossip([]queuedFrame{p}, nil, nil))
		}
		if rejected < 1000-512-64-inlineFrames || len(n.backpressure) == 0 {
			t.Errorf("only %d of 1000 messages were rejected; %d times under pressure", rejected, len(n.backpressure))
		}
		other := n.Find(idOf(keyOf(3)))
		if left := other.OfferGossip([]queuedFrame{testFrame(10)}, nil, nil); len(left) != 0 {
			t.Error("the other peer is held up")
		}
		synctest.Wait()
		if got := good.kinds(); !slices.Equal(got, []string{"hello_ack", "gossip"}) {
			t.Errorf("the other peer got %v", got)
		}
		<-s.Done()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("given up after %s", took)
		}
		if results != 1000-rejected || failed != results {
			t.Errorf("%d of %d frames were settled, %d as failed", results, 1000-rejected, failed)
		}
		if !slices.Equal(n.reasons, []CloseReason{ClosedWrite}) || !slices.Equal(n.timeouts, []string{"write"}) {
			t.Errorf("closed by %v, %v", n.reasons, n.timeouts)
		}
		testkit.WantKind(t, n.closed[0], fault.Timeout, "the end")
	})
}

// FuzzConversation sends anything at all after a good handshake, in two
// portions. Whatever it is, the session ends in good order or is still there,
// and nothing is left when the peer has gone.
func FuzzConversation(f *testing.F) {
	for _, m := range []oap.Message{
		testGossip(20), &oap.Ping{TS: 1}, &oap.Pong{}, &oap.Have{}, &oap.Start{Stream: 1, Obj: "b3:x"}, &oap.Data{Stream: 1, Bytes: []byte("x")},
		&oap.Ack{}, &oap.End{Status: "ok"}, &oap.Error{Code: oap.Busy}, &oap.Error{Code: oap.Malformed}, &oap.Bye{}, goodHello(),
		&oap.Find{Obj: "b3:x", Most: 1}, &oap.Found{Providers: []oap.Provider{{ID: "a"}}},
	} {
		frame := frameOf(f, oap.Req, 2, m)
		f.Add(frame, uint16(len(frame)))
		f.Add(append(frame, frame...), uint16(7))
	}
	f.Add(framed(oap.Req, 3, later), uint16(40))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint16(2))
	f.Fuzz(func(t *testing.T, bytes []byte, cut uint16) {
		emptyPools()
		defer emptyPools()
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, 1)
			r := handshakeInBubble(t, n, 2)
			at := min(int(cut), len(bytes))
			for _, part := range [][]byte{bytes[:at], bytes[at:]} {
				_, _ = r.conn.Write(part)
				synctest.Wait()
			}
			r.mu.Lock()
			for _, h := range r.got[1:] {
				switch h.message.(type) {
				case *oap.Pong, *oap.Error, *oap.End, *oap.Bye:
				default:
					t.Errorf("it was sent a %s", oap.KindOf(h.message))
				}
			}
			r.mu.Unlock()
			_ = r.conn.Close()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if len(n.opened) != 1 || len(n.closed) != 1 || len(n.live) != 0 || len(n.panics) != 0 {
				t.Errorf("opened %d, closed %d, live %d, panics %v", len(n.opened), len(n.closed), len(n.live), n.panics)
			}
		})
	})
}
