package edge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
)

// Reasons lists why the edge rejects.
var Reasons = []string{reasonAmnesia, reasonNotAllowed, reasonInflate, reasonBody, reasonTimeout, reasonRate,
	reasonRange, reasonValidator, reasonBusy, reasonUpstream}

// metrics is what the edge counts.
type metrics struct {
	// set at construction; the series are looked up once
	hits, misses, coalesced prometheus.Counter
	fills                   prometheus.Histogram
	rejects                 map[string]prometheus.Counter
	retries, timeouts       prometheus.Counter
	unwritten               prometheus.Counter // what the disk did not take
	busy                    *observe.Tally
}

// newMetrics registers the edge's metrics. Every reason is there from the
// start, so that a query finds a zero and not a gap.
func newMetrics(instruments *observe.Instruments) *metrics {
	rejects := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edge_rejects_total", Help: "Requests that the edge refused, by reason.",
	}, []string{"reason"})
	m := &metrics{
		hits:      prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_cache_hits_total", Help: "Requests for an origin's object that were answered from the cache."}),
		misses:    prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_cache_misses_total", Help: "Requests for an origin's object that had to ask the origin."}),
		coalesced: prometheus.NewCounter(prometheus.CounterOpts{Name: "edge_coalesced_total", Help: "Misses that waited for a fetch that was under way already."}),
		fills:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: "edge_fill_seconds", Help: "Time that a fetch from an origin took, retries included.", Buckets: fillBuckets}),
		rejects:   map[string]prometheus.Counter{},
		retries:   instruments.BackoffRetries.WithLabelValues("live_fill"),
		timeouts:  instruments.IOTimeouts.WithLabelValues("fill"),
		unwritten: instruments.IOErrors.WithLabelValues("write"),
		busy:      instruments.Busy("/edge/assets"),
	}
	for _, reason := range Reasons {
		m.rejects[reason] = rejects.WithLabelValues(reason)
	}
	instruments.Register(m.hits, m.misses, m.coalesced, m.fills, rejects)
	return m
}

var fillBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20}

// reject counts a refusal.
func (m *metrics) reject(reason string) {
	counter, known := m.rejects[reason]
	if !known {
		panic("edge: a reject has no such reason: " + reason) // a mistake of the program, found by the first test that gets there
	}
	counter.Inc()
	switch reason {
	case reasonBusy:
		m.busy.Inc()
	case reasonTimeout:
		m.timeouts.Inc()
	}
}

// filled notes how long a fetch took.
func (m *metrics) filled(took time.Duration) { m.fills.Observe(took.Seconds()) }
