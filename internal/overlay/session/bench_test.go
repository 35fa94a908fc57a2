package session

import (
	"crypto/ed25519"
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// countingHandler only counts gossip.
type countingHandler struct{ n atomic.Int64 }

func (c *countingHandler) Opened(*Session)                          {}
func (c *countingHandler) Gossip(_ *Session, list []IncomingGossip) { c.n.Add(int64(len(list))) }
func (c *countingHandler) Message(*Session, Incoming) error         { return nil }
func (c *countingHandler) Closed(*Session, error)                   {}

// BenchmarkGossip sends messages of 1 KiB one way, between two nodes of this
// process over TLS on loopback.
func BenchmarkGossip(b *testing.B) {
	for _, inflight := range []int{64, 512} {
		name := map[int]string{64: "inflight=64", 512: "inflight=512"}[inflight]
		b.Run(name, func(b *testing.B) {
			got := &countingHandler{}
			from := newNode(b, 1, func(s *Spec) { s.Peer.InflightFrames = inflight }).serve()
			to := newNode(b, 2, func(s *Spec) { s.Handler = got }).serve()
			s, _ := connectNodes(b, from, to)
			offerAll(b, s, got)
		})
	}
}

// offerAll offers b.N messages as fast as they are accepted.
func offerAll(b *testing.B, s *Session, got *countingHandler) {
	message := testGossip(1024)
	batch := make([]flow.FairItem[Outgoing], 0, 64)
	rejected := make([]Outgoing, 0, 64)
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	for posted := 0; posted < b.N; {
		batch = batch[:0]
		for range min(32, b.N-posted) {
			batch = append(batch, flow.FairItem[Outgoing]{Class: 1, Cost: 1100, Item: Outgoing{Message: message, Flags: oap.Event}})
		}
		rejected = s.OfferGossip(batch, rejected[:0], nil)
		posted += len(batch) - len(rejected)
		if len(rejected) > 0 {
			runtime.Gosched()
		}
	}
	for got.n.Load() < int64(b.N) {
		runtime.Gosched()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}

// TestIdleSessionIsSmall bounds the memory of an idle session.
func TestIdleSessionIsSmall(t *testing.T) {
	testkit.MemoryGate(t)
	each, _ := measureIdle(t, 200)
	t.Logf("an idle session costs %d bytes", each)
	if each > 18<<10 && !raced {
		t.Errorf("an idle session costs %d bytes", each)
	}
}

func BenchmarkIdleSession(b *testing.B) {
	for range b.N {
		live, spans := measureIdle(b, 1000)
		b.ReportMetric(float64(live), "B/session")
		b.ReportMetric(float64(spans), "spans-B/session")
	}
}

// measureIdle opens count sessions between two nodes of this process, sends a few
// frames both ways over each, which makes its stacks grow, and then a ping, after
// which it is idle. It measures what one end of a session costs from then on: heap
// and stacks of both ends, halved. The second figure includes the holes that
// handshakes leave in the heap.
func measureIdle(t testing.TB, count int) (live, spans int64) {
	got := &countingHandler{}
	generous := func(s *Spec) {
		s.Config.HandshakeRate, s.Config.Handshake, s.Config.Idle, s.Handler = 1<<20, 20*time.Second, time.Hour, got
	}
	hub, spoke := newNode(t, 1, generous).serve(), newNode(t, 2, generous)
	liveBefore, spansBefore := memoryInUse()
	for i := range count {
		// To the hub each is another peer. The spoke clears its table, so that
		// the next session is not a duplicate.
		seed := binary.BigEndian.AppendUint64(make([]byte, 24), uint64(i))
		identity, err := newIdentity(ed25519.NewKeyFromSeed(seed), pqHybrid)
		testkit.Must(t, err)
		spoke.identity = identity
		if _, err := spoke.dialPeer(spoke.ctx, hub.ID(), hub.Addr().String()); err != nil {
			t.Fatal(err)
		}
		testkit.WaitFor(t, "both ends", func() bool { return spoke.Find(hub.ID()) != nil && len(hub.Active()) == i+1 })
		spoke.Sessions.mu.Lock()
		delete(spoke.byPeer, hub.ID())
		spoke.active.Store(nil)
		spoke.Sessions.mu.Unlock()
	}
	for round := range 2 { // the gossip of the second follows the pongs
		for _, n := range []*node{hub, spoke} {
			for _, s := range n.liveSessions() {
				_ = s.SendControl(Outgoing{Message: &oap.Ping{TS: 1}, Flags: oap.Req})
				s.OfferGossip([]queuedFrame{testFrame(10)}, nil, nil)
			}
		}
		testkit.WaitFor(t, "all messages", func() bool { return got.n.Load() == int64(2*count*(round+1)) })
	}
	// A writer sleeps after a ping. One that had to send anything else, such as the
	// refusal of a ping, waits for the next ping, which here is an hour off.
	asked := time.Time{}
	testkit.WaitFor(t, "all is quiet", func() bool {
		again, quiet := time.Since(asked) > pingEvery+pingEvery/4, true
		for _, n := range []*node{hub, spoke} {
			for _, s := range n.liveSessions() {
				awake := s.keepaliveDue.Load() || s.writerWaits.Load()
				quiet = quiet && !awake
				if again && (awake || asked.IsZero() && n == hub) {
					s.ping(s.Corr(), 1)
				}
			}
		}
		if again {
			asked = time.Now()
		}
		return quiet && !again
	})
	testkit.WaitFor(t, "all readers wait", func() bool { return goroutinesIn(t, inWaitReadable) == 2*count })
	live, spans = memoryInUse()
	return (live - liveBefore) / int64(2*count), (spans - spansBefore) / int64(2*count)
}

// liveSessions returns the live sessions.
func (n *node) liveSessions() []*Session {
	n.Sessions.mu.Lock()
	defer n.Sessions.mu.Unlock()
	return slices.Collect(maps.Keys(n.live))
}

// memoryInUse returns the memory that is in use, stacks included.
func memoryInUse() (live, spans int64) {
	var stats runtime.MemStats
	for range 4 { // each collection halves a stack
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse), int64(stats.HeapInuse + stats.StackInuse)
}
