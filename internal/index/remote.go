package index

import (
	"context"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/record"
	"micronode/internal/store"
)

// Remote is the index in another process of the same node, as far as others need
// it: what a peer is answered, what a name stands for, an object from wherever it
// is, what can be found by words, and somebody to tell of objects that come and
// go.
type Remote struct {
	// set at construction
	client *client.Client
	news   *flow.Queue[tidings] // what the other process has not heard of
	lost   atomic.Bool          // there was more than the queue could keep
	closed atomic.Bool          // nobody waits any more for the other process to listen
}

// tidings is that an object came, or went.
type tidings struct {
	address b3.Address
	gone    bool
}

// NewRemote makes an index of the one that a client reaches.
func NewRemote(inv *flow.Inventory, to *client.Client) *Remote {
	return &Remote{client: to, news: flow.NewQueue[tidings](inv, flow.QueueSpec{
		Service: service, Name: "news", Cap: mostProvide, Policy: flow.DropOldest, From: "store", To: "index in another process",
	})}
}

// Has tells of an object that was put into the store. It never waits: the other
// process hears of it in a moment, or when it is there again.
func (r *Remote) Has(address b3.Address) { r.push(tidings{address: address}) }

// Gone tells of one that was removed, in the same way.
func (r *Remote) Gone(address b3.Address) { r.push(tidings{address: address, gone: true}) }

func (r *Remote) push(one tidings) {
	if r.news.Len() >= nearlyFull {
		r.lost.Store(true)
	}
	_ = r.news.TryPush(one) // a closed queue: this process drains
}

// tellPause is how long the index is left alone after it did not listen.
const tellPause = 500 * time.Millisecond

// Serve tells the other process of new objects until ctx ends. If there were
// more than could be kept while it was away, it is asked to look for itself.
func (r *Remote) Serve(ctx context.Context) error {
	for {
		first, err := r.news.Pop(ctx)
		if err != nil {
			return nil // told to stop
		}
		batch := []tidings{first}
		for len(batch) < mostToldObjects && r.news.Len() > 0 {
			next, err := r.news.Pop(ctx)
			if err != nil {
				return nil
			}
			batch = append(batch, next)
		}
		for r.tell(ctx, batch) != nil {
			if r.closed.Load() || flow.Sleep(ctx, tellPause) != nil {
				return nil // it looks through the store when it starts
			}
		}
	}
}

// tell tells of some objects. Told twice is told once.
func (r *Remote) tell(ctx context.Context, batch []tidings) error {
	missed := r.lost.Swap(false) // what is lost from now on is for the next time
	err := r.pass(ctx, batch, missed)
	if missed && err != nil {
		r.lost.Store(true)
	}
	return err
}

func (r *Remote) pass(ctx context.Context, batch []tidings, missed bool) error {
	told := toldObjects{Objects: []b3.Address{}, Missed: missed}
	for _, one := range batch {
		if one.gone {
			told.Gone = append(told.Gone, one.address)
		} else {
			told.Objects = append(told.Objects, one.address)
		}
	}
	if err := r.client.Call(ctx, "POST", seamHas, told, nil); err != nil || !missed {
		return err
	}
	_, err := r.client.Reindex(ctx)
	return err
}

// Close ends the telling.
func (r *Remote) Close() {
	r.closed.Store(true)
	r.news.Close()
}

// Answer says what this node knows, when a peer asks.
func (r *Remote) Answer(ctx context.Context, id ID) (Answer, error) {
	var told toldAnswer
	if err := r.client.Call(ctx, "POST", seamAnswer, toldQuestion{id.String()}, &told); err != nil {
		return Answer{}, fault.Wrap("index.answer", err)
	}
	return told.answer()
}

// Search finds what fits a query in the library over there. What is no query is
// refused before anything travels.
func (r *Remote) Search(ctx context.Context, text string, limit, offset int) (found client.SearchResults, err error) {
	if _, err := ParseQuery(text); err != nil {
		return client.SearchResults{}, err
	}
	err = callPart(ctx, r.client, "library.search", "index", seamSearch, toldQuery{text, limit, offset}, &found)
	return found, err
}

// Searchable is why nothing can be found by words over there, or nil.
func (r *Remote) Searchable(ctx context.Context) error {
	return callPart(ctx, r.client, "library.search", "index", seamLibrary, nil, nil)
}

// Manifest says what a name or an address stands for.
func (r *Remote) Manifest(ctx context.Context, id string) (b3.Address, error) {
	found, err := r.client.Resolve(ctx, id, client.ResolveOptions{})
	return found.Manifest, fault.Wrap("index.resolve", err)
}

// Fetch has the other process bring an object into the store, from whoever has
// it.
func (r *Remote) Fetch(ctx context.Context, address b3.Address) (store.Info, bool, error) {
	object, err := r.client.FetchAnywhere(ctx, address)
	return store.Info{Address: object.Address, Size: object.Size, Class: store.Cached}, object.Created, fault.Wrap(opFetch, err)
}

// Manifest says what a name or an address stands for.
func (x *Index) Manifest(ctx context.Context, text string) (b3.Address, error) {
	id, err := record.ParseID(text)
	if err != nil {
		return b3.Address{}, err
	}
	found, err := x.Resolve(ctx, id, Options{})
	return found.Manifest, err
}

// Distant is a NameSource in another process, which may not have been heard yet.
type Distant interface {
	NameSource
	Known() error // why nobody can say yet which names there are, or nil
}

// unheard is why nobody can say yet whether a name is the registry's.
func (x *Index) unheard() error {
	if far, ok := x.spec.Registry.(Distant); ok {
		return far.Known()
	}
	return nil
}
