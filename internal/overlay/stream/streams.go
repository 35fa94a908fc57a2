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

// service is the label of everything that this package makes.
const service = "overlay"

// Peer is a session, as far as streams need one. A *session.Session is one.
type Peer interface {
	Peer() oap.PeerID
	Serial() uint64
	Dialed() bool
	Chunk() int
	Pace() *session.Pace // nil if nothing bounds it
	SendControl(session.Outgoing) error
	SendBulk(class uint64, cost int, out session.Outgoing) error
}

// Source is an open object that is sent to a peer.
type Source interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Spec is what streams are made of.
type Spec struct {
	// Open opens an object that a peer requests. Its error ends the stream with
	// the status of its kind, so NotFound is the usual one. The context ends
	// with the stream, or when opening or one read takes longer than Patience.
	Open func(ctx context.Context, address b3.Address) (Source, error)

	// OpenTree opens the tree of an object in the same way: its outboard, as
	// package b3 describes it.
	OpenTree func(ctx context.Context, address b3.Address) (Source, error)

	// OpenFiles opens the files of a manifest in the same way: one after the
	// other, in its order.
	OpenFiles func(ctx context.Context, address b3.Address) (Source, error)

	// OpenParts opens in the same way which parts of an object are here.
	OpenParts func(ctx context.Context, address b3.Address) (Source, error)

	// OpenChunks opens the map of an object's chunks in the same way, as package
	// chunkmap describes it. It is NotReady while it is being made.
	OpenChunks func(ctx context.Context, address b3.Address) (Source, error)

	PerPeer  int           // how many streams a peer may have open, and this node at a peer; 0 is 16
	Patience time.Duration // how long the other side may make no progress; 0 is 5 s
	Senders  *supervise.Group
	Counters Counters
}

// Streams is all object streams of a node, in both directions.
type Streams struct {
	// set at construction
	inv  *flow.Inventory
	spec Spec

	open     atomic.Int64
	sending  atomic.Int64 // streams on which this node sends
	draining atomic.Bool

	mu     sync.Mutex // a few assignments
	tables map[uint64]*streamTable
}

// New makes Streams without sessions.
func New(inv *flow.Inventory, spec Spec) *Streams {
	if spec.PerPeer == 0 {
		spec.PerPeer = 16
	}
	if spec.Patience == 0 {
		spec.Patience = 5 * time.Second
	}
	spec.Counters = spec.Counters.withDefaults()
	return &Streams{inv: inv, spec: spec, tables: map[uint64]*streamTable{}}
}

// Opened registers a session. It must be called before anything is requested on
// it.
func (s *Streams) Opened(peer Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables[peer.Serial()] = newStreamTable(s, peer)
}

// Closed ends all streams of a session. What has come before can still be read,
// and downloads continue at another peer.
func (s *Streams) Closed(peer Peer) {
	s.mu.Lock()
	t := s.tables[peer.Serial()]
	delete(s.tables, peer.Serial())
	s.mu.Unlock()
	if t != nil {
		t.close()
	}
}

// Drain stops new streams, in either direction. Open streams continue.
func (s *Streams) Drain() { s.draining.Store(true) }

// Open returns how many streams are open. One that this node sends counts until
// its last frame was written.
func (s *Streams) Open() int { return int(s.open.Load()) }

// Owns reports whether a response with this corr is about a stream that this
// node requested.
func (s *Streams) Owns(corr uint64) bool { return corr&corrBit != 0 }

// Message handles a message of a session. It is called by the task that reads
// the session and never blocks. What is in the message may be gone when it
// returns. An error says that the peer broke a rule, and must end the session;
// messages for a stream that has ended are no error.
func (s *Streams) Message(peer Peer, in session.Incoming) error {
	t := s.tableOf(peer)
	if t == nil {
		return nil
	}
	switch m := in.Message.(type) {
	case *oap.Start:
		return t.handleStart(m, in.Corr)
	case *oap.Data:
		return t.handleData(m)
	case *oap.Ack:
		return t.handleAck(m)
	case *oap.End:
		return t.handleEnd(m)
	case *oap.Error:
		t.handleError(m, in.Corr)
	}
	return nil // of another package
}

func (s *Streams) tableOf(peer Peer) *streamTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[peer.Serial()]
}

// countStart and countEnd count the start and the end of a stream. A stream
// that this node sends has one more frame to write when it has ended, and is
// counted out later.
func (s *Streams) countStart(dir string) {
	s.open.Add(1)
	if dir == Tx {
		s.sending.Add(1)
	}
	s.spec.Counters.Started(dir)
}

func (s *Streams) countEnd(dir, label string) {
	if dir == Tx {
		s.sending.Add(-1)
	}
	s.spec.Counters.Ended(dir, label)
}

// paceTime is how long a chunk waits for a limit of this node at most: the other
// side runs out of patience a little later.
func (s *Streams) paceTime() time.Duration { return s.spec.Patience * 3 / 4 }

// hasRoom reports whether one more stream may be sent within a limit, in bytes a
// second. Each needs a chunk in paceTime, or its receiver takes it for silent;
// together they may need half of the limit, so that the rest is shared evenly.
func (s *Streams) hasRoom(limit int64, chunk int) bool {
	if limit == 0 {
		return true
	}
	each := int64(time.Duration(chunk) * time.Second / s.paceTime())
	return s.sending.Load() < max(1, limit/2/max(1, each))
}

// countOut counts a stream out whose last frame was written, or never will be.
func (s *Streams) countOut() { s.open.Add(-1) }

// errSessionLost is the error of a stream whose session ended.
var errSessionLost = &fault.Error{Op: opFetch, Kind: fault.Transient, Detail: "the connection to the peer was lost"}

// Directions of the counters: Tx is what this node sends, Rx what it requests.
const (
	Tx = "tx"
	Rx = "rx"
)

// Counters are called when something happens. Any of them may be nil. They are
// called from readers of sessions, so they must not block.
type Counters struct {
	Started func(dir string)
	Ended   func(dir, status string) // status is one of Statuses
	Bytes   func(dir string, n int)  // of objects, once for each chunk
	Resumed func()                   // a download continued at another peer, or at the same one once more
	Corrupt func()                   // a download was complete, and its bytes do not match its address
}

// withDefaults replaces nil functions by no-ops.
func (c Counters) withDefaults() Counters {
	if c.Started == nil {
		c.Started = func(string) {}
	}
	if c.Ended == nil {
		c.Ended = func(string, string) {}
	}
	if c.Bytes == nil {
		c.Bytes = func(string, int) {}
	}
	if c.Resumed == nil {
		c.Resumed = func() {}
	}
	if c.Corrupt == nil {
		c.Corrupt = func() {}
	}
	return c
}
