package explore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"micronode/internal/flow"
	"micronode/internal/flow/explore"
)

// Each mutant below is a small primitive with one mistake that people really
// make. The explorer is worth its name only if it finds every one of them.

// buggyChannel is a channel of capacity one with a switch for each mistake.
type buggyChannel struct {
	seam flow.Seam
	bug  string

	mu      sync.Mutex
	items   []int
	closed  bool
	waiting []*flow.Waiter
}

var errChannelClosed = errors.New("closed")

// splitLock ends the critical section early and begins another, which is the
// mistake of looking first and acting later.
func (b *buggyChannel) splitLock(bug string) {
	if b.bug == bug {
		b.mu.Unlock()
		b.seam.Point("looks away")
		b.mu.Lock()
	}
}

func (b *buggyChannel) push(item int) error {
	b.seam.Point("push")
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errChannelClosed
	}
	b.splitLock("accept after close")
	if len(b.items) >= 1 {
		b.mu.Unlock()
		return errors.New("busy")
	}
	b.splitLock("over capacity")
	b.items = append(b.items, item)
	wake := b.take(1)
	b.mu.Unlock()
	b.wake(wake)
	if b.bug == "double wake" {
		b.wake(wake)
	}
	return nil
}

func (b *buggyChannel) pop(ctx context.Context) (int, error) {
	for {
		b.seam.Point("pop")
		b.mu.Lock()
		if len(b.items) > 0 {
			item := b.items[0]
			b.splitLock("double delivery")
			b.items = nil
			b.mu.Unlock()
			return item, nil
		}
		if b.closed {
			b.mu.Unlock()
			return 0, errChannelClosed
		}
		b.splitLock("lost wake-up")
		w := new(flow.Waiter)
		b.waiting = append(b.waiting, w)
		b.mu.Unlock()
		if !b.seam.Park(ctx, w) {
			return 0, b.cancelWait(ctx, w)
		}
	}
}

// cancelWait of a waiter that was already taken off the list must pass the wake on.
func (b *buggyChannel) cancelWait(ctx context.Context, w *flow.Waiter) error {
	b.seam.Point("gives up")
	b.mu.Lock()
	for i, other := range b.waiting {
		if other == w {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			b.mu.Unlock()
			return ctx.Err()
		}
	}
	var wake []*flow.Waiter
	if b.bug != "canceled waiter eats the wake" {
		wake = b.take(1)
	}
	b.mu.Unlock()
	b.wake(wake)
	return ctx.Err()
}

func (b *buggyChannel) close() {
	b.seam.Point("close")
	b.mu.Lock()
	b.closed = true
	wake := b.take(len(b.waiting))
	if b.bug == "close wakes one" && len(wake) > 1 {
		wake = wake[:1]
	}
	b.mu.Unlock()
	b.wake(wake)
}

func (b *buggyChannel) take(n int) []*flow.Waiter {
	n = min(n, len(b.waiting))
	wake := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return wake
}

func (b *buggyChannel) wake(waiters []*flow.Waiter) {
	for _, w := range waiters {
		b.seam.Wake(w)
	}
}

// channelModel is a hard test of buggyChannel: a producer, a consumer that
// waits and one whose context ends, a deadline and a shutdown.
func channelModel(bug string) func(*explore.World) {
	return func(w *explore.World) {
		b := &buggyChannel{seam: w, bug: bug}
		accepted, delivered, closed := 0, map[int]int{}, false
		w.Go("producer", func() {
			for item := range 2 {
				after := closed
				err := b.push(item)
				w.Check(!after || err != nil, "accepted after close")
				if err == nil {
					accepted++
				}
			}
		})
		ctx, cancel := w.Context()
		consume := func(ctx context.Context) {
			for {
				item, err := b.pop(ctx)
				if err != nil {
					return
				}
				delivered[item]++
				w.Check(delivered[item] == 1, "item %d was delivered twice", item)
			}
		}
		w.Go("impatient", func() { consume(ctx) })
		w.Go("patient", func() { consume(context.Background()) })
		w.Go("deadline", cancel)
		w.Go("shutdown", func() {
			b.close()
			closed = true
			w.Check(len(b.waiting) == 0, "%d waiters left at close", len(b.waiting))
		})
		w.After(func() {
			w.Check(accepted == len(delivered), "accepted %d, delivered %d", accepted, len(delivered))
		})
	}
}

func TestEverySeededBugIsFound(t *testing.T) {
	// What each bug looks like from outside: the failure must be about it.
	for bug, sign := range map[string]string{
		"double delivery": "delivered",
		"lost wake-up":    "deadlock",
		"close wakes one": "deadlock",
		"double wake":     "woken twice",
	} {
		t.Run(bug, func(t *testing.T) { mustFind(t, channelModel(bug), sign) })
	}
	t.Run("over capacity", func(t *testing.T) {
		mustFind(t, func(w *explore.World) {
			b := &buggyChannel{seam: w, bug: "over capacity"}
			for _, name := range []string{"producer a", "producer b"} {
				w.Go(name, func() { _ = b.push(1) })
			}
			w.After(func() { w.Check(len(b.items) <= 1, "%d items in a box for one", len(b.items)) })
		}, "items in a box for one")
	})
	t.Run("accept after close", func(t *testing.T) {
		mustFind(t, func(w *explore.World) {
			b := &buggyChannel{seam: w, bug: "accept after close"}
			closed := false
			w.Go("producer", func() {
				err := b.push(1)
				w.Check(err != nil || !closed, "accepted although close had returned")
			})
			w.Go("shutdown", func() {
				b.close()
				closed = true
			})
		}, "accepted although close had returned")
	})
	t.Run("canceled waiter eats the wake", func(t *testing.T) {
		mustFind(t, func(w *explore.World) {
			b := &buggyChannel{seam: w, bug: "canceled waiter eats the wake"}
			ctx, cancel := w.Context()
			w.Go("impatient", func() {
				if item, err := b.pop(ctx); err == nil {
					w.Check(b.push(item) == nil, "one item is under way, so there is room for it")
				}
			})
			w.Go("patient", func() { _, _ = b.pop(context.Background()) })
			w.Go("deadline", cancel)
			w.Go("producer", func() { w.Check(b.push(1) == nil, "there is room") })
		}, "deadlock")
	})
	t.Run("torn snapshot", func(t *testing.T) {
		mustFind(t, func(w *explore.World) {
			alpha, beta := 0, 0
			w.Go("reloader", func() {
				alpha = 1
				w.Point("between two fields")
				beta = 1
			})
			w.Go("request", func() {
				w.Point("load")
				w.Check(alpha == beta, "torn: alpha %d, beta %d", alpha, beta)
			})
		}, "torn")
	})
}

// mustFind explores, expects a failure that shows the sign, and expects that
// its schedule alone shows the same again.
func mustFind(t *testing.T, model func(*explore.World), sign string) {
	t.Helper()
	result := explore.Run(quick, model)
	if result.Failure == nil {
		t.Fatalf("not found in %d runs", result.Runs)
	}
	if !strings.Contains(result.Failure.Error(), sign) {
		t.Fatalf("found something else than %q: %v", sign, result.Failure)
	}
	again, err := explore.Replay(quick, result.Failure.Schedule, model)
	if err != nil || again == nil {
		t.Fatalf("schedule %q does not show it again: %v, %v", result.Failure.Schedule, again, err)
	}
	if again.Error() != result.Failure.Error() {
		t.Fatalf("the replay differs:\n%v\nfirst:\n%v", again, result.Failure)
	}
}

func TestTheChannelWithoutABugHolds(t *testing.T) {
	explore.Test(t, explore.Options{Preemptions: 1}, channelModel(""))
}

func TestReplayOfNonsenseIsRefused(t *testing.T) {
	for _, schedule := range []string{"0.x.1", "0.-1"} {
		if _, err := explore.Replay(quick, schedule, channelModel("")); err == nil {
			t.Errorf("schedule %q was taken", schedule)
		}
	}
	if failure, err := explore.Replay(quick, "0.0.0", channelModel("")); failure != nil || err != nil {
		t.Errorf("a good schedule of a good model: %v, %v", failure, err)
	}
}

func TestAPanicIsAFailureWithItsStack(t *testing.T) {
	result := explore.Run(quick, func(w *explore.World) {
		w.Go("clumsy", func() { panic("broke the vase") })
		w.Go("bystander", func() { w.Point("looks on") })
	})
	if result.Failure == nil || !strings.Contains(result.Failure.Error(), "broke the vase") {
		t.Fatalf("got %+v", result)
	}
}

func TestAStoppedSearchSaysSo(t *testing.T) {
	result := explore.Run(explore.Options{Preemptions: 3, MaxRuns: 5}, channelModel(""))
	if result.Runs != 5 || result.Complete || result.Failure != nil {
		t.Fatalf("got %+v", result)
	}
}

// The count of interleavings of two threads of two steps each is known: with
// enough preemptions every order of the four steps is run, and just once.
func TestEveryOrderIsRunOnce(t *testing.T) {
	seen := map[string]int{}
	explore.Test(t, explore.Options{Preemptions: 4}, func(w *explore.World) {
		var order strings.Builder
		for _, name := range []string{"a", "b"} {
			w.Go(name, func() {
				order.WriteString(name)
				w.Point("between")
				order.WriteString(strings.ToUpper(name))
			})
		}
		w.After(func() { seen[order.String()]++ })
	})
	for _, order := range []string{"aAbB", "abAB", "abBA", "bBaA", "baBA", "baAB"} {
		if seen[order] != 1 {
			t.Errorf("order %s was run %d times", order, seen[order])
		}
	}
	if len(seen) != 6 {
		t.Errorf("orders run: %v", seen)
	}
}
