package overlay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/bandwidth"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/invitation"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/overlay/ask"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/introduce"
	"micronode/internal/overlay/nearby"
	"micronode/internal/overlay/session"
	"micronode/internal/overlay/stream"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// How many trees of objects are in memory at a time because peers ask for them,
// and how many peers may wait for one. The tree of an object of 1 GiB has 4 MiB.
const (
	maxTrees        = 8
	maxTreesWaiting = 64
)

// How many manifests are in memory at a time because peers ask for the files of
// their folders, and how many peers may wait. A manifest has at most 16 MiB.
const (
	maxFolders        = 8
	maxFoldersWaiting = 64
)

// Spec is what an overlay is made of.
type Spec struct {
	Config Config
	Key    ed25519.PrivateKey
	Skew   time.Duration // by how much clocks may differ

	Store   store.Store              // what peers may fetch, and where fetched objects go
	Join    func(token string) error // whether a token admits a stranger; nil: none does
	Sources []PeerSource

	// Answer returns what this node knows when a peer asks; nil: nothing. It
	// may take a few seconds, and is called concurrently.
	Answer func(ctx context.Context, q Question) Found

	// Arriving opens an object that this node is fetching itself, as far as it
	// is here; nil: none. Reads of what is not here yet are NotReady.
	Arriving func(ctx context.Context, address b3.Address) (Arriving, error)

	Addrs func() []string // where other nodes reach this one, the best first; nil: where it listens
	Moved func()          // called when the listener has moved; may be nil

	// Kept is what was kept of the peers of this node, or nil; Keep keeps it, and
	// is nil if nothing is kept.
	Kept []byte
	Keep func(ctx context.Context, peers []byte) error

	AnyPort bool // Config.Addr is a default: if its port is taken, use the next free one
	Alone   bool // the process runs nothing else: when the overlay is down, so is the process

	Bandwidth *bandwidth.Meter // of the bytes that leave this machine; nil if they are not counted
	Metrics   *observe.Metrics
	Readiness *observe.Readiness
	Refusals  *observe.Refusals // peers that send too much; nil for a list of its own
}

// Overlay is the service.
type Overlay struct {
	// set at construction
	config      Config
	spec        Spec
	tokens      map[oap.PeerID]string
	metrics     *metrics
	sessions    *session.Sessions
	engine      *gossip.Engine
	streams     *stream.Streams
	trees       *flow.Permits // trees of objects that are being sent
	folders     *flow.Permits // manifests whose files are being sent
	maps        *chunkMaps    // maps of chunks that peers ask for
	queries     *ask.Queries
	contacts    *contactBook
	invitations *invitationTable
	knocks      *knockList
	lan         *nearby.Beacon // nil without overlay.lan

	introductions *introductions

	keeper      *keeper
	reach       *reach
	events      *flow.Bus[Event]
	publishLane *flow.Lane
	fetchLane   *flow.Lane

	// for readiness
	listenerReady *observe.Dependency
	peersReady    *observe.Dependency
	lanReady      *observe.Dependency // nil without overlay.lan

	peerList atomic.Pointer[peerList] // the active sessions, as gossip.Peer

	drained chan struct{} // closed when the last session has ended
}

// Stages says in which stages of the node the parts of the overlay run. They
// drain in reverse: no new session is accepted, then accepted messages go out,
// then the sessions send bye.
type Stages struct {
	State   string // sessions and events
	Workers string // the gossip engine
	Intake  string // listener and dialer
}

// New makes the parts of an overlay and enters its task groups into the
// supervisor.
func New(inv *flow.Inventory, to *supervise.Supervisor, in Stages, spec Spec) (*Overlay, error) {
	o := &Overlay{
		config: spec.Config, spec: spec, metrics: newMetrics(spec.Metrics.For(service)), drained: make(chan struct{}),
		listenerReady: spec.Readiness.Dependency(service, "listener", observe.ForReads),
		peersReady:    spec.Readiness.Dependency(service, "peers", observe.ForWrites),
		events: flow.NewBus[Event](inv, flow.BusSpec{
			Service: service, Name: "events", Cap: 1024, Readers: 16, From: "sessions", To: "audit, subscribers",
		}),
		publishLane: flow.NewLane(inv, flow.LaneSpec{
			Service: service, Name: "publish", Running: 64, Waiting: 448, From: "gateway", To: "gossip engine", Effect: flow.StopsWrites,
		}),
		fetchLane: flow.NewLane(inv, flow.LaneSpec{
			Service: service, Name: "fetches", Running: 16, Waiting: 64, From: "gateway", To: "streams",
		}),
	}
	o.spec.Refusals = cmp.Or(spec.Refusals, &observe.Refusals{})
	var err error
	if o.tokens, err = spec.Config.tokens(); err != nil {
		return nil, err
	}
	if err := o.makeComponents(inv, to, in); err != nil {
		return nil, err
	}
	o.watchPressure()
	o.contacts = newContactBook(o.sessions.SetContacts)
	o.invitations, o.knocks, o.keeper, o.reach = newInvitationTable(), newKnockList(), newKeeper(inv, spec.Keep), newReach(inv)
	o.makeLAN()
	o.introductions = newIntroductions(introduce.Spec{Self: o.ID(), Skew: spec.Skew, Count: o.countIntroduction})
	if err := o.setConfigPeers(spec.Config); err != nil {
		return nil, err
	}
	return o, o.loadKept(spec.Kept)
}

// makeComponents makes sessions, gossip, streams and questions, and connects
// them.
func (o *Overlay) makeComponents(inv *flow.Inventory, to *supervise.Supervisor, in Stages) error {
	tasks, givers, answerers, err := o.newGroups(to, in)
	if err != nil {
		return err
	}
	o.engine = gossip.New(inv, gossip.Spec{
		Key: o.spec.Key, Config: o.config.Gossip, Topics: o.config.Peer.Topics, Skew: o.spec.Skew,
		Peers: o.peers, Counters: o.metrics.gossip(),
	})
	o.trees = flow.NewPermits(inv, flow.PermitsSpec{Service: service, Name: "trees", Cap: maxTrees, Waiting: maxTreesWaiting, From: "peers", To: "store"})
	o.folders = flow.NewPermits(inv, flow.PermitsSpec{Service: service, Name: "folders", Cap: maxFolders, Waiting: maxFoldersWaiting, From: "peers", To: "store"})
	o.maps = newChunkMaps(inv, o.spec.Store, givers.Go)
	o.streams = stream.New(inv, stream.Spec{
		Open: o.openObject, OpenTree: o.openTree, OpenFiles: o.openFiles, OpenParts: o.openParts, OpenChunks: o.maps.open, PerPeer: o.config.Peer.Streams, Patience: o.config.Progress, Senders: givers, Counters: o.metrics.streams(),
	})
	o.queries = ask.New(inv, ask.Spec{Answer: o.spec.Answer, Answerers: answerers, Counters: o.metrics.asks()})
	o.sessions, err = session.New(inv, session.Spec{
		Key: o.spec.Key, Config: o.config.sessions(), Peer: o.config.Peer.sessions(), Drop: o.config.drop(), Burst: o.config.Gossip.Burst,
		Admit: o.admit, Token: o.tokenFor, Handler: (*sessionHandler)(o), Bandwidth: o.spec.Bandwidth, Tasks: tasks, Counters: o.sessionCounters(),
	})
	return err
}

// newGroups makes the groups of tasks that come and go with connections.
func (o *Overlay) newGroups(to *supervise.Supervisor, in Stages) (tasks session.Tasks, givers, answerers *supervise.Group, err error) {
	group := func(kind, stage string, most int, finish bool) (g *supervise.Group) {
		if err == nil {
			g, err = to.NewGroup(supervise.GroupSpec{Service: service, Kind: kind, Stage: stage, Max: most, Finish: finish})
		}
		return g
	}
	conns := o.config.MaxConns
	tasks = session.Tasks{
		Handshakes: group("overlay handshake", in.Intake, conns, false),
		Dialers:    group("overlay keeper", in.Intake, maxContacts, false),
		Readers:    group("overlay reader", in.State, conns, true),
		Writers:    group("overlay writer", in.State, conns, true),
	}
	return tasks, group("overlay giver", in.State, maxGivers, true), group("overlay answerer", in.State, maxAnswerers, true), err
}

// maxContacts is how many nodes a session can be kept with, maxGivers how many
// objects are sent at the same time, and maxAnswerers how many questions are
// answered.
const (
	maxContacts  = 4096
	maxGivers    = 256
	maxAnswerers = 256
)

// childPolicy is the seed's: from 100 ms to 2 s, five tries, then the overlay
// is down and the node reports it.
var childPolicy = supervise.Restart{
	Min: 100 * time.Millisecond, First: 100 * time.Millisecond, Cap: 2 * time.Second, Limit: 5, Window: time.Minute, OnCrashLoop: supervise.Down,
}

// Add adds all services to the supervisor.
func (o *Overlay) Add(to *supervise.Supervisor, in Stages, audit func(Event)) error {
	heard, err := o.events.Subscribe("audit", nil)
	if err != nil {
		return err
	}
	policy := childPolicy
	if o.spec.Alone {
		policy.OnCrashLoop = supervise.Fatal
	}
	add := func(name, stage string, serve, drain func(context.Context) error) {
		err = errors.Join(err, to.Add(supervise.Service{
			Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain, Restart: policy,
		}))
	}
	add("overlay audit", in.State, func(ctx context.Context) error { heard.ForEach(ctx, audit); return nil }, supervise.CloseOnDrain(o.events.Close))
	add("overlay sessions", in.State, o.watch, o.drainSessions)
	add("overlay peers", in.State, o.keepPeers, nil)
	add("overlay introductions", in.State, o.runIntroductions, nil)
	add("overlay repair", in.Workers, o.engine.Maintain, nil)
	add("overlay dialer", in.Intake, o.sessions.RunDialers, nil)
	if o.config.Addr != "" {
		add("overlay listener", in.Intake, o.sessions.Serve, nil)
	}
	if o.lan != nil {
		add("overlay lan", in.Intake, o.lan.Serve, nil)
	}
	for i, source := range o.spec.Sources {
		add(fmt.Sprintf("overlay source %d", i+1), in.Intake, func(ctx context.Context) error { return o.follow(ctx, i, source) }, nil)
	}
	return errors.Join(err, to.AddPool(supervise.Pool{N: o.config.Gossip.WorkerCount(),
		Service: supervise.Service{Service: service, Name: "overlay gossip", Stage: in.Workers, Serve: o.engine.Work, Drain: supervise.CloseOnDrain(o.engine.Drain)}}))
}

// Listen opens the socket, unless no address is configured.
func (o *Overlay) Listen(ctx context.Context) error {
	o.updateReadiness() // so that readiness does not begin with a remark
	if o.config.Addr == "" {
		o.listenerReady.Up()
		return nil
	}
	candidates := ingress.NextPorts(o.config.Addr)
	if !o.spec.AnyPort {
		candidates = candidates[:1]
	}
	var err error
	taken := 0
	for _, addr := range candidates {
		if err = o.sessions.Listen(ctx, addr); !ingress.IsTaken(err) {
			break
		}
		taken++
	}
	switch {
	case err != nil:
		return err
	case taken == 0:
		o.listenerReady.Up()
		return o.resumeReach(ctx)
	}
	o.listenerReady.UpWithRemark(fmt.Sprintf("%s is taken, so the overlay listens on %s", o.config.Addr, o.Addr()),
		"Set a fixed port with --overlay, so that other nodes find this node again.")
	return o.resumeReach(ctx)
}

// resumeReach listens on all addresses at once, if a peer that is expected was
// kept across a restart.
func (o *Overlay) resumeReach(ctx context.Context) error {
	if !o.needsReach(time.Now()) {
		return nil
	}
	_, err := o.openReach(ctx)
	return err
}

// Addr returns where the overlay listens, or nil.
func (o *Overlay) Addr() net.Addr { return o.sessions.Addr() }

// ID returns this node's own ID.
func (o *Overlay) ID() oap.PeerID { return o.sessions.ID() }

// drainSessions sends bye to all peers and waits until the sessions have ended.
func (o *Overlay) drainSessions(ctx context.Context) error {
	defer close(o.drained)
	o.streams.Drain()
	o.queries.Drain()
	return o.sessions.Drain(ctx)
}

// follow keeps the contacts of one source up to date.
func (o *Overlay) follow(ctx context.Context, i int, source PeerSource) error {
	var since flow.Version
	for {
		contacts, now, err := source.Peers(ctx, since)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fault.Wrap("overlay.peers", err)
		}
		o.contacts.set(fmt.Sprintf("source %d", i+1), contacts)
		since = now
	}
}

// setConfigPeers sets the contacts of the configuration.
func (o *Overlay) setConfigPeers(c Config) error {
	contacts, err := c.contacts()
	if err != nil {
		return err
	}
	o.contacts.set(fromConfig, contacts)
	return nil
}

// Reconfigure applies what can change without a restart: the peers. The
// configuration was verified.
func (o *Overlay) Reconfigure(next Config) error { return o.setConfigPeers(next) }

// admit decides whether a peer that dials this node may have a session: it is
// known, it has an invitation, or it has a token. Anybody else has knocked, which
// the operator sees.
func (o *Overlay) admit(peer session.Candidate) error {
	if o.config.Open || o.contacts.contains(peer.ID) {
		return nil
	}
	now := time.Now()
	problem := &fault.Error{Op: "overlay.admit", Kind: fault.Unauthorized, Detail: "this node does not know " + peer.ID.String(),
		Next: "Type here: micronode peers accept " + peer.ID.String() + ". Or invite it: micronode invite."}
	if peer.Token != "" {
		if problem.Err = o.admitToken(peer, now); problem.Err == nil {
			o.knocks.forget(peer.ID)
			return nil
		}
		problem.Detail += ", and refuses its token"
	}
	if o.knocks.add(peer, now) {
		_ = o.events.Publish(Event{Type: AuthFailure, Peer: peer.ID, Addr: peer.Addr, Detail: problem.Detail + ". " + problem.Next})
	}
	return problem
}

// admitToken admits a stranger by what it shows: an invitation, or a token of the
// scope overlay:join.
func (o *Overlay) admitToken(peer session.Candidate, now time.Time) error {
	if secret, is := invitation.ParseToken(peer.Token); is {
		if o.contacts.count() >= maxContacts {
			return &fault.Error{Op: "overlay.admit", Kind: fault.Busy, Detail: "the maximum number of peers is reached", Next: "Remove one with `micronode peers rm`."}
		}
		share, err := o.invitations.redeem(secret, peer.ID, now)
		switch {
		case err != nil:
			return err
		case share:
			o.contacts.addGuest(peer.ID, peer.Token, now)
		default:
			o.allowIntroduced(peer.ID)
			o.contacts.addInvited(peer.ID)
		}
		o.keeper.changed()
		return nil
	}
	if o.spec.Join == nil {
		return &fault.Error{Op: "overlay.admit", Kind: fault.Unauthorized, Detail: "this node takes no tokens"}
	}
	err := o.spec.Join(peer.Token)
	if err == nil {
		o.contacts.addGuest(peer.ID, peer.Token, now)
	}
	return err
}

// recheckEvery is how often the token of a guest is checked again. It may have
// expired, or have been revoked.
const recheckEvery = time.Second

// recheckGuests closes the sessions of guests whose tokens are not valid any
// more, with that error.
func (o *Overlay) recheckGuests(now time.Time) {
	for _, one := range o.contacts.guestsToRecheck(o.sessions.Active(), now, recheckEvery) {
		err := o.checkGuest(one, now)
		if err == nil || fault.KindOf(err) == fault.RateLimited { // the limit is on how often it is shown
			continue
		}
		id := one.Peer()
		o.contacts.removeGuest(id, one.token)
		problem := &fault.Error{Op: "overlay.session", Kind: fault.Unauthorized, Detail: "the token of " + id.String() + " is no longer valid", Err: err,
			Next: "Give it a new token of the scope overlay:join, or add it with `micronode peers add`."}
		_ = o.events.Publish(Event{Type: AuthFailure, Peer: id, Detail: problem.Detail})
		one.CloseWithError(problem)
	}
}

// tokenFor is the token to show to a peer that this node dials.
func (o *Overlay) tokenFor(id oap.PeerID) string {
	if token := o.contacts.token(id); token != "" {
		return token
	}
	return o.tokens[id]
}

// checkGuest checks again what a guest was admitted by.
func (o *Overlay) checkGuest(one guestSession, now time.Time) error {
	if secret, is := invitation.ParseToken(one.token); is {
		return o.invitations.check(secret, one.Peer(), now)
	}
	return o.spec.Join(one.token) // it is there: a guest was admitted by it
}

// Arriving is an object that this node is fetching, with its tree, which is
// proven.
type Arriving interface {
	stream.Source
	Tree() b3.Outboard
	Parts() oap.Parts // which are here
}

// openObject opens an object for a peer that asks for it. One that is arriving is
// passed on as far as it is here: so nodes that fetch the same object at the same
// time help each other.
func (o *Overlay) openObject(ctx context.Context, address b3.Address) (stream.Source, error) {
	handle, err := o.spec.Store.Open(ctx, address)
	if err == nil {
		return handle, nil
	}
	if arriving := o.openArriving(ctx, address, err); arriving != nil {
		return arriving, nil
	}
	return nil, err
}

// openArriving opens an object that the store does not have, or returns nil if it
// is not arriving either.
func (o *Overlay) openArriving(ctx context.Context, address b3.Address, missing error) Arriving {
	if o.spec.Arriving == nil || fault.KindOf(missing) != fault.NotFound {
		return nil
	}
	arriving, err := o.spec.Arriving(ctx, address)
	if err != nil {
		return nil
	}
	return arriving
}

// openTree opens the tree of an object for a peer that asks for it. One that is
// not stored is made, and is in memory until the peer has it. That of an object
// that is arriving is in memory anyway.
func (o *Overlay) openTree(ctx context.Context, address b3.Address) (stream.Source, error) {
	if err := o.trees.Acquire(ctx); err != nil {
		return nil, err
	}
	tree, err := store.OpenTree(ctx, o.spec.Store, address)
	if err == nil {
		return &treeSource{Tree: tree, release: sync.OnceFunc(o.trees.Release)}, nil
	}
	o.trees.Release()
	if arriving := o.openArriving(ctx, address, err); arriving != nil {
		tree := arriving.Tree()
		return &arrivingTree{io.NewSectionReader(tree, 0, int64(len(tree))), arriving}, nil
	}
	return nil, err
}

// openParts opens which parts of an object that is arriving are here. Whoever asks
// has been told that one of them is not.
func (o *Overlay) openParts(ctx context.Context, address b3.Address) (stream.Source, error) {
	handle, err := o.spec.Store.Open(ctx, address)
	if err == nil {
		defer func() { _ = handle.Close() }() // it was not read
		return partsSource{bytes.NewReader(oap.AllParts(handle.Size()))}, nil
	}
	arriving := o.openArriving(ctx, address, err)
	if arriving == nil {
		return nil, err
	}
	defer func() { _ = arriving.Close() }() // it was not read
	return partsSource{bytes.NewReader(arriving.Parts())}, nil
}

// partsSource is which parts of an object are here.
type partsSource struct{ *bytes.Reader }

func (partsSource) Close() error { return nil }

// arrivingTree is the tree of an object that is arriving.
type arrivingTree struct {
	*io.SectionReader
	io.Closer
}

// treeSource is a tree that is sent to a peer, and its permit.
type treeSource struct {
	*store.Tree
	release func()
}

func (t *treeSource) Close() error {
	t.release()
	return t.Tree.Close()
}

// openFiles opens the files of a folder for a peer that asks for them. The
// manifest is in memory until the peer has them.
func (o *Overlay) openFiles(ctx context.Context, address b3.Address) (stream.Source, error) {
	if err := o.folders.Acquire(ctx); err != nil {
		return nil, err
	}
	files, err := store.OpenFiles(ctx, o.spec.Store, address)
	if err != nil {
		o.folders.Release()
		return nil, err
	}
	return &filesSource{Files: files, release: sync.OnceFunc(o.folders.Release)}, nil
}

// filesSource is the files of a folder that are sent to a peer, and their permit.
type filesSource struct {
	*store.Files
	release func()
}

func (f *filesSource) Close() error {
	f.release()
	return f.Files.Close()
}

// Close closes what a drain left open.
func (o *Overlay) Close() error {
	if o.sessions == nil {
		return nil
	}
	cut, cancel := context.WithCancel(context.Background())
	cancel()
	_ = o.sessions.Drain(cut) // its error counts the sessions that it cut, which is expected here
	o.engine.Drain()
	return nil
}

// Event is an event of the overlay.
type Event struct {
	Type   EventType
	Peer   oap.PeerID
	Addr   string
	PQ     bool
	Detail string // in words
}

// EventType is one of a fixed set.
type EventType string

const (
	// SessionOpened says that a peer is connected.
	SessionOpened EventType = "session opened"
	// SessionClosed says that it is disconnected, and why.
	SessionClosed EventType = "session closed"
	// AuthFailure says that a peer was refused, or expelled for a forged
	// message.
	AuthFailure EventType = "auth failure"
	// PeerLimited says that frames of a peer are dropped, because it sends more
	// than it may.
	PeerLimited EventType = "a limit rejects a peer"
	// LANTrouble says that nodes in private networks are not found any more, and why.
	LANTrouble EventType = "nodes nearby cannot be found"
	// LANFound says that they can be.
	LANFound EventType = "nodes nearby can be found"
)

// Question is what a peer is asked: which nodes have an object, or what a name
// means.
type Question = ask.Question

// Found is what a peer knows; nothing in it is proved. FoundProvider is a node
// that is said to have the object.
type (
	Found         = ask.Found
	FoundProvider = ask.Provider
)

// Ask asks a peer what it knows, and waits for the answer until ctx ends: Timeout
// or Canceled. It is NoRoute without a session with the peer, Busy when 64
// questions are under way to it, Transient when the session ends meanwhile; what
// the peer itself refuses has the kind of its code.
func (o *Overlay) Ask(ctx context.Context, peer oap.PeerID, q Question) (Found, error) {
	s := o.sessions.Find(peer)
	if s == nil {
		return Found{}, &fault.Error{Op: "overlay.ask", Kind: fault.NoRoute, Detail: "there is no session with " + peer.String(),
			Next: "See `micronode peers` for those that are connected."}
	}
	return o.queries.Ask(ctx, s, q)
}

// ConnectedPeer is a peer that can be asked right now.
type ConnectedPeer struct {
	ID   oap.PeerID    `json:"id"`
	Addr string        `json:"addr"`   // at the other end of the session, which may differ from where it listens
	RTT  time.Duration `json:"rtt_ns"` // of the last ping or of the handshake; 0 if none was measured
}

// ConnectedPeers lists the peers with an active session, in no order. It takes no
// lock while the sessions stay the same.
func (o *Overlay) ConnectedPeers() []ConnectedPeer {
	active := o.sessions.Active()
	list := make([]ConnectedPeer, len(active))
	for i, s := range active {
		list[i] = ConnectedPeer{ID: s.Peer(), Addr: s.Addr(), RTT: s.RTT()}
	}
	return list
}
