package nearby

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// When a node speaks: it asks a few times at first, announces itself twice at
// first and then often enough that nobody forgets it, and answers who asks, once a
// second at most and not at once, because all nodes heard the question.
const (
	announceEvery = 60 * time.Second
	answerPause   = time.Second
	answerDelay   = 120 * time.Millisecond // at most
)

var askAt = []time.Duration{0, time.Second, 4 * time.Second, 15 * time.Second}

// maxPackets is how many packets are read in a second; a burst is as many.
const maxPackets = 200

// networkCheck is how often the task looks whether the networks of the machine have
// changed.
const networkCheck = 10 * time.Second

// retry is how long to wait after a failure.
var retry = flow.Backoff{Min: time.Second, First: time.Second, Max: 15 * time.Second}

// Network is an interface of this machine, and its addresses of IPv4.
type Network struct {
	Index    int
	Name     string
	Prefixes []netip.Prefix // with the address of this machine
}

// Spec is what a beacon is made of.
type Spec struct {
	Self oap.PeerID
	Port func() uint16 // where this node listens for others; zero if they cannot reach it

	Networks func() ([]Network, error) // nil: those of the machine

	Count  func(Outcome) // what became of a claim, or of a packet
	Report func(State)   // how it fares; called by the task, when that changes
}

// State is how a beacon fares.
type State struct {
	Networks  []string // the interfaces on which it speaks
	Announced bool     // this node says where it is; otherwise it only listens
	Problem   error    // why it does not, or not everywhere; nil if all is well
}

func (s State) equal(other State) bool {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return slices.Equal(s.Networks, other.Networks) && s.Announced == other.Announced && text(s.Problem) == text(other.Problem)
}

// Beacon announces this node and hears others.
type Beacon struct {
	spec  Spec
	nodes list

	// owned by the task
	limit *rate.Limiter
	last  *State // that was reported
}

// New makes a beacon.
func New(spec Spec) *Beacon {
	if spec.Networks == nil {
		spec.Networks = machineNetworks
	}
	return &Beacon{spec: spec, limit: rate.NewLimiter(maxPackets, maxPackets)}
}

// Nodes lists the nodes nearby, by ID.
func (b *Beacon) Nodes(now time.Time) []Node { return b.nodes.all(now) }

// Addrs are where a node listens, if it is nearby.
func (b *Beacon) Addrs(id oap.PeerID, now time.Time) []string { return b.nodes.addrs(id, now) }

// Hide takes a node from the list, as long as it announces itself, and reports
// whether it was there.
func (b *Beacon) Hide(id oap.PeerID, now time.Time) bool { return b.nodes.hide(id, now) }

// errChanged ends a round because the networks of the machine have changed.
var errChanged = errors.New("the networks have changed")

// Serve runs until ctx ends. What fails is reported and tried again.
func (b *Beacon) Serve(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := b.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errChanged) {
			failures = -1
			continue
		}
		b.report(State{Problem: err})
		if time.Since(began) > retry.Max {
			failures = 0
		}
		if flow.Sleep(ctx, retry.Delay(failures)) != nil {
			return nil
		}
	}
	return nil
}

func (b *Beacon) report(now State) {
	if b.last == nil || !b.last.equal(now) {
		b.last = &now
		b.spec.Report(now)
	}
}

// round speaks and listens in the networks that there are now, until one of them
// changes or all fail.
func (b *Beacon) round(ctx context.Context) error {
	networks, err := b.spec.Networks()
	if err != nil {
		return err
	}
	if len(networks) == 0 {
		return &fault.Error{Op: op, Kind: fault.NotReady, Detail: "this machine is in no network that carries multicast", Next: "Connect it; the node notices."}
	}
	socket, err := open(ctx, networks)
	if err != nil {
		return err
	}
	defer socket.close()
	s := newSchedule(time.Now())
	check := time.Now().Add(networkCheck)
	for ctx.Err() == nil {
		now := time.Now()
		if asks, tells := s.due(now); asks || tells {
			if err := b.speak(socket, asks, tells); err != nil {
				return err
			}
		}
		if !now.Before(check) {
			check = now.Add(networkCheck)
			if next, err := b.spec.Networks(); err != nil || !slices.EqualFunc(next, networks, Network.equal) {
				return errors.Join(err, errChanged)
			}
		}
		packet, err := socket.read(ctx, earlier(s.next(), check))
		switch {
		case err != nil:
			return err
		case packet.bytes != nil:
			if b.hear(packet, networks, time.Now()) {
				s.asked(time.Now())
			}
		}
	}
	b.goodbye(socket)
	return nil
}

// earlier is the first of two times.
func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// speak asks and announces in each network. It fails if that is possible in none.
func (b *Beacon) speak(socket *socket, asks, tells bool) error {
	port := b.spec.Port()
	var spoken []string
	var problems []error
	for _, network := range socket.networks {
		err := error(nil)
		if tells && port != 0 {
			err = b.announce(socket, network, port, lifetime)
		}
		if asks && err == nil {
			err = socket.send(network, query())
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		spoken = append(spoken, network.Name)
	}
	problem := errors.Join(append(problems, socket.problem)...)
	if len(spoken) == 0 {
		return problem
	}
	b.report(State{Networks: spoken, Announced: port != 0, Problem: problem})
	return nil
}

func (b *Beacon) announce(socket *socket, network Network, port uint16, ttl uint32) error {
	var addrs []netip.Addr
	for _, prefix := range network.Prefixes {
		addrs = append(addrs, prefix.Addr())
	}
	packet, err := announcement(b.spec.Self.String(), port, addrs, ttl)
	if err != nil {
		return err
	}
	return socket.send(network, packet)
}

// goodbye tells the others that this node leaves. Who misses it forgets the node
// after three minutes.
func (b *Beacon) goodbye(socket *socket) {
	if port := b.spec.Port(); port != 0 {
		for _, network := range socket.networks {
			_ = b.announce(socket, network, port, 0)
		}
	}
}

// hear reads a packet, and reports whether it asks for this node.
func (b *Beacon) hear(packet packet, networks []Network, now time.Time) (asks bool) {
	if !b.limit.AllowN(now, 1) {
		b.spec.Count(Flooded)
		return false
	}
	i := slices.IndexFunc(networks, func(n Network) bool {
		return (packet.index == 0 || n.Index == packet.index) && n.contains(packet.from.Addr())
	})
	if i < 0 || packet.from.Port() != port || !packet.multicast {
		b.spec.Count(Foreign)
		return false
	}
	said, err := parse(packet.bytes, b.spec.Self.String())
	if err != nil {
		said.bad++
	}
	for range said.bad {
		b.spec.Count(Malformed)
	}
	for _, c := range said.claims {
		if c.id != b.spec.Self {
			b.spec.Count(b.nodes.add(c, packet.from.Addr(), now))
		}
	}
	return said.asks
}

func (n Network) contains(addr netip.Addr) bool {
	return slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func (n Network) equal(other Network) bool {
	return n.Index == other.Index && n.Name == other.Name && slices.Equal(n.Prefixes, other.Prefixes)
}

// schedule says when a beacon speaks.
type schedule struct {
	asks     []time.Time // still to come
	announce time.Time
	answer   time.Time // zero if nobody has asked
	answered time.Time // when this node was last announced
}

func newSchedule(now time.Time) *schedule {
	s := &schedule{announce: now}
	for _, after := range askAt {
		s.asks = append(s.asks, now.Add(after))
	}
	return s
}

// asked plans an answer.
func (s *schedule) asked(now time.Time) {
	if s.answer.IsZero() {
		s.answer = now.Add(time.Duration(rand.Int64N(int64(answerDelay)))) // all that heard the question answer
		if soonest := s.answered.Add(answerPause); s.answer.Before(soonest) {
			s.answer = soonest
		}
	}
}

// due says what is to be said now, and plans what follows.
func (s *schedule) due(now time.Time) (asks, tells bool) {
	if asks = len(s.asks) > 0 && !now.Before(s.asks[0]); asks {
		s.asks = s.asks[1:]
	}
	if tells = !now.Before(s.announce) || !s.answer.IsZero() && !now.Before(s.answer); tells {
		if first := s.answered.IsZero(); first {
			s.announce = now.Add(time.Second) // the first packet of a network may be lost
		} else {
			s.announce = now.Add(announceEvery)
		}
		s.answer, s.answered = time.Time{}, now
	}
	return asks, tells
}

// next is when something is to be said.
func (s *schedule) next() time.Time {
	at := s.announce
	if len(s.asks) > 0 {
		at = earlier(at, s.asks[0])
	}
	if !s.answer.IsZero() {
		at = earlier(at, s.answer)
	}
	return at
}
