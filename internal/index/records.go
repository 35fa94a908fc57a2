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

// has asks the store whether this node has an object. The store is the truth;
// the index keeps no list of its own that could differ from it.
func (x *Index) has(ctx context.Context, address b3.Address) (bool, error) {
	_, err := x.spec.Store.Stat(ctx, address)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil, fault.Wrap("index.local", err)
}

// own is this node as a provider.
func (x *Index) own() record.Provider {
	p := x.spec.Self()
	p.ID, p.Source, p.Seen = x.selfText, record.Local, time.Now()
	if p.Region == "" {
		p.Region = x.spec.Config.Region
	}
	return p
}

// Has is told of every object that was put into the store. What was remembered
// of it is forgotten, and it is announced. It never waits.
func (x *Index) Has(address b3.Address) {
	x.forget(record.Question{Kind: record.CID, Address: address})
	if x.spec.Engine != nil {
		x.offer(address)
	}
}

// nearlyFull is when the queue may be dropping: so many may push at the same
// moment, each seeing a place that the others take.
const nearlyFull = mostProvide - 256

// offer gives an object to the announcers. It is counted before it is there, so
// that what was dropped is never overlooked.
func (x *Index) offer(address b3.Address) {
	x.offered.Add(1)
	if x.provide.Len() >= nearlyFull {
		x.behind.Store(true)
	}
	_ = x.provide.TryPush(address) // a closed queue announces nothing any more
}

// forget drops what is remembered of a question, ready answers included.
func (x *Index) forget(q record.Question) {
	x.cache.Forget(keyOf(q))
	x.shelf.forget(q)
}

// Reindex has everything that this node has announced again, and says how many
// objects that are. It does not wait for it.
func (x *Index) Reindex() int64 {
	_ = x.rounds.TryPush(struct{}{}) // it takes every push until it is closed, and then nobody announces
	return x.spec.Store.Usage().Objects
}

// How announcing goes on.
const (
	provideTime  = 30 * time.Second       // for one object
	providePause = 100 * time.Millisecond // between two looks whether there is room for more
)

// announceAll is the Serve of the rounds: all objects are offered to the
// announcers at the start, at each interval, when somebody asks for it, and
// when so many came at once that some were dropped.
func (x *Index) announceAll(ctx context.Context) error {
	for {
		if err := x.round(ctx); err != nil && ctx.Err() == nil {
			x.audit(Event{Type: Failed, Detail: err.Error()})
		}
		if err := x.untilNextRound(ctx); err != nil {
			return nil // told to stop
		}
	}
}

// untilNextRound waits for a reason to start one.
func (x *Index) untilNextRound(ctx context.Context) error {
	turn, cancel := context.WithTimeout(ctx, x.spec.Config.ProvideInterval)
	defer cancel()
	_, _ = x.rounds.Pop(turn) // that the time is over is a reason like any other
	return flow.Ended(ctx, "index.rounds")
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// round offers all objects, one after the other, and leaves room for those that
// come meanwhile.
func (x *Index) round(ctx context.Context) error {
	x.taken.Store(x.offered.Load()) // whatever was dropped comes now
	for info, err := range store.Walk(ctx, x.spec.Store) {
		if err != nil {
			return fault.Wrap("index.rounds", err)
		}
		for x.provide.Len() > mostProvide/2 {
			if err := flow.Sleep(ctx, providePause); err != nil {
				return err
			}
		}
		x.offer(info.Address)
	}
	return nil
}

// nextObject gives an announcer the next object.
func (x *Index) nextObject(ctx context.Context) (supervise.Job, error) {
	address, err := x.provide.Pop(ctx)
	if err != nil {
		return nil, err
	}
	x.taken.Add(1)
	if x.provide.Len() == 0 && x.behind.Swap(false) && x.offered.Load() > x.taken.Load() {
		_ = x.rounds.TryPush(struct{}{}) // some were dropped, and only the store knows which
	}
	return announcement{x, address}, nil
}

// announcement is one object that is to be announced.
type announcement struct {
	index   *Index
	address b3.Address
}

// Run announces the object if it is still there.
func (a announcement) Run(ctx context.Context) {
	x := a.index
	if has, err := x.has(ctx, a.address); err != nil || !has {
		return
	}
	if !x.alive() {
		return // there is nobody to tell; the next round will
	}
	ctx, cancel := context.WithTimeout(ctx, provideTime)
	defer cancel()
	err := x.spec.Engine.Provide(ctx, a.address)
	if fault.KindOf(err) == fault.Canceled {
		return // told to stop
	}
	x.metrics.announced(err)
	if wasFailing := x.failing.Swap(err != nil); err != nil && !wasFailing { // one line, not one for each of a million objects
		x.audit(Event{Type: Failed, Key: a.address.String(), Detail: err.Error()})
	}
}

// Idempotent says that to announce twice does no harm.
func (a announcement) Idempotent() bool { return true }

// Abandon leaves it to the next round.
func (a announcement) Abandon(error) {}

// answerTime is how long a peer's question may take. Only the store may take
// any time at all.
const answerTime = 200 * time.Millisecond

// mostTold is how many providers a peer is told of.
const mostTold = 32

// Answer says what this node knows by itself, when a peer asks: what it has,
// and what it has heard from others at first hand. What a peer of the overlay
// said of a third is not passed on, or a rumour could live for ever between two
// nodes that ask each other. That goes for names, too: their records are signed,
// but an old one is as good a record as a new one.
func (x *Index) Answer(q record.Question) record.Answer {
	if q.Kind == record.ByName {
		return record.Answer{Name: x.knownName(q)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	var a record.Answer
	if has, err := x.has(ctx, q.Address); err == nil && has {
		a.Providers = append(a.Providers, x.own())
	}
	entry, fresh, ok := x.cache.Get(keyOf(q), time.Now())
	if !ok || !fresh {
		return a
	}
	for _, p := range entry.Answer.Providers {
		if p.Source != record.Peer && len(a.Providers) < mostTold {
			a.Providers = append(a.Providers, p)
		}
	}
	return a
}

// knownName is the record of a name that this node has signed, or has heard of
// from its owner or found in the DHT, as long as an answer counts.
func (x *Index) knownName(q record.Question) *record.Name {
	if q.Of == x.self {
		if own, ok := x.names.lookup(q.Name); ok {
			return own
		}
		return nil
	}
	now := time.Now()
	entry, _, ok := x.cache.Get(keyOf(q), now)
	hearsay := entry.Source == record.Peer && !entry.Near
	if !ok || entry.Answer.Name == nil || hearsay || now.Sub(entry.At) >= time.Duration(x.settings.Load().Cache.TTL) {
		return nil
	}
	return x.seen.newest(q, entry.Answer.Name, now)
}
