package session

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/bandwidth"
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/supervise"
)

const service = "overlay"

// How long a session may drain: when it is drained alone, and at most.
const (
	drainTimeout    = 2 * time.Second
	maxDrainTimeout = 5 * time.Second
)

// Spec configures Sessions. Token, Ready, Bandwidth and the counters may be nil.
type Spec struct {
	Key    ed25519.PrivateKey
	Config Config
	Peer   PeerConfig
	Drop   flow.Policy // of gossip when a queue is full: RejectNew or DropOldest
	Burst  int         // how many frames are put into one batch

	Admit func(Candidate) error        // refuses a peer that dialled us, or returns nil
	Token func(peer oap.PeerID) string // the token to present to a peer that we dial
	Ready func() error                 // the error to answer a hello with, or nil

	Bandwidth *bandwidth.Meter // of the bytes that leave this machine

	Handler  Handler
	Tasks    Tasks
	Counters Counters
}

// Candidate is a peer that dialled us, and asks to be admitted. Its key is proved.
type Candidate struct {
	ID    oap.PeerID
	Addr  string // from where
	Token string // what it shows, if anything
}

// Tasks are the groups that the tasks of sessions run in.
type Tasks struct{ Handshakes, Readers, Writers, Dialers *supervise.Group }

// Sessions manages all sessions of a node: listener, dialers, handshakes, drain.
type Sessions struct {
	// set at construction
	inv       *flow.Inventory
	spec      Spec
	counters  Counters
	maxFrame  int // the largest payload that we accept
	identity  *identity
	serverTLS *tls.Config
	ingress   *flow.Lane        // handshakes under way
	conns     *flow.Permits     // connections that were accepted
	queued    *flow.SharedBytes // what waits for all peers
	dials     *flow.Permits     // dials under way
	limiter   *handshakeLimiter
	dial      func(ctx context.Context, addr string) (net.Conn, error)

	contacts *flow.Snapshot[[]Contact]
	active   atomic.Pointer[[]*Session] // nil if the next call of Active must rebuild it
	stop     chan struct{}              // closed by the drain
	serial   atomic.Uint64              // of the last session

	mu        sync.Mutex // guards the fields below; active is stored under it, too
	draining  bool
	listener  net.Listener  // nil while there is none
	addr      net.Addr      // of the last listener
	moving    chan struct{} // closed when a move has ended; nil if none is under way
	moves     int           // that were begun
	pending   map[*pendingConn]struct{}
	live      map[*Session]struct{}
	byPeer    map[oap.PeerID]*Session // of the live sessions with a peer, the one that is kept
	dialers   map[oap.PeerID]*dialer
	allClosed chan struct{} // during a drain, closed when no session is live; nil otherwise
}

// New makes Sessions. Nothing runs before Serve and RunDialers.
func New(inv *flow.Inventory, spec Spec) (*Sessions, error) {
	me, err := newIdentity(spec.Key, spec.Config.PQ)
	if err != nil {
		return nil, err
	}
	spec.Burst = max(1, spec.Burst)
	t := &Sessions{
		inv: inv, spec: spec, counters: spec.Counters.withDefaults(), maxFrame: int(spec.Config.MaxFrameBytes),
		identity: me, serverTLS: me.serverConfig(), limiter: newHandshakeLimiter(spec.Config.HandshakeRate),
		dial:    dialTCP,
		queued:  flow.NewSharedBytes(int(spec.Peer.TotalBytes)),
		ingress: flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "ingress", Running: 512, From: "listener", To: "handshakes"}),
		conns: flow.NewPermits(inv, flow.PermitsSpec{Service: service, Name: "conns", Cap: spec.Config.MaxConns, From: "listener", To: "sessions", Effect: flow.ReportOnly,
			Next: "Raise overlay.max_conns to connect more peers."}),
		dials:    flow.NewPermits(inv, flow.PermitsSpec{Service: service, Name: "dials", Cap: 16, Waiting: 1 << 16, From: "keepers", To: "handshakes", Effect: flow.ReportOnly}),
		contacts: flow.NewSnapshot[[]Contact](inv, flow.SnapshotSpec{Service: service, Name: "contacts", From: "config, peers", To: "dialer"}, nil),
		stop:     make(chan struct{}),
		pending:  map[*pendingConn]struct{}{}, live: map[*Session]struct{}{}, byPeer: map[oap.PeerID]*Session{}, dialers: map[oap.PeerID]*dialer{},
	}
	return t, nil
}

// ID returns the ID of this node.
func (t *Sessions) ID() oap.PeerID { return t.identity.id }

// Active returns the sessions that gossip and streams may use, one a peer. The
// list is never changed, and while the sessions stay the same it is the same list
// and takes no lock. It is rebuilt by the next call, not by every session that
// opens or closes: ten thousand that end at once would each go through all.
func (t *Sessions) Active() []*Session {
	if list := t.active.Load(); list != nil {
		return *list
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Session, 0, len(t.byPeer))
	for _, s := range t.byPeer {
		if !s.refusesNew.Load() {
			list = append(list, s)
		}
	}
	t.active.Store(&list)
	return list
}

// Find returns the session with a peer, or nil. It skips one that drains.
func (t *Sessions) Find(peer oap.PeerID) *Session {
	if s := t.sessionOf(peer); s != nil && !s.refusesNew.Load() {
		return s
	}
	return nil
}

// nextPollInterval is how often AwaitNext checks for a new session.
const nextPollInterval = 20 * time.Millisecond

// AwaitNext returns the session with a peer after one that has closed: the one that
// is kept of two opened at the same time, or the one that a dialer opens after a
// loss. A peer with a dialer has the time of one handshake to reconnect. It is nil
// if no session is expected, and while the one before is usable.
func (t *Sessions) AwaitNext(ctx context.Context, before *Session) *Session {
	ctx, cancel := context.WithTimeout(ctx, t.spec.Config.Handshake)
	defer cancel()
	for {
		switch s := t.Find(before.peer); {
		case s == before:
			return nil
		case s != nil:
			return s
		}
		if t.isDraining() || t.dialerOf(before.peer) == nil || flow.Sleep(ctx, nextPollInterval) != nil {
			return nil
		}
	}
}

// sessionOf returns the session with a peer even if it drains, or nil.
func (t *Sessions) sessionOf(peer oap.PeerID) *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byPeer[peer]
}

func (t *Sessions) isDraining() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining
}

// addPending and removePending keep the list of handshakes under way, so that a drain
// can interrupt them.
func (t *Sessions) addPending(c *pendingConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending[c] = struct{}{}
}

func (t *Sessions) removePending(c *pendingConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, c)
}

// interruptHandshakes makes the handshakes under way fail.
func (t *Sessions) interruptHandshakes() {
	t.mu.Lock()
	all := make([]*pendingConn, 0, len(t.pending))
	for c := range t.pending {
		all = append(all, c)
	}
	t.mu.Unlock()
	for _, c := range all {
		_ = c.raw.SetReadDeadline(longAgo) // fails on a closed connection only
	}
}

// openSession turns a pendingConn into a session and starts its tasks.
func (t *Sessions) openSession(c *pendingConn, agreed parameters) (*Session, *closeCause) {
	now := time.Now()
	s := &Session{
		owner: t, peer: c.peer, serial: t.serial.Add(1), dialed: c.dialed, addr: c.raw.RemoteAddr().String(), pq: c.pq, since: now,
		terms: agreed, codec: oap.Codec{Max: agreed.maxFrame, Compressed: agreed.zstd && t.compresses(c.raw)},
		source: c.source, conn: c.conn, raw: c.raw, releaseConn: c.release, pace: paceOf(t.spec.Bandwidth, c.raw), writerDone: make(chan struct{}), done: make(chan struct{}),
		readState: newReadState(c.frames, t.spec.Config, t.spec.Peer.MaxRPS, now),
	}
	s.readState.frames.SetCodec(oap.Codec{Max: t.maxFrame, Compressed: agreed.zstd})
	s.rtt.Store(int64(c.rtt))
	if s.dialed {
		s.corr.Store(helloCorr)
	}
	s.egress, s.permits = t.newQueues()
	c.raw.boundWrites(time.Time{})
	_ = c.raw.SetReadDeadline(time.Time{}) // fails on a closed connection only
	if !t.addLive(s) {
		s.egress.Retire()
		s.permits.Retire()
		return nil, errorCause(ClosedDrain, errDraining)
	}
	if over := t.startTasks(s); over != nil {
		s.egress.Retire()
		s.permits.Retire()
		close(s.done)
		t.removeLive(s)
		return nil, over
	}
	t.counters.Opened()
	return s, nil
}

// startTasks starts the two tasks of a session, if there is room for both. The writer
// runs once before it sleeps: what happened before it was added, such as a drain,
// could not wake it.
func (t *Sessions) startTasks(s *Session) *closeCause {
	full := errorCause(ClosedBusy, errTooManySessions)
	if t.spec.Tasks.Writers.AddSleeper(&s.writer, s.write) != nil {
		return full
	}
	s.writer.Wake()
	if t.spec.Tasks.Readers.AddSleeper(&s.reader, s.read) != nil {
		s.close(full) // which the writer sends
		<-s.writerDone
		return &closeCause{err: errTooManySessions}
	}
	s.reader.Wake()
	return nil
}

// maxWaitingOffers is how many callers may wait for room in the queue of one peer.
const maxWaitingOffers = 64

// newQueues makes the queue and the permits of one session.
func (t *Sessions) newQueues() (*flow.Fair[Outgoing], *flow.Permits) {
	room := int(t.spec.Peer.QueueBytes)
	egress := flow.NewFair[Outgoing](t.inv, flow.FairSpec{
		Service: service, Quantum: 16 << 10, Waiting: maxWaitingOffers, Shared: t.queued, From: "gossip, streams, reader", To: "writer", Each: "session",
		Urgent: flow.BandSpec{Name: "control", Cap: 128, Bytes: int(config.MiB)},
		Bands: []flow.BandSpec{
			{Name: "gossip_egress", Cap: 512, Bytes: room, Policy: t.spec.Drop},
			{Name: "chunks", Cap: 64, Bytes: room},
		},
	})
	permits := flow.NewPermits(t.inv, flow.PermitsSpec{
		Service: service, Name: "inflight_frames", Cap: t.spec.Peer.InflightFrames, From: "writer", To: "connection", Each: "session",
	})
	return egress, permits
}

// compresses reports whether we compress what we send. Within one machine that
// would gain nothing.
func (t *Sessions) compresses(raw *batchConn) bool {
	if t.spec.Config.Compress != compressAuto {
		return t.spec.Config.Compress == compressOn
	}
	tcp, ok := raw.RemoteAddr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// addLive adds a session to those that a drain waits for, unless the drain has
// begun.
func (t *Sessions) addLive(s *Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.draining {
		t.live[s] = struct{}{}
	}
	return !t.draining
}

// register puts a session into the table. If there is another one with the same
// peer, one of the two is drained as the duplicate.
func (t *Sessions) register(s *Session) {
	t.mu.Lock()
	old := t.byPeer[s.peer]
	loser := old
	if old == nil || old.refusesNew.Load() {
		loser = nil // it drains already
	} else if keepsOld(t.identity.id, s.peer, old.dialed, s.dialed) {
		loser = s
	}
	if loser != s {
		t.byPeer[s.peer] = s
	}
	t.active.Store(nil)
	draining := t.draining
	t.mu.Unlock()
	if loser != nil {
		loser.drainAlone(ClosedDuplicate)
	}
	if draining {
		s.drainAlone(ClosedDrain)
	}
}

// keepsOld decides which of two connections between two peers is kept, so that
// both sides come to the same answer whichever they saw first. Of two in the
// same direction it is the newer: a peer that dials again knows that the older is
// dead. Of two in opposite directions it is that of the peer with the smaller
// ID.
func keepsOld(self, peer oap.PeerID, oldDialed, newDialed bool) bool {
	if oldDialed == newDialed {
		return false
	}
	return oldDialed == (self.Compare(peer) < 0)
}

// deactivate takes a session that drains or ends off the list of active ones.
func (t *Sessions) deactivate(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPeer[s.peer] == s {
		t.active.Store(nil)
	}
}

// unregister takes a closed session out of the table.
func (t *Sessions) unregister(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPeer[s.peer] == s {
		delete(t.byPeer, s.peer)
		t.active.Store(nil)
	}
}

// removeLive removes a session that has ended, and signals the end of a drain.
func (t *Sessions) removeLive(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, s)
	if t.allClosed != nil && len(t.live) == 0 {
		close(t.allClosed)
		t.allClosed = nil
	}
}

// Drain stops accepting and dialling, sends a bye to every peer, waits until open
// streams have ended, and closes. Sessions that are left when ctx ends are
// aborted, and the error says how many. It may be called again.
func (t *Sessions) Drain(ctx context.Context) error {
	listener, sessions, empty := t.beginDrain()
	if listener != nil {
		_ = listener.Close() // closing twice is harmless
	}
	t.contacts.Store(t.contacts.Load()) // wakes RunDialers
	t.interruptHandshakes()
	latest := time.Now().Add(maxDrainTimeout)
	if end, ok := ctx.Deadline(); ok && end.Before(latest) {
		latest = end
	}
	for _, s := range sessions {
		s.drain(&closeCause{reason: ClosedDrain}, true, latest)
	}
	most, cancel := context.WithDeadline(ctx, latest)
	defer cancel()
	if waitClosed(most, empty) {
		return nil
	}
	return t.closeRemaining()
}

// beginDrain begins the drain. It returns what there is to drain, and a channel that
// is closed when that is done.
func (t *Sessions) beginDrain() (net.Listener, []*Session, chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.draining {
		t.draining = true
		close(t.stop)
	}
	listener := t.listener
	t.listener = nil
	sessions := make([]*Session, 0, len(t.live))
	for s := range t.live {
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b *Session) int { return int(a.serial) - int(b.serial) })
	if t.allClosed == nil {
		t.allClosed = make(chan struct{})
	}
	empty := t.allClosed
	if len(sessions) == 0 {
		close(empty)
		t.allClosed = nil
	}
	return listener, sessions, empty
}

// closeRemaining aborts the sessions that are left after a drain and waits until their
// tasks have ended, for closeGrace at most.
func (t *Sessions) closeRemaining() error {
	_, sessions, empty := t.beginDrain()
	if len(sessions) == 0 {
		return nil
	}
	for _, s := range sessions {
		s.close(abortCause())
		_ = s.raw.Close()
	}
	soon, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	waitClosed(soon, empty)
	return &fault.Error{Op: "overlay.drain", Kind: fault.Timeout, Detail: "cut " + strconv.Itoa(len(sessions)) + " sessions that had not ended",
		Next: "Give the drain more time if objects were still being transferred."}
}

// waitClosed waits until a channel is closed or ctx ends, and reports whether it is
// closed.
func waitClosed(ctx context.Context, closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	case <-ctx.Done():
	}
	select { // both may have happened at once
	case <-closed:
		return true
	default:
		return false
	}
}
