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
	deliveries       = 1024     // letters that are kept for slow subscribers of a topic
	keptBytes        = 64 << 20 // what all topics together keep for them, shared out evenly
	consumer         = "subscriber"
)

// Delivery is a letter as a subscriber gets it. All subscribers of a node get
// the same one, so Data must not be changed.
type Delivery struct {
	letter *letter

	Origin oap.PeerID
	Topic  string
	Seq    uint64
	Time   time.Time // when it was written, by the clock of its origin
	Signed bool      // the signature of the origin was there and verified; otherwise Origin is a claim
	Data   []byte
}

// ID is the letter's id. It is computed when somebody first asks; several may ask
// at once.
func (d *Delivery) ID() b3.Address { return d.letter.address() }

// slot is a delivery on a bus. When too many bytes are kept it is emptied,
// because a bus counts letters and not bytes.
type slot struct {
	delivery atomic.Pointer[Delivery]
	size     int
}

// audience is the subscribers of this node, by topic.
type audience struct {
	// set at construction
	inv *flow.Inventory

	some atomic.Bool // somebody listens to something

	mu     sync.RWMutex // held while a bus is joined; its own mutex is a leaf
	topics map[string]*topic
	count  int
}

// topic is those who listen to one topic.
type topic struct {
	// set at construction
	name string
	bus  *flow.Bus[*slot]

	readers int // guarded by audience.mu

	mu    sync.Mutex //lockblock:leaf a slice and a sum
	kept  []*slot    // what is on the bus and still holds its letter, oldest first; those before head are gone
	head  int
	bytes int
}

func newAudience(inv *flow.Inventory) *audience {
	return &audience{inv: inv, topics: map[string]*topic{}}
}

// Subscription is one subscriber's place. It belongs to one goroutine.
type Subscription struct {
	// set at construction
	audience *audience
	topic    *topic
	reader   *flow.Reader[*slot]

	closed atomic.Bool

	// owned by the one who receives
	missed  uint64
	pending *slot // behind what was missed
}

// Subscribe hears the letters of a topic from now on, each at most once. More
// than 4096 subscriptions are refused with Busy.
func (e *Engine) Subscribe(name string) (*Subscription, error) {
	if err := oap.CheckTopic(name); err != nil {
		return nil, fault.Wrap(opSubscribe, err)
	}
	return e.audience.join(name)
}

// join finds the topic or makes it. A bus is made without a lock, because that
// is the business of the inventory, and let go if somebody was faster.
func (a *audience) join(name string) (*Subscription, error) {
	made := a.newTopic(name)
	s, used, err := a.enter(name, made)
	if !used {
		made.bus.Retire()
	}
	return s, err
}

func (a *audience) newTopic(name string) *topic {
	return &topic{name: name, bus: flow.NewBus[*slot](a.inv, flow.BusSpec{
		Service: service, Name: "deliveries", Cap: deliveries, Readers: maxSubscriptions, Each: "topic",
		From: "gossip workers, publishers", To: "subscribers",
	})}
}

func (a *audience) enter(name string, made *topic) (s *Subscription, used bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count >= maxSubscriptions {
		return nil, false, tooManySubscriptions()
	}
	t := a.topics[name]
	if t == nil {
		t, used = made, true
	}
	reader, err := t.bus.Subscribe(consumer, nil)
	if err != nil {
		return nil, false, fault.Wrap(opSubscribe, err)
	}
	a.topics[name] = t
	a.some.Store(true)
	a.count++
	t.readers++
	return &Subscription{audience: a, topic: t, reader: reader}, used, nil
}

// Close gives the place back. Closing twice is harmless.
func (s *Subscription) Close() {
	if s.closed.Swap(true) {
		return
	}
	s.reader.Close()
	if s.audience.leave(s.topic) {
		s.topic.bus.Retire()
	}
}

// leave reports whether the last one left.
func (a *audience) leave(t *topic) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count--
	t.readers--
	if t.readers > 0 {
		return false
	}
	delete(a.topics, t.name)
	a.some.Store(len(a.topics) > 0)
	return true
}

// Recv returns the next letter, waiting for it until ctx ends. A subscriber that
// is too slow loses the oldest and is told how many by a *flow.LagError; the next
// call goes on.
func (s *Subscription) Recv(ctx context.Context) (*Delivery, error) {
	for {
		next, err := s.next(ctx)
		if err != nil {
			return nil, err
		}
		delivery := next.delivery.Load()
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

// next is the next slot, empty or not. A lag of the bus is told together with
// the emptied slots before it.
func (s *Subscription) next(ctx context.Context) (*slot, error) {
	if next := s.pending; next != nil {
		s.pending = nil
		return next, nil
	}
	next, err := s.reader.Recv(ctx)
	if lag, ok := errors.AsType[*flow.LagError](err); ok {
		return nil, s.lag(lag.Missed)
	}
	if err != nil {
		return nil, fault.Wrap(opReceive, err)
	}
	return next, nil
}

func (s *Subscription) lag(more uint64) error {
	lag := &flow.LagError{Bus: "bus " + service + "/deliveries", Consumer: consumer, Missed: s.missed + more}
	s.missed = 0
	return lag
}

// find is the topic if anybody listens to it.
func (a *audience) find(name string) *topic {
	if !a.some.Load() {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.topics[name]
}

// share is how many bytes a topic may keep.
func (a *audience) share() int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return keptBytes / max(1, len(a.topics))
}

// newDelivery is a letter for those who listen to its topic.
func newDelivery(l *oap.Letter, one *letter) Delivery {
	return Delivery{
		letter: one, Origin: *one.origin, Topic: l.Topic, Seq: l.Seq, Time: time.UnixMilli(int64(l.TS)), Signed: len(one.out.Sig) > 0, Data: l.Data,
	}
}

// slotsTogether is how many slots share their memory at most.
const slotsTogether = 16

// appendSlots makes slots of letters that go to one bus, one behind the other.
// They share their memory, and so do what they hold: they are emptied in the same
// order.
func appendSlots(slots []*slot, letters []Delivery) []*slot {
	made, own := make([]slot, len(letters)), slices.Clone(letters)
	for i := range made {
		made[i].size = letterOverhead + len(own[i].Data)
		made[i].delivery.Store(&own[i])
		slots = append(slots, &made[i])
	}
	return slots
}

// deliver gives letters to those who listen to their topic, and reports whether
// anybody does.
func (a *audience) deliver(t *topic, slots []*slot) bool {
	t.keep(slots, a.share())
	return t.bus.PublishAll(slots) == nil // a closed one: the last subscriber has just left
}

// keep counts slots in, and empties the oldest ones if that is too much. The
// newest is kept whatever it takes: somebody may wait for it this moment.
func (t *topic) keep(slots []*slot, share int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, slots...)
	for _, s := range slots {
		t.bytes += s.size
	}
	t.trim(share)
}

// trim empties the oldest slots, and now and then moves the others up. Guarded
// by mu.
func (t *topic) trim(share int) {
	for held := len(t.kept) - t.head; held > 1 && (t.bytes > share || held > deliveries); held-- {
		oldest := t.kept[t.head]
		t.kept[t.head] = nil
		t.head++
		t.bytes -= oldest.size
		oldest.delivery.Store(nil)
	}
	if t.head > len(t.kept)/2 {
		n := copy(t.kept, t.kept[t.head:])
		clear(t.kept[n:])
		t.kept, t.head = t.kept[:n], 0
	}
}

// tidy holds every topic to its share, which has become smaller if there are
// more topics.
func (a *audience) tidy() {
	share := a.share()
	a.mu.RLock()
	all := make([]*topic, 0, len(a.topics))
	for _, t := range a.topics {
		all = append(all, t)
	}
	a.mu.RUnlock()
	for _, t := range all {
		t.mu.Lock()
		t.trim(share)
		t.mu.Unlock()
	}
}
