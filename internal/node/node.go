package node

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/amnesia"
	"micronode/internal/bandwidth"
	"micronode/internal/capability"
	"micronode/internal/certificate"
	"micronode/internal/config"
	"micronode/internal/edge"
	"micronode/internal/facet"
	"micronode/internal/flow"
	"micronode/internal/graph"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/observe"
	"micronode/internal/overlay"
	"micronode/internal/page"
	"micronode/internal/registry"
	"micronode/internal/search"
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
	Open    bool           // require no capabilities: a playground, on loopback only
	Log     io.Writer      // nil for standard error
	System  System         // how this process was started

	// Addresses reads the addresses of this machine; nil for what the kernel
	// says.
	Addresses func() ([]net.Addr, error)

	// Unconfined leaves the process as it is. It is for tests, which must not
	// lose the right to write for good; a real node is confined.
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
	confined amnesia.Confinement
	memory   *memoryMonitor

	// observability
	logs      *observe.Logs
	log       *slog.Logger
	repeated  observe.RepeatedLines // of the log, which are held back
	build     observe.Build
	metrics   *observe.Metrics
	tracing   *observe.Tracing
	readiness *observe.Readiness
	refusals  observe.Refusals // clients and peers that a limit has rejected

	// what reloads left to be done, as rows of readiness
	rejectedConfig, pendingConfig *observe.Dependency
	reloadAnnounced               bool // owned by the config service: the system waits to hear that a reload is over

	systemKnows atomic.Bool         // that the node is ready
	addresses   *observe.Dependency // what keeps others from being told where this node is

	bandwidth *bandwidth.Meter // what leaves this machine, and comes from beyond

	// what moves between tasks
	inventory      *flow.Inventory
	bus            *flow.Bus[Event]
	eventReaders   readerShares           // has a lock of its own
	recent         recentEvents           // has a lock of its own
	busReader      *flow.Reader[Event]    // subscribed before the first event is published; read by the bus service
	shutdownReason *flow.Snapshot[string] // the reason, once a shutdown was requested on the bus
	work           *flow.Queue[*job]
	telemetry      *flow.Queue[logLine]

	// state, kept and forgotten; of the parts, those that run here
	config           *config.Watcher[Config]
	vault            *amnesia.ArenaSet
	purger           *amnesia.Purger
	authority        *capability.Authority
	root             *capability.Root
	registryKey      ed25519.PrivateKey // signs checkpoints; nil if the registry runs elsewhere
	revocationWriter *revocationWriter
	store            store.Store
	storeFull        atomic.Bool // it has refused an object for lack of space
	objectCache      *store.ObjectCache
	objects          *store.ObjectHandler
	edge             *edge.Edge
	overlay          *overlay.Overlay
	registry         *registry.Registry
	index            *index.Index
	mailbox          *mailbox.Mailbox
	graph            *graph.Graph   // nil if its facet is off
	library          *search.Search // nil if the facet search is off; runs with the index
	facets           *facet.Facets
	page             *page.Page

	// the parts that run elsewhere
	remotes        []*remotePart
	remoteClients  remoteClients
	commitMessages *flow.Queue[[]byte] // to an overlay elsewhere; nil if it is here
	closeFuncs     []func()            // of connections to other processes

	lost atomic.Pointer[[]string] // what ends with the node; stored when the drain begins

	// supervision and listeners
	supervisor       *supervise.Supervisor
	tlsSource        *ingress.TLSConfigSource // nil without TLS
	certificates     *certificate.Source      // nil if none are obtained
	certificateState *observe.Dependency
	certificateList  atomic.Pointer[[]client.Certificate] // nil before the first report
	gateway          *ingress.Server
	lan              []*ingress.Listener // in private networks, without TLS and for reads only
	plain            *ingress.Listener   // without TLS, beside certificates that are obtained; or nil
	siteHosts        atomic.Pointer[edge.SiteHosts]
	public           []string                       // groups of reads that are open to strangers
	self             atomic.Pointer[index.Provider] // where others reach this node; nil before it listens
	http             *ingress.Listener
	local            *ingress.Listener
	admin            *ingress.Listener
	notes            []string // what the start found and changed, for the banner
}

// New builds a node: it reads the configuration, drops the right to write,
// makes the parts, opens the listeners. Failures that the operator can fix
// happen here.
func New(ctx context.Context, options Options) (*Node, error) {
	loaded, err := load(options)
	if err != nil {
		return nil, err
	}
	n := &Node{options: options, profile: options.Profile, socket: options.Socket, inventory: flow.NewInventory(), page: page.New()}
	n.memory = &memoryMonitor{limit: findMemoryLimit(), used: anonymousMemory}
	n.memory.limit.applyToRuntime()
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
		func() error { return n.checkSharedSecrets(c) },
		func() error { return n.checkDomains(c) },
		func() error { return n.openFolder() },
		func() error { return n.confine(c) },
		func() error { return n.makeObservability(ctx, c) },
		func() error { return n.makeKeys(loaded) },
		func() error { return n.makeQueues(loaded) },
		func() error { return n.makeBandwidth(c) },
		func() error { return n.ifLocal("store", func() error { return n.openStore(ctx, c) }) },
		func() error { return n.makeSupervisor(c) },
		func() error { return n.makeRemotes(c) },
		func() error { return n.ifLocal("edge", func() error { return n.openEdge(ctx, c) }) },
		func() error { return n.ifLocal("registry", func() error { return n.openRegistry(ctx, c) }) },
		func() error { return n.ifLocal("overlay", func() error { return n.openOverlay(ctx, loaded) }) },
		func() error { return n.ifLocal("index", func() error { return n.openIndex(ctx, c) }) },
		func() error { return n.ifLocal("mailbox", func() error { return n.openMailbox(ctx, c) }) },
		func() error { return n.openFacets(c) },
		func() error { return n.listen(ctx, loaded) },
		func() error { return n.ifLocal("index", func() error { return n.joinDHT(ctx, c) }) },
		func() error { return n.addServices(c) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// ifLocal makes a part, if this process runs it.
func (n *Node) ifLocal(part string, open func() error) error {
	if !n.layout.local[part] {
		return nil
	}
	return open()
}

// checkExposure rejects listeners that would trust clients from outside.
func (n *Node) checkExposure(c Config) error {
	if c.Admin.TLS == "on" && c.HTTP.CertFile == "" && len(c.HTTP.ACME.Domains) == 0 {
		return fault.New("node.exposure", fault.RejectPolicy, "admin.tls is on, and the gateway has no certificate").
			Advise("Set http.cert_file and http.key_file, obtain a certificate with --domain, or set admin.tls to auto.")
	}
	for _, listener := range []ingress.Exposure{
		{Setting: "http.addr", Addr: c.HTTP.Addr, Files: c.HTTP.TLSFiles(), ACME: len(c.HTTP.ACME.Domains) > 0, Tokens: !n.options.Open, Proxies: c.HTTP.TrustedProxies},
		{Setting: "admin.addr", Addr: c.Admin.Addr, Files: adminFiles(c), ACME: c.Admin.TLS == "on" && len(c.HTTP.ACME.Domains) > 0, Tokens: !n.options.Open},
	} {
		if err := listener.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// adminFiles are the files of the admin plane's TLS.
func adminFiles(c Config) ingress.TLSFiles {
	if c.Admin.TLS == "off" {
		return ingress.TLSFiles{}
	}
	return c.HTTP.TLSFiles()
}

// openFolder opens and locks the folder that the node may write to, if there is
// one.
func (n *Node) openFolder() (err error) {
	if n.options.Persist == "" {
		return nil
	}
	n.folder, err = OpenFolder(n.options.Persist)
	return err
}

// amnesiac reports whether the node keeps nothing.
func (n *Node) amnesiac() bool { return n.folder == nil }

// confine drops the right to write to disk, for good; with --persist,
// everywhere but in one folder.
func (n *Node) confine(c Config) error {
	if n.options.Unconfined {
		n.confined = amnesia.Confinement{Reason: "the process was not confined", Next: "Run the node with `micronode run`."}
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
	n.confined = achieved
	return nil
}

// makeObservability makes metrics, readiness, logs and traces.
func (n *Node) makeObservability(ctx context.Context, c Config) error {
	out := n.options.Log
	if out == nil {
		out = os.Stderr
	}
	newLogs := observe.NewLogs
	if n.options.System.Journal {
		newLogs = observe.NewJournalLogs
	}
	logs, err := newLogs(out, c.Log.Format)
	if err != nil {
		return err
	}
	n.logs, n.log = logs, logs.Logger()
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

// keyRoom is the memory for the root of capabilities.
const keyRoom = 4 << 10

// makeKeys loads or makes the node's identity and the root of its capabilities.
// The root lives in memory that is locked and wiped; the identity in memory
// that is wiped.
func (n *Node) makeKeys(loaded *config.Loaded[Config]) (err error) {
	c := loaded.Value
	n.vault = amnesia.NewArenaSet()
	n.purger = amnesia.NewPurger(time.Duration(c.Amnesia.PurgeIntervalMS) * time.Millisecond)
	n.purger.Register(new(memoryTrim).release)
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
	n.authority, n.revocationWriter = capability.NewAuthority(n.root), newRevocationWriter(n.inventory)
	return n.loadRevocations()
}

// findIdentity loads or makes the node's key. A node with a folder keeps one
// there, unless the configuration names another.
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
	return n.folder.claim(n.identity.PeerID())
}

// makeQueues makes the queues and buses between the node's own tasks;
// docs/_generated/concurrency.md shows them.
func (n *Node) makeQueues(loaded *config.Loaded[Config]) error {
	queues := loaded.Value.Node.Queues
	n.bus = flow.NewBus[Event](n.inventory, flow.BusSpec{
		Service: service, Name: "bus", Cap: queues.Bus, Readers: busReaders, From: "supervisor, services", To: "shutdown, GET /admin/events",
	})
	n.busReader, _ = n.bus.Subscribe("shutdown", n.reconcile) // a new bus has room
	n.shutdownReason = flow.NewSnapshot(n.inventory, flow.SnapshotSpec{
		Service: service, Name: "shutdown", From: "subscribers", To: "bus service",
	}, "")
	n.work = flow.NewQueue[*job](n.inventory, flow.QueueSpec{
		Service: service, Name: "work", Cap: queues.Work, Policy: flow.RejectNew, From: "gateway", To: "workers",
		Effect: flow.StopsWrites, Next: "Send fewer writes, or raise node.workers or node.queues.work. If the queue does not move, check the disk with `micronode doctor`.",
	})
	n.telemetry = flow.NewQueue[logLine](n.inventory, flow.QueueSpec{
		Service: service, Name: "telemetry", Cap: queues.Telemetry, Policy: flow.DropOldest, From: "everybody", To: "telemetry",
	})
	n.inventory.OnLag(observe.NewLagLog(func(message string, args ...any) { n.logAsync(slog.LevelWarn, message, args...) }).Lagged)
	n.config = config.NewWatcher(n.inventory, n.loadConfig, loaded, config.Options{File: n.options.Sources.File, OnBegin: n.announceReload, OnResult: n.onReload})
	n.config.AddParticipant(n.participant())
	return nil
}

func (n *Node) makeSupervisor(c Config) error {
	supervisor, err := supervise.New(supervise.Options{
		Stages: []supervise.Stage{
			{Name: stageAdmin}, {Name: stageWatch}, {Name: stageState}, {Name: stageWorkers}, {Name: stageIntake},
		},
		DrainTimeout: c.Node.Drain,
		OnEvent:      n.onSupervisorEvent,
	})
	if err != nil {
		return fault.Wrap("node.new", err)
	}
	n.supervisor = supervisor
	n.readiness = observe.NewReadiness(n.inventory, supervisor)
	n.watchMemory()
	n.watchHeldMemory()
	n.watchOverdue()
	n.watchStore()
	n.metrics.Attach(n.sources())
	n.public = c.HTTP.Public
	n.readiness.ShowPublic(n.public)
	n.reportAmnesia(c)
	n.rejectedConfig = n.readiness.Dependency(service, "config reload", observe.ForWrites)
	n.pendingConfig = n.readiness.Dependency(service, "config restart", observe.ForWrites)
	n.rejectedConfig.Up()
	n.pendingConfig.Up()
	n.addresses = n.readiness.Dependency(service, "addresses", observe.ForReads)
	n.addresses.Up()
	return nil
}

// reportAmnesia shows in the readiness table what the kernel enforces. With
// enforce=auto, a kernel that cannot enforce it makes the node degraded; with
// off, readiness only notes it.
func (n *Node) reportAmnesia(c Config) {
	dependency := n.readiness.Dependency(service, "amnesia", observe.ForWrites)
	switch {
	case n.confined.Reason == "":
		dependency.Up()
	case c.Amnesia.Enforce == string(amnesia.Off), n.options.Unconfined:
		dependency.UpWithRemark(n.confined.Reason, n.confined.Next)
	default:
		dependency.Degraded(n.confined.Reason, n.confined.Next+" To accept this, set amnesia.enforce to off.")
	}
}

func (n *Node) sources() observe.Sources {
	return observe.Sources{Inventory: n.inventory, Supervisor: n.supervisor, Readiness: n.readiness}
}

// addServices adds all services, each in its stage.
func (n *Node) addServices(c Config) error {
	add := func(stage, name string, serve, drain func(context.Context) error) error {
		return n.supervisor.Add(supervise.Service{Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain})
	}
	return errors.Join(
		add(stageAdmin, "admin", n.admin.Serve, n.admin.Drain),
		add(stageWatch, "telemetry", n.serveLogLines, supervise.CloseOnDrain(n.telemetry.Close)),
		add(stageWatch, "readiness", n.serveReadiness, nil),
		add(stageWatch, "progress", n.readiness.WatchProgress, nil),
		add(stageWatch, "bus", n.serveBus, supervise.CloseOnDrain(n.bus.Close)),
		add(stageWatch, "config", n.config.Serve, supervise.CloseOnDrain(n.config.Close)),
		add(stageWatch, "config file", n.config.Watch, nil),
		add(stageState, "purger", n.purger.Serve, nil),
		add(stageState, "settling", releaseStartupMemory, nil),
		n.addDiskMonitor(),
		n.addCertificateMonitor(),
		n.supervisor.AddPool(supervise.Pool{N: c.Node.workers(), NextJob: n.nextJob, Writes: true,
			Service: supervise.Service{Service: service, Name: "worker", Stage: stageWorkers, Drain: supervise.CloseOnDrain(n.work.Close)}}),
		n.ifLocal("store", func() error { return n.addStore(c) }),
		n.ifLocal("edge", func() error {
			return n.edge.Add(n.supervisor, edge.Stages{State: stageState, Workers: stageWorkers}, n.onEdgeEvent)
		}),
		n.ifLocal("overlay", func() error { return n.overlay.Add(n.supervisor, overlayStages, n.onOverlayEvent) }),
		n.ifLocal("registry", func() error { return n.registry.Add(n.supervisor, registryStages, n.onRegistryEvent) }),
		n.ifLocal("index", func() error { return n.index.Add(n.supervisor, indexStages, n.onIndexEvent) }),
		n.ifLocal("mailbox", func() error { return n.mailbox.Add(n.supervisor, mailboxStages, n.onMailboxEvent) }),
		n.addFacets(),
		n.addRemotes(),
		n.addChaos(),
		n.ifNotified(func() error { return add(stageIntake, "system", n.serveSystem, nil) }),
		add(stageIntake, "http", n.http.Serve, n.http.Drain),
		add(stageIntake, "local", n.local.Serve, n.local.Drain),
		n.addPublic(add),
	)
}

// addDiskMonitor adds the monitor of the folder's disk, if there is one.
func (n *Node) addDiskMonitor() error {
	if n.amnesiac() {
		return nil
	}
	d := n.newDiskMonitor()
	return errors.Join(
		n.supervisor.Add(supervise.Service{Service: service, Name: "disk", Stage: stageState, Serve: d.Serve}),
		n.supervisor.Add(supervise.Service{Service: service, Name: "disk probe", Stage: stageState, Serve: d.ServeProbe}))
}

// addCertificateMonitor adds the monitor of the certificate of the listeners, if
// it comes from files. Those that the node obtains itself are renewed in time.
func (n *Node) addCertificateMonitor() error {
	if n.tlsSource == nil || n.certificates != nil {
		return nil
	}
	m := certificateMonitor{leaf: n.tlsSource.Leaf, dependency: n.readiness.Dependency("gateway", "certificate", observe.ForReads), now: time.Now}
	return n.supervisor.Add(supervise.Service{Service: service, Name: "certificate", Stage: stageState, Serve: m.Serve})
}

// addStore adds the scrubber of the objects, and for a store on another
// machine, its monitor.
func (n *Node) addStore(c Config) error {
	scrubber := supervise.Service{Service: service, Name: "scrubber", Stage: stageState, Serve: c.Store.Scrubber(n.store).Serve}
	if err := n.supervisor.Add(scrubber); err != nil || c.Store.URL == "" {
		return err
	}
	monitor := &storeMonitor{store: n.store, engine: "the object store at " + engineAt(c.Store.URL), now: time.Now,
		dependency: n.readiness.Dependency("store", "reach", observe.ForReads), instruments: n.metrics.For("store")}
	return n.supervisor.Add(supervise.Service{Service: "store", Name: "store reach", Stage: stageState, Serve: monitor.Serve})
}

// Run runs the node until ctx ends or a shutdown is requested, drains it, wipes
// what must not be kept, and returns the report.
func (n *Node) Run(ctx context.Context) (*supervise.Report, error) {
	report, err := n.supervisor.Run(ctx)
	return report, errors.Join(err, n.Close())
}

// Close wipes everything and releases what New opened. Run calls it; it is for
// a node that is never run, too. Parts that New did not get to are nil.
func (n *Node) Close() error {
	cut, cancel := context.WithCancel(context.Background())
	cancel()
	for _, listener := range append([]*ingress.Listener{n.http, n.local, n.admin, n.plain}, n.lan...) {
		if listener != nil {
			_ = listener.Drain(cut) // it returns how many connections it cut, and nothing is left to do about them
		}
	}
	if n.tracing != nil {
		n.tracing.Close(cut)
	}
	if n.purger != nil {
		n.purger.Purge()
	}
	for _, closeIdle := range n.closeFuncs {
		closeIdle()
	}
	return errors.Join(n.closeFacets(), n.closeMailbox(), n.closeIndex(), n.closeOverlay(), n.closeRegistry(), n.closeStores(), n.closeKeys(), n.closeFolder())
}

// closeKeys wipes the memory of the keys, and checks that it is empty.
func (n *Node) closeKeys() error {
	if n.identity != nil {
		n.identity.wipe()
	}
	clear(n.registryKey) // all signers share this copy, and have stopped
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

// nextJob returns the next job of a worker.
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
