package session

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"micronode/internal/oap"
)

// numbered is a letter with a number in it.
func numbered(number uint64, size int) parcelOf {
	p := parcel(size)
	p.Item.Message = &oap.Gossip{Msg: binary.BigEndian.AppendUint64(make([]byte, size-8, size), number), Hops: 8, Fanout: 3}
	return p
}

// numbers are those of the letters that came.
func (d *diary) numbers() (all []uint64) {
	for _, g := range d.letters {
		all = append(all, binary.BigEndian.Uint64(g.Msg[len(g.Msg)-8:]))
	}
	return all
}

// Who posts here has written when it is done, and needs no writer for it.
func TestPostHere(t *testing.T) {
	a, b := newNode(t, 1, patient).serve(), newNode(t, 2, patient).serve()
	s, _ := meet(t, a, b)
	until(t, "no writer", func() bool { return running(t, inWrite) == 0 })
	var want []uint64
	for i := range uint64(100) {
		written := false
		p := numbered(i, 1000)
		p.Item.Written = func(err error) { written = err == nil }
		if turned := s.PostHere([]parcelOf{p}, nil, nil); len(turned) > 0 || !written {
			t.Fatalf("letter %d: turned away %d, written %v", i, len(turned), written)
		}
		want = append(want, i)
	}
	if n := running(t, inWrite); n > 0 {
		t.Errorf("%d writers", n)
	}
	until(t, "all letters", b.saw(func() bool { return slices.Equal(b.numbers(), want) }))

	// A writer that waits for more of others goes to sleep when it is not needed.
	s.Post([]parcelOf{numbered(100, 1000)}, nil, nil)
	until(t, "the writer waits for more", func() bool { return s.lingers.Load() })
	s.PostHere([]parcelOf{numbered(101, 1000)}, nil, nil)
	until(t, "no writer", func() bool { return running(t, inWrite) == 0 })
	until(t, "both", b.saw(func() bool { return slices.Equal(b.numbers(), append(want, 100, 101)) }))
}

// What is posted here goes out at once, however many batches it is. A peer that
// got a few letters beforehand would be woken up for them.
func TestPostHereWritesOnce(t *testing.T) {
	a, b := newNode(t, 1, patient, func(s *Spec) { s.Burst = 10 }).serve(), newNode(t, 2, patient).serve()
	s, _ := meet(t, a, b)
	until(t, "no writer", func() bool { return running(t, inWrite) == 0 })
	var batch []parcelOf
	var want []uint64
	for i := range uint64(30) {
		batch, want = append(batch, numbered(i, 1000)), append(want, i)
	}
	collected := 0
	batch[29].Item.Written = func(error) {
		s.wire.mu.Lock()
		defer s.wire.mu.Unlock()
		if s.wire.pending != nil {
			collected = len(*s.wire.pending)
		}
	}
	if turned := s.PostHere(batch, nil, nil); len(turned) > 0 {
		t.Fatalf("%d were turned away", len(turned))
	}
	if collected < 30*1000 {
		t.Errorf("with the last letter, %d bytes were to be written at once", collected)
	}
	until(t, "all letters", b.saw(func() bool { return slices.Equal(b.numbers(), want) }))
}

// Somebody who posts here to a peer that does not read is not held up. What the
// connection did not take is written later, in order, and what the queue did not
// take comes back.
func TestPostHereToAPeerThatDoesNotRead(t *testing.T) {
	reads := make(chan struct{})
	a := newNode(t, 1, patient, func(s *Spec) { s.Peer.InflightFrames = 512 }).serve()
	b := newNode(t, 2, patient)
	b.onArrived = func(*Session, []Arrival) { <-reads }
	s, _ := meet(t, a, b.serve())
	var want []uint64
	for i := uint64(0); ; i++ {
		if turned := s.PostHere([]parcelOf{numbered(i, 16_000)}, nil, nil); len(turned) > 0 {
			break
		}
		want = append(want, i)
	}
	close(reads)
	until(t, "all that were taken", b.saw(func() bool { return slices.Equal(b.numbers(), want) }))
	until(t, "room again", func() bool { return len(s.PostHere([]parcelOf{numbered(1<<32, 1000)}, nil, nil)) == 0 })
	until(t, "the next", b.saw(func() bool { return b.numbers()[len(b.letters)-1] == 1<<32 }))
}

// What was left behind by the last who posted goes out, though nothing follows.
func TestPostHereLeavesTheLast(t *testing.T) {
	reads := make(chan struct{})
	a := newNode(t, 1, patient, func(s *Spec) { s.Peer.InflightFrames = 512 }).serve()
	b := newNode(t, 2, patient)
	b.onArrived = func(*Session, []Arrival) { <-reads }
	s, _ := meet(t, a, b.serve())
	until(t, "no writer", func() bool { return running(t, inWrite) == 0 })
	left := func() bool {
		s.wire.mu.Lock()
		defer s.wire.mu.Unlock()
		return s.wire.pending != nil || s.wire.writing
	}
	var want []uint64
	for i := uint64(0); !left(); i++ {
		if turned := s.PostHere([]parcelOf{numbered(i, 16_000)}, nil, nil); len(turned) > 0 {
			t.Fatal("turned away before the socket was full")
		}
		want = append(want, i)
	}
	close(reads)
	until(t, "all letters", b.saw(func() bool { return slices.Equal(b.numbers(), want) }))
}

// Small talk goes out as well, whoever writes letters meanwhile.
func TestPostHereAndSmallTalk(t *testing.T) {
	a, b := newNode(t, 1, patient).serve(), newNode(t, 2, patient).serve()
	s, other := meet(t, a, b)
	for i := range uint64(50) {
		s.ping(s.Corr(), i)
		s.PostHere([]parcelOf{numbered(i, 1000)}, nil, nil)
		_ = s.Tell(Out{Message: &oap.Want{}, Flags: oap.Event})
	}
	until(t, "letters and messages", b.saw(func() bool { return len(b.letters) == 50 && len(b.messages) == 50 }))
	until(t, "nothing is owed", func() bool { return !s.owes.Load() && !other.owes.Load() })
}

// A session that ends in the hands of somebody else ends all the same.
func TestPostHereAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(s *Session){
		"closed":   func(s *Session) { _ = s.wire.Close() },
		"ended":    func(s *Session) { s.End(nil) },
		"panicked": func(s *Session) { s.inUse.Store(true) }, // as if there were two writers
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newNode(t, 1, patient).serve(), newNode(t, 2, patient).serve()
			s, _ := meet(t, a, b)
			until(t, "no writer", func() bool { return running(t, inWrite) == 0 })
			settled := make(chan error, 1)
			p := parcel(1000)
			p.Item.Written = func(err error) { settled <- err }
			end(s)
			turned := s.PostHere([]parcelOf{p}, nil, nil)
			<-s.Done()
			if len(turned) == 0 && name != "panicked" { // which forgets what it had in its hands
				<-settled
			}
		})
	}
}

// What a brief write leaves behind goes out before everything that follows.
func TestWireLeavesTheRest(t *testing.T) {
	near, far := sockets(t)
	w := newWire(near, time.Minute)
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	var sent []byte
	write := func(p []byte) {
		t.Helper()
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, p...)
	}
	for !w.behind() { // until the socket is full
		w.hold(true)
		for range 16 {
			write(block)
		}
		if err := w.release(); err != nil {
			t.Fatal(err)
		}
	}
	w.hold(true)
	write([]byte("behind it"))
	if err := w.release(); err != nil || !w.behind() {
		t.Fatalf("nobody has read anything: %v", err)
	}
	got := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(far)
		got <- all
	}()
	write([]byte("last"))
	if w.behind() {
		t.Error("it waited for the peer, and something is left")
	}
	_ = near.(*net.TCPConn).CloseWrite()
	if !bytes.Equal(<-got, sent) {
		t.Error("other bytes came")
	}
	w.hold(true)
	mustWrite(t, w, "too late")
	if err := w.release(); err == nil {
		t.Error("a closed connection takes more")
	}
}
