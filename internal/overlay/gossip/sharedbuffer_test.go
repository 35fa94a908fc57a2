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
	"micronode/internal/testkit"
)

// queuePeer is a peer with a queue. What is in it for long must not change.
type queuePeer struct {
	*fakePeer
	limit int // messages in the queue; older ones make room

	mu    sync.Mutex
	queue []queuedFrame
}

// queuedFrame is a frame and its content when it came.
type queuedFrame struct {
	out      session.Outgoing
	original string
}

func (q *queuePeer) OfferGossip(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, _ *time.Duration) []session.Outgoing {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, p := range batch {
		if i%7 == 6 {
			rejected = append(rejected, p.Item)
			continue
		}
		q.queue = append(q.queue, queuedFrame{p.Item, string(p.Item.Message.(*oap.Gossip).Msg)})
		if len(q.queue) > q.limit {
			rejected = append(rejected, q.queue[0].out)
			q.queue = q.queue[1:]
		}
	}
	return rejected
}

func (q *queuePeer) OfferGossipInline(batch []flow.FairItem[session.Outgoing], rejected []session.Outgoing, patience *time.Duration) []session.Outgoing {
	return q.OfferGossip(batch, rejected, patience)
}

// write takes frames off the queue, as a session's writer does.
func (q *queuePeer) write(t *testing.T, many int) {
	t.Helper()
	q.mu.Lock()
	done := q.queue[:min(many, len(q.queue))]
	q.queue = slices.Clone(q.queue[len(done):])
	q.mu.Unlock()
	for _, one := range done {
		if string(one.out.Message.(*oap.Gossip).Msg) != one.original {
			t.Fatal("a message changed while it waited for a peer")
		}
		if one.out.Release != nil {
			one.out.Release()
		}
		one.out.Written(nil)
	}
}

// releaseAll releases all that it was sent.
func (f *fakePeer) releaseAll() {
	for _, out := range f.outs {
		if out.Release != nil {
			out.Release()
		}
	}
	f.takeGossip()
}

// newQueuePeer makes an engine with little history, a peer that sends, and one
// with a queue.
func newQueuePeer(t *testing.T, most int) (*node, *fakePeer, *queuePeer) {
	n := newNode(t, func(s *Spec) { allowUnsigned(s); s.Config.HistoryBytes = 128 << 10 })
	from, to := newFakePeer(1), &queuePeer{fakePeer: newFakePeer(2), limit: most}
	n.open(from)
	n.mu.Lock()
	n.peers = append(slices.Clone(n.peers), to)
	n.mu.Unlock()
	n.Opened(to)
	return n, from, to
}

// unsignedMessages are so many unsigned messages with 1 KiB of data.
func unsignedMessages(t *testing.T, first, many int, topic string) []oap.Gossip {
	all := make([]oap.Gossip, many)
	for i := range all {
		data := make([]byte, 1024)
		binary.BigEndian.PutUint64(data, uint64(first+i))
		all[i], _ = sealed(t, nil, &oap.GossipMessage{Topic: topic, Key: publicOf(origin), Seq: uint64(first + i), TS: uint64(time.Now().UnixMilli()), Data: data})
	}
	return all
}

// Memory is reused, and no holder of a message ever sees it change: queues, the
// history and its look-ups, subscribers, and a publisher that asks for an id
// long after it published.
func TestMessagesDoNotChange(t *testing.T) {
	type kept struct {
		message *storedMessage
		said    string
	}
	type named struct {
		outcome PublishResult
		id      b3.Address
	}
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 1))
			n, from, to := newQueuePeer(t, 300)
			s := n.subscribe("open/heard")
			defer s.Close()
			var looked []kept
			var outcomes []named
			var heard []*Message
			first := 0
			for step := range 150 {
				switch chance.IntN(7) {
				case 0, 1:
					n.arrive(from, unsignedMessages(t, first, 40, "open/passed")...)
					first += 40
				case 2:
					for i := range 30 {
						testkit.Must(t, n.PublishNoID(t.Context(), "open/own", fmt.Appendf(make([]byte, 1000), "%d %d", step, i)))
					}
				case 3:
					outcome, err := n.Publish(t.Context(), "open/own", fmt.Appendf(make([]byte, 1000), "%d", step))
					testkit.Must(t, err)
					outcomes = append(outcomes, named{outcome, b3.Of(outcome.message.envelope.Msg)})
				case 4:
					n.arrive(from, unsignedMessages(t, first, 20, "open/heard")...)
					first += 20
					heard = append(heard, s.receiveAll(t)...)
				case 5:
					messages, _ := n.history.since(n.history.position()-min(n.history.position(), 2), nil)
					for _, l := range messages {
						looked = append(looked, kept{l, string(l.envelope.Msg)})
					}
				case 6:
					if last := len(to.queue) - 1; last >= 0 {
						if l := n.history.findByFingerprint(n.fingerprinter.of([]byte(to.queue[last].original), new([fingerprintSize]byte))); l != nil {
							looked = append(looked, kept{l, to.queue[last].original})
						}
					}
				}
				to.write(t, chance.IntN(60))
				from.releaseAll()
			}
			to.write(t, len(to.queue))
			for _, one := range looked {
				testkit.Equal(t, "a message that was looked up", string(one.message.envelope.Msg), one.said)
			}
			for _, one := range outcomes {
				testkit.Equal(t, "an id that is asked for late", one.outcome.ID(), one.id)
			}
			for i, d := range heard[1:] {
				testkit.Equal(t, "a delivery's number", d.Seq, binary.BigEndian.Uint64(d.Data))
				if d.Seq <= heard[i].Seq {
					t.Errorf("number %d came after %d", d.Seq, heard[i].Seq)
				}
			}
		})
	}
}

// On a busy path all memory is returned for reuse, but for the current publish
// buffer.
func TestMemoryComesBack(t *testing.T) {
	for name, busy := range map[string]func(t *testing.T, n *node, from *fakePeer, round int){
		"relay": func(t *testing.T, n *node, from *fakePeer, round int) {
			n.arrive(from, unsignedMessages(t, round*64, 64, "open/passed")...)
		},
		"publisher": func(t *testing.T, n *node, from *fakePeer, round int) {
			for range 64 {
				testkit.Must(t, n.PublishNoID(t.Context(), "open/own", make([]byte, 1024)))
			}
			from.releaseAll()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, from, to := newQueuePeer(t, 1000)
			made := n.trackBuffers()
			one := newBatchState(n.Engine)
			n.batchStates.New = func() any { return one } // a pool may drop what is put into it, and with it the current publish buffer
			for round := range 20 {
				busy(t, n, from, round)
				to.write(t, 1000)
			}
			n.history.expire(time.Now().Add(time.Hour).UnixMilli())
			away := 0
			for _, p := range *made {
				if p.refs.Load() != 0 {
					away++
				}
			}
			if written := min(1, len(one.publishBuffer.bytes)); len(*made) == 0 || away != written {
				t.Errorf("%s: %d of %d pieces did not come back, %d is being written on", name, away, len(*made), written)
			}
		})
	}
}

// trackBuffers returns all buffers that are made from now on.
func (n *node) trackBuffers() *[]*sharedBuffer {
	made, create := new([]*sharedBuffer), n.buffers.New
	n.buffers.New = func() any {
		p := create().(*sharedBuffer)
		*made = append(*made, p)
		return p
	}
	return made
}

// A small message, or one with subscribers, does not take a whole buffer.
func TestFewMessagesTakeNoSharedBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from, to := newQueuePeer(t, 1000)
		made := n.trackBuffers()
		s := n.subscribe("open/heard")
		defer s.Close()
		n.arrive(from, unsignedMessages(t, 0, 7, "open/passed")...)
		n.arrive(from, unsignedMessages(t, 7, 64, "open/heard")...)
		for i := range 64 {
			n.arrive(from, unsignedMessages(t, 100+i, 1, "open/passed")...)
		}
		testkit.Equal(t, "pieces", len(*made), 0)
		testkit.Equal(t, "delivered", len(s.receiveAll(t)), 64)
		to.write(t, 1000)
	})
}

// A second unref of one reference panics.
func TestUnrefTwice(t *testing.T) {
	p := getSharedBuffer(newSharedBuffers())
	p.unref()
	defer func() {
		if recover() == nil {
			t.Error("nobody noticed")
		}
	}()
	p.unref()
}
