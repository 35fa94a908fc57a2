package index

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/rank"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
	"micronode/internal/oap"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

const opFetch = "index.fetch"

// Limits of fetching.
const (
	fetchTimeout      = 5 * time.Minute        // of a request that waits for all of an object; the fetch goes on for the next one
	fetchStartTimeout = 2 * time.Minute        // until the first byte of an object that is read while it arrives
	fetchLinger       = time.Minute            // for which a fetch goes on when its last reader has left
	fetchHedgeDelay   = 400 * time.Millisecond // without a first byte, until the next source is tried too
	maxFetches        = 64                     // concurrent objects
)

// fetched is what a fetch has stored.
type fetched struct {
	info    store.Info
	created bool
	copied  int64 // bytes of it that an older version here had
}

// newFetches makes the fetches in progress, which are tasks of a group. Callers
// that want the same object share one.
func newFetches(tasks *supervise.Group) *flow.Flights[b3.Address, fetched] {
	return flow.NewFlights[b3.Address, fetched](flow.FlightsSpec{Op: opFetch, Start: func(task func(context.Context) error) error {
		return fault.Wrap(opFetch, tasks.Go(func(ctx context.Context) error {
			_ = task(ctx) // a fetch that failed is no failure of its task
			return nil
		}))
	}})
}

// Fetch copies an object into the store from one of its providers, verified. It
// reports whether the object was added.
func (x *Index) Fetch(ctx context.Context, address b3.Address) (store.Info, bool, error) {
	got, err := x.fetchShared(ctx, address)
	return got.info, got.created, err
}

// fetchShared joins the fetch of an object that runs, or starts one, unless the
// object is here.
func (x *Index) fetchShared(ctx context.Context, address b3.Address) (fetched, error) {
	if info, err := x.spec.Store.Stat(ctx, address); err == nil {
		return fetched{info: info}, nil
	}
	return x.fetches.Do(ctx, address, func(ctx context.Context) (got fetched, err error) {
		got.info, got.created, err = x.fetchFromProviders(ctx, address)
		got.copied = x.arrivals.takeCopied(address)
		return got, x.explainBroken(address, err)
	})
}

// explainBroken says more than that an object is not found, if a part of it has
// been: who was lost, and how far it came.
func (x *Index) explainBroken(address b3.Address, err error) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	problem := &fault.Error{Op: opFetch, Kind: fault.UpstreamFailed, Err: err,
		Next: "Connect to a node that has it with `micronode peers add`, and try again."}
	if was := x.arrivals.brokenBy(address, time.Now()); was != nil {
		problem.Detail, problem.Next = fault.DetailOf(was)+"; nobody else is found who has it", fault.NextOf(was)
		return problem
	}
	if at, keeps := x.spec.Store.(keeper); keeps {
		if n := at.Kept(address); n > 0 {
			problem.Detail = fmt.Sprintf("%d bytes of %s are here, and nobody is found who has the rest", n, address)
			problem.Next = "Connect to a node that has it with `micronode peers add`, and try again: it goes on from what is here."
			return problem
		}
	}
	return err
}

// fetchFromProviders finds the providers of an object and stores it from the
// first that sends the right bytes. The overlay comes first: there is a session
// already. After any failure the next source is tried: even a full store may be
// caused by a provider that sends bytes without end.
func (x *Index) fetchFromProviders(ctx context.Context, address b3.Address) (store.Info, bool, error) {
	ranked, cached, err := x.findProviders(ctx, address)
	if err != nil {
		return store.Info{}, false, err
	}
	allowed := x.newAllowance()
	ctx = allowed.withContext(ctx)
	info, created, err := x.fetchFrom(ctx, address, ranked)
	if err == nil || !cached || ctx.Err() != nil || x.arrivals.brokeWith(address, err) {
		return info, created, allowed.finalError(err)
	}
	// The cached providers are gone, or no longer have it. Others may have it
	// by now.
	x.forget(record.Question{Kind: record.CID, Address: address})
	if ranked, _, retryErr := x.findProviders(ctx, address); retryErr == nil && len(ranked) > 0 {
		info, created, retryErr = x.fetchFrom(ctx, address, ranked)
		if err = moreInformative(err, retryErr); retryErr == nil {
			return info, created, nil
		}
	}
	return info, created, allowed.finalError(err)
}

// fetchFrom fetches an object from its providers, the best first.
func (x *Index) fetchFrom(ctx context.Context, address b3.Address, ranked []rank.Ranked) (store.Info, bool, error) {
	all := x.fetchSources(ctx, allowanceFrom(ctx), address, ranked)
	ways := all
	problem := error(&fault.Error{Op: opFetch, Kind: fault.NotFound, Detail: "no reachable provider has " + address.String(),
		Next: "Check the address, or connect to a node that has it with `micronode peers add`."})
	for len(ways) > 0 {
		opened, left, err := x.openFastest(ctx, ways)
		if opened == nil {
			return store.Info{}, false, moreInformative(problem, err)
		}
		ways = left
		info, created, err := x.receive(ctx, address, opened, all)
		if err == nil || ctx.Err() != nil || x.arrivals.brokeWith(address, err) {
			return info, created, err // a transfer has asked all of them, and for more
		}
		problem = moreInformative(problem, err)
	}
	return store.Info{}, false, problem
}

// patientLookup is how long a fetch asks connected peers who has the object, when
// none has answered in the time of a look-up.
const patientLookup = 10 * time.Second

// findProviders lists the providers of an object, best first, and reports
// whether they came from the cache.
func (x *Index) findProviders(ctx context.Context, address b3.Address) (ranked []rank.Ranked, cached bool, err error) {
	cfg := x.settings.Load()
	short, cancel := context.WithTimeout(ctx, cfg.DHT.deadline())
	defer cancel()
	found, err := x.askOthers(short, cfg, record.Question{Kind: record.CID, Address: address}, Options{})
	if fault.KindOf(err) == fault.Timeout && ctx.Err() == nil && len(x.connectedPeers()) > 0 {
		// They are there, so their lines are bad: an answer needs more time than a
		// look-up has, which is nothing beside the time of the object.
		if ranked = x.lookForProviders(ctx, address, patientLookup, 1); len(ranked) > 0 {
			return ranked, false, nil
		}
	}
	if err != nil {
		return nil, false, err
	}
	return x.rank(found.answer.Providers, "", time.Now()), found.source == record.Cache, nil
}

// storeBody stores the body of a provider if it matches the address. It is
// stored as Cached, because it can be fetched again; until it is verified,
// nothing is evicted for it.
func (x *Index) storeBody(ctx context.Context, address b3.Address, from *fetchAttempt) (store.Info, bool, error) {
	begun := time.Now()
	counted := &countingReader{Reader: from.body, since: begun, isLimited: x.isLimited}
	idle := time.AfterFunc(movedEvery, from.cancel) //lockblock:allow it only ends a context
	defer idle.Stop()
	counted.read = func() { idle.Reset(movedEvery) }
	options := store.PutOptions{Want: address, Size: from.body.size, Class: store.Cached, Unverified: true}
	info, created, err := x.spec.Store.Put(ctx, counted, options)
	if fault.KindOf(err) == fault.StoreFull && from.body.proven && counted.n == 0 {
		// It is larger than the free space, and each byte is verified before it
		// is read: so other objects are evicted for it, as its bytes arrive.
		options.Size, options.Unverified = store.Unknown, false
		info, created, err = x.spec.Store.Put(ctx, counted, options)
	}
	from.close()
	now := time.Now()
	x.providers.observe(from.source.id, from.took, err == nil, now)
	switch {
	case err == nil:
		x.audit(Event{Type: Fetched, Key: address.String(), Detail: from.source.label + " in " + now.Sub(begun).Round(time.Millisecond).String()})
		x.added(address)
	default:
		x.metrics.wasted.Add(float64(counted.n))
		if lie := offenceIn(err); lie != "" {
			x.recordOffence(from.source, lie+" "+address.String())
			err = fault.WrapKind(opFetch, fault.IntegrityFail, err)
		}
	}
	return info, created, err
}

// added tells all who want to know that an object was fetched.
func (x *Index) added(address b3.Address) {
	x.ObjectAdded(address)
	if x.spec.Objects != nil {
		x.spec.Objects.ObjectAdded(address)
	}
}

// moreInformative returns the error that says more: NotFound only if there is
// no other.
func moreInformative(a, b error) error {
	if b == nil || a != nil && fault.KindOf(b) == fault.NotFound {
		return a
	}
	return b
}

// fetchSource is one source of an object.
type fetchSource struct {
	id       string                                        // of the provider
	blameKey string                                        // which source to blame for wrong bytes: a gateway's host and port, or the peer of a session
	label    string                                        // for logs
	open     func(ctx context.Context) (objectBody, error) // all of it, or its head

	// What a source of parts has besides: all of the object in order, and parts.
	openWhole func(ctx context.Context) (objectBody, error)
	part      openPart

	// What a peer has besides that may be fetching the object itself; nil of others.
	parts func(ctx context.Context) (oap.Parts, error)
}

// fetchSources lists the sources of an object, best first: sessions, then
// gateways; at most as many as one fetch may try.
func (x *Index) fetchSources(ctx context.Context, allowed *allowance, address b3.Address, ranked []rank.Ranked) []fetchSource {
	var sessions, gateways []fetchSource
	head := x.headSizeOf(ctx, address)
	connected := x.connectedPeers()
	for _, one := range ranked {
		p := one.Provider
		if p.ID == x.selfText || !connected[p.ID] && len(p.HTTP) == 0 || !allowed.allowProvider(p.ID) {
			continue
		}
		if id, err := oap.ParsePeerID(p.ID); err == nil && connected[p.ID] {
			part := openPart(func(ctx context.Context, view oap.View, from, length int64) (io.ReadCloser, error) {
				return x.spec.Overlay.OpenPart(ctx, address, id, view, from, length)
			})
			sessions = append(sessions, fetchSource{id: p.ID, blameKey: p.ID, label: peerLabel(p.ID), part: part, parts: part.parts,
				open: func(ctx context.Context) (objectBody, error) {
					body, err := part(ctx, oap.Whole, 0, int64(head))
					return objectBody{ReadCloser: body, size: store.Unknown, head: head}, err
				},
				openWhole: func(ctx context.Context) (objectBody, error) {
					body, err := x.spec.Overlay.Open(ctx, address, id)
					return objectBody{ReadCloser: body, size: store.Unknown}, err
				},
			})
		}
		for _, base := range allowed.allowGateways(one) {
			openWhole := func(ctx context.Context) (objectBody, error) {
				return x.gatewayClient.open(ctx, base, address, int64(allowed.limits.Unproven))
			}
			gateways = append(gateways, fetchSource{id: p.ID, blameKey: hostPort(base), label: "from " + base, openWhole: openWhole,
				open: func(ctx context.Context) (objectBody, error) {
					return x.gatewayClient.openHead(ctx, base, address, head, int64(allowed.limits.Unproven))
				},
				part: func(ctx context.Context, view oap.View, from, length int64) (io.ReadCloser, error) {
					return x.gatewayClient.part(allowed.withContext(ctx), base, address, view, from, length)
				},
			})
		}
	}
	return slices.DeleteFunc(slices.Concat(sessions, gateways), func(w fetchSource) bool {
		lied := x.isOffender(w.blameKey)
		if lied {
			allowed.skipOffender()
		}
		return lied
	})
}

// peerLabel is the label of a peer that there is a session with.
func peerLabel(id string) string { return "from the peer " + id }

// connectedPeers is the peers that there is a session with, by their text form.
func (x *Index) connectedPeers() map[string]bool {
	all := map[string]bool{}
	if x.spec.Overlay != nil {
		for _, one := range x.spec.Overlay.ConnectedPeers() {
			all[one.ID.String()] = true
		}
	}
	return all
}

// hostPort is the host and port of a gateway.
func hostPort(base string) string {
	at, err := url.Parse(base)
	if err != nil {
		return base
	}
	return at.Host
}

// What comes in order must bring so much in each such time. It may take as long as
// it does; a source that sends a byte now and then, or none, does not hold a
// fetch.
const (
	minMoved   = 512 << 10
	movedEvery = time.Minute

	// limitedMoved is minMoved while this node limits what it receives: others may
	// have their turns between.
	limitedMoved = 16 << 10
)

// isLimited reports whether this node limits what it receives.
func (x *Index) isLimited() bool { return x.spec.Bandwidth.Down().Limit() > 0 }

// countingReader counts what is read, and ends with Timeout when that is too
// little for too long.
type countingReader struct {
	io.Reader
	n     int64
	since time.Time // when the present minute began
	had   int64     // what had been read then
	read  func()    // called after each read

	isLimited func() bool // whether this node limits what it receives
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	c.read()
	if now := time.Now(); err == nil && now.Sub(c.since) >= movedEvery {
		least := int64(minMoved)
		if c.isLimited() {
			least = limitedMoved
		}
		if moved := c.n - c.had; moved < least {
			return n, fault.New(opFetch, fault.Timeout, "%d bytes came in %s", moved, now.Sub(c.since).Round(time.Second))
		}
		c.since, c.had = now, c.n
	}
	return n, err
}

// fetchRoutes lists the routes of fetching.
func (x *Index) fetchRoutes() []ingress.Route {
	address := []ingress.Param{{Name: "b3", In: "path", Type: "string", Required: true, Doc: "The address."}}
	return []ingress.Route{x.filesRoute(address), x.fetchesRoute(), {
		Service: service, Methods: []string{http.MethodGet}, Pattern: "/fetch/{b3}", Handler: x.handleReadFetched, Class: ingress.Transfer,
		Scope: "object:put", Concurrency: 2 * maxFetches, Deadline: fetchStartTimeout,
		Docs: ingress.Docs{Summary: "Read an object, and fetch it from providers if it is not here", Params: address, Content: true,
			Description: "The bytes are sent as they arrive, verified; those of a range are fetched first. The object is cached.",
			Responses:   []ingress.Response{{Status: http.StatusOK, Type: "application/octet-stream", Doc: "The object."}},
			Kinds:       []fault.Kind{fault.Malformed, fault.NotFound, fault.IntegrityFail, fault.UpstreamFailed, fault.StoreFull, fault.Timeout, fault.Busy}},
	}, {
		Service: service, Methods: []string{http.MethodPost}, Pattern: "/fetch/{b3}", Handler: x.handleFetch, Class: ingress.Control,
		Scope: "object:put", Concurrency: 2 * maxFetches, Deadline: fetchTimeout,
		Docs: ingress.Docs{Summary: "Find an object, fetch it from a provider, and cache it",
			Params:    address,
			Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.Object{}}, {Status: http.StatusOK, Body: client.Object{}, Doc: "It was already stored."}},
			Kinds:     []fault.Kind{fault.Malformed, fault.NotFound, fault.IntegrityFail, fault.UpstreamFailed, fault.StoreFull, fault.Timeout, fault.Busy}},
	}}
}

// handleReadFetched sends an object while it is being fetched.
func (x *Index) handleReadFetched(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return err
	}
	handle, err := x.OpenOrFetch(r.Context(), address)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Close() }() // it was only read
	ingress.MarkUntrusted(w.Header())
	_, err = ingress.ServeContent(w, r, store.Content(handle))
	return err
}

func (x *Index) handleFetch(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return err
	}
	got, err := x.fetchShared(r.Context(), address)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if got.created {
		status = http.StatusCreated
	}
	w.Header().Set("Location", ingress.Location(r, "/o/"+address.String()))
	return ingress.WriteJSON(w, status, client.Object{Address: got.info.Address, Size: got.info.Size, Created: got.created, Copied: got.copied})
}
