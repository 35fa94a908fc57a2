package gossip

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// discardPeer is a peer that accepts everything and keeps nothing.
type discardPeer struct {
	serial uint64
	posted atomic.Int64
}

func (d *discardPeer) Peer() oap.PeerID                   { return oap.PeerID{byte(d.serial)} }
func (d *discardPeer) Serial() uint64                     { return d.serial }
func (d *discardPeer) MaxFrame() int                      { return oap.MaxPayload }
func (d *discardPeer) SendControl(session.Outgoing) error { return nil }
func (d *discardPeer) Refuse(uint64, error)               {}
func (d *discardPeer) Expel(uint64, error)                {}
func (d *discardPeer) SetBusy(bool)                       {}
func (d *discardPeer) OfferGossip(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, _ *time.Duration) []session.Outgoing {
	d.posted.Add(int64(len(batch)))
	return rejected
}

func (d *discardPeer) OfferGossipInline(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, patience *time.Duration) []session.Outgoing {
	return d.OfferGossip(batch, rejected, patience)
}

// benchEngine is an engine with a peer that sends and some that receive.
func benchEngine(b *testing.B, change func(*Spec), receivers int) (e *Engine, from *link) {
	var peers []Peer
	for i := range receivers + 1 {
		peers = append(peers, &discardPeer{serial: uint64(i + 1)})
	}
	spec := Spec{Key: keyOf(1), Config: DefaultConfig(), Topics: 128, Skew: 2 * time.Minute, Peers: func() []Peer { return peers }}
	spec.Config.Seen = 1 << 30
	change(&spec)
	e = New(flow.NewInventory(), spec)
	for _, p := range peers {
		e.Opened(p)
	}
	return e, e.links[1]
}

// testEnvelopes is envelopes with 1 KiB of data, signed or not.
func testEnvelopes(b *testing.B, n int, signed bool) []oap.Gossip {
	all := make([]oap.Gossip, n)
	now := uint64(time.Now().UnixMilli())
	key := origin
	if !signed {
		key = nil
	}
	for i := range all {
		data := make([]byte, 1024)
		binary.BigEndian.PutUint64(data, uint64(i))
		all[i], _ = sealed(b, key, &oap.GossipMessage{Topic: "open/bench", Key: publicOf(origin), Seq: uint64(i), TS: now, Data: data})
	}
	return all
}

// The whole path of an unsigned message of 1 KiB to one peer, hashing included.
func BenchmarkTakeAndRelay(b *testing.B) {
	for _, receivers := range []int{1, 3, 100} {
		b.Run(map[int]string{1: "1", 3: "3", 100: "100"}[receivers], func(b *testing.B) {
			e, from := benchEngine(b, allowUnsigned, receivers)
			all := testEnvelopes(b, b.N, false)
			batch := make([]session.IncomingGossip, 0, 64)
			b.SetBytes(1024)
			b.ReportAllocs()
			b.ResetTimer()
			for at := 0; at < len(all); at += 64 {
				batch = batch[:0]
				for _, g := range all[at:min(at+64, len(all))] {
					batch = append(batch, session.IncomingGossip{Gossip: g})
				}
				e.HandleGossip(from.peer, batch)
			}
		})
	}
}

// What of that is hashing and decoding the message.
func BenchmarkOpen(b *testing.B) {
	g := testEnvelopes(b, 1, false)[0]
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := g.Open(); err != nil {
			b.Fatal(err)
		}
	}
}

// Through the queue and the workers, from a reader.
func BenchmarkArrived(b *testing.B) {
	for name, row := range map[string]struct {
		signed  bool
		workers int
	}{"unsigned-1": {false, 1}, "unsigned-2": {false, 2}, "signed-1": {true, 1}, "signed-2": {true, 2}} {
		b.Run(name, func(b *testing.B) {
			var taken atomic.Int64
			e, from := benchEngine(b, func(s *Spec) {
				allowUnsigned(s)
				s.Counters.Taken = func(n int) { taken.Add(int64(n)) }
			}, 1)
			all := testEnvelopes(b, b.N, row.signed)
			var workers sync.WaitGroup
			for range row.workers {
				workers.Go(func() { _ = e.Work(context.Background()) })
			}
			b.ReportAllocs()
			b.ResetTimer()
			batch := make([]session.IncomingGossip, 0, 64)
			for at := 0; at < len(all); at += 64 {
				batch = batch[:0]
				for _, g := range all[at:min(at+64, len(all))] {
					batch = append(batch, session.IncomingGossip{Gossip: g})
				}
				for from.share.queued.items.Load() > shareItems-64 {
					time.Sleep(10 * time.Microsecond)
				}
				e.HandleGossip(from.peer, batch)
			}
			e.Drain()
			workers.Wait()
			if taken.Load() != int64(b.N) {
				b.Fatalf("%d of %d messages were taken", taken.Load(), b.N)
			}
		})
	}
}

// testFingerprint is a fingerprint for a number.
func testFingerprint(i int) fingerprint {
	return fingerprint{uint64(i)*0x9e3779b97f4a7c15 + 1, uint64(i) * 0xd1342543de82ef95}
}

// A fingerprint goes into a set that holds a million.
func BenchmarkSeenInsert(b *testing.B) {
	set, by := newSeenSet(1<<40, 120*time.Second), &share{}
	now := uint64(time.Now().UnixMilli())
	for i := range 1_000_000 {
		set.insert(testFingerprint(i), now-uint64(i%120_000), by)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		set.insert(testFingerprint(1_000_000+i), now-uint64(i%120_000), by)
	}
}

// A message that is known, from a peer that has it, too.
func BenchmarkDuplicate(b *testing.B) {
	e, from := benchEngine(b, allowUnsigned, 1)
	batch := make([]session.IncomingGossip, 0, 64)
	for _, g := range testEnvelopes(b, 64, false) {
		batch = append(batch, session.IncomingGossip{Gossip: g})
	}
	e.HandleGossip(from.peer, batch)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += 64 {
		e.HandleGossip(from.peer, batch)
	}
}

// A fingerprint compared with an id: 1 KiB.
func BenchmarkFingerprint(b *testing.B) {
	msg := testEnvelopes(b, 1, false)[0].Msg
	prints, room := newFingerprinter(), new([fingerprintSize]byte)
	b.Run("fingerprint", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			prints.of(msg, room)
		}
	})
	b.Run("id", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b3.Of(msg)
		}
	})
}

// A have of 1024 unknown ids, with a full history.
func BenchmarkHaveOfStrangers(b *testing.B) {
	e, from := benchEngine(b, allowUnsigned, 1)
	for _, g := range testEnvelopes(b, 12_000, false) {
		e.HandleGossip(from.peer, []session.IncomingGossip{{Gossip: g}})
	}
	strangers := idsOf(1024)
	b.ResetTimer()
	for b.Loop() {
		e.evicted.exclude(e.history.addHolders(strangers, 1))
	}
}
