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

const opIdempotency = "index.once"

// Limits of the requests that are remembered.
const (
	idempotencyTTL         = 24 * time.Hour
	maxIdempotencyKeys     = 1 << 16
	maxIdempotencyKeyBytes = 255 // bytes
)

// idempotency carries requests out once. A client that did not get the answer
// sends the request again with the same key, and gets the first answer again.
// A key belongs to its sender and its route. When there are too many keys, the
// sender with the most loses its oldest.
type idempotency struct {
	// set at construction
	onPersist func(error) // receives the result of each write to the log; may be nil

	bestEffortLog // the part that is on disk

	mu    sync.Mutex                        //lockblock:leaf maps only
	byKey map[requestKey]*idempotentRequest // guarded by mu
	byAge []*idempotentRequest              // oldest first; guarded by mu
	count map[string]int                    // of keys, by sender; guarded by mu
}

// requestKey is an idempotency key and whose it is.
type requestKey struct{ sender, route, key string }

// idempotentRequest is a request and its result.
type idempotentRequest struct {
	key         requestKey
	requestHash b3.Address
	startedAt   time.Time
	done        chan struct{} // closed when answer and err are set
	answer      any
	err         error
	persistable bool // guarded by idempotency.mu: it belongs in the log
}

func newIdempotency() *idempotency {
	return &idempotency{byKey: map[requestKey]*idempotentRequest{}, count: map[string]int{}}
}

// do carries a request out, or waits for the one with the same key and returns
// its answer. Failed requests are forgotten, so that they can be retried.
func (i *idempotency) do(ctx context.Context, key requestKey, requestHash b3.Address, act func(context.Context) (any, error)) (any, error) {
	if key.key == "" {
		return act(ctx)
	}
	if err := checkIdempotencyKey(key.key); err != nil {
		return nil, err
	}
	d, isNew, err := i.begin(key, requestHash)
	if err != nil {
		return nil, err
	}
	if isNew {
		defer i.finish(d)
		d.err = fault.New(opIdempotency, fault.Internal, "the request was not carried out") // if act panics
		if d.answer, d.err = act(ctx); d.err == nil {
			if err := i.persist(ctx, d); i.onPersist != nil {
				i.onPersist(err)
			}
		}
		return d.answer, d.err
	}
	select {
	case <-d.done:
		return d.answer, d.err
	case <-ctx.Done():
		return nil, flow.Ended(ctx, opIdempotency)
	}
}

// begin returns the request of a key, or registers a new one.
func (i *idempotency) begin(key requestKey, requestHash b3.Address) (d *idempotentRequest, isNew bool, err error) {
	now := time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expire(now)
	if d = i.byKey[key]; d == nil {
		if d = i.byKey[requestKey{key: key.key}]; d != nil && d.requestHash != requestHash { // logged by an earlier version
			d = nil
		}
	}
	if d != nil {
		if d.requestHash != requestHash {
			return nil, false, &fault.Error{Op: opIdempotency, Kind: fault.Conflict, Detail: "this Idempotency-Key was sent with another request",
				Next: "Use a new key for each request, and the same key only to repeat it."}
		}
		return d, false, nil
	}
	if len(i.byAge) >= maxIdempotencyKeys && !i.displace() {
		return nil, false, &fault.Error{Op: opIdempotency, Kind: fault.QuotaExceeded, Detail: "as many requests with idempotency keys as can be remembered are under way",
			Next: "Send the request without an Idempotency-Key, or retry later."}
	}
	d = &idempotentRequest{key: key, requestHash: requestHash, startedAt: now, done: make(chan struct{})}
	i.add(d)
	return d, true, nil
}

// add adds a request. Guarded by mu.
func (i *idempotency) add(d *idempotentRequest) {
	i.byKey[d.key] = d
	i.byAge = append(i.byAge, d)
	i.count[d.key.sender]++
}

// displace forgets the oldest request of the sender that has the most, unless
// none of them has ended. Guarded by mu.
func (i *idempotency) displace() bool {
	richest, most := "", 0
	for sender, n := range i.count {
		if n > most {
			richest, most = sender, n
		}
	}
	for at, d := range i.byAge {
		if d.key.sender != richest {
			continue
		}
		select {
		case <-d.done:
			i.byAge = slices.Delete(i.byAge, at, at+1)
			i.forget(d)
			return true
		default:
		}
	}
	return false
}

// forget removes a request that is not in byAge any more. Guarded by mu.
func (i *idempotency) forget(d *idempotentRequest) {
	delete(i.byKey, d.key)
	if i.count[d.key.sender]--; i.count[d.key.sender] == 0 {
		delete(i.count, d.key.sender)
	}
}

// finish wakes the waiters of a request. Failed requests are removed, so that
// they do not use up the key limit.
func (i *idempotency) finish(d *idempotentRequest) {
	defer close(d.done)
	if d.err == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.byKey[d.key] != d {
		return // it has expired meanwhile
	}
	i.forget(d)
	i.byAge = slices.DeleteFunc(i.byAge, func(other *idempotentRequest) bool { return other == d })
}

// expire removes requests older than a day. Guarded by mu.
func (i *idempotency) expire(now time.Time) {
	n := 0
	for ; n < len(i.byAge) && now.Sub(i.byAge[n].startedAt) >= idempotencyTTL; n++ {
		i.forget(i.byAge[n])
		i.byAge[n] = nil
	}
	i.byAge = i.byAge[n:]
}

func checkIdempotencyKey(key string) error {
	for i := range len(key) {
		if c := key[i]; c < ' ' || c > '~' {
			return &fault.Error{Op: opIdempotency, Kind: fault.Malformed, Detail: "the Idempotency-Key has characters that are not printable ASCII", Next: "Send a random string, such as a UUID."}
		}
	}
	if len(key) > maxIdempotencyKeyBytes {
		return &fault.Error{Op: opIdempotency, Kind: fault.Malformed, Detail: "the Idempotency-Key is too long", Next: "Send 255 characters or fewer, such as a UUID."}
	}
	return nil
}
