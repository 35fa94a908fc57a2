package index

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/hedge"
	"micronode/internal/index/rank"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
)

const opResolve = "index.resolve"

// Options configures a resolution.
type Options struct {
	Stale       bool   // accept an expired answer, marked, instead of a new look-up
	ClientClass uint64 // the client, for fairness between clients; zero for this node itself
}

// Resolution is the address that an ID stands for, and its providers.
type Resolution struct {
	ID        record.ID
	Manifest  b3.Address    // of a name, its value; of an address, the address
	Source    record.Source // of the value of a name; of an address, of the providers
	At        time.Time     // when it was found
	Stale     bool          // it has expired
	Providers []rank.Ranked // best first; of a name, possibly empty
	Hedge     Hedge
}

// Hedge reports whether a second wave of requests was sent, and which one won.
type Hedge struct {
	Fired  bool
	Winner hedge.Wave // Alpha, Beta or None: a walk is not shown
}

// finding is what a step of the pipeline has found.
type finding struct {
	answer    record.Answer
	source    record.Source
	fromOwner bool // the record came from the owner of the name
	at        time.Time
	stale     bool
	hedge     Hedge // zero without a look-up
}

// empty reports whether nothing was found.
func (f *finding) empty() bool { return f.answer.Name == nil && len(f.answer.Providers) == 0 }

// Resolve finds the address that an ID stands for and its providers, within the
// budget of the configuration and of ctx. It returns NotFound if no target that
// was asked knows it, Timeout if the budget expired before that was certain,
// and Busy if too many look-ups are waiting.
//
// It is the pipeline: the registry's names, what this node has, the cache, and
// discovery, in this order and under one budget. The manifest of a name is
// returned even if no provider is found.
func (x *Index) Resolve(ctx context.Context, id record.ID, o Options) (r Resolution, err error) {
	cfg, began := x.settings.Load(), time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(cfg.DHT.deadline()))
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
	manifest, meaning := id.Address, finding{}
	if id.Kind != record.CID {
		if manifest, meaning, err = x.resolveManifest(ctx, cfg, id, o); err != nil {
			return Resolution{}, err
		}
	}
	found, err := x.lookupProviders(ctx, cfg, manifest, o, 1)
	switch kind := fault.KindOf(err); {
	case id.Kind == record.CID:
		if err == nil && len(found.answer.Providers) == 0 {
			err = notFoundError(id.String())
		}
		meaning = found
	case kind != fault.Busy && kind != fault.Canceled:
		err, meaning.stale = nil, meaning.stale || found.stale
	}
	if err != nil {
		return Resolution{}, err
	}
	r = Resolution{ID: id, Manifest: manifest, Source: meaning.source, At: meaning.at, Stale: meaning.stale, Hedge: meaning.hedge,
		Providers: x.rank(found.answer.Providers, "", time.Now())}
	r.Hedge.Winner = cmp.Or(r.Hedge.Winner, hedge.None)
	return r, nil
}

// Manifest resolves a name or an address.
func (x *Index) Manifest(ctx context.Context, text string) (b3.Address, error) {
	id, err := record.ParseID(text)
	if err != nil {
		return b3.Address{}, err
	}
	found, err := x.Resolve(ctx, id, Options{})
	return found.Manifest, err
}

// resolveManifest finds the manifest of a name. A name without a peer is the
// registry's or this node's own, and is not looked up elsewhere.
func (x *Index) resolveManifest(ctx context.Context, cfg *settings, id record.ID, o Options) (b3.Address, finding, error) {
	now := time.Now()
	if x.spec.Registry != nil && !id.Foreign {
		if manifest, _, ok := x.spec.Registry.Name(id.Name); ok {
			x.versions.means(id.Name, manifest)
			return manifest, finding{source: record.Registry, at: now}, nil
		}
	}
	if !id.Foreign || id.Owner == x.self {
		if own, ok := x.names.lookup(id.Name); ok {
			return own.Manifest, finding{source: record.Local, at: now}, nil
		}
		return b3.Address{}, finding{}, fault.New(opResolve, fault.NotFound, "neither the registry nor this node has the name %q", id.Name).
			Advise("Set it with `micronode name set NAME b3:…`, or ask for another node's name as name:NAME@PEER-ID.")
	}
	q := id.Question(x.self)
	found, err := x.askOthers(ctx, cfg, q, o)
	if err != nil {
		return b3.Address{}, finding{}, err
	}
	if found.answer.Name != nil {
		found.answer.Name = x.seen.newest(q, found.answer.Name, now) // the cached record may be older than one seen since
	}
	if found.answer.Name == nil {
		return b3.Address{}, finding{}, notFoundError(id.String())
	}
	return found.answer.Name.Manifest, found, nil
}

// lookupProviders finds the providers of an object. This node comes first if it
// has the object; if that is enough, no target is asked.
func (x *Index) lookupProviders(ctx context.Context, cfg *settings, address b3.Address, o Options, enough int) (finding, error) {
	has, err := x.hasObject(ctx, address)
	if err != nil {
		return finding{}, err
	}
	own := finding{source: record.Local, at: time.Now()}
	if has {
		own.answer.Providers = []record.Provider{x.selfProvider()}
		if enough <= 1 {
			return own, nil
		}
	}
	others, err := x.askOthers(ctx, cfg, record.Question{Kind: record.CID, Address: address}, o)
	if !has || fault.KindOf(err) == fault.Canceled {
		return others, err
	}
	own.answer.Providers = append(own.answer.Providers, others.answer.Providers...)
	own.stale, own.hedge = others.stale, others.hedge
	return own, nil
}

// askOthers returns the answer of others, from the cache or a look-up. A caller
// that accepts an expired answer gets it at once, while a look-up refreshes it
// in the background. An empty answer means that no target has it; an error means
// that this is not certain.
//
// A look-up that another caller started may time out while this caller has time
// left; then it joins another one.
func (x *Index) askOthers(ctx context.Context, cfg *settings, q record.Question, o Options) (finding, error) {
	entry, fresh, ok := x.cache.Get(keyOf(q), time.Now())
	if ok && (fresh || o.Stale) {
		x.metrics.hits.Inc()
		if !fresh && ingress.Spend(ctx) == nil {
			x.joinFlight(ctx, cfg, q, o.ClientClass)
		}
		return finding{answer: entry.Answer, source: record.Cache, at: entry.At, stale: !fresh}, nil
	}
	x.metrics.misses.Inc()
	if err := ingress.Spend(ctx); err != nil {
		return finding{}, err
	}
	for {
		f := x.joinFlight(ctx, cfg, q, o.ClientClass)
		select {
		case <-f.done:
		case <-ctx.Done():
			return finding{}, flow.Ended(ctx, opLookup)
		}
		if f.err == nil || !f.found.empty() {
			return f.found, nil // what was found in time is an answer, even if less than wanted
		}
		left, limited := flow.Remaining(ctx)
		switch kind := fault.KindOf(f.err); {
		case kind == fault.Timeout && limited && left > 2*answerReserve(cfg.DHT.deadline()): // join another one
		case kind == fault.NoRoute:
			return finding{}, noTargetsError(q.String(), f.err)
		default:
			return finding{}, f.err
		}
	}
}

// ProviderOptions configures Providers.
type ProviderOptions struct {
	Limit       int           // maximum number; zero means 20
	Region      string        // prefer this region
	MaxAge      time.Duration // seen within this time; zero means any time
	ClientClass uint64        // as in Options
}

// ProviderList is the providers of an object.
type ProviderList struct {
	Address   b3.Address
	Source    record.Source // empty if there are none
	Providers []rank.Ranked // best first
	Hedge     Hedge
}

// Providers finds the providers of an object, as many as the quorum asks for.
// An empty list is a valid answer.
func (x *Index) Providers(ctx context.Context, address b3.Address, o ProviderOptions) (h ProviderList, err error) {
	cfg, began := x.settings.Load(), time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(cfg.DHT.deadline()))
	defer cancel()
	ctx, span := x.spec.Tracer.Start(ctx, "index.providers")
	defer func() {
		x.metrics.resolved(h.Source, err, time.Since(began))
		if err != nil {
			span.SetStatus(codes.Error, fault.KindOf(err).String())
		}
		span.End()
	}()
	found, err := x.lookupProviders(ctx, cfg, address, Options{ClientClass: o.ClientClass}, cfg.DHT.Quorum)
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	if err != nil {
		return ProviderList{}, err
	}
	h = ProviderList{Address: address, Providers: x.selectProviders(found.answer.Providers, o), Hedge: found.hedge}
	h.Hedge.Winner = cmp.Or(h.Hedge.Winner, hedge.None)
	if len(found.answer.Providers) > 0 {
		h.Source = found.source
	}
	return h, nil
}

// selectProviders ranks the providers and applies the options.
func (x *Index) selectProviders(providers []record.Provider, o ProviderOptions) []rank.Ranked {
	now := time.Now()
	chosen := []rank.Ranked{}
	for _, one := range x.rank(providers, o.Region, now) {
		if o.MaxAge > 0 && (one.Provider.Seen.IsZero() || now.Sub(one.Provider.Seen) > o.MaxAge) {
			continue
		}
		if chosen = append(chosen, one); len(chosen) == cmp.Or(o.Limit, defaultLimit) {
			break
		}
	}
	return chosen
}

const defaultLimit = 20

func notFoundError(key string) error {
	return fault.New(opResolve, fault.NotFound, "no peer that was asked knows %s", key).
		Advise("Check the spelling. If it is new, wait until its provider has announced it, or add a peer that has it with `micronode peers add ID@HOST:PORT`.")
}

// noTargetsError is for a node without targets: it can only find what it has
// itself.
func noTargetsError(key string, cause error) error {
	return &fault.Error{Op: opResolve, Kind: fault.NotFound, Err: cause, Detail: key + " is not stored here, and there is no peer to ask",
		Next: "Add a peer with `micronode peers add ID@HOST:PORT`, bootstrap peers of the DHT in index.dht.bootstrap, or an endpoint in index.delegated."}
}
