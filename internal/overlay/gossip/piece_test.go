package gossip

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// desk is a peer with a queue. What lies there for long must not change.
type desk struct {
	*fake
	most int // letters in the queue; older ones make room

	mu    sync.Mutex
	queue []onDesk
}

// onDesk is a frame and what it said when it came.
type onDesk struct {
	out  session.Out
	said string
}

func (d *desk) Post(batch []flow.Parcel[session.Out], turned []session.Out, _ *time.Duration) []session.Out {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, p := range batch {
		if i%7 == 6 {
			turned = append(turned, p.Item)
			continue
		}
		d.queue = append(d.queue, onDesk{p.Item, string(p.Item.Message.(*oap.Gossip).Msg)})
		if len(d.queue) > d.most {
			turned = append(turned, d.queue[0].out)
			d.queue = d.queue[1:]
		}
	}
	return turned
}

func (d *desk) PostHere(batch []flow.Parcel[session.Out], turned []session.Out, patience *time.Duration) []session.Out {
	return d.Post(batch, turned, patience)
}

// write takes frames off the desk, as a session's writer does.
func (d *desk) write(t *testing.T, many int) {
	t.Helper()
	d.mu.Lock()
	done := d.queue[:min(many, len(d.queue))]
	d.queue = slices.Clone(d.queue[len(done):])
	d.mu.Unlock()
	for _, one := range done {
		if string(one.out.Message.(*oap.Gossip).Msg) != one.said {
			t.Fatal("a letter changed while it waited for a peer")
		}
		if one.out.Release != nil {
			one.out.Release()
		}
		one.out.Written(nil)
	}
}

// finish is done with all that it was sent.
func (f *fake) finish() {
	for _, out := range f.outs {
		if out.Release != nil {
			out.Release()
		}
	}
	f.took()
}

// deskOf is an engine with little history, a peer that sends, and one with a desk.
func deskOf(t *testing.T, most int) (*node, *fake, *desk) {
	n := still(t, func(s *Spec) { unsignedOn(s); s.Config.HistoryBytes = 128 << 10 })
	from, to := newFake(1), &desk{fake: newFake(2), most: most}
	n.open(from)
	n.mu.Lock()
	n.peers = append(slices.Clone(n.peers), to)
	n.mu.Unlock()
	n.Opened(to)
	return n, from, to
}

// openLetters are so many unsigned letters with 1 KiB of data.
func openLetters(t *testing.T, first, many int, topic string) []oap.Gossip {
	all := make([]oap.Gossip, many)
	for i := range all {
		data := make([]byte, 1024)
		binary.BigEndian.PutUint64(data, uint64(first+i))
		all[i], _ = sealed(t, nil, &oap.Letter{Topic: topic, Key: publicOf(origin), Seq: uint64(first + i), TS: uint64(time.Now().UnixMilli()), Data: data})
	}
	return all
}

// Memory is used again, and nobody who looks at a letter ever sees it change:
// queues, the history and who looks things up in it, subscribers, and who asks
// for an id long after it published.
func TestLettersDoNotChange(t *testing.T) {
	type kept struct {
		letter *letter
		said   string
	}
	type named struct {
		outcome Outcome
		id      b3.Address
	}
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 1))
			n, from, to := deskOf(t, 300)
			s := n.subscribe("open/heard")
			defer s.Close()
			var looked []kept
			var outcomes []named
			var heard []*Delivery
			first := 0
			for step := range 150 {
				switch chance.IntN(7) {
				case 0, 1:
					n.arrive(from, openLetters(t, first, 40, "open/passed")...)
					first += 40
				case 2:
					for i := range 30 {
						if err := n.Send(t.Context(), "open/own", fmt.Appendf(make([]byte, 1000), "%d %d", step, i)); err != nil {
							t.Fatal(err)
						}
					}
				case 3:
					outcome, err := n.Publish(t.Context(), "open/own", fmt.Appendf(make([]byte, 1000), "%d", step))
					if err != nil {
						t.Fatal(err)
					}
					outcomes = append(outcomes, named{outcome, b3.Of(outcome.letter.out.Msg)})
				case 4:
					n.arrive(from, openLetters(t, first, 20, "open/heard")...)
					first += 20
					heard = append(heard, s.drain(t)...)
				case 5:
					letters, _ := n.history.since(n.history.position()-min(n.history.position(), 2), nil)
					for _, l := range letters {
						looked = append(looked, kept{l, string(l.out.Msg)})
					}
				case 6:
					if last := len(to.queue) - 1; last >= 0 {
						if l := n.history.like(n.prints.of([]byte(to.queue[last].said), new([fingerprintSize]byte))); l != nil {
							looked = append(looked, kept{l, to.queue[last].said})
						}
					}
				}
				to.write(t, chance.IntN(60))
				from.finish()
			}
			to.write(t, len(to.queue))
			for _, one := range looked {
				equal(t, "a letter that was looked up", string(one.letter.out.Msg), one.said)
			}
			for _, one := range outcomes {
				equal(t, "an id that is asked for late", one.outcome.ID(), one.id)
			}
			for i, d := range heard[1:] {
				equal(t, "a delivery's number", d.Seq, binary.BigEndian.Uint64(d.Data))
				if d.Seq <= heard[i].Seq {
					t.Errorf("number %d came after %d", d.Seq, heard[i].Seq)
				}
			}
		})
	}
}

// On a busy path all memory comes back to be used again, but for that which is
// being written on.
func TestMemoryComesBack(t *testing.T) {
	for name, busy := range map[string]func(t *testing.T, n *node, from *fake, round int){
		"relay": func(t *testing.T, n *node, from *fake, round int) {
			n.arrive(from, openLetters(t, round*64, 64, "open/passed")...)
		},
		"publisher": func(t *testing.T, n *node, from *fake, round int) {
			for range 64 {
				if err := n.Send(t.Context(), "open/own", make([]byte, 1024)); err != nil {
					t.Fatal(err)
				}
			}
			from.finish()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, from, to := deskOf(t, 1000)
			made := n.watchPieces()
			one := newHand(n.Engine)
			n.hands.New = func() any { return one } // a pool may lose what it is given, and with it the sheet that is being written on
			for round := range 20 {
				busy(t, n, from, round)
				to.write(t, 1000)
			}
			n.history.expire(time.Now().Add(time.Hour).UnixMilli())
			away := 0
			for _, p := range *made {
				if p.holds.Load() != 0 {
					away++
				}
			}
			if written := min(1, len(one.sheet.bytes)); len(*made) == 0 || away != written {
				t.Errorf("%s: %d of %d pieces did not come back, %d is being written on", name, away, len(*made), written)
			}
		})
	}
}

// watchPieces is all pieces that are made from now on.
func (n *node) watchPieces() *[]*piece {
	made, create := new([]*piece), n.pieces.New
	n.pieces.New = func() any {
		p := create().(*piece)
		*made = append(*made, p)
		return p
	}
	return made
}

// A small letter, or one that somebody listens to, does not take a whole piece.
func TestFewLettersTakeNoPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from, to := deskOf(t, 1000)
		made := n.watchPieces()
		s := n.subscribe("open/heard")
		defer s.Close()
		n.arrive(from, openLetters(t, 0, 7, "open/passed")...)
		n.arrive(from, openLetters(t, 7, 64, "open/heard")...)
		for i := range 64 {
			n.arrive(from, openLetters(t, 100+i, 1, "open/passed")...)
		}
		equal(t, "pieces", len(*made), 0)
		equal(t, "delivered", len(s.drain(t)), 64)
		to.write(t, 1000)
	})
}

// Who lets go more often than it held is found out.
func TestLetGoTwice(t *testing.T) {
	p := takePiece(newPieces())
	p.letGo()
	defer func() {
		if recover() == nil {
			t.Error("nobody noticed")
		}
	}()
	p.letGo()
}
