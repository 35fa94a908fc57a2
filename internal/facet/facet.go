package facet

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

// Spec is what the facets are made of. Of the owners, those may be nil that no
// facet that is on asks.
type Spec struct {
	Config Config

	// the owners, who do the work
	Mailbox  Mailbox
	Audience Audience
	Graph    Graph
	Library  Library
	Objects  Objects

	Metrics   *observe.Metrics
	Readiness *observe.Readiness
	Tracer    trace.Tracer // nil if nobody wants spans
}

// Facets is the four services.
type Facets struct {
	// set at construction
	spec   Spec
	feed   feed
	graph  graph
	search search
	media  media

	// what moves between the tasks; nil if every facet is off
	events   *flow.Bus[Event]    // for the record
	recorded *flow.Reader[Event] // of the one who keeps it, subscribed before anything happens
}

// Stages says in which stages of the node the parts of the facets run.
type Stages struct {
	State   string // events
	Workers string // whoever delivers posts
}

// The names of the facets: their services in metrics, and their sections.
const (
	feedName   = "feed"
	graphName  = "graph"
	searchName = "search"
	mediaName  = "media"
)

// New makes the parts of the facets. Those that are off have none.
func New(inv *flow.Inventory, to *supervise.Supervisor, in Stages, spec Spec) (*Facets, error) {
	if spec.Tracer == nil {
		spec.Tracer = noop.NewTracerProvider().Tracer("")
	}
	f := &Facets{spec: spec}
	c := spec.Config
	if c.anyOn() {
		f.events = flow.NewBus[Event](inv, flow.BusSpec{
			Service: feedName, Name: "events", Cap: 1024, Readers: 16, From: "facets", To: "audit",
		})
		f.recorded, _ = f.events.Subscribe("audit", nil) // a new bus has room
	}
	f.feed.part = newPart(inv, spec.Metrics, partSpec{feedName, "feed_fanout", c.Feed.Enabled, c.Feed.fanout(), "boxes", "boards"})
	f.graph.part = newPart(inv, spec.Metrics, partSpec{graphName, "graph_expand", c.Graph.Enabled, c.Graph.expand(), "handlers", "graph"})
	f.search.part = newPart(inv, spec.Metrics, partSpec{searchName, "search_qps", c.Search.Enabled, c.Search.queries(), "handlers", "library"})
	f.media.part = newPart(inv, spec.Metrics, partSpec{mediaName, "media_jobs", c.Media.Enabled, c.Media.jobs(), "handlers", "thumbnails"})
	return f, errors.Join(f.openFeed(), f.openGraph(), f.openSearch(inv, to, in), f.openMedia(inv, to, in))
}

// Routes lists the routes of all facets. Those of one that is off are there,
// too: they say how it is turned on.
func (f *Facets) Routes() []ingress.Route {
	return slices.Concat(
		f.feed.dress(f.feedRoutes()), f.graph.dress(f.graphRoutes()), f.search.dress(f.searchRoutes()), f.media.dress(f.mediaRoutes()))
}

// Add hands everything that runs to the supervisor. With every facet off, that
// is nothing.
func (f *Facets) Add(to *supervise.Supervisor, in Stages, audit func(Event)) error {
	if f.events == nil {
		return nil
	}
	return errors.Join(
		to.Add(supervise.Service{Service: feedName, Name: "facet audit", Stage: in.State,
			Serve: func(ctx context.Context) error { f.recorded.Each(ctx, audit); return nil }, Drain: supervise.Closing(f.events.Close)}),
		f.addFeed(to, in), f.addSearch(to, in), f.addMedia(to, in))
}

// Close lets go of what the facets keep for themselves. The owners are closed
// by whoever opened them.
func (f *Facets) Close() error {
	for _, p := range []*part{&f.feed.part, &f.graph.part, &f.search.part, &f.media.part} {
		p.close()
	}
	return errors.Join(f.closeSearch(), f.closeMedia())
}

// part is what the facets have in common: whether one is on, and how much of
// its costly work runs at a time.
type part struct {
	// set at construction
	name        string
	on          bool
	permits     *flow.Permits // nil if it is off
	instruments *observe.Instruments
}

// partSpec says how a part is made.
type partSpec struct {
	name, permits string
	on            bool
	most          int
	from, to      string
}

// mostWaiting is how many may wait for a permit of one facet. The others are
// turned away at once: requests that wait here have a place in the server, and
// one slow facet must not have them all.
const mostWaiting = 64

func newPart(inv *flow.Inventory, metrics *observe.Metrics, spec partSpec) part {
	p := part{name: spec.name, on: spec.on, instruments: metrics.For(spec.name)}
	if p.on {
		p.permits = flow.NewPermits(inv, flow.PermitsSpec{
			Service: spec.name, Name: spec.permits, Cap: spec.most, Waiting: mostWaiting, From: spec.from, To: spec.to,
		})
	}
	return p
}

func (p *part) close() {
	if p.permits != nil {
		p.permits.Close()
	}
}

// under does work under a permit. If none comes free before the deadline of
// ctx, that is fault.Backpressure.
func (p *part) under(ctx context.Context, work func() error) error {
	if err := p.permits.Acquire(ctx); err != nil {
		return err
	}
	defer p.permits.Release()
	return work()
}

// dress makes the routes of a part its own. If it is off, all of them answer
// how to turn it on.
func (p *part) dress(routes []ingress.Route) []ingress.Route {
	for i := range routes {
		routes[i].Service = p.name
		routes[i].Docs.Kinds = append(routes[i].Docs.Kinds, fault.NotFound)
		if !p.on {
			routes[i].Handler = p.refuse
		}
	}
	return routes
}

// refuse is the answer of a facet that is off.
func (p *part) refuse(http.ResponseWriter, *http.Request) error {
	p.instruments.Rejected.WithLabelValues("disabled").Inc()
	return &fault.Error{Op: p.name, Kind: fault.NotFound, Detail: "the facet " + p.name + " is off on this node",
		Next: "Set facets." + p.name + ".enabled = true in the configuration of the node, and start it again."}
}

// need refuses a facet whose owner is missing. That is a mistake of whoever
// puts the node together.
func (p *part) need(owner string, there bool) error {
	if !p.on || there {
		return nil
	}
	err := fault.New("facet.new", fault.Internal, "the facet %s is on, and there is no %s", p.name, owner)
	err.Next = "Pass the " + owner + " in facet.Spec."
	return err
}
