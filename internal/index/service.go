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
	"micronode/internal/bandwidth"
	"micronode/internal/breaker"
	"micronode/internal/flow"
	"micronode/internal/index/cache"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// Spec configures an index.
type Spec struct {
	Config          Config
	Key             ed25519.PrivateKey // signs this node's names
	Skew            time.Duration      // maximum clock difference between nodes
	Store           store.Store        // what this node has
	NameStore       NameStore          // persists its names; nil in amnesia
	SeenPath        string             // file with the records seen of others' names; empty in amnesia
	IdempotencyPath string             // file with the requests carried out, by key; empty in amnesia

	Objects  ObjectListener         // learns of fetched objects, and of those that other processes put or removed; nil if there is none
	Registry NameSource             // nil if there is none
	Overlay  PeerSet                // nil if there is none
	Engine   Engine                 // nil if there is none; closed with the index
	Self     func() record.Provider // this node's own addresses; it never waits
	Peers    func() []string        // addresses of the peers that the operator named, as HOST:PORT; it never waits. Nil if there are none

	Kept    func(context.Context) ([]b3.Address, error) // objects that stay for other reasons than names: the registry, proposals, shares; nil if there are none
	Removed func(b3.Address)                            // called for every object that the index removes; nil if nobody wants to know

	Bandwidth *bandwidth.Meter // of the bytes that leave this machine; nil if they are not counted
	Metrics   *observe.Metrics
	Readiness *observe.Readiness
	Tracer    trace.Tracer // nil if spans are off
}

// Index is the service.
type Index struct {
	// set at construction
	spec           Spec
	self           oap.PeerID
	selfText       string
	seed           maphash.Seed // random, so that clients cannot choose their class
	metrics        *metrics
	table          *observe.Dependency // of the DHT
	endpoints      *observe.Dependency // of Delegated Routing
	cache          *cache.Cache
	breakers       *breaker.Table
	budget         *hedge.Budget
	delay          *hedge.Delay
	providers      *history // outcomes of fetches, by provider
	targets        *history // outcomes of questions, by target
	offenders      *history // sources of wrong bytes
	flights        flights
	answerCache    *answerCache
	names          *names
	seen           *seenRecords
	seenDep        *observe.Dependency // the log of seen records
	fetches        *flow.Flights[b3.Address, fetched]
	arrivals       arrivals
	versions       *versions     // which object is an older version of which
	comparisons    *flow.Permits // comparisons of two versions that run
	gatewayClient  *gatewayClient
	idempotency    *idempotency        // requests that are carried out once, however often they are sent
	idempotencyDep *observe.Dependency // the log of idempotent requests

	// shared between the tasks
	settings      *flow.Snapshot[*settings] // in force now; a request loads it once
	work          *flow.Fair[*flight]       // for the workers; each client is a class of its own
	lookupPermits *flow.Permits             // running look-ups that came through the queue; a worker acquires one before it dequeues a flight
	events        *flow.Bus[Event]          // for the audit log
	recorded      *flow.Reader[Event]       // the audit reader, subscribed before the first event
	announceQueue *flow.Queue[b3.Address]   // objects to be announced
	roundSignal   *flow.Signal              // requests a round that announces all of them
	lookups       *supervise.Group          // one task per look-up
	racers        *supervise.Group          // one task per target that is being asked

	closing atomic.Bool // new look-ups are rejected

	// announcing: how many objects were enqueued and dequeued, whether the
	// queue was so full that some may have been dropped, and whether the last
	// announcement failed
	announceQueued, announceTaken           atomic.Int64
	announceMayHaveDropped, announceFailing atomic.Bool
}

// Stages names the stages of the node in which the parts of the index run. They
// drain in reverse order: first new look-ups are rejected and running ones
// finish, then their dependencies stop.
type Stages struct {
	State   string // look-ups, janitors, announcing, readiness, events
	Workers string // workers, warm-up
}

// Limits of concurrency.
const (
	maxWaiting = 512  // look-ups that wait in the queue, by default
	maxLookups = 512  // running look-ups
	maxSpare   = 256  // of those, reserved for clients with few look-ups
	maxRacers  = 4096 // targets that are being asked
	maxProvide = 1024 // objects that wait to be announced
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
	// The permits limit the look-ups. One that has released its permit may
	// still be counted in the group, so the group is larger.
	if x.lookups, err = to.NewGroup(supervise.GroupSpec{Service: service, Kind: "look-up", Stage: in.State, Max: 2 * maxLookups}); err != nil {
		return nil, err
	}
	if x.racers, err = to.NewGroup(supervise.GroupSpec{Service: service, Kind: "racer", Stage: in.State, Max: maxRacers}); err != nil {
		return nil, err
	}
	downloads, err := to.NewGroup(supervise.GroupSpec{Service: service, Kind: "fetch", Stage: in.State, Max: maxFetches})
	if err != nil {
		return nil, err
	}
	x.fetches = newFetches(downloads)
	x.openNames(inv)
	x.openSeen()
	x.openIdempotency()
	x.watchBreakers()
	x.updateReadiness(first)
	return x, nil
}

// makeParts makes the caches, the queues and all other state shared between the
// tasks.
func (x *Index) makeParts(inv *flow.Inventory, first *settings) {
	x.metrics = newMetrics(x.spec.Metrics.For(service))
	x.table = x.spec.Readiness.Dependency(service, "dht", observe.ForReads)
	x.endpoints = x.spec.Readiness.Dependency(service, "delegated", observe.ForReads)
	x.cache = cache.New(first.Cache.spec())
	x.breakers = breaker.New(first.Breaker.spec())
	x.budget = hedge.NewBudget(first.DHT.HedgeBudget)
	x.delay = hedge.NewDelay(defaultHedgeDelay, first.DHT.deadline())
	x.providers, x.targets, x.offenders = newHistory(maxRemembered), newHistory(maxRemembered), newHistory(maxRemembered)
	x.flights = newFlights(maxSpare)
	x.versions = newVersions()
	x.comparisons = flow.NewPermits(inv, flow.PermitsSpec{
		Service: service, Name: "comparisons", Cap: maxComparisons, Waiting: maxFetches, From: "fetches", To: "store",
	})
	x.answerCache = newAnswerCache(x, int64(first.Cache.PreparedBytes))
	x.gatewayClient = newGatewayClient(x.Reach, x.metrics, flow.NewPermits(inv, flow.PermitsSpec{
		Service: service, Name: "proofs", Cap: maxTreeBytes / treeUnit, Waiting: maxFetches, From: "fetches", To: "gateways",
	}))
	x.gatewayClient.down = x.spec.Bandwidth.Down()

	x.settings = flow.NewSnapshot(inv, flow.SnapshotSpec{Service: service, Name: "settings", From: "config", To: "all tasks"}, first)
	x.work = flow.NewFair[*flight](inv, flow.FairSpec{
		Service: service, Quantum: 1, From: "handlers, warm-up", To: "index workers",
		Bands: []flow.BandSpec{{Name: "work", Cap: x.spec.Config.Queue, Bytes: x.spec.Config.Queue, Policy: flow.RejectNew}},
	})
	x.lookupPermits = flow.NewPermits(inv, flow.PermitsSpec{
		Service: service, Name: "look-ups", Cap: maxLookups - maxSpare, Waiting: 1024, From: "index workers", To: "look-ups",
	})
	x.events = flow.NewBus[Event](inv, flow.BusSpec{
		Service: service, Name: "events", Cap: 1024, Readers: 16, From: "handlers, tasks", To: "audit",
	})
	x.recorded, _ = x.events.Subscribe("audit", nil) // a new bus has room
	x.announceQueue = flow.NewQueue[b3.Address](inv, flow.QueueSpec{
		Service: service, Name: "provide", Cap: maxProvide, Policy: flow.DropOldest, From: "store, announcing rounds", To: "announcers",
	})
	x.roundSignal = flow.NewSignal(inv, flow.SignalSpec{Service: service, Name: "reindex", From: "subscribers", To: "announcing rounds"})
}

// announcers is how many objects are announced concurrently.
const announcers = 4

// Add registers all services with the supervisor.
func (x *Index) Add(to *supervise.Supervisor, in Stages, audit func(Event)) (err error) {
	add := func(name, stage string, serve, drain func(context.Context) error) {
		err = errors.Join(err, to.Add(supervise.Service{Service: service, Name: name, Stage: stage, Serve: serve, Drain: drain}))
	}
	add("index audit", in.State, func(ctx context.Context) error { x.recorded.ForEach(ctx, audit); return nil }, supervise.CloseOnDrain(x.events.Close))
	add("index cache janitor", in.State, x.runCacheJanitor, nil)
	add("index breaker janitor", in.State, x.runBreakerJanitor, nil)
	add("index readiness", in.State, x.runReadiness, nil)
	add("index warm-up", in.Workers, x.runWarmUp, nil)
	if x.spec.Engine != nil {
		add("index rounds", in.State, x.runAnnounceRounds, nil)
		err = errors.Join(err, to.AddPool(supervise.Pool{N: announcers, NextJob: x.nextAnnouncement,
			Service: supervise.Service{Service: service, Name: "index announcer", Stage: in.State}}))
	}
	add("index publisher", in.State, x.runPublisher, supervise.CloseOnDrain(x.names.close))
	return errors.Join(err, to.AddPool(supervise.Pool{N: x.spec.Config.workers(), NextJob: x.nextFlight,
		Service: supervise.Service{Service: service, Name: "index worker", Stage: in.Workers, Drain: x.drain}}))
}

// JoinDHT sets the DHT engine, which is closed with the index. It is called
// before Add, and only if Spec has no engine.
func (x *Index) JoinDHT(engine Engine) {
	x.spec.Engine = engine
	x.updateReadiness(x.settings.Load())
}

// DHTAddrs is where others find this node in the DHT; nil if it does not
// participate.
func (x *Index) DHTAddrs() []string {
	if x.spec.Engine == nil {
		return nil
	}
	return x.spec.Engine.Addrs()
}

// Close releases all resources.
func (x *Index) Close() error {
	x.closing.Store(true)
	x.work.Close()
	x.failFlights()
	x.answerCache.clear()
	x.cache.Clear()
	x.names.close()
	x.gatewayClient.close()
	endpointClient.CloseIdleConnections()
	kept := errors.Join(x.seen.close(), x.idempotency.close())
	if x.spec.Engine == nil {
		return kept
	}
	return errors.Join(kept, x.spec.Engine.Close())
}

// Event is an entry of the audit log. It says what was done and with which
// result, never for which client.
type Event struct {
	Type   EventType
	Time   time.Time
	Key    string // its subject: b3:…, name:…, or the key of a target
	Detail string // for people
}

// EventType is one of a fixed set.
type EventType string

// The types of events.
const (
	NameSet       EventType = "name set"
	NameDeleted   EventType = "name deleted"
	KeptAll       EventType = "old content kept" // what a name stood for was not released, and why
	Collected     EventType = "collected"        // what is neither pinned nor named was removed
	NameShadowed  EventType = "name shadowed"    // the registry now governs a name of this node
	NamePublished EventType = "name published"

	Reindexed EventType = "reindexed"
	Pinned    EventType = "pinned"
	Unpinned  EventType = "unpinned"
	Fetched   EventType = "fetched"

	BreakerOpened EventType = "breaker opened"    // a target failed too often and is suspended
	Lied          EventType = "target lied"       // it sent an answer that cannot be true
	Failed        EventType = "announcing failed" // of an object or a name; the next round tries again
	Reconfigured  EventType = "index reconfigured"
)

// audit publishes an event. It never waits.
func (x *Index) audit(e Event) {
	e.Time = time.Now()
	_ = x.events.Publish(e) // a closed bus has no readers left
}
