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
)

// asker runs a test of the asking side against a peer that the test plays. The
// node dialed it, so the node's numbers are odd.
func asker(t *testing.T, test func(t *testing.T, s *side, p *script), options ...option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSide(t, 1, options...)
		p := newScript(s, true)
		test(t, s, p)
		s.Closed(p)
		synctest.Wait()
		s.quiet()
	})
}

// fetching is a download that runs beside the test.
type fetching struct {
	got  []byte
	err  error
	done chan struct{}
}

// begin fetches an object, or tries to.
func begin(ctx context.Context, s *side, address b3.Address, from func([]oap.PeerID) Peer) *fetching {
	f := &fetching{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.got, f.err = s.fetch(ctx, address, from)
	}()
	synctest.Wait()
	return f
}

// fails waits for the end of a fetch that fails.
func (f *fetching) fails(t *testing.T, want fault.Kind) {
	t.Helper()
	<-f.done
	isKind(t, "the fetch", f.err, want)
}

// feed sends chunks of an object as the rules say, all that there is credit for.
func (p *script) feed(stream uint64, data []byte, first, last int) {
	p.t.Helper()
	for seq := first; seq <= last; seq++ {
		p.says(&oap.Data{Stream: stream, Seq: uint64(seq), Bytes: data[seq*full : min((seq+1)*full, len(data))]})
	}
}

func TestFetchOfEverySize(t *testing.T) {
	for _, chunk := range []int{full, 1000} {
		for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 15 * chunk, 16 * chunk, 16*chunk + 1, 17 * chunk, 100*chunk - 3, 1_500_000} {
			for _, dialed := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					a, b := newSide(t, 1), newSide(t, 2)
					data := bytesOf(size)
					address := b.keep(data)
					l, peer := dial(a, b, chunk, dialed)
					got, err := a.fetch(t.Context(), address, each(peer))
					if err != nil || !bytes.Equal(got, data) {
						t.Errorf("%d bytes in chunks of %d: got %d, %v", size, chunk, len(got), err)
					}
					synctest.Wait()
					a.quiet()
					b.quiet()
					a.counted(Rx, "ok", 1)
					b.counted(Tx, "ok", 1)
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
func dial(a, b *side, chunk int, dialed bool) (*link, *far) {
	if dialed {
		l := connect(a, b, chunk)
		return l, l.a
	}
	l := connect(b, a, chunk)
	return l, l.b
}

// What goes over the wire, for the example of the protocol.
func TestAskerSpeaksAsTheExample(t *testing.T) {
	asker(t, func(t *testing.T, s *side, p *script) {
		data := bytesOf(1_500_000)
		f := begin(t.Context(), s, b3.Of(data), each(p))
		for _, out := range p.out {
			if out.Flags != oap.Req || out.Corr == 0 {
				t.Errorf("%s has flags %d and corr %d", text(out.Message), out.Flags, out.Corr)
			}
		}
		corr := p.out[0].Corr
		p.expect("start 1 " + b3.Of(data).String() + " 0")
		p.feed(1, data, 0, 15)
		synctest.Wait()
		for _, out := range p.out {
			if out.Flags != oap.Event || out.Corr != corr {
				t.Errorf("%s has flags %d and corr %d, the start had %d", text(out.Message), out.Flags, out.Corr, corr)
			}
		}
		p.expect("ack 1 7", "ack 1 15")
		p.feed(1, data, 16, 22)
		p.says(&oap.End{Stream: 1, Seq: 23, Status: "ok"})
		<-f.done
		if f.err != nil || !bytes.Equal(f.got, data) {
			t.Errorf("%d bytes, %v", len(f.got), f.err)
		}
		p.expect()
	})
}

// Two downloads over one session have numbers of the same kind.
func TestAskerCountsUp(t *testing.T) {
	for _, dialed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSide(t, 1)
			p := newScript(s, dialed)
			address := b3.Of([]byte("x"))
			first, want := uint64(1), []string{"start 1 " + address.String() + " 0", "start 3 " + address.String() + " 0"}
			if !dialed {
				first, want = 2, []string{"start 2 " + address.String() + " 0", "start 4 " + address.String() + " 0"}
			}
			one := begin(t.Context(), s, address, each(p))
			two := begin(t.Context(), s, address, each(p))
			p.expect(want...)
			for _, n := range []uint64{first + 2, first} {
				p.says(&oap.Data{Stream: n, Bytes: []byte("x")})
				p.says(&oap.End{Stream: n, Seq: 1, Status: "ok"})
			}
			<-one.done
			<-two.done
			if one.err != nil || two.err != nil {
				t.Error(one.err, two.err)
			}
			s.Closed(p)
			s.quiet()
		})
	}
}

// Every rule about data: the session ends, the download fails with an error of
// the peer's, and the peer is not asked again.
func TestDataThatBreaksARule(t *testing.T) {
	data := bytesOf(20 * full)
	piece := func(seq uint64, n int) *oap.Data { return &oap.Data{Stream: 1, Seq: seq, Bytes: data[:n]} }
	for name, c := range map[string]struct {
		before int // good chunks
		short  bool
		bad    *oap.Data
	}{
		"does not begin with 0": {0, false, piece(1, full)},
		"a gap":                 {3, false, piece(4, full)},
		"a repeat":              {3, false, piece(2, full)},
		"beyond the credit":     {16, false, piece(16, full)},
		"empty":                 {1, false, piece(1, 0)},
		"too long":              {1, false, piece(1, full+1)},
		"short in the middle":   {1, true, piece(2, full)},
		"two short ones":        {1, true, piece(2, 5)},
	} {
		asker(t, func(t *testing.T, s *side, p *script) {
			d := make(chan *Download, 1)
			go func() { // it reads nothing, so that there is no new credit
				got, err := s.Fetch(t.Context(), b3.Of(data), always(p))
				if c.before == 0 {
					isKind(t, name, err, fault.UpstreamFailed)
				}
				d <- got
			}()
			synctest.Wait()
			p.feed(1, data, 0, c.before-1)
			if c.short {
				p.says(piece(uint64(c.before), 7))
			}
			err := p.say(c.bad)
			if fault.KindOf(err) != fault.Malformed || oap.CodeOf(err) != oap.Malformed {
				t.Errorf("%s: %v", name, err)
			}
			if got := <-d; got != nil {
				_, err := io.ReadAll(got)
				isKind(t, name, err, fault.UpstreamFailed)
				_ = got.Close()
			}
			if heard := p.heard(); len(heard) != 1 { // only the start
				t.Errorf("%s: %q", name, heard)
			}
			p.says(piece(0, 5)) // what comes later is for a stream that has ended
			s.counted(Rx, "Malformed", 1)
		})
	}
}

// Beyond the credit is counted from acks, not from what was read.
func TestCreditOfTheAskerIsExact(t *testing.T) {
	asker(t, func(t *testing.T, s *side, p *script) {
		data := bytesOf(40 * full)
		opened := make(chan *Download, 1)
		go func() {
			d, err := s.Fetch(t.Context(), b3.Of(data), each(p))
			if err != nil {
				t.Error(err)
			}
			opened <- d
		}()
		synctest.Wait()
		p.heard()
		p.feed(1, data, 0, 15)
		d := <-opened
		defer d.Close()
		if _, err := io.CopyN(io.Discard, d, 8*full); err != nil {
			t.Error(err)
		}
		p.expect("ack 1 7")
		if _, err := io.CopyN(io.Discard, d, 7*full); err != nil {
			t.Error(err)
		}
		p.expect()
		p.feed(1, data, 16, 23)
		isKind(t, "one more", p.say(&oap.Data{Stream: 1, Seq: 24, Bytes: data[:full]}), fault.Malformed)
	})
}

func TestAckFromTheGiver(t *testing.T) {
	asker(t, func(t *testing.T, s *side, p *script) {
		ctx, cancel := context.WithCancel(t.Context())
		f := begin(ctx, s, b3.Of(nil), each(p))
		p.heard()
		isKind(t, "an ack from the giver", p.say(&oap.Ack{Stream: 1}), fault.Malformed)
		isKind(t, "a start with our number", p.say(&oap.Start{Stream: 1, Obj: b3.Of(nil).String()}), fault.Malformed)
		cancel()
		f.fails(t, fault.Canceled)
		p.expect("end 1 0 Canceled")
	})
}

// A slow consumer that goes on is heard of before the giver's patience ends.
func TestSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, 1), newSide(t, 2)
		data := bytesOf(30 * full)
		address := b.keep(data)
		l := connect(a, b, full)
		d, err := a.Fetch(t.Context(), address, each(l.a))
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for piece := make([]byte, full); ; {
			n, err := io.ReadFull(d, piece)
			got = append(got, piece[:n]...)
			if err != nil {
				break
			}
			time.Sleep(2 * time.Second) // eight of them would be too long
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes", len(got))
		}
		a.read(func() {
			if a.resumed != 0 {
				t.Errorf("resumed %d times", a.resumed)
			}
		})
		_ = d.Close()
		l.end()
		synctest.Wait()
		a.quiet()
		b.quiet()
	})
}

// A consumer that stops pins sixteen chunks. The giver gives up; when the
// consumer goes on, so does the download, with a new stream.
func TestConsumerThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, 1), newSide(t, 2)
		data := bytesOf(40 * full)
		address := b.keep(data)
		l := connect(a, b, full)
		d, err := a.Fetch(t.Context(), address, always(l.a))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 3*full+10)
		if _, err := io.ReadFull(d, got); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		b.counted(Tx, "Timeout", 1)
		b.quiet()
		a.read(func() {
			if kept := a.bytes[Rx] - 3*full; kept > 16*full {
				t.Errorf("%d bytes wait", kept)
			}
		})
		rest, err := io.ReadAll(d)
		if err != nil || !bytes.Equal(append(got, rest...), data) {
			t.Errorf("%d bytes, %v", len(got)+len(rest), err)
		}
		a.read(func() {
			if a.resumed != 1 {
				t.Errorf("resumed %d times", a.resumed)
			}
		})
		_ = d.Close()
		l.end()
		synctest.Wait()
		a.quiet()
		b.quiet()
	})
}

// A giver that sends nothing, from the start or at some point, is given up
// after five seconds, and another one goes on.
func TestGiverThatNeverSends(t *testing.T) {
	for _, before := range []int{0, 1, 5, 16} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSide(t, 1), newSide(t, 2)
			data := bytesOf(20*full + 1)
			address := b.keep(data)
			p, l := newScript(a, true), connect(a, b, full)
			f := begin(t.Context(), a, address, each(p, l.a))
			p.expect("start 1 " + address.String() + " 0")
			began := time.Now()
			if before > 0 { // the clock starts anew with what comes
				time.Sleep(patience / 10)
				began = time.Now()
				p.feed(1, data, 0, before-1)
			}
			<-f.done
			if f.err != nil || !bytes.Equal(f.got, data) {
				t.Errorf("after %d chunks: %d bytes, %v", before, len(f.got), f.err)
			}
			if took := time.Since(began); took != patience {
				t.Errorf("after %d chunks: it took %s", before, took)
			}
			heard := p.heard()
			if want := fmt.Sprintf("end 1 %d Timeout", before); heard[len(heard)-1] != want {
				t.Errorf("after %d chunks: %q, want %q", before, heard, want)
			}
			a.counted(Rx, "Timeout", 1)
			a.Closed(p)
			l.end()
			synctest.Wait()
			a.quiet()
			b.quiet()
		})
	}
	asker(t, func(t *testing.T, s *side, p *script) {
		f := begin(t.Context(), s, b3.Of(nil), each(p))
		f.fails(t, fault.Timeout)
		if next := fault.NextOf(f.err); next == "" {
			t.Error("no next step")
		}
	})
}

// A download goes on where it was, at every border of a chunk and inside one,
// and hashes what it had.
func TestResumeAtEveryChunk(t *testing.T) {
	const chunk = 1000
	for _, size := range []int{chunk, 20 * chunk, 20*chunk + 1} {
		data := bytesOf(size)
		for lostAt := range (size + chunk - 1) / chunk {
			synctest.Test(t, func(t *testing.T) {
				a, b, c := newSide(t, 1), newSide(t, 2), newSide(t, 3)
				address := b.keep(data)
				c.keep(data)
				l, other := connect(a, b, chunk), connect(a, c, 777) // the second cuts in other places
				l.b.lose = func(m oap.Message) bool { d, ok := m.(*oap.Data); return ok && d.Seq == uint64(lostAt) }
				got, err := a.fetch(t.Context(), address, each(l.a, other.a))
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("lost at %d: %d bytes, %v", lostAt, len(got), err)
				}
				c.read(func() {
					if c.bytes[Tx] != size-lostAt*chunk {
						t.Errorf("lost at %d: the second gave %d bytes", lostAt, c.bytes[Tx])
					}
				})
				a.counted(Rx, "lost", 1)
				l.end()
				other.end()
				synctest.Wait()
				a.quiet()
				b.quiet()
				c.quiet()
			})
		}
	}
}

// A reader that is in the middle of a chunk loses nothing and gets nothing twice.
func TestResumeInsideAChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, 1), newSide(t, 2)
		data := bytesOf(40*full + 17)
		address := b.keep(data)
		l := connect(a, b, full)
		d, err := a.Fetch(t.Context(), address, func([]oap.PeerID) Peer { return l.a })
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for _, n := range []int{1, full - 2, 3, full / 2, 5 * full, 9 * full, 10*full + 1, 7} {
			piece := make([]byte, n)
			if _, err := io.ReadFull(d, piece); err != nil {
				t.Fatal(err)
			}
			got = append(got, piece...)
			synctest.Wait()
			l.end()
			l = connect(a, b, full)
		}
		rest, err := io.ReadAll(d)
		if got = append(got, rest...); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_ = d.Close()
		l.end()
		synctest.Wait()
		a.quiet()
		b.quiet()
	})
}

// As long as something comes of it, the same peer is asked again and again.
func TestManyLossesWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, 1), newSide(t, 2)
		data := bytesOf(3 * mostRepeats * full)
		address := b.keep(data)
		var l *link
		got, err := a.fetch(t.Context(), address, func([]oap.PeerID) Peer {
			if l != nil {
				l.end()
			}
			l = connect(a, b, full)
			l.b.lose = func(m oap.Message) bool { d, ok := m.(*oap.Data); return ok && d.Seq == 1 }
			return l.a
		})
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		l.end()
	})
}

// The end that was lost is asked for again: from equal to the size.
func TestLostEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, 1), newSide(t, 2)
		data := bytesOf(3 * full)
		address := b.keep(data)
		l := connect(a, b, full)
		l.b.lose = func(m oap.Message) bool { _, end := m.(*oap.End); return end }
		again := connect(a, b, full)
		tries := []Peer{l.a, again.a}
		got, err := a.fetch(t.Context(), address, func([]oap.PeerID) Peer { p := tries[0]; tries = tries[1:]; return p })
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		b.read(func() {
			if b.bytes[Tx] != len(data) {
				t.Errorf("%d bytes were sent", b.bytes[Tx])
			}
		})
		l.end()
		again.end()
	})
}

// A wrong byte is found out at the end, whoever gave it, and that is that.
func TestWrongBytes(t *testing.T) {
	for _, size := range []int{1, full, 3*full + 1} {
		for _, wrong := range []func([]byte) []byte{
			func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
			func(b []byte) []byte { b[0] ^= 0x80; return b },
			func(b []byte) []byte { return b[:len(b)-1] },
			func(b []byte) []byte { return append(b, 0) },
		} {
			synctest.Test(t, func(t *testing.T) {
				a, b, c := newSide(t, 1), newSide(t, 2), newSide(t, 3)
				address := c.keep(bytesOf(size))
				b.lie(address, wrong(bytesOf(size)))
				l, other := connect(a, b, full), connect(a, c, full)
				asked := 0
				d, err := a.Fetch(t.Context(), address, func(tried []oap.PeerID) Peer { asked++; return each(l.a, other.a)(tried) })
				if err == nil {
					_, err = io.ReadAll(d)
					_, again := d.Read(make([]byte, 1))
					isKind(t, "again", again, fault.IntegrityFail)
					_ = d.Close()
				}
				isKind(t, "wrong bytes", err, fault.IntegrityFail)
				if !errors.Is(err, b3.ErrMismatch) || !strings.Contains(fault.NextOf(err), "fetch it again") {
					t.Error(err, fault.NextOf(err))
				}
				if asked != 1 {
					t.Errorf("%d peers were asked", asked)
				}
				a.read(func() {
					if a.corrupt != 1 {
						t.Errorf("counted %d times", a.corrupt)
					}
				})
				l.end()
				other.end()
				synctest.Wait()
				a.quiet()
			})
		}
	}
}

// What a peer answers, and what becomes of it when there is nobody else.
func TestStatuses(t *testing.T) {
	for status, kind := range map[string]fault.Kind{
		"NotFound": fault.NotFound, "InvalidRange": fault.InvalidRange, "Malformed": fault.Malformed, "Busy": fault.Busy,
		"QuotaExceeded": fault.QuotaExceeded, "NotReady": fault.NotReady, "Canceled": fault.NotReady, "Timeout": fault.Timeout,
		"Forbidden": fault.Forbidden, "IntegrityFail": fault.IntegrityFail, "Internal": fault.Transient, "TooSunny": fault.Transient,
	} {
		asker(t, func(t *testing.T, s *side, p *script) {
			f := begin(t.Context(), s, b3.Of(nil), each(p))
			p.says(&oap.End{Stream: 1, Status: status})
			f.fails(t, kind)
			label := status
			if kind == fault.Transient {
				label = "other"
			}
			s.counted(Rx, label, 1)
			if !slices.Contains(Statuses(), label) {
				t.Errorf("%s is not in the list", label)
			}
		})
	}
	if slices.Contains(Statuses(), "Internal") || !slices.Contains(Statuses(), "ok") || !slices.Contains(Statuses(), "lost") {
		t.Error(Statuses())
	}
}

// NotFound is said only if all said so; elsewhere is tried for everything.
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
			s := newSide(t, 1)
			var peers []Peer
			var scripts []*script
			for range strings.Fields(c.answers) {
				p := newScript(s, true)
				peers, scripts = append(peers, p), append(scripts, p)
			}
			f := begin(t.Context(), s, b3.Of(nil), each(peers...))
			asked := 0
			for i, status := range strings.Fields(c.answers) {
				scripts[i].expect("start 1 " + b3.Of(nil).String() + " 0")
				asked++
				scripts[i].says(&oap.End{Stream: 1, Status: status})
				synctest.Wait()
			}
			<-f.done
			if fault.KindOf(f.err) != c.want || asked != c.asked {
				t.Errorf("%q: %v after %d", c.answers, f.err, asked)
			}
			for _, p := range scripts {
				s.Closed(p)
			}
			s.quiet()
		})
	}
}

// A peer that has refused for good is not asked again, even if it is named.
func TestPeersThatAreNamedAgain(t *testing.T) {
	asker(t, func(t *testing.T, s *side, p *script) {
		f := begin(t.Context(), s, b3.Of(nil), always(p))
		p.heard()
		p.says(&oap.End{Stream: 1, Status: "NotFound"})
		f.fails(t, fault.NotFound)
		p.expect()
	})
	asker(t, func(t *testing.T, s *side, p *script) { // one that is busy is, five times, with pauses
		began := time.Now()
		f := begin(t.Context(), s, b3.Of(nil), always(p))
		for i := range mostRepeats + 1 {
			p.expect(fmt.Sprintf("start %d %s 0", 2*i+1, b3.Of(nil)))
			p.says(&oap.End{Stream: uint64(2*i + 1), Status: "Busy"})
			if i < mostRepeats {
				synctest.Wait()
				p.expect() // not at once
				time.Sleep(2 * firstPause << i)
				synctest.Wait()
			}
		}
		f.fails(t, fault.Busy)
		if took := time.Since(began); took < (mostRepeats)*firstPause || took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		p.expect()
	})
	asker(t, func(t *testing.T, s *side, p *script) { // and the pause ends with the caller
		ctx, cancel := context.WithCancel(t.Context())
		f := begin(ctx, s, b3.Of(nil), always(p))
		p.says(&oap.End{Stream: 1, Status: "Busy"})
		synctest.Wait()
		cancel()
		f.fails(t, fault.Canceled)
	})
}

// ok with a number of chunks that is not what came is a failure of the stream,
// and what came is kept.
func TestEndWithAWrongCount(t *testing.T) {
	for _, seq := range []uint64{0, 1, 3, 1<<64 - 1} {
		asker(t, func(t *testing.T, s *side, p *script) {
			data := bytesOf(3 * full)
			f := begin(t.Context(), s, b3.Of(data), always(p))
			p.heard()
			p.feed(1, data, 0, 1)
			p.says(&oap.End{Stream: 1, Seq: seq, Status: "ok"})
			time.Sleep(time.Second)
			p.expect(fmt.Sprintf("start 3 %s %d", b3.Of(data), 2*full))
			p.says(&oap.Data{Stream: 3, Bytes: data[2*full:]})
			p.says(&oap.End{Stream: 3, Seq: 1, Status: "ok"})
			<-f.done
			if f.err != nil || !bytes.Equal(f.got, data) {
				t.Errorf("%d bytes, %v", len(f.got), f.err)
			}
		})
	}
}

// A caller that leaves tells the giver, and what comes after is ignored.
func TestClose(t *testing.T) {
	asker(t, func(t *testing.T, s *side, p *script) {
		data := bytesOf(20 * full)
		opened := make(chan *Download, 1)
		go func() {
			d, err := s.Fetch(t.Context(), b3.Of(data), each(p))
			if err != nil {
				t.Error(err)
			}
			opened <- d
		}()
		synctest.Wait()
		p.heard()
		p.feed(1, data, 0, 4)
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
		p.expect("end 1 5 Canceled")
		if s.Open() != 0 {
			t.Error("the stream is open")
		}
		p.feed(1, data, 5, 6)
		p.says(&oap.End{Stream: 1, Seq: 7, Status: "ok"})
		_ = d.Close()
		p.expect()
		_, err := d.Read(make([]byte, 10))
		isKind(t, "a read after Close", err, fault.Canceled)
		s.counted(Rx, "Canceled", 1)
	})
}

// The context is that of the whole download.
func TestContextEnds(t *testing.T) {
	asker(t, func(t *testing.T, s *side, p *script) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := begin(ctx, s, b3.Of(bytesOf(full)), each(p))
		p.heard()
		f.fails(t, fault.Timeout)
		p.expect("end 1 0 Canceled")
	})
	asker(t, func(t *testing.T, s *side, p *script) {
		ctx, cancel := context.WithCancel(t.Context())
		data := bytesOf(3 * full)
		go func() {
			d, err := s.Fetch(ctx, b3.Of(data), each(p))
			if err != nil {
				t.Error(err)
				return
			}
			cancel()
			_, err = io.ReadAll(d)
			isKind(t, "reading", err, fault.Canceled)
			_ = d.Close()
		}()
		synctest.Wait()
		p.feed(1, data, 0, 0)
		synctest.Wait()
		p.expect("start 1 "+b3.Of(data).String()+" 0", "end 1 1 Canceled")
	})
}

// Sessions that are not there, that have no room, and that go away.
func TestSessionsThatCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide(t, 1)
		never := &script{t: t, s: s, serial: serials.Add(1)}
		_, err := s.Fetch(t.Context(), b3.Of(nil), each(never))
		isKind(t, "a session that is not open", err, fault.Transient)

		p := newScript(s, true)
		p.set(func() { p.tells = fault.New("fake", fault.Busy, "full") })
		_, err = s.Fetch(t.Context(), b3.Of(nil), each(p))
		isKind(t, "a session without room", err, fault.Busy)
		p.set(func() { p.tells = flow.ErrClosed })
		_, err = s.Fetch(t.Context(), b3.Of(nil), each(p))
		isKind(t, "a session that is closing", err, fault.Transient)
		p.set(func() { p.tells = nil })

		f := begin(t.Context(), s, b3.Of(nil), each(p))
		s.Closed(p)
		f.fails(t, fault.Transient)
		crossed := newTable(s.Streams, p) // the session ends between the look-up and the question
		crossed.close()
		isKind(t, "a session that has just ended", crossed.ask(new(taking), 0), fault.Transient)
		s.Drain()
		_, err = s.Fetch(t.Context(), b3.Of(nil), each(p))
		isKind(t, "a node that drains", err, fault.NotReady)
		s.quiet()
	})
	asker(t, func(t *testing.T, s *side, p *script) {
		ctx, cancel := context.WithCancel(t.Context())
		f := begin(ctx, s, b3.Of(nil), each(p))
		_, err := s.Fetch(t.Context(), b3.Of(nil), each(p))
		isKind(t, "too many at one peer", err, fault.Busy)
		cancel()
		f.fails(t, fault.Canceled)
	}, func(spec *Spec) { spec.PerPeer = 1 })
}

// A session that begins to drain drops a start that still waits, and says so.
func TestStartThatIsDropped(t *testing.T) {
	for dropped, want := range map[error]fault.Kind{
		fault.New("overlay.send", fault.NotReady, "one of the two drains"): fault.NotReady, flow.ErrClosed: fault.Transient, nil: fault.Timeout,
	} {
		asker(t, func(t *testing.T, s *side, p *script) {
			p.set(func() { p.hold = true })
			began := time.Now()
			f := begin(t.Context(), s, b3.Of(nil), each(p))
			tellWritten(p.queued()[0], dropped)
			f.fails(t, want)
			if took := time.Since(began); dropped != nil && took != 0 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// A chunk that comes in the moment in which the reader leaves is let go.
func TestChunkThatCrossesTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide(t, 1)
		k := newTaking(newTable(s.Streams, newScript(s, true)), b3.Of(nil))
		k.leave("Canceled")
		k.land([]byte("x"))
		if k.arrivals.Len() != 0 {
			t.Error("it was kept")
		}
		s.quiet()
	})
}

// An ack that the session has no room for is made good by the next one.
func TestAckWithoutRoom(t *testing.T) {
	asker(t, func(t *testing.T, s *side, p *script) {
		data := bytesOf(16 * full)
		f := begin(t.Context(), s, b3.Of(data), each(p))
		p.heard()
		p.set(func() { p.tells = fault.New("fake", fault.Busy, "full") })
		p.feed(1, data, 0, 9)
		synctest.Wait()
		p.expect()
		p.set(func() { p.tells = nil })
		p.feed(1, data, 10, 15)
		synctest.Wait()
		p.expect("ack 1 10")
		p.says(&oap.End{Stream: 1, Seq: 16, Status: "ok"})
		<-f.done
		if f.err != nil {
			t.Error(f.err)
		}
	})
}

// Without counters everything works; the size is known at the end.
func TestSizeAtTheEnd(t *testing.T) {
	asker(t, func(t *testing.T, s *side, _ *script) {
		quiet := New(s.inv, Spec{Open: s.find, Givers: s.group})
		s.Streams = quiet
		p := newScript(s, true)
		go func() {
			synctest.Wait()
			_ = p.say(&oap.Data{Stream: 1, Bytes: []byte("hello")})
			_ = p.say(&oap.End{Stream: 1, Seq: 1, Status: "ok"})
		}()
		d, err := s.Fetch(t.Context(), b3.Of([]byte("hello")), each(p))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(d); err != nil {
			t.Error(err)
		}
		if size, known := d.Size(); size != 5 || !known {
			t.Error(size, known)
		}
		_ = d.Close()
		wrong := begin(t.Context(), s, b3.Of([]byte("hello")), each(p))
		p.says(&oap.End{Stream: 3, Status: "ok"})
		wrong.fails(t, fault.IntegrityFail)
		p.says(&oap.Start{Stream: 0, Obj: s.keep([]byte("x")).String()})
		synctest.Wait()
		s.Closed(p)
	})
}

// A peer may answer a start with an error in place of an end. Whoever waits
// hears of it at once, and the peer hears that the stream is over.
func TestAStartAnsweredByAnError(t *testing.T) {
	for code, want := range map[oap.Code]fault.Kind{
		oap.Malformed: fault.Malformed, oap.Unauth: fault.Forbidden, oap.QuotaExceeded: fault.QuotaExceeded, "Later": fault.Transient,
	} {
		asker(t, func(t *testing.T, s *side, p *script) {
			address := b3.Of([]byte("x"))
			began := time.Now()
			f := begin(t.Context(), s, address, each(p))
			start := p.out[0]
			p.expect("start 1 " + address.String() + " 0")
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
			f.fails(t, want)
			p.expect("end 1 0 Canceled")
			if time.Since(began) != 0 {
				t.Error("it waited for more")
			}
			if err := s.Message(p, refusal); err != nil { // twice
				t.Error(err)
			}
			p.expect()
		})
	}
}
