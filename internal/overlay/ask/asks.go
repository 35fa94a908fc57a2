package ask

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/supervise"
)

// service is the label of everything that this room makes.
const service = "overlay"

// PerPeer is how many questions may be under way between two peers, each way.
const PerPeer = 64

// The operations that errors of this room name.
const (
	opAsk    = "ask.ask"
	opAnswer = "ask.answer"
)

// Peer is a session, as far as questions need one. A *session.Session is one.
type Peer interface {
	Peer() oap.PeerID
	Serial() uint64
	Corr() uint64
	MaxFrame() int
	Tell(session.Out) error
	Give(class uint64, cost int, out session.Out) error
}

// Spec is what questions are made of.
type Spec struct {
	// Answer says what this node knows. It may wait for as long as its context
	// lasts. Nil: this node knows of nobody.
	Answer func(ctx context.Context, q Question) Found

	Patience  time.Duration // how long an answer may take to be made, and then to be sent; 0 is 5 s
	Answerers *supervise.Group
	Counters  Counters
}

// Asks is all questions of a node, in both directions.
type Asks struct {
	// set at construction
	inv  *flow.Inventory
	spec Spec

	draining atomic.Bool

	mu    sync.Mutex       //lockblock:leaf a few assignments
	desks map[uint64]*desk // by session; nil for one with which nothing was ever asked
}

// desk is the questions of one session. Most sessions never have one.
type desk struct {
	// set at construction
	peer Peer
	life context.Context // ends with the session
	kill context.CancelCauseFunc

	places *flow.Permits // one for each answer in the session's queue; made by the reader, with the first question that comes

	// guarded by Asks.mu
	waiting   map[uint64]*waiter // for answers of the peer, by corr
	answering int                // questions of the peer that a task works on
}

// New makes questions without sessions.
func New(inv *flow.Inventory, spec Spec) *Asks {
	if spec.Patience == 0 {
		spec.Patience = 5 * time.Second
	}
	spec.Counters = spec.Counters.orNothing()
	return &Asks{inv: inv, spec: spec, desks: map[uint64]*desk{}}
}

// Opened makes a session known. Nothing can be asked of it before.
func (a *Asks) Opened(peer Peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.desks[peer.Serial()] = nil
}

// Closed ends all questions of a session.
func (a *Asks) Closed(peer Peer) {
	a.mu.Lock()
	d := a.desks[peer.Serial()]
	delete(a.desks, peer.Serial())
	var left []*waiter
	if d != nil {
		for _, w := range d.waiting {
			left = append(left, w)
		}
		d.waiting = nil
	}
	a.mu.Unlock()
	if d == nil {
		return
	}
	d.kill(gone)
	if d.places != nil {
		d.places.Retire()
	}
	for _, w := range left {
		a.spec.Counters.Asked(Lost)
		w.settle(Found{}, gone)
	}
}

// Drain asks and answers nothing new from now on. Answers that are due are
// given.
func (a *Asks) Drain() { a.draining.Store(true) }

// Message takes a find, a found, or the error that answers a find. It is called
// by the task that reads the session and never blocks. What is in the message
// may be gone when it returns.
func (a *Asks) Message(peer Peer, in session.Incoming) {
	switch m := in.Message.(type) {
	case *oap.Find:
		a.find(peer, in.Corr, m)
	case *oap.Found:
		a.hear(peer, in.Corr, Answered, foundIn(m), nil)
	case *oap.Error:
		a.hear(peer, in.Corr, Refused, Found{}, fault.Wrap(opAsk, m.Err()))
	}
}

// desk is the desk of a session, made if there is none; nil if the session is
// over. Guarded by mu.
func (a *Asks) desk(peer Peer) *desk {
	d, open := a.desks[peer.Serial()]
	if open && d == nil {
		d = &desk{peer: peer}
		d.life, d.kill = context.WithCancelCause(context.Background())
		a.desks[peer.Serial()] = d
	}
	return d
}

// gone is why a question ended whose session did.
var gone = &fault.Error{Op: opAsk, Kind: fault.Transient, Detail: "the connection to the peer was lost", Next: "Ask again, or ask another peer."}

// drains is what a node says that is about to leave.
var drains = &fault.Error{Op: opAsk, Kind: fault.NotReady, Detail: "this node is draining", Next: "Ask another peer."}
