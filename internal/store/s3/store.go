package s3

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// maxSmall is the size up to which an object is fetched and verified whole. It
// has no tree.
const maxSmall = 64 << 10

// stripeCount is how many addresses can be changed at a time.
const stripeCount = 256

// Store is a store.Store in a bucket.
type Store struct {
	// set at construction
	bucket     *bucket
	maxObject  int64
	ctx        context.Context // ends when the store is closed
	end        context.CancelCauseFunc
	putPermits *flow.Permits              // one for each body that may use memory
	stripes    [stripeCount]*flow.Permits // each serialises the changes of the objects of a stripe

	mu          sync.Mutex
	openObjects map[b3.Address]*openObject // guarded by mu: objects that are open and visible
	handles     int                        // guarded by mu: the number of handles

	// Totals of what is visible, as far as this node knows.
	objects atomic.Int64
	bytes   atomic.Int64
	pinned  atomic.Int64

	lingering      atomic.Int64
	refusals       atomic.Uint64
	mismatches     atomic.Uint64
	integrityFails atomic.Uint64
}

var _ store.Store = (*Store)(nil)

// Open opens the bucket, removes abandoned uploads, counts its objects, and
// returns it as a store. It fails if the bucket cannot be used.
func Open(ctx context.Context, inv *flow.Inventory, spec Spec) (*Store, error) {
	at, err := spec.resolve()
	if err != nil {
		return nil, err
	}
	b, err := newBucket(spec, at)
	if err != nil {
		return nil, err
	}
	s := newStore(inv, spec, b)
	if err := s.start(ctx, spec.CreateBucket); err != nil {
		_ = s.Close() // it never fails
		return nil, err
	}
	return s, nil
}

func newStore(inv *flow.Inventory, spec Spec, b *bucket) *Store {
	s := &Store{bucket: b, maxObject: spec.MaxObject, openObjects: map[b3.Address]*openObject{}}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.putPermits = flow.NewPermits(inv, flow.PermitsSpec{
		Service: spec.Service, Name: "s3_puts", Cap: spec.Puts, Waiting: 4 * spec.Puts, From: "puts", To: "object store", Effect: flow.StopsWrites,
	})
	for i := range s.stripes {
		s.stripes[i] = flow.NewPermits(inv, flow.PermitsSpec{
			Service: spec.Service, Name: "s3_turn", Cap: 1, Waiting: 256, From: "puts, deletes and pins", To: "object store", Each: "stripe of addresses",
		})
	}
	return s
}

// Close rejects all later calls and cancels running ones, except reads from
// handles. What is stored stays in the bucket. The error is always nil.
func (s *Store) Close() error {
	s.end(flow.ErrClosed)
	s.putPermits.Retire()
	for _, stripe := range s.stripes {
		stripe.Retire()
	}
	s.bucket.transport.CloseIdleConnections()
	return nil
}

// checkOpen returns why an operation must not begin, if so.
func (s *Store) checkOpen(ctx context.Context, op string) error {
	if s.ctx.Err() != nil {
		return closed(op)
	}
	return flow.Ended(ctx, op)
}

// begin starts an operation: its context ends with the store too.
func (s *Store) begin(ctx context.Context, op string) (context.Context, context.CancelFunc, error) {
	if err := s.checkOpen(ctx, op); err != nil {
		return nil, nil, err
	}
	joined, cancel := flow.Join(ctx, s.ctx)
	return joined, cancel, nil
}

// withStripe serialises changes of an object within this node. Other nodes may
// change it concurrently.
func (s *Store) withStripe(ctx context.Context, op string, a b3.Address, do func(ctx context.Context) error) error {
	stripe := s.stripes[a[0]]
	if err := s.acquire(ctx, op, stripe); err != nil {
		return err
	}
	defer stripe.Release()
	return do(ctx)
}

// acquire waits for a permit, with a limit even if the caller has none: each
// call before it may take as long as its limit allows.
func (s *Store) acquire(ctx context.Context, op string, permits *flow.Permits) error {
	waiting, cancel := context.WithTimeout(ctx, maxAttempts*s.bucket.timeout)
	defer cancel()
	return fault.Wrap(op, permits.Acquire(waiting))
}

// Stat describes an object.
func (s *Store) Stat(ctx context.Context, a b3.Address) (store.Info, error) {
	const op = "store.stat"
	ctx, cancel, err := s.begin(ctx, op)
	if err != nil {
		return store.Info{}, err
	}
	defer cancel()
	found, err := s.find(ctx, op, a)
	if err != nil {
		return store.Info{}, err
	}
	class, err := s.class(ctx, op, a)
	if err != nil {
		return store.Info{}, err
	}
	return store.Info{Address: a, Size: found.size, Class: class}, nil
}

// find looks an object up.
func (s *Store) find(ctx context.Context, op string, a b3.Address) (item, error) {
	found, err := s.bucket.head(ctx, op, s.bucket.dataKey(a))
	if fault.KindOf(err) == fault.NotFound {
		return item{}, notFound(op, a)
	}
	return found, hideUnauthorized(err)
}

func (s *Store) class(ctx context.Context, op string, a b3.Address) (store.Class, error) {
	pinned, err := s.bucket.has(ctx, op, s.bucket.pinnedKey(a))
	if err != nil || pinned {
		return store.Pinned, hideUnauthorized(err)
	}
	named, err := s.bucket.has(ctx, op, s.bucket.namedKey(a))
	if named {
		return store.Named, nil
	}
	return store.Cached, hideUnauthorized(err)
}

// Pin keeps an object until it is deleted.
func (s *Store) Pin(ctx context.Context, a b3.Address) error {
	return s.change(ctx, "store.pin", a, func(store.Class) store.Class { return store.Pinned })
}

// Unpin makes an object cached.
func (s *Store) Unpin(ctx context.Context, a b3.Address) error {
	return s.change(ctx, "store.unpin", a, func(store.Class) store.Class { return store.Cached })
}

// Reclass gives an object another class if it has the class from.
func (s *Store) Reclass(ctx context.Context, a b3.Address, from, to store.Class) (changed bool, err error) {
	err = s.change(ctx, "store.reclass", a, func(class store.Class) store.Class {
		if changed = class == from; changed {
			return to
		}
		return class
	})
	return changed && err == nil, err
}

// Evict removes an object if it is cached.
func (s *Store) Evict(ctx context.Context, a b3.Address) (evicted bool, err error) {
	const op = "store.evict"
	err = s.withObject(ctx, op, a, func(ctx context.Context, found item) error {
		class, err := s.class(ctx, op, a)
		if err != nil || class != store.Cached {
			return err
		}
		l, err := s.preserveOpen(ctx, op, a, found)
		if err != nil {
			return err
		}
		evicted = true
		return s.removeObject(ctx, op, a, found, l)
	})
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	return evicted && err == nil, err
}

// change gives an existing object the class that next says.
func (s *Store) change(ctx context.Context, op string, a b3.Address, next func(store.Class) store.Class) error {
	return s.withObject(ctx, op, a, func(ctx context.Context, found item) error {
		class, err := s.class(ctx, op, a)
		if err != nil {
			return err
		}
		return s.setClass(ctx, op, a, found.size, class, next(class))
	})
}

// setClass gives an object another class. The caller holds the stripe. What
// keeps it longer is created before the other is removed, so that it is kept at
// every moment.
func (s *Store) setClass(ctx context.Context, op string, a b3.Address, size int64, from, to store.Class) (err error) {
	if from == to {
		return nil
	}
	switch to {
	case store.Pinned:
		_, err = s.bucket.putNew(ctx, op, s.bucket.pinnedKey(a), nil)
	case store.Named:
		_, err = s.bucket.putNew(ctx, op, s.bucket.namedKey(a), nil)
	}
	if err == nil && from == store.Pinned {
		err = s.bucket.remove(ctx, op, s.bucket.pinnedKey(a))
	}
	if err == nil && to != store.Named && from != store.Cached {
		err = s.bucket.remove(ctx, op, s.bucket.namedKey(a)) // what was pinned may have had one, too
	}
	switch {
	case err != nil:
		return hideUnauthorized(err)
	case from == store.Cached:
		s.pinned.Add(size)
	case to == store.Cached:
		s.pinned.Add(-size)
	}
	return nil
}

// withObject calls do with an existing object.
func (s *Store) withObject(ctx context.Context, op string, a b3.Address, do func(ctx context.Context, found item) error) error {
	ctx, cancel, err := s.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	return s.withStripe(ctx, op, a, func(ctx context.Context) error {
		found, err := s.find(ctx, op, a)
		if err != nil {
			return err
		}
		return do(ctx, found)
	})
}

// Delete makes an object invisible. While this node has it open, it is kept
// under a temporary key.
//
// The pinned/ and named/ keys of an object are removed before the object is, and a
// put creates them after the object. So, whatever puts and deletes of other nodes
// come in between, an object that exists at the end and was put as pinned is
// pinned.
func (s *Store) Delete(ctx context.Context, a b3.Address) error {
	const op = "store.delete"
	return s.withObject(ctx, op, a, func(ctx context.Context, found item) error {
		l, err := s.preserveOpen(ctx, op, a, found)
		if err != nil {
			return err
		}
		return s.removeObject(ctx, op, a, found, l)
	})
}

// removeObject makes an object invisible, and counts its bytes as lingering
// while it is open. The caller holds the stripe.
func (s *Store) removeObject(ctx context.Context, op string, a b3.Address, found item, l *openObject) error {
	class, err := s.class(ctx, op, a)
	if err != nil {
		return err
	}
	if err := s.setClass(ctx, op, a, found.size, class, store.Cached); err != nil {
		return err
	}
	if err := s.bucket.remove(ctx, op, found.key); err != nil {
		return hideUnauthorized(err)
	}
	s.objects.Add(-1)
	s.bytes.Add(-found.size)
	s.markDeleted(l, found.size)
	if found.size > maxSmall {
		_ = s.bucket.remove(ctx, op, s.bucket.treeKey(a)) // without its object it is harmless, and the next put replaces it
	}
	return nil
}

// Usage reports how much is stored, as far as this node knows: what it counted
// at the start, and what it put and deleted since.
func (s *Store) Usage() store.Usage {
	u := store.Usage{
		Objects:   max(0, s.objects.Load()),
		Bytes:     max(0, s.bytes.Load()),
		Pinned:    max(0, s.pinned.Load()),
		Lingering: s.lingering.Load(),
	}
	u.Held = u.Bytes + u.Lingering
	return u
}

// Counts reports what was done.
func (s *Store) Counts() store.Counts {
	return store.Counts{
		Refusals:       s.refusals.Load(),
		Mismatches:     s.mismatches.Load(),
		IntegrityFails: s.integrityFails.Load(),
	}
}

// Calls returns the counters of calls to the object store. It never waits.
func (s *Store) Calls() store.Calls {
	return store.Calls{Retries: s.bucket.retries.Load(), Timeouts: s.bucket.timeouts.Load(), Failures: s.bucket.failures.Load()}
}

// cleanupTimeout is how long cleaning up may take.
const cleanupTimeout = time.Second

// cleanupContext returns a context for cleaning up after a failure: until the
// caller's deadline, but at most cleanupTimeout, and even if the caller has
// cancelled.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	left, bounded := flow.Remaining(ctx)
	if !bounded || left > cleanupTimeout {
		left = cleanupTimeout
	}
	return context.WithTimeout(context.WithoutCancel(ctx), left)
}
