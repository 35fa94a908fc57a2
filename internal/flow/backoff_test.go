package flow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/flow"
)

func TestBackoffLimit(t *testing.T) {
	b := flow.Backoff{Min: 50 * time.Millisecond, First: 100 * time.Millisecond, Max: time.Second}
	for n, want := range map[int]time.Duration{
		0: 100 * time.Millisecond, 1: 200 * time.Millisecond, 3: 800 * time.Millisecond, 4: time.Second, 1000: time.Second,
	} {
		if got := b.Limit(n); got != want {
			t.Errorf("the limit after %d delays is %s, want %s", n, got, want)
		}
	}
	longest := flow.Backoff{First: time.Hour, Max: 1<<63 - 1}
	if got := longest.Limit(100); got != 1<<63-1 {
		t.Errorf("a limit that doubles beyond the largest duration is %s", got)
	}
	if got := (flow.Backoff{First: time.Minute, Max: time.Second}).Limit(0); got != time.Second {
		t.Errorf("the first limit is %s, and must not exceed Max", got)
	}
}

// Delays fill the whole range. Its ends double together, or only the upper one.
func TestBackoffDelay(t *testing.T) {
	for _, c := range []struct {
		b             flow.Backoff
		n             int
		shortest, max time.Duration
	}{
		{flow.Backoff{Min: 2, First: 4, Max: 8}, 0, 2, 4},
		{flow.Backoff{Min: 2, First: 4, Max: 8}, 1, 4, 8},
		{flow.Backoff{Min: 2, First: 4, Max: 8}, 2, 4, 8},
		{flow.Backoff{Min: 2, First: 4, Max: 8, FullJitter: true}, 0, 2, 4},
		{flow.Backoff{Min: 2, First: 4, Max: 8, FullJitter: true}, 2, 2, 8},
	} {
		seen := map[time.Duration]bool{}
		for range 1000 {
			delay := c.b.Delay(c.n)
			if delay < c.shortest || delay > c.max {
				t.Fatalf("%+v: delay %d is %d, outside of [%d, %d]", c.b, c.n, delay, c.shortest, c.max)
			}
			seen[delay] = true
		}
		if len(seen) != int(c.max-c.shortest)+1 {
			t.Errorf("%+v: a thousand delays %d have the values %v", c.b, c.n, seen)
		}
	}
	if got := (flow.Backoff{Min: 5, First: 1, Max: 1}).Delay(0); got != 5 {
		t.Errorf("a Min above the limit gives %d", got)
	}
}

func TestBackoffWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := flow.Backoff{Min: time.Second, First: time.Second, Max: time.Second}
		began := time.Now()
		if !b.Wait(t.Context(), 0) || time.Since(began) != time.Second {
			t.Errorf("waited %s", time.Since(began))
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if b.Wait(ctx, 0) || time.Since(began) != 0 {
			t.Errorf("started a wait that outlasts the deadline, and returned after %s", time.Since(began))
		}

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if b.Wait(ctx, 0) {
			t.Error("there is no time for another attempt after ctx was cancelled")
		}
	})
}
