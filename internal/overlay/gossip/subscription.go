package gossip

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

const (
	maxSubscriptions = 4096
	busCapacity      = 1024     // messages that are kept for slow subscribers of a topic
	deliveryBudget   = 64 << 20 // bytes that all topics together keep for them, split evenly
	consumer         = "subscriber"

	opSubscribe = "gossip.subscribe" // as it appears in errors
	opReceive   = "gossip.recv"
)

// Message is a message as a subscriber gets it. All subscribers of a node get
// the same one, so Data must not be changed.
type Message struct {
	stored *storedMessage

	Publisher oap.PeerID
	Topic     string
	Seq       uint64
	Time      time.Time // when it was composed, by the clock of its publisher
	Signed    bool      // it has a signature of the publisher, which was verified; otherwise Publisher is a claim
	Data      []byte
}

// ID returns the message's id. It is computed at the first call. Concurrent
// calls are safe.
func (m *Message) ID() b3.Address { return m.stored.messageID() }

// deliverySlot is a delivery on a bus. When too many bytes are kept it is
// emptied, because a bus counts messages and not bytes.
type deliverySlot struct {
	message atomic.Pointer[Message]
	size    int
}

// subscriberSet is the subscribers of this node, by topic.
type subscriberSet struct {
	// set at construction
	inv *flow.Inventory

	nonEmpty atomic.Bool // there is a subscription

	mu     sync.RWMutex // held while a bus is joined; its own mutex is a leaf
	topics map[string]*topicState
	count  int
}

// topicState is the subscribers of one topic.
type topicState struct {
	// set at construction
	name string
	bus  *flow.Bus[*deliverySlot]

	readers int // guarded by subscriberSet.mu

	mu    sync.Mutex      //lockblock:leaf a slice and a sum
	slots []*deliverySlot // what is on the bus and still holds its message, oldest first; those before head are empty
	head  int
	bytes int
}

// Subscription reads the messages of one topic. It belongs to one goroutine.
type Subscription struct {
	// set at construction
	subscribers *subscriberSet
	topic       *topicState
	reader      *flow.Reader[*deliverySlot]

	closed atomic.Bool

	// owned by the receiving goroutine
	missed  uint64
	pending *deliverySlot // behind what was missed
}

// Subscribe returns a subscription to the messages of a topic from now on, each
// at most once. More than 4096 subscriptions are refused with Busy.
//
// A bus is made without a lock, because that calls the inventory, and is
// retired if the topic has one already.
func (e *Engine) Subscribe(name string) (*Subscription, error) {
	if err := oap.CheckTopic(name); err != nil {
		return nil, fault.Wrap(opSubscribe, err)
	}
	made := &topicState{name: name, bus: flow.NewBus[*deliverySlot](e.subscribers.inv, flow.BusSpec{
		Service: service, Name: "deliveries", Cap: busCapacity, Readers: maxSubscriptions, Each: "topic",
		From: "gossip workers, publishers", To: "subscribers",
	})}
	s, used, err := e.subscribers.attach(name, made)
	if !used {
		made.bus.Retire()
	}
	return s, err
}

// attach adds a subscription to a topic, or to the made one if there is none.
func (ss *subscriberSet) attach(name string, made *topicState) (s *Subscription, used bool, err error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.count >= maxSubscriptions {
		return nil, false, fault.New(opSubscribe, fault.Busy, "the maximum of %d subscriptions is reached", maxSubscriptions).
			Advise("Close a subscription.")
	}
	t := ss.topics[name]
	if t == nil {
		t, used = made, true
	}
	reader, err := t.bus.Subscribe(consumer, nil)
	if err != nil {
		return nil, false, fault.Wrap(opSubscribe, err)
	}
	ss.topics[name] = t
	ss.nonEmpty.Store(true)
	ss.count++
	t.readers++
	return &Subscription{subscribers: ss, topic: t, reader: reader}, used, nil
}

// Close ends the subscription. Closing twice is harmless.
func (s *Subscription) Close() {
	if s.closed.Swap(true) {
		return
	}
	s.reader.Close()
	ss, t := s.subscribers, s.topic
	ss.mu.Lock()
	ss.count--
	t.readers--
	last := t.readers == 0
	if last {
		delete(ss.topics, t.name)
		ss.nonEmpty.Store(len(ss.topics) > 0)
	}
	ss.mu.Unlock()
	if last {
		t.bus.Retire()
	}
}

// Recv returns the next message, waiting for it until ctx ends. A subscriber
// that is too slow loses the oldest messages; Recv then returns a
// *flow.LagError with their number, and the next call continues.
func (s *Subscription) Recv(ctx context.Context) (*Message, error) {
	for {
		next := s.pending
		s.pending = nil
		if next == nil {
			var err error
			next, err = s.reader.Recv(ctx)
			if lag, ok := errors.AsType[*flow.LagError](err); ok {
				return nil, s.lag(lag.Missed) // together with the emptied slots before it
			}
			if err != nil {
				return nil, fault.Wrap(opReceive, err)
			}
		}
		delivery := next.message.Load()
		switch {
		case delivery == nil:
			s.missed++
		case s.missed > 0:
			s.pending = next
			return nil, s.lag(0)
		default:
			return delivery, nil
		}
	}
}

// lag returns how many messages were missed: the emptied slots, and more.
func (s *Subscription) lag(more uint64) error {
	lag := &flow.LagError{Bus: "bus " + service + "/deliveries", Consumer: consumer, Missed: s.missed + more}
	s.missed = 0
	return lag
}

// topicOf returns the topic if it has subscribers.
func (ss *subscriberSet) topicOf(name string) *topicState {
	if !ss.nonEmpty.Load() {
		return nil
	}
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.topics[name]
}

// topicBudget returns how many bytes a topic may keep.
func (ss *subscriberSet) topicBudget() int {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return deliveryBudget / max(1, len(ss.topics))
}

// deliveryBatch is what the subscribers of one topic get of a batch. Most
// messages of a batch are on the topic of the one before.
type deliveryBatch struct {
	topic    *topicState // nil if it has no subscribers
	name     string      // empty if no topic was looked up
	messages []Message
	slots    []*deliverySlot // of them, while they are delivered
}

// queueDelivery adds a message to those that subscribers of this node get.
func (b *batchState) queueDelivery(m *oap.GossipMessage, one *storedMessage) {
	if !b.hasSubscribers(m.Topic) {
		return
	}
	one.retain()
	b.deliveries.messages = append(b.deliveries.messages, Message{
		stored: one, Publisher: *one.publisher, Topic: m.Topic, Seq: m.Seq, Time: time.UnixMilli(int64(m.TS)), Signed: len(one.envelope.Sig) > 0, Data: m.Data,
	})
}

// hasSubscribers reports whether a topic has subscribers, and makes it the
// topic of b.deliveries.
func (b *batchState) hasSubscribers(topic string) bool {
	if topic != b.deliveries.name {
		b.flushDeliveries()
		b.deliveries.topic, b.deliveries.name = b.engine.subscribers.topicOf(topic), topic
	}
	return b.deliveries.topic != nil
}

// slotsPerBlock is how many slots share their memory at most.
const slotsPerBlock = 16

// flushDeliveries gives what was collected to the subscribers of its topic.
// Consecutive slots share their memory, and so do the messages: they are emptied
// in the same order.
//
// If the topic then keeps more than its budget, its oldest slots are emptied.
// The newest is kept whatever its size: a subscriber may be waiting for it.
func (b *batchState) flushDeliveries() {
	d, bytes := &b.deliveries, 0
	for batch := range slices.Chunk(d.messages, slotsPerBlock) {
		made, own := make([]deliverySlot, len(batch)), slices.Clone(batch)
		for i := range made {
			made[i].size = messageOverhead + len(own[i].Data)
			made[i].message.Store(&own[i])
			d.slots = append(d.slots, &made[i])
			bytes += made[i].size
		}
	}
	if t := d.topic; len(d.messages) > 0 {
		budget := b.engine.subscribers.topicBudget()
		t.mu.Lock()
		t.slots = append(t.slots, d.slots...)
		t.bytes += bytes
		t.trim(budget)
		t.mu.Unlock()
		if t.bus.PublishAll(d.slots) == nil { // it fails if the last subscriber has just left
			b.engine.counters.Delivered(len(d.messages))
		}
	}
	clear(d.messages)
	clear(d.slots)
	d.topic, d.name, d.messages, d.slots = nil, "", d.messages[:0], d.slots[:0]
}

// trim empties the oldest slots, and now and then moves the others up. Guarded
// by mu.
func (t *topicState) trim(share int) {
	for held := len(t.slots) - t.head; held > 1 && (t.bytes > share || held > busCapacity); held-- {
		oldest := t.slots[t.head]
		t.slots[t.head] = nil
		t.head++
		t.bytes -= oldest.size
		oldest.message.Store(nil)
	}
	if t.head > len(t.slots)/2 {
		n := copy(t.slots, t.slots[t.head:])
		clear(t.slots[n:])
		t.slots, t.head = t.slots[:n], 0
	}
}

// trimAll trims every topic to its budget, which is smaller when there are more
// topics.
func (ss *subscriberSet) trimAll() {
	share := ss.topicBudget()
	ss.mu.RLock()
	all := make([]*topicState, 0, len(ss.topics))
	for _, t := range ss.topics {
		all = append(all, t)
	}
	ss.mu.RUnlock()
	for _, t := range all {
		t.mu.Lock()
		t.trim(share)
		t.mu.Unlock()
	}
}
