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

// sink is a peer that takes everything and keeps nothing.
type sink struct {
	serial uint64
	posted atomic.Int64
}

func (s *sink) Peer() oap.PeerID       { return oap.PeerID{byte(s.serial)} }
func (s *sink) Serial() uint64         { return s.serial }
func (s *sink) MaxFrame() int          { return oap.MaxPayload }
func (s *sink) Tell(session.Out) error { return nil }
func (s *sink) Refuse(uint64, error)   {}
func (s *sink) Expel(uint64, error)    {}
func (s *sink) SetBusy(bool)           {}
func (s *sink) Post(batch []flow.Parcel[session.Out], turned []session.Out, _ *time.Duration) []session.Out {
	s.posted.Add(int64(len(batch)))
	return turned
}

func (s *sink) PostHere(batch []flow.Parcel[session.Out], turned []session.Out, patience *time.Duration) []session.Out {
	return s.Post(batch, turned, patience)
}

// crowd is an engine with a peer that sends and some that receive.
func crowd(b *testing.B, change func(*Spec), receivers int) (e *Engine, from *link) {
	var peers []Peer
	for i := range receivers + 1 {
		peers = append(peers, &sink{serial: uint64(i + 1)})
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

// letters is envelopes with 1 KiB of data, signed or not.
func letters(b *testing.B, n int, signed bool) []oap.Gossip {
	all := make([]oap.Gossip, n)
	now := uint64(time.Now().UnixMilli())
	key := origin
	if !signed {
		key = nil
	}
	for i := range all {
		data := make([]byte, 1024)
		binary.BigEndian.PutUint64(data, uint64(i))
		all[i], _ = sealed(b, key, &oap.Letter{Topic: "open/bench", Key: publicOf(origin), Seq: uint64(i), TS: now, Data: data})
	}
	return all
}

// The whole way of an unsigned letter of 1 KiB to one peer, hashing included.
func BenchmarkTakeAndRelay(b *testing.B) {
	for _, receivers := range []int{1, 3, 100} {
		b.Run(map[int]string{1: "1", 3: "3", 100: "100"}[receivers], func(b *testing.B) {
			e, from := crowd(b, unsignedOn, receivers)
			all := letters(b, b.N, false)
			h := newHand(e)
			batch := make([]arrival, 0, 64)
			b.SetBytes(1024)
			b.ReportAllocs()
			b.ResetTimer()
			for at := 0; at < len(all); at += 64 {
				batch = batch[:0]
				for _, g := range all[at:min(at+64, len(all))] {
					batch = append(batch, arrival{session.Arrival{Gossip: g}, from})
				}
				h.handle(batch)
			}
		})
	}
}

// What of that is hashing and reading the letter.
func BenchmarkOpen(b *testing.B) {
	g := letters(b, 1, false)[0]
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
			e, from := crowd(b, func(s *Spec) {
				unsignedOn(s)
				s.Counters.Taken = func(n int) { taken.Add(int64(n)) }
			}, 1)
			all := letters(b, b.N, row.signed)
			var workers sync.WaitGroup
			for range row.workers {
				workers.Go(func() { _ = e.Work(context.Background()) })
			}
			b.ReportAllocs()
			b.ResetTimer()
			batch := make([]session.Arrival, 0, 64)
			for at := 0; at < len(all); at += 64 {
				batch = batch[:0]
				for _, g := range all[at:min(at+64, len(all))] {
					batch = append(batch, session.Arrival{Gossip: g})
				}
				for e.ingress.Len(1) > 400 {
					time.Sleep(10 * time.Microsecond)
				}
				e.Arrived(from.peer, batch)
			}
			e.Drain()
			workers.Wait()
			if taken.Load() != int64(b.N) {
				b.Fatalf("%d of %d letters were taken", taken.Load(), b.N)
			}
		})
	}
}

// printOf is a fingerprint for a number.
func printOf(i int) fingerprint {
	return fingerprint{uint64(i)*0x9e3779b97f4a7c15 + 1, uint64(i) * 0xd1342543de82ef95}
}

// A fingerprint goes into a set that holds a million.
func BenchmarkSeenInsert(b *testing.B) {
	set := newSeenSet(1<<40, 120*time.Second)
	now := uint64(time.Now().UnixMilli())
	for i := range 1_000_000 {
		set.insert(printOf(i), now-uint64(i%120_000))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		set.insert(printOf(1_000_000+i), now-uint64(i%120_000))
	}
}

// A letter that is known, from a peer that has it, too.
func BenchmarkDuplicate(b *testing.B) {
	e, from := crowd(b, unsignedOn, 1)
	h := newHand(e)
	batch := make([]arrival, 0, 64)
	for _, g := range letters(b, 64, false) {
		batch = append(batch, arrival{session.Arrival{Gossip: g}, from})
	}
	h.handle(batch)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += 64 {
		h.handle(batch)
	}
}

// What tells letters apart, beside what names them: 1 KiB.
func BenchmarkFingerprint(b *testing.B) {
	msg := letters(b, 1, false)[0].Msg
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

// A have of 1024 ids that nobody knows, with a full history.
func BenchmarkHaveOfStrangers(b *testing.B) {
	e, from := crowd(b, unsignedOn, 1)
	h := newHand(e)
	for _, g := range letters(b, 12_000, false) {
		h.handle([]arrival{{session.Arrival{Gossip: g}, from}})
	}
	strangers := idsOf(1024)
	b.ResetTimer()
	for b.Loop() {
		e.past.without(e.history.mark(strangers, 1))
	}
}
