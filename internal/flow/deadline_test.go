package flow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

func TestEnded(t *testing.T) {
	if err := flow.Ended(t.Context(), "op"); err != nil {
		t.Errorf("a ctx that has not ended: %v", err)
	}
	passed, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	if err := flow.Ended(passed, "op"); fault.KindOf(err) != fault.Timeout || fault.OpOf(err) != "op" {
		t.Errorf("deadline: %v", err)
	}
	typed, cancel := context.WithCancelCause(t.Context())
	cancel(fault.New("limits", fault.RatioCap, "11 times"))
	if err := flow.Ended(typed, "op"); fault.KindOf(err) != fault.RatioCap {
		t.Errorf("a typed cause decides the kind: %v", err)
	}
	plain, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone fishing")
	cancel(gone)
	if err := flow.Ended(plain, "op"); fault.KindOf(err) != fault.Canceled || !errors.Is(err, gone) {
		t.Errorf("a plain cause stays visible: %v", err)
	}
}

func TestRemainingAndReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, bounded := flow.Remaining(t.Context()); bounded {
			t.Error("no deadline, yet a remaining time")
		}
		open, cancel := flow.Reserve(t.Context(), time.Second)
		if _, bounded := flow.Remaining(open); bounded {
			t.Error("a reserve of no deadline made one")
		}
		cancel()

		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		inner, done := flow.Reserve(ctx, 2*time.Second)
		defer done()
		if left, _ := flow.Remaining(inner); left != 3*time.Second {
			t.Errorf("left %s of 5s with 2s in reserve", left)
		}
		<-inner.Done()
		if left, _ := flow.Remaining(ctx); left != 2*time.Second {
			t.Errorf("left for the caller: %s", left)
		}
		<-ctx.Done()
		time.Sleep(time.Second)
		if left, bounded := flow.Remaining(ctx); left != 0 || !bounded {
			t.Errorf("after the deadline: %s", left)
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := flow.Sleep(t.Context(), time.Minute); err != nil || time.Since(start) != time.Minute {
			t.Errorf("slept %s: %v", time.Since(start), err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := flow.Sleep(ctx, time.Hour); fault.KindOf(err) != fault.Timeout {
			t.Errorf("cut short: %v", err)
		}
	})
}

func TestJoinEndsWithEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("told to stop")
		for _, second := range []bool{false, true} {
			first, leave := context.WithTimeout(t.Context(), time.Hour)
			other, stop := context.WithCancelCause(t.Context())
			joined, done := flow.Join(first, other)
			if joined.Err() != nil {
				t.Fatal("ended before either did")
			}
			if left, _ := flow.Remaining(joined); left != time.Hour {
				t.Errorf("the deadline of the first is %s away", left)
			}
			if second {
				stop(stopped)
			} else {
				leave()
			}
			<-joined.Done()
			if errors.Is(context.Cause(joined), stopped) != second {
				t.Errorf("ended by the second: %t, cause %v", second, context.Cause(joined))
			}
			done()
			leave()
			stop(nil)
		}
	})
}
