package index

import (
	"context"
	"crypto/ed25519"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"micronode/b3"
	"micronode/internal/flow"
	"micronode/internal/index/breaker"
	"micronode/internal/index/cache"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// Spec is what an index is made of.
type Spec struct {
	Config Config
	Key    ed25519.PrivateKey // signs this node's names
	Skew   time.Duration      // by how much the clocks of nodes may differ
	Store  store.Store        // what this node has
	Keeper Keeper             // keeps its names over restarts; nil in amnesia
	Seen   string             // the file that keeps which records of others' names were seen; empty in amnesia
	Deeds  string             // the file that keeps which requests were carried out, by their keys; empty in amnesia

	Library  *Library               // what can be found by words, for other processes, and told of what is fetched; nil if nobody searches. It is closed by whoever opened it
	Registry NameSource             // nil if there is none
	Overlay  Neighbours             // nil if there is none
	Engine   Engine                 // nil if there is none; closed with the index
	Self     func() record.Provider // where this node can be reached; it never waits

	Metrics   *observe.Metrics
	Readiness *observe.Readiness
	Tracer    trace.Tracer // nil if nobody wants spans
}

// Index is the service.
type Index struct {
	// set at construction
	spec      Spec
	self      oap.PeerID
	selfText  string
	seed      maphash.Seed // so that nobody can choose to look like another client
	metrics   *metrics
	table     *observe.Dependency // the DHT's
	endpoints *observe.Dependency // of Delegated Routing
	cache     *cache.Cache
	breakers  *breaker.Table
	budget    *hedge.Budget
	delay     *hedge.Delay
	providers *history // how those did from whom something was fetched
	targets   *history // how those did who were asked
	flights   flights
	shelf     *shelf
	names     *names
	seen      *seen
	witnessed *observe.Dependency // the file of what was seen
	fetches   *fetches
	gateways  *gateways
	deeds     *once               // what is to be done once, however often it is asked for
	recalled  *observe.Dependency // the file of what was done

	// what moves between the tasks
	settings *flow.Snapshot[*settings] // what is in force; a request loads it once
	work     *flow.Fair[*flight]       // to the workers; each client is a class of its own
	aloft    *flow.Permits             // look-ups under way that were in the queue; a worker takes one before it takes a flight
	events   *flow.Bus[Event]          // for the record
	recorded *flow.Reader[Event]       // of the one who keeps it, subscribed before anything happens
	provide  *flow.Queue[b3.Address]   // objects to be announced
	rounds   *flow.Queue[struct{}]     // asks for all of them to be announced
	lookups  *supervise.Group          // one task for each look-up
	racers   *supervise.Group          // one task for each target that is being asked

	closing atomic.Bool // no look-up is taken any more

	// of announcing: how many objects went into the queue and came out of it,
	// whether it was so full that some may have been dropped, and whether the
	// last one failed
	offered, taken  atomic.Int64
	behind, failing atomic.Bool
}

// Stages says in which stages of the node the parts of the index run. They
// drain in reverse: first no look-up is started any more and those under way
// end, then what they need goes.
type Stages struct {
	State   string // look-ups, janitors, announcing, readiness, events
	Workers string // workers, warm-up
}

// The bounds of what runs at a time.
const (
	mostWaiting = 512  // look-ups that nobody has started
	mostLookups = 512  // look-ups under way
	mostSpare   = 256  // of those, the ones that only begin for clients that have little in hand
	mostRacers  = 4096 // targets that are being asked
	mostProvide = 1024 // objects that wait to be announced
)

// New makes the parts of an index.
func New(_ context.Context, inv *flow.Inventory, to *supervise.Supervisor, in Stages, spec Spec) (*Index, error) {
	if spec.Tracer == nil {
		spec.Tracer = noop.NewTracerProvider().Tracer("")
	}
	x := &Index{spec: spec, self: oap.PeerIDOf(spec.Key.Public().(ed25519.PublicKey))}
	x.selfText, x.seed = x.self.String(), maphash.MakeSeed()
	first, err := x.newSettings(spec.Config)
	if err != nil {
		return nil, err
	}
	x.makeParts(inv, first)
	// The permits bound the look-ups. One that has given its permit back may not
	// be counted out of the group yet, so the group has room for more.
	if x.lookups, err = to.NewGroup(supervise.GroupSpec{Service: service, Kind: "look-up", Stage: in.State, Max: 2 * mostLookups}); err != nil {
		return nil, err
	}
	if x.racers, err = to.NewGroup(supervise.GroupSpec{Service: service, Kind: "racer", Stage: in.State, Max: mostRacers}); err != nil {
		return nil, err
	}
	downloads, err := to.NewGroup(supervise.GroupSpec{Service: service, Kind: "fetch", Stage: in.State, Max: mostFetches})
	if err != nil {
		return nil, err
	}
	x.fetches = &fetches{begin: downloads.Go, fetch: x.bring, onWay: map[b3.Address]*fetching{}}
	x.openNames(inv)
	x.openSeen()
	x.openDeeds()
	x.watchBreakers()
	x.look(first)
	return x, nil
}

// makeParts makes everything that remembers, and everything that moves between
// the tasks.
func (x *Index) makeParts(inv *flow.Inventory, first *settings) {
	x.metrics = newMetrics(x.spec.Metrics.For(service))
	x.table = x.spec.Readiness.Dependency(service, "dht", observe.ForReads)
	x.endpoints = x.spec.Readiness.Dependency(service, "delegated", observe.ForReads)
	x.cache = cache.New(first.Cache.spec())
	x.breakers = breaker.New(first.Breaker.spec())
	x.budget = hedge.NewBudget(first.DHT.HedgeBudget)
	x.delay = hedge.NewDelay(autoHedge, first.DHT.deadline())
	x.providers, x.targets = newHistory(mostRemembered), newHistory(mostRemembered)
	x.flights = newFlights(mostSpare)
	x.shelf = newShelf(x, int64(first.Cache.ShelfBytes))
	x.gateways = newGateways(x.reach)

	x.settings = flow.NewSnapshot(inv, flow.SnapshotSpec{Service: service, Name: "settings", From: "config", To: "all tasks"}, first)
	x.work = flow.NewFair[*flight](inv, flow.FairSpec{
		Service: service, Quantum: 1, From: "handlers, warm-up", To: "index workers",
		Bands: []flow.BandSpec{{Name: "work", Cap: mostWaiting, Bytes: mostWaiting, Policy: flow.RejectNew}},
	})
	x.aloft = flow.NewPermits(inv, flow.PermitsSpec{
		Service: service, Name: "look-ups", Cap: mostLookups - mostSpare, Waiting: 1024, From: "index workers", To: "look-ups",
	})
	x.events = flow.NewBus[Event](inv, flow.BusSpec{
		Service: service, Name: "events", Cap: 1024, Readers: 16, From: "handlers, tasks", To: "audit",
	})
	x.recorded, _ = x.events.Subscribe("audit", nil) // a new bus has room
	x.provide = flow.NewQueue[b3.Address](inv, flow.QueueSpec{
		Service: service, Name: "provide", Cap: mostProvide, Policy: flow.DropOldest, From: "store, announcing rounds", To: "announcers",
	})
	x.rounds = flow.NewQueue[struct{}](inv, flow.QueueSpec{
		Service: service, Name: "reindex", Cap: 1, Policy: flow.Coalesce, From: "whoever asks for it", To: "announcing rounds",
	})
}

// announcers is how many objects are announced at a time.
const announcers = 4

// Add hands everything that runs to the supervisor.
func (x *Index) Add(to *supervise.Supervisor, in Stages, audit func(Event)) (err error) {
	add := func(name, stage string, serve, drain func(context.Context) error) {
		err = errors.Join(err, to.Add(supervise.Service{Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain}))
	}
	add("index audit", in.State, func(ctx context.Context) error { x.recorded.Each(ctx, audit); return nil }, supervise.Closing(x.events.Close))
	add("index cache janitor", in.State, x.keepCache, nil)
	add("index breaker janitor", in.State, x.keepBreakers, nil)
	add("index readiness", in.State, x.watch, nil)
	add("index warm-up", in.Workers, x.warmUp, nil)
	if x.spec.Engine != nil {
		add("index rounds", in.State, x.announceAll, nil)
		err = errors.Join(err, to.AddPool(supervise.Pool{N: announcers, Next: x.nextObject,
			Service: supervise.Service{Service: service, Name: "index announcer", Stage: in.State}}))
	}
	return errors.Join(err, x.addNames(to, in),
		to.AddPool(supervise.Pool{N: x.spec.Config.workers(), Next: x.nextFlight,
			Service: supervise.Service{Service: service, Name: "index worker", Stage: in.Workers, Drain: x.drain}}))
}

// Join takes part in a DHT, which is closed with the index. It is called before
// Add, and not by an index that was made with one.
func (x *Index) Join(engine Engine) {
	x.spec.Engine = engine
	x.look(x.settings.Load())
}

// DHT is where others find this node in the DHT; nothing if it does not take
// part.
func (x *Index) DHT() []string {
	if x.spec.Engine == nil {
		return nil
	}
	return x.spec.Engine.Addrs()
}

// Close lets go of everything.
func (x *Index) Close() error {
	x.closing.Store(true)
	x.work.Close()
	x.callOff()
	x.shelf.clear()
	x.cache.Clear()
	x.names.close()
	x.gateways.close()
	endpointClient.CloseIdleConnections()
	kept := errors.Join(x.seen.close(), x.deeds.close())
	if x.spec.Engine == nil {
		return kept
	}
	return errors.Join(kept, x.spec.Engine.Close())
}
