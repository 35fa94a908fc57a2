package fill

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// Spec is what a cache is made of.
type Spec struct {
	Config Config
	Cache  CacheConfig
	Allow  []string // the origins that may be asked; see ParseAllow

	// Store is where bodies lie. It is the cache's own: its budget is the quota,
	// and everything in it is Cached.
	Store store.Store

	// Fleeting is where the bodies of answers lie that must not be kept, or that
	// the Store fails to keep, for as long as somebody reads them. Nil is Store.
	// With a Store on disk it should be one in RAM: what says no-store has no
	// business on a disk, and a disk may be full.
	Fleeting store.Store

	// Folder is where the cache remembers what it holds, so that a restart does
	// not empty it. Empty in amnesia: then nothing touches the disk.
	Folder  string
	Amnesia bool

	Admit    func() error // asked before a miss is queued; nil admits all
	Note     func(Event)  // must not block; nil hears nothing
	Counters Counters

	dial dialer // of tests
}

// Cache is a shared HTTP cache in front of origins.
type Cache struct {
	// set at construction
	spec    Spec
	policy  *flow.Snapshot[*policy]
	work    *flow.Queue[*flight]
	records *records // nil in amnesia

	failing atomic.Pointer[failure] // how the store failed lately; nil if it did not

	mu      sync.Mutex //lockblock:leaf maps and lists only; nothing is called that waits
	index   *index
	flights flights
}

// failure is why the store does not keep what it is given, and until when that is
// believed.
type failure struct {
	err   error
	until time.Time
}

// storeFails is why the store is not tried now; nil if it is.
func (c *Cache) storeFails() error {
	if last := c.failing.Load(); last != nil && time.Now().Before(last.until) {
		return last.err
	}
	return nil
}

const (
	service = "edge"
	opGet   = "edge.get"
	opFill  = "edge.fill"

	workCap = 512 // fills that wait for a worker

	// How often somebody waits for somebody else's fill before it fetches for
	// itself.
	patience = 3

	// How long it is remembered that the answers of a key cannot be kept, and
	// that a refresh failed.
	lonelyFor = 10 * time.Second
	restFor   = time.Second

	// How long it is remembered that the store fails to keep what it is given.
	// Meanwhile answers are given out and forgotten, and no origin is asked twice.
	failingFor = 10 * time.Second
)

// New makes a cache, with what the folder remembers. It runs nothing: a pool of
// workers pulls from Next, and WarmUp is a service.
func New(inv *flow.Inventory, spec Spec) (*Cache, error) {
	const op = "edge.cache"
	if spec.Amnesia && spec.Folder != "" {
		return nil, fault.New(op, fault.Malformed, "in amnesia there is no folder to remember in")
	}
	if spec.Fleeting == nil {
		spec.Fleeting = spec.Store
	}
	if spec.Admit == nil {
		spec.Admit = func() error { return nil }
	}
	if spec.Note == nil {
		spec.Note = func(Event) {}
	}
	spec.Counters = spec.Counters.orNothing()
	first, err := newPolicy(spec.Config, spec.Allow, spec.dial)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	c := &Cache{
		spec:    spec,
		policy:  flow.NewSnapshot(inv, flow.SnapshotSpec{Service: service, Name: "fill_policy", From: "config reload", To: "cache, workers, warm-up"}, first),
		work:    flow.NewQueue[*flight](inv, flow.QueueSpec{Service: service, Name: "work", Cap: workCap, Policy: flow.RejectNew, From: "handlers, warm-up", To: "edge worker"}),
		index:   newIndex(spec.Cache.MaxEntries, indexBytes),
		flights: newFlights(),
	}
	if spec.Folder != "" {
		if err := c.restore(); err != nil {
			first.origin.close()
			return nil, fault.Wrap(op, err)
		}
	}
	return c, nil
}

// Reconfigure replaces the policy and the list of origins. What is held stays;
// what is no longer allowed is no longer served.
func (c *Cache) Reconfigure(config Config, allow []string) error {
	next, err := newPolicy(config, allow, c.spec.dial)
	if err != nil {
		return fault.Wrap("edge.reconfigure", err)
	}
	old := c.policy.Load()
	c.policy.Store(next)
	old.origin.close() // a connection made under other rules is not used again
	return nil
}

// Allows reports whether an origin may be asked.
func (c *Cache) Allows(host string) bool { return c.policy.Load().allow.Allows(host) }

// Key is what a request's object is kept under, for Peek. It fails like Get,
// but counts nothing.
func (c *Cache) Key(r Request) (string, error) {
	t, err := c.policy.Load().target(r)
	if err != nil {
		return "", err
	}
	return t.key(), nil
}

// Get answers a request: from what is here if that is fresh, otherwise with
// what the origin says, as far as that comes before ctx ends. The answer must
// be closed.
//
// It fails with fault.RejectPolicy or Malformed if this may not be asked for,
// Busy if too many fills wait, RateLimited if Admit says so, Timeout,
// UpstreamFailed, RatioCap, IntegrityFail or StoreFull if the origin or its
// answer is no good, and NotReady if the cache is draining.
func (c *Cache) Get(ctx context.Context, r Request) (*Answer, error) {
	began := time.Now()
	p := c.policy.Load()
	t, err := p.target(r)
	if err != nil {
		return nil, c.refused(err, Event{URL: shownRequest(r), Took: time.Since(began)})
	}
	q := &query{cache: c, policy: p, header: r.Header, order: order{
		target: t, key: t.key(), sent: p.sent(r.Header), secret: freshness.RequestDirectives(r.Header).NoStore,
	}}
	answer, err := q.answer(ctx)
	if err != nil {
		return nil, c.refused(err, Event{URL: t.shown(), Status: statusOf(err), Took: time.Since(began)})
	}
	return answer, nil
}

// refused counts a refusal, tells the audit, and returns the error.
func (c *Cache) refused(err error, event Event) error {
	if event.Reason = reasonOf(err); event.Reason != "" {
		event.Type = EventRefused
		c.spec.Counters.Reject(event.Reason)
		c.spec.Note(event)
	}
	return fault.Wrap(opGet, err)
}

// find looks an entry up and counts it as used.
func (c *Cache) find(key string, sent http.Header) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.index.find(key, sent)
}

// open opens the body of an entry. There is neither a handle nor an error if
// the store does not have it any more; then the entry is forgotten.
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

// forget takes an entry out whose body is gone.
func (c *Cache) forget(e *entry) {
	c.mu.Lock()
	held := c.index.drop(e)
	c.mu.Unlock()
	if held && c.records != nil {
		c.records.remove(e)
	}
}

// Next gives a worker its next fill. It is for the Next of a supervise.Pool.
func (c *Cache) Next(ctx context.Context) (supervise.Job, error) {
	f, err := c.work.Pop(ctx)
	if err != nil {
		return nil, err
	}
	return &job{c, f}, nil
}

// Drain refuses new fills. Those that wait are still done, and what is here is
// still served.
func (c *Cache) Drain() { c.work.Close() }

// Close refuses new fills, tells everybody who still waits, and lets go of the
// connections. The store is the caller's to close.
func (c *Cache) Close() error {
	c.work.Close()
	c.mu.Lock()
	left := make([]*flight, 0, len(c.flights.aloft))
	for f := range c.flights.aloft {
		left = append(left, f)
	}
	c.mu.Unlock()
	for _, f := range left {
		c.settle(f, outcome{err: draining()})
	}
	for {
		if _, more := c.work.TryPop(); !more {
			break
		}
	}
	c.policy.Load().origin.close()
	return nil
}

// Stats is what the cache holds.
type Stats struct {
	Entries int   // answers
	Bytes   int64 // of memory for them, without their bodies
	Flights int   // fills that wait or are under way
}

// Stats tells what the cache holds.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Entries: c.index.recent.Len(), Bytes: c.index.bytes, Flights: len(c.flights.aloft)}
}

// shownRequest is what is told of a request that has no proper URL.
func shownRequest(r Request) string {
	const enough = 256
	text := "https://" + r.Host + r.Path
	if len(text) > enough {
		text = text[:enough] + "…"
	}
	return text
}
