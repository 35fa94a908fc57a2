package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// testSender runs a test of the sending side against a peer that the test
// plays. The node was dialled, so the peer's numbers are odd.
func testSender(t *testing.T, test func(t *testing.T, s *testNode, p *scriptedPeer), options ...option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t, 1, options...)
		p := newScriptedPeer(s, false)
		test(t, s, p)
		s.Closed(p)
		synctest.Wait()
		s.checkIdle()
	})
}

// chunksOf is what a stream sends from one chunk to another, all of them full.
func chunksOf(stream, first, last int) (all []string) {
	for seq := first; seq <= last; seq++ {
		all = append(all, fmt.Sprintf("data %d %d (%d)", stream, seq, fullChunk))
	}
	return all
}

// The example of the protocol, message for message.
func TestSenderKeepsToItsCredit(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		address := s.putObject(bytesOf(1_500_000))
		p.mustSend(&oap.Start{Stream: 1, Obj: address.String()})
		synctest.Wait()
		p.wantSent(chunksOf(1, 0, 15)...)
		time.Sleep(patience - time.Millisecond) // nothing more, however long it takes
		p.wantSent()
		p.mustSend(&oap.Ack{Stream: 1, UpTo: 7})
		synctest.Wait()
		p.wantSent(append(chunksOf(1, 16, 21), "data 1 22 (58208)", "end 1 23 ok")...)
		p.mustSend(&oap.Ack{Stream: 1, UpTo: 22}) // it crossed the end
		s.wantEnded(Tx, "ok", 1)
		s.locked(func() {
			if s.bytes[Tx] != 1_500_000 {
				t.Errorf("%d bytes were counted", s.bytes[Tx])
			}
		})
	})
}

// One ack, one more chunk: the credit is exact.
func TestCreditIsExact(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		address := s.putObject(bytesOf(40 * fullChunk))
		p.mustSend(&oap.Start{Stream: 3, Obj: address.String()})
		synctest.Wait()
		p.wantSent(chunksOf(3, 0, 15)...)
		p.mustSend(&oap.Ack{Stream: 3, UpTo: 0})
		synctest.Wait()
		p.wantSent(chunksOf(3, 16, 16)...)
		for _, late := range []uint64{0, 0} { // repeats are ignored, and give no credit
			p.mustSend(&oap.Ack{Stream: 3, UpTo: late})
		}
		p.mustSend(&oap.Ack{Stream: 3, UpTo: 5})
		p.mustSend(&oap.Ack{Stream: 3, UpTo: 2}) // so are those that go back
		synctest.Wait()
		p.wantSent(chunksOf(3, 17, 21)...)
		if err := p.send(&oap.Ack{Stream: 3, UpTo: 22}); fault.KindOf(err) != fault.Malformed || oap.CodeOf(err) != oap.Malformed {
			t.Errorf("an ack for what was not sent: %v", err)
		}
		if err := p.send(&oap.Ack{Stream: 3, UpTo: 1<<64 - 1}); fault.KindOf(err) != fault.Malformed {
			t.Errorf("an ack for the last chunk there can be: %v", err)
		}
	})
}

// slowSource is an object that is read at its own pace.
type slowSource struct{ content }

func (s slowSource) ReadAt(p []byte, at int64) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return s.content.ReadAt(p, at)
}

// A peer may break the rule of acks at any time, also while the next chunk is
// on its way; the race detector checks what it is compared with.
func TestAckOfWhatWasNotSentWhileMoreIsSent(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		data := bytesOf(8 * fullChunk)
		s.put(b3.Of(data), slowSource{content{bytes.NewReader(data)}})
		p.mustSend(&oap.Start{Stream: 1, Obj: b3.Of(data).String()})
		for range 3 {
			time.Sleep(25 * time.Millisecond)
			if err := p.send(&oap.Ack{Stream: 1, UpTo: 99}); fault.KindOf(err) != fault.Malformed {
				t.Errorf("an ack for what was not sent: %v", err)
			}
		}
		time.Sleep(time.Second)
		p.wantSent(append(chunksOf(1, 0, 7), "end 1 8 ok")...)
	})
}

// What is requested, what is sent: sizes, and offsets of a resume.
func TestSenderSendsWhatIsAskedFor(t *testing.T) {
	big := 1_500_000
	for _, c := range []struct {
		size, from int
		want       []string
	}{
		{0, 0, []string{"end 1 0 ok"}},
		{1, 0, []string{"data 1 0 (1)", "end 1 1 ok"}},
		{1, 1, []string{"end 1 0 ok"}},
		{fullChunk - 1, 0, []string{"data 1 0 (65535)", "end 1 1 ok"}},
		{fullChunk, 0, []string{"data 1 0 (65536)", "end 1 1 ok"}},
		{fullChunk + 1, 0, []string{"data 1 0 (65536)", "data 1 1 (1)", "end 1 2 ok"}},
		{16 * fullChunk, 0, append(chunksOf(1, 0, 15), "end 1 16 ok")},
		{big, 655_360, append(chunksOf(1, 0, 11), "data 1 12 (58208)", "end 1 13 ok")},
		{big, big - 1, []string{"data 1 0 (1)", "end 1 1 ok"}},
		{big, big, []string{"end 1 0 ok"}},
		{big, big + 1, []string{"end 1 0 InvalidRange"}},
		{0, 1, []string{"end 1 0 InvalidRange"}},
	} {
		testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
			address := s.putObject(bytesOf(c.size))
			p.mustSend(&oap.Start{Stream: 1, Obj: address.String(), From: uint64(c.from)})
			synctest.Wait()
			p.wantSent(c.want...)
		})
	}
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		address := s.putObject(bytesOf(10))
		p.mustSend(&oap.Start{Stream: 1, Obj: address.String(), From: 1<<64 - 1})
		synctest.Wait()
		p.wantSent("end 1 0 InvalidRange")
	})
}

// All frames of a stream are responses with the number of its start.
func TestAnswersHaveTheNumberOfTheirRequest(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		address := s.putObject(bytesOf(fullChunk + 5))
		p.mustSend(&oap.Start{Stream: 1, Obj: address.String()})
		p.mustSend(&oap.Start{Stream: 3, Obj: "b3:nothing"})
		synctest.Wait()
		for _, out := range p.out {
			if out.Flags != oap.Resp || out.Corr != 77 {
				t.Errorf("%s has flags %d and corr %d", summary(out.Message), out.Flags, out.Corr)
			}
		}
		if n := len(p.takeSent()); n != 4 {
			t.Errorf("%d frames", n)
		}
	})
}

// A start is refused with its status, and the connection stays.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		refusal error
		status  string
	}{
		{fault.NotFound, "NotFound"}, {fault.Forbidden, "Forbidden"}, {fault.IntegrityFail, "IntegrityFail"}, {fault.NotReady, "NotReady"},
		{fault.Busy, "Busy"}, {fault.StorageBusy, "Busy"}, {fault.Backpressure, "Busy"}, {fault.RateLimited, "QuotaExceeded"},
		{fault.Unauthorized, "Forbidden"}, {fault.Degraded, "NotReady"}, {fault.Expired, "NotFound"}, {fault.Timeout, "Timeout"},
		{errors.New("anything"), "Internal"},
	} {
		testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
			s.refuse(c.refusal)
			p.mustSend(&oap.Start{Stream: 1, Obj: b3.Of(nil).String()})
			synctest.Wait()
			p.wantSent("end 1 0 " + c.status)
			label := c.status
			if label == "Internal" {
				label = "other"
			}
			s.wantEnded(Tx, label, 1)
			s.refuse(nil)
			address := s.putObject([]byte("x"))
			p.mustSend(&oap.Start{Stream: 1, Obj: address.String()}) // the number is free again
			synctest.Wait()
			p.wantSent("data 1 0 (1)", "end 1 1 ok")
		})
	}
	testSender(t, func(t *testing.T, _ *testNode, p *scriptedPeer) {
		for i, bad := range []string{"b3:", "x", "b3:" + fmt.Sprintf("%064X", 0xabc), "name:docs"} {
			p.mustSend(&oap.Start{Stream: uint64(2*i + 1), Obj: bad})
			p.wantSent(fmt.Sprintf("end %d 0 Malformed", 2*i+1))
		}
	})
	testSender(t, func(_ *testing.T, s *testNode, p *scriptedPeer) {
		address := s.putObject([]byte("x"))
		s.Drain()
		p.mustSend(&oap.Start{Stream: 1, Obj: address.String()})
		p.wantSent("end 1 0 Canceled")
	})
	testSender(t, func(_ *testing.T, s *testNode, p *scriptedPeer) {
		address := s.putObject([]byte("x"))
		s.group.Close()
		p.mustSend(&oap.Start{Stream: 1, Obj: address.String()})
		p.wantSent("end 1 0 Canceled")
	})
}

// The requester chooses the number; a number of the wrong parity, and one that
// is open, break a rule.
func TestStreamNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t, 1)
		object := s.putObject(bytesOf(20 * fullChunk)).String()
		for _, dialed := range []bool{true, false} {
			p := newScriptedPeer(s, dialed)
			good, bad := uint64(1), uint64(0)
			if dialed {
				good, bad = 0, 1 // zero is even
			}
			testkit.WantKind(t, p.send(&oap.Start{Stream: bad, Obj: object}), fault.Malformed, "a number of the other kind")
			p.mustSend(&oap.Start{Stream: good, Obj: object})
			testkit.WantKind(t, p.send(&oap.Start{Stream: good, Obj: object}), fault.Malformed, "a number that is open")
			synctest.Wait()
			p.mustSend(&oap.End{Stream: good, Status: "Canceled"})
			p.mustSend(&oap.Start{Stream: good, Obj: object})
			synctest.Wait()
			s.Closed(p)
		}
		synctest.Wait()
		s.checkIdle()
	})
}

func TestTooManyStreams(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		object := s.putObject(bytesOf(20 * fullChunk)).String()
		for i := range 3 {
			p.mustSend(&oap.Start{Stream: uint64(2*i + 1), Obj: object})
		}
		synctest.Wait()
		p.takeSent()
		p.mustSend(&oap.Start{Stream: 9, Obj: object})
		p.wantSent("end 9 0 QuotaExceeded")
		p.mustSend(&oap.End{Stream: 3, Status: "Canceled"})
		p.mustSend(&oap.Start{Stream: 9, Obj: object})
		synctest.Wait()
		p.wantSent(chunksOf(9, 0, 15)...)

		q := newScriptedPeer(s, false) // another peer has its own
		q.mustSend(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		q.wantSent(chunksOf(1, 0, 15)...)
		s.Closed(q)
	}, func(spec *Spec) { spec.PerPeer = 3 })

	synctest.Test(t, func(t *testing.T) { // all tasks are in use
		group := newGroup(t, 1)
		s := newTestNode(t, 1, func(spec *Spec) { spec.Senders = group })
		p := newScriptedPeer(s, false)
		object := s.putObject(bytesOf(20 * fullChunk)).String()
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		p.mustSend(&oap.Start{Stream: 3, Obj: object})
		synctest.Wait()
		if heard := p.takeSent(); !slices.Contains(heard, "end 3 0 Busy") || len(heard) != 17 {
			t.Error(heard)
		}
		s.Closed(p)
		synctest.Wait()
		s.checkIdle()
	})
}

// A peer that starts and cancels in a loop gets no more tasks than twice what
// it may have open, even while opening an object takes its time.
func TestStartAndCancelInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, tasks := make(chan struct{}), make(chan struct{}, 100)
		s := newTestNode(t, 1, func(spec *Spec) {
			spec.PerPeer = 2
			spec.Open = func(context.Context, b3.Address) (Source, error) {
				tasks <- struct{}{}
				<-stuck
				return nil, fault.NotFound
			}
		})
		p := newScriptedPeer(s, false)
		for i := range 50 {
			p.mustSend(&oap.Start{Stream: uint64(2*i + 1), Obj: b3.Of(nil).String()})
			p.mustSend(&oap.End{Stream: uint64(2*i + 1), Status: "Canceled"})
		}
		synctest.Wait()
		if len(tasks) != 4 {
			t.Errorf("%d tasks", len(tasks))
		}
		s.wantEnded(Tx, "QuotaExceeded", 46)
		close(stuck)
		synctest.Wait()
		s.checkIdle()
		p.takeSent()
		p.mustSend(&oap.Start{Stream: 999, Obj: b3.Of(nil).String()})
		synctest.Wait()
		p.wantSent("end 999 0 NotFound")
	})
}

// A receiver that acknowledges nothing loses the stream after five seconds, and
// holds no memory meanwhile.
func TestAskerThatStops(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		object := s.putObject(bytesOf(40 * fullChunk)).String()
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.wantSent(chunksOf(1, 0, 15)...)
		time.Sleep(4 * time.Second)
		p.mustSend(&oap.Ack{Stream: 1, UpTo: 0})
		synctest.Wait()
		p.wantSent(chunksOf(1, 16, 16)...)
		time.Sleep(patience - time.Millisecond)
		p.wantSent()
		time.Sleep(2 * time.Millisecond)
		p.wantSent("end 1 17 Timeout")
		s.wantEnded(Tx, "Timeout", 1)
		p.mustSend(&oap.Ack{Stream: 1, UpTo: 16}) // too late
		time.Sleep(time.Minute)
		p.wantSent()
	})
}

// No more than two chunks of a stream are in the session's queue, and when that
// does not move for five seconds the stream is over.
func TestConnectionThatTakesNothing(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		object := s.putObject(bytesOf(5 * fullChunk)).String()
		p.set(func() { p.hold = true })
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.wantSent(chunksOf(1, 0, 1)...)
		time.Sleep(4 * time.Second)
		first := p.queued()[0]
		callWritten(first, nil)
		callWritten(first, nil) // a second call, which must not count
		synctest.Wait()
		p.wantSent(chunksOf(1, 2, 2)...)
		time.Sleep(patience + time.Millisecond)
		p.wantSent("end 1 3 Timeout")
		if s.Open() != 1 {
			t.Error("a stream whose end was not written yet counts as open")
		}
		for _, out := range p.queued() {
			callWritten(out, nil)
		}
	})
}

// A full queue of the session is retried, a closed one is not.
func TestSessionWithoutRoom(t *testing.T) {
	busy := fault.New("fake", fault.Busy, "full")
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		object := s.putObject(bytesOf(5)).String()
		p.set(func() { p.refusal = busy })
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		time.Sleep(time.Second)
		p.set(func() { p.refusal = nil })
		time.Sleep(time.Second)
		p.wantSent("data 1 0 (5)", "end 1 1 ok")
	})
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		object := s.putObject(bytesOf(5)).String()
		p.set(func() { p.refusal = busy })
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		time.Sleep(patience + time.Second)
		p.set(func() { p.refusal = nil })
		time.Sleep(time.Second)
		p.wantSent("end 1 0 Busy")
	})
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) { // the receiver leaves during the retries
		object := s.putObject(bytesOf(5)).String()
		p.set(func() { p.refusal = busy })
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.mustSend(&oap.End{Stream: 1, Status: "Canceled"})
		synctest.Wait()
		s.checkIdle()
	})
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) { // no room for a refusal either: it is not retried
		p.set(func() { p.refusal = busy })
		p.mustSend(&oap.Start{Stream: 1, Obj: "nothing"})
		s.checkIdle()
	})
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		object := s.putObject(bytesOf(5)).String()
		p.set(func() { p.refusal = io.ErrClosedPipe })
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		s.checkIdle()
	})
}

// failingSource is an object that changes while it is sent.
type failingSource struct {
	content
	at  int64
	err error
}

func (f failingSource) ReadAt(p []byte, at int64) (int, error) {
	if at < f.at {
		return f.content.ReadAt(p, at)
	}
	if f.err != nil {
		return 0, f.err
	}
	panic("a bug in a store")
}

func TestObjectThatVanishes(t *testing.T) {
	for _, c := range []struct {
		err    error
		status string
	}{
		{fault.NotFound, "NotFound"}, {fault.New("store.read", fault.IntegrityFail, "damaged"), "IntegrityFail"},
		{io.EOF, "IntegrityFail"}, {errors.New("disk"), "Internal"}, {nil, "Internal"},
	} {
		testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
			data := bytesOf(5 * fullChunk)
			address := s.putObject(data)
			s.put(address, failingSource{content: s.objects[address].(content), at: 2 * fullChunk, err: c.err})
			p.mustSend(&oap.Start{Stream: 1, Obj: address.String()})
			synctest.Wait()
			p.wantSent(append(chunksOf(1, 0, 1), "end 1 2 "+c.status)...)
		})
	}
}

// remoteSource is an object whose reads wait for a store, and end with the
// context that it was opened with.
type remoteSource struct {
	content
	ctx   context.Context
	slow  int64 // from here on the store does not answer
	delay time.Duration
}

func (r remoteSource) ReadAt(p []byte, at int64) (int, error) {
	if at >= r.slow {
		<-r.ctx.Done()
	} else {
		time.Sleep(r.delay)
	}
	if r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	return r.content.ReadAt(p, at)
}

// Our own store gets as much patience as a peer, for each step anew.
func TestStoreThatIsSlow(t *testing.T) {
	data := bytesOf(4 * fullChunk)
	for _, c := range []struct {
		slow int64
		want []string
	}{
		{-1, []string{"end 1 0 Timeout"}},
		{0, []string{"end 1 0 Timeout"}},
		{2 * fullChunk, append(chunksOf(1, 0, 1), "end 1 2 Timeout")},
		{4 * fullChunk, append(chunksOf(1, 0, 3), "end 1 4 ok")},
	} {
		testSender(t, func(t *testing.T, _ *testNode, p *scriptedPeer) {
			p.mustSend(&oap.Start{Stream: 1, Obj: b3.Of(data).String()})
			time.Sleep(time.Minute)
			p.wantSent(c.want...)
		}, func(spec *Spec) {
			spec.Open = func(ctx context.Context, _ b3.Address) (Source, error) {
				if c.slow < 0 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return remoteSource{content{bytes.NewReader(data)}, ctx, c.slow, patience - time.Millisecond}, nil
			}
		})
	}
}

// A receiver that leaves gets nothing more, and the object is closed.
func TestAskerThatLeaves(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		object := s.putObject(bytesOf(40 * fullChunk)).String()
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.takeSent()
		p.mustSend(&oap.End{Stream: 1, Seq: 16, Status: "Canceled"})
		synctest.Wait()
		s.checkIdle()
		s.wantEnded(Tx, "Canceled", 1)
		p.mustSend(&oap.Ack{Stream: 1, UpTo: 3})
		p.mustSend(&oap.End{Stream: 1, Seq: 16, Status: "Canceled"})
		time.Sleep(time.Minute)
		p.wantSent()
	})
}

// When the node stops, unfinished streams end with Canceled.
func TestSendersThatAreStopped(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		object := s.putObject(bytesOf(40 * fullChunk)).String()
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.takeSent()
		s.group.Close()
		synctest.Wait()
		p.wantSent("end 1 16 Canceled")
	})
}

func TestSessionThatEndsUnderASender(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		object := s.putObject(bytesOf(40 * fullChunk)).String()
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.takeSent()
		s.Closed(p)
		synctest.Wait()
		s.checkIdle()
		s.wantEnded(Tx, "lost", 1)
		p.mustSend(&oap.Start{Stream: 3, Obj: object}) // after the end of the session everything is ignored
		s.Closed(p)
		p.wantSent()
	})
}

// Only the sender may send data.
func TestDataFromTheAsker(t *testing.T) {
	testSender(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		p.mustSend(&oap.Data{Stream: 1, Bytes: []byte("x")}) // of a stream that never existed
		p.mustSend(&oap.Ack{Stream: 1})
		p.mustSend(&oap.End{Stream: 1, Status: "ok"})
		p.mustSend(&oap.Ping{}) // of another package
		object := s.putObject(bytesOf(40 * fullChunk)).String()
		p.mustSend(&oap.Start{Stream: 1, Obj: object})
		testkit.WantKind(t, p.send(&oap.Data{Stream: 1, Bytes: []byte("x")}), fault.Malformed, "data from the asker")
	})
}
