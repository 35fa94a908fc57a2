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

// Journal is where a log is kept. The drivers for other storages are reached
// through it.
type Journal = journal.Journal

// Spec is what a registry is made of.
type Spec struct {
	Config Config
	Key    ed25519.PrivateKey // signs checkpoints and what is pruned
	Skew   time.Duration      // by how much the clocks of signers may differ

	Journal  Journal
	Shared   bool            // others write to the same storage, and are followed
	Announce func(Committed) // is told of every version; it must not block for long

	Metrics   *observe.Metrics
	Readiness *observe.Readiness
	Tracer    trace.Tracer // nil if nobody wants spans

	clock func() time.Time // nil for the system's; tests have others
}

// Registry is the service.
type Registry struct {
	// set at construction
	spec    Spec
	journal Journal
	metrics *metrics
	docket  *docket
	gate    *gate

	// what moves between the tasks
	jobs      *flow.Fair[*job]          // to the committer
	committed *flow.Bus[Committed]      // from the committer; it never waits
	heard     *flow.Reader[Committed]   // of the publisher, subscribed before anything is committed
	stream    *flow.Bus[Committed]      // from the publisher to those who follow
	events    *flow.Bus[Event]          // for the record
	recorded  *flow.Reader[Event]       // of the one who keeps it, subscribed before anything happens
	retention *flow.Queue[order]        // from the checkpointer to the pruner
	reloads   *flow.Queue[Config]       // settings that are to be put in force
	settings  *flow.Snapshot[Config]    // those that are
	view      *flow.Snapshot[*view]     // what everybody reads; stored by the committer
	tree      *tree.Tree                // owned by the committer
	kept      atomic.Uint64             // how many versions the last kept checkpoint covers
	keptAt    atomic.Int64              // when it was kept, or the registry opened
	shown     atomic.Pointer[shownNote] // the checkpoint that is served, made when somebody asks
}

// Stages says in which stages of the node the parts of the registry run. They
// drain in reverse: nobody new comes in, then what was taken is committed, then
// the news of it goes out.
type Stages struct {
	State   string // publisher, checkpointer, pruner, verifier, gate, reloader
	Workers string // the committer
	Intake  string // the follower
}

// New makes the parts of a registry, and opens its log.
func New(ctx context.Context, inv *flow.Inventory, spec Spec) (*Registry, error) {
	if spec.clock == nil {
		spec.clock = time.Now
	}
	if spec.Tracer == nil {
		spec.Tracer = noop.NewTracerProvider().Tracer("")
	}
	r := &Registry{spec: spec, journal: spec.Journal, metrics: newMetrics(spec.Metrics.For(service)), docket: newDocket()}
	r.gate = &gate{
		writes: spec.Readiness.Dependency(service, "storage", observe.ForWrites),
		reads:  spec.Readiness.Dependency(service, "log", observe.ForReads),
	}
	r.makeParts(inv)
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	r.gate.tell(0)
	r.keptAt.Store(r.now().UnixNano())
	r.watchStorage()
	return r, nil
}

// makeParts makes everything that moves between the tasks.
func (r *Registry) makeParts(inv *flow.Inventory) {
	const waiting, bytes = 512, 64 << 20
	r.jobs = flow.NewFair[*job](inv, flow.FairSpec{
		Service: service, Quantum: 4 << 10, From: "gateway", To: "committer",
		Bands: []flow.BandSpec{
			{Name: "proposals", Cap: waiting, Bytes: bytes},
			{Name: "approvals", Cap: waiting, Bytes: bytes},
			{Name: "commits", Cap: waiting, Bytes: bytes},
		},
	})
	r.committed = flow.NewBus[Committed](inv, flow.BusSpec{
		Service: service, Name: "committed", Cap: 1024, Readers: 8, From: "committer", To: "publisher",
	})
	r.heard, _ = r.committed.Subscribe("publisher", nil) // a new bus has room
	r.stream = flow.NewBus[Committed](inv, flow.BusSpec{
		Service: service, Name: "stream", Cap: 1024, Readers: r.spec.Config.Subscribers, From: "publisher", To: "followers of the stream",
	})
	r.events = flow.NewBus[Event](inv, flow.BusSpec{
		Service: service, Name: "events", Cap: 1024, Readers: 16, From: "handlers, tasks", To: "audit",
	})
	r.recorded, _ = r.events.Subscribe("audit", nil) // what is found while the log is opened is for the record, too
	r.retention = flow.NewQueue[order](inv, flow.QueueSpec{
		Service: service, Name: "retention_cmd", Cap: 8, Policy: flow.RejectNew, From: "checkpointer", To: "pruner",
	})
	r.reloads = flow.NewQueue[Config](inv, flow.QueueSpec{
		Service: service, Name: "cfg_reload", Cap: 16, Policy: flow.Coalesce, From: "config", To: "reloader",
	})
	r.settings = flow.NewSnapshot(inv, flow.SnapshotSpec{Service: service, Name: "settings", From: "reloader", To: "all tasks"}, r.spec.Config)
	r.view = flow.NewSnapshot(inv, flow.SnapshotSpec{Service: service, Name: "view", From: "committer", To: "readers"}, &view{})
}

// Add hands everything that runs to the supervisor.
func (r *Registry) Add(to *supervise.Supervisor, in Stages, audit func(Event)) (err error) {
	add := func(name, stage string, serve, drain func(context.Context) error) {
		err = errors.Join(err, to.Add(supervise.Service{Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain}))
	}
	add("registry audit", in.State, func(ctx context.Context) error { r.recorded.Each(ctx, audit); return nil }, supervise.Closing(r.events.Close))
	add("registry publisher", in.State, r.publish, supervise.Closing(r.committed.Close))
	add("registry reloader", in.State, r.reload, supervise.Closing(r.reloads.Close))
	add("registry gate", in.State, r.watchGate, nil)
	add("registry checkpointer", in.State, r.keepCheckpoints, nil)
	add("registry pruner", in.State, r.prune, supervise.Closing(r.retention.Close))
	add("registry verifier", in.State, r.deepVerify, nil)
	add("registry committer", in.Workers, r.commitLoop, supervise.Closing(r.jobs.Close))
	if r.spec.Shared {
		add("registry follower", in.Intake, r.follow, nil)
	}
	return err
}

// now is the time that the log is written in.
func (r *Registry) now() time.Time { return r.spec.clock().UTC() }

// audit tells an event to whoever keeps a record.
func (r *Registry) audit(e Event) {
	e.Time = r.now()
	_ = r.events.Publish(e) // a closed bus has no readers left
}

// Head is the last version, and whether there is one.
func (r *Registry) Head() (ledger.Head, bool) {
	v := r.view.Load()
	if v.state == nil {
		return ledger.Head{}, false
	}
	return v.state.Head(), true
}

// Close lets go of the storage.
func (r *Registry) Close() error {
	r.jobs.Close()
	return r.journal.Close()
}
