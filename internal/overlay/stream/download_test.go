package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/testkit"
)

// testReceiver runs a test of the receiving side against a peer that the test
// plays. The node dialled it, so the node's numbers are odd.
func testReceiver(t *testing.T, test func(t *testing.T, s *testNode, p *scriptedPeer), options ...option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t, 1, options...)
		p := newScriptedPeer(s, true)
		test(t, s, p)
		s.Closed(p)
		synctest.Wait()
		s.checkIdle()
	})
}

// backgroundFetch is a download that runs beside the test.
type backgroundFetch struct {
	got  []byte
	err  error
	done chan struct{}
}

// startFetch fetches an object, or tries to.
func startFetch(ctx context.Context, s *testNode, address b3.Address, from func([]oap.PeerID) Peer) *backgroundFetch {
	f := &backgroundFetch{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.got, f.err = s.fetch(ctx, address, from)
	}()
	synctest.Wait()
	return f
}

// wantError waits for the end of a fetch that fails.
func (f *backgroundFetch) wantError(t *testing.T, want fault.Kind) {
	t.Helper()
	<-f.done
	testkit.WantKind(t, f.err, want, "the fetch")
}

// sendChunks sends chunks of an object by the rules, as far as there is credit.
func (p *scriptedPeer) sendChunks(stream uint64, data []byte, first, last int) {
	p.t.Helper()
	for seq := first; seq <= last; seq++ {
		p.mustSend(&oap.Data{Stream: stream, Seq: uint64(seq), Bytes: data[seq*fullChunk : min((seq+1)*fullChunk, len(data))]})
	}
}

func TestFetchOfEverySize(t *testing.T) {
	for _, chunk := range []int{fullChunk, 1000} {
		for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 15 * chunk, 16 * chunk, 16*chunk + 1, 17 * chunk, 100*chunk - 3, 1_500_000} {
			for _, dialed := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					a, b := newTestNode(t, 1), newTestNode(t, 2)
					data := bytesOf(size)
					address := b.putObject(data)
					l, peer := dial(a, b, chunk, dialed)
					got, err := a.fetch(t.Context(), address, peersInTurn(peer))
					if err != nil || !bytes.Equal(got, data) {
						t.Errorf("%d bytes in chunks of %d: got %d, %v", size, chunk, len(got), err)
					}
					synctest.Wait()
					a.checkIdle()
					b.checkIdle()
					a.wantEnded(Rx, "ok", 1)
					b.wantEnded(Tx, "ok", 1)
					if most := peer.back.most; most > 3 {
						t.Errorf("%d frames of the stream waited in the session at a time", most)
					}
					if l.broke() != nil {
						t.Error(l.broke())
					}
					l.end()
				})
			}
		}
	}
}

// dial connects two nodes and returns b as a sees it.
func dial(a, b *testNode, chunk int, dialed bool) (*link, *linkEnd) {
	if dialed {
		l := connect(a, b, chunk)
		return l, l.a
	}
	l := connect(b, a, chunk)
	return l, l.b
}

// The frames of the example in the protocol.
func TestAskerSpeaksAsTheExample(t *testing.T) {
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		data := bytesOf(1_500_000)
		f := startFetch(t.Context(), s, b3.Of(data), peersInTurn(p))
		for _, out := range p.out {
			if out.Flags != oap.Req || out.Corr == 0 {
				t.Errorf("%s has flags %d and corr %d", summary(out.Message), out.Flags, out.Corr)
			}
		}
		corr := p.out[0].Corr
		p.wantSent("start 1 " + b3.Of(data).String() + " 0")
		p.sendChunks(1, data, 0, 15)
		synctest.Wait()
		for _, out := range p.out {
			if out.Flags != oap.Event || out.Corr != corr {
				t.Errorf("%s has flags %d and corr %d, the start had %d", summary(out.Message), out.Flags, out.Corr, corr)
			}
		}
		p.wantSent("ack 1 7", "ack 1 15")
		p.sendChunks(1, data, 16, 22)
		p.mustSend(&oap.End{Stream: 1, Seq: 23, Status: "ok"})
		<-f.done
		if f.err != nil || !bytes.Equal(f.got, data) {
			t.Errorf("%d bytes, %v", len(f.got), f.err)
		}
		p.wantSent()
	})
}

// Two downloads over one session have numbers of the same kind.
func TestAskerCountsUp(t *testing.T) {
	for _, dialed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestNode(t, 1)
			p := newScriptedPeer(s, dialed)
			address := b3.Of([]byte("x"))
			first, want := uint64(1), []string{"start 1 " + address.String() + " 0", "start 3 " + address.String() + " 0"}
			if !dialed {
				first, want = 2, []string{"start 2 " + address.String() + " 0", "start 4 " + address.String() + " 0"}
			}
			one := startFetch(t.Context(), s, address, peersInTurn(p))
			two := startFetch(t.Context(), s, address, peersInTurn(p))
			p.wantSent(want...)
			for _, n := range []uint64{first + 2, first} {
				p.mustSend(&oap.Data{Stream: n, Bytes: []byte("x")})
				p.mustSend(&oap.End{Stream: n, Seq: 1, Status: "ok"})
			}
			<-one.done
			<-two.done
			if one.err != nil || two.err != nil {
				t.Error(one.err, two.err)
			}
			s.Closed(p)
			s.checkIdle()
		})
	}
}

// Every rule about data: the session ends, the download fails with an error of
// the peer's, and the peer is not asked again.
func TestDataThatBreaksARule(t *testing.T) {
	data := bytesOf(20 * fullChunk)
	chunkOf := func(seq uint64, n int) *oap.Data { return &oap.Data{Stream: 1, Seq: seq, Bytes: data[:n]} }
	for name, c := range map[string]struct {
		before int // good chunks
		short  bool
		bad    *oap.Data
	}{
		"does not begin with 0": {0, false, chunkOf(1, fullChunk)},
		"a gap":                 {3, false, chunkOf(4, fullChunk)},
		"a repeat":              {3, false, chunkOf(2, fullChunk)},
		"beyond the credit":     {16, false, chunkOf(16, fullChunk)},
		"empty":                 {1, false, chunkOf(1, 0)},
		"too long":              {1, false, chunkOf(1, fullChunk+1)},
		"short in the middle":   {1, true, chunkOf(2, fullChunk)},
		"two short ones":        {1, true, chunkOf(2, 5)},
	} {
		testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
			d := make(chan *Download, 1)
			go func() { // it reads nothing, so that there is no new credit
				got, err := s.Fetch(t.Context(), b3.Of(data), samePeer(p))
				if c.before == 0 {
					testkit.WantKind(t, err, fault.UpstreamFailed, name)
				}
				d <- got
			}()
			synctest.Wait()
			p.sendChunks(1, data, 0, c.before-1)
			if c.short {
				p.mustSend(chunkOf(uint64(c.before), 7))
			}
			err := p.send(c.bad)
			if fault.KindOf(err) != fault.Malformed || oap.CodeOf(err) != oap.Malformed {
				t.Errorf("%s: %v", name, err)
			}
			if got := <-d; got != nil {
				_, err := io.ReadAll(got)
				testkit.WantKind(t, err, fault.UpstreamFailed, name)
				_ = got.Close()
			}
			if heard := p.takeSent(); len(heard) != 1 { // only the start
				t.Errorf("%s: %q", name, heard)
			}
			p.mustSend(chunkOf(0, 5)) // what comes later is for a stream that has ended
			s.wantEnded(Rx, "Malformed", 1)
		})
	}
}

// The end of the credit is counted from acks, not from what was read.
func TestCreditOfTheAskerIsExact(t *testing.T) {
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		data := bytesOf(40 * fullChunk)
		opened := make(chan *Download, 1)
		go func() {
			d, err := s.Fetch(t.Context(), b3.Of(data), peersInTurn(p))
			if err != nil {
				t.Error(err)
			}
			opened <- d
		}()
		synctest.Wait()
		p.takeSent()
		p.sendChunks(1, data, 0, 15)
		d := <-opened
		defer d.Close()
		if _, err := io.CopyN(io.Discard, d, 8*fullChunk); err != nil {
			t.Error(err)
		}
		p.wantSent("ack 1 7")
		if _, err := io.CopyN(io.Discard, d, 7*fullChunk); err != nil {
			t.Error(err)
		}
		p.wantSent()
		p.sendChunks(1, data, 16, 23)
		testkit.WantKind(t, p.send(&oap.Data{Stream: 1, Seq: 24, Bytes: data[:fullChunk]}), fault.Malformed, "one more")
	})
}

func TestAckFromTheSender(t *testing.T) {
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		ctx, cancel := context.WithCancel(t.Context())
		f := startFetch(ctx, s, b3.Of(nil), peersInTurn(p))
		p.takeSent()
		testkit.WantKind(t, p.send(&oap.Ack{Stream: 1}), fault.Malformed, "an ack from the giver")
		testkit.WantKind(t, p.send(&oap.Start{Stream: 1, Obj: b3.Of(nil).String()}), fault.Malformed, "a start with our number")
		cancel()
		f.wantError(t, fault.Canceled)
		p.wantSent("end 1 0 Canceled")
	})
}

// A slow consumer that continues acknowledges before the sender's patience
// ends.
func TestSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestNode(t, 1), newTestNode(t, 2)
		data := bytesOf(30 * fullChunk)
		address := b.putObject(data)
		l := connect(a, b, fullChunk)
		d, err := a.Fetch(t.Context(), address, peersInTurn(l.a))
		testkit.Must(t, err)
		var got []byte
		for part := make([]byte, fullChunk); ; {
			n, err := io.ReadFull(d, part)
			got = append(got, part[:n]...)
			if err != nil {
				break
			}
			time.Sleep(2 * time.Second) // eight of these would be too long
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes", len(got))
		}
		a.locked(func() {
			if a.resumed != 0 {
				t.Errorf("resumed %d times", a.resumed)
			}
		})
		_ = d.Close()
		l.end()
		synctest.Wait()
		a.checkIdle()
		b.checkIdle()
	})
}

// A consumer that stops holds sixteen chunks. The sender times out; when the
// consumer continues, so does the download, with a new stream.
func TestConsumerThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestNode(t, 1), newTestNode(t, 2)
		data := bytesOf(40 * fullChunk)
		address := b.putObject(data)
		l := connect(a, b, fullChunk)
		d, err := a.Fetch(t.Context(), address, samePeer(l.a))
		testkit.Must(t, err)
		got := make([]byte, 3*fullChunk+10)
		if _, err := io.ReadFull(d, got); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		b.wantEnded(Tx, "Timeout", 1)
		b.checkIdle()
		a.locked(func() {
			if kept := a.bytes[Rx] - 3*fullChunk; kept > 16*fullChunk {
				t.Errorf("%d bytes wait", kept)
			}
		})
		rest, err := io.ReadAll(d)
		if err != nil || !bytes.Equal(append(got, rest...), data) {
			t.Errorf("%d bytes, %v", len(got)+len(rest), err)
		}
		a.locked(func() {
			if a.resumed != 1 {
				t.Errorf("resumed %d times", a.resumed)
			}
		})
		_ = d.Close()
		l.end()
		synctest.Wait()
		a.checkIdle()
		b.checkIdle()
	})
}

// A sender that sends nothing, from the start or at some point, is abandoned
// after five seconds, and another one continues.
func TestSenderThatNeverSends(t *testing.T) {
	for _, before := range []int{0, 1, 5, 16} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newTestNode(t, 1), newTestNode(t, 2)
			data := bytesOf(20*fullChunk + 1)
			address := b.putObject(data)
			p, l := newScriptedPeer(a, true), connect(a, b, fullChunk)
			f := startFetch(t.Context(), a, address, peersInTurn(p, l.a))
			p.wantSent("start 1 " + address.String() + " 0")
			began := time.Now()
			if before > 0 { // the timer restarts with what comes
				time.Sleep(patience / 10)
				began = time.Now()
				p.sendChunks(1, data, 0, before-1)
			}
			<-f.done
			if f.err != nil || !bytes.Equal(f.got, data) {
				t.Errorf("after %d chunks: %d bytes, %v", before, len(f.got), f.err)
			}
			if took := time.Since(began); took != patience {
				t.Errorf("after %d chunks: it took %s", before, took)
			}
			heard := p.takeSent()
			if want := fmt.Sprintf("end 1 %d Timeout", before); heard[len(heard)-1] != want {
				t.Errorf("after %d chunks: %q, want %q", before, heard, want)
			}
			a.wantEnded(Rx, "Timeout", 1)
			a.Closed(p)
			l.end()
			synctest.Wait()
			a.checkIdle()
			b.checkIdle()
		})
	}
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		f := startFetch(t.Context(), s, b3.Of(nil), peersInTurn(p))
		f.wantError(t, fault.Timeout)
		if next := fault.NextOf(f.err); next == "" {
			t.Error("no next step")
		}
	})
}

// A download continues where it was, at every border of a chunk and inside one,
// and keeps its hash.
func TestResumeAtEveryChunk(t *testing.T) {
	const chunk = 1000
	for _, size := range []int{chunk, 20 * chunk, 20*chunk + 1} {
		data := bytesOf(size)
		for lostAt := range (size + chunk - 1) / chunk {
			synctest.Test(t, func(t *testing.T) {
				a, b, c := newTestNode(t, 1), newTestNode(t, 2), newTestNode(t, 3)
				address := b.putObject(data)
				c.putObject(data)
				l, other := connect(a, b, chunk), connect(a, c, 777) // the second splits at other offsets
				l.b.dropIf = func(m oap.Message) bool { d, ok := m.(*oap.Data); return ok && d.Seq == uint64(lostAt) }
				got, err := a.fetch(t.Context(), address, peersInTurn(l.a, other.a))
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("lost at %d: %d bytes, %v", lostAt, len(got), err)
				}
				c.locked(func() {
					if c.bytes[Tx] != size-lostAt*chunk {
						t.Errorf("lost at %d: the second gave %d bytes", lostAt, c.bytes[Tx])
					}
				})
				a.wantEnded(Rx, "lost", 1)
				l.end()
				other.end()
				synctest.Wait()
				a.checkIdle()
				b.checkIdle()
				c.checkIdle()
			})
		}
	}
}

// A reader that is in the middle of a chunk loses nothing and gets nothing twice.
func TestResumeInsideAChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestNode(t, 1), newTestNode(t, 2)
		data := bytesOf(40*fullChunk + 17)
		address := b.putObject(data)
		l := connect(a, b, fullChunk)
		d, err := a.Fetch(t.Context(), address, func([]oap.PeerID) Peer { return l.a })
		testkit.Must(t, err)
		var got []byte
		for _, n := range []int{1, fullChunk - 2, 3, fullChunk / 2, 5 * fullChunk, 9 * fullChunk, 10*fullChunk + 1, 7} {
			part := make([]byte, n)
			if _, err := io.ReadFull(d, part); err != nil {
				t.Fatal(err)
			}
			got = append(got, part...)
			synctest.Wait()
			l.end()
			l = connect(a, b, fullChunk)
		}
		rest, err := io.ReadAll(d)
		if got = append(got, rest...); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_ = d.Close()
		l.end()
		synctest.Wait()
		a.checkIdle()
		b.checkIdle()
	})
}

// As long as there is progress, the same peer is asked again and again.
func TestManyLossesWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestNode(t, 1), newTestNode(t, 2)
		data := bytesOf(3 * maxRepeats * fullChunk)
		address := b.putObject(data)
		var l *link
		got, err := a.fetch(t.Context(), address, func([]oap.PeerID) Peer {
			if l != nil {
				l.end()
			}
			l = connect(a, b, fullChunk)
			l.b.dropIf = func(m oap.Message) bool { d, ok := m.(*oap.Data); return ok && d.Seq == 1 }
			return l.a
		})
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		l.end()
	})
}

// A lost end is requested again: from equal to the size.
func TestLostEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestNode(t, 1), newTestNode(t, 2)
		data := bytesOf(3 * fullChunk)
		address := b.putObject(data)
		l := connect(a, b, fullChunk)
		l.b.dropIf = func(m oap.Message) bool { _, end := m.(*oap.End); return end }
		again := connect(a, b, fullChunk)
		tries := []Peer{l.a, again.a}
		got, err := a.fetch(t.Context(), address, func([]oap.PeerID) Peer { p := tries[0]; tries = tries[1:]; return p })
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		b.locked(func() {
			if b.bytes[Tx] != len(data) {
				t.Errorf("%d bytes were sent", b.bytes[Tx])
			}
		})
		l.end()
		again.end()
	})
}

// A wrong byte is found at the end, whichever peer sent it, and the download
// fails for good.
func TestWrongBytes(t *testing.T) {
	for _, size := range []int{1, fullChunk, 3*fullChunk + 1} {
		for _, wrong := range []func([]byte) []byte{
			func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
			func(b []byte) []byte { b[0] ^= 0x80; return b },
			func(b []byte) []byte { return b[:len(b)-1] },
			func(b []byte) []byte { return append(b, 0) },
		} {
			synctest.Test(t, func(t *testing.T) {
				a, b, c := newTestNode(t, 1), newTestNode(t, 2), newTestNode(t, 3)
				address := c.putObject(bytesOf(size))
				b.putAs(address, wrong(bytesOf(size)))
				l, other := connect(a, b, fullChunk), connect(a, c, fullChunk)
				asked := 0
				d, err := a.Fetch(t.Context(), address, func(tried []oap.PeerID) Peer { asked++; return peersInTurn(l.a, other.a)(tried) })
				if err == nil {
					_, err = io.ReadAll(d)
					_, again := d.Read(make([]byte, 1))
					testkit.WantKind(t, again, fault.IntegrityFail, "again")
					_ = d.Close()
				}
				testkit.WantKind(t, err, fault.IntegrityFail, "wrong bytes")
				if !errors.Is(err, b3.ErrMismatch) || !strings.Contains(fault.NextOf(err), "fetch the object again") {
					t.Error(err, fault.NextOf(err))
				}
				if asked != 1 {
					t.Errorf("%d peers were asked", asked)
				}
				a.locked(func() {
					if a.corrupt != 1 {
						t.Errorf("counted %d times", a.corrupt)
					}
				})
				l.end()
				other.end()
				synctest.Wait()
				a.checkIdle()
			})
		}
	}
}

// What a peer answers, and the result when there is no other peer.
func TestStatuses(t *testing.T) {
	for status, kind := range map[string]fault.Kind{
		"NotFound": fault.NotFound, "InvalidRange": fault.InvalidRange, "Malformed": fault.Malformed, "Busy": fault.Busy,
		"QuotaExceeded": fault.QuotaExceeded, "NotReady": fault.NotReady, "Canceled": fault.NotReady, "Timeout": fault.Timeout,
		"Forbidden": fault.Forbidden, "IntegrityFail": fault.IntegrityFail, "Internal": fault.Transient, "TooSunny": fault.Transient,
	} {
		testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
			f := startFetch(t.Context(), s, b3.Of(nil), peersInTurn(p))
			p.mustSend(&oap.End{Stream: 1, Status: status})
			f.wantError(t, kind)
			label := status
			if kind == fault.Transient {
				label = "other"
			}
			s.wantEnded(Rx, label, 1)
			if !slices.Contains(Statuses(), label) {
				t.Errorf("%s is not in the list", label)
			}
		})
	}
	if slices.Contains(Statuses(), "Internal") || !slices.Contains(Statuses(), "ok") || !slices.Contains(Statuses(), "lost") {
		t.Error(Statuses())
	}
}

// NotFound is returned only if all said so; another peer is tried for
// everything.
func TestWhomToAskNext(t *testing.T) {
	for _, c := range []struct {
		answers string
		want    fault.Kind
		asked   int
	}{
		{"", fault.NoRoute, 0},
		{"NotFound", fault.NotFound, 1},
		{"NotFound NotFound NotFound", fault.NotFound, 3},
		{"Busy NotFound", fault.Busy, 2},
		{"NotFound Busy NotFound", fault.Busy, 3},
		{"Busy Timeout NotFound", fault.Timeout, 3},
		{"Forbidden InvalidRange Malformed IntegrityFail NotReady ok", 0, 6},
		{"NotFound ok", 0, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestNode(t, 1)
			var peers []Peer
			var scripts []*scriptedPeer
			for range strings.Fields(c.answers) {
				p := newScriptedPeer(s, true)
				peers, scripts = append(peers, p), append(scripts, p)
			}
			f := startFetch(t.Context(), s, b3.Of(nil), peersInTurn(peers...))
			asked := 0
			for i, status := range strings.Fields(c.answers) {
				scripts[i].wantSent("start 1 " + b3.Of(nil).String() + " 0")
				asked++
				scripts[i].mustSend(&oap.End{Stream: 1, Status: status})
				synctest.Wait()
			}
			<-f.done
			if fault.KindOf(f.err) != c.want || asked != c.asked {
				t.Errorf("%q: %v after %d", c.answers, f.err, asked)
			}
			for _, p := range scripts {
				s.Closed(p)
			}
			s.checkIdle()
		})
	}
}

// A peer that has refused for good is not asked again, even if it is named.
func TestPeersThatAreNamedAgain(t *testing.T) {
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		f := startFetch(t.Context(), s, b3.Of(nil), samePeer(p))
		p.takeSent()
		p.mustSend(&oap.End{Stream: 1, Status: "NotFound"})
		f.wantError(t, fault.NotFound)
		p.wantSent()
	})
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) { // one that is busy is asked again, five times, with pauses
		began := time.Now()
		f := startFetch(t.Context(), s, b3.Of(nil), samePeer(p))
		for i := range maxRepeats + 1 {
			p.wantSent(fmt.Sprintf("start %d %s 0", 2*i+1, b3.Of(nil)))
			p.mustSend(&oap.End{Stream: uint64(2*i + 1), Status: "Busy"})
			if i < maxRepeats {
				synctest.Wait()
				p.wantSent() // not at once
				time.Sleep(repeatBackoff.Limit(i))
				synctest.Wait()
			}
		}
		f.wantError(t, fault.Busy)
		if took := time.Since(began); took < maxRepeats*repeatBackoff.Min || took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		p.wantSent()
	})
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) { // and the pause ends with the caller's context
		ctx, cancel := context.WithCancel(t.Context())
		f := startFetch(ctx, s, b3.Of(nil), samePeer(p))
		p.mustSend(&oap.End{Stream: 1, Status: "Busy"})
		synctest.Wait()
		cancel()
		f.wantError(t, fault.Canceled)
	})
}

// ok with a wrong number of chunks is a failure of the stream, and what came is
// kept.
func TestEndWithAWrongCount(t *testing.T) {
	for _, seq := range []uint64{0, 1, 3, 1<<64 - 1} {
		testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
			data := bytesOf(3 * fullChunk)
			f := startFetch(t.Context(), s, b3.Of(data), samePeer(p))
			p.takeSent()
			p.sendChunks(1, data, 0, 1)
			p.mustSend(&oap.End{Stream: 1, Seq: seq, Status: "ok"})
			time.Sleep(time.Second)
			p.wantSent(fmt.Sprintf("start 3 %s %d", b3.Of(data), 2*fullChunk))
			p.mustSend(&oap.Data{Stream: 3, Bytes: data[2*fullChunk:]})
			p.mustSend(&oap.End{Stream: 3, Seq: 1, Status: "ok"})
			<-f.done
			if f.err != nil || !bytes.Equal(f.got, data) {
				t.Errorf("%d bytes, %v", len(f.got), f.err)
			}
		})
	}
}

// A caller that leaves sends an end, and what comes after is ignored.
func TestClose(t *testing.T) {
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		data := bytesOf(20 * fullChunk)
		opened := make(chan *Download, 1)
		go func() {
			d, err := s.Fetch(t.Context(), b3.Of(data), peersInTurn(p))
			if err != nil {
				t.Error(err)
			}
			opened <- d
		}()
		synctest.Wait()
		p.takeSent()
		p.sendChunks(1, data, 0, 4)
		d := <-opened
		if n, err := d.Read(nil); n != 0 || err != nil {
			t.Error(n, err)
		}
		if size, known := d.Size(); known {
			t.Errorf("the size is known to be %d", size)
		}
		if n, err := d.Read(make([]byte, 10)); n != 10 || err != nil {
			t.Error(n, err)
		}
		_ = d.Close()
		p.wantSent("end 1 5 Canceled")
		if s.Open() != 0 {
			t.Error("the stream is open")
		}
		p.sendChunks(1, data, 5, 6)
		p.mustSend(&oap.End{Stream: 1, Seq: 7, Status: "ok"})
		_ = d.Close()
		p.wantSent()
		_, err := d.Read(make([]byte, 10))
		testkit.WantKind(t, err, fault.Canceled, "a read after Close")
		s.wantEnded(Rx, "Canceled", 1)
	})
}

// The context is that of the whole download.
func TestContextEnds(t *testing.T) {
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := startFetch(ctx, s, b3.Of(bytesOf(fullChunk)), peersInTurn(p))
		p.takeSent()
		f.wantError(t, fault.Timeout)
		p.wantSent("end 1 0 Canceled")
	})
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		ctx, cancel := context.WithCancel(t.Context())
		data := bytesOf(3 * fullChunk)
		go func() {
			d, err := s.Fetch(ctx, b3.Of(data), peersInTurn(p))
			if err != nil {
				t.Error(err)
				return
			}
			cancel()
			_, err = io.ReadAll(d)
			testkit.WantKind(t, err, fault.Canceled, "reading")
			_ = d.Close()
		}()
		synctest.Wait()
		p.sendChunks(1, data, 0, 0)
		synctest.Wait()
		p.wantSent("start 1 "+b3.Of(data).String()+" 0", "end 1 1 Canceled")
	})
}

// Sessions that do not exist, that have no room, and that end.
func TestSessionsThatCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t, 1)
		never := &scriptedPeer{t: t, s: s, serial: serials.Add(1)}
		_, err := s.Fetch(t.Context(), b3.Of(nil), peersInTurn(never))
		testkit.WantKind(t, err, fault.Transient, "a session that is not open")

		p := newScriptedPeer(s, true)
		p.set(func() { p.controlErr = fault.New("fake", fault.Busy, "full") })
		_, err = s.Fetch(t.Context(), b3.Of(nil), peersInTurn(p))
		testkit.WantKind(t, err, fault.Busy, "a session without room")
		p.set(func() { p.controlErr = flow.ErrClosed })
		_, err = s.Fetch(t.Context(), b3.Of(nil), peersInTurn(p))
		testkit.WantKind(t, err, fault.Transient, "a session that is closing")
		p.set(func() { p.controlErr = nil })

		f := startFetch(t.Context(), s, b3.Of(nil), peersInTurn(p))
		s.Closed(p)
		f.wantError(t, fault.Transient)
		crossed := newStreamTable(s.Streams, p) // the session ends between the look-up and the request
		crossed.close()
		testkit.WantKind(t, crossed.request(new(receiver), 0, 0), fault.Transient, "a session that has just ended")
		s.Drain()
		_, err = s.Fetch(t.Context(), b3.Of(nil), peersInTurn(p))
		testkit.WantKind(t, err, fault.NotReady, "a node that drains")
		s.checkIdle()
	})
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		ctx, cancel := context.WithCancel(t.Context())
		f := startFetch(ctx, s, b3.Of(nil), peersInTurn(p))
		_, err := s.Fetch(t.Context(), b3.Of(nil), peersInTurn(p))
		testkit.WantKind(t, err, fault.Busy, "too many at one peer")
		cancel()
		f.wantError(t, fault.Canceled)
	}, func(spec *Spec) { spec.PerPeer = 1 })
}

// A session that begins to drain drops a queued start, and reports it.
func TestStartThatIsDropped(t *testing.T) {
	for dropped, want := range map[error]fault.Kind{
		fault.New("overlay.send", fault.NotReady, "one of the two drains"): fault.NotReady, flow.ErrClosed: fault.Transient, nil: fault.Timeout,
	} {
		testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
			p.set(func() { p.hold = true })
			began := time.Now()
			f := startFetch(t.Context(), s, b3.Of(nil), peersInTurn(p))
			callWritten(p.queued()[0], dropped)
			f.wantError(t, want)
			if took := time.Since(began); dropped != nil && took != 0 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// A chunk that comes in the moment in which the reading task leaves is
// released.
func TestChunkThatCrossesTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t, 1)
		k := newReceiver(newStreamTable(s.Streams, newScriptedPeer(s, true)), b3.Of(nil), oap.Whole)
		k.close("Canceled")
		k.deliver([]byte("x"))
		if k.arrivals.Len() != 0 {
			t.Error("it was kept")
		}
		s.checkIdle()
	})
}

// An ack that the session has no room for is covered by the next one.
func TestAckWithoutRoom(t *testing.T) {
	testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
		data := bytesOf(16 * fullChunk)
		f := startFetch(t.Context(), s, b3.Of(data), peersInTurn(p))
		p.takeSent()
		p.set(func() { p.controlErr = fault.New("fake", fault.Busy, "full") })
		p.sendChunks(1, data, 0, 9)
		synctest.Wait()
		p.wantSent()
		p.set(func() { p.controlErr = nil })
		p.sendChunks(1, data, 10, 15)
		synctest.Wait()
		p.wantSent("ack 1 10")
		p.mustSend(&oap.End{Stream: 1, Seq: 16, Status: "ok"})
		<-f.done
		if f.err != nil {
			t.Error(f.err)
		}
	})
}

// Without counters everything works; the size is known at the end.
func TestSizeAtTheEnd(t *testing.T) {
	testReceiver(t, func(t *testing.T, s *testNode, _ *scriptedPeer) {
		quiet := New(s.inv, Spec{Open: s.openObject, Senders: s.group})
		s.Streams = quiet
		p := newScriptedPeer(s, true)
		go func() {
			synctest.Wait()
			_ = p.send(&oap.Data{Stream: 1, Bytes: []byte("hello")})
			_ = p.send(&oap.End{Stream: 1, Seq: 1, Status: "ok"})
		}()
		d, err := s.Fetch(t.Context(), b3.Of([]byte("hello")), peersInTurn(p))
		testkit.Must(t, err)
		if _, err := io.ReadAll(d); err != nil {
			t.Error(err)
		}
		if size, known := d.Size(); size != 5 || !known {
			t.Error(size, known)
		}
		_ = d.Close()
		wrong := startFetch(t.Context(), s, b3.Of([]byte("hello")), peersInTurn(p))
		p.mustSend(&oap.End{Stream: 3, Status: "ok"})
		wrong.wantError(t, fault.IntegrityFail)
		p.mustSend(&oap.Start{Stream: 0, Obj: s.putObject([]byte("x")).String()})
		synctest.Wait()
		s.Closed(p)
	})
}

// A peer may answer a start with an error in place of an end. The download gets
// it at once, and the peer gets the end of the stream.
func TestAStartAnsweredByAnError(t *testing.T) {
	for code, want := range map[oap.Code]fault.Kind{
		oap.Malformed: fault.Malformed, oap.Unauth: fault.Forbidden, oap.QuotaExceeded: fault.QuotaExceeded, "Later": fault.Transient,
	} {
		testReceiver(t, func(t *testing.T, s *testNode, p *scriptedPeer) {
			address := b3.Of([]byte("x"))
			began := time.Now()
			f := startFetch(t.Context(), s, address, peersInTurn(p))
			start := p.out[0]
			p.wantSent("start 1 " + address.String() + " 0")
			if !s.Owns(start.Corr) || s.Owns(1) {
				t.Errorf("the number of the start is %d", start.Corr)
			}
			refusal := session.Incoming{Flags: oap.Resp, Corr: start.Corr, Message: &oap.Error{Code: code, Msg: "no"}}
			for _, other := range []uint64{start.Corr + 2, 1} {
				if err := s.Message(p, session.Incoming{Flags: oap.Resp, Corr: other, Message: refusal.Message}); err != nil || s.Open() != 1 {
					t.Errorf("an error about something else: %v, %d are open", err, s.Open())
				}
			}
			if err := s.Message(p, refusal); err != nil {
				t.Error(err)
			}
			f.wantError(t, want)
			p.wantSent("end 1 0 Canceled")
			if time.Since(began) != 0 {
				t.Error("it waited for more")
			}
			if err := s.Message(p, refusal); err != nil { // twice
				t.Error(err)
			}
			p.wantSent()
		})
	}
}

// BenchmarkFetch carries an object from one node to another through memory:
// everything but TLS and the socket.
func BenchmarkFetch(b *testing.B) {
	asker, giver := newTestNode(b, 1), newTestNode(b, 2)
	data := bytesOf(64 << 20)
	address := giver.putObject(data)
	l := connect(asker, giver, fullChunk)
	defer l.end()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		d, err := asker.Fetch(b.Context(), address, peersInTurn(l.a))
		testkit.Must(b, err)
		if n, err := io.Copy(io.Discard, d); err != nil || n != int64(len(data)) {
			b.Fatal(n, err)
		}
		_ = d.Close()
	}
}
