package session

import (
	"bytes"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// goroutinesIn returns how many goroutines are in a function.
func goroutinesIn(t testing.TB, function string) (n int) {
	t.Helper()
	var text bytes.Buffer
	testkit.Must(t, pprof.Lookup("goroutine").WriteTo(&text, 2))
	for _, one := range strings.Split(text.String(), "\n\n") {
		if strings.Contains(one, function+"(") {
			n++
		}
	}
	return n
}

const (
	inWrite        = "session.(*Session).write"
	inRead         = "session.(*Session).read"
	inWaitReadable = "session.(*batchConn).waitReadable"
)

// longTimeouts makes sessions send no ping for an hour. It is for real sockets: on a
// machine that is busy with other things a handshake takes seconds, and that is no
// failure.
func longTimeouts(s *Spec) { s.Config.Idle, s.Config.Handshake = time.Hour, time.Minute }

// An idle session has one goroutine, which waits close to the bottom of its stack.
// One that is in use keeps the goroutine of its writer until the next keepalive.
func TestAQuietSessionHasOneGoroutine(t *testing.T) {
	a, b := newNode(t, 1, longTimeouts).serve(), newNode(t, 2, longTimeouts).serve()
	s, _ := connectNodes(t, a, b)
	quiet := func() bool {
		return goroutinesIn(t, inWrite) == 0 && goroutinesIn(t, inWaitReadable) == 2 && goroutinesIn(t, inRead) == 2
	}
	testkit.WaitFor(t, "two readers, each of which waits, and no writer", quiet)

	s.OfferGossip([]queuedFrame{testFrame(100)}, nil, nil)
	testkit.WaitFor(t, "the message", b.check(func() bool { return len(b.gossip) == 1 }))
	testkit.WaitFor(t, "the writer waits for more", func() bool { return s.writerWaits.Load() })
	if n := goroutinesIn(t, inWrite); n != 1 {
		t.Errorf("%d writers of a session that was just used", n)
	}

	s.ping(s.Corr(), 1)
	testkit.WaitFor(t, "all is quiet again", quiet)
	s.OfferGossip([]queuedFrame{testFrame(100)}, nil, nil)
	testkit.WaitFor(t, "a message that wakes the writer", b.check(func() bool { return len(b.gossip) == 2 }))
}

// Whatever a sleeping writer is woken for, it writes.
func TestASleepingWriterIsWoken(t *testing.T) {
	for name, wake := range map[string]struct {
		do   func(*Session)
		want string
	}{
		"by gossip":        {func(s *Session) { s.OfferGossip([]queuedFrame{testFrame(9)}, nil, nil) }, "gossip"},
		"by a message":     {func(s *Session) { _ = s.SendControl(Outgoing{Message: &oap.Want{}, Flags: oap.Event}) }, "want"},
		"by a chunk":       {func(s *Session) { _ = s.SendBulk(1, 9, Outgoing{Message: &oap.Data{Stream: 1}, Flags: oap.Resp}) }, "data"},
		"by a ping":        {func(s *Session) { s.ping(9, 9) }, "ping"},
		"by its end":       {func(s *Session) { s.CloseWithError(nil) }, "bye"},
		"to be drained":    {func(s *Session) { s.drain(&closeCause{reason: ClosedDrain}, true, time.Now().Add(time.Second)) }, "bye"},
		"by a broken rule": {func(s *Session) { s.CloseWithError(protocolError("test", "broken")) }, "error"},
	} {
		inBubble(t, name, func(t *testing.T) {
			n := newNode(t, 1)
			r := handshakeInBubble(t, n, 2)
			synctest.Wait()
			wake.do(n.Active()[0])
			synctest.Wait()
			if got := oap.KindOf(r.last().message); got != wake.want {
				t.Errorf("it wrote %s, want %s", got, wake.want)
			}
		})
	}
}

// A keepalive reaches a writer that waits at its queue, goes before what is queued
// there, and is written completely.
func TestKeepaliveOfABusySession(t *testing.T) {
	inBubble(t, "it is woken", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		for i := range uint64(3) {
			s.OfferGossip([]queuedFrame{testFrame(9)}, nil, nil)
			synctest.Wait()
			if !s.writerWaits.Load() {
				t.Fatal("the writer does not wait for more")
			}
			r.send(oap.Req, 70+i, &oap.Ping{TS: i})
			synctest.Wait()
			if last := r.last(); last.Corr != 70+i || oap.KindOf(last.message) != "pong" || s.writerWaits.Load() {
				t.Errorf("the last word is %+v, and the writer waits: %v", last, s.writerWaits.Load())
			}
		}
	})
	inBubble(t, "both ways at once", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		s.mu.Lock() // nothing is written while both become due
		s.keepalive = keepalive{ping: true, pingCorr: 5, pingTS: 6, pong: true, pongCorr: 7, pongTS: 8}
		s.mu.Unlock()
		if s.pong(9, 9) {
			t.Error("a pong was forgotten for another")
		}
		s.wakeWriter()
		synctest.Wait()
		all := r.all()
		pong, ping := all[len(all)-2], all[len(all)-1]
		if p, ok := pong.message.(*oap.Pong); !ok || p.TS != 8 || pong.Corr != 7 || pong.Flags != oap.Resp {
			t.Errorf("%+v", pong)
		}
		if p, ok := ping.message.(*oap.Ping); !ok || p.TS != 6 || ping.Corr != 5 || ping.Flags != oap.Req {
			t.Errorf("%+v", ping)
		}
	})
	inBubble(t, "no ping after a bye", func(t *testing.T) {
		n := newNode(t, 1)
		r := handshakeInBubble(t, n, 2)
		s := n.Active()[0]
		s.track(1) // a stream is open, so the session stays
		s.drain(&closeCause{reason: ClosedDrain}, true, time.Now().Add(4*time.Second))
		s.ping(5, 6)
		s.mu.Lock()
		s.keepalive.ping = true // one that was due before
		s.mu.Unlock()
		s.wakeWriter()
		synctest.Wait()
		if got := oap.KindOf(r.last().message); got != "bye" {
			t.Errorf("after the bye it said %s", got)
		}
	})
}

// A ping and its answer, over TLS and both ends counted, cause a few small
// allocations in crypto/tls and none of ours.
func TestAPingAllocatesNextToNothing(t *testing.T) {
	if raced {
		return // the race detector allocates, and makes pools drop items on purpose
	}
	a, b := newNode(t, 1, longTimeouts).serve(), newNode(t, 2, longTimeouts).serve()
	s, other := connectNodes(t, a, b)
	testkit.WaitFor(t, "quiet", func() bool { return goroutinesIn(t, inWaitReadable) == 2 && goroutinesIn(t, inWrite) == 0 })
	other.readState.pingRate = meter{} // no limit; its reader waits, so this is no race
	answered := func() bool { return s.rtt.Load() >= 0 }
	ask := func() {
		corr := s.Corr()
		s.readState.pingCorr = corr // the same
		s.rtt.Store(-1)
		s.ping(corr, 1)
		testkit.Poll(answered)
	}
	ask()
	got := testing.AllocsPerRun(100, ask)
	t.Logf("%v allocations", got)
	if got > 24 {
		t.Errorf("a ping and its answer allocate %v times", got)
	}
}

// A reader that checks whether anything has arrived, waits until something has, and
// continues from there misses no byte, wherever the stream was cut.
func TestAWaitingReaderMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, client, plain := securedPair(t)
		room := make([]byte, 1<<17)
		for range 3 {
			sent := make([]byte, rapid.SampledFrom([]int{1, 60, 3000, 16 << 10, 40 << 10}).Draw(t, "bytes"))
			from.kept = &bytes.Buffer{}
			if _, err := client.Write(sent); err != nil {
				t.Fatal(err)
			}
			stream := from.kept.Bytes()
			cut := rapid.IntRange(0, len(stream)).Draw(t, "cut")
			got, written := 0, 0
			for _, part := range [][]byte{stream[:cut], stream[cut:]} {
				if _, err := from.Conn.Write(part); err != nil {
					t.Fatal(err)
				}
				_ = plain.raw.SetReadDeadline(time.Now().Add(20 * time.Second))
				if len(part) > 0 && plain.isEmpty() {
					testkit.Must(t, plain.raw.waitReadable())
				}
				written += len(part)
				due, _ := wholeRecords(stream[:written], -1)
				for got < due {
					n, err := plain.Read(room[got:])
					if got += n; err != nil {
						t.Fatalf("after %d of %d bytes: %v", got, len(sent), err)
					}
				}
			}
			if got != len(sent) || !bytes.Equal(room[:got], sent) {
				t.Fatalf("%d bytes came of %d, or others", got, len(sent))
			}
			if !plain.isEmpty() {
				t.Fatal("more than was sent")
			}
		}
	})
}

// A connection that breaks while its reader waits is reported as broken, not as
// closed.
func TestAWaitingReaderSeesTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, _, plain := securedPair(t)
		if !plain.isEmpty() {
			t.Fatal("something came")
		}
		_ = from.Conn.Close()
		_ = plain.raw.SetReadDeadline(time.Now().Add(20 * time.Second))
		testkit.Must(t, plain.raw.waitReadable())
		if plain.isEmpty() {
			t.Error("it would wait again, for ever")
		}
		if n, err := plain.Read(make([]byte, 9)); n != 0 || err == nil || !plain.raw.eof {
			t.Errorf("%d bytes, %v, over %v", n, err, plain.raw.eof)
		}
	})
}

// TLS would keep the certificates of the peer, of which only the key is needed.
func TestNoCertificateIsKept(t *testing.T) {
	a, b := newNode(t, 1, longTimeouts).serve(), newNode(t, 2, longTimeouts).serve()
	s, o := connectNodes(t, a, b)
	for _, one := range []*Session{s, o} {
		for _, kept := range one.conn.ConnectionState().PeerCertificates {
			if kept != nil {
				t.Error("a certificate is kept")
			}
		}
	}
}
