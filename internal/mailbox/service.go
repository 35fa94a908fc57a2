package mailbox

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	instruments   *observe.Instruments

	// what moves between the tasks
	events      *flow.Bus[Event]    // for the audit log
	auditReader *flow.Reader[Event] // of the audit task, subscribed before anything happens

	// owned by the task that watches the engine
	awaySince time.Time // since when it refuses; zero if it does not
	probedAt  time.Time
	probeErr  error // the result of the last probe
	counted   Calls // what is in the metrics
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
	m := &Mailbox{config: spec.Config, engine: spec.Engine, instruments: spec.Metrics.For(service)}
	m.receiveCtx, m.cancelReceive = context.WithCancelCause(context.Background())
	m.dependency = spec.Readiness.Dependency(service, "engine", observe.ForWrites)
	m.events = flow.NewBus[Event](inv, flow.BusSpec{Service: service, Name: "events", Cap: 256, Readers: 4, From: "tasks", To: "audit"})
	m.auditReader, _ = m.events.Subscribe("audit", nil) // a new bus has room
	registerMetrics(m.instruments, spec.Engine)
	m.watchRoom(spec.Readiness)
	m.reportHealth(m.engineHealth())
	return m
}

// watchRoom reports a mailbox in this process that is nearly full, and which
// setting is short: of small messages on a disk it is not that of the disk.
func (m *Mailbox) watchRoom(readiness *observe.Readiness) {
	local, ok := m.engine.(interface {
		Fullness() (space, memory float64)
	})
	if !ok {
		return
	}
	add := func(name, reason, next string, read func(space, memory float64) float64) {
		readiness.Gauge(observe.Gauge{Service: service, Name: name, Effect: flow.Degrades, Reason: reason, Next: next, Read: func() (float64, uint64) {
			return nearlyFull(read(local.Fullness())), 0
		}})
	}
	add("room", "messages fill the space of the mailbox, and more of them are refused",
		"Have messages received and acknowledged, drop dead letters, or raise mailbox.ram_bytes (mailbox.disk_bytes with --persist).",
		func(space, _ float64) float64 { return space })
	if _, onDisk := local.(*Disk); onDisk {
		add("memory of messages", "the state of the messages on disk fills the memory for it, and more of them are refused",
			"Have messages received and acknowledged, drop dead letters, or raise mailbox.ram_bytes: each message on disk takes memory, too.",
			func(_, memory float64) float64 { return memory })
	}
}

// nearlyFull turns a part that is taken into that of a gauge, which is full at
// nine tenths and relaxed at a half: full at 97 %, relaxed below 90 %.
func nearlyFull(taken float64) float64 {
	switch {
	case taken >= 0.97:
		return 1
	case taken >= 0.90:
		return 0.7
	default:
		return 0
	}
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

// service is the label of the mailbox in metrics.
const service = "mailbox"

// registerMetrics registers the usage and the counters of an engine. They are
// read at each scrape.
func registerMetrics(instruments *observe.Instruments, e Engine) {
	gauge := func(name, help string, value func(Usage) int64) {
		instruments.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(e.Usage())) }))
	}
	counter := func(name, help string, value func(Usage) int64) {
		instruments.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(e.Usage())) }))
	}
	gauge("mailbox_depth", "Messages that wait or are leased.", func(u Usage) int64 { return u.Messages })
	gauge("mailbox_leased", "Messages that are leased.", func(u Usage) int64 { return u.Leased })
	gauge("mailbox_dead", "Dead letters that are kept.", func(u Usage) int64 { return u.Dead })
	gauge("mailbox_boxes", "Boxes that are not empty.", func(u Usage) int64 { return u.Boxes })
	gauge("mailbox_notes", "Notes on noticeboards.", func(u Usage) int64 { return u.Notes })
	gauge("mailbox_bytes", "Size of messages, dead letters and notes in their storage: memory, disk, or NATS.", func(u Usage) int64 { return u.Bytes })
	gauge("mailbox_memory_bytes", "Memory of messages, dead letters and notes.", func(u Usage) int64 { return u.Memory })
	counter("mailbox_visibility_timeout_total", "Leases that expired before the message was acknowledged.", func(u Usage) int64 { return u.Timeouts })
	counter("mailbox_dlq_total", "Messages that became dead letters.", func(u Usage) int64 { return u.Died })
	counter("mailbox_read_failures_total", "Deliveries that failed because the body could not be read in time.", func(u Usage) int64 { return u.ReadFailures })
	counter("mailbox_damaged_total", "Messages whose body is damaged on disk. They are dead letters without a body.", func(u Usage) int64 { return u.Damaged })
	counter("mailbox_keys_displaced_total", "Idempotency keys that were forgotten before their time, because newer ones needed the room.", func(u Usage) int64 { return u.KeysDisplaced })
	counter("mailbox_dlq_dropped_total", "Dead letters that were dropped for newer ones, or expired.", func(u Usage) int64 { return u.Dropped })
}
