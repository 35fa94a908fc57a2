package gossip

import (
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// FuzzArrived brings whatever may come in an envelope. Nothing panics, what is
// taken is a letter that verifies, and it is passed on as it came.
func FuzzArrived(f *testing.F) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // where synctest begins
	good, _, _ := (&oap.Letter{Topic: "news/eu", Key: publicOf(origin), Seq: 1, TS: uint64(start.UnixMilli()), Data: []byte("storm")}).Seal(origin)
	f.Add(good.Msg, good.Sig, uint64(8), uint64(3), uint64(1))
	f.Add(good.Msg, []byte(nil), uint64(8), uint64(3), uint64(1))
	open, _, _ := (&oap.Letter{Topic: "open/a", Key: publicOf(origin), TS: uint64(start.UnixMilli())}).Seal(nil)
	f.Add(open.Msg, []byte(nil), ^uint64(0), ^uint64(0), uint64(0))
	f.Add([]byte{0xa5}, []byte{1}, uint64(0), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, msg, sig []byte, hops, fanout, corr uint64) {
		synctest.Test(t, func(t *testing.T) {
			n := still(t, unsignedOn)
			peers := n.company(5)
			g := oap.Gossip{Msg: msg, Sig: sig, Hops: hops, Fanout: fanout}
			n.Arrived(peers[0], []session.Arrival{{Gossip: g, Corr: corr}, {Gossip: g, Corr: corr}})
			n.Drain()
			if err := n.Work(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n.tally.taken > 1 || n.waiting.Load() != 0 {
				t.Fatalf("taken %d times, %d bytes wait", n.tally.taken, n.waiting.Load())
			}
			if n.tally.taken == 1 {
				l, id, err := g.Open()
				if err != nil || l.CheckTime(time.Now(), n.config.TTL, n.skew) != nil || g.Verify(&l, id) != nil && (len(sig) > 0 || !n.policy.mayLack(l.Topic)) {
					t.Fatal("a letter was taken that breaks a rule")
				}
			}
			for i, p := range peers {
				for _, out := range p.took() {
					if i == 0 || n.tally.taken == 0 || out.Hops != min(hops, 8)-1 || out.Fanout != min(fanout, 3) {
						t.Fatalf("peer %d got hops %d, fan-out %d of %d, %d", i, out.Hops, out.Fanout, hops, fanout)
					}
					equalBytes(t, "msg", out.Msg, msg)
					equalBytes(t, "sig", out.Sig, sig)
				}
			}
			var id b3.Address
			copy(id[:], msg)
			n.Have(peers[1], []b3.Address{id, b3.Of(msg)})
			n.Want(peers[1], []b3.Address{id, b3.Of(msg)})
		})
	})
}
