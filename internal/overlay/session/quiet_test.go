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
)

// running is how many goroutines are in a function.
func running(t testing.TB, function string) (n int) {
	t.Helper()
	var text bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&text, 2); err != nil {
		t.Fatal(err)
	}
	for _, one := range strings.Split(text.String(), "\n\n") {
		if strings.Contains(one, function+"(") {
			n++
		}
	}
	return n
}

const (
	inWrite = "session.(*Session).write"
	inRead  = "session.(*Session).read"
	inTouch = "session.(*wire).touch"
)

// patient is a node whose sessions have nothing to say for an hour. It is for real
// sockets: on a machine that is busy with other things a handshake takes seconds,
// and that is no failure.
func patient(s *Spec) { s.Config.Idle, s.Config.Handshake = time.Hour, time.Minute }

// A session that is quiet has one goroutine, which waits close to the bottom of
// its stack. One that is in use keeps its writer until the next small talk.
func TestAQuietSessionHasOneGoroutine(t *testing.T) {
	a, b := newNode(t, 1, patient).serve(), newNode(t, 2, patient).serve()
	s, _ := meet(t, a, b)
	quiet := func() bool { return running(t, inWrite) == 0 && running(t, inTouch) == 2 && running(t, inRead) == 2 }
	until(t, "two readers, each of which dozes, and no writer", quiet)

	s.Post([]parcelOf{parcel(100)}, nil, nil)
	until(t, "the letter", b.saw(func() bool { return len(b.letters) == 1 }))
	until(t, "the writer waits for more", func() bool { return s.lingers.Load() })
	if n := running(t, inWrite); n != 1 {
		t.Errorf("%d writers of a session that was just used", n)
	}

	s.ping(s.Corr(), 1)
	until(t, "all is quiet again", quiet)
	s.Post([]parcelOf{parcel(100)}, nil, nil)
	until(t, "a letter that wakes the writer", b.saw(func() bool { return len(b.letters) == 2 }))
}

// Whatever a sleeping writer is woken for, it writes.
func TestASleepingWriterIsWoken(t *testing.T) {
	for name, wake := range map[string]struct {
		do   func(*Session)
		want string
	}{
		"by gossip":        {func(s *Session) { s.Post([]parcelOf{parcel(9)}, nil, nil) }, "gossip"},
		"by a message":     {func(s *Session) { _ = s.Tell(Out{Message: &oap.Want{}, Flags: oap.Event}) }, "want"},
		"by a chunk":       {func(s *Session) { _ = s.Give(1, 9, Out{Message: &oap.Data{Stream: 1}, Flags: oap.Resp}) }, "data"},
		"by a ping":        {func(s *Session) { s.ping(9, 9) }, "ping"},
		"by its end":       {func(s *Session) { s.End(nil) }, "bye"},
		"to be drained":    {func(s *Session) { s.part(&parting{reason: ClosedDrain}, true, time.Now().Add(time.Second)) }, "bye"},
		"by a broken rule": {func(s *Session) { s.End(brokenRule("test", "broken")) }, "error"},
	} {
		inBubble(t, name, func(t *testing.T) {
			n := newNode(t, 1)
			r := shake(t, n, 2)
			synctest.Wait()
			wake.do(n.Active()[0])
			synctest.Wait()
			if got := oap.KindOf(r.last().message); got != wake.want {
				t.Errorf("it wrote %s, want %s", got, wake.want)
			}
		})
	}
}

// Small talk reaches a writer that waits at its queue for letters, goes before
// what waits there, and is all said.
func TestSmallTalkOfALivelySession(t *testing.T) {
	inBubble(t, "it is roused", func(t *testing.T) {
		n := newNode(t, 1)
		r := shake(t, n, 2)
		s := n.Active()[0]
		for i := range uint64(3) {
			s.Post([]parcelOf{parcel(9)}, nil, nil)
			synctest.Wait()
			if !s.lingers.Load() {
				t.Fatal("the writer does not wait for more")
			}
			r.say(oap.Req, 70+i, &oap.Ping{TS: i})
			synctest.Wait()
			if last := r.last(); last.Corr != 70+i || oap.KindOf(last.message) != "pong" || s.lingers.Load() {
				t.Errorf("the last word is %+v, and the writer waits: %v", last, s.lingers.Load())
			}
		}
	})
	inBubble(t, "both ways at once", func(t *testing.T) {
		n := newNode(t, 1)
		r := shake(t, n, 2)
		s := n.Active()[0]
		s.mu.Lock() // nobody says anything while both become due
		s.talk = talk{ping: true, pingCorr: 5, pingTS: 6, pong: true, pongCorr: 7, pongTS: 8}
		s.mu.Unlock()
		if s.pong(9, 9) {
			t.Error("a pong was forgotten for another")
		}
		s.rouse()
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
		r := shake(t, n, 2)
		s := n.Active()[0]
		s.track(1) // a stream is open, so the session stays
		s.part(&parting{reason: ClosedDrain}, true, time.Now().Add(4*time.Second))
		s.ping(5, 6)
		s.mu.Lock()
		s.talk.ping = true // one that was due before
		s.mu.Unlock()
		s.rouse()
		synctest.Wait()
		if got := oap.KindOf(r.last().message); got != "bye" {
			t.Errorf("after the bye it said %s", got)
		}
	})
}

// A ping and its answer, over TLS and both ends counted, allocate a handful of
// small things in crypto/tls and nothing of ours.
func TestAPingAllocatesNextToNothing(t *testing.T) {
	if raced {
		return // the detector allocates, and pools forget on purpose
	}
	a, b := newNode(t, 1, patient).serve(), newNode(t, 2, patient).serve()
	s, other := meet(t, a, b)
	until(t, "quiet", func() bool { return running(t, inTouch) == 2 && running(t, inWrite) == 0 })
	other.ear.pings = meter{} // its reader dozes, so nobody minds; as often as we like
	ask := func() {
		corr := s.Corr()
		s.ear.asked = corr // the same
		s.rtt.Store(-1)
		s.ping(corr, 1)
		for s.rtt.Load() < 0 {
			time.Sleep(50 * time.Microsecond) // on one processor, somebody must look at the network
		}
	}
	ask()
	got := testing.AllocsPerRun(100, ask)
	t.Logf("%v allocations", got)
	if got > 24 {
		t.Errorf("a ping and its answer allocate %v times", got)
	}
}

// A reader that looks whether anything has come, dozes until something has, and
// goes on from there misses no byte, wherever the stream was cut.
func TestADozingReaderMissesNothing(t *testing.T) {
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
			for _, piece := range [][]byte{stream[:cut], stream[cut:]} {
				if _, err := from.Conn.Write(piece); err != nil {
					t.Fatal(err)
				}
				_ = plain.wire.SetReadDeadline(time.Now().Add(20 * time.Second))
				if len(piece) > 0 && plain.dry() {
					if err := plain.wire.touch(); err != nil {
						t.Fatal(err)
					}
				}
				written += len(piece)
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
			if !plain.dry() {
				t.Fatal("more than was sent")
			}
		}
	})
}

// A connection that breaks while its reader dozes has broken, and is not taken
// for one that was closed.
func TestADozingReaderHearsOfTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, _, plain := securedPair(t)
		if !plain.dry() {
			t.Fatal("something came")
		}
		_ = from.Conn.Close()
		_ = plain.wire.SetReadDeadline(time.Now().Add(20 * time.Second))
		if err := plain.wire.touch(); err != nil {
			t.Fatal(err)
		}
		if plain.dry() {
			t.Error("it would doze again, for ever")
		}
		if n, err := plain.Read(make([]byte, 9)); n != 0 || err == nil || !plain.wire.over {
			t.Errorf("%d bytes, %v, over %v", n, err, plain.wire.over)
		}
	})
}

// TLS would keep the certificates of the peer. Their key was all that counted.
func TestNoCertificateIsKept(t *testing.T) {
	a, b := newNode(t, 1, patient).serve(), newNode(t, 2, patient).serve()
	s, o := meet(t, a, b)
	for _, one := range []*Session{s, o} {
		for _, kept := range one.conn.ConnectionState().PeerCertificates {
			if kept != nil {
				t.Error("a certificate is kept")
			}
		}
	}
}
