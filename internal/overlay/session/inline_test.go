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
	"micronode/internal/testkit"
)

// numberedFrame makes a message with a number in it.
func numberedFrame(number uint64, size int) queuedFrame {
	p := testFrame(size)
	p.Item.Message = &oap.Gossip{Msg: binary.BigEndian.AppendUint64(make([]byte, size-8, size), number), Hops: 8, Fanout: 3}
	return p
}

// numbers returns the numbers of the gossip that arrived.
func (d *recorder) numbers() (all []uint64) {
	for _, g := range d.gossip {
		all = append(all, binary.BigEndian.Uint64(g.Msg[len(g.Msg)-8:]))
	}
	return all
}

// An inline offer is written when the call returns, without starting the writer.
func TestOfferGossipInline(t *testing.T) {
	a, b := newNode(t, 1, longTimeouts).serve(), newNode(t, 2, longTimeouts).serve()
	s, _ := connectNodes(t, a, b)
	testkit.WaitFor(t, "no writer", func() bool { return goroutinesIn(t, inWrite) == 0 })
	var want []uint64
	for i := range uint64(100) {
		written := false
		p := numberedFrame(i, 1000)
		p.Item.Written = func(err error) { written = err == nil }
		if rejected := s.OfferGossipInline([]queuedFrame{p}, nil, nil); len(rejected) > 0 || !written {
			t.Fatalf("message %d: rejected %d, written %v", i, len(rejected), written)
		}
		want = append(want, i)
	}
	if n := goroutinesIn(t, inWrite); n > 0 {
		t.Errorf("%d writers", n)
	}
	testkit.WaitFor(t, "all messages", b.check(func() bool { return slices.Equal(b.numbers(), want) }))

	// A writer that waits for more goes to sleep when inline offers follow.
	s.OfferGossip([]queuedFrame{numberedFrame(100, 1000)}, nil, nil)
	testkit.WaitFor(t, "the writer waits for more", func() bool { return s.writerWaits.Load() })
	s.OfferGossipInline([]queuedFrame{numberedFrame(101, 1000)}, nil, nil)
	testkit.WaitFor(t, "no writer", func() bool { return goroutinesIn(t, inWrite) == 0 })
	testkit.WaitFor(t, "both", b.check(func() bool { return slices.Equal(b.numbers(), append(want, 100, 101)) }))
}

// An inline offer goes out in one write, however many batches it is. A peer that
// got a few messages before the rest would be woken for them.
func TestInlineOfferWritesOnce(t *testing.T) {
	a, b := newNode(t, 1, longTimeouts, func(s *Spec) { s.Burst = 10 }).serve(), newNode(t, 2, longTimeouts).serve()
	s, _ := connectNodes(t, a, b)
	testkit.WaitFor(t, "no writer", func() bool { return goroutinesIn(t, inWrite) == 0 })
	var batch []queuedFrame
	var want []uint64
	for i := range uint64(30) {
		batch, want = append(batch, numberedFrame(i, 1000)), append(want, i)
	}
	collected := 0
	batch[29].Item.Written = func(error) {
		s.raw.mu.Lock()
		defer s.raw.mu.Unlock()
		if s.raw.pending != nil {
			collected = len(*s.raw.pending)
		}
	}
	if rejected := s.OfferGossipInline(batch, nil, nil); len(rejected) > 0 {
		t.Fatalf("%d were rejected", len(rejected))
	}
	if collected < 30*1000 {
		t.Errorf("with the last message, %d bytes were to be written at once", collected)
	}
	testkit.WaitFor(t, "all messages", b.check(func() bool { return slices.Equal(b.numbers(), want) }))
}

// An inline offer to a peer that does not read does not block. What the connection
// did not take is written later, in order, and what the queue did not take is
// returned as rejected.
func TestInlineOfferToAPeerThatDoesNotRead(t *testing.T) {
	reads := make(chan struct{})
	a := newNode(t, 1, longTimeouts, func(s *Spec) { s.Peer.InflightFrames = 512 }).serve()
	b := newNode(t, 2, longTimeouts)
	b.onArrived = func(*Session, []IncomingGossip) { <-reads }
	s, _ := connectNodes(t, a, b.serve())
	var want []uint64
	for i := uint64(0); ; i++ {
		if rejected := s.OfferGossipInline([]queuedFrame{numberedFrame(i, 16_000)}, nil, nil); len(rejected) > 0 {
			break
		}
		want = append(want, i)
	}
	close(reads)
	testkit.WaitFor(t, "all that were taken", b.check(func() bool { return slices.Equal(b.numbers(), want) }))
	testkit.WaitFor(t, "room again", func() bool { return len(s.OfferGossipInline([]queuedFrame{numberedFrame(1<<32, 1000)}, nil, nil)) == 0 })
	testkit.WaitFor(t, "the next", b.check(func() bool { return b.numbers()[len(b.gossip)-1] == 1<<32 }))
}

// What the last inline offer left unwritten goes out, though nothing follows.
func TestInlineOfferLeavesTheLast(t *testing.T) {
	reads := make(chan struct{})
	a := newNode(t, 1, longTimeouts, func(s *Spec) { s.Peer.InflightFrames = 512 }).serve()
	b := newNode(t, 2, longTimeouts)
	b.onArrived = func(*Session, []IncomingGossip) { <-reads }
	s, _ := connectNodes(t, a, b.serve())
	testkit.WaitFor(t, "no writer", func() bool { return goroutinesIn(t, inWrite) == 0 })
	left := func() bool {
		s.raw.mu.Lock()
		defer s.raw.mu.Unlock()
		return s.raw.pending != nil || s.raw.writing
	}
	var want []uint64
	for i := uint64(0); !left(); i++ {
		if rejected := s.OfferGossipInline([]queuedFrame{numberedFrame(i, 16_000)}, nil, nil); len(rejected) > 0 {
			t.Fatal("rejected before the socket was full")
		}
		want = append(want, i)
	}
	close(reads)
	testkit.WaitFor(t, "all messages", b.check(func() bool { return slices.Equal(b.numbers(), want) }))
}

// Keepalives go out as well while gossip is written inline.
func TestInlineOfferAndKeepalive(t *testing.T) {
	a, b := newNode(t, 1, longTimeouts).serve(), newNode(t, 2, longTimeouts).serve()
	s, other := connectNodes(t, a, b)
	for i := range uint64(50) {
		s.ping(s.Corr(), i)
		s.OfferGossipInline([]queuedFrame{numberedFrame(i, 1000)}, nil, nil)
		_ = s.SendControl(Outgoing{Message: &oap.Want{}, Flags: oap.Event})
	}
	testkit.WaitFor(t, "gossip and messages", b.check(func() bool { return len(b.gossip) == 50 && len(b.messages) == 50 }))
	testkit.WaitFor(t, "nothing is owed", func() bool { return !s.keepaliveDue.Load() && !other.keepaliveDue.Load() })
}

// A session that ends during an inline write is closed properly.
func TestInlineOfferAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(s *Session){
		"closed":   func(s *Session) { _ = s.raw.Close() },
		"ended":    func(s *Session) { s.CloseWithError(nil) },
		"panicked": func(s *Session) { s.writing.Store(true) }, // as if there were two writers
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newNode(t, 1, longTimeouts).serve(), newNode(t, 2, longTimeouts).serve()
			s, _ := connectNodes(t, a, b)
			testkit.WaitFor(t, "no writer", func() bool { return goroutinesIn(t, inWrite) == 0 })
			settled := make(chan error, 1)
			p := testFrame(1000)
			p.Item.Written = func(err error) { settled <- err }
			end(s)
			rejected := s.OfferGossipInline([]queuedFrame{p}, nil, nil)
			<-s.Done()
			if len(rejected) == 0 && name != "panicked" { // a panic loses the frames in flight
				<-settled
			}
		})
	}
}

// What a non-blocking flush leaves goes out before everything that follows.
func TestBatchConnKeepsTheRest(t *testing.T) {
	near, far := sockets(t)
	// The batch below is more than both sockets hold, however late the kernel
	// moves bytes from one to the other.
	_ = near.(*net.TCPConn).SetWriteBuffer(32 << 10)
	_ = far.(*net.TCPConn).SetReadBuffer(32 << 10)
	w := newBatchConn(near, time.Minute)
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	var sent []byte
	write := func(p []byte) {
		t.Helper()
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, p...)
	}
	w.beginBatch(true)
	for range 16 {
		write(block)
	}
	testkit.Must(t, w.flushBatch())
	w.beginBatch(true)
	write([]byte("behind it"))
	if err := w.flushBatch(); err != nil || !w.hasUnwritten() {
		t.Fatalf("nobody has read anything: %v", err)
	}
	got := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(far)
		got <- all
	}()
	write([]byte("last"))
	if w.hasUnwritten() {
		t.Error("it waited for the peer, and something is left")
	}
	_ = near.(*net.TCPConn).CloseWrite()
	if !bytes.Equal(<-got, sent) {
		t.Error("other bytes came")
	}
	w.beginBatch(true)
	mustWrite(t, w, "too late")
	if err := w.flushBatch(); err == nil {
		t.Error("a closed connection takes more")
	}
}
