package index

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// The library is what can be found by words: the names of this node, the paths
// of the files in its folders, and the text in its objects.
//
//	Offer, OfferName, Forget ──> queue search_ingest ──> the librarian ──> Searcher
//	                                                        │   ^
//	                                              the store <┘   └ a round: the store's list
//	                                                                against the catalogue
//
// One task, the librarian, owns all that is written. It is told which object or
// name has changed, and looks at the truth: an object that the store has is
// read and catalogued, one that it does not have is taken out. So it does no
// harm to be told twice, in the wrong order, or of something that never was.
// What it is not told, because the queue was full or the node was down, is
// found by a round: the store's list and the catalogue are both in the order of
// their addresses, and are walked side by side.
//
// What an object is made of never changes, so nothing is ever catalogued twice.
// Every object that was looked at has an entry, even if there is nothing to be
// found in it: a round then need not read it again.

// Searcher keeps the catalogue. Package index/bleve is one.
//
// Put and Delete are called by one task; the others by many at once.
type Searcher interface {
	// Put adds documents, each in the place of one with the same ID. When it
	// returns, Search finds them.
	Put(documents []Document) error

	// Delete takes documents out, and all that are of one of them.
	Delete(ids []string) error

	// Search finds the documents that fit, the best first.
	Search(ctx context.Context, q Query, limit, offset int) (Found, error)

	// IDs lists the IDs that begin with a prefix, in the order of their bytes,
	// after one of them. Of a document that was just deleted, the ID may still
	// be there.
	IDs(prefix, after string, limit int) ([]string, error)

	// Has reports whether there is a document of an ID.
	Has(id string) (bool, error)

	// Size is how many documents there are, and about how many bytes they
	// take. It never waits.
	Size() (documents, bytes int64)

	Close() error
}

// Field is a part of a document that words are looked for in.
type Field string

// What there is to look in. A document has one of them, or none.
const (
	Anywhere Field = ""
	InName   Field = "name"
	InPath   Field = "path"
	InText   Field = "text"
)

// Document is one thing that can be found. Its ID is name:docs, b3:…/a/path of
// a folder, or b3:… of an object.
type Document struct {
	ID      string
	Of      string     // the ID of another that it goes with; empty if it stands by itself
	Address b3.Address // what it leads to
	Field   Field      // where its words are
	Value   string     // the words
}

// Found is what a search finds.
type Found struct {
	Total   int64 // how many fit in all
	Matches []Match
}

// Match is one of them.
type Match struct {
	ID      string
	Address b3.Address
	Score   float64
}

// Names tells what this node's names mean. It never waits.
type Names func() iter.Seq2[string, b3.Address]

// LibrarySpec is what a library is made of.
type LibrarySpec struct {
	Store    store.Store
	Names    Names // nil if there are none
	Searcher Searcher
	MaxBytes int64 // how large the catalogue may become; zero means that nothing is catalogued

	Metrics   *observe.Metrics
	Readiness *observe.Readiness
}

// Library knows what can be searched.
type Library struct {
	// set at construction
	spec    LibrarySpec
	metrics *libraryMetrics
	state   *observe.Dependency

	// what moves between the tasks
	ingest  *flow.Queue[offer]
	reading *flow.Permits // searches under way, so that nobody searches what is closed

	behind atomic.Bool // the queue was so full that some may have been dropped

	librarian librarian // owned by the librarian's task
}

// offer is something that may have changed: an object, or a name. With neither,
// it only wakes the librarian.
type offer struct {
	address b3.Address // of the object, or what the name means; zero if it means nothing any more
	name    string     // empty if it is an object
	at      time.Time
}

// The bounds of the library.
const (
	searchService = "search"
	mostOffers    = 1024
	nearlyMost    = mostOffers / 2 // as many may push at the same moment, each seeing a place that the others take
	mostReading   = 256
	closeTime     = 5 * time.Second // for searches to end
)

// OpenLibrary makes a library. It owns the searcher from now on, and closes it.
func OpenLibrary(inv *flow.Inventory, spec LibrarySpec) (*Library, error) {
	if spec.Store == nil || spec.Searcher == nil {
		err := fault.New("library.open", fault.Internal, "a library needs a store and a searcher")
		err.Next = "Pass both in index.LibrarySpec."
		return nil, err
	}
	l := &Library{
		spec:  spec,
		state: spec.Readiness.Dependency(searchService, "library", observe.ForWrites),
		ingest: flow.NewQueue[offer](inv, flow.QueueSpec{
			Service: searchService, Name: "search_ingest", Cap: mostOffers, Policy: flow.DropOldest, From: "store, names", To: "librarian",
		}),
		reading: flow.NewPermits(inv, flow.PermitsSpec{
			Service: searchService, Name: "reading", Cap: mostReading, Waiting: mostReading, From: "search", To: "catalogue",
		}),
	}
	l.metrics = newLibraryMetrics(spec.Metrics.For(searchService), spec.Searcher)
	l.librarian = librarian{library: l}
	l.state.Up()
	return l, nil
}

// Add hands the librarian to the supervisor.
func (l *Library) Add(to *supervise.Supervisor, in Stages) error {
	return to.Add(supervise.Service{Service: searchService, Name: "librarian", Stage: in.State, Serve: l.librarian.serve})
}

// Offer tells the library that the store has got an object. It never waits.
func (l *Library) Offer(address b3.Address) { l.push(offer{address: address}) }

// Forget tells the library that an object was deleted from the store. It is
// called after that. It never waits.
func (l *Library) Forget(address b3.Address) { l.push(offer{address: address}) }

// OfferName tells the library what a name means from now on; with no address,
// that it means nothing. What was told last counts. It never waits.
func (l *Library) OfferName(name string, address b3.Address) {
	l.push(offer{name: name, address: address})
}

// hear takes in what another process tells of its store.
func (l *Library) hear(news toldObjects) {
	for _, address := range news.Objects {
		l.Offer(address)
	}
	for _, address := range news.Gone {
		l.Forget(address)
	}
	if news.Missed {
		l.LookAround()
	}
}

// LookAround has everything looked at again that the store and the catalogue
// have: somebody knows that not all was told, or the store is back after it could
// not be asked. It never waits.
func (l *Library) LookAround() {
	l.behind.Store(true)
	l.push(offer{})
}

// push says that something may be lost before it can be, so that this is never
// overlooked.
func (l *Library) push(o offer) {
	o.at = time.Now()
	if l.ingest.Len() >= nearlyMost {
		l.behind.Store(true)
	}
	_ = l.ingest.TryPush(o) // a closed queue: the node drains
}

// Search finds what fits a query. See ParseQuery for how one is written.
func (l *Library) Search(ctx context.Context, text string, limit, offset int) (client.SearchResults, error) {
	const op = "library.search"
	query, err := ParseQuery(text)
	if err != nil {
		return client.SearchResults{}, err
	}
	if limit < 1 || limit > MaxHits || offset < 0 || offset > MaxDepth-limit {
		err := fault.New(op, fault.Malformed, "%d hits after the first %d", limit, offset)
		err.Next = "Ask for 1 to 100 at a time, and for none beyond the first 10000. A query with more words finds less."
		return client.SearchResults{}, err
	}
	if err := l.reading.Acquire(ctx); err != nil {
		return client.SearchResults{}, fault.Wrap(op, err)
	}
	defer l.reading.Release()
	found, err := l.spec.Searcher.Search(ctx, query, limit, offset)
	if err != nil {
		return client.SearchResults{}, fault.Wrap(op, err)
	}
	results := client.SearchResults{Query: text, Total: found.Total, Hits: make([]client.SearchHit, 0, len(found.Matches))}
	for _, match := range found.Matches {
		results.Hits = append(results.Hits, hitOf(match))
	}
	l.illustrate(ctx, query, results.Hits)
	return results, nil
}

// Close ends searches and lets go of the catalogue. The librarian has stopped
// before: it is a task of the node.
func (l *Library) Close() error {
	l.ingest.Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return errors.Join(l.reading.Drain(ctx), l.spec.Searcher.Close())
}
