package session

import (
	"crypto/ed25519"
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"micronode/internal/flow"
	"micronode/internal/oap"
)

// counting takes letters and only counts them.
type counting struct{ n atomic.Int64 }

func (c *counting) Opened(*Session)                    {}
func (c *counting) Arrived(_ *Session, list []Arrival) { c.n.Add(int64(len(list))) }
func (c *counting) Message(*Session, Incoming) error   { return nil }
func (c *counting) Closed(*Session, error)             {}

// BenchmarkGossip sends letters of 1 KiB one way, between two nodes of this
// process over TLS on loopback.
func BenchmarkGossip(b *testing.B) {
	for _, inflight := range []int{64, 512} {
		name := map[int]string{64: "inflight=64", 512: "inflight=512"}[inflight]
		b.Run(name, func(b *testing.B) {
			got := &counting{}
			from := newNode(b, 1, func(s *Spec) { s.Peer.InflightFrames = inflight }).serve()
			to := newNode(b, 2, func(s *Spec) { s.Handler = got }).serve()
			s, _ := meet(b, from, to)
			stream(b, s, got)
		})
	}
}

// stream posts b.N letters as fast as they are taken.
func stream(b *testing.B, s *Session, got *counting) {
	message := gossip(1024)
	batch := make([]flow.Parcel[Out], 0, 64)
	turned := make([]Out, 0, 64)
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	for posted := 0; posted < b.N; {
		batch = batch[:0]
		for range min(32, b.N-posted) {
			batch = append(batch, flow.Parcel[Out]{Class: 1, Cost: 1100, Item: Out{Message: message, Flags: oap.Event}})
		}
		turned = s.Post(batch, turned[:0], nil)
		posted += len(batch) - len(turned)
		if len(turned) > 0 {
			runtime.Gosched()
		}
	}
	for got.n.Load() < int64(b.N) {
		runtime.Gosched()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}

// TestIdleSessionIsSmall holds what a session costs that does nothing.
func TestIdleSessionIsSmall(t *testing.T) {
	each, _ := idle(t, 200)
	t.Logf("an idle session costs %d bytes", each)
	if each > 18<<10 && !raced {
		t.Errorf("an idle session costs %d bytes", each)
	}
}

func BenchmarkIdleSession(b *testing.B) {
	for range b.N {
		live, spans := idle(b, 1000)
		b.ReportMetric(float64(live), "B/session")
		b.ReportMetric(float64(spans), "spans-B/session")
	}
}

// idle opens so many sessions between two nodes of this process, lets each carry
// a few frames both ways, which makes its stacks grow, and then a ping, after
// which it is quiet. It measures what one end of one of them costs from then on:
// heap and stacks of both ends, halved. The second figure counts the holes that
// handshakes leave in the heap too.
func idle(t testing.TB, count int) (live, spans int64) {
	got := &counting{}
	generous := func(s *Spec) {
		s.Config.HandshakeRate, s.Config.Handshake, s.Config.Idle, s.Handler = 1<<20, 20*time.Second, time.Hour, got
	}
	hub, spoke := newNode(t, 1, generous).serve(), newNode(t, 2, generous)
	liveBefore, spansBefore := held()
	for i := range count {
		// To the hub each is another peer. The spoke forgets what it has, so
		// that it does not take the next one for a duplicate.
		seed := binary.BigEndian.AppendUint64(make([]byte, 24), uint64(i))
		identity, err := newIdentity(ed25519.NewKeyFromSeed(seed), hybrid)
		if err != nil {
			t.Fatal(err)
		}
		spoke.identity = identity
		if _, err := spoke.call(spoke.ctx, hub.ID(), hub.Addr().String()); err != nil {
			t.Fatal(err)
		}
		until(t, "both ends", func() bool { return spoke.Find(hub.ID()) != nil && len(hub.Active()) == i+1 })
		spoke.Sessions.mu.Lock()
		delete(spoke.table, hub.ID())
		spoke.active.Store(nil)
		spoke.Sessions.mu.Unlock()
	}
	for round := range 2 { // the letters of the second come behind the pongs
		for _, n := range []*node{hub, spoke} {
			for s := range n.live {
				_ = s.Tell(Out{Message: &oap.Ping{TS: 1}, Flags: oap.Req})
				s.Post([]parcelOf{parcel(10)}, nil, nil)
			}
		}
		until(t, "all letters", func() bool { return got.n.Load() == int64(2*count*(round+1)) })
	}
	// A ping is what sends a writer to bed. One that had to answer more than small
	// talk, such as a ping too many, waits for the next, which here is an hour off.
	asked := time.Time{}
	until(t, "all is quiet", func() bool {
		again, quiet := time.Since(asked) > pingEvery+pingEvery/4, true
		for _, n := range []*node{hub, spoke} {
			for s := range n.live {
				awake := s.owes.Load() || s.lingers.Load()
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
	until(t, "all readers doze", func() bool { return running(t, inTouch) == 2*count })
	live, spans = held()
	return (live - liveBefore) / int64(2*count), (spans - spansBefore) / int64(2*count)
}

// held is the memory that is in use, stacks included.
func held() (live, spans int64) {
	var stats runtime.MemStats
	for range 4 { // a stack becomes smaller by half with each
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse), int64(stats.HeapInuse + stats.StackInuse)
}
