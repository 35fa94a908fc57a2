package index

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/cache"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/supervise"
)

const opLookup = "index.lookup"

// flight is one look-up, and the callers that wait for it.
//
//	join ──> queue "work" ──> worker ──> task of the group "look-up" ──> finish
//	  │ │          │                        ^                              ^
//	  │ │          └─ full: Busy ───────────│──────────────────────────────┤
//	  │ └─ its client has few look-ups ─────┘                              │
//	  └─ there is one already: wait for that                               │
//	                                 panic, drain, no free task ───────────┘
//
// It has a budget of its own, so that a caller that leaves does not cancel it
// for the others, and its result is cached even if no caller waits any more. It
// finishes exactly once.
type flight struct {
	// set at construction
	index       *Index
	key         flightKey
	clientClass uint64            // the client of the first caller
	deadline    time.Time         // end of its budget
	parentSpan  trace.SpanContext // of the first caller
	done        chan struct{}

	started        atomic.Bool // the look-up has been started
	invalidated    atomic.Bool // its key was invalidated meanwhile: no caller joins it, and its result is not cached
	hasSparePermit bool        // set when it is listed
	finished       bool        // guarded by flights.mu
	found          finding     // set before done is closed, read only after that
	err            error       // likewise; there may be a finding all the same
}

// flightKey identifies a flight. A caller with another configuration does not
// join: it would get an answer that its own configuration would not have given.
type flightKey struct {
	question record.Question
	cfg      *settings
}

// flights is all unfinished look-ups, and how many each client has.
//
// Half of the permits are for the workers, which take flights out of the queue;
// a client that floods the queue gets all of those sooner or later. The other
// half are spare. A client that has fewer look-ups than there are spare permits
// left starts at once and takes a spare permit; any other waits in the queue.
// So a single client gets at most half of the spare permits, a client that
// fills the queue gets none, and a client with few look-ups gets one unless
// very many clients ask at once.
type flights struct {
	mu          sync.Mutex            //lockblock:leaf map operations
	joinable    map[flightKey]*flight // guarded by mu: those that callers may join
	invalidated map[*flight]struct{}  // guarded by mu: the others
	perSettings map[*settings]int     // guarded by mu: size of joinable by configuration; never zero
	perClient   map[uint64]int        // guarded by mu: flights by client, waiting or running; never zero
	spare       int                   // guarded by mu: permits left for clients with few look-ups
	onEmpty     chan struct{}         // guarded by mu: closed when the last flight finishes; nil if there is no waiter
}

func newFlights(spare int) flights {
	return flights{joinable: map[flightKey]*flight{}, invalidated: map[*flight]struct{}{}, perSettings: map[*settings]int{}, perClient: map[uint64]int{}, spare: spare}
}

// join returns the flight of a key, or lists a new one, with a spare permit if
// its client is entitled to one.
func (fs *flights) join(key flightKey, newFlight func() *flight) (f *flight, isNew bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.joinable[key]; ok {
		return f, false
	}
	f = newFlight()
	fs.joinable[key] = f
	fs.perSettings[key.cfg]++
	if f.hasSparePermit = fs.perClient[f.clientClass] < fs.spare; f.hasSparePermit {
		fs.spare--
	}
	fs.perClient[f.clientClass]++
	return f, true
}

// invalidate detaches the look-ups of a question: no caller joins them any
// more, and their results are not cached.
func (fs *flights) invalidate(q record.Question) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for cfg := range fs.perSettings {
		if f, ok := fs.joinable[flightKey{q, cfg}]; ok {
			fs.detach(f)
		}
	}
}

// invalidateAll detaches all look-ups.
func (fs *flights) invalidateAll() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.joinable {
		fs.detach(f)
	}
}

// detach moves a flight to those that no caller may join. Guarded by mu.
func (fs *flights) detach(f *flight) {
	fs.remove(f)
	f.invalidated.Store(true)
	fs.invalidated[f] = struct{}{}
}

// remove removes a flight from the list. Guarded by mu.
func (fs *flights) remove(f *flight) {
	delete(fs.invalidated, f)
	if fs.joinable[f.key] != f {
		return
	}
	delete(fs.joinable, f.key)
	if fs.perSettings[f.key.cfg]--; fs.perSettings[f.key.cfg] == 0 {
		delete(fs.perSettings, f.key.cfg)
	}
}

// empty reports whether no flight is left. Guarded by mu.
func (fs *flights) empty() bool { return len(fs.joinable)+len(fs.invalidated) == 0 }

// releaseSpare releases a spare permit.
func (fs *flights) releaseSpare() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.spare++
}

// finish removes a flight from the list. It reports false if the flight was
// finished already.
func (fs *flights) finish(f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.finished {
		return false
	}
	f.finished = true
	fs.remove(f)
	if fs.perClient[f.clientClass]--; fs.perClient[f.clientClass] == 0 {
		delete(fs.perClient, f.clientClass)
	}
	if fs.empty() && fs.onEmpty != nil {
		close(fs.onEmpty)
		fs.onEmpty = nil
	}
	return true
}

// all lists the unfinished flights.
func (fs *flights) all() []*flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(fs.joinable)), maps.Keys(fs.invalidated))
}

// emptied returns a channel that is closed when no flight is left.
func (fs *flights) emptied() <-chan struct{} {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.onEmpty == nil {
		fs.onEmpty = make(chan struct{})
	}
	none := fs.onEmpty
	if fs.empty() {
		close(none)
		fs.onEmpty = nil
	}
	return none
}

// answerReserve is the part of a budget that remains when its look-up ends, to
// answer with what was found by then.
func answerReserve(budget time.Duration) time.Duration { return min(budget/10, 20*time.Millisecond) }

// workBand is the one band of the queue.
const workBand = 1

// joinFlight joins the look-up of a question, or starts one. It never waits.
//
// A flight with a spare permit starts at once. It is listed before closing is
// checked, so a drain either waits for it or is noticed here. Any other is
// queued for a worker. When the queue is full, a flight of the client with the
// most entries is rejected with Busy; most often that is the new one.
func (x *Index) joinFlight(ctx context.Context, cfg *settings, q record.Question, from uint64) *flight {
	key := flightKey{q, cfg}
	f, isNew := x.flights.join(key, func() *flight {
		budget := cfg.DHT.deadline()
		return &flight{index: x, key: key, clientClass: from, deadline: time.Now().Add(budget - answerReserve(budget)),
			parentSpan: trace.SpanContextFromContext(ctx), done: make(chan struct{})}
	})
	switch {
	case !isNew:
	case f.hasSparePermit && x.closing.Load():
		f.Abandon(x.queueRefusal())
	case f.hasSparePermit:
		f.Run(ctx)
	default:
		for _, rejected := range x.work.Offer(workBand, []flow.FairItem[*flight]{{Class: from, Cost: 1, Item: f}}, nil) {
			rejected.finish(finding{}, x.queueRefusal())
		}
	}
	return f
}

// queueRefusal is why the queue rejected a flight.
func (x *Index) queueRefusal() error {
	if x.closing.Load() {
		return fault.Wrap(opLookup, flow.ErrClosed)
	}
	return fault.New(opLookup, fault.Busy, "the queue of look-ups is full: %d wait", x.work.Len(workBand))
}

// nextFlight returns a worker's next flight, once another look-up may run. So
// look-ups wait in the queue, where they are counted, and a full queue rejects
// new ones at once. A look-up that has waited for half of its budget fails with
// Busy: its targets would most likely answer too late, at a cost to them and to
// look-ups that still have time.
func (x *Index) nextFlight(ctx context.Context) (supervise.Job, error) {
	if err := x.lookupPermits.Acquire(ctx); err != nil {
		return nil, err
	}
	var next [1]*flight
	for {
		if _, err := x.work.Take(ctx, next[:], 1); err != nil {
			x.lookupPermits.Release()
			return nil, err
		}
		if f := next[0]; time.Until(f.deadline) > f.key.cfg.DHT.deadline()/2 {
			return f, nil
		}
		next[0].finish(finding{}, fault.New(opLookup, fault.Busy, "the look-up waited in the queue for half of its deadline"))
	}
}

// drain lets accepted look-ups finish, as far as there is time. The queue is
// closed, so new ones are rejected. When the time is up, the rest fail.
func (x *Index) drain(ctx context.Context) error {
	x.closing.Store(true)
	x.work.Close()
	select {
	case <-x.flights.emptied():
		return nil
	case <-ctx.Done():
		x.failFlights()
		return flow.Ended(ctx, "index.drain")
	}
}

// failFlights fails all unfinished flights.
func (x *Index) failFlights() {
	for _, f := range x.flights.all() {
		f.finish(finding{}, fault.Wrap(opLookup, flow.ErrClosed))
	}
}

// Run starts the look-up. The worker does not wait for it. A worker that was
// killed at this very moment may run it again; then Run does nothing.
func (f *flight) Run(context.Context) {
	x := f.index
	if f.started.Swap(true) {
		return
	}
	if err := x.lookups.Go(f.lookup); err != nil {
		f.release()
		f.finish(finding{}, fault.Wrap(opLookup, err))
	}
}

// Idempotent reports that a flight may be started again after its worker died.
func (f *flight) Idempotent() bool { return true }

// Abandon fails a flight that was not started.
func (f *flight) Abandon(err error) {
	if !f.started.Swap(true) {
		f.release()
		f.finish(finding{}, err)
	}
}

// release releases the permit that the flight holds since it was listed, or was
// taken out of the queue.
func (f *flight) release() {
	if f.hasSparePermit {
		f.index.flights.releaseSpare()
	} else {
		f.index.lookupPermits.Release()
	}
}

// lookup runs the look-up: it asks the targets under the waves of hedge, caches
// what they answer, and wakes the callers.
func (f *flight) lookup(ctx context.Context) error {
	x, q, cfg := f.index, f.key.question, f.key.cfg
	defer f.release()
	defer f.finish(finding{}, fault.New(opLookup, fault.Internal, "the look-up was interrupted")) // takes effect only after a panic
	ctx, cancel := context.WithDeadline(ctx, f.deadline)
	defer cancel()
	ctx, span := x.spec.Tracer.Start(trace.ContextWithSpanContext(ctx, f.parentSpan), "index.lookup")
	defer span.End()

	x.budget.Earn()
	after := time.Duration(cfg.DHT.HedgeMS.Value) * time.Millisecond
	if cfg.DHT.HedgeMS.Auto {
		after = x.delay.After()
	}
	out, err := hedge.Run(ctx, x.racers, x.plan(cfg, q, f.clientClass, after, cfg.DHT.Quorum))
	x.recordOutcome(out, after)

	answer := out.Answer
	if len(answer.Providers) > maxProviders {
		answer.Providers = nil
		for _, one := range x.rank(out.Answer.Providers, "", time.Now())[:maxProviders] {
			answer.Providers = append(answer.Providers, one.Provider)
		}
	}
	if answer.Name != nil {
		// A replayed old record does not take effect: the newest that this node
		// has ever seen counts.
		x.recordSeen(ctx, answer.Name)
		answer.Name = x.seen.newest(q, answer.Name, time.Now())
	}
	found := finding{answer: answer, source: out.Source, fromOwner: out.OwnerAnswered, at: time.Now(), hedge: Hedge{Fired: out.Fired, Winner: out.Winner}}
	if out.Winner == hedge.Walk {
		found.hedge.Winner = hedge.None // clients know the two waves only
		if n := len(out.Answer.Providers); n > 0 {
			found.source = out.Answer.Providers[n-1].Source // a walk may have asked any peer
		}
	}
	if out.Answer.Name != nil {
		found.source = out.Answer.NamedBy
	}
	if err == nil && (out.Conclusive || !found.empty()) {
		x.cacheFinding(f, found)
	}
	span.SetAttributes(attribute.String("source", string(found.source)), attribute.String("winner", string(out.Winner)),
		attribute.Int("asked", out.Asked), attribute.Int("failed", out.Failed))
	if err != nil {
		span.SetStatus(codes.Error, fault.KindOf(err).String())
	}
	f.finish(found, err)
	return nil
}

// finish sets the result and wakes the waiters. The first call counts.
func (f *flight) finish(found finding, err error) {
	if f.index.flights.finish(f) {
		f.found, f.err = found, err
		close(f.done)
	}
}

// recordOutcome records how the targets of a look-up did, and counts it. A
// query that was cancelled because others were faster has not failed, and its
// breaker is informed only of a long silence; but a target that was silent for longer than usual
// ranks lower the next time. Otherwise a peer that never answers would be asked
// first for ever.
func (x *Index) recordOutcome(out hedge.Outcome, after time.Duration) {
	now := time.Now()
	for _, one := range out.Targets {
		if fault.KindOf(one.Err) != fault.Canceled || one.Took >= after {
			x.targets.observe(one.Key, one.Took, one.Err == nil, now)
		}
	}
	x.delay.Learn(out, after)
	x.metrics.lookups.Observe(float64(out.Took) / float64(time.Millisecond))
	x.metrics.retries.Add(float64(out.Retries))
	if out.Fired {
		x.metrics.hedges[out.Winner].Inc()
	}
}

// cacheFinding caches what a look-up has found, or that there is nothing, which
// is certain. A time-out or a full queue proves nothing, and is not cached.
//
// Invalidation marks the flight first and drops the entry second; here the
// entry is stored first and the mark checked second. So in every interleaving
// an invalidated entry stays away. A later, faster look-up may have its answer
// dropped with this one, which costs one look-up and nothing else.
func (x *Index) cacheFinding(f *flight, found finding) {
	entry := cache.Entry{Answer: found.answer, Source: found.source, FromOwner: found.fromOwner, At: found.at, Negative: found.empty()}
	if f.invalidated.Load() {
		return
	}
	key := keyOf(f.key.question)
	x.cache.Put(key, entry)
	if f.invalidated.Load() {
		x.cache.Forget(key)
	}
}

func keyOf(q record.Question) cache.Key { return cache.Key(q.String()) }
