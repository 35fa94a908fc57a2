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

// service is the label of everything that this package makes.
const service = "overlay"

// PerPeer is how many questions may be under way between two peers, each way.
const PerPeer = 64

// The operations that errors of this package name.
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
	SendControl(session.Outgoing) error
	SendBulk(class uint64, cost int, out session.Outgoing) error
}

// Spec is what questions are made of.
type Spec struct {
	// Answer returns what this node knows. It may wait for as long as its
	// context lasts. Nil: this node knows nothing.
	Answer func(ctx context.Context, q Question) Found

	Patience  time.Duration // how long an answer may take to be made, and then to be sent; 0 is 5 s
	Answerers *supervise.Group
	Counters  Counters
}

// Queries is all questions of a node, in both directions.
type Queries struct {
	// set at construction
	inv  *flow.Inventory
	spec Spec

	draining atomic.Bool

	mu        sync.Mutex                 //lockblock:leaf a few assignments
	bySession map[uint64]*sessionQueries // by session; nil for one without questions so far
}

// sessionQueries is the questions of one session. Most sessions never have one.
type sessionQueries struct {
	// set at construction
	peer   Peer
	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc

	queuePermits *flow.Permits // one for each answer in the session's queue; made by the reader, with the first question that comes

	// guarded by Queries.mu
	pending   map[uint64]*pendingQuery // by corr
	answering int                      // questions of the peer that a task works on
}

// New makes Queries without sessions.
func New(inv *flow.Inventory, spec Spec) *Queries {
	if spec.Patience == 0 {
		spec.Patience = 5 * time.Second
	}
	spec.Counters = spec.Counters.withDefaults()
	return &Queries{inv: inv, spec: spec, bySession: map[uint64]*sessionQueries{}}
}

// Opened registers a session. It must be called before anything is asked on it.
func (queries *Queries) Opened(peer Peer) {
	queries.mu.Lock()
	defer queries.mu.Unlock()
	queries.bySession[peer.Serial()] = nil
}

// Closed ends all questions of a session.
func (queries *Queries) Closed(peer Peer) {
	queries.mu.Lock()
	d := queries.bySession[peer.Serial()]
	delete(queries.bySession, peer.Serial())
	var left []*pendingQuery
	if d != nil {
		for _, w := range d.pending {
			left = append(left, w)
		}
		d.pending = nil
	}
	queries.mu.Unlock()
	if d == nil {
		return
	}
	d.cancel(errSessionLost)
	if d.queuePermits != nil {
		d.queuePermits.Retire()
	}
	for _, w := range left {
		queries.spec.Counters.Asked(Lost)
		w.complete(Found{}, errSessionLost)
	}
}

// Drain stops new questions and answers. Questions that are being answered are
// finished.
func (queries *Queries) Drain() { queries.draining.Store(true) }

// Message handles a find, a found, or the error that answers a find. It is
// called by the task that reads the session and never blocks. What is in the
// message may be gone when it returns.
func (queries *Queries) Message(peer Peer, in session.Incoming) {
	switch m := in.Message.(type) {
	case *oap.Find:
		queries.handleFind(peer, in.Corr, m)
	case *oap.Found:
		queries.handleAnswer(peer, in.Corr, Answered, foundFromMessage(m), nil)
	case *oap.Error:
		queries.handleAnswer(peer, in.Corr, Refused, Found{}, fault.Wrap(opAsk, m.Err()))
	}
}

// queriesOf returns the questions of a session, made if there are none; nil if
// the session is over. Guarded by mu.
func (queries *Queries) queriesOf(peer Peer) *sessionQueries {
	d, open := queries.bySession[peer.Serial()]
	if open && d == nil {
		d = &sessionQueries{peer: peer}
		d.ctx, d.cancel = context.WithCancelCause(context.Background())
		queries.bySession[peer.Serial()] = d
	}
	return d
}

// errSessionLost is the error of a question whose session ended.
var errSessionLost = &fault.Error{Op: opAsk, Kind: fault.Transient, Detail: "the connection to the peer was lost", Next: "Ask again, or ask another peer."}

// errDraining is the error of a node that drains.
var errDraining = &fault.Error{Op: opAsk, Kind: fault.NotReady, Detail: "this node is draining", Next: "Ask another peer."}

// The outcomes of a question. They label counters.
const (
	Answered  = "answered" // the answer came, or was sent; it may be empty
	Refused   = "refused"  // the peer sent an error
	Busy      = "busy"     // too many were under way, or this node is draining
	Abandoned = "left"     // the caller stopped waiting
	Lost      = "lost"     // the session ended, or rejected the question
	Failed    = "failed"   // the answering task panicked
)

// AskOutcomes lists every label of [Counters.Asked], for counters that exist
// before they count.
func AskOutcomes() []string { return []string{Answered, Refused, Busy, Abandoned, Lost} }

// AnswerOutcomes lists every label of [Counters.Answered].
func AnswerOutcomes() []string { return []string{Answered, Busy, Failed} }

// Counters are called when something happens. Any of them may be nil. They are
// called from readers of sessions, so they must not block.
type Counters struct {
	Asked    func(outcome string) // a question of ours ended
	Answered func(outcome string) // a question of a peer ended
	Unsent   func()               // an answer or an error that the session had no room for in time
	Stray    func()               // an answer of a peer without a pending question
}

// withDefaults replaces nil functions by no-ops.
func (c Counters) withDefaults() Counters {
	for _, count := range []*func(string){&c.Asked, &c.Answered} {
		if *count == nil {
			*count = func(string) {}
		}
	}
	for _, count := range []*func(){&c.Unsent, &c.Stray} {
		if *count == nil {
			*count = func() {}
		}
	}
	return c
}
