package index

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/fault"
	"micronode/internal/breaker"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/observe"
)

// service is the label of the index in metrics.
const service = "index"

// sourceNone is the source label without a result.
const sourceNone record.Source = "none"

// sources are the values of the label source.
var sources = []record.Source{record.Local, record.Cache, record.Registry, record.DHT, record.Peer, record.Delegated, sourceNone}

// metrics is the metrics of the index.
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

	fetchRefused    map[string]prometheus.Counter
	connectTimeouts prometheus.Counter
	lies, wasted    prometheus.Counter
	copied          prometheus.Counter
	comparisons     map[string]prometheus.Counter
}

// newMetrics registers the metrics. Every value of a label is present from the
// start, so that a query finds a zero and not a gap.
func newMetrics(instruments *observe.Instruments) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "resolve_latency_seconds", Help: "Duration of resolve and providers requests, by the source of the answer. Answers of the warm lane are in request_latency_seconds only.",
		Buckets: latencyBuckets}, []string{"source"})
	hedges := vector("hedge_total", "Look-ups whose second wave started because the first did not answer, by the wave that won.", "winner")
	announcements := vector("index_announcements_total", "Objects that were announced in the DHT, by result: ok or failed.", "result")
	refused := vector("index_fetch_refused_total", "Providers and addresses that a fetch skipped, by the limit that applied: an address that must not be dialled, or one of index.fetch.", "reason")
	comparisons := vector("index_fetch_comparisons_total", "Comparisons of an object with an older version of it that is here, by result: ok, failed, or refused because the map of its chunks was wrong or too large.", "result")
	m := &metrics{
		copied:       counter("index_fetch_copied_bytes_total", "Bytes of fetched objects that were not sent, because an older version of the object was here."),
		comparisons:  map[string]prometheus.Counter{},
		lies:         counter("index_fetch_lies_total", "Times that a provider sent bytes that do not match the address."),
		wasted:       counter("index_fetch_wasted_bytes_total", "Bytes of fetches that were discarded, because they were wrong or incomplete."),
		fetchRefused: map[string]prometheus.Counter{}, connectTimeouts: instruments.IOTimeouts.WithLabelValues("connect"),
		instruments: instruments, latency: map[record.Source]prometheus.Observer{}, hedges: map[hedge.Wave]prometheus.Counter{},
		announcements: map[string]prometheus.Counter{"ok": announcements.WithLabelValues("ok"), "failed": announcements.WithLabelValues("failed")},
		lookups: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "index_dht_lookup_ms", Help: "Duration of look-ups at other nodes, in milliseconds (promtool prefers seconds; the name is kept).", Buckets: lookupBuckets}),
		deadlines: counter("resolve_deadline_hit_total", "Requests that reached their deadline before there was an answer."),
		hits:      counter("index_cache_hits_total", "Requests answered from the cache."),
		misses:    counter("index_cache_misses_total", "Requests that needed a look-up."),
		opened:    counter("breaker_open_total", "Times that the breaker of a target opened."),
		retries:   instruments.BackoffRetries.WithLabelValues("lookup"),
		timeouts:  instruments.IOTimeouts.WithLabelValues("lookup"),
	}
	for _, reason := range fetchRefusals {
		m.fetchRefused[reason] = refused.WithLabelValues(reason)
	}
	for _, result := range []string{"ok", "failed", "refused"} {
		m.comparisons[result] = comparisons.WithLabelValues(result)
	}
	for _, source := range sources {
		m.latency[source] = latency.WithLabelValues(string(source))
	}
	for _, wave := range []hedge.Wave{hedge.Alpha, hedge.Beta, hedge.Walk, hedge.None} {
		m.hedges[wave] = hedges.WithLabelValues(string(wave))
	}
	instruments.Register(latency, m.lookups, m.deadlines, hedges, m.hits, m.misses, m.opened, announcements, refused, m.lies, m.wasted, m.copied, comparisons)
	return m
}

var (
	latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .15, .25, .5, 1, 1.2, 2.5, 5, 10}
	lookupBuckets  = []float64{1, 2.5, 5, 10, 25, 50, 100, 150, 200, 300, 500, 800, 1200, 2500, 5000, 10000}
)

// resolved counts a resolution, successful or not.
func (m *metrics) resolved(source record.Source, err error, took time.Duration) {
	if err != nil || source == "" {
		source = sourceNone
	}
	if fault.KindOf(err) == fault.Timeout {
		m.deadlines.Inc()
		m.timeouts.Inc()
	}
	m.latency[source].Observe(took.Seconds())
}

// announced counts an announcement.
func (m *metrics) announced(err error) {
	if err != nil {
		m.announcements["failed"].Inc()
	} else {
		m.announcements["ok"].Inc()
	}
}

// watchBreakers exports how many targets are in which state, and counts
// breakers that open.
func (x *Index) watchBreakers() {
	x.breakers.OnOpen = func(key string) {
		x.metrics.opened.Inc()
		x.audit(Event{Type: BreakerOpened, Key: key, Detail: "its circuit breaker is open after repeated failures, for " + x.settings.Load().Breaker.Cooldown.String()})
	}
	show := func(name, help string, labels prometheus.Labels, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
	}
	for _, state := range []string{breaker.Closed, breaker.HalfOpen, breaker.Open} {
		x.metrics.instruments.Register(show("breaker_state", "Targets whose breaker is in this state.", prometheus.Labels{"state": state},
			func() float64 { return float64(x.breakers.Counts()[state]) }))
	}
	x.metrics.instruments.Register(
		show("index_cache_entries", "Cached answers.", nil, func() float64 { return float64(x.cache.Len()) }),
		show("index_cache_bytes", "Memory of the cached answers.", nil, func() float64 { return float64(x.cache.Bytes()) }),
		show("index_dht_peers", "Peers in the routing table of the DHT.", nil, func() float64 {
			if x.spec.Engine == nil {
				return 0
			}
			return float64(x.spec.Engine.Size())
		}),
	)
}
