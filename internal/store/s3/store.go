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

// small is the size up to which an object is fetched and verified whole. It
// has no tree.
const small = 64 << 10

// stripes is how many addresses can be changed at a time.
const stripes = 256

// Store is a store.Store in a bucket.
type Store struct {
	// set at construction
	bucket    *bucket
	maxObject int64
	ctx       context.Context // ends when the store is closed
	end       context.CancelCauseFunc
	intakes   *flow.Permits          // each is a body that may take up memory
	turns     [stripes]*flow.Permits // each is the right to change the objects of a stripe

	mu    sync.Mutex
	lives map[b3.Address]*life // guarded by mu: what is open and visible
	open  int                  // guarded by mu: how many handles there are

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

// Open finds the bucket, sweeps away what was abandoned in it, counts what it
// holds, and gives it out as a store. It fails if the bucket cannot be used.
func Open(ctx context.Context, inv *flow.Inventory, spec Spec) (*Store, error) {
	at, err := spec.complete()
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
	s := &Store{bucket: b, maxObject: spec.MaxObject, lives: map[b3.Address]*life{}}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.intakes = flow.NewPermits(inv, flow.PermitsSpec{
		Service: spec.Service, Name: "s3_puts", Cap: spec.Puts, Waiting: 4 * spec.Puts, From: "puts", To: "object store",
	})
	for i := range s.turns {
		s.turns[i] = flow.NewPermits(inv, flow.PermitsSpec{
			Service: spec.Service, Name: "s3_turn", Cap: 1, Waiting: 256, From: "puts, deletes and pins", To: "object store", Each: "stripe of addresses",
		})
	}
	return s
}

// Close refuses everything from now on and ends what is under way, but for
// reads from handles. What is kept stays in the bucket. The error is always nil.
func (s *Store) Close() error {
	s.end(flow.ErrClosed)
	s.intakes.Retire()
	for _, turn := range s.turns {
		turn.Retire()
	}
	s.bucket.transport.CloseIdleConnections()
	return nil
}

// refuse says why an operation must not begin, if so.
func (s *Store) refuse(ctx context.Context, op string) error {
	if s.ctx.Err() != nil {
		return closed(op)
	}
	return flow.Ended(ctx, op)
}

// begin starts an operation: its context ends with the store too.
func (s *Store) begin(ctx context.Context, op string) (context.Context, context.CancelFunc, error) {
	if err := s.refuse(ctx, op); err != nil {
		return nil, nil, err
	}
	joined, cancel := flow.Join(ctx, s.ctx)
	return joined, cancel, nil
}

// alone does something while nobody else of this node changes the object. Other
// nodes may.
func (s *Store) alone(ctx context.Context, op string, a b3.Address, do func(ctx context.Context) error) error {
	turn := s.turns[a[0]]
	if err := s.acquire(ctx, op, turn); err != nil {
		return err
	}
	defer turn.Release()
	return do(ctx)
}

// acquire waits for a permit, but not for ever, whatever the caller says: each
// of those before us may take as long as its calls may.
func (s *Store) acquire(ctx context.Context, op string, permits *flow.Permits) error {
	waiting, cancel := context.WithTimeout(ctx, tries*s.bucket.timeout)
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
	found, err := s.bucket.head(ctx, op, s.bucket.data(a))
	if fault.KindOf(err) == fault.NotFound {
		return item{}, notFound(op, a)
	}
	return found, running(err)
}

func (s *Store) class(ctx context.Context, op string, a b3.Address) (store.Class, error) {
	pinned, err := s.bucket.has(ctx, op, s.bucket.pinned(a))
	if pinned {
		return store.Pinned, nil
	}
	return store.Cached, running(err)
}

// Pin keeps an object until it is deleted.
func (s *Store) Pin(ctx context.Context, a b3.Address) error {
	const op = "store.pin"
	return s.change(ctx, op, a, func(ctx context.Context, found item) error {
		return s.pin(ctx, op, a, found.size)
	})
}

// pin marks an object. It is the caller's turn.
func (s *Store) pin(ctx context.Context, op string, a b3.Address, size int64) error {
	created, err := s.bucket.putNew(ctx, op, s.bucket.pinned(a), nil)
	if created {
		s.pinned.Add(size)
	}
	return running(err)
}

// Unpin says that an object can be had again from elsewhere.
func (s *Store) Unpin(ctx context.Context, a b3.Address) error {
	const op = "store.unpin"
	return s.change(ctx, op, a, func(ctx context.Context, found item) error {
		return s.unpin(ctx, op, a, found.size)
	})
}

// unpin takes the mark off, if there is one. It is the caller's turn.
func (s *Store) unpin(ctx context.Context, op string, a b3.Address, size int64) error {
	pinned, err := s.bucket.has(ctx, op, s.bucket.pinned(a))
	if err != nil || !pinned {
		return running(err)
	}
	if err := s.bucket.remove(ctx, op, s.bucket.pinned(a)); err != nil {
		return running(err)
	}
	s.pinned.Add(-size)
	return nil
}

// change does something with an object that is there.
func (s *Store) change(ctx context.Context, op string, a b3.Address, do func(ctx context.Context, found item) error) error {
	ctx, cancel, err := s.begin(ctx, op)
	if err != nil {
		return err
	}
	defer cancel()
	return s.alone(ctx, op, a, func(ctx context.Context) error {
		found, err := s.find(ctx, op, a)
		if err != nil {
			return err
		}
		return do(ctx, found)
	})
}

// Delete makes an object invisible. While this node has it open, it is kept
// aside under a temporary key.
//
// The mark of a pinned object goes before the object does, and a put sets it
// after. So, whatever puts and deletes of other nodes come in between, an object
// that is there at the end and was put as pinned is pinned.
func (s *Store) Delete(ctx context.Context, a b3.Address) error {
	const op = "store.delete"
	return s.change(ctx, op, a, func(ctx context.Context, found item) error {
		l, err := s.keepAside(ctx, op, a, found)
		if err != nil {
			return err
		}
		return s.takeOut(ctx, op, a, found, l)
	})
}

// takeOut makes an object invisible, and counts its bytes as lingering while
// somebody has it open. It is the caller's turn.
func (s *Store) takeOut(ctx context.Context, op string, a b3.Address, found item, l *life) error {
	if err := s.unpin(ctx, op, a, found.size); err != nil {
		return err
	}
	if err := s.bucket.remove(ctx, op, found.key); err != nil {
		return running(err)
	}
	s.objects.Add(-1)
	s.bytes.Add(-found.size)
	s.farewell(l, found.size)
	if found.size > small {
		_ = s.bucket.remove(ctx, op, s.bucket.tree(a)) // without its object it does no harm, and the next put replaces it
	}
	return nil
}

// Usage tells how much is kept, as far as this node knows: what it counted at
// the start, and what it put and deleted since.
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

// Counts tells what was done.
func (s *Store) Counts() store.Counts {
	return store.Counts{
		Refusals:       s.refusals.Load(),
		Mismatches:     s.mismatches.Load(),
		IntegrityFails: s.integrityFails.Load(),
	}
}

// Calls is what became of the calls to the object store. Figures only go up.
type Calls struct {
	Retries  uint64 // calls that were made again: backoff_retries_total
	Timeouts uint64 // calls that were not answered in time: io_timeouts_total
	Failures uint64 // calls that failed in another way: io_errors_total
}

// Calls tells what became of the calls to the object store. It never waits.
func (s *Store) Calls() Calls {
	return Calls{Retries: s.bucket.retries.Load(), Timeouts: s.bucket.timeouts.Load(), Failures: s.bucket.failures.Load()}
}

// moment is how long tidying up may take.
const moment = time.Second

// aside gives time to tidy up after a failure: until the caller's deadline, but
// not longer than a moment, and also if the caller has left.
func aside(ctx context.Context) (context.Context, context.CancelFunc) {
	left, bounded := flow.Remaining(ctx)
	if !bounded || left > moment {
		left = moment
	}
	return context.WithTimeout(context.WithoutCancel(ctx), left)
}
