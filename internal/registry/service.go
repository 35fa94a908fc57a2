package registry

import (
	"context"
	"crypto/ed25519"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
	"micronode/internal/supervise"
)

// Journal stores a log. Every storage driver implements it.
type Journal = journal.Journal

// Spec configures a registry.
type Spec struct {
	Config Config
	Key    ed25519.PrivateKey // signs checkpoints and what is pruned
	Skew   time.Duration      // by how much the clocks of signers may differ

	Journal  Journal
	Shared   bool            // other registries write to the same storage, and the follower runs
	Announce func(Committed) // called for every version; it must not block for long

	Metrics   *observe.Metrics
	Readiness *observe.Readiness
	Tracer    trace.Tracer // nil for no spans

	clock func() time.Time // nil for the system's; tests set others
}

// Registry is the service.
type Registry struct {
	// set at construction
	spec    Spec
	journal Journal
	metrics *metrics
	pending *pendingProposals
	health  *storageHealth

	// what moves between the tasks
	jobs            *flow.Fair[*job]                 // to the committer
	committed       *flow.Bus[Committed]             // from the committer; it never waits
	publisherReader *flow.Reader[Committed]          // of the publisher, subscribed before anything is committed
	stream          *flow.Bus[Committed]             // from the publisher to the subscribers of the stream
	events          *flow.Bus[Event]                 // to the audit log
	auditReader     *flow.Reader[Event]              // of the audit log, subscribed before anything happens
	pruneOrders     *flow.Queue[pruneOrder]          // from the checkpointer to the pruner
	reloads         *flow.Queue[Config]              // settings to be applied
	settings        *flow.Snapshot[Config]           // settings in force
	view            *flow.Snapshot[*view]            // what readers see; stored by the committer
	tree            *tree.Tree                       // owned by the committer
	checkpointSize  atomic.Uint64                    // how many versions the last saved checkpoint covers
	checkpointAt    atomic.Int64                     // when it was saved, or the registry opened
	checkpointCache atomic.Pointer[cachedCheckpoint] // the checkpoint that is served, signed on request
}

// Stages says in which stages of the node the tasks of the registry run. They drain
// in reverse: nothing new is accepted, then what was accepted is committed, then it
// is published.
type Stages struct {
	State   string // audit, publisher, checkpointer, pruner, verifier, storage health, reloader
	Workers string // the committer
	Intake  string // the follower
}

// New makes a registry and opens its log.
func New(ctx context.Context, inv *flow.Inventory, spec Spec) (*Registry, error) {
	if spec.clock == nil {
		spec.clock = time.Now
	}
	if spec.Tracer == nil {
		spec.Tracer = noop.NewTracerProvider().Tracer("")
	}
	r := &Registry{spec: spec, journal: spec.Journal, metrics: newMetrics(spec.Metrics.For(service))}
	r.health = &storageHealth{
		writes: spec.Readiness.Dependency(service, "storage", observe.ForWrites),
		reads:  spec.Readiness.Dependency(service, "log", observe.ForReads),
	}
	r.pending = newPendingProposals(r.pendingStore() != nil)
	r.makeQueues(inv)
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	if err := r.restorePending(ctx); err != nil {
		return nil, err
	}
	r.health.update(0, 0)
	r.checkpointAt.Store(r.now().UnixNano())
	r.registerStorageMetrics()
	return r, nil
}

// makeQueues makes the queues, buses and snapshots between the tasks.
func (r *Registry) makeQueues(inv *flow.Inventory) {
	const bytes = 64 << 20
	waiting := r.spec.Config.Queue
	r.jobs = flow.NewFair[*job](inv, flow.FairSpec{
		Service: service, Quantum: 4 << 10, From: "gateway", To: "committer", Effect: flow.StopsWrites,
		Bands: []flow.BandSpec{
			{Name: "proposals", Cap: waiting, Bytes: bytes},
			{Name: "approvals", Cap: waiting, Bytes: bytes},
			{Name: "commits", Cap: waiting, Bytes: bytes},
		},
	})
	r.committed = flow.NewBus[Committed](inv, flow.BusSpec{
		Service: service, Name: "committed", Cap: 1024, Readers: 8, From: "committer", To: "publisher",
	})
	r.publisherReader, _ = r.committed.Subscribe("publisher", nil) // a new bus has room
	r.stream = flow.NewBus[Committed](inv, flow.BusSpec{
		Service: service, Name: "stream", Cap: 1024, Readers: r.spec.Config.Subscribers, From: "publisher", To: "subscribers of the stream",
	})
	r.events = flow.NewBus[Event](inv, flow.BusSpec{
		Service: service, Name: "events", Cap: 1024, Readers: 16, From: "handlers, tasks", To: "audit",
	})
	r.auditReader, _ = r.events.Subscribe("audit", nil) // before the log is opened, so that what is found then is audited, too
	r.pruneOrders = flow.NewQueue[pruneOrder](inv, flow.QueueSpec{
		Service: service, Name: "retention_cmd", Cap: 8, Policy: flow.RejectNew, From: "checkpointer", To: "pruner",
	})
	r.reloads = flow.NewQueue[Config](inv, flow.QueueSpec{
		Service: service, Name: "cfg_reload", Cap: 16, Policy: flow.Coalesce, From: "config", To: "reloader",
	})
	r.settings = flow.NewSnapshot(inv, flow.SnapshotSpec{Service: service, Name: "settings", From: "reloader", To: "all tasks"}, r.spec.Config)
	r.view = flow.NewSnapshot(inv, flow.SnapshotSpec{Service: service, Name: "view", From: "committer", To: "readers"}, &view{})
}

// Add adds the tasks to the supervisor.
func (r *Registry) Add(to *supervise.Supervisor, in Stages, audit func(Event)) (err error) {
	add := func(name, stage string, serve, drain func(context.Context) error) {
		err = errors.Join(err, to.Add(supervise.Service{Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain}))
	}
	add("registry audit", in.State, func(ctx context.Context) error { r.auditReader.ForEach(ctx, audit); return nil }, supervise.CloseOnDrain(r.events.Close))
	add("registry publisher", in.State, r.runPublisher, supervise.CloseOnDrain(r.committed.Close))
	add("registry reloader", in.State, r.runReloader, supervise.CloseOnDrain(r.reloads.Close))
	add("registry gate", in.State, r.runStorageHealth, nil)
	if _, ok := r.journal.(journal.Prober); ok {
		add("registry reach", in.State, r.runReadHealth, nil)
	}
	add("registry checkpointer", in.State, r.runCheckpointer, nil)
	add("registry pruner", in.State, r.runPruner, supervise.CloseOnDrain(r.pruneOrders.Close))
	add("registry verifier", in.State, r.runVerifier, nil)
	add("registry committer", in.Workers, r.runCommitter, supervise.CloseOnDrain(r.jobs.Close))
	if r.spec.Shared {
		add("registry follower", in.Intake, r.runFollower, nil)
	}
	return err
}

// now returns the time for the log, in UTC.
func (r *Registry) now() time.Time { return r.spec.clock().UTC() }

// Event is an audit event: a request to the registry and its result, refusals
// included. In amnesia mode it is the only trace that remains after the node stops.
type Event struct {
	Type     EventType
	Time     time.Time
	Proposal string
	Signer   string
	Version  uint64
	Diff     ledger.Diff // what was proposed or committed
	Detail   string      // text, such as the reason of a refusal
}

// EventType is one of a fixed set.
type EventType string

// The types of events.
const (
	EventInitialised   EventType = "registry initialised"
	EventProposed      EventType = "registry proposed"
	EventApproved      EventType = "registry approved"
	EventRestored      EventType = "registry proposals restored" // after a restart
	EventDropped       EventType = "registry proposal dropped"   // it was kept, and could not be committed any more
	EventCommitted     EventType = "registry committed"
	EventRefused       EventType = "registry refused"
	EventCheckpointed  EventType = "registry checkpoint kept"
	EventPruned        EventType = "registry pruned"
	EventDamaged       EventType = "registry damaged"
	EventStorageFailed EventType = "registry storage failed" // of a checkpoint or a prune; the next one retries
)

// audit publishes an event to the audit log.
func (r *Registry) audit(e Event) {
	e.Time = r.now()
	_ = r.events.Publish(e) // a closed bus has no readers left
}

// Head returns the last version, and whether there is one.
func (r *Registry) Head() (ledger.Head, bool) {
	v := r.view.Load()
	if v.state == nil {
		return ledger.Head{}, false
	}
	return v.state.Head(), true
}

// closeTimeout bounds what Close does besides closing.
const closeTimeout = 500 * time.Millisecond

// Close closes the queue and the storage. What was committed last need not be kept
// as a proposal any more.
func (r *Registry) Close() error {
	r.jobs.Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	r.removeDropped(ctx)
	return r.journal.Close()
}
