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

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/cache"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/supervise"
)

// A flight is one look-up, and those who wait for it.
//
//	board ──> queue "work" ──> worker ──> task of the group "look-up" ──> land
//	  │ │          │                        ^                              ^
//	  │ │          └─ full: Busy ───────────│──────────────────────────────┤
//	  │ └─ its client has little in hand ───┘                              │
//	  └─ there is one already: wait for that                               │
//	                                 panic, drain, no free task ───────────┘
//
// It has a budget of its own, so that nobody who leaves takes the answer away
// from the others, and what was found is remembered even if nobody waits any
// more. It lands exactly once.
type flight struct {
	// set at construction
	index *Index
	key   flightKey
	from  uint64            // the client of the first who asked
	ends  time.Time         // when its budget is used up
	asked trace.SpanContext // of the first who asked
	done  chan struct{}

	begun  atomic.Bool // somebody has started the look-up
	spare  bool        // set when it is listed: it holds one of the spare permits
	landed bool        // guarded by flights.mu
	found  landing     // set before done is closed, read only after that
}

// flightKey tells flights apart. Who asks under another configuration does not
// join: it would get an answer that its own would not have given.
type flightKey struct {
	question record.Question
	under    *settings
}

// landing is how a flight ended.
type landing struct {
	answer record.Answer
	source record.Source
	near   bool // the owner of the name has shown its record
	at     time.Time
	hedge  client.Hedge
	err    error
}

// empty reports whether nothing was found.
func (l landing) empty() bool { return l.answer.Name == nil && len(l.answer.Providers) == 0 }

// flights is all look-ups that have not ended, and whose they are.
//
// Half of the permits are for the workers, who take flights out of the queue;
// whoever floods the queue has all of those sooner or later. The other half are
// spare. A client that has less in hand than there are spare ones left begins at
// once and takes one of them; any other waits in the queue. So a single client
// gets half of the spare ones at most, who has the queue full of its look-ups
// gets none, and for who asks now and then there is always one, unless very
// many do.
type flights struct {
	mu    sync.Mutex            //lockblock:leaf map operations
	aloft map[flightKey]*flight // guarded by mu
	hands map[uint64]int        // guarded by mu: how many of them each client has, waiting or under way; never zero
	spare int                   // guarded by mu: permits that are left for those who have little in hand
	none  chan struct{}         // guarded by mu: closed when the last one lands; nil if nobody waits for that
}

func newFlights(spare int) flights {
	return flights{aloft: map[flightKey]*flight{}, hands: map[uint64]int{}, spare: spare}
}

// board finds the flight of a key, or lists a new one, with a spare permit if
// its client may have one.
func (fs *flights) board(key flightKey, launch func() *flight) (f *flight, isNew bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.aloft[key]; ok {
		return f, false
	}
	f = launch()
	fs.aloft[key] = f
	if f.spare = fs.hands[f.from] < fs.spare; f.spare {
		fs.spare--
	}
	fs.hands[f.from]++
	return f, true
}

// giveBack takes back a spare permit.
func (fs *flights) giveBack() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.spare++
}

// land takes a flight off the list. It reports false if somebody was first.
func (fs *flights) land(f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.landed {
		return false
	}
	f.landed = true
	delete(fs.aloft, f.key)
	if fs.hands[f.from]--; fs.hands[f.from] == 0 {
		delete(fs.hands, f.from)
	}
	if len(fs.aloft) == 0 && fs.none != nil {
		close(fs.none)
		fs.none = nil
	}
	return true
}

// all lists those that have not ended.
func (fs *flights) all() []*flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Collect(maps.Values(fs.aloft))
}

// over is closed when no flight is left.
func (fs *flights) over() <-chan struct{} {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.none == nil {
		fs.none = make(chan struct{})
	}
	none := fs.none
	if len(fs.aloft) == 0 {
		close(none)
		fs.none = nil
	}
	return none
}

// reserve is what is left of a budget when its look-up ends, to answer with
// what was found by then.
func reserve(budget time.Duration) time.Duration { return min(budget/10, 20*time.Millisecond) }

// workBand is the one band of the queue.
const workBand = 1

// board joins the look-up of a question, or has one started. It never waits.
func (x *Index) board(ctx context.Context, under *settings, q record.Question, from uint64) *flight {
	key := flightKey{q, under}
	f, isNew := x.flights.board(key, func() *flight {
		budget := under.DHT.deadline()
		return &flight{index: x, key: key, from: from, ends: time.Now().Add(budget - reserve(budget)),
			asked: trace.SpanContextFromContext(ctx), done: make(chan struct{})}
	})
	switch {
	case !isNew:
	case f.spare:
		x.beginNow(ctx, f)
	default:
		x.queue(f)
	}
	return f
}

// beginNow starts a flight that has a spare permit. It was listed before it is
// asked whether the index closes, so a drain either waits for it or was noticed.
func (x *Index) beginNow(ctx context.Context, f *flight) {
	if x.closing.Load() {
		f.Abandon(x.turnedAway())
		return
	}
	f.Run(ctx)
}

// queue has a flight wait for a worker. When the queue is full, whoever has most
// in it gives way, and is told Busy; most often that is the one who comes.
func (x *Index) queue(f *flight) {
	for _, turned := range x.work.Offer(workBand, []flow.Parcel[*flight]{{Class: f.from, Cost: 1, Item: f}}, nil) {
		turned.land(landing{err: x.turnedAway()})
	}
}

// turnedAway is why a flight has no place in the queue.
func (x *Index) turnedAway() error {
	if x.closing.Load() {
		return fault.Wrap("index.lookup", flow.ErrClosed)
	}
	return fault.New("index.lookup", fault.Busy, "%d look-ups wait already", mostWaiting)
}

// discover has a question looked up and waits for the answer until ctx ends. A
// look-up that others had begun may run out of time while the caller has some
// left; then it gets another one.
func (x *Index) discover(ctx context.Context, under *settings, q record.Question, from uint64) landing {
	for {
		f := x.board(ctx, under, q, from)
		select {
		case <-f.done:
			left, limited := flow.Remaining(ctx)
			if fault.KindOf(f.found.err) == fault.Timeout && f.found.empty() && limited && left > 2*reserve(under.DHT.deadline()) {
				continue
			}
			return f.found
		case <-ctx.Done():
			return landing{err: flow.Ended(ctx, "index.lookup")}
		}
	}
}

// nextFlight gives a worker its next flight, once another look-up may be under
// way. So those who wait, wait in the queue, where they are counted, and the
// one who comes too many is told at once. Who has waited for half of its budget
// is told to come again: what it would ask others then, they would most likely
// answer too late, and that would cost them, and those who still have time.
func (x *Index) nextFlight(ctx context.Context) (supervise.Job, error) {
	if err := x.aloft.Acquire(ctx); err != nil {
		return nil, err
	}
	var next [1]*flight
	for {
		if _, err := x.work.Take(ctx, next[:], 1); err != nil {
			x.aloft.Release()
			return nil, err
		}
		if f := next[0]; time.Until(f.ends) > f.key.under.DHT.deadline()/2 {
			return f, nil
		}
		next[0].land(landing{err: fault.New("index.lookup", fault.Busy, "it waited for half of its budget before its turn came")})
	}
}

// drain lets the look-ups that were taken end, in so far as there is time. No
// new ones are: the queue is closed. When there is no time left, those who wait
// are told.
func (x *Index) drain(ctx context.Context) error {
	x.closing.Store(true)
	x.work.Close()
	select {
	case <-x.flights.over():
		return nil
	case <-ctx.Done():
		x.callOff()
		return flow.Ended(ctx, "index.drain")
	}
}

// callOff tells all who wait that there will be no answer.
func (x *Index) callOff() {
	for _, f := range x.flights.all() {
		f.land(landing{err: fault.Wrap("index.lookup", flow.ErrClosed)})
	}
}

// Run starts the look-up. The worker does not wait for it. A worker that was
// killed in this very moment may try again, and then there is nothing to do.
func (f *flight) Run(context.Context) {
	x := f.index
	if f.begun.Swap(true) {
		return
	}
	if err := x.lookups.Go(f.fly); err != nil {
		f.release()
		f.land(landing{err: fault.Wrap("index.lookup", err)})
	}
}

// Idempotent says that a flight may be started again after its worker died.
func (f *flight) Idempotent() bool { return true }

// Abandon tells those who wait that nobody will look.
func (f *flight) Abandon(err error) {
	if !f.begun.Swap(true) {
		f.release()
		f.land(landing{err: err})
	}
}

// release gives back the permit that the flight holds: from the moment it was
// listed, or was taken out of the queue.
func (f *flight) release() {
	if f.spare {
		f.index.flights.giveBack()
	} else {
		f.index.aloft.Release()
	}
}

// fly is the look-up.
func (f *flight) fly(ctx context.Context) error {
	x := f.index
	defer f.release()
	defer f.land(landing{err: fault.New("index.lookup", fault.Internal, "the look-up broke off")}) // of interest only after a panic
	ctx, cancel := context.WithDeadline(ctx, f.ends)
	defer cancel()
	ctx, span := x.spec.Tracer.Start(trace.ContextWithSpanContext(ctx, f.asked), "index.lookup")
	defer span.End()

	q, under := f.key.question, f.key.under
	x.budget.Earn()
	after := x.after(under)
	out, err := hedge.Run(ctx, x.racers, x.plan(under, q, after))
	x.learn(out, after)
	found := landing{answer: x.settle(ctx, q, out.Answer), source: sourceOf(out), near: out.Final, at: time.Now(), err: err,
		hedge: client.Hedge{Fired: out.Fired, Winner: winner(out)}}
	x.remember(q, found, out.Conclusive)
	span.SetAttributes(attribute.String("source", string(found.source)), attribute.String("winner", string(out.Winner)),
		attribute.Int("asked", out.Asked), attribute.Int("failed", out.Failed))
	if err != nil {
		span.SetStatus(codes.Error, fault.KindOf(err).String())
	}
	f.land(found)
	return nil
}

// winner is the wave that won, as it is shown: what the rest found after both
// had asked was won by neither.
func winner(out hedge.Outcome) string {
	if out.Winner == hedge.Walk {
		return string(hedge.None)
	}
	return string(out.Winner)
}

// land ends the flight for those who wait. The first one counts.
func (f *flight) land(l landing) {
	if f.index.flights.land(f) {
		f.found = l
		close(f.done)
	}
}

// learn takes what a look-up taught about targets, and counts it. Who was cut
// off because others were faster has not failed, and its breaker hears nothing
// of it; but who had been silent for longer than is usual stands further back
// in line the next time. Otherwise a peer that never answers would be asked
// first for ever.
func (x *Index) learn(out hedge.Outcome, after time.Duration) {
	now := time.Now()
	for _, one := range out.Targets {
		if fault.KindOf(one.Err) != fault.Canceled || one.Took >= after {
			x.targets.note(one.Key, one.Took, one.Err == nil, now)
		}
	}
	x.delay.Learn(out, after)
	x.metrics.lookedUp(out)
}

// sourceOf is where the answer comes from. A walk may have asked anybody, and
// what it found says so itself.
func sourceOf(out hedge.Outcome) record.Source {
	if out.Answer.Name != nil {
		return out.Answer.NamedBy
	}
	if out.Winner == hedge.Walk && len(out.Answer.Providers) > 0 {
		return out.Answer.Providers[len(out.Answer.Providers)-1].Source
	}
	return out.Source
}

// settle makes an answer of what was found: of many providers the best, and of
// all records of a name that this node has ever seen the newest. So who repeats
// an old record does not bring it back.
func (x *Index) settle(ctx context.Context, q record.Question, a record.Answer) record.Answer {
	if len(a.Providers) > mostProviders {
		ranked := x.rank(a.Providers, "", time.Now())
		a.Providers = a.Providers[:0:0]
		for _, one := range ranked[:mostProviders] {
			a.Providers = append(a.Providers, one.Provider)
		}
	}
	if a.Name != nil {
		x.witness(ctx, a.Name)
		a.Name = x.seen.newest(q, a.Name, time.Now())
	}
	return a
}

// remember keeps what was found: an answer, or that there is none, if that is
// certain. That there was no time, or no room, says nothing.
func (x *Index) remember(q record.Question, l landing, conclusive bool) {
	entry := cache.Entry{Answer: l.answer, Source: l.source, Near: l.near, At: l.at, Fired: l.hedge.Fired, Winner: l.hedge.Winner}
	switch {
	case l.err != nil:
		return
	case !l.empty():
	case conclusive:
		entry.Negative = true
	default:
		return
	}
	x.cache.Put(keyOf(q), entry)
}

func keyOf(q record.Question) cache.Key { return cache.Key(q.String()) }
