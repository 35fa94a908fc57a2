package overlay

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/overlay/ask"
	"micronode/internal/overlay/gossip"
	"micronode/internal/overlay/session"
	"micronode/internal/overlay/stream"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// Spec is what an overlay is made of.
type Spec struct {
	Config Config
	Key    ed25519.PrivateKey
	Skew   time.Duration // by how much clocks may differ

	Store   store.Store              // what peers may fetch, and where fetched objects go
	Join    func(token string) error // whether a token lets a stranger in; nil: none does
	Sources []PeerSource

	// Answer says what this node knows when a peer asks; nil: nobody has
	// anything. It may wait for a few seconds, and many of it run at a time.
	Answer func(ctx context.Context, q Question) Found

	AnyPort bool // nobody chose Config.Addr: if its port is taken, another will do
	Alone   bool // the process runs nothing else: when the overlay is down, so is the process

	Metrics   *observe.Metrics
	Readiness *observe.Readiness
}

// Overlay is the service.
type Overlay struct {
	// set at construction
	config   Config
	spec     Spec
	tokens   map[oap.PeerID]string
	metrics  *metrics
	sessions *session.Sessions
	engine   *gossip.Engine
	streams  *stream.Streams
	asks     *ask.Asks
	book     *book
	events   *flow.Bus[Event]
	publish  *flow.Lane
	fetches  *flow.Lane
	gauge    gauge

	// what readiness hears
	listening *observe.Dependency
	pressure  *observe.Dependency
	company   *observe.Dependency

	crowd atomic.Pointer[crowd] // the active sessions, as gossip sees them

	drained chan struct{} // closed when the last session has gone
}

// Stages says in which stages of the node the parts of the overlay run. They
// drain in reverse: nobody new comes in, then letters that were taken go out,
// then the sessions say bye.
type Stages struct {
	State   string // sessions and events
	Workers string // the gossip engine
	Intake  string // listener and dialer
}

// New makes the parts of an overlay and enters what runs into the supervisor.
func New(inv *flow.Inventory, to *supervise.Supervisor, in Stages, spec Spec) (*Overlay, error) {
	o := &Overlay{
		config: spec.Config, spec: spec, metrics: newMetrics(spec.Metrics.For(service)), drained: make(chan struct{}),
		listening: spec.Readiness.Dependency(service, "listener", observe.ForReads),
		pressure:  spec.Readiness.Dependency(service, "pressure", observe.ForWrites),
		company:   spec.Readiness.Dependency(service, "peers", observe.ForWrites),
		events: flow.NewBus[Event](inv, flow.BusSpec{
			Service: service, Name: "events", Cap: 1024, Readers: 16, From: "sessions", To: "audit, whoever subscribes",
		}),
		publish: flow.NewLane(inv, flow.LaneSpec{
			Service: service, Name: "publish", Running: 64, Waiting: 448, From: "gateway", To: "gossip engine",
		}),
		fetches: flow.NewLane(inv, flow.LaneSpec{
			Service: service, Name: "fetches", Running: 16, Waiting: 64, From: "gateway", To: "streams",
		}),
	}
	var err error
	if o.tokens, err = spec.Config.tokens(); err != nil {
		return nil, err
	}
	if err := o.makeRooms(inv, to, in); err != nil {
		return nil, err
	}
	o.book = newBook(o.sessions.SetContacts)
	if err := o.take(spec.Config); err != nil {
		return nil, err
	}
	return o, nil
}

// makeRooms makes sessions, gossip, streams and questions, and shows them to each other.
func (o *Overlay) makeRooms(inv *flow.Inventory, to *supervise.Supervisor, in Stages) error {
	tasks, givers, answerers, err := o.groups(to, in)
	if err != nil {
		return err
	}
	o.engine = gossip.New(inv, gossip.Spec{
		Key: o.spec.Key, Config: o.config.Gossip, Topics: o.config.Peer.Topics, Skew: o.spec.Skew,
		Peers: o.peers, Counters: o.metrics.gossip(),
	})
	o.streams = stream.New(inv, stream.Spec{
		Open: o.open, PerPeer: o.config.Peer.Streams, Patience: o.config.Progress, Givers: givers, Counters: o.metrics.streams(),
	})
	o.asks = ask.New(inv, ask.Spec{Answer: o.spec.Answer, Answerers: answerers, Counters: o.metrics.asks()})
	o.sessions, err = session.New(inv, session.Spec{
		Key: o.spec.Key, Config: o.config.sessions(), Peer: o.config.Peer.sessions(), Drop: o.config.drop(), Burst: o.config.Gossip.Burst,
		Admit: o.admit, Token: func(id oap.PeerID) string { return o.tokens[id] }, Handler: (*switchboard)(o), Tasks: tasks, Counters: o.sessionCounters(),
	})
	return err
}

// groups makes the tasks that come and go with connections.
func (o *Overlay) groups(to *supervise.Supervisor, in Stages) (tasks session.Tasks, givers, answerers *supervise.Group, err error) {
	group := func(kind, stage string, most int, finish bool) (g *supervise.Group) {
		if err == nil {
			g, err = to.NewGroup(supervise.GroupSpec{Service: service, Kind: kind, Stage: stage, Max: most, Finish: finish})
		}
		return g
	}
	conns := o.config.MaxConns
	tasks = session.Tasks{
		Handshakes: group("overlay handshake", in.Intake, conns, false),
		Keepers:    group("overlay keeper", in.Intake, maxContacts, false),
		Readers:    group("overlay reader", in.State, conns, true),
		Writers:    group("overlay writer", in.State, conns, true),
	}
	return tasks, group("overlay giver", in.State, maxGivers, true), group("overlay answerer", in.State, maxAnswerers, true), err
}

// maxContacts is how many nodes can be kept a session with, maxGivers how many
// objects are given at the same time, and maxAnswerers how many questions are
// answered.
const (
	maxContacts  = 4096
	maxGivers    = 256
	maxAnswerers = 256
)

// childPolicy is the seed's: from 100 ms to 2 s, five tries, then the overlay is
// down and the node says so.
var childPolicy = supervise.Restart{
	Min: 100 * time.Millisecond, First: 100 * time.Millisecond, Cap: 2 * time.Second, Limit: 5, Window: time.Minute, Then: supervise.Down,
}

// Add hands everything that runs to the supervisor.
func (o *Overlay) Add(to *supervise.Supervisor, in Stages, audit func(Event)) error {
	heard, err := o.events.Subscribe("audit", nil)
	if err != nil {
		return err
	}
	policy := childPolicy
	if o.spec.Alone {
		policy.Then = supervise.Fatal
	}
	add := func(name, stage string, serve, drain func(context.Context) error) {
		err = errors.Join(err, to.Add(supervise.Service{
			Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain, Restart: policy,
		}))
	}
	add("overlay audit", in.State, func(ctx context.Context) error { heard.Each(ctx, audit); return nil }, supervise.Closing(o.events.Close))
	add("overlay sessions", in.State, o.watch, o.part)
	add("overlay repair", in.Workers, o.engine.Tend, nil)
	add("overlay dialer", in.Intake, o.sessions.Keep, nil)
	if o.config.Addr != "" {
		add("overlay listener", in.Intake, o.sessions.Serve, nil)
	}
	for i, source := range o.spec.Sources {
		add(fmt.Sprintf("overlay source %d", i+1), in.Intake, func(ctx context.Context) error { return o.follow(ctx, i, source) }, nil)
	}
	return errors.Join(err, to.AddPool(supervise.Pool{N: o.config.Gossip.WorkerCount(),
		Service: supervise.Service{Service: service, Name: "overlay gossip", Stage: in.Workers, Serve: o.engine.Work, Drain: supervise.Closing(o.engine.Drain)}}))
}

// Listen opens the socket, unless there is to be none.
func (o *Overlay) Listen(ctx context.Context) error {
	o.judge() // so that readiness does not begin with a complaint
	if o.config.Addr == "" {
		o.listening.Up()
		return nil
	}
	err := o.sessions.Listen(ctx, o.config.Addr)
	switch {
	case err == nil:
		o.listening.Up()
		return nil
	case !o.spec.AnyPort || !errors.Is(err, syscall.EADDRINUSE):
		return err
	}
	host, _, _ := net.SplitHostPort(o.config.Addr) // verified
	if err := o.sessions.Listen(ctx, net.JoinHostPort(host, "0")); err != nil {
		return err
	}
	o.listening.UpBut(fmt.Sprintf("%s is taken, so the overlay listens on %s", o.config.Addr, o.Addr()),
		"Choose a port with --overlay, if others are to find this node again.")
	return nil
}

// Addr is where the overlay listens, or nil.
func (o *Overlay) Addr() net.Addr { return o.sessions.Addr() }

// ID is this node's own.
func (o *Overlay) ID() oap.PeerID { return o.sessions.ID() }

// part says bye to all peers and waits until they have gone.
func (o *Overlay) part(ctx context.Context) error {
	defer close(o.drained)
	o.streams.Drain()
	o.asks.Drain()
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
		o.book.set(fmt.Sprintf("source %d", i+1), contacts)
		since = now
	}
}

// take takes what a configuration says of peers.
func (o *Overlay) take(c Config) error {
	contacts, err := c.contacts()
	if err != nil {
		return err
	}
	o.book.set(fromConfig, contacts)
	return nil
}

// Reconfigure takes what can change without a restart: the peers. The
// configuration was verified.
func (o *Overlay) Reconfigure(next Config) error { return o.take(next) }

// admit decides whether a peer that calls may have a session.
func (o *Overlay) admit(id oap.PeerID, token string) error {
	if o.config.Open || o.book.knows(id) {
		return nil
	}
	problem := &fault.Error{Op: "overlay.admit", Kind: fault.Unauthorized, Detail: "this node does not know " + id.String(),
		Next: "Add it with `micronode peers add`, or give it a token of the scope overlay:join."}
	if token != "" && o.spec.Join != nil {
		if problem.Err = o.spec.Join(token); problem.Err == nil {
			o.book.welcome(id, time.Now())
			return nil
		}
		problem.Detail += ", and its token does not let it in"
	}
	_ = o.events.Publish(Event{Type: AuthFailure, Peer: id, Detail: problem.Detail})
	return problem
}

// open finds an object for a peer that asks for it.
func (o *Overlay) open(ctx context.Context, address b3.Address) (stream.Source, error) {
	handle, err := o.spec.Store.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	return handle, nil
}

// Close lets go of everything that a drain did not.
func (o *Overlay) Close() error {
	if o.sessions == nil {
		return nil
	}
	cut, cancel := context.WithCancel(context.Background())
	cancel()
	_ = o.sessions.Drain(cut) // it says how many it cut, and there is nothing left to do about them
	o.engine.Drain()
	return nil
}
