package breaker_test

import (
	"errors"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/breaker"
	"micronode/internal/testkit"
)

// callFrom calls a target for a caller. It reports false if it is refused.
func (f *fixture) callFrom(caller uint64, key string, results ...error) bool {
	f.t.Helper()
	for _, result := range results {
		done, err := f.AllowFrom(key, caller)
		if err != nil {
			return false
		}
		done(result)
	}
	return true
}

// A target that leaves 19 of 20 questions without an answer is cut off, although
// it answers the twentieth, and whether one caller asks or several.
func TestSilenceCountsAlthoughOtherQuestionsAreAnswered(t *testing.T) {
	for _, asking := range []uint64{1, 3} {
		bubble(t, breaker.Spec{}, func(b *fixture) {
			refused := 0
			for i := range uint64(60) {
				result := error(fault.Timeout)
				if i%20 < asking {
					result = fault.NotFound
				}
				if !b.callFrom(i%asking, "a", result) {
					refused++
				}
				time.Sleep(10 * time.Millisecond)
			}
			b.wantState("a", breaker.Open)
			if refused < 20 {
				t.Errorf("%d callers: only %d of 60 calls were refused", asking, refused)
			}
		})
	}
}

// Time-outs of one caller say nothing while others get answers: it asks for what
// is hard to find. When it is the others who wait as well, they count.
func TestOneCallersHardQuestions(t *testing.T) {
	bubble(t, breaker.Spec{}, func(b *fixture) {
		for range 100 {
			b.callFrom(1, "a", fault.NotFound)
			b.callFrom(2, "a", fault.Timeout, fault.Timeout, fault.Timeout)
			time.Sleep(time.Second)
		}
		b.wantState("a", breaker.Closed)
		testkit.Equal(t, "an error that it returns itself counts", b.callFrom(2, "a", fault.UpstreamFailed), true)
		time.Sleep(3 * window)
		b.callFrom(1, "a", fault.Timeout, fault.Timeout, fault.Timeout)
		b.callFrom(2, "a", fault.Timeout, fault.Timeout)
		b.wantState("a", breaker.Open)
	})
}

// Who has not failed itself may find out whether an open target is well: one
// caller that asks for what hangs does not close it to others.
func TestAnOpenBreakerIsTriedByOthers(t *testing.T) {
	bubble(t, breaker.Spec{Trials: 1}, func(b *fixture) {
		b.callFrom(1, "a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		b.wantState("a", breaker.Open)
		if err := b.CheckFrom("a", 1); !errors.Is(err, fault.BreakerOpen) || b.callFrom(1, "a", nil) {
			t.Errorf("who opened it passes: %v", err)
		}
		testkit.Equal(t, "another may ask", b.CheckFrom("a", 2), nil)
		done, err := b.AllowFrom("a", 2)
		testkit.Equal(t, "and does", err, nil)
		testkit.Equal(t, "a third at the same time", b.callFrom(3, "a", nil), false)
		done(fault.Canceled) // says nothing
		b.wantState("a", breaker.Open)
		b.callFrom(3, "a", fault.Timeout)
		b.wantState("a", breaker.Open)
		testkit.Equal(t, "who has tried in vain", b.callFrom(3, "a", nil), false)
		testkit.Equal(t, "who has not", b.callFrom(2, "a", nil), true)
		b.wantState("a", breaker.Closed)
		testkit.Equal(t, "opened", b.openEvents, 1)

		b.callFrom(1, "a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		testkit.Equal(t, "the other, later", b.callFrom(2, "a", nil), true)
	})
	bubble(t, breaker.Spec{}, func(b *fixture) { // without trials nobody does
		b.callFrom(1, "a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		testkit.Equal(t, "another", b.callFrom(2, "a", nil), false)
	})
}

// However many callers there are, the memory for them is bounded.
func TestManyCallers(t *testing.T) {
	bubble(t, breaker.Spec{Trials: 1}, func(b *fixture) {
		for i := range uint64(10_000) {
			b.callFrom(i, "a", nil)
		}
		b.callFrom(20_000, "a", fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout, fault.Timeout)
		b.wantState("a", breaker.Closed)
	})
}
