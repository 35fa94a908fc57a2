package observe

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"micronode/fault"
)

// services is the fixed set that the label "service" takes its values from.
var services = []string{"node", "gateway", "overlay", "index", "edge", "registry", "store", "mailbox", "feed", "graph", "search", "media"}

// nodeService is the service that stands for the whole node.
const nodeService = "node"

// unknownService is the error for a service outside the set.
func unknownService(name string) error {
	return fault.New("observe.metrics", fault.Internal, "%q is not one of the services %s", name, strings.Join(services, ", ")).
		Advise("Name the part after the service that owns it: dashboards and alerts know only these.")
}

func knownService(name string) bool { return slices.Contains(services, name) }

// Metrics owns the one registry of a node. What the inventory, the supervisor
// and the readiness table know is read at scrape time (see Attach); what only
// the services themselves know, they count in their Instruments.
type Metrics struct {
	// set at construction
	registry      *prometheus.Registry
	ConfigUpdates prometheus.Counter     // config_update_total: configs that were applied
	ConfigReloads *prometheus.CounterVec // config_reload_total{result}: "applied", "unchanged" or "rejected"
	AmnesiaMode   prometheus.Gauge       // amnesia_mode: 1 if nothing is written
	spans         *prometheus.CounterVec // trace_spans_total{outcome}
	instruments   map[string]func() *Instruments

	coalescedUpdates atomic.Uint64 // config updates that were served by the reload of another one

	mu       sync.Mutex //lockblock:leaf guards a map
	refusals map[series]*RefusalCounter
}

// series is a service and what one of its metrics is about: a queue, an
// endpoint, a consumer.
type series struct{ service, subject string }

// NewMetrics makes the registry, with the metrics of the Go runtime and the
// process in it.
func NewMetrics(build Build) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), instruments: map[string]func() *Instruments{}, refusals: map[series]*RefusalCounter{},
		ConfigUpdates: counter("config_update_total", "Configs that were put in force."),
		ConfigReloads: counters("config_reload_total", "Reloads of the config, by result: applied, unchanged or rejected.", "result"),
		AmnesiaMode:   gauge("amnesia_mode", "1 if the node writes nothing to disk, 0 if it persists."),
		spans:         counters("trace_spans_total", "Spans that ended, by outcome: exported, failed (the collector refused them) or dropped (the queue was full).", "outcome"),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "build_info", Help: "Always 1; the labels identify the build.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "build": build.Build, "go": build.Go},
	})
	info.Set(1)
	zero(m.ConfigReloads, "applied", "unchanged", "rejected")
	zero(m.spans, "exported", "failed", "dropped")
	for _, service := range services {
		m.instruments[service] = sync.OnceValue(func() *Instruments { return newInstruments(m, service) })
	}
	m.For(nodeService).Register(m.ConfigUpdates, m.ConfigReloads, m.AmnesiaMode, m.spans, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// ConfigCoalesced counts config updates that needed no reload of their own.
func (m *Metrics) ConfigCoalesced(n int) { m.coalescedUpdates.Add(uint64(max(n, 0))) }

// Gatherer reads everything once, for the admin handler and for tests.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Instruments are what one service counts by itself. The label "service" is
// filled in; the values of the others must come from fixed sets, never from a
// peer, an address, a key or a raw path. On a hot path, get the series once
// (WithLabelValues) and keep it.
type Instruments struct {
	// set at construction
	metrics *Metrics
	service string

	IOTimeouts         *prometheus.CounterVec   // io_timeouts_total{op}
	IOErrors           *prometheus.CounterVec   // io_errors_total{op}
	BackoffRetries     *prometheus.CounterVec   // backoff_retries_total{op}
	BackpressureEvents *prometheus.CounterVec   // backpressure_events_total{size}: tiny, small, med or large
	Rejected           *prometheus.CounterVec   // rejected_total{reason}
	HTTPRequests       *prometheus.CounterVec   // http_requests_total{route,method,status}
	RequestLatency     *prometheus.HistogramVec // request_latency_seconds{route}
	InflightRequests   *prometheus.GaugeVec     // inflight_requests{route}
	Overruns           *prometheus.CounterVec   // request_overruns_total{route}
	StuckHandlers      *prometheus.GaugeVec     // stuck_handlers{route}
}

// latencyBuckets run from a warm hit to the longest deadline of a control
// route.
var latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// LatencyBuckets lists the bounds of request_latency_seconds.
func LatencyBuckets() []float64 { return slices.Clone(latencyBuckets) }

// For returns the instruments of a service, the same ones each time. A service
// outside the contract's set is a mistake of the program, to be found by the
// first test that runs it, so For panics and says which names there are.
func (m *Metrics) For(service string) *Instruments {
	instruments, known := m.instruments[service]
	if !known {
		err := unknownService(service)
		panic(fmt.Sprintf("%v. %s", err, fault.NextOf(err)))
	}
	return instruments()
}

func newInstruments(m *Metrics, service string) *Instruments {
	i := &Instruments{
		metrics: m, service: service,
		IOTimeouts:         counters("io_timeouts_total", "I/O that did not end before its deadline, by operation.", "op"),
		IOErrors:           counters("io_errors_total", "I/O that failed otherwise, by operation.", "op"),
		BackoffRetries:     counters("backoff_retries_total", "Retries, by operation.", "op"),
		BackpressureEvents: counters("backpressure_events_total", "Times a peer's queue pushed back, by the size of that queue: tiny, small, med or large.", "size"),
		Rejected:           counters("rejected_total", "Requests and connections that were refused before any work, by reason.", "reason"),
		HTTPRequests:       counters("http_requests_total", "Answered requests, by route pattern, method and status.", "route", "method", "status"),
		RequestLatency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "request_latency_seconds", Help: "Time from the request's header to the end of its answer, by route pattern.",
			Buckets: latencyBuckets,
		}, []string{"route"}),
		InflightRequests: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "inflight_requests", Help: "Requests that are being answered, by route pattern.",
		}, []string{"route"}),
		Overruns: counters("request_overruns_total", "Requests whose handler had not returned at the deadline, so that the server answered or closed them, by route pattern.", "route"),
		StuckHandlers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "stuck_handlers", Help: "Handlers that have not returned after the deadline of their request, by route pattern.",
		}, []string{"route"}),
	}
	zero(i.IOTimeouts, "read", "write")
	zero(i.IOErrors, "read", "write")
	zero(i.BackpressureEvents, "tiny", "small", "med", "large")
	i.Register(i.IOTimeouts, i.IOErrors, i.BackoffRetries, i.BackpressureEvents, i.Rejected, i.HTTPRequests, i.RequestLatency, i.InflightRequests, i.Overruns, i.StuckHandlers)
	return i
}

// Register adds metrics of the service's own. They get the label "service". A
// name that is taken is a mistake of the program, so it panics.
func (i *Instruments) Register(own ...prometheus.Collector) {
	prometheus.WrapRegistererWith(prometheus.Labels{"service": i.service}, i.metrics.registry).MustRegister(own...)
}

// Busy returns the count of refusals at an endpoint, for
// busy_rejections_total{endpoint}: the pattern of a route. Queues, lanes and
// permits are counted by the inventory. If both use one name, the metric is
// their sum.
func (i *Instruments) Busy(endpoint string) *RefusalCounter {
	i.metrics.mu.Lock()
	defer i.metrics.mu.Unlock()
	at := series{i.service, endpoint}
	known, exists := i.metrics.refusals[at]
	if !exists {
		known = new(RefusalCounter)
		i.metrics.refusals[at] = known
	}
	return known
}

// RefusalCounter is a count that is read at scrape time.
type RefusalCounter struct{ n atomic.Uint64 }

// Inc adds one.
func (r *RefusalCounter) Inc() { r.n.Add(1) }

// addRefusals adds the refusal counters to the counts of the inventory.
func (m *Metrics) addRefusals(refused map[series]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at, tally := range m.refusals {
		refused[at] += tally.n.Load()
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// zero makes the series that are known beforehand, so that a first event is a
// step from 0 to 1 and not a series that appears: rates and alerts need the
// step.
func zero(vector *prometheus.CounterVec, values ...string) {
	for _, value := range values {
		vector.WithLabelValues(value)
	}
}
