package observe

import (
	"github.com/prometheus/client_golang/prometheus"
	"slices"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// Sources is what metrics are read from at scrape time. Nil sources are
// skipped.
type Sources struct {
	Inventory  *flow.Inventory
	Supervisor *supervise.Supervisor
	Readiness  *Readiness
}

// Attach makes the metrics read from the sources at every scrape. It is called
// once, when the node has been put together.
//
// A component whose service is not in the contract's set, or that shares its
// name with another kind of component of the same service, makes the scrape
// fail with that error. A node that hid a queue would be worse than one whose
// monitoring fails, and the first test that scrapes the component finds it.
func (m *Metrics) Attach(sources Sources) {
	m.registry.MustRegister(&collector{sources: sources, metrics: m})
}

// What the collector reads from the inventory.
var (
	queueDepth    = desc("queue_depth", "Items that wait in a queue, callers that wait at a lane or for a permit, or events that the slowest reader of a bus has yet to read.", "queue")
	queueCapacity = desc("queue_capacity", "How many may wait in the queue; for a lane or permits, how many may be inside.", "queue")
	queueDropped  = desc("queue_dropped_total", "Items that a full queue dropped. Refusals are not drops.", "queue")
	queueExpired  = desc("queue_expired_total", "Callers whose wait at a lane, for a permit, or for their turn in a shared queue was cancelled.", "queue")
	busyRejected  = desc("busy_rejections_total", "Refusals because something bounded was full, by queue, lane, permits or route pattern.", "endpoint")
	busLagged     = desc("bus_lagged_total", "Events that a reader of a bus lost because it was slow.", "consumer")
	coalesced     = desc("config_coalesced_total", "Updates of the config that a newer one replaced, or that one reload covered together.")
)

// configQueues are the queues of config updates. Other coalescing queues hold
// no config.
var configQueues = []string{"cfg_updates", "cfg_reload"}

// What the collector reads from the supervisor.
var (
	tasksSpawned    = desc("tasks_spawned_total", "Tasks that were started.", "kind")
	tasksCompleted  = desc("tasks_completed_total", "Tasks that completed.", "kind")
	tasksCanceled   = desc("tasks_canceled_total", "Tasks that a drain cancelled.", "kind")
	tasksAborted    = desc("tasks_aborted_total", "Tasks that still ran at the deadline of a drain.", "kind")
	tasksFailed     = desc("tasks_failed_total", "Tasks that ended with an error.", "kind")
	tasksPanicked   = desc("tasks_panicked_total", "Tasks that panicked.", "kind")
	serviceRestarts = desc("service_restarts_total", "Restarts of a service, or of workers of a pool.", "name")
)

// What the collector reads from the readiness table.
var (
	readyState = desc("ready_state", "0 down, 1 ready, 2 degraded; node is the whole.")
	readyUnmet = desc("ready_dependency_unmet", "1 if the dependency is missing, 0 if it is available.", "dep")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"service"}, labels...), nil)
}

// collector turns the state of the sources into metrics, on the goroutine of
// the scrape. It keeps no state.
type collector struct {
	// set at construction
	sources Sources
	metrics *Metrics
}

// Describe names everything that Collect may send.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		queueDepth, queueCapacity, queueDropped, queueExpired, busyRejected, busLagged, coalesced,
		tasksSpawned, tasksCompleted, tasksCanceled, tasksAborted, tasksFailed, tasksPanicked, serviceRestarts,
		readyState, readyUnmet,
	} {
		ch <- d
	}
}

// Collect reads the sources.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	out := sink(ch)
	c.collectFlow(out)
	if c.sources.Supervisor != nil {
		collectTasks(out, c.sources.Supervisor)
	}
	if c.sources.Readiness != nil {
		collectReadiness(out, c.sources.Readiness)
	}
}

// sink sends metrics whose first label is the service, and refuses those of an
// unknown service.
type sink chan<- prometheus.Metric

func (s sink) count(d *prometheus.Desc, n uint64, service string, labels ...string) {
	s.send(d, prometheus.CounterValue, float64(n), service, labels)
}

func (s sink) gauge(d *prometheus.Desc, n int, service string, labels ...string) {
	s.send(d, prometheus.GaugeValue, float64(n), service, labels)
}

func (s sink) send(d *prometheus.Desc, kind prometheus.ValueType, value float64, service string, labels []string) {
	if !knownService(service) {
		s.fail(d, unknownService(service))
		return
	}
	s <- prometheus.MustNewConstMetric(d, kind, value, append([]string{service}, labels...)...)
}

// fail makes the whole scrape fail with the error.
func (s sink) fail(d *prometheus.Desc, err error) { s <- prometheus.NewInvalidMetric(d, err) }

// collectFlow reads the inventory. What several components count under one name
// is added up first: a series may be sent once only.
func (c *collector) collectFlow(out sink) {
	refused := map[series]uint64{}
	lagged := map[series]uint64{}
	overwritten := map[string]uint64{nodeService: c.metrics.coalescedUpdates.Load()}
	if c.sources.Inventory != nil {
		kinds := map[series]string{}
		for _, stat := range c.sources.Inventory.Read() {
			if !hasDepth(stat.Kind) {
				continue
			}
			at := series{stat.Service, stat.Name}
			if other, taken := kinds[at]; taken {
				out.fail(queueDepth, duplicateName(stat, other))
				continue
			}
			kinds[at] = stat.Kind
			collectComponent(out, stat)
			refused[at] += stat.Refused
			for consumer, n := range stat.Lagged {
				lagged[series{stat.Service, consumer}] += n
			}
			if slices.Contains(configQueues, stat.Name) {
				overwritten[stat.Service] += stat.Coalesced
			}
		}
	}
	c.metrics.addRefusals(refused)
	for at, n := range refused {
		out.count(busyRejected, n, at.service, at.subject)
	}
	for at, n := range lagged {
		out.count(busLagged, n, at.service, at.subject)
	}
	for service, n := range overwritten {
		out.count(coalesced, n, service)
	}
}

// hasDepth reports whether items can wait in a component of this kind.
// Snapshots have no depth.
func hasDepth(kind string) bool { return kind != "snapshot" }

func duplicateName(stat flow.Stat, other string) error {
	return fault.New("observe.metrics", fault.Internal, "the %s and the %s of service %s are both called %s", other, stat.Kind, stat.Service, stat.Name).
		Advise("Rename one: metrics cannot tell them apart.")
}

func collectComponent(out sink, stat flow.Stat) {
	out.gauge(queueDepth, stat.Depth, stat.Service, stat.Name)
	out.gauge(queueCapacity, stat.Cap*stat.Instances, stat.Service, stat.Name)
	out.count(queueDropped, stat.Dropped, stat.Service, stat.Name)
	if stat.Kind == "lane" || stat.Kind == "permits" || stat.Displaces { // what displaces is shared by callers that wait for their turn
		out.count(queueExpired, stat.Expired, stat.Service, stat.Name)
	}
}

func collectTasks(out sink, supervisor *supervise.Supervisor) {
	for _, c := range supervisor.Counts() {
		out.count(tasksSpawned, c.Spawned, c.Service, c.Kind)
		out.count(tasksCompleted, c.Completed, c.Service, c.Kind)
		out.count(tasksCanceled, c.Canceled, c.Service, c.Kind)
		out.count(tasksAborted, c.Aborted, c.Service, c.Kind)
		out.count(tasksFailed, c.Failed, c.Service, c.Kind)
		out.count(tasksPanicked, c.Panicked, c.Service, c.Kind)
	}
	for _, s := range supervisor.Status() {
		out.count(serviceRestarts, s.Restarts, s.Service, s.Name)
	}
}

func collectReadiness(out sink, readiness *Readiness) {
	states, unmet := readiness.measure()
	for service, state := range states {
		out.gauge(readyState, int(state), service)
	}
	for at, n := range unmet {
		out.gauge(readyUnmet, n, at.service, at.subject)
	}
}
