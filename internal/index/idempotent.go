package index

import (
	"context"
	"slices"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
)

const opOnce = "index.once"

// What is remembered of requests that are to be carried out once.
const (
	onceLife  = 24 * time.Hour
	mostDeeds = 1 << 16
	mostKey   = 255 // bytes
)

// once carries requests out once. A client that did not hear the answer sends
// the request again with the same key, and gets the first answer again.
type once struct {
	// set at construction
	told func(error) // hears whether the book has what was done; nil if nobody wants to

	diary // what of it is on disk

	mu    sync.Mutex       //lockblock:leaf maps only
	deeds map[string]*deed // by key; guarded by mu
	order []*deed          // oldest first; guarded by mu
}

// deed is a request and what came of it.
type deed struct {
	key    string
	asked  b3.Address // the hash of the request
	begun  time.Time
	done   chan struct{} // closed when answer and err are there
	answer any
	err    error
	kept   bool // guarded by once.mu: it belongs into the book
}

func newOnce() *once { return &once{deeds: map[string]*deed{}} }

// do carries a request out, or waits for the one with the same key and gives
// its answer. What failed is forgotten, so that it can be tried again.
func (o *once) do(ctx context.Context, key string, asked b3.Address, act func(context.Context) (any, error)) (any, error) {
	if key == "" {
		return act(ctx)
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	d, mine, err := o.begin(key, asked)
	if err != nil {
		return nil, err
	}
	if mine {
		defer o.end(d)
		d.err = fault.New(opOnce, fault.Internal, "the request was not carried out") // if act panics
		if d.answer, d.err = act(ctx); d.err == nil {
			o.tell(o.keep(ctx, d))
		}
		return d.answer, d.err
	}
	select {
	case <-d.done:
		return d.answer, d.err
	case <-ctx.Done():
		return nil, flow.Ended(ctx, opOnce)
	}
}

// tell says how it is with the book.
func (o *once) tell(err error) {
	if o.told != nil {
		o.told(err)
	}
}

// begin finds the deed of a key, or begins one.
func (o *once) begin(key string, asked b3.Address) (d *deed, mine bool, err error) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget(now)
	if d = o.deeds[key]; d != nil {
		if d.asked != asked {
			return nil, false, &fault.Error{Op: opOnce, Kind: fault.Conflict, Detail: "this Idempotency-Key was sent with another request",
				Next: "Use a new key for each request, and the same one only to repeat it."}
		}
		return d, false, nil
	}
	if len(o.order) >= mostDeeds {
		return nil, false, &fault.Error{Op: opOnce, Kind: fault.QuotaExceeded, Detail: "too many requests of the last 24 hours are remembered",
			Next: "Send this one without an Idempotency-Key, or wait.", RetryAfter: o.order[0].begun.Add(onceLife).Sub(now)}
	}
	d = &deed{key: key, asked: asked, begun: now, done: make(chan struct{})}
	o.deeds[key] = d
	o.order = append(o.order, d)
	return d, true, nil
}

// end tells those who wait what came of a deed. One that failed leaves nothing:
// or else whoever sends requests that fail would use up the keys of all others.
func (o *once) end(d *deed) {
	if d.err != nil {
		o.drop(d)
	}
	close(d.done)
}

func (o *once) drop(d *deed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deeds[d.key] == d { // it may have taken more than a day
		delete(o.deeds, d.key)
	}
	o.order = slices.DeleteFunc(o.order, func(other *deed) bool { return other == d })
}

// forget drops what is older than a day. Guarded by mu.
func (o *once) forget(now time.Time) {
	n := 0
	for ; n < len(o.order) && now.Sub(o.order[n].begun) >= onceLife; n++ {
		if d := o.order[n]; o.deeds[d.key] == d {
			delete(o.deeds, d.key)
		}
		o.order[n] = nil
	}
	o.order = o.order[n:]
}

func checkKey(key string) error {
	for i := range len(key) {
		if c := key[i]; c < ' ' || c > '~' {
			return &fault.Error{Op: opOnce, Kind: fault.Malformed, Detail: "the Idempotency-Key has characters that are not printable ASCII", Next: "Send a random text, such as a UUID."}
		}
	}
	if len(key) > mostKey {
		return &fault.Error{Op: opOnce, Kind: fault.Malformed, Detail: "the Idempotency-Key is too long", Next: "Send 255 characters or fewer, such as a UUID."}
	}
	return nil
}
