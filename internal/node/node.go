package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/amnesia"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/edge"
	"micronode/internal/facet"
	"micronode/internal/flow"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/observe"
	"micronode/internal/overlay"
	"micronode/internal/registry"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// service is the label of the node's own parts in metrics.
const service = "node"

// The stages, in the order of the start. They drain in reverse: first what
// brings work in, then what does it, then what it needs, the admin plane last.
const (
	stageAdmin   = "admin"
	stageWatch   = "watch"
	stageState   = "state"
	stageWorkers = "workers"
	stageIntake  = "intake"
)

// Options are what a node is made from.
type Options struct {
	Profile string         // micronode or macronode
	Sources config.Sources // read at the start, and again at every reload
	Only    []string       // the parts that run here; empty for all of them
	Socket  string         // name of the local socket; empty for the user's own
	Persist string         // the one folder that is written to; empty for amnesia
	Open    bool           // ask nobody for a capability: a playground, on loopback only
	Log     io.Writer      // nil for standard error

	// Unconfined leaves the process as it is. It is for tests, which must not
	// lose the right to write for good; a node that people run is confined.
	Unconfined bool
}

// Node is one running node.
type Node struct {
	// set at construction
	options  Options
	profile  string
	socket   string
	layout   layout  // which parts run here, and where the others are
	folder   *Folder // nil in amnesia
	identity *Identity
	achieved amnesia.Achieved

	// what is seen
	logs      *observe.Logs
	log       *slog.Logger
	lag       *observe.LagLog
	build     observe.Build
	metrics   *observe.Metrics
	tracing   *observe.Tracing
	readiness *observe.Readiness

	// what moves between tasks
	inventory *flow.Inventory
	bus       *flow.Bus[Event]
	orders    *flow.Reader[Event]    // subscribed before anybody can publish; read by the bus service
	shutdown  *flow.Snapshot[string] // why, once somebody has asked for it on the bus
	work      *flow.Queue[*job]
	telemetry *flow.Queue[note]

	// what is kept, and forgotten; of the parts, those that run here
	config    *config.Watcher[Config]
	vault     *amnesia.Vault
	purger    *amnesia.Purger
	authority *capability.Authority
	root      *capability.Root
	store     store.Store
	shelf     *store.Shelf
	objects   *store.Objects
	edge      *edge.Edge
	overlay   *overlay.Overlay
	registry  *registry.Registry
	index     *index.Index
	mailbox   *mailbox.Mailbox
	graph     *index.Graph   // nil if its facet is off
	library   *index.Library // nil if the facet search is off; where the index is
	facets    *facet.Facets

	// the parts that run elsewhere
	remotes  []*remote
	far      elsewhere
	vouchers vouchers
	letters  *flow.Queue[[]byte] // to an overlay elsewhere; nil if it is here
	closers  []func()            // of connections to other processes

	// who runs, and where it listens
	supervisor *supervise.Supervisor
	keyring    *ingress.Keyring // nil without TLS
	gateway    *ingress.Server
	reachable  atomic.Pointer[index.Provider] // where others find this node; nil before it listens
	http       *ingress.Listener
	local      *ingress.Listener
	admin      *ingress.Listener
}

// New puts a node together: reads the configuration, gives up the right to
// write, makes the parts, opens the listeners. What can fail for a reason that
// the operator can mend fails here.
func New(ctx context.Context, options Options) (*Node, error) {
	loaded, err := load(options)
	if err != nil {
		return nil, err
	}
	n := &Node{options: options, profile: options.Profile, socket: options.Socket, inventory: flow.NewInventory()}
	if n.profile == "" {
		n.profile = Profiles[0]
	}
	c := loaded.Value
	if n.layout, err = newLayout(options.Only, c); err != nil {
		return nil, err
	}
	if n.socket == "" {
		n.socket = n.layout.socket()
	}
	for _, step := range []func() error{
		func() error { return n.checkExposure(c) },
		func() error { return n.checkShared(c) },
		func() error { return n.openFolder() },
		func() error { return n.confine(c) },
		func() error { return n.makeEyes(ctx, c) },
		func() error { return n.makeKeys(loaded) },
		func() error { return n.makeParts(loaded) },
		func() error { return n.here("store", func() error { return n.openStore(ctx, c) }) },
		func() error { return n.makeSupervisor(c) },
		func() error { return n.reachParts() },
		func() error { return n.here("edge", func() error { return n.openEdge(ctx, c) }) },
		func() error { return n.here("registry", func() error { return n.openRegistry(ctx, c) }) },
		func() error { return n.here("overlay", func() error { return n.openOverlay(ctx, loaded) }) },
		func() error { return n.here("index", func() error { return n.openIndex(ctx, c) }) },
		func() error { return n.here("mailbox", func() error { return n.openMailbox(ctx, c) }) },
		func() error { return n.openFacets(c) },
		func() error { return n.listen(ctx, c) },
		func() error { return n.here("index", func() error { return n.joinDHT(ctx, c) }) },
		func() error { return n.addServices(c) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// here makes a part, if this process runs it.
func (n *Node) here(part string, open func() error) error {
	if !n.layout.here[part] {
		return nil
	}
	return open()
}

// checkExposure refuses listeners that would take strangers for friends.
func (n *Node) checkExposure(c Config) error {
	for _, listener := range []ingress.Exposure{
		{Setting: "http.addr", Addr: c.HTTP.Addr, Files: c.HTTP.Files(), Tokens: !n.options.Open},
		{Setting: "admin.addr", Addr: c.Admin.Addr, Files: c.HTTP.Files(), Tokens: !n.options.Open},
	} {
		if err := listener.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// openFolder takes the folder that the node may write to, if it may.
func (n *Node) openFolder() (err error) {
	if n.options.Persist == "" {
		return nil
	}
	n.folder, err = OpenFolder(n.options.Persist)
	return err
}

// amnesiac reports whether the node keeps nothing.
func (n *Node) amnesiac() bool { return n.folder == nil }

// confine gives up the right to write to disk, for good; with --persist, to
// all of it but one folder.
func (n *Node) confine(c Config) error {
	if n.options.Unconfined {
		n.achieved = amnesia.Achieved{Reason: "the process was not confined", Next: "Run the node with `micronode run`."}
		return nil
	}
	plan := amnesia.Plan{Mode: amnesia.Mode(c.Amnesia.Enforce), Sockets: socketFolders(n.socket)}
	if !n.amnesiac() {
		plan.Writable = []string{n.folder.Path()}
	}
	achieved, err := amnesia.Confine(plan)
	if err != nil {
		return fault.Wrap("node.confine", err)
	}
	n.achieved = achieved
	return nil
}

// makeEyes makes what the node is seen by.
func (n *Node) makeEyes(ctx context.Context, c Config) error {
	out := n.options.Log
	if out == nil {
		out = os.Stderr
	}
	logs, err := observe.NewLogs(out, c.Log.Format)
	if err != nil {
		return err
	}
	n.logs, n.log = logs, logs.Logger()
	n.lag = observe.NewLagLog(n.log)
	n.build = observe.ReadBuild("micronode")
	n.metrics = observe.NewMetrics(n.build)
	if n.amnesiac() {
		n.metrics.AmnesiaMode.Set(1)
	}
	n.tracing = observe.NewTracing(n.metrics, n.build)
	if err := n.setLevel(c.Log.Level); err != nil {
		return err
	}
	return n.tracing.Set(ctx, c.Trace.traces())
}

func (n *Node) setLevel(text string) error {
	level, err := observe.ParseLevel(text)
	if err != nil {
		return err
	}
	n.logs.SetLevel(level)
	return nil
}

// keyRoom is room for the root of capabilities and the seeds of keys to come.
const keyRoom = 4 << 10

// makeKeys finds the node's identity and the root of its capabilities. The
// root lives in memory that is locked and wiped.
func (n *Node) makeKeys(loaded *config.Loaded[Config]) (err error) {
	c := loaded.Value
	n.vault = amnesia.NewVault()
	n.purger = amnesia.NewPurger(time.Duration(c.Amnesia.PurgeIntervalMS) * time.Millisecond)
	n.purger.Register(new(thrift).giveBack)
	keys, err := n.vault.NewArena("keys", keyRoom)
	if err != nil {
		return fault.Wrap("node.keys", err)
	}
	if err := n.findIdentity(loaded); err != nil {
		return err
	}
	root := c.Auth.Root.Reveal()
	switch {
	case root != "":
		n.root, err = capability.RootFrom(root, keys.Alloc)
	case n.amnesiac():
		n.root, err = capability.NewRoot(keys.Alloc)
	default:
		n.root, err = n.folder.root(keys.Alloc)
	}
	if err != nil {
		return err
	}
	n.authority = capability.NewAuthority(n.root)
	return nil
}

// findIdentity finds the node's key. A node with a folder keeps one there,
// unless somebody said which it is to have.
func (n *Node) findIdentity(loaded *config.Loaded[Config]) (err error) {
	const key = "node.identity"
	if n.amnesiac() || loaded.Origin(key).Layer != config.LayerDefault {
		n.identity, err = LoadIdentity(loaded.Value.Node.Identity)
	} else {
		n.identity, err = n.folder.identity()
	}
	if err != nil || n.amnesiac() || n.identity.Ephemeral() {
		return err
	}
	return n.folder.belongTo(n.identity.PeerID())
}

// makeParts makes everything that moves between the node's own tasks;
// docs/_generated/concurrency.md shows them.
func (n *Node) makeParts(loaded *config.Loaded[Config]) error {
	n.bus = flow.NewBus[Event](n.inventory, flow.BusSpec{
		Service: service, Name: "bus", Cap: 512, Readers: 64, From: "supervisor, services", To: "whoever subscribes",
	})
	n.orders, _ = n.bus.Subscribe("shutdown", n.reconcile) // a new bus has room
	n.shutdown = flow.NewSnapshot(n.inventory, flow.SnapshotSpec{
		Service: service, Name: "shutdown", From: "whoever asks for it", To: "bus service",
	}, "")
	n.work = flow.NewQueue[*job](n.inventory, flow.QueueSpec{
		Service: service, Name: "work", Cap: 256, Policy: flow.RejectNew, From: "gateway", To: "workers",
	})
	n.telemetry = flow.NewQueue[note](n.inventory, flow.QueueSpec{
		Service: service, Name: "telemetry", Cap: 256, Policy: flow.DropOldest, From: "everybody", To: "telemetry",
	})
	n.config = config.NewWatcher(n.inventory, n.reload, loaded, config.Options{File: n.options.Sources.File, OnResult: n.reloaded})
	n.config.Join(n.participant())
	return nil
}

func (n *Node) makeSupervisor(c Config) error {
	supervisor, err := supervise.New(supervise.Options{
		Stages: []supervise.Stage{
			{Name: stageAdmin}, {Name: stageWatch}, {Name: stageState}, {Name: stageWorkers}, {Name: stageIntake},
		},
		Total:   c.Node.Drain,
		OnEvent: n.observed,
	})
	if err != nil {
		return fault.Wrap("node.new", err)
	}
	n.supervisor = supervisor
	n.readiness = observe.NewReadiness(n.inventory, supervisor)
	n.metrics.Watch(n.sources())
	return n.tellAmnesia()
}

// tellAmnesia says in the readiness table what the kernel enforces.
func (n *Node) tellAmnesia() error {
	dependency := n.readiness.Dependency(service, "amnesia", observe.ForWrites)
	if n.achieved.Reason != "" {
		dependency.UpBut(n.achieved.Reason, n.achieved.Next)
	} else {
		dependency.Up()
	}
	return nil
}

func (n *Node) sources() observe.Sources {
	return observe.Sources{Inventory: n.inventory, Supervisor: n.supervisor, Readiness: n.readiness}
}

// addServices says what runs and in which stage.
func (n *Node) addServices(c Config) error {
	add := func(stage, name string, serve, drain func(context.Context) error) error {
		return n.supervisor.Add(supervise.Service{Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain})
	}
	return errors.Join(
		add(stageAdmin, "admin", n.admin.Serve, n.admin.Drain),
		add(stageWatch, "telemetry", n.serveTelemetry, supervise.Closing(n.telemetry.Close)),
		add(stageWatch, "readiness", n.serveReadiness, nil),
		add(stageWatch, "bus", n.serveBus, supervise.Closing(n.bus.Close)),
		add(stageWatch, "config", n.config.Serve, supervise.Closing(n.config.Close)),
		add(stageWatch, "config file", n.config.Watch, nil),
		add(stageState, "purger", n.purger.Serve, nil),
		add(stageState, "settling", settle, nil),
		n.addDisk(),
		n.supervisor.AddPool(supervise.Pool{N: c.Node.workers(), Next: n.nextJob,
			Service: supervise.Service{Service: service, Name: "worker", Stage: stageWorkers, Drain: supervise.Closing(n.work.Close)}}),
		n.here("store", func() error { return n.addStore(c) }),
		n.here("edge", func() error {
			return n.edge.Add(n.supervisor, edge.Stages{State: stageState, Workers: stageWorkers}, n.audit)
		}),
		n.here("overlay", func() error { return n.overlay.Add(n.supervisor, overlayStages, n.heardOverlay) }),
		n.here("registry", func() error { return n.registry.Add(n.supervisor, registryStages, n.heardRegistry) }),
		n.here("index", func() error { return n.index.Add(n.supervisor, indexStages, n.heardIndex) }),
		n.here("mailbox", func() error { return n.mailbox.Add(n.supervisor, mailboxStages, n.heardMailbox) }),
		n.addFacets(),
		n.addRemotes(),
		n.addChaos(),
		add(stageIntake, "http", n.http.Serve, n.http.Drain),
		add(stageIntake, "local", n.local.Serve, n.local.Drain),
	)
}

// addDisk adds what looks after the room for the folder, if there is one.
func (n *Node) addDisk() error {
	if n.amnesiac() {
		return nil
	}
	return n.supervisor.Add(supervise.Service{Service: service, Name: "disk", Stage: stageState, Serve: n.newDisk().Serve})
}

// addStore adds what looks after the objects: the scrubber, and for a store on
// another machine, whether it answers.
func (n *Node) addStore(c Config) error {
	scrubber := supervise.Service{Service: service, Name: "scrubber", Stage: stageState, Serve: c.Store.Scrubber(n.store).Serve}
	if err := n.supervisor.Add(scrubber); err != nil || c.Store.URL == "" {
		return err
	}
	watch := reach{store: n.store, dependency: n.readiness.Dependency("store", "reach", observe.ForReads)}
	return n.supervisor.Add(supervise.Service{Service: "store", Name: "store reach", Stage: stageState, Serve: watch.Serve})
}

// Run runs the node until ctx ends or somebody asks for a shutdown, drains it,
// forgets what must be forgotten, and reports how that went.
func (n *Node) Run(ctx context.Context) (*supervise.Report, error) {
	report, err := n.supervisor.Run(ctx)
	return report, errors.Join(err, n.Close())
}

// Close forgets everything and gives back what New opened. Run calls it; it is
// for a node that is never run, too. Parts that New did not get to are nil.
func (n *Node) Close() error {
	cut, cancel := context.WithCancel(context.Background())
	cancel()
	for _, listener := range []*ingress.Listener{n.http, n.local, n.admin} {
		if listener != nil {
			_ = listener.Drain(cut) // it says how many connections it cut, and there is nothing left to do about them
		}
	}
	if n.tracing != nil {
		n.tracing.Close(cut)
	}
	for _, closeIdle := range n.closers {
		closeIdle()
	}
	return errors.Join(n.closeFacets(), n.closeMailbox(), n.closeIndex(), n.closeOverlay(), n.closeRegistry(), n.closeStores(), n.closeKeys(), n.closeFolder())
}

// closeKeys wipes the memory that keys were in, and looks that it is empty.
func (n *Node) closeKeys() error {
	if n.root != nil {
		n.root.Close()
	}
	if n.vault == nil {
		return nil
	}
	wiped, err := n.vault.Close()
	if err == nil && !wiped.Clean() {
		err = fault.New("node.close", fault.Internal, "memory with keys was not wiped: %s", wiped)
	}
	return err
}

func (n *Node) closeFolder() error {
	if n.folder == nil {
		return nil
	}
	return n.folder.Close()
}

// Inventory lists every queue, lane, bus, snapshot, set of permits and lock.
func (n *Node) Inventory() *flow.Inventory { return n.inventory }

// nextJob gives a worker its next job.
func (n *Node) nextJob(ctx context.Context) (supervise.Job, error) {
	j, err := n.work.Pop(ctx)
	if err != nil {
		return nil, err
	}
	return j, nil
}

func (n *Node) submitIdempotent(ctx context.Context, work func(context.Context) error) error {
	return n.submit(ctx, true, work)
}
