package facet

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"runtime"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

// Spec is what the facets are made of. An owner may be nil if no enabled facet
// needs it.
type Spec struct {
	Config Config

	// the owners
	Mailbox  Mailbox
	Audience Audience
	Graph    Graph
	Library  Library
	Objects  Objects

	Metrics   *observe.Metrics
	Readiness *observe.Readiness
	Tracer    trace.Tracer // nil for no spans
}

// Facets is the four services.
type Facets struct {
	// set at construction
	spec   Spec
	seed   maphash.Seed // makes classes of clients
	feed   feedFacet
	graph  graphFacet
	search searchFacet
	media  mediaFacet

	// what moves between the tasks; nil if every facet is off
	events      *flow.Bus[Event]    // for the audit log
	auditReader *flow.Reader[Event] // of the audit service, subscribed before the first event
}

// Stages says in which stages of the node the tasks of the facets run.
type Stages struct {
	State   string // events
	Workers string // the workers that deliver posts
}

// The names of the facets: their services in metrics, and their sections.
const (
	feedName   = "feed"
	graphName  = "graph"
	searchName = "search"
	mediaName  = "media"
)

// New makes the facets. Those that are off have no permits and no tasks.
func New(inv *flow.Inventory, to *supervise.Supervisor, in Stages, spec Spec) (*Facets, error) {
	if spec.Tracer == nil {
		spec.Tracer = noop.NewTracerProvider().Tracer("")
	}
	f := &Facets{spec: spec, seed: maphash.MakeSeed()}
	c := spec.Config
	if c.anyOn() {
		f.events = flow.NewBus[Event](inv, flow.BusSpec{
			Service: feedName, Name: "events", Cap: 1024, Readers: 16, From: "facets", To: "audit",
		})
		f.auditReader, _ = f.events.Subscribe("audit", nil) // a new bus has room
	}
	f.feed.facetBase = newFacetBase(spec.Metrics, feedName, c.Feed.Enabled)
	f.graph.facetBase = newFacetBase(spec.Metrics, graphName, c.Graph.Enabled)
	f.search.facetBase = newFacetBase(spec.Metrics, searchName, c.Search.Enabled)
	f.media.facetBase = newFacetBase(spec.Metrics, mediaName, c.Media.Enabled)
	f.feed.addPermits(inv, "feed_fanout", c.Feed.fanout(), "boxes", "boards")
	f.graph.addTurns(inv, "graph_expand", c.Graph.expand(), "graph")
	f.search.addTurns(inv, "search_qps", c.Search.queries(), "library")
	f.media.addPermits(inv, "media_jobs", c.Media.jobs(), "handlers", "thumbnails")
	return f, errors.Join(f.openFeed(), f.openGraph(), f.openSearch(inv, to, in), f.openMedia(inv, to, in))
}

// Routes lists the routes of all facets. Those of one that is off are there,
// too: they answer how to turn it on.
func (f *Facets) Routes() []ingress.Route {
	return slices.Concat(
		f.feed.bindRoutes(f.feedRoutes()), f.graph.bindRoutes(f.graphRoutes()), f.search.bindRoutes(f.searchRoutes()), f.media.bindRoutes(f.mediaRoutes()))
}

// Add registers everything that runs with the supervisor. With every facet off,
// that is nothing.
func (f *Facets) Add(to *supervise.Supervisor, in Stages, audit func(Event)) error {
	if f.events == nil {
		return nil
	}
	return errors.Join(
		to.Add(supervise.Service{Service: feedName, Name: "facet audit", Stage: in.State,
			Serve: func(ctx context.Context) error { f.auditReader.ForEach(ctx, audit); return nil }, Drain: supervise.CloseOnDrain(f.events.Close)}),
		f.addFeed(to, in), f.addSearch(to, in), f.addMedia(to, in))
}

// Close releases what the facets hold themselves. It does not close the owners.
func (f *Facets) Close() error {
	for _, p := range []*facetBase{&f.feed.facetBase, &f.graph.facetBase, &f.search.facetBase, &f.media.facetBase} {
		p.close()
	}
	return errors.Join(f.closeSearch(), f.closeMedia())
}

// facetBase is what the facets have in common: whether one is on, and how much of
// its costly work runs at a time.
type facetBase struct {
	// set at construction
	name        string
	on          bool
	permits     *flow.Permits  // of work that no client waits for alone: posts, thumbnails. Nil if it is off
	turns       *flow.FairLane // of work for one client: walks, searches. Nil if it is off
	instruments *observe.Instruments
}

// maxWaiting is how many requests may wait for a permit or a turn of one facet.
// Further requests are refused at once, so that one slow facet cannot use all
// request slots of the server.
const maxWaiting = 64

func newFacetBase(metrics *observe.Metrics, name string, on bool) facetBase {
	return facetBase{name: name, on: on, instruments: metrics.For(name)}
}

// addPermits bounds the work of a facet, if it is on.
func (f *facetBase) addPermits(inv *flow.Inventory, name string, most int, from, to string) {
	if f.on {
		f.permits = flow.NewPermits(inv, flow.PermitsSpec{Service: f.name, Name: name, Cap: most, Waiting: maxWaiting, From: from, To: to})
	}
}

// addTurns bounds the work of a facet, if it is on, and shares it out among
// clients. The work is one of processors, and one client gets half of them:
// what another asks for is not behind it, and has a processor.
func (f *facetBase) addTurns(inv *flow.Inventory, name string, most int, to string) {
	if f.on {
		f.turns = flow.NewFairLane(inv, flow.FairLaneSpec{Service: f.name, Name: name, Running: most, PerClass: max(1, runtime.GOMAXPROCS(0)/2),
			Waiting: maxWaiting, From: "handlers", To: to})
	}
}

func (f *facetBase) close() {
	if f.permits != nil {
		f.permits.Close()
	}
}

// withPermit does work under a permit. If none comes free before the deadline of
// ctx, that is fault.Backpressure.
func (f *facetBase) withPermit(ctx context.Context, work func() error) error {
	if err := f.permits.Acquire(ctx); err != nil {
		return err
	}
	defer f.permits.Release()
	return work()
}

// withTurn does work for a request when it is the turn of its client. If that
// does not come before the deadline, that is fault.Backpressure.
func (f *Facets) withTurn(of *facetBase, r *http.Request, work func() error) error {
	client := maphash.Comparable(f.seed, ingress.ShareKey(r))
	if err := of.turns.Enter(r.Context(), client); err != nil {
		if fault.KindOf(err) == fault.Timeout {
			err = fault.WrapKind(of.name, fault.Backpressure, err)
		}
		return err
	}
	defer of.turns.Leave(client)
	return work()
}

// bindRoutes sets the service of the routes. If the facet is off, all of them
// answer how to turn it on.
func (f *facetBase) bindRoutes(routes []ingress.Route) []ingress.Route {
	for i := range routes {
		routes[i].Service = f.name
		routes[i].Docs.Kinds = append(routes[i].Docs.Kinds, fault.NotFound)
		if !f.on {
			routes[i].Handler = f.handleDisabled
		}
	}
	return routes
}

// handleDisabled is the handler of a facet that is off.
func (f *facetBase) handleDisabled(http.ResponseWriter, *http.Request) error {
	f.instruments.Rejected.WithLabelValues("disabled").Inc()
	return &fault.Error{Op: f.name, Kind: fault.NotFound, Detail: "the facet " + f.name + " is off on this node",
		Next: "Set facets." + f.name + ".enabled = true in the configuration of the node, and restart it."}
}

// requireOwner refuses a facet whose owner is missing. That is a mistake in the
// wiring of the node.
func (f *facetBase) requireOwner(owner string, present bool) error {
	if !f.on || present {
		return nil
	}
	return fault.New("facet.new", fault.Internal, "the facet %s is on, but there is no %s", f.name, owner).
		Advise("Pass the " + owner + " in facet.Spec.")
}

// Event is an event of the facets for the audit log. It says what was done and
// what the result was, never who asked.
type Event struct {
	Type   EventType
	Time   time.Time
	Facet  string // feed, graph, search or media
	Key    string // what it is about
	Detail string // in words
}

// EventType is one of a fixed set.
type EventType string

// What can happen.
const (
	Posted      EventType = "posted"
	Undelivered EventType = "post not delivered" // this time; the mailbox redelivers it, or keeps it as a dead letter
	HeldUp      EventType = "post held up"       // an owner is away; it continues when that is back
	Followed    EventType = "followed"
	Unfollowed  EventType = "unfollowed"
)

// audit publishes an event to the audit log. It never waits.
func (f *Facets) audit(e Event) {
	e.Time = time.Now()
	_ = f.events.Publish(e) // a closed bus has no readers left
}
