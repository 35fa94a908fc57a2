package flow

import (
	"context"
	"sync"
	"sync/atomic"

	"micronode/fault"
)

// FlightsSpec says how calls are run. Op and Start are required.
type FlightsSpec struct {
	Op string // the operation in the errors of callers

	// Start runs a task: most often Go of a supervise.Group. It is a parameter
	// because flow starts no goroutines, and because the group is what owns,
	// bounds and counts the tasks: its refusal, Busy when as many run as may, is
	// the result of the call. A Start that runs the task on the goroutine of its
	// caller is possible: then the first caller waits for the call whatever its
	// own deadline. It fails only if the task did not run: what the task returns is
	// for its owner to count.
	Start func(task func(ctx context.Context) error) error

	// Permits bound how many calls run at a time, if they are set. A caller whose
	// deadline passes while the call waits for its permit gets Backpressure, as
	// from Acquire.
	Permits *Permits
}

// Flights runs one call for all callers that ask for the same key at a time. A
// flight is such a call with its callers. It belongs to all of them: a caller
// whose context ends leaves with an error of its own, and the call goes on for
// the others. When the last caller leaves, the call is cancelled, and a later
// caller gets a new one, even while the cancelled one still ends.
type Flights[K comparable, V any] struct {
	spec FlightsSpec // set at construction

	mu     sync.Mutex       //lockblock:leaf a map and a count
	active map[K]*flight[V] // guarded by mu: those that callers may join
}

type flight[V any] struct {
	// set at construction
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when value and err are set

	callers int         // guarded by Flights.mu
	begun   atomic.Bool // it has its permit

	value V
	err   error
}

// NewFlights makes a set of flights without any.
func NewFlights[K comparable, V any](spec FlightsSpec) *Flights[K, V] {
	return &Flights[K, V]{spec: spec, active: map[K]*flight[V]{}}
}

// Do returns the result of the call for a key that is under way, or else of the
// given call. It waits for it until ctx ends. The call gets the context of its
// task, which does not end with ctx. If the call panics, all callers get an
// Internal error, and the panic goes on to the owner of the task.
func (f *Flights[K, V]) Do(ctx context.Context, key K, call func(ctx context.Context) (V, error)) (V, error) {
	var none V
	if ctx.Err() != nil {
		return none, Ended(ctx, f.spec.Op)
	}
	one, first := f.join(key)
	defer f.leave(key, one)
	if first {
		if err := f.spec.Start(func(ctx context.Context) error { return f.run(ctx, key, one, call) }); err != nil {
			f.finish(key, one, none, err)
		}
	}
	select {
	case <-one.done:
		return one.value, one.err
	case <-ctx.Done():
		return none, f.waitError(ctx, one)
	}
}

// Len is how many calls may be joined.
func (f *Flights[K, V]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.active)
}

// join adds a caller to the flight of a key, and reports whether it is the
// first, which has to start the call.
func (f *Flights[K, V]) join(key K) (one *flight[V], first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one, joined := f.active[key]
	if !joined {
		one = &flight[V]{done: make(chan struct{})}
		one.ctx, one.cancel = context.WithCancel(context.Background())
		f.active[key] = one
	}
	one.callers++
	return one, !joined
}

// leave removes a caller. A flight without callers is cancelled, and cannot be
// joined any more.
func (f *Flights[K, V]) leave(key K, one *flight[V]) {
	f.mu.Lock()
	one.callers--
	last := one.callers == 0
	if last {
		f.remove(key, one)
	}
	f.mu.Unlock()
	if last {
		one.cancel()
	}
}

// run is the task of a flight. It finishes the flight whatever happens to the
// task: otherwise nothing could ever be called for this key again.
func (f *Flights[K, V]) run(ctx context.Context, key K, one *flight[V], call func(context.Context) (V, error)) (err error) {
	ctx, cancel := Join(ctx, one.ctx)
	defer cancel()
	var value V
	err = fault.New(f.spec.Op, fault.Internal, "the task died before it was done")
	defer func() { f.finish(key, one, value, err) }()
	if permits := f.spec.Permits; permits != nil {
		if refused := permits.Acquire(ctx); refused != nil {
			err = refused
			return err
		}
		defer permits.Release()
	}
	one.begun.Store(true)
	value, err = call(ctx)
	return err
}

// finish sets the result of a flight and wakes its callers.
func (f *Flights[K, V]) finish(key K, one *flight[V], value V, err error) {
	f.mu.Lock()
	f.remove(key, one)
	f.mu.Unlock()
	one.value, one.err = value, err
	close(one.done)
}

// remove makes a flight one that cannot be joined. Guarded by mu.
func (f *Flights[K, V]) remove(key K, one *flight[V]) {
	if f.active[key] == one {
		delete(f.active, key)
	}
}

// waitError is the error of a caller whose context ended.
func (f *Flights[K, V]) waitError(ctx context.Context, one *flight[V]) error {
	err := Ended(ctx, f.spec.Op)
	if f.spec.Permits != nil && !one.begun.Load() && fault.KindOf(err) == fault.Timeout {
		return fault.WrapKind(f.spec.Op, fault.Backpressure, err)
	}
	return err
}
