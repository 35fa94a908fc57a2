package flow_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// starter runs tasks on goroutines of its own, as a group does: no more than
// max at a time, and with their panics recovered.
type starter struct {
	ctx    context.Context
	max    int
	all    sync.WaitGroup
	mu     sync.Mutex
	now    int
	panics []any
	errs   []error
}

func (s *starter) start(task func(context.Context) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == s.max {
		return fault.New("start", fault.Busy, "full")
	}
	s.now++
	s.all.Go(func() {
		var err error
		defer func() {
			value := recover()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.now--
			if value != nil {
				s.panics = append(s.panics, value)
				return
			}
			s.errs = append(s.errs, err)
		}()
		err = task(s.ctx)
	})
	return nil
}

func newTestFlights(t *testing.T, most int, permits *flow.Permits) (*flow.Flights[string, int], *starter) {
	s := &starter{ctx: t.Context(), max: most}
	return flow.NewFlights[string, int](flow.FlightsSpec{Op: "test", Start: s.start, Permits: permits}), s
}

func wantFlight(t *testing.T, who string, got int, err error, want int, kind fault.Kind) {
	t.Helper()
	if got != want || fault.KindOf(err) != kind {
		t.Errorf("%s: %d, %v; want %d, %v", who, got, err, want, kind)
	}
}

func TestFlightsCallOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newTestFlights(t, 2, nil)
		gate := make(chan struct{})
		calls := 0
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				got, err := f.Do(t.Context(), "a", func(context.Context) (int, error) { calls++; <-gate; return 7, nil })
				wantFlight(t, fmt.Sprint(i), got, err, 7, 0)
			})
		}
		synctest.Wait()
		got, err := f.Do(t.Context(), "b", func(context.Context) (int, error) { return 8, nil })
		wantFlight(t, "another key", got, err, 8, 0)
		close(gate)
		all.Wait()
		got, err = f.Do(t.Context(), "a", func(context.Context) (int, error) { calls++; return 0, fault.NotFound })
		wantFlight(t, "after the end", got, err, 0, fault.NotFound)
		s.all.Wait()
		if calls != 2 || f.Len() != 0 || len(s.errs) != 3 || s.errs[2] == nil {
			t.Errorf("%d calls, %d are left, the tasks ended with %v", calls, f.Len(), s.errs)
		}
	})
}

func TestFlightsGoOnForThoseWhoStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newTestFlights(t, 2, nil)
		gate, ended := make(chan struct{}), make(chan error, 1)
		call := func(ctx context.Context) (int, error) {
			select {
			case <-gate:
				return 7, nil
			case <-ctx.Done():
				ended <- context.Cause(ctx)
				<-gate // it takes a while to end
				return 0, ctx.Err()
			}
		}
		first, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		second, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			got, err := f.Do(first, "a", call)
			wantFlight(t, "the first", got, err, 0, fault.Timeout)
		})
		synctest.Wait()
		all.Go(func() {
			got, err := f.Do(second, "a", call)
			wantFlight(t, "the second", got, err, 0, fault.Canceled)
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(ended) != 0 || f.Len() != 1 {
			t.Errorf("the call ended with the first caller: %d are left", f.Len())
		}
		leave()
		all.Wait()
		<-ended

		// The cancelled call still runs, and cannot be joined.
		got, err := f.Do(t.Context(), "a", func(context.Context) (int, error) { return 9, nil })
		wantFlight(t, "a late one", got, err, 9, 0)
		got, err = f.Do(second, "a", func(context.Context) (int, error) { t.Error("called"); return 0, nil })
		wantFlight(t, "a caller that has left", got, err, 0, fault.Canceled)
		close(gate)
		s.all.Wait()
		if f.Len() != 0 {
			t.Errorf("%d are left", f.Len())
		}
	})
}

// A call that ends after it was cancelled does not end the one that took its
// place.
func TestFlightsKeepTheirSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newTestFlights(t, 2, nil)
		old, gate := make(chan struct{}), make(chan struct{})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.Do(short, "a", func(context.Context) (int, error) { <-old; return 1, nil })
		wantFlight(t, "the old one", 0, err, 0, fault.Timeout)
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				got, err := f.Do(t.Context(), "a", func(context.Context) (int, error) { <-gate; return 2, nil })
				wantFlight(t, fmt.Sprint(i), got, err, 2, 0)
			})
			synctest.Wait()
			if i == 0 {
				close(old)
				synctest.Wait()
			}
		}
		close(gate)
		all.Wait()
		s.all.Wait()
		if len(s.errs) != 2 {
			t.Errorf("%d calls", len(s.errs))
		}
	})
}

func TestFlightsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newTestFlights(t, 1, nil)
		gate := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			got, err := f.Do(t.Context(), "a", func(context.Context) (int, error) { <-gate; return 7, nil })
			wantFlight(t, "the first", got, err, 7, 0)
		})
		synctest.Wait()
		got, err := f.Do(t.Context(), "b", func(context.Context) (int, error) { return 8, nil })
		wantFlight(t, "one too many", got, err, 0, fault.Busy)
		if f.Len() != 1 {
			t.Errorf("%d are left", f.Len())
		}
		close(gate)
		all.Wait()
		s.all.Wait()
		got, err = f.Do(t.Context(), "b", func(context.Context) (int, error) { return 8, nil })
		wantFlight(t, "afterwards", got, err, 8, 0)
	})
}

func TestFlightsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newTestFlights(t, 1, nil)
		gate := make(chan struct{})
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				got, err := f.Do(t.Context(), "a", func(context.Context) (int, error) { <-gate; panic("on fire") })
				wantFlight(t, fmt.Sprint(i), got, err, 0, fault.Internal)
			})
		}
		synctest.Wait()
		close(gate)
		all.Wait()
		s.all.Wait()
		if len(s.panics) != 1 || f.Len() != 0 {
			t.Errorf("the owner of the task saw %v; %d are left", s.panics, f.Len())
		}
	})
}

// A task whose owner stops ends the call for all.
func TestFlightsEndWithTheirTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		f, s := newTestFlights(t, 1, nil)
		s.ctx = ctx
		time.AfterFunc(time.Second, stop)
		got, err := f.Do(t.Context(), "a", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, flow.Ended(ctx, "call") })
		wantFlight(t, "the caller", got, err, 0, fault.Canceled)
	})
}

func TestFlightsUnderPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permits := flow.NewPermits(flow.NewInventory(), flow.PermitsSpec{Service: "media", Name: "jobs", Cap: 1, Waiting: 1})
		f, s := newTestFlights(t, 10, permits)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		long, release := context.WithTimeout(t.Context(), 2*time.Second)
		defer release()
		var all sync.WaitGroup
		wait := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		all.Go(func() {
			got, err := f.Do(long, "runs", wait)
			wantFlight(t, "the call that runs", got, err, 0, fault.Timeout)
		})
		synctest.Wait()
		all.Go(func() {
			got, err := f.Do(short, "waits", wait)
			wantFlight(t, "the call that waits", got, err, 0, fault.Backpressure)
		})
		synctest.Wait()
		got, err := f.Do(t.Context(), "too many wait", wait)
		wantFlight(t, "the refused call", got, err, 0, fault.Backpressure)
		all.Wait()
		s.all.Wait()
		if len(s.errs) != 3 || s.errs[0] == nil || s.errs[1] == nil || s.errs[2] == nil {
			t.Errorf("the tasks ended with %v", s.errs)
		}
		got, err = f.Do(t.Context(), "afterwards", func(context.Context) (int, error) { return 7, nil })
		wantFlight(t, "afterwards", got, err, 7, 0)
	})
}

// The goroutine of the first caller may run the call.
func TestFlightsOnTheCallersGoroutine(t *testing.T) {
	f := flow.NewFlights[string, int](flow.FlightsSpec{Op: "test", Start: func(task func(context.Context) error) error { _ = task(t.Context()); return nil }})
	got, err := f.Do(t.Context(), "a", func(context.Context) (int, error) { return 7, nil })
	wantFlight(t, "the caller", got, err, 7, 0)
	defer func() {
		if recover() == nil || f.Len() != 0 {
			t.Errorf("the panic was swallowed, or %d are left", f.Len())
		}
	}()
	_, _ = f.Do(t.Context(), "a", func(context.Context) (int, error) { panic("on fire") })
}
