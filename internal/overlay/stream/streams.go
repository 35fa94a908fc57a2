package stream

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/supervise"
)

// service is the label of everything that this room makes.
const service = "overlay"

// Peer is a session, as far as streams need one. A *session.Session is one.
type Peer interface {
	Peer() oap.PeerID
	Serial() uint64
	Dialed() bool
	Chunk() int
	Tell(session.Out) error
	Give(class uint64, cost int, out session.Out) error
}

// Source is an open object that is given to a peer.
type Source interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Spec is what streams are made of.
type Spec struct {
	// Open finds an object that a peer asks for. Its error ends the stream with
	// the status of its kind, so NotFound is the usual one. The context ends
	// with the stream, or when opening or one read takes longer than Patience.
	Open func(ctx context.Context, address b3.Address) (Source, error)

	PerPeer  int           // how many streams a peer may have open, and we at a peer; 0 is 16
	Patience time.Duration // how long the other side may make no progress; 0 is 5 s
	Givers   *supervise.Group
	Counters Counters
}

// Streams is all object streams of a node, in both directions.
type Streams struct {
	// set at construction
	inv  *flow.Inventory
	spec Spec

	open     atomic.Int64
	draining atomic.Bool

	mu     sync.Mutex // a few assignments
	tables map[uint64]*table
}

// New makes streams without sessions.
func New(inv *flow.Inventory, spec Spec) *Streams {
	if spec.PerPeer == 0 {
		spec.PerPeer = 16
	}
	if spec.Patience == 0 {
		spec.Patience = 5 * time.Second
	}
	spec.Counters = spec.Counters.orNothing()
	return &Streams{inv: inv, spec: spec, tables: map[uint64]*table{}}
}

// Opened makes a session known. Nothing can be asked of it before.
func (s *Streams) Opened(peer Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables[peer.Serial()] = newTable(s, peer)
}

// Closed ends all streams of a session. What has come before can still be read,
// and downloads go on at another peer.
func (s *Streams) Closed(peer Peer) {
	s.mu.Lock()
	t := s.tables[peer.Serial()]
	delete(s.tables, peer.Serial())
	s.mu.Unlock()
	if t != nil {
		t.close()
	}
}

// Drain starts nothing new from now on, in either direction. Streams that are
// open go on.
func (s *Streams) Drain() { s.draining.Store(true) }

// Open is how many streams are open. One that we give counts until its last
// frame was written.
func (s *Streams) Open() int { return int(s.open.Load()) }

// Owns tells whether an answer with this number is about a stream of ours.
func (s *Streams) Owns(corr uint64) bool { return corr&corrSpace != 0 }

// Message takes a message of a session. It is called by the task that reads the
// session and never blocks. What is in the message may be gone when it returns.
// An error says that the peer broke a rule, and must end the session; messages
// that came too late are no error.
func (s *Streams) Message(peer Peer, in session.Incoming) error {
	t := s.table(peer)
	if t == nil {
		return nil
	}
	switch m := in.Message.(type) {
	case *oap.Start:
		return t.start(m, in.Corr)
	case *oap.Data:
		return t.data(m)
	case *oap.Ack:
		return t.ack(m)
	case *oap.End:
		return t.end(m)
	case *oap.Error:
		t.refused(m, in.Corr)
	}
	return nil // another room's
}

func (s *Streams) table(peer Peer) *table {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[peer.Serial()]
}

// began and ended count a stream in and out. A stream that we give has one
// more frame to write when it has ended, and leaves later.
func (s *Streams) began(dir string) {
	s.open.Add(1)
	s.spec.Counters.Started(dir)
}

func (s *Streams) ended(dir, label string) { s.spec.Counters.Ended(dir, label) }

// left counts a stream out whose last frame was written, or never will be.
func (s *Streams) left() { s.open.Add(-1) }

// gone is why a stream ended whose session did.
var gone = &fault.Error{Op: opFetch, Kind: fault.Transient, Detail: "the connection to the peer was lost"}
