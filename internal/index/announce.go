package index

import (
	"context"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/record"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// hasObject asks the store whether this node has an object. The store is
// authoritative; the index keeps no list of its own that could differ from it.
func (x *Index) hasObject(ctx context.Context, address b3.Address) (bool, error) {
	_, err := x.spec.Store.Stat(ctx, address)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil, fault.Wrap("index.local", err)
}

// selfProvider is this node as a provider.
func (x *Index) selfProvider() record.Provider {
	p := x.spec.Self()
	p.ID, p.Source, p.Seen = x.selfText, record.Local, time.Now()
	if p.Region == "" {
		p.Region = x.spec.Config.Region
	}
	return p
}

// ObjectAdded is called for every object that was put into the store. Cached
// answers for it are invalidated, and it is announced. It never waits.
func (x *Index) ObjectAdded(address b3.Address) {
	x.forget(record.Question{Kind: record.CID, Address: address})
	if x.spec.Engine != nil {
		x.enqueueAnnounce(address)
	}
}

// announceHighWater is when the queue may be dropping: so many may push at the
// same moment, each seeing space that the others take.
const announceHighWater = maxProvide - 256

// enqueueAnnounce enqueues an object for the announcers. It is counted before
// it is enqueued, so that a drop is never overlooked.
func (x *Index) enqueueAnnounce(address b3.Address) {
	x.announceQueued.Add(1)
	if x.announceQueue.Len() >= announceHighWater {
		x.announceMayHaveDropped.Store(true)
	}
	_ = x.announceQueue.TryPush(address) // a closed queue announces nothing
}

// forget invalidates the answers to a question, prepared ones included.
// Look-ups in progress still reach their callers, but are not cached.
func (x *Index) forget(q record.Question) {
	x.flights.invalidate(q)
	x.cache.Forget(keyOf(q))
	x.answerCache.forget(q)
}

// forgetAll invalidates the answers to all questions.
func (x *Index) forgetAll() {
	x.flights.invalidateAll()
	x.cache.Clear()
	x.answerCache.clear()
}

// Reindex requests a round that announces all objects of this node, and returns
// their number. It does not wait for the round.
func (x *Index) Reindex() int64 {
	x.roundSignal.Set()
	return x.spec.Store.Usage().Objects
}

// Timing of announcements.
const (
	announceTimeout      = 30 * time.Second       // for one object
	announcePollInterval = 100 * time.Millisecond // between two checks for space in the queue
)

// runAnnounceRounds enqueues all objects for the announcers: at the start, at
// each interval, on request, and when some may have been dropped.
func (x *Index) runAnnounceRounds(ctx context.Context) error {
	for {
		if err := x.announceRound(ctx); err != nil && ctx.Err() == nil {
			x.audit(Event{Type: Failed, Detail: err.Error()})
		}
		if err := x.waitNextRound(ctx); err != nil {
			return nil // stopped
		}
	}
}

// waitNextRound waits for a reason to start a round.
func (x *Index) waitNextRound(ctx context.Context) error {
	turn, cancel := context.WithTimeout(ctx, x.spec.Config.ProvideInterval)
	defer cancel()
	_ = x.roundSignal.Wait(turn) // the end of the interval is a reason, too
	return flow.Ended(ctx, "index.rounds")
}

// announceRound enqueues all objects, one after the other, and leaves space for
// new ones.
func (x *Index) announceRound(ctx context.Context) error {
	x.announceTaken.Store(x.announceQueued.Load()) // this round covers whatever was dropped
	for info, err := range store.Walk(ctx, x.spec.Store) {
		if err != nil {
			return fault.Wrap("index.rounds", err)
		}
		for x.announceQueue.Len() > maxProvide/2 {
			if err := flow.Sleep(ctx, announcePollInterval); err != nil {
				return err
			}
		}
		x.enqueueAnnounce(info.Address)
	}
	return nil
}

// nextAnnouncement returns the next object for an announcer.
func (x *Index) nextAnnouncement(ctx context.Context) (supervise.Job, error) {
	address, err := x.announceQueue.Pop(ctx)
	if err != nil {
		return nil, err
	}
	x.announceTaken.Add(1)
	if x.announceQueue.Len() == 0 && x.announceMayHaveDropped.Swap(false) && x.announceQueued.Load() > x.announceTaken.Load() {
		x.roundSignal.Set() // some were dropped, and only the store knows which
	}
	return announcement{x, address}, nil
}

// announcement is one object to announce.
type announcement struct {
	index   *Index
	address b3.Address
}

// Run announces the object if it is still there.
func (a announcement) Run(ctx context.Context) {
	x := a.index
	if has, err := x.hasObject(ctx, a.address); err != nil || !has {
		return
	}
	if !x.dhtAlive() {
		return // there are no peers to announce to; the next round does it
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	err := x.spec.Engine.Provide(ctx, a.address)
	if fault.KindOf(err) == fault.Canceled {
		return // stopped
	}
	x.metrics.announced(err)
	if wasFailing := x.announceFailing.Swap(err != nil); err != nil && !wasFailing { // one event, not one for each of a million objects
		x.audit(Event{Type: Failed, Key: a.address.String(), Detail: err.Error()})
	}
}

// Idempotent reports that announcing twice is harmless.
func (a announcement) Idempotent() bool { return true }

// Abandon leaves it to the next round.
func (a announcement) Abandon(error) {}

// answerTimeout is how long a peer's question may take. Only the store takes
// noticeable time.
const answerTimeout = 200 * time.Millisecond

// maxAnswerProviders is the maximum number of providers in an answer to a peer.
const maxAnswerProviders = 32

// Answer returns what this node knows first-hand, for a question of a peer:
// what it has or is fetching, and what it learned directly. What a peer of the overlay said of
// a third is not passed on; otherwise an outdated answer could circulate for
// ever between two nodes that ask each other. That applies to names, too: their
// records are signed, but an old record is as valid as a new one.
func (x *Index) Answer(q record.Question) record.Answer {
	if q.Kind == record.ByName {
		return record.Answer{Name: x.knownName(q)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	var a record.Answer
	has, err := x.hasObject(ctx, q.Address)
	if t, _ := x.arrivals.find(q.Address); err == nil && (has || t != nil) { // what is here of it already is passed on
		a.Providers = append(a.Providers, x.selfProvider())
	}
	entry, fresh, ok := x.cache.Get(keyOf(q), time.Now())
	if !ok || !fresh {
		return a
	}
	for _, p := range entry.Answer.Providers {
		if p.Source != record.Peer && len(a.Providers) < maxAnswerProviders {
			a.Providers = append(a.Providers, p)
		}
	}
	return a
}

// knownName is the record of a name that this node has signed, has from its
// owner, or has found in the DHT, as long as it is fresh.
func (x *Index) knownName(q record.Question) *record.Name {
	if q.Owner == x.self {
		if own, ok := x.names.lookup(q.Name); ok {
			return own
		}
		return nil
	}
	now := time.Now()
	entry, _, ok := x.cache.Get(keyOf(q), now)
	hearsay := entry.Source == record.Peer && !entry.FromOwner
	if !ok || entry.Answer.Name == nil || hearsay || now.Sub(entry.At) >= time.Duration(x.settings.Load().Cache.TTL) {
		return nil
	}
	return x.seen.newest(q, entry.Answer.Name, now)
}
