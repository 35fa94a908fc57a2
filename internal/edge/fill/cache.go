package fill

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/bandwidth"
	"micronode/internal/breaker"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/supervise"
	"micronode/internal/tokentext"
)

// Spec is what a cache is made of.
type Spec struct {
	Config  Config
	Cache   CacheConfig
	Breaker BreakerConfig
	Allow   []string // the origins that may be fetched from; see ParseAllow
	Workers int      // number of goroutines that pull from Next; shared among origins
	Queue   int      // fills that wait for a worker; zero is 512

	// Store holds the bodies. It is the cache's own: its budget is the quota,
	// and everything in it is Cached.
	Store store.Store

	// Transient holds bodies that must not be kept, or that Store fails to
	// keep, for as long as they are being read. Nil means Store. With a Store
	// on disk it should be one in RAM: a no-store response must not reach a
	// disk, and a disk may be full.
	Transient store.Store

	// Folder is where the cache writes its entries, so that they survive a
	// restart. Empty in amnesia: then nothing touches the disk.
	Folder  string
	Amnesia bool

	Admit    func(host string, client uint64) error // called before a miss of a client is queued; nil admits all
	OnEvent  func(Event)                            // must not block; nil discards events
	Counters Counters

	Bandwidth *bandwidth.Meter // of the bytes that leave this machine; nil if they are not counted

	dial dialer // for tests
}

// Cache is a shared HTTP cache in front of origins.
type Cache struct {
	// set at construction
	spec     Spec
	policy   *flow.Snapshot[*policy]
	work     *flow.Fair[*flight] // by origin
	breakers *breaker.Table      // by origin
	files    *entryFiles         // nil without a folder
	share    bandwidth.Share     // of what the node may receive; that of all fills

	draining    atomic.Bool                       // no new fills
	storeFailed atomic.Pointer[storeFailureState] // the last failure of the store; nil if there was none
	streaming   streamMemory                      // of bodies that are arriving

	mu      sync.Mutex //lockblock:leaf maps and lists only; nothing is called that waits
	index   *entryIndex
	flights flights
}

// storeFailureState is the last failure of the store, and until when the store
// is not tried again.
type storeFailureState struct {
	err   error
	until time.Time
}

// storeFailure is why the store is not tried now; nil if it is.
func (c *Cache) storeFailure() error {
	if last := c.storeFailed.Load(); last != nil && time.Now().Before(last.until) {
		return last.err
	}
	return nil
}

const (
	service = "edge"
	opGet   = "edge.get"
	opFill  = "edge.fill"

	workCap  = 512 // fills that wait for a worker, by default
	workBand = 1   // the one band of the queue

	// How often a request waits for another request's fill before it fetches
	// for itself.
	maxJoins = 3

	// How long a key stays marked as hit-for-miss, and how long after a failed
	// refresh none is tried.
	hitForMissTTL  = 10 * time.Second
	refreshBackoff = time.Second

	// How long the store is not tried after it failed. Meanwhile answers are
	// served without being kept, and each object is fetched only once.
	storeBackoff = 10 * time.Second
)

// New makes a cache, with the entries of the folder. It starts nothing: a pool
// of workers pulls from Next, and WarmUp is a service.
func New(inv *flow.Inventory, spec Spec) (*Cache, error) {
	const op = "edge.cache"
	if spec.Amnesia && spec.Folder != "" {
		return nil, fault.New(op, fault.Malformed, "in amnesia mode there is no folder for the cache")
	}
	if spec.Workers < 1 {
		return nil, fault.New(op, fault.Malformed, "%d workers are below 1", spec.Workers)
	}
	if spec.Transient == nil {
		spec.Transient = spec.Store
	}
	if spec.Admit == nil {
		spec.Admit = func(string, uint64) error { return nil }
	}
	if spec.OnEvent == nil {
		spec.OnEvent = func(Event) {}
	}
	spec.Counters = spec.Counters.withDefaults()
	first, err := newPolicy(spec.Config, spec.Allow, spec.dial)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	c := &Cache{
		spec:   spec,
		policy: flow.NewSnapshot(inv, flow.SnapshotSpec{Service: service, Name: "fill_policy", From: "config reload", To: "cache, workers, warm-up"}, first),
		work: flow.NewFair[*flight](inv, flow.FairSpec{
			Service: service, Quantum: 1, MaxOutstanding: spec.Workers, Members: true, From: "handlers, warm-up", To: "edge worker",
			Bands: []flow.BandSpec{{Name: "work", Cap: cmp.Or(spec.Queue, workCap), Bytes: cmp.Or(spec.Queue, workCap), Policy: flow.RejectNew}},
		}),
		breakers:  breaker.New(spec.Breaker.spec()),
		streaming: streamMemory{limit: int64(spec.Cache.ArrivingBytes)},
		index:     newEntryIndex(spec.Cache.MaxEntries, indexBytes),
		flights:   newFlights(),
	}
	c.breakers.OnOpen = c.onBreakerOpen
	if spec.Folder != "" {
		if err := c.restore(); err != nil {
			first.client.close()
			return nil, fault.Wrap(op, err)
		}
	}
	return c, nil
}

// Reconfigure replaces the policy, the breakers' settings and the list of
// origins. Entries stay; those of origins that are no longer allowed are not
// served.
func (c *Cache) Reconfigure(config Config, breakers BreakerConfig, allow []string) error {
	next, err := newPolicy(config, allow, c.spec.dial)
	if err != nil {
		return fault.Wrap("edge.reconfigure", err)
	}
	old := c.policy.Load()
	c.policy.Store(next)
	c.breakers.Reconfigure(breakers.spec())
	old.client.close() // a connection made under other rules is not used again
	return nil
}

// Allows reports whether an origin may be fetched from.
func (c *Cache) Allows(host string) bool { return c.policy.Load().allow.Allows(host) }

// Key is the cache key of a request, for Peek. It fails like Get, but counts
// nothing.
func (c *Cache) Key(r Request) (string, error) {
	t, err := c.policy.Load().target(r)
	if err != nil {
		return "", err
	}
	return t.key(), nil
}

// Get answers a request: from a fresh entry if there is one, otherwise with
// what the origin answers before ctx ends. The caller must close the answer.
//
// It fails with fault.RejectPolicy or Malformed if the request is not allowed,
// Busy if the queue of fills is full, RateLimited if Admit says so, Timeout,
// UpstreamFailed, RatioCap, IntegrityFail or StoreFull if the origin or its
// response is bad, BreakerOpen if the breaker of the origin is open, and
// NotReady if the cache is draining.
func (c *Cache) Get(ctx context.Context, r Request) (*Answer, error) {
	began := time.Now()
	p := c.policy.Load()
	t, err := p.target(r)
	if err != nil {
		return nil, c.countRefusal(err, Event{URL: redactedURL(r), Took: time.Since(began)})
	}
	if r.Admit == nil {
		r.Admit = func() error { return nil }
	}
	g := &getCall{cache: c, policy: p, header: r.Header, began: began, admit: r.Admit, fillRequest: fillRequest{
		target: t, key: t.key(), forwarded: p.forwarded(r.Header), member: ClientOf(r.Client), noStore: freshness.RequestDirectives(r.Header).NoStore,
	}}
	answer, err := g.run(ctx)
	if err != nil {
		return nil, c.countRefusal(err, Event{URL: t.redacted(), Status: statusOf(err), Took: time.Since(began)})
	}
	return answer, nil
}

// countRefusal counts a refusal, reports it to the audit, and returns the
// error.
func (c *Cache) countRefusal(err error, event Event) error {
	if event.Reason = reasonOf(err); event.Reason != "" {
		event.Type, event.Detail = EventRefused, fault.DetailOf(err)
		c.spec.Counters.Reject(event.Reason)
		c.spec.OnEvent(event)
	}
	return fault.Wrap(opGet, err)
}

// countRelayed counts a failure of the origin that is relayed to a client, and
// reports it to the audit.
func (c *Cache) countRelayed(event Event) {
	event.Type, event.Reason = EventRefused, ReasonUpstream
	c.spec.Counters.Reject(event.Reason)
	c.spec.OnEvent(event)
}

// find looks up an entry and marks it as used.
func (c *Cache) find(key string, sent http.Header) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.index.find(key, sent)
}

// open opens the body of an entry. It returns neither a handle nor an error if
// the store no longer has the body; the entry is removed then.
func (c *Cache) open(ctx context.Context, e *entry) (store.Handle, error) {
	handle, err := c.spec.Store.Open(ctx, e.address)
	switch fault.KindOf(err) {
	case 0:
		return handle, nil
	case fault.NotFound, fault.IntegrityFail:
		c.forget(e)
		return nil, nil
	default:
		return nil, err
	}
}

// forget removes an entry whose body is gone.
func (c *Cache) forget(e *entry) {
	c.mu.Lock()
	held := c.index.removeEntry(e)
	c.mu.Unlock()
	if held && c.files != nil {
		c.files.remove(e)
	}
}

// Next returns the next fill for a worker. It is the NextJob of a
// supervise.Pool.
func (c *Cache) Next(ctx context.Context) (supervise.Job, error) {
	for {
		var next [1]*flight
		if _, err := c.work.Take(ctx, next[:], 1); err != nil {
			return nil, err
		}
		f := next[0]
		if c.markStarted(f) {
			return &job{c, f}, nil
		}
		c.work.DoneBy(workBand, f.class, f.client.Load()) // it was completed meanwhile
	}
}

// Drain rejects new fills. Queued fills are still done, and entries are still
// served.
func (c *Cache) Drain() {
	c.draining.Store(true)
	c.work.Close()
}

// Close rejects new fills, fails those that are active, and closes idle
// connections. The caller closes the store.
func (c *Cache) Close() error {
	c.Drain()
	c.mu.Lock()
	active := make([]*flight, 0, len(c.flights.active))
	for f := range c.flights.active {
		active = append(active, f)
	}
	c.mu.Unlock()
	for _, f := range active {
		c.complete(f, outcome{err: drainingFault()})
	}
	for { // Take does not block on a closed queue
		var next [1]*flight
		if _, err := c.work.Take(context.Background(), next[:], 1); err != nil {
			break
		}
	}
	c.policy.Load().client.close()
	return nil
}

// Stats is what the cache holds.
type Stats struct {
	Entries int   // answers
	Bytes   int64 // of memory for them, without their bodies
	Flights int   // fills that are queued or under way
}

// Stats returns what the cache holds.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Entries: c.index.lru.Len(), Bytes: c.index.bytes, Flights: len(c.flights.active)}
}

// redactedURL is the URL in the event of a request without a valid target.
func redactedURL(r Request) string {
	const limit = 256
	text := "https://" + r.Host + r.Path
	if tokentext.Found(text) {
		return "https://…"
	}
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	return text
}
