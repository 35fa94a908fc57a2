package edge

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/bandwidth"
	"micronode/internal/edge/fill"
	"micronode/internal/edge/pack"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// Spec is what an edge is made of.
type Spec struct {
	Config   Config
	WorkRate int // misses that are queued in a second

	Store     store.Store // of its own, for bodies of origins; its budget is the quota
	Transient store.Store // for bodies that must not be kept; nil if that is Store
	Folder    string      // where the cache writes its entries; empty in amnesia
	Amnesia   bool
	Self      string       // the peer ID of this node, for the hosts of its sites
	Objects   ObjectSource // resolves paths that begin with an address or a name; nil: not supported

	Bandwidth *bandwidth.Meter // of the bytes that leave this machine; nil if they are not counted
	Metrics   *observe.Metrics
	Readiness *observe.Readiness
}

// Event is what the edge reports to the audit: a fetch, a refusal, a purge.
type Event = fill.Event

// Edge is the service.
type Edge struct {
	// set at construction
	config     Config
	metrics    *metrics
	packs      *pack.Mounts
	packsReady *observe.Dependency
	assets     *os.Root     // nil without a folder
	objects    ObjectSource // nil if paths by address or name are not supported
	cache      *fill.Cache
	limiter    *missLimiter
	events     *flow.Bus[fill.Event]
	stores     []store.Store // of the cache; closed with it

	siteHosts    atomic.Pointer[SiteHosts]
	versions     siteVersions
	folders      folderCache
	cacheControl string // of tiles and files
	tiles        *tileCache
	answers      *answerCache
}

// New makes the parts of an edge and mounts its packs. It does not fail if a
// pack cannot be mounted: readiness reports that.
func New(ctx context.Context, inv *flow.Inventory, spec Spec) (*Edge, error) {
	e := &Edge{
		config:     spec.Config,
		objects:    spec.Objects,
		metrics:    newMetrics(spec.Metrics.For(service)),
		packsReady: spec.Readiness.Dependency(service, "packs", observe.ForReads),
		limiter:    newMissLimiter(float64(spec.WorkRate), float64(max(1, spec.WorkRate))),
		stores:     []store.Store{spec.Store},
		events: flow.NewBus[fill.Event](inv, flow.BusSpec{
			Service: service, Name: "events", Cap: 1024, Readers: 16, From: "cache, workers", To: "audit, subscribers",
		}),
		cacheControl: "public, max-age=" + strconv.FormatInt(int64(spec.Config.MaxAge/time.Second), 10),
	}
	e.setSites(spec.Config.Sites, spec.Self)
	if spec.Transient != nil {
		e.stores = append(e.stores, spec.Transient)
	}
	e.tiles = newTileCache(int64(spec.Config.PreparedBytes)/2, e.cacheControl)
	e.answers = newAnswerCache(int64(spec.Config.PreparedBytes) / 2)
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
		DirectoryBytes: int64(e.config.DirectoryBytes), Deep: true, OnChange: e.updateReadiness,
	})
	if err != nil {
		return err
	}
	if err := e.packs.Mount(ctx); err != nil {
		return err
	}
	e.updateReadiness(e.packs.State()) // OnChange is not called if nothing is mounted
	return nil
}

func (e *Edge) openCache(inv *flow.Inventory, spec Spec) (err error) {
	e.cache, err = fill.New(inv, fill.Spec{
		Config: spec.Config.Fill, Cache: spec.Config.Cache, Breaker: spec.Config.Breaker, Allow: spec.Config.Allow, Workers: spec.Config.workers(), Queue: spec.Config.Queue,
		Store: spec.Store, Transient: spec.Transient, Folder: spec.Folder, Amnesia: spec.Amnesia,
		Bandwidth: spec.Bandwidth, Admit: e.admit, OnEvent: func(event fill.Event) { _ = e.events.Publish(event) }, // fails on a closed bus, which has no subscribers left
		Counters: fill.Counters{
			Hit: e.metrics.hits.Inc, Miss: e.metrics.misses.Inc, Coalesced: e.metrics.coalesced.Inc, Stale: e.metrics.stale.Inc, BreakerOpened: e.metrics.breakerOpened.Inc,
			Retry: e.metrics.retries.Inc, TimedOut: e.metrics.countTimeout, GivenUp: e.metrics.givenUp.Inc, WriteFailed: e.metrics.writeFailures.Inc, Filled: e.metrics.observeFill, Reject: e.metrics.reject,
		},
	})
	if err == nil {
		e.metrics.registerBreakers(e.cache.BreakerStates)
	}
	return err
}

// admit keeps the misses that clients cause within the rate of the service,
// shared among origins and, for each, among its clients.
func (e *Edge) admit(origin string, client uint64) error {
	if e.limiter.allow(origin, client, time.Now()) {
		return nil
	}
	return ingress.Limited("fetches from origins that clients cause in a second", "limits.work_rate", &fault.Error{Op: "edge.fill", Kind: fault.RateLimited, Detail: "clients cause more fetches in a second than the operator allows",
		Next: "Retry in a moment; cached answers are served meanwhile. The operator can raise limits.work_rate.", RetryAfter: time.Second})
}

// Stages names the stages of the node in which the parts of the edge run.
type Stages struct {
	State   string // packs and events
	Workers string // fetching
}

// Add registers all services of the edge with the supervisor.
func (e *Edge) Add(to *supervise.Supervisor, in Stages, audit func(Event)) error {
	subscription, err := e.events.Subscribe("audit", nil)
	if err != nil {
		return err
	}
	return errors.Join(
		to.Add(supervise.Service{Service: service, Name: "edge packs", Stage: in.State, Serve: e.packs.Serve}),
		to.Add(supervise.Service{Service: service, Name: "edge audit", Stage: in.State, Drain: supervise.CloseOnDrain(e.events.Close),
			Serve: func(ctx context.Context) error { subscription.ForEach(ctx, audit); return nil }}),
		to.Add(supervise.Service{Service: service, Name: "edge warm-up", Stage: in.Workers, Serve: e.cache.WarmUp}),
		to.AddPool(supervise.Pool{N: e.config.workers(), NextJob: e.cache.Next,
			Service: supervise.Service{Service: service, Name: "edge worker", Stage: in.Workers, Drain: supervise.CloseOnDrain(e.cache.Drain)}}),
	)
}

// Reconfigure applies what can change without a restart: the packs, the
// allow-list, and how origins are asked. The configuration was validated.
func (e *Edge) Reconfigure(next Config) error {
	e.packs.SetPaths(next.Packs)
	e.setSites(next.Sites, e.siteHosts.Load().self)
	err := e.cache.Reconfigure(next.Fill, next.Breaker, next.Allow)
	e.answers.clear()
	return err
}

func (e *Edge) setSites(sites []string, self string) {
	hosts := NewSiteHosts(sites, self)
	e.siteHosts.Store(&hosts)
}

// Close closes the cache, the packs, the folder of assets and the stores.
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
