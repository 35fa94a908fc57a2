package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

// service is the label of the node's own parts in metrics.
const service = "node"

// The stages, in the order of the start. They drain in reverse: first what
// brings work in, then what does it, then what watches, the admin plane last.
const (
	stageAdmin   = "admin"
	stageWatch   = "watch"
	stageWorkers = "workers"
	stageIntake  = "intake"
)

// Options are what a node is made from.
type Options struct {
	Admin   string        // address of the admin plane; port 0 picks one
	Workers int           // on the work queue; zero means twice the cores, two at least
	Drain   time.Duration // all of the shutdown; zero means 2 s
	Pulse   time.Duration // how often the node gives itself something to do
	Log     *observe.Logs
}

// Node is one running node.
type Node struct {
	// set at construction
	options    Options
	log        *slog.Logger
	inventory  *flow.Inventory
	supervisor *supervise.Supervisor
	metrics    *observe.Metrics
	readiness  *observe.Readiness
	lag        *observe.LagLog

	admin    *http.Server
	listener net.Listener

	bus       *flow.Bus[Event]
	orders    *flow.Reader[Event]    // subscribed before anybody can publish; read by the bus service
	shutdown  *flow.Snapshot[string] // why, once somebody has asked for it on the bus
	work      *flow.Queue[*job]
	telemetry *flow.Queue[note]
}

// New puts a node together and opens its listeners, so that what can fail for
// a reason that the operator can mend fails here.
func New(options Options) (*Node, error) {
	if options.Workers == 0 {
		options.Workers = max(2, 2*runtime.GOMAXPROCS(0))
	}
	if options.Drain == 0 {
		options.Drain = 2 * time.Second
	}
	n := &Node{options: options, log: options.Log.Logger(), inventory: flow.NewInventory()}
	n.makeParts()
	if err := n.makeSupervisor(); err != nil {
		return nil, err
	}
	if err := n.openAdmin(); err != nil {
		return nil, err
	}
	return n, n.addServices()
}

// makeParts makes everything that moves between the node's tasks. What is
// listed here is what docs/_generated/concurrency.md shows.
func (n *Node) makeParts() {
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
}

func (n *Node) makeSupervisor() error {
	supervisor, err := supervise.New(supervise.Options{
		Stages: []supervise.Stage{
			{Name: stageAdmin}, {Name: stageWatch}, {Name: stageWorkers}, {Name: stageIntake},
		},
		Total:   n.options.Drain,
		OnEvent: n.observed,
	})
	if err != nil {
		return fault.Wrap("node.new", err)
	}
	n.supervisor = supervisor
	n.readiness = observe.NewReadiness(n.inventory, supervisor)
	n.lag = observe.NewLagLog(n.log)
	return nil
}

// openAdmin opens the admin plane's listener. The plane is first up and last
// down, and never behind a queue.
func (n *Node) openAdmin() error {
	build := observe.ReadBuild("micronode")
	n.metrics = observe.NewMetrics(build)
	sources := observe.Sources{Inventory: n.inventory, Supervisor: n.supervisor, Readiness: n.readiness}
	n.metrics.Watch(sources)
	n.admin = &http.Server{
		Handler:           &observe.Admin{Sources: sources, Metrics: n.metrics, Build: build},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
	}
	listener, err := net.Listen("tcp", n.options.Admin)
	if err != nil {
		return &fault.Error{Op: "node.admin", Kind: fault.Conflict, Err: err,
			Detail: "the admin plane cannot listen on " + n.options.Admin,
			Next:   "Stop what uses the address, or choose another with --admin (port 0 picks a free one)."}
	}
	n.listener = listener
	return nil
}

// addServices says what runs and in which stage.
func (n *Node) addServices() error {
	return errors.Join(
		n.supervisor.Add(supervise.Service{Service: service, Name: "admin", Stage: stageAdmin,
			Serve: n.serveAdmin, Drain: n.admin.Shutdown}),
		n.supervisor.Add(supervise.Service{Service: service, Name: "telemetry", Stage: stageWatch,
			Serve: n.serveTelemetry, Drain: closing(n.telemetry.Close)}),
		n.supervisor.Add(supervise.Service{Service: service, Name: "readiness", Stage: stageWatch, Serve: n.serveReadiness}),
		n.supervisor.Add(supervise.Service{Service: service, Name: "bus", Stage: stageWatch,
			Serve: n.serveBus, Drain: closing(n.bus.Close)}),
		n.supervisor.AddPool(supervise.Pool{N: n.options.Workers, Next: n.nextJob,
			Service: supervise.Service{Service: service, Name: "worker", Stage: stageWorkers, Drain: closing(n.work.Close)}}),
		n.supervisor.Add(supervise.Service{Service: service, Name: "pulse", Stage: stageIntake, Serve: n.servePulse}),
	)
}

// Run runs the node until ctx ends or somebody asks for a shutdown, drains it,
// and reports how that went.
func (n *Node) Run(ctx context.Context) (*supervise.Report, error) {
	return n.supervisor.Run(ctx)
}

// AdminAddr is where the admin plane listens.
func (n *Node) AdminAddr() string { return n.listener.Addr().String() }

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

// closing makes a drain hook of a function that closes something.
func closing(what func()) func(context.Context) error {
	return func(context.Context) error {
		what()
		return nil
	}
}

// Close gives back what New opened, for a node that is not run.
func (n *Node) Close() error { return n.listener.Close() }
