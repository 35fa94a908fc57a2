package index

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/cache"
	"micronode/internal/index/hedge"
	"micronode/internal/index/rank"
	"micronode/internal/index/record"
)

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

// stepResult is the result of one step of the pipeline.
type stepResult struct {
	answer record.Answer
	source record.Source
	at     time.Time
	stale  bool
	hedge  Hedge
}

// noHedge is the hedge of an answer without a look-up.
var noHedge = Hedge{Winner: hedge.None}

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
	manifest, meaning := id.Address, stepResult{}
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
	return x.resolution(id, manifest, meaning, found.answer.Providers), nil
}

// resolution ranks the providers of what was found.
func (x *Index) resolution(id record.ID, manifest b3.Address, found stepResult, providers []record.Provider) Resolution {
	return Resolution{ID: id, Manifest: manifest, Source: found.source, At: found.at, Stale: found.stale, Hedge: found.hedge,
		Providers: x.rank(providers, "", time.Now())}
}

// resolveManifest finds the manifest of a name. A name without a peer is the
// registry's or this node's own, and is not looked up elsewhere.
func (x *Index) resolveManifest(ctx context.Context, cfg *settings, id record.ID, o Options) (b3.Address, stepResult, error) {
	now := time.Now()
	if x.spec.Registry != nil && !id.Foreign {
		if manifest, _, ok := x.spec.Registry.Name(id.Name); ok {
			return manifest, stepResult{source: record.Registry, at: now, hedge: noHedge}, nil
		}
	}
	if !id.Foreign || id.Owner == x.self {
		if own, ok := x.names.lookup(id.Name); ok {
			return own.Manifest, stepResult{source: record.Local, at: now, hedge: noHedge}, nil
		}
		return b3.Address{}, stepResult{}, fault.New("index.resolve", fault.NotFound, "neither the registry nor this node has the name %q", id.Name).
			Advise("Set it with `micronode name set NAME b3:…`, or ask for another node's name as name:NAME@PEER-ID.")
	}
	q := id.Question(x.self)
	found, err := x.cachedOrDiscovered(ctx, cfg, q, o)
	if err != nil {
		return b3.Address{}, stepResult{}, err
	}
	if found.answer.Name != nil {
		found.answer.Name = x.seen.newest(q, found.answer.Name, now) // the cached record may be older than one seen since
	}
	if found.answer.Name == nil {
		return b3.Address{}, stepResult{}, notFoundError(id.String())
	}
	return found.answer.Name.Manifest, found, nil
}

// lookupProviders finds the providers of an object. This node comes first if it
// has the object; if that is enough, no target is asked.
func (x *Index) lookupProviders(ctx context.Context, cfg *settings, address b3.Address, o Options, enough int) (stepResult, error) {
	has, err := x.hasObject(ctx, address)
	if err != nil {
		return stepResult{}, err
	}
	if !has {
		return x.cachedOrDiscovered(ctx, cfg, record.Question{Kind: record.CID, Address: address}, o)
	}
	own := stepResult{source: record.Local, at: time.Now(), hedge: noHedge, answer: record.Answer{Providers: []record.Provider{x.selfProvider()}}}
	if enough <= 1 {
		return own, nil
	}
	others, err := x.cachedOrDiscovered(ctx, cfg, record.Question{Kind: record.CID, Address: address}, o)
	if kind := fault.KindOf(err); kind == fault.Canceled {
		return stepResult{}, err
	}
	own.answer.Providers = append(own.answer.Providers, others.answer.Providers...)
	own.stale, own.hedge = others.stale, others.hedge
	if own.hedge.Winner == "" {
		own.hedge = noHedge
	}
	return own, nil
}

// cachedOrDiscovered returns the answer of others, from the cache or a look-up.
// A caller that accepts an expired answer gets it at once, while a look-up
// refreshes it in the background. An empty answer means that no target has it;
// an error means that this is not certain.
func (x *Index) cachedOrDiscovered(ctx context.Context, cfg *settings, q record.Question, o Options) (stepResult, error) {
	entry, fresh, ok := x.cache.Get(keyOf(q), time.Now())
	if ok && (fresh || o.Stale) {
		x.metrics.hits.Inc()
		if !fresh {
			x.joinFlight(ctx, cfg, q, o.ClientClass)
		}
		return cachedResult(entry, fresh), nil
	}
	x.metrics.misses.Inc()
	l := x.discover(ctx, cfg, q, o.ClientClass)
	switch {
	case l.err == nil || !l.empty(): // what was found in time is an answer, even if less than wanted
	case fault.KindOf(l.err) == fault.NoRoute:
		return stepResult{}, noTargetsError(q.String(), l.err)
	default:
		return stepResult{}, l.err
	}
	if l.hedge.Winner == "" {
		l.hedge = noHedge
	}
	return stepResult{answer: l.answer, source: l.source, at: l.at, hedge: l.hedge}, nil
}

func cachedResult(entry cache.Entry, fresh bool) stepResult {
	return stepResult{answer: entry.Answer, source: record.Cache, at: entry.At, stale: !fresh, hedge: noHedge}
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
	if h.Hedge.Winner == "" {
		h.Hedge = noHedge
	}
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
	return fault.New("index.resolve", fault.NotFound, "no peer that was asked knows %s", key).
		Advise("Check the spelling. If it is new, wait until its provider has announced it, or add a peer that has it with `micronode peers add ID@HOST:PORT`.")
}

// noTargetsError is for a node without targets: it can only find what it has
// itself.
func noTargetsError(key string, cause error) error {
	return &fault.Error{Op: "index.resolve", Kind: fault.NotFound, Err: cause, Detail: key + " is not stored here, and there is no peer to ask",
		Next: "Add a peer with `micronode peers add ID@HOST:PORT`, bootstrap peers of the DHT in index.dht.bootstrap, or an endpoint in index.delegated."}
}
