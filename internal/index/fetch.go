package index

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
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
)

const opFetch = "index.fetch"

// The bounds of fetching.
const (
	fetchTime   = 5 * time.Minute        // in all
	fetchAfter  = 400 * time.Millisecond // without a first byte, until the next one is asked too
	mostFetches = 64                     // objects at a time
)

// fetches is the objects that are on their way here. Those who want the same
// one wait for the same fetch, which ends early only when all of them have left.
type fetches struct {
	// set at construction
	begin func(task func(context.Context) error) error
	fetch func(context.Context, b3.Address) (store.Info, bool, error)

	mu    sync.Mutex               //lockblock:leaf a map only
	onWay map[b3.Address]*fetching // guarded by mu
}

// fetching is one of them.
type fetching struct {
	address b3.Address
	done    chan struct{}

	waiting int                // guarded by fetches.mu
	cancel  context.CancelFunc // guarded by fetches.mu; nil until it runs
	left    bool               // guarded by fetches.mu: nobody waits any more

	// set before done is closed
	info    store.Info
	created bool
	err     error
}

// Fetch brings an object here from whoever has it, verified. It reports whether
// it was not here before.
func (x *Index) Fetch(ctx context.Context, address b3.Address) (store.Info, bool, error) {
	if info, err := x.spec.Store.Stat(ctx, address); err == nil {
		return info, false, nil
	}
	f := x.fetches.join(address)
	defer x.fetches.leave(f)
	select {
	case <-f.done:
		return f.info, f.created, f.err
	case <-ctx.Done():
		return store.Info{}, false, flow.Ended(ctx, opFetch)
	}
}

// join finds the fetch of an object, or begins one.
func (s *fetches) join(address b3.Address) *fetching {
	s.mu.Lock()
	f, known := s.onWay[address]
	if !known {
		f = &fetching{address: address, done: make(chan struct{})}
		s.onWay[address] = f
	}
	f.waiting++
	s.mu.Unlock()
	if known {
		return f
	}
	if err := s.begin(func(ctx context.Context) error { s.run(ctx, f); return nil }); err != nil {
		s.end(f, store.Info{}, false, fault.Wrap(opFetch, err))
	}
	return f
}

// run fetches, for all who wait.
func (s *fetches) run(ctx context.Context, f *fetching) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	defer s.end(f, store.Info{}, false, fault.New(opFetch, fault.Internal, "the fetch broke off")) // of interest only after a panic
	s.mu.Lock()
	f.cancel = cancel
	left := f.left
	s.mu.Unlock()
	if left {
		cancel()
	}
	info, created, err := s.fetch(ctx, f.address)
	s.end(f, info, created, err)
}

// end tells those who wait, if there are any left. The first call counts.
func (s *fetches) end(f *fetching, info store.Info, created bool, err error) {
	s.mu.Lock()
	first := s.onWay[f.address] == f
	if first {
		delete(s.onWay, f.address)
	}
	s.mu.Unlock()
	if first {
		f.info, f.created, f.err = info, created, err
		close(f.done)
	}
}

// leave counts one out. A fetch that nobody waits for ends, and makes room for
// another of the same object at once: who comes while it ends must not share
// its end.
func (s *fetches) leave(f *fetching) {
	s.mu.Lock()
	f.waiting--
	f.left = f.waiting == 0
	if f.left && s.onWay[f.address] == f {
		delete(s.onWay, f.address)
	}
	cancel := f.cancel
	left := f.left
	s.mu.Unlock()
	if left && cancel != nil {
		cancel()
	}
}

// bring asks who has an object and takes it from the first who gives it, and
// gives it right. The overlay comes first: there is a session already. Whatever
// goes wrong, another one may do better: even that there is no room may be the
// doing of one who sends bytes without end.
func (x *Index) bring(ctx context.Context, address b3.Address) (store.Info, bool, error) {
	ranked, recalled, err := x.whoHas(ctx, address)
	if err != nil {
		return store.Info{}, false, err
	}
	info, created, err := x.bringFrom(ctx, address, ranked)
	if err == nil || !recalled || ctx.Err() != nil {
		return info, created, err
	}
	// Those who had it when somebody last asked are gone, or have it no more.
	// Others may have it by now.
	x.cache.Forget(keyOf(record.Question{Kind: record.CID, Address: address}))
	if ranked, _, again := x.whoHas(ctx, address); again == nil && len(ranked) > 0 {
		return x.bringFrom(ctx, address, ranked)
	}
	return info, created, err
}

// bringFrom fetches an object from one of those who have it, the best first.
func (x *Index) bringFrom(ctx context.Context, address b3.Address, ranked []rank.Ranked) (store.Info, bool, error) {
	ways := x.ways(address, ranked)
	problem := error(&fault.Error{Op: opFetch, Kind: fault.NotFound, Detail: "nobody that this node can reach has " + address.String(),
		Next: "Look at the address, or connect to a node that has it with `micronode peers add`."})
	for len(ways) > 0 {
		opened, left, err := x.openFirst(ctx, ways)
		if opened == nil {
			return store.Info{}, false, worse(problem, err)
		}
		ways = left
		info, created, err := x.take(ctx, address, opened)
		if err == nil || ctx.Err() != nil {
			return info, created, err
		}
		problem = worse(problem, err)
	}
	return store.Info{}, false, problem
}

// whoHas lists who has an object, best first, and says whether that is only what
// it remembers.
func (x *Index) whoHas(ctx context.Context, address b3.Address) (ranked []rank.Ranked, recalled bool, err error) {
	under := x.settings.Load()
	short, cancel := context.WithTimeout(ctx, under.DHT.deadline())
	defer cancel()
	found, err := x.learned(short, under, record.Question{Kind: record.CID, Address: address}, Options{})
	if err != nil {
		return nil, false, err
	}
	return x.rank(found.answer.Providers, "", time.Now()), found.source == record.Cache, nil
}

// take keeps what a provider gives, if it is what was asked for. It can be had
// again, so it may be given up for what cannot.
func (x *Index) take(ctx context.Context, address b3.Address, from *opened) (store.Info, bool, error) {
	begun := time.Now()
	info, created, err := x.spec.Store.Put(ctx, from.body, store.PutOptions{Want: address, Size: store.Unknown, Class: store.Cached})
	from.close()
	now := time.Now()
	x.providers.note(from.way.id, from.took, err == nil, now)
	switch {
	case err == nil:
		x.audit(Event{Type: Fetched, Key: address.String(), Detail: from.way.text + " in " + now.Sub(begun).Round(time.Millisecond).String()})
		x.Has(address)
		if x.spec.Library != nil {
			x.spec.Library.Offer(address)
		}
	case fault.KindOf(err) == fault.IntegrityFail:
		x.audit(Event{Type: Lied, Key: from.way.id, Detail: "it gave other bytes than those of " + address.String()})
	}
	return info, created, err
}

// worse is the failure that says more: that somebody does not have it is what
// is said if nothing else is.
func worse(a, b error) error {
	if b == nil || a != nil && fault.KindOf(b) == fault.NotFound {
		return a
	}
	return b
}

// way is one way to get an object.
type way struct {
	id   string // of the provider
	text string // for people
	open func(ctx context.Context) (io.ReadCloser, error)
}

// ways lists how an object can be had, best first: by the sessions that there
// are, then from gateways.
func (x *Index) ways(address b3.Address, ranked []rank.Ranked) []way {
	var sessions, gateways []way
	connected := x.connected()
	for _, one := range ranked {
		p := one.Provider
		if p.ID == x.selfText {
			continue
		}
		if id, err := oap.ParsePeerID(p.ID); err == nil && connected[p.ID] {
			sessions = append(sessions, way{p.ID, "from the peer " + p.ID, func(ctx context.Context) (io.ReadCloser, error) { return x.spec.Overlay.Open(ctx, address, id) }})
		}
		for _, base := range p.HTTP {
			gateways = append(gateways, way{p.ID, "from " + base, func(ctx context.Context) (io.ReadCloser, error) { return x.gateways.open(ctx, base, address) }})
		}
	}
	return slices.Concat(sessions, gateways)
}

// fetchRoutes lists the routes of fetching.
func (x *Index) fetchRoutes() []ingress.Route {
	return []ingress.Route{{
		Service: service, Methods: []string{http.MethodPost}, Pattern: "/fetch/{b3}", Handler: x.fetchObject, Class: ingress.Control,
		Scope: "object:put", Concurrency: 2 * mostFetches, Deadline: fetchTime,
		Docs: ingress.Docs{Summary: "Find an object, fetch it from whoever has it, and keep it",
			Params:    []ingress.Param{{Name: "b3", In: "path", Type: "string", Required: true, Doc: "The address."}},
			Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.Object{}}, {Status: http.StatusOK, Body: client.Object{}, Doc: "It was here already."}},
			Kinds:     []fault.Kind{fault.Malformed, fault.NotFound, fault.IntegrityFail, fault.UpstreamFailed, fault.StoreFull, fault.Timeout, fault.Busy}},
	}}
}

func (x *Index) fetchObject(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return err
	}
	info, created, err := x.Fetch(r.Context(), address)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	w.Header().Set("Location", "/o/"+address.String())
	return ingress.WriteJSON(w, status, client.Object{Address: info.Address, Size: info.Size, Created: created})
}
