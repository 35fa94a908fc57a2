package amnesia

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestPurgerKeepsItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPurger(DefaultPurgeInterval)
		var mu sync.Mutex
		var calls []string
		note := func(name string) func() {
			return func() {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, name)
			}
		}
		p.Register(note("first"))
		remove := p.Register(note("second"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Serve(ctx) }()

		expect := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(calls, want) {
				t.Fatalf("after %s: %v, want %v", after, calls, want)
			}
			calls = nil
		}
		expect(30*time.Second - 1)
		expect(1, "first", "second")
		expect(time.Minute, "first", "second", "first", "second")
		remove()
		remove()
		expect(30*time.Second, "first")
		p.Purge()
		expect(0, "first")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		expect(time.Hour)
	})
}

func TestNoIntervalMeansNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPurger(0)
		calls := 0
		p.Register(func() { calls++ })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := p.Serve(ctx); err != nil || calls != 0 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if p.Purge(); calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
}

// A purge may register and remove others: no lock is held while it runs.
func TestAPurgeMayChangeTheList(t *testing.T) {
	p := NewPurger(time.Second)
	calls := 0
	var remove func()
	remove = p.Register(func() {
		calls++
		remove()
		p.Register(func() { calls += 10 })
	})
	p.Purge()
	p.Purge()
	if calls != 11 {
		t.Errorf("calls: %d", calls)
	}
}
