package index

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/index/cache"
	"micronode/internal/index/rank"
	"micronode/internal/index/record"
)

// Options say what a caller accepts.
type Options struct {
	Stale bool   // an answer that is past its life, marked, rather than a new one
	From  uint64 // who asks, for fairness between clients; zero for this node itself
}

// Resolution is what an ID stands for, and who has it.
type Resolution struct {
	ID        record.ID
	Manifest  b3.Address    // what a name means; of an address, the address
	Source    record.Source // of the meaning of a name; of an address, of the providers
	At        time.Time     // when it was found out
	Stale     bool          // it is past its life
	Providers []rank.Ranked // the best first; of a name, there may be none
	Hedge     client.Hedge
}

// finding is what one step of the pipeline knows.
type finding struct {
	answer record.Answer
	source record.Source
	at     time.Time
	stale  bool
	hedge  client.Hedge
}

// quiet is the hedge of an answer for which nobody was asked.
var quiet = client.Hedge{Winner: "none"}

// Resolve finds out what an ID stands for and who has it, within the budget of
// the configuration and of ctx. It is NotFound if nobody who was asked knows,
// Timeout if the budget was used up before that was certain, and Busy if too
// many wait already.
func (x *Index) Resolve(ctx context.Context, id record.ID, o Options) (Resolution, error) {
	return x.resolve(ctx, x.settings.Load(), id, o)
}

// resolve is the pipeline: the registry's names, what this node has, what it
// remembers, and what others say, in this order and under one budget.
func (x *Index) resolve(ctx context.Context, under *settings, id record.ID, o Options) (r Resolution, err error) {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(under.DHT.deadline()))
	defer cancel()
	ctx, span := x.spec.Tracer.Start(ctx, "index.resolve")
	defer func() {
		x.metrics.resolved(r.Source, err, time.Since(began))
		span.SetAttributes(attribute.String("kind", id.Kind.String()), attribute.String("source", string(r.Source)))
		if err != nil {
			span.SetStatus(codes.Error, fault.KindOf(err).String())
		}
		span.End()
	}()
	if id.Kind == record.CID {
		return x.resolveAddress(ctx, under, id, o)
	}
	return x.resolveName(ctx, under, id, o)
}

// resolveAddress finds who has an object.
func (x *Index) resolveAddress(ctx context.Context, under *settings, id record.ID, o Options) (Resolution, error) {
	found, err := x.holders(ctx, under, id.Address, o, 1)
	if err == nil && len(found.answer.Providers) == 0 {
		err = nobody(id.String())
	}
	if err != nil {
		return Resolution{}, err
	}
	return x.resolution(id, id.Address, found, found.answer.Providers), nil
}

// resolveName finds what a name means, and then who has that. The meaning is
// worth an answer even if nobody can be found who has it.
func (x *Index) resolveName(ctx context.Context, under *settings, id record.ID, o Options) (Resolution, error) {
	manifest, meaning, err := x.meaning(ctx, under, id, o)
	if err != nil {
		return Resolution{}, err
	}
	found, err := x.holders(ctx, under, manifest, o, 1)
	switch fault.KindOf(err) {
	case fault.Busy, fault.Canceled:
		return Resolution{}, err
	}
	meaning.stale = meaning.stale || found.stale
	return x.resolution(id, manifest, meaning, found.answer.Providers), nil
}

func (x *Index) resolution(id record.ID, manifest b3.Address, found finding, providers []record.Provider) Resolution {
	return Resolution{ID: id, Manifest: manifest, Source: found.source, At: found.at, Stale: found.stale, Hedge: found.hedge,
		Providers: x.rank(providers, "", time.Now())}
}

// meaning finds what a name means. A name without a peer is the registry's or
// this node's own, and nobody else is asked for it.
func (x *Index) meaning(ctx context.Context, under *settings, id record.ID, o Options) (b3.Address, finding, error) {
	now := time.Now()
	if x.spec.Registry != nil && !id.Foreign {
		if manifest, _, ok := x.spec.Registry.Name(id.Name); ok {
			return manifest, finding{source: record.Registry, at: now, hedge: quiet}, nil
		}
	}
	if !id.Foreign || id.Of == x.self {
		if own, ok := x.names.lookup(id.Name); ok {
			return own.Manifest, finding{source: record.Local, at: now, hedge: quiet}, nil
		}
		return b3.Address{}, finding{}, noName(id.Name)
	}
	q := id.Question(x.self)
	found, err := x.learned(ctx, under, q, o)
	if err != nil {
		return b3.Address{}, finding{}, err
	}
	if found.answer.Name != nil {
		found.answer.Name = x.seen.newest(q, found.answer.Name, now) // what is remembered may be older than what was seen since
	}
	if found.answer.Name == nil {
		return b3.Address{}, finding{}, nobody(id.String())
	}
	return found.answer.Name.Manifest, found, nil
}

// holders finds who has an object. What this node has itself is said first; if
// that is enough, nobody is asked.
func (x *Index) holders(ctx context.Context, under *settings, address b3.Address, o Options, enough int) (finding, error) {
	has, err := x.has(ctx, address)
	if err != nil {
		return finding{}, err
	}
	if !has {
		return x.learned(ctx, under, record.Question{Kind: record.CID, Address: address}, o)
	}
	own := finding{source: record.Local, at: time.Now(), hedge: quiet, answer: record.Answer{Providers: []record.Provider{x.own()}}}
	if enough <= 1 {
		return own, nil
	}
	others, err := x.learned(ctx, under, record.Question{Kind: record.CID, Address: address}, o)
	if kind := fault.KindOf(err); kind == fault.Canceled {
		return finding{}, err
	}
	own.answer.Providers = append(own.answer.Providers, others.answer.Providers...)
	own.stale, own.hedge = others.stale, others.hedge
	if own.hedge.Winner == "" {
		own.hedge = quiet
	}
	return own, nil
}

// learned is what others have said, or say now. An empty answer means that
// nobody has it; an error, that this is not certain.
func (x *Index) learned(ctx context.Context, under *settings, q record.Question, o Options) (finding, error) {
	if found, ok := x.remembered(ctx, under, q, o); ok {
		return found, nil
	}
	l := x.discover(ctx, under, q, o.From)
	if l.hedge.Winner == "" {
		l.hedge = quiet
	}
	found := finding{answer: l.answer, source: l.source, at: l.at, hedge: l.hedge}
	switch {
	case l.err == nil || !l.empty(): // what was found in time is an answer, if not all that was wanted
		return found, nil
	case fault.KindOf(l.err) == fault.NoRoute:
		return finding{}, alone(q.String(), l.err)
	default:
		return finding{}, l.err
	}
}

// remembered looks into the cache. Who takes an old answer gets it at once, and
// a new one is looked for behind its back.
func (x *Index) remembered(ctx context.Context, under *settings, q record.Question, o Options) (finding, bool) {
	entry, fresh, ok := x.cache.Get(keyOf(q), time.Now())
	if !ok || !fresh && !o.Stale {
		x.metrics.misses.Inc()
		return finding{}, false
	}
	x.metrics.hits.Inc()
	if !fresh {
		x.board(ctx, under, q, o.From)
	}
	return recalled(entry, fresh), true
}

func recalled(entry cache.Entry, fresh bool) finding {
	return finding{answer: entry.Answer, source: record.Cache, at: entry.At, stale: !fresh, hedge: quiet}
}

// ProviderOptions say what is wanted of providers.
type ProviderOptions struct {
	Limit   int           // at most so many; zero stands for 20
	Region  string        // those of this region first
	Fresher time.Duration // heard of within this time; zero is at any time
	From    uint64        // as in Options
}

// Holders is who has an object.
type Holders struct {
	Address   b3.Address
	Source    record.Source // empty if nobody has it
	Providers []rank.Ranked // the best first
	Hedge     client.Hedge
}

// Providers finds who has an object, as many as the quorum asks for. That
// nobody has it is an answer.
func (x *Index) Providers(ctx context.Context, address b3.Address, o ProviderOptions) (h Holders, err error) {
	under, began := x.settings.Load(), time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(under.DHT.deadline()))
	defer cancel()
	ctx, span := x.spec.Tracer.Start(ctx, "index.providers")
	defer func() {
		x.metrics.resolved(h.Source, err, time.Since(began))
		if err != nil {
			span.SetStatus(codes.Error, fault.KindOf(err).String())
		}
		span.End()
	}()
	found, err := x.holders(ctx, under, address, Options{From: o.From}, under.DHT.Quorum)
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	if err != nil {
		return Holders{}, err
	}
	h = Holders{Address: address, Providers: x.choose(found.answer.Providers, o), Hedge: found.hedge}
	if h.Hedge.Winner == "" {
		h.Hedge = quiet
	}
	if len(found.answer.Providers) > 0 {
		h.Source = found.source
	}
	return h, nil
}

// choose takes the providers that somebody wants.
func (x *Index) choose(providers []record.Provider, o ProviderOptions) []rank.Ranked {
	now := time.Now()
	chosen := []rank.Ranked{}
	for _, one := range x.rank(providers, o.Region, now) {
		if o.Fresher > 0 && (one.Provider.Seen.IsZero() || now.Sub(one.Provider.Seen) > o.Fresher) {
			continue
		}
		if chosen = append(chosen, one); len(chosen) == limit(o.Limit) {
			break
		}
	}
	return chosen
}

const usualLimit = 20

func limit(n int) int {
	if n == 0 {
		return usualLimit
	}
	return n
}

func nobody(key string) error {
	err := fault.New("index.resolve", fault.NotFound, "nobody who was asked knows %s", key)
	err.Next = "Check the spelling. If it is new, wait until its provider has announced it, or add a peer that has it with `micronode peers add ID@HOST:PORT`."
	return err
}

// alone is for a node that knows nobody: what it does not have itself, it
// cannot find.
func alone(key string, cause error) error {
	return &fault.Error{Op: "index.resolve", Kind: fault.NotFound, Err: cause, Detail: key + " is not here, and there is nobody to ask",
		Next: "Add a peer with `micronode peers add ID@HOST:PORT`, bootstrap peers of the DHT in index.dht.bootstrap, or an endpoint in index.delegated."}
}

func noName(name string) error {
	err := fault.New("index.resolve", fault.NotFound, "neither the registry nor this node has the name %q", name)
	err.Next = "Set it with `micronode name set NAME b3:…`, or ask for another node's name as name:NAME@PEER-ID."
	return err
}
