package index

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/internal/observe"
)

// libraryMetrics is what the library counts.
type libraryMetrics struct {
	// set at construction; the series are looked up once
	put, removed, failed prometheus.Counter
	lag                  prometheus.Histogram
	rounds               prometheus.Counter
}

// newLibraryMetrics registers the library's metrics. Every value of a label is
// there from the start, so that a query finds a zero and not a gap.
func newLibraryMetrics(to *observe.Instruments, of Searcher) *libraryMetrics {
	ingested := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "search_ingest_total", Help: "Documents that went into the catalogue or out of it, and objects that could not be read or had no room, by result: put, removed or failed."}, []string{"result"})
	m := &libraryMetrics{
		put: ingested.WithLabelValues("put"), removed: ingested.WithLabelValues("removed"), failed: ingested.WithLabelValues("failed"),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "search_ingest_lag_seconds", Help: "How long it took until something that was put could be found.",
			Buckets: []float64{.05, .1, .2, .3, .5, 1, 2.5, 5, 10, 30, 60}}),
		rounds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "search_rounds_total", Help: "Times that the catalogue was held against the store's list."}),
	}
	show := func(name, help string, value func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	to.Register(ingested, m.lag, m.rounds,
		show("search_documents", "Documents in the catalogue.", func() int64 { n, _ := of.Size(); return n }),
		show("search_bytes", "About how large the catalogue is.", func() int64 { _, n := of.Size(); return n }))
	return m
}

// ingested counts what went in.
func (m *libraryMetrics) ingested(put, removed int, offers []time.Time) {
	m.put.Add(float64(put))
	m.removed.Add(float64(removed))
	m.lagged(offers)
}

func (m *libraryMetrics) lagged(offers []time.Time) {
	for _, at := range offers {
		m.lag.Observe(time.Since(at).Seconds())
	}
}
