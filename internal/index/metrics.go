package index

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/fault"
	"micronode/internal/index/breaker"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/observe"
)

// service is the label of the index in metrics.
const service = "index"

// nowhere is the source of what was not found.
const nowhere record.Source = "none"

// sources is where answers come from.
var sources = []record.Source{record.Local, record.Cache, record.Registry, record.DHT, record.Peer, record.Delegated, nowhere}

// metrics is what the index counts.
type metrics struct {
	// set at construction; the series are looked up once
	instruments   *observe.Instruments
	latency       map[record.Source]prometheus.Observer
	lookups       prometheus.Histogram // in milliseconds, as its name says
	deadlines     prometheus.Counter
	hedges        map[hedge.Wave]prometheus.Counter
	hits, misses  prometheus.Counter
	opened        prometheus.Counter
	retries       prometheus.Counter
	timeouts      prometheus.Counter
	announcements map[string]prometheus.Counter
}

// newMetrics registers the index's metrics. Every value of a label is there
// from the start, so that a query finds a zero and not a gap.
func newMetrics(instruments *observe.Instruments) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "resolve_latency_seconds", Help: "How long a resolve or a question for providers took, by where the answer came from. Answers of the warm lane are only in request_latency_seconds.",
		Buckets: latencyBuckets}, []string{"source"})
	hedges := vector("hedge_total", "Look-ups whose second wave started because the first was silent, by the wave that won.", "winner")
	announcements := vector("index_announcements_total", "Objects that were announced in the DHT, by result: ok or failed.", "result")
	m := &metrics{
		instruments: instruments, latency: map[record.Source]prometheus.Observer{}, hedges: map[hedge.Wave]prometheus.Counter{},
		announcements: map[string]prometheus.Counter{"ok": announcements.WithLabelValues("ok"), "failed": announcements.WithLabelValues("failed")},
		lookups: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "index_dht_lookup_ms", Help: "How long others were asked for an answer that this node did not have, in milliseconds.", Buckets: lookupBuckets}),
		deadlines: counter("resolve_deadline_hit_total", "Requests whose budget was used up before there was an answer."),
		hits:      counter("index_cache_hits_total", "Questions that were answered from the cache."),
		misses:    counter("index_cache_misses_total", "Questions for which others had to be asked."),
		opened:    counter("breaker_open_total", "Times that a target failed so often that it was left alone."),
		retries:   instruments.BackoffRetries.WithLabelValues("lookup"),
		timeouts:  instruments.IOTimeouts.WithLabelValues("lookup"),
	}
	for _, source := range sources {
		m.latency[source] = latency.WithLabelValues(string(source))
	}
	for _, wave := range []hedge.Wave{hedge.Alpha, hedge.Beta, hedge.Walk, hedge.None} {
		m.hedges[wave] = hedges.WithLabelValues(string(wave))
	}
	instruments.Register(latency, m.lookups, m.deadlines, hedges, m.hits, m.misses, m.opened, announcements)
	return m
}

var (
	latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .15, .25, .5, 1, 1.2, 2.5, 5, 10}
	lookupBuckets  = []float64{1, 2.5, 5, 10, 25, 50, 100, 150, 200, 300, 500, 800, 1200, 2500, 5000, 10000}
)

// resolved counts an answer, or that there was none.
func (m *metrics) resolved(source record.Source, err error, took time.Duration) {
	if err != nil || source == "" {
		source = nowhere
	}
	if fault.KindOf(err) == fault.Timeout {
		m.deadlines.Inc()
		m.timeouts.Inc()
	}
	m.latency[source].Observe(took.Seconds())
}

// lookedUp counts a look-up.
func (m *metrics) lookedUp(out hedge.Outcome) {
	m.lookups.Observe(float64(out.Took) / float64(time.Millisecond))
	m.retries.Add(float64(out.Retries))
	if out.Fired {
		m.hedges[out.Winner].Inc()
	}
}

// announced counts an announcement.
func (m *metrics) announced(err error) {
	if err != nil {
		m.announcements["failed"].Inc()
	} else {
		m.announcements["ok"].Inc()
	}
}

// watchBreakers shows how many targets are in which state whenever somebody
// looks, and counts those that open.
func (x *Index) watchBreakers() {
	x.breakers.OnOpen = func() {
		x.metrics.opened.Inc()
		x.audit(Event{Type: BreakerOpened})
	}
	show := func(name, help string, labels prometheus.Labels, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	for _, state := range []string{breaker.Closed, breaker.HalfOpen, breaker.Open} {
		x.metrics.instruments.Register(show("breaker_state", "How many targets have a breaker in this state.", prometheus.Labels{"state": state},
			func() float64 { return float64(x.breakers.Counts()[state]) }))
	}
	x.metrics.instruments.Register(
		show("index_cache_entries", "Answers that are remembered.", nil, func() float64 { return float64(x.cache.Len()) }),
		show("index_cache_bytes", "How much memory they take.", nil, func() float64 { return float64(x.cache.Bytes()) }),
		show("index_dht_peers", "Peers in the routing table of the DHT.", nil, func() float64 {
			if x.spec.Engine == nil {
				return 0
			}
			return float64(x.spec.Engine.Size())
		}),
	)
}
