package edge

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"micronode/fault"
	"micronode/internal/edge/fill"
	"micronode/internal/edge/pack"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// Spec is what an edge is made of.
type Spec struct {
	Config   Config
	WorkRate int // misses that are queued in a second

	Store    store.Store // of its own, for what origins sent; its budget is the quota
	Fleeting store.Store // for what must not be kept; nil if that is Store
	Folder   string      // where the cache remembers what it holds; empty in amnesia
	Amnesia  bool
	Content  Content // finds what paths name by address; nil: nobody does

	Metrics   *observe.Metrics
	Readiness *observe.Readiness
}

// Event is what the edge tells the audit: a fetch, a refusal, a purge.
type Event = fill.Event

// Edge is the service.
type Edge struct {
	// set at construction
	config  Config
	metrics *metrics
	packs   *pack.Mounts
	mounted *observe.Dependency
	assets  *os.Root // nil without a folder
	content Content  // nil if nothing is found by its address
	cache   *fill.Cache
	intake  *rate.Limiter
	events  *flow.Bus[fill.Event]
	stores  []store.Store // of the cache; closed with it

	cacheControl string // of tiles and files
	tiles        *tileCache
	answers      *answerCache
}

// New makes the parts of an edge and mounts its packs. A pack that cannot be
// mounted is no reason to fail: readiness tells of it.
func New(ctx context.Context, inv *flow.Inventory, spec Spec) (*Edge, error) {
	e := &Edge{
		config:  spec.Config,
		content: spec.Content,
		metrics: newMetrics(spec.Metrics.For(service)),
		mounted: spec.Readiness.Dependency(service, "packs", observe.ForReads),
		intake:  rate.NewLimiter(rate.Limit(spec.WorkRate), max(1, spec.WorkRate)),
		stores:  []store.Store{spec.Store},
		events: flow.NewBus[fill.Event](inv, flow.BusSpec{
			Service: service, Name: "events", Cap: 1024, Readers: 16, From: "cache, workers", To: "audit, whoever subscribes",
		}),
		cacheControl: "public, max-age=" + strconv.FormatInt(int64(spec.Config.MaxAge/time.Second), 10),
	}
	if spec.Fleeting != nil {
		e.stores = append(e.stores, spec.Fleeting)
	}
	e.tiles = newTileCache(int64(spec.Config.ShelfBytes)/2, e.cacheControl)
	e.answers = newAnswerCache(int64(spec.Config.ShelfBytes) / 2)
	for _, step := range []func() error{
		func() error { return e.openAssets() },
		func() error { return e.openPacks(ctx, inv) },
		func() error { return e.openCache(inv, spec) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

func (e *Edge) openAssets() (err error) {
	if e.config.Assets == "" {
		return nil
	}
	e.assets, err = os.OpenRoot(e.config.Assets)
	return fault.Wrap("edge.assets", err)
}

func (e *Edge) openPacks(ctx context.Context, inv *flow.Inventory) error {
	expected, err := e.config.expectations()
	if err != nil {
		return err
	}
	e.packs, err = pack.New(inv, pack.Spec{
		Paths: e.config.Packs, Expect: expected, Reconcile: e.config.Reconcile,
		DirectoryBytes: int64(e.config.DirectoryBytes), Deep: true, OnChange: e.remounted,
	})
	if err != nil {
		return err
	}
	if err := e.packs.Mount(ctx); err != nil {
		return err
	}
	e.remounted(e.packs.State()) // also where nothing is mounted, which is no change
	return nil
}

func (e *Edge) openCache(inv *flow.Inventory, spec Spec) (err error) {
	e.cache, err = fill.New(inv, fill.Spec{
		Config: spec.Config.Fill, Cache: spec.Config.Cache, Allow: spec.Config.Allow,
		Store: spec.Store, Fleeting: spec.Fleeting, Folder: spec.Folder, Amnesia: spec.Amnesia,
		Admit: e.admit, Note: func(event fill.Event) { _ = e.events.Publish(event) }, // a closed bus: nobody is left to tell
		Counters: fill.Counters{
			Hit: e.metrics.hits.Inc, Miss: e.metrics.misses.Inc, Coalesced: e.metrics.coalesced.Inc,
			Retry: e.metrics.retries.Inc, Unwritten: e.metrics.unwritten.Inc, Filled: e.metrics.filled, Reject: e.metrics.reject,
		},
	})
	return err
}

// admit keeps the work that strangers cause within the rate of the service.
func (e *Edge) admit() error {
	if e.intake.Allow() {
		return nil
	}
	return &fault.Error{Op: "edge.fill", Kind: fault.RateLimited, Detail: "too many objects have to be fetched at once",
		Next: "Try again in a moment; what is here already is served meanwhile.", RetryAfter: time.Second}
}

// Stages says in which stages of the node the parts of the edge run.
type Stages struct {
	State   string // packs and events
	Workers string // fetching
}

// Add hands everything that runs to the supervisor.
func (e *Edge) Add(to *supervise.Supervisor, in Stages, audit func(Event)) error {
	heard, err := e.events.Subscribe("audit", nil)
	if err != nil {
		return err
	}
	return errors.Join(
		to.Add(supervise.Service{Service: service, Name: "edge packs", Stage: in.State, Serve: e.packs.Serve}),
		to.Add(supervise.Service{Service: service, Name: "edge audit", Stage: in.State, Drain: supervise.Closing(e.events.Close),
			Serve: func(ctx context.Context) error { heard.Each(ctx, audit); return nil }}),
		to.Add(supervise.Service{Service: service, Name: "edge warm-up", Stage: in.Workers, Serve: e.cache.WarmUp}),
		to.AddPool(supervise.Pool{N: e.config.workers(), Next: e.cache.Next,
			Service: supervise.Service{Service: service, Name: "edge worker", Stage: in.Workers, Drain: supervise.Closing(e.cache.Drain)}}),
	)
}

// Reconfigure takes what can change without a restart: the packs, the
// allow-list, and how origins are asked. The configuration was verified.
func (e *Edge) Reconfigure(next Config) error {
	e.packs.SetPaths(next.Packs)
	err := e.cache.Reconfigure(next.Fill, next.Allow)
	e.answers.clear()
	return err
}

// Close lets go of everything.
func (e *Edge) Close() error {
	var problems []error
	e.tiles.clear()
	e.answers.clear()
	if e.cache != nil {
		problems = append(problems, e.cache.Close())
	}
	if e.packs != nil {
		e.packs.Close()
	}
	if e.assets != nil {
		problems = append(problems, e.assets.Close())
	}
	for _, one := range e.stores {
		problems = append(problems, one.Close())
	}
	return errors.Join(problems...)
}
