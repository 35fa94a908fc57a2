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
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/supervise"
)

const service = "overlay"

// How long a session may take to part from its peer: a drain of one, and any
// drain at all.
const (
	drainUsual = 2 * time.Second
	drainMost  = 5 * time.Second
)

// Spec is what sessions are made of. Token, Ready and the counters may be nil.
type Spec struct {
	Key    ed25519.PrivateKey
	Config Config
	Peer   PeerConfig
	Drop   flow.Policy // of gossip when a queue is full: RejectNew or DropOldest
	Burst  int         // how many frames are put into one batch

	Admit func(peer oap.PeerID, token string) error // may this peer, which called us, have a session?
	Token func(peer oap.PeerID) string              // what to show to a peer that we call
	Ready func() error                              // what to answer a hello with instead, if anything

	Handler  Handler
	Tasks    Tasks
	Counters Counters
}

// Tasks are the groups that the tasks of sessions run in.
type Tasks struct{ Handshakes, Readers, Writers, Keepers *supervise.Group }

// Sessions is all sessions of a node, and all it does to have them.
type Sessions struct {
	// set at construction
	inv       *flow.Inventory
	spec      Spec
	count     Counters
	most      int // the largest payload that we take
	identity  *identity
	listening *tls.Config
	ingress   *flow.Lane    // handshakes under way
	conns     *flow.Permits // connections that were accepted
	dials     *flow.Permits // calls under way
	door      *door
	dial      func(ctx context.Context, addr string) (net.Conn, error)

	wanted *flow.Snapshot[[]Contact]
	active atomic.Pointer[[]*Session] // nil if it must be made anew, by who asks for it next
	stop   chan struct{}              // closed by the drain
	serial atomic.Uint64              // of the last session

	mu       sync.Mutex // guards the fields below; active is stored under it, too
	draining bool
	listener net.Listener // nil while there is none
	addr     net.Addr     // of the last one
	shaking  map[*candidate]struct{}
	live     map[*Session]struct{}
	table    map[oap.PeerID]*Session // the one that is kept, of those that are live
	keepers  map[oap.PeerID]*keeper
	empty    chan struct{} // closed when nothing is live, during a drain; nil otherwise
}

// New makes the parts. Nothing runs before Serve and Keep.
func New(inv *flow.Inventory, spec Spec) (*Sessions, error) {
	me, err := newIdentity(spec.Key, spec.Config.PQ)
	if err != nil {
		return nil, err
	}
	spec.Burst = max(1, spec.Burst)
	t := &Sessions{
		inv: inv, spec: spec, count: spec.Counters.orNothing(), most: int(spec.Config.MaxFrameBytes),
		identity: me, listening: me.listening(), door: newDoor(spec.Config.HandshakeRate),
		dial:    dialTCP,
		ingress: flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "ingress", Running: 512, From: "listener", To: "handshakes"}),
		conns:   flow.NewPermits(inv, flow.PermitsSpec{Service: service, Name: "conns", Cap: spec.Config.MaxConns, From: "listener", To: "sessions"}),
		dials:   flow.NewPermits(inv, flow.PermitsSpec{Service: service, Name: "dials", Cap: 16, Waiting: 1 << 16, From: "keepers", To: "handshakes"}),
		wanted:  flow.NewSnapshot[[]Contact](inv, flow.SnapshotSpec{Service: service, Name: "contacts", From: "config, peers", To: "dialer"}, nil),
		stop:    make(chan struct{}),
		shaking: map[*candidate]struct{}{}, live: map[*Session]struct{}{}, table: map[oap.PeerID]*Session{}, keepers: map[oap.PeerID]*keeper{},
	}
	return t, nil
}

// ID is who this node is.
func (t *Sessions) ID() oap.PeerID { return t.identity.id }

// Active is the sessions that gossip and streams may use, one a peer. The list
// is never changed, and while the sessions stay the same it is the same list
// and takes no lock. It is made anew by who asks, not by every session that
// comes or goes: ten thousand that end at once would each go through all.
func (t *Sessions) Active() []*Session {
	if list := t.active.Load(); list != nil {
		return *list
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Session, 0, len(t.table))
	for _, s := range t.table {
		if !s.quiet.Load() {
			list = append(list, s)
		}
	}
	t.active.Store(&list)
	return list
}

// Find is the session with a peer, or nil.
func (t *Sessions) Find(peer oap.PeerID) *Session {
	if s := t.current(peer); s != nil && !s.quiet.Load() {
		return s
	}
	return nil
}

// current is the session with a peer even if it drains, or nil.
func (t *Sessions) current(peer oap.PeerID) *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.table[peer]
}

func (t *Sessions) drained() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.draining
}

// begun and settled keep the list of handshakes under way, so that a drain can
// hurry them.
func (t *Sessions) begun(c *candidate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shaking[c] = struct{}{}
}

func (t *Sessions) settled(c *candidate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.shaking, c)
}

// hurry ends the handshakes under way.
func (t *Sessions) hurry() {
	t.mu.Lock()
	all := make([]*candidate, 0, len(t.shaking))
	for c := range t.shaking {
		all = append(all, c)
	}
	t.mu.Unlock()
	for _, c := range all {
		_ = c.wire.SetReadDeadline(long) // fails on a closed connection only
	}
}

// open makes a session of a candidate and starts its tasks.
func (t *Sessions) open(c *candidate, agreed terms) (*Session, *parting) {
	now := time.Now()
	s := &Session{
		owner: t, peer: c.peer, serial: t.serial.Add(1), dialed: c.dialed, addr: c.wire.RemoteAddr().String(), pq: c.pq, since: now,
		terms: agreed, codec: oap.Codec{Max: agreed.frame, Compressed: agreed.zstd && t.compresses(c.wire)},
		plain: c.plain, conn: c.conn, wire: c.wire, free: c.free, wrote: make(chan struct{}), done: make(chan struct{}),
		ear: newEar(c.frames, t.spec.Config, t.spec.Peer.MaxRPS, now),
	}
	s.ear.frames.Agree(oap.Codec{Max: t.most, Compressed: agreed.zstd})
	s.rtt.Store(int64(c.rtt))
	if s.dialed {
		s.corr.Store(helloNum)
	}
	s.egress, s.permits = t.queues()
	c.wire.within(time.Time{})
	_ = c.wire.SetReadDeadline(time.Time{}) // fails on a closed connection only
	if !t.join(s) {
		s.egress.Retire()
		s.permits.Retire()
		return nil, with(ClosedDrain, errDraining)
	}
	if over := t.start(s); over != nil {
		s.egress.Retire()
		s.permits.Retire()
		close(s.done)
		t.gone(s)
		return nil, over
	}
	t.count.Opened()
	return s, nil
}

// start starts the two tasks of a session, if there is room for both. The one
// that writes looks around and sleeps: what came before it was enlisted, such as
// a drain, could not wake it.
func (t *Sessions) start(s *Session) *parting {
	full := with(ClosedBusy, errFull)
	if t.spec.Tasks.Writers.Enlist(&s.writer, s.write) != nil {
		return full
	}
	s.writer.Wake()
	if t.spec.Tasks.Readers.Enlist(&s.reader, s.read) != nil {
		s.end(full) // which the writer says
		<-s.wrote
		return &parting{err: errFull}
	}
	s.reader.Wake()
	return nil
}

// patientPosters is how many may wait for a permit of one peer at a time.
const patientPosters = 64

// queues are what waits for one peer.
func (t *Sessions) queues() (*flow.Fair[Out], *flow.Permits) {
	room := int(t.spec.Peer.QueueBytes)
	egress := flow.NewFair[Out](t.inv, flow.FairSpec{
		Service: service, Quantum: 16 << 10, From: "gossip, streams, reader", To: "writer", Each: "session",
		Urgent: flow.BandSpec{Name: "control", Cap: 128, Bytes: int(config.MiB)},
		Bands: []flow.BandSpec{
			{Name: "gossip_egress", Cap: 512, Bytes: room, Policy: t.spec.Drop},
			{Name: "chunks", Cap: 64, Bytes: room},
		},
	})
	permits := flow.NewPermits(t.inv, flow.PermitsSpec{
		Service: service, Name: "inflight_frames", Cap: t.spec.Peer.InflightFrames, Waiting: patientPosters, From: "gossip", To: "writer", Each: "session",
	})
	return egress, permits
}

// compresses decides whether we compress what we send. On one machine that
// would be work for nothing.
func (t *Sessions) compresses(w *wire) bool {
	if t.spec.Config.Compress != auto {
		return t.spec.Config.Compress == on
	}
	tcp, ok := w.RemoteAddr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// join makes a session one of those that a drain waits for, unless the drain
// came first.
func (t *Sessions) join(s *Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.draining {
		t.live[s] = struct{}{}
	}
	return !t.draining
}

// enter gives a session its place in the table, or finds that another one has
// it. One of two is told that it is the duplicate.
func (t *Sessions) enter(s *Session) {
	t.mu.Lock()
	old := t.table[s.peer]
	loser := old
	if old == nil || old.quiet.Load() {
		loser = nil // it leaves already
	} else if keepsOld(t.identity.id, s.peer, old.dialed, s.dialed) {
		loser = s
	}
	if loser != s {
		t.table[s.peer] = s
	}
	t.active.Store(nil)
	draining := t.draining
	t.mu.Unlock()
	if loser != nil {
		loser.part(&parting{reason: ClosedDuplicate}, true, time.Now().Add(drainUsual))
	}
	if draining {
		s.part(&parting{reason: ClosedDrain}, true, time.Now().Add(drainUsual))
	}
}

// keepsOld settles which of two connections between two peers is kept, so that
// both sides come to the same answer whatever they saw first. Of two in the
// same direction it is the newer: whoever called again knows that the older is
// dead. Of two in opposite directions it is that of the peer with the smaller
// ID.
func keepsOld(self, peer oap.PeerID, oldDialed, newDialed bool) bool {
	if oldDialed == newDialed {
		return false
	}
	return oldDialed == (self.Compare(peer) < 0)
}

// renew takes a session that drains or ends off the list of active ones.
func (t *Sessions) renew(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table[s.peer] == s {
		t.active.Store(nil)
	}
}

// left takes a session that is over out of the table.
func (t *Sessions) left(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table[s.peer] == s {
		delete(t.table, s.peer)
		t.active.Store(nil)
	}
}

// gone notes that nothing of a session is left, for a drain that waits.
func (t *Sessions) gone(s *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, s)
	if t.empty != nil && len(t.live) == 0 {
		close(t.empty)
		t.empty = nil
	}
}

// Drain stops accepting and calling, says bye to every peer, waits until open
// streams have ended, and closes. What is not done when ctx ends is cut, and
// the error says how many that were. It may be called again.
func (t *Sessions) Drain(ctx context.Context) error {
	listener, sessions, empty := t.close()
	if listener != nil {
		_ = listener.Close() // closing twice is harmless
	}
	t.wanted.Store(t.wanted.Load()) // wakes Keep up
	t.hurry()
	latest := time.Now().Add(drainMost)
	if end, ok := ctx.Deadline(); ok && end.Before(latest) {
		latest = end
	}
	for _, s := range sessions {
		s.part(&parting{reason: ClosedDrain}, true, latest)
	}
	most, cancel := context.WithDeadline(ctx, latest)
	defer cancel()
	if wait(most, empty) {
		return nil
	}
	return t.cut()
}

// close begins the drain, and tells what there is to drain and what is closed
// when that is done.
func (t *Sessions) close() (net.Listener, []*Session, chan struct{}) {
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
	if t.empty == nil {
		t.empty = make(chan struct{})
	}
	empty := t.empty
	if len(sessions) == 0 {
		close(empty)
		t.empty = nil
	}
	return listener, sessions, empty
}

// cut closes what a drain could not wait for, and waits until it is gone, which
// takes no longer than its tasks need to notice.
func (t *Sessions) cut() error {
	_, sessions, empty := t.close()
	if len(sessions) == 0 {
		return nil
	}
	for _, s := range sessions {
		s.end(&parting{reason: ClosedAborted, err: errCut, cut: true})
		_ = s.wire.Close()
	}
	soon, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	wait(soon, empty)
	return &fault.Error{Op: "overlay.drain", Kind: fault.Timeout, Detail: "cut " + strconv.Itoa(len(sessions)) + " sessions that had not ended",
		Next: "Give the drain more time if objects were still on their way."}
}

// wait waits until something is closed, and reports whether that came first.
func wait(ctx context.Context, closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	case <-ctx.Done():
	}
	select { // both may have come at once
	case <-closed:
		return true
	default:
		return false
	}
}
