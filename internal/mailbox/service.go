package mailbox

import (
	"context"
	"errors"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

// Spec is what a mailbox is made of.
type Spec struct {
	Config    Config
	Engine    Engine // closed with the mailbox
	Metrics   *observe.Metrics
	Readiness *observe.Readiness
}

// Mailbox is the service: an engine with HTTP routes.
type Mailbox struct {
	// set at construction
	config        Config
	engine        Engine
	dependency    *observe.Dependency // the engine
	receiveCtx    context.Context     // ends when receivers may not wait any more
	cancelReceive context.CancelCauseFunc

	// what moves between the tasks
	events      *flow.Bus[Event]    // for the audit log
	auditReader *flow.Reader[Event] // of the audit task, subscribed before anything happens
}

// Stages says in which stages of the node the parts of the mailbox run. Waiting
// receivers are cancelled together with the listeners, so that no drain waits
// for them.
type Stages struct {
	State  string // the engine's tasks, readiness, events
	Intake string // waiting receivers
}

// New makes the parts of a mailbox.
func New(inv *flow.Inventory, spec Spec) *Mailbox {
	m := &Mailbox{config: spec.Config, engine: spec.Engine}
	m.receiveCtx, m.cancelReceive = context.WithCancelCause(context.Background())
	m.dependency = spec.Readiness.Dependency(service, "engine", observe.ForWrites)
	m.events = flow.NewBus[Event](inv, flow.BusSpec{Service: service, Name: "events", Cap: 256, Readers: 4, From: "tasks", To: "audit"})
	m.auditReader, _ = m.events.Subscribe("audit", nil) // a new bus has room
	registerMetrics(spec.Metrics.For(service), spec.Engine)
	m.checkHealth()
	return m
}

// Engine returns the engine, for callers in this process.
func (m *Mailbox) Engine() Engine { return m.engine }

// Add adds all services to the supervisor.
func (m *Mailbox) Add(to *supervise.Supervisor, in Stages, audit func(Event)) error {
	add := func(name, stage string, serve, drain func(context.Context) error) error {
		return to.Add(supervise.Service{Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain})
	}
	err := errors.Join(
		add("mailbox audit", in.State, func(ctx context.Context) error { m.auditReader.ForEach(ctx, audit); return nil }, supervise.CloseOnDrain(m.events.Close)),
		add("mailbox readiness", in.State, m.watchHealth, nil),
		add("mailbox receivers", in.Intake, m.serveReceivers, supervise.CloseOnDrain(m.cancelReceivers)),
	)
	if tasker, ok := m.engine.(Tasker); ok {
		for _, task := range tasker.Tasks() {
			err = errors.Join(err, add(task.Name, in.State, task.Serve, nil))
		}
	}
	return err
}

// serveReceivers runs as long as receivers may wait.
func (m *Mailbox) serveReceivers(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-m.receiveCtx.Done():
	}
	return nil
}

// cancelReceivers cancels all waiting receivers.
func (m *Mailbox) cancelReceivers() {
	m.cancelReceive(&fault.Error{Op: "mailbox.receive", Kind: fault.Canceled, Detail: "the node is shutting down"})
}

// Close closes the mailbox and its engine.
func (m *Mailbox) Close() error {
	m.cancelReceivers()
	return m.engine.Close()
}
