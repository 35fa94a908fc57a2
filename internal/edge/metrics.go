package edge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/internal/breaker"
	"micronode/internal/observe"
)

// service is the label of the edge in metrics.
const service = "edge"

// The reasons for which the edge rejects a request. There are no others.
const (
	reasonAmnesia    = "amnesia"
	reasonNotAllowed = "not_allowed"
	reasonInflate    = "decompress_cap"
	reasonBody       = "body_cap"
	reasonTimeout    = "timeout"
	reasonRate       = "rate_limit"
	reasonRange      = "invalid_range"
	reasonValidator  = "etag_invalid"
	reasonBusy       = "busy"
	reasonUpstream   = "upstream"
	reasonBreaker    = "breaker"
)

// Reasons lists why the edge rejects.
var Reasons = []string{reasonAmnesia, reasonNotAllowed, reasonInflate, reasonBody, reasonTimeout, reasonRate,
	reasonRange, reasonValidator, reasonBusy, reasonUpstream, reasonBreaker}

// metrics is what the edge counts.
type metrics struct {
	// set at construction; the series are looked up once
	instruments             *observe.Instruments
	hits, misses, coalesced prometheus.Counter
	stale, breakerOpened    prometheus.Counter
	givenUp                 prometheus.Counter
	fills                   prometheus.Histogram
	rejects                 map[string]prometheus.Counter
	retries                 prometheus.Counter
	timeouts                map[string]prometheus.Counter // of I/O with origins, by operation
	writeFailures           prometheus.Counter            // failed writes to disk
	busy                    *observe.RefusalCounter
}

// newMetrics registers the edge's metrics. Every reason exists from the start,
// so that a query finds a zero and not a gap.
func newMetrics(instruments *observe.Instruments) *metrics {
	rejects := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_rejects_total", Help: "Requests that the edge refused, by reason.",
	}, []string{"reason"})
	m := &metrics{
		instruments:   instruments,
		hits:          prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_cache_hits_total", Help: "Requests for origins answered from the cache."}),
		misses:        prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_cache_misses_total", Help: "Requests for origins that needed the origin."}),
		coalesced:     prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_coalesced_total", Help: "Misses that joined a running fetch."}),
		stale:         prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_stale_total", Help: "Requests answered with a stale answer, because the origin failed or its breaker was open."}),
		givenUp:       prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_fills_given_up_total", Help: "Fetches that were ended because every client had left, with much of the body to come."}),
		breakerOpened: prometheus.NewCounter(prometheus.CounterOpts{Name: "breaker_open_total", Help: "Times that the breaker of a target opened."}),
		fills:         prometheus.NewHistogram(prometheus.HistogramOpts{Name: "edge_fill_seconds", Help: "Duration of fetches from origins, retries included.", Buckets: fillBuckets}),
		rejects:       map[string]prometheus.Counter{},
		retries:       instruments.BackoffRetries.WithLabelValues("live_fill"),
		timeouts:      map[string]prometheus.Counter{"connect": instruments.IOTimeouts.WithLabelValues("connect"), "fill": instruments.IOTimeouts.WithLabelValues("fill")},
		writeFailures: instruments.IOErrors.WithLabelValues("write"),
		busy:          instruments.Busy("/edge/assets"),
	}
	for _, reason := range Reasons {
		m.rejects[reason] = rejects.WithLabelValues(reason)
	}
	instruments.Register(m.hits, m.misses, m.coalesced, m.stale, m.givenUp, m.breakerOpened, m.fills, rejects)
	return m
}

// registerBreakers registers gauges that count the origins in each breaker
// state at every scrape.
func (m *metrics) registerBreakers(origins func() map[string]int) {
	for _, state := range []string{breaker.Closed, breaker.HalfOpen, breaker.Open} {
		m.instruments.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "breaker_state", Help: "Targets whose breaker is in this state.", ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(origins()[state]) }))
	}
}

var fillBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20}

// reject counts a refusal.
func (m *metrics) reject(reason string) {
	counter, known := m.rejects[reason]
	if !known {
		panic("edge: a reject has no such reason: " + reason) // a bug, found by the first test that gets there
	}
	counter.Inc()
	if reason == reasonBusy {
		m.busy.Inc()
	}
}

// countTimeout counts a try of a fetch that timed out. Clients that waited for it
// are counted as rejected, each by itself.
func (m *metrics) countTimeout(op string) { m.timeouts[op].Inc() }

// observeFill records how long a fetch took.
func (m *metrics) observeFill(took time.Duration) { m.fills.Observe(took.Seconds()) }
