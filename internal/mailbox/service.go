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

// Mailbox is the service: an engine with an HTTP face.
type Mailbox struct {
	// set at construction
	config     Config
	engine     Engine
	dependency *observe.Dependency // the engine
	leaving    context.Context     // ends when nobody may wait any more
	leave      context.CancelCauseFunc

	// what moves between the tasks
	events   *flow.Bus[Event]    // for the record
	recorded *flow.Reader[Event] // of the one who keeps it, subscribed before anything happens
}

// Stages says in which stages of the node the parts of the mailbox run. Those
// who wait for messages are sent away together with the listeners, so that no
// drain waits for them.
type Stages struct {
	State  string // the engine's tasks, readiness, events
	Intake string // those who wait
}

// New makes the parts of a mailbox.
func New(inv *flow.Inventory, spec Spec) *Mailbox {
	m := &Mailbox{config: spec.Config, engine: spec.Engine}
	m.leaving, m.leave = context.WithCancelCause(context.Background())
	m.dependency = spec.Readiness.Dependency(service, "engine", observe.ForWrites)
	m.events = flow.NewBus[Event](inv, flow.BusSpec{Service: service, Name: "events", Cap: 256, Readers: 4, From: "tasks", To: "audit"})
	m.recorded, _ = m.events.Subscribe("audit", nil) // a new bus has room
	register(spec.Metrics.For(service), spec.Engine)
	m.examine()
	return m
}

// Engine is where messages are kept, for those who need no HTTP.
func (m *Mailbox) Engine() Engine { return m.engine }

// Add hands everything that runs to the supervisor.
func (m *Mailbox) Add(to *supervise.Supervisor, in Stages, audit func(Event)) error {
	add := func(name, stage string, serve, drain func(context.Context) error) error {
		return to.Add(supervise.Service{Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain})
	}
	err := errors.Join(
		add("mailbox audit", in.State, func(ctx context.Context) error { m.recorded.Each(ctx, audit); return nil }, supervise.Closing(m.events.Close)),
		add("mailbox readiness", in.State, m.watch, nil),
		add("mailbox receivers", in.Intake, m.attend, supervise.Closing(m.sendAway)),
	)
	if tasked, ok := m.engine.(Tasked); ok {
		for _, task := range tasked.Tasks() {
			err = errors.Join(err, add(task.Name, in.State, task.Serve, nil))
		}
	}
	return err
}

// attend lasts as long as receivers may wait.
func (m *Mailbox) attend(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-m.leaving.Done():
	}
	return nil
}

// sendAway tells those who wait for messages that there will be none.
func (m *Mailbox) sendAway() {
	m.leave(&fault.Error{Op: "mailbox.receive", Kind: fault.Canceled, Detail: "the node is going away"})
}

// Close lets go of everything.
func (m *Mailbox) Close() error {
	m.sendAway()
	return m.engine.Close()
}
