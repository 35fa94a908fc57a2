package search

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// Engine keeps the search index. Package search/bleve implements it.
//
// Put and Delete are called by one task; the others by many at once.
type Engine interface {
	// Put adds documents, each replacing one with the same ID. When it returns,
	// Search finds them.
	Put(documents []Document) error

	// Delete removes documents, and all documents that are Of one of them.
	Delete(ids []string) error

	// Search finds the matching documents, best first.
	Search(ctx context.Context, q Query, limit, offset int) (Page, error)

	// IDs lists the IDs with a prefix, in the order of their bytes, after a
	// given one. The ID of a document that was just deleted may still be
	// listed.
	IDs(prefix, after string, limit int) ([]string, error)

	// Has reports whether there is a document with an ID.
	Has(id string) (bool, error)

	// Size is how many documents there are, and about how many bytes they take.
	// It never waits.
	Size() (documents, bytes int64)

	Close() error
}

// Field is a searchable field of a document.
type Field string

// The fields. A document has one of them, or none.
const (
	Anywhere Field = ""
	InName   Field = "name"
	InPath   Field = "path"
	InText   Field = "text"
)

// Document is one searchable item. Its ID is name:docs, b3:…/a/path of a
// folder, or b3:… of an object.
type Document struct {
	ID      string
	Of      string     // the ID of the document that it belongs to; empty if it is independent
	Address b3.Address // the object that it refers to
	Field   Field      // the field of its words
	Value   string     // the words
}

// Page is a page of search results.
type Page struct {
	Total   int64 // how many match in all
	Matches []Match
}

// Match is one search result.
type Match struct {
	ID      string
	Address b3.Address
	Score   float64
}

// Names lists this node's names and their manifests. It never waits.
type Names func() iter.Seq2[string, b3.Address]

// Spec configures a Search.
type Spec struct {
	Store    store.Store
	Names    Names // nil if there are none
	Engine   Engine
	MaxBytes int64 // maximum size of the search index; zero means that nothing is indexed

	Metrics   *observe.Metrics
	Readiness *observe.Readiness
}

// Search searches the names, paths and texts of this node.
type Search struct {
	// set at construction
	spec    Spec
	metrics *metrics
	state   *observe.Dependency

	// shared between the tasks
	ingest        *flow.Queue[ingestItem]
	searchPermits *flow.Permits // running searches, so that none uses a closed engine

	mayHaveDropped atomic.Bool // the queue was so full that some may have been dropped

	ingester ingester // owned by the ingester's task
}

// ingestItem is something that may have changed: an object, or a name. With
// neither, it only wakes the ingester.
type ingestItem struct {
	address  b3.Address // of the object, or of the name's manifest; zero if the name was removed
	name     string     // empty for an object
	queuedAt time.Time
}

// service is the label of the search in metrics and in the inventory.
const service = "search"

// Limits of the search.
const (
	maxIngestQueued = 1024
	ingestHighWater = maxIngestQueued / 2 // so many may push at the same moment, each seeing space that the others take
	maxSearches     = 256
	closeTimeout    = 5 * time.Second // for searches to finish
)

// Open makes a Search. The Search owns the engine from now on, and closes
// it.
func Open(inv *flow.Inventory, spec Spec) (*Search, error) {
	if spec.Store == nil || spec.Engine == nil {
		return nil, fault.New("library.open", fault.Internal, "a library needs a store and a searcher").
			Advise("Pass both in search.Spec.")
	}
	s := &Search{
		spec:  spec,
		state: spec.Readiness.Dependency(service, "library", observe.ForWrites),
		ingest: flow.NewQueue[ingestItem](inv, flow.QueueSpec{
			Service: service, Name: "search_ingest", Cap: maxIngestQueued, Policy: flow.DropOldest, From: "store, names", To: "librarian",
		}),
		searchPermits: flow.NewPermits(inv, flow.PermitsSpec{
			Service: service, Name: "reading", Cap: maxSearches, Waiting: maxSearches, From: "search", To: "catalogue",
		}),
	}
	s.metrics = newMetrics(spec.Metrics.For(service), spec.Engine)
	s.ingester = ingester{search: s}
	s.state.Up()
	return s, nil
}

// Add registers the ingester with the supervisor.
func (s *Search) Add(to *supervise.Supervisor, stage string) error {
	return to.Add(supervise.Service{Service: service, Name: "librarian", Stage: stage, Serve: s.ingester.run})
}

// ObjectAdded notifies the search of an object added to the store. It never
// waits.
func (s *Search) ObjectAdded(address b3.Address) { s.push(ingestItem{address: address}) }

// ObjectRemoved notifies the search of an object deleted from the store. It is
// called after the deletion. It never waits.
func (s *Search) ObjectRemoved(address b3.Address) { s.push(ingestItem{address: address}) }

// NameChanged notifies the search of a name's new manifest; with a zero
// address, of its removal. The last call counts. It never waits.
func (s *Search) NameChanged(name string, address b3.Address) {
	s.push(ingestItem{name: name, address: address})
}

// Rescan starts a reconciliation: notifications are known to be lost, or the
// store is available again after an outage. It never waits.
func (s *Search) Rescan() {
	s.mayHaveDropped.Store(true)
	s.push(ingestItem{})
}

// push sets mayHaveDropped before anything can be dropped, so that a drop is
// never overlooked.
func (s *Search) push(o ingestItem) {
	o.queuedAt = time.Now()
	if s.ingest.Len() >= ingestHighWater {
		s.mayHaveDropped.Store(true)
	}
	_ = s.ingest.TryPush(o) // the queue is closed when the node drains
}

// Search runs a query. See ParseQuery for its syntax.
func (s *Search) Search(ctx context.Context, text string, limit, offset int) (Results, error) {
	const op = "library.search"
	query, err := ParseQuery(text)
	if err != nil {
		return Results{}, err
	}
	if limit < 1 || limit > MaxHits || offset < 0 || offset > MaxDepth-limit {
		return Results{}, fault.New(op, fault.Malformed, "%d hits after the first %d", limit, offset).
			Advise("Ask for 1 to 100 at a time, within the first 10000. Use more words to narrow the query.")
	}
	if err := s.searchPermits.Acquire(ctx); err != nil {
		return Results{}, fault.Wrap(op, err)
	}
	defer s.searchPermits.Release()
	found, err := s.spec.Engine.Search(ctx, query, limit, offset)
	if err != nil {
		return Results{}, fault.Wrap(op, err)
	}
	results := Results{Query: text, Total: found.Total, Hits: make([]Hit, 0, len(found.Matches))}
	for _, match := range found.Matches {
		results.Hits = append(results.Hits, hitOf(match))
	}
	s.addSnippets(ctx, query, results.Hits)
	return results, nil
}

// Close waits for searches and closes the engine. The ingester has stopped
// before: it is a task of the node.
func (s *Search) Close() error {
	s.ingest.Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return errors.Join(s.searchPermits.Drain(ctx), s.spec.Engine.Close())
}

// metrics is the metrics of the search.
type metrics struct {
	// set at construction; the series are looked up once
	put, removed, failed prometheus.Counter
	lag                  prometheus.Histogram
	rounds               prometheus.Counter
}

// newMetrics registers the metrics. Every value of a label is present
// from the start, so that a query finds a zero and not a gap.
func newMetrics(to *observe.Instruments, of Engine) *metrics {
	ingested := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "search_ingest_total", Help: "Documents added to and removed from the catalogue, and objects that could not be read or did not fit, by result: put, removed or failed."}, []string{"result"})
	m := &metrics{
		put: ingested.WithLabelValues("put"), removed: ingested.WithLabelValues("removed"), failed: ingested.WithLabelValues("failed"),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "search_ingest_lag_seconds", Help: "Time until a stored object could be found by search.",
			Buckets: []float64{.05, .1, .2, .3, .5, 1, 2.5, 5, 10, 30, 60}}),
		rounds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "search_rounds_total", Help: "Comparisons of the catalogue with the list of the store."}),
	}
	show := func(name, help string, value func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	to.Register(ingested, m.lag, m.rounds,
		show("search_documents", "Documents in the catalogue.", func() int64 { n, _ := of.Size(); return n }),
		show("search_bytes", "Approximate size of the catalogue.", func() int64 { _, n := of.Size(); return n }))
	return m
}

// observeIngest counts a batch.
func (m *metrics) observeIngest(put, removed int, offers []time.Time) {
	m.put.Add(float64(put))
	m.removed.Add(float64(removed))
	m.observeLag(offers)
}

func (m *metrics) observeLag(offers []time.Time) {
	for _, at := range offers {
		m.lag.Observe(time.Since(at).Seconds())
	}
}
