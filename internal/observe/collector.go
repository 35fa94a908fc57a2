package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// Sources is what metrics are read from at scrape time. What is nil is left out.
type Sources struct {
	Inventory  *flow.Inventory
	Supervisor *supervise.Supervisor
	Readiness  *Readiness
}

// Watch makes the metrics read from the sources at every scrape. It is called
// once, when the node has been put together.
//
// A part whose service is not in the contract's set, or that shares its name
// with another kind of part of the same service, makes the scrape fail and say
// so. A node that hid a queue would be worse than one whose monitoring calls
// for help, and the first test that scrapes the part finds it.
func (m *Metrics) Watch(sources Sources) {
	m.registry.MustRegister(&collector{sources: sources, metrics: m})
}

// What the collector reads from the inventory.
var (
	queueDepth    = desc("queue_depth", "Items that wait in a queue, callers that wait at a lane or for a permit, or events that the slowest reader of a bus has yet to read.", "queue")
	queueCapacity = desc("queue_capacity", "How many may wait in the queue; for a lane or permits, how many may be inside.", "queue")
	queueDropped  = desc("queue_dropped_total", "Items that a full queue dropped. Refusals are not drops.", "queue")
	queueExpired  = desc("queue_expired_total", "Callers that gave up waiting at a lane or for a permit.", "queue")
	busyRejected  = desc("busy_rejections_total", "Refusals because something bounded was full, by queue, lane, permits or route pattern.", "endpoint")
	busLagged     = desc("bus_lagged_total", "Events that a reader of a bus lost because it was slow.", "consumer")
	coalesced     = desc("config_coalesced_total", "Updates that were overwritten by a newer one before anybody read them.")
)

// What the collector reads from the supervisor.
var (
	tasksSpawned    = desc("tasks_spawned_total", "Tasks that were started.", "kind")
	tasksCompleted  = desc("tasks_completed_total", "Tasks that did what they were for.", "kind")
	tasksCanceled   = desc("tasks_canceled_total", "Tasks that ended because a drain told them to.", "kind")
	tasksAborted    = desc("tasks_aborted_total", "Tasks that still ran at the deadline of a drain.", "kind")
	tasksFailed     = desc("tasks_failed_total", "Tasks that ended with an error.", "kind")
	tasksPanicked   = desc("tasks_panicked_total", "Tasks that panicked.", "kind")
	serviceRestarts = desc("service_restarts_total", "Restarts of a service, or of workers of a pool.", "name")
)

// What the collector reads from the readiness table.
var (
	readyState = desc("ready_state", "0 down, 1 ready, 2 degraded; node is the whole.")
	readyUnmet = desc("ready_dependency_unmet", "1 if the dependency is missing, 0 if it is there.", "dep")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"service"}, labels...), nil)
}

// collector turns what the sources know into metrics, on the goroutine of the
// one who asks. It keeps no state.
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

// sink sends metrics whose first label is the service, and refuses those of a
// service that there is not.
type sink chan<- prometheus.Metric

func (s sink) count(d *prometheus.Desc, n uint64, service string, labels ...string) {
	s.send(d, prometheus.CounterValue, float64(n), service, labels)
}

func (s sink) gauge(d *prometheus.Desc, n int, service string, labels ...string) {
	s.send(d, prometheus.GaugeValue, float64(n), service, labels)
}

func (s sink) send(d *prometheus.Desc, kind prometheus.ValueType, value float64, service string, labels []string) {
	if !knownService(service) {
		s.refuse(d, unknownService(service))
		return
	}
	s <- prometheus.MustNewConstMetric(d, kind, value, append([]string{service}, labels...)...)
}

// refuse makes the whole scrape fail with the error.
func (s sink) refuse(d *prometheus.Desc, err error) { s <- prometheus.NewInvalidMetric(d, err) }

// collectFlow reads the inventory. What several parts count under one name is
// added up first: a series may be sent once only.
func (c *collector) collectFlow(out sink) {
	refused := map[series]uint64{}
	lagged := map[series]uint64{}
	overwritten := map[string]uint64{nodeService: 0}
	if c.sources.Inventory != nil {
		kinds := map[series]string{}
		for _, part := range c.sources.Inventory.Read() {
			if !holds(part.Kind) {
				continue
			}
			at := series{part.Service, part.Name}
			if other, taken := kinds[at]; taken {
				out.refuse(queueDepth, sameName(part, other))
				continue
			}
			kinds[at] = part.Kind
			collectPart(out, part)
			refused[at] += part.Refused
			for consumer, n := range part.Lagged {
				lagged[series{part.Service, consumer}] += n
			}
			if part.Policy == flow.Coalesce.String() {
				overwritten[part.Service] += part.Coalesced
			}
		}
	}
	c.metrics.busy(refused)
	for at, n := range refused {
		out.count(busyRejected, n, at.service, at.of)
	}
	for at, n := range lagged {
		out.count(busLagged, n, at.service, at.of)
	}
	for service, n := range overwritten {
		out.count(coalesced, n, service)
	}
}

// holds reports whether something can wait in a part of this kind. Snapshots
// and locks have no depth to speak of.
func holds(kind string) bool { return kind != "snapshot" && kind != "lock" }

func sameName(part flow.Stat, other string) error {
	err := fault.New("observe.metrics", fault.Internal, "the %s and the %s of service %s are both called %s", other, part.Kind, part.Service, part.Name)
	err.Next = "Rename one: metrics cannot tell them apart."
	return err
}

func collectPart(out sink, part flow.Stat) {
	out.gauge(queueDepth, part.Depth, part.Service, part.Name)
	out.gauge(queueCapacity, part.Cap*part.Instances, part.Service, part.Name)
	out.count(queueDropped, part.Dropped, part.Service, part.Name)
	if part.Kind == "lane" || part.Kind == "permits" {
		out.count(queueExpired, part.Expired, part.Service, part.Name)
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
		out.gauge(readyUnmet, n, at.service, at.of)
	}
}
