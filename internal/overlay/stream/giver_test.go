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
)

// giver runs a test of the giving side against a peer that the test plays. The
// node was dialed, so the peer's numbers are odd.
func giver(t *testing.T, test func(t *testing.T, s *side, p *script), options ...option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSide(t, 1, options...)
		p := newScript(s, false)
		test(t, s, p)
		s.Closed(p)
		synctest.Wait()
		s.quiet()
	})
}

// chunksOf is what a stream says from one chunk to another, all of them full.
func chunksOf(stream, first, last int) (all []string) {
	for seq := first; seq <= last; seq++ {
		all = append(all, fmt.Sprintf("data %d %d (%d)", stream, seq, full))
	}
	return all
}

// The example of the protocol, message for message.
func TestGiverKeepsToItsCredit(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		address := s.keep(bytesOf(1_500_000))
		p.says(&oap.Start{Stream: 1, Obj: address.String()})
		synctest.Wait()
		p.expect(chunksOf(1, 0, 15)...)
		time.Sleep(patience - time.Millisecond) // nothing more, however long it takes
		p.expect()
		p.says(&oap.Ack{Stream: 1, UpTo: 7})
		synctest.Wait()
		p.expect(append(chunksOf(1, 16, 21), "data 1 22 (58208)", "end 1 23 ok")...)
		p.says(&oap.Ack{Stream: 1, UpTo: 22}) // it crossed the end
		s.counted(Tx, "ok", 1)
		s.read(func() {
			if s.bytes[Tx] != 1_500_000 {
				t.Errorf("%d bytes were counted", s.bytes[Tx])
			}
		})
	})
}

// One ack, one more chunk: the credit is exact.
func TestCreditIsExact(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		address := s.keep(bytesOf(40 * full))
		p.says(&oap.Start{Stream: 3, Obj: address.String()})
		synctest.Wait()
		p.expect(chunksOf(3, 0, 15)...)
		p.says(&oap.Ack{Stream: 3, UpTo: 0})
		synctest.Wait()
		p.expect(chunksOf(3, 16, 16)...)
		for _, late := range []uint64{0, 0} { // repeats are ignored, and give no credit
			p.says(&oap.Ack{Stream: 3, UpTo: late})
		}
		p.says(&oap.Ack{Stream: 3, UpTo: 5})
		p.says(&oap.Ack{Stream: 3, UpTo: 2}) // so are those that go back
		synctest.Wait()
		p.expect(chunksOf(3, 17, 21)...)
		if err := p.say(&oap.Ack{Stream: 3, UpTo: 22}); fault.KindOf(err) != fault.Malformed || oap.CodeOf(err) != oap.Malformed {
			t.Errorf("an ack for what was not sent: %v", err)
		}
		if err := p.say(&oap.Ack{Stream: 3, UpTo: 1<<64 - 1}); fault.KindOf(err) != fault.Malformed {
			t.Errorf("an ack for the last chunk there can be: %v", err)
		}
	})
}

// steady is an object that is read at its own pace.
type steady struct{ content }

func (s steady) ReadAt(p []byte, at int64) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return s.content.ReadAt(p, at)
}

// A peer may break the rule of acks at any time, also while the next chunk is on
// its way; the race detector looks after what it is compared with.
func TestAckOfWhatWasNotSentWhileMoreIsSent(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		data := bytesOf(8 * full)
		s.put(b3.Of(data), steady{content{bytes.NewReader(data)}})
		p.says(&oap.Start{Stream: 1, Obj: b3.Of(data).String()})
		for range 3 {
			time.Sleep(25 * time.Millisecond)
			if err := p.say(&oap.Ack{Stream: 1, UpTo: 99}); fault.KindOf(err) != fault.Malformed {
				t.Errorf("an ack for what was not sent: %v", err)
			}
		}
		time.Sleep(time.Second)
		p.expect(append(chunksOf(1, 0, 7), "end 1 8 ok")...)
	})
}

// What is asked for, what is given: sizes, and offsets of a resume.
func TestGiverSendsWhatIsAskedFor(t *testing.T) {
	big := 1_500_000
	for _, c := range []struct {
		size, from int
		want       []string
	}{
		{0, 0, []string{"end 1 0 ok"}},
		{1, 0, []string{"data 1 0 (1)", "end 1 1 ok"}},
		{1, 1, []string{"end 1 0 ok"}},
		{full - 1, 0, []string{"data 1 0 (65535)", "end 1 1 ok"}},
		{full, 0, []string{"data 1 0 (65536)", "end 1 1 ok"}},
		{full + 1, 0, []string{"data 1 0 (65536)", "data 1 1 (1)", "end 1 2 ok"}},
		{16 * full, 0, append(chunksOf(1, 0, 15), "end 1 16 ok")},
		{big, 655_360, append(chunksOf(1, 0, 11), "data 1 12 (58208)", "end 1 13 ok")},
		{big, big - 1, []string{"data 1 0 (1)", "end 1 1 ok"}},
		{big, big, []string{"end 1 0 ok"}},
		{big, big + 1, []string{"end 1 0 InvalidRange"}},
		{0, 1, []string{"end 1 0 InvalidRange"}},
	} {
		giver(t, func(t *testing.T, s *side, p *script) {
			address := s.keep(bytesOf(c.size))
			p.says(&oap.Start{Stream: 1, Obj: address.String(), From: uint64(c.from)})
			synctest.Wait()
			p.expect(c.want...)
		})
	}
	giver(t, func(t *testing.T, s *side, p *script) {
		address := s.keep(bytesOf(10))
		p.says(&oap.Start{Stream: 1, Obj: address.String(), From: 1<<64 - 1})
		synctest.Wait()
		p.expect("end 1 0 InvalidRange")
	})
}

// All frames of a stream are answers with the number of its start.
func TestAnswersHaveTheNumberOfTheirRequest(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		address := s.keep(bytesOf(full + 5))
		p.says(&oap.Start{Stream: 1, Obj: address.String()})
		p.says(&oap.Start{Stream: 3, Obj: "b3:nothing"})
		synctest.Wait()
		for _, out := range p.out {
			if out.Flags != oap.Resp || out.Corr != 77 {
				t.Errorf("%s has flags %d and corr %d", text(out.Message), out.Flags, out.Corr)
			}
		}
		if n := len(p.heard()); n != 4 {
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
		giver(t, func(t *testing.T, s *side, p *script) {
			s.refuse(c.refusal)
			p.says(&oap.Start{Stream: 1, Obj: b3.Of(nil).String()})
			synctest.Wait()
			p.expect("end 1 0 " + c.status)
			label := c.status
			if label == "Internal" {
				label = "other"
			}
			s.counted(Tx, label, 1)
			s.refuse(nil)
			address := s.keep([]byte("x"))
			p.says(&oap.Start{Stream: 1, Obj: address.String()}) // the number is free again
			synctest.Wait()
			p.expect("data 1 0 (1)", "end 1 1 ok")
		})
	}
	giver(t, func(t *testing.T, _ *side, p *script) {
		for i, bad := range []string{"b3:", "x", "b3:" + fmt.Sprintf("%064X", 0xabc), "name:docs"} {
			p.says(&oap.Start{Stream: uint64(2*i + 1), Obj: bad})
			p.expect(fmt.Sprintf("end %d 0 Malformed", 2*i+1))
		}
	})
	giver(t, func(_ *testing.T, s *side, p *script) {
		address := s.keep([]byte("x"))
		s.Drain()
		p.says(&oap.Start{Stream: 1, Obj: address.String()})
		p.expect("end 1 0 Canceled")
	})
	giver(t, func(_ *testing.T, s *side, p *script) {
		address := s.keep([]byte("x"))
		s.group.Close()
		p.says(&oap.Start{Stream: 1, Obj: address.String()})
		p.expect("end 1 0 Canceled")
	})
}

// Whoever asks chooses the number; the other kind, and one that is open, are
// not there to be chosen.
func TestStreamNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide(t, 1)
		object := s.keep(bytesOf(20 * full)).String()
		for _, dialed := range []bool{true, false} {
			p := newScript(s, dialed)
			good, bad := uint64(1), uint64(0)
			if dialed {
				good, bad = 0, 1 // zero is even
			}
			isKind(t, "a number of the other kind", p.say(&oap.Start{Stream: bad, Obj: object}), fault.Malformed)
			p.says(&oap.Start{Stream: good, Obj: object})
			isKind(t, "a number that is open", p.say(&oap.Start{Stream: good, Obj: object}), fault.Malformed)
			synctest.Wait()
			p.says(&oap.End{Stream: good, Status: "Canceled"})
			p.says(&oap.Start{Stream: good, Obj: object})
			synctest.Wait()
			s.Closed(p)
		}
		synctest.Wait()
		s.quiet()
	})
}

func TestTooManyStreams(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		object := s.keep(bytesOf(20 * full)).String()
		for i := range 3 {
			p.says(&oap.Start{Stream: uint64(2*i + 1), Obj: object})
		}
		synctest.Wait()
		p.heard()
		p.says(&oap.Start{Stream: 9, Obj: object})
		p.expect("end 9 0 QuotaExceeded")
		p.says(&oap.End{Stream: 3, Status: "Canceled"})
		p.says(&oap.Start{Stream: 9, Obj: object})
		synctest.Wait()
		p.expect(chunksOf(9, 0, 15)...)

		q := newScript(s, false) // another peer has its own
		q.says(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		q.expect(chunksOf(1, 0, 15)...)
		s.Closed(q)
	}, func(spec *Spec) { spec.PerPeer = 3 })

	synctest.Test(t, func(t *testing.T) { // all tasks are taken
		group := newGroup(t, 1)
		s := newSide(t, 1, func(spec *Spec) { spec.Givers = group })
		p := newScript(s, false)
		object := s.keep(bytesOf(20 * full)).String()
		p.says(&oap.Start{Stream: 1, Obj: object})
		p.says(&oap.Start{Stream: 3, Obj: object})
		synctest.Wait()
		if heard := p.heard(); !slices.Contains(heard, "end 3 0 Busy") || len(heard) != 17 {
			t.Error(heard)
		}
		s.Closed(p)
		synctest.Wait()
		s.quiet()
	})
}

// A peer that starts and cancels in a loop gets no more tasks than twice what
// it may have open, even while opening an object takes its time.
func TestStartAndCancelInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, tasks := make(chan struct{}), make(chan struct{}, 100)
		s := newSide(t, 1, func(spec *Spec) {
			spec.PerPeer = 2
			spec.Open = func(context.Context, b3.Address) (Source, error) {
				tasks <- struct{}{}
				<-stuck
				return nil, fault.NotFound
			}
		})
		p := newScript(s, false)
		for i := range 50 {
			p.says(&oap.Start{Stream: uint64(2*i + 1), Obj: b3.Of(nil).String()})
			p.says(&oap.End{Stream: uint64(2*i + 1), Status: "Canceled"})
		}
		synctest.Wait()
		if len(tasks) != 4 {
			t.Errorf("%d tasks", len(tasks))
		}
		s.counted(Tx, "QuotaExceeded", 46)
		close(stuck)
		synctest.Wait()
		s.quiet()
		p.heard()
		p.says(&oap.Start{Stream: 999, Obj: b3.Of(nil).String()})
		synctest.Wait()
		p.expect("end 999 0 NotFound")
	})
}

// An asker that acknowledges nothing loses the stream after five seconds, and
// pins nothing meanwhile.
func TestAskerThatStops(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		object := s.keep(bytesOf(40 * full)).String()
		p.says(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.expect(chunksOf(1, 0, 15)...)
		time.Sleep(4 * time.Second)
		p.says(&oap.Ack{Stream: 1, UpTo: 0})
		synctest.Wait()
		p.expect(chunksOf(1, 16, 16)...)
		time.Sleep(patience - time.Millisecond)
		p.expect()
		time.Sleep(2 * time.Millisecond)
		p.expect("end 1 17 Timeout")
		s.counted(Tx, "Timeout", 1)
		p.says(&oap.Ack{Stream: 1, UpTo: 16}) // too late
		time.Sleep(time.Minute)
		p.expect()
	})
}

// No more than two chunks of a stream wait in the session's queue, and when
// that does not move for five seconds the stream is over.
func TestConnectionThatTakesNothing(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		object := s.keep(bytesOf(5 * full)).String()
		p.set(func() { p.hold = true })
		p.says(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.expect(chunksOf(1, 0, 1)...)
		time.Sleep(4 * time.Second)
		first := p.queued()[0]
		tellWritten(first, nil)
		tellWritten(first, nil) // once too often, which must not count
		synctest.Wait()
		p.expect(chunksOf(1, 2, 2)...)
		time.Sleep(patience + time.Millisecond)
		p.expect("end 1 3 Timeout")
		if s.Open() != 1 {
			t.Error("a stream whose end was not written yet counts as open")
		}
		for _, out := range p.queued() {
			tellWritten(out, nil)
		}
	})
}

// A full queue of the session is tried again, a closed one is not.
func TestSessionWithoutRoom(t *testing.T) {
	busy := fault.New("fake", fault.Busy, "full")
	giver(t, func(t *testing.T, s *side, p *script) {
		object := s.keep(bytesOf(5)).String()
		p.set(func() { p.refusal = busy })
		p.says(&oap.Start{Stream: 1, Obj: object})
		time.Sleep(time.Second)
		p.set(func() { p.refusal = nil })
		time.Sleep(time.Second)
		p.expect("data 1 0 (5)", "end 1 1 ok")
	})
	giver(t, func(t *testing.T, s *side, p *script) {
		object := s.keep(bytesOf(5)).String()
		p.set(func() { p.refusal = busy })
		p.says(&oap.Start{Stream: 1, Obj: object})
		time.Sleep(patience + time.Second)
		p.set(func() { p.refusal = nil })
		time.Sleep(time.Second)
		p.expect("end 1 0 Busy")
	})
	giver(t, func(t *testing.T, s *side, p *script) { // the asker leaves while we try
		object := s.keep(bytesOf(5)).String()
		p.set(func() { p.refusal = busy })
		p.says(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.says(&oap.End{Stream: 1, Status: "Canceled"})
		synctest.Wait()
		s.quiet()
	})
	giver(t, func(t *testing.T, s *side, p *script) { // no room for a refusal either: it is not waited for
		p.set(func() { p.refusal = busy })
		p.says(&oap.Start{Stream: 1, Obj: "nothing"})
		s.quiet()
	})
	giver(t, func(t *testing.T, s *side, p *script) {
		object := s.keep(bytesOf(5)).String()
		p.set(func() { p.refusal = io.ErrClosedPipe })
		p.says(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		s.quiet()
	})
}

// fading is an object that changes while it is given.
type fading struct {
	content
	at  int64
	err error
}

func (f fading) ReadAt(p []byte, at int64) (int, error) {
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
		giver(t, func(t *testing.T, s *side, p *script) {
			data := bytesOf(5 * full)
			address := s.keep(data)
			s.put(address, fading{content: s.objects[address].(content), at: 2 * full, err: c.err})
			p.says(&oap.Start{Stream: 1, Obj: address.String()})
			synctest.Wait()
			p.expect(append(chunksOf(1, 0, 1), "end 1 2 "+c.status)...)
		})
	}
}

// remote is an object whose reads wait for a store, and end with the context
// that it was opened with.
type remote struct {
	content
	ctx   context.Context
	slow  int64 // from here on the store says nothing
	delay time.Duration
}

func (r remote) ReadAt(p []byte, at int64) (int, error) {
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
	data := bytesOf(4 * full)
	for _, c := range []struct {
		slow int64
		want []string
	}{
		{-1, []string{"end 1 0 Timeout"}},
		{0, []string{"end 1 0 Timeout"}},
		{2 * full, append(chunksOf(1, 0, 1), "end 1 2 Timeout")},
		{4 * full, append(chunksOf(1, 0, 3), "end 1 4 ok")},
	} {
		giver(t, func(t *testing.T, _ *side, p *script) {
			p.says(&oap.Start{Stream: 1, Obj: b3.Of(data).String()})
			time.Sleep(time.Minute)
			p.expect(c.want...)
		}, func(spec *Spec) {
			spec.Open = func(ctx context.Context, _ b3.Address) (Source, error) {
				if c.slow < 0 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return remote{content{bytes.NewReader(data)}, ctx, c.slow, patience - time.Millisecond}, nil
			}
		})
	}
}

// An asker that leaves hears nothing more, and the object is let go.
func TestAskerThatLeaves(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		object := s.keep(bytesOf(40 * full)).String()
		p.says(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.heard()
		p.says(&oap.End{Stream: 1, Seq: 16, Status: "Canceled"})
		synctest.Wait()
		s.quiet()
		s.counted(Tx, "Canceled", 1)
		p.says(&oap.Ack{Stream: 1, UpTo: 3})
		p.says(&oap.End{Stream: 1, Seq: 16, Status: "Canceled"})
		time.Sleep(time.Minute)
		p.expect()
	})
}

// When the node stops, streams that are not done say Canceled.
func TestGiversThatAreStopped(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		object := s.keep(bytesOf(40 * full)).String()
		p.says(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.heard()
		s.group.Close()
		synctest.Wait()
		p.expect("end 1 16 Canceled")
	})
}

func TestSessionThatEndsUnderAGiver(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		object := s.keep(bytesOf(40 * full)).String()
		p.says(&oap.Start{Stream: 1, Obj: object})
		synctest.Wait()
		p.heard()
		s.Closed(p)
		synctest.Wait()
		s.quiet()
		s.counted(Tx, "lost", 1)
		p.says(&oap.Start{Stream: 3, Obj: object}) // after the end of the session nothing is heard
		s.Closed(p)
		p.expect()
	})
}

// Data is for the one who asked to get, and not to send.
func TestDataFromTheAsker(t *testing.T) {
	giver(t, func(t *testing.T, s *side, p *script) {
		p.says(&oap.Data{Stream: 1, Bytes: []byte("x")}) // of a stream that never was
		p.says(&oap.Ack{Stream: 1})
		p.says(&oap.End{Stream: 1, Status: "ok"})
		p.says(&oap.Ping{}) // another room's
		object := s.keep(bytesOf(40 * full)).String()
		p.says(&oap.Start{Stream: 1, Obj: object})
		isKind(t, "data from the asker", p.say(&oap.Data{Stream: 1, Bytes: []byte("x")}), fault.Malformed)
	})
}
