package index

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

var (
	requestOne = b3.Of([]byte("pin one"))
	requestTwo = b3.Of([]byte("pin two"))
)

// The same request with the same key is carried out once, for a day.
func TestIdempotency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newIdempotency()
		times := 0
		act := func(context.Context) (any, error) { times++; return times, nil }
		for range 3 {
			if got, err := o.do(t.Context(), requestKey{key: "k"}, requestOne, act); got != 1 || err != nil {
				t.Errorf("%v %v", got, err)
			}
		}
		if _, err := o.do(t.Context(), requestKey{key: "k"}, requestTwo, act); fault.KindOf(err) != fault.Conflict || fault.NextOf(err) == "" {
			t.Error(err)
		}
		if got, _ := o.do(t.Context(), requestKey{key: "other"}, requestOne, act); got != 2 {
			t.Error(got)
		}
		if got, _ := o.do(t.Context(), requestKey{key: ""}, requestOne, act); got != 3 {
			t.Error("a request without a key was not carried out")
		}
		time.Sleep(idempotencyTTL - time.Second)
		if got, _ := o.do(t.Context(), requestKey{key: "k"}, requestOne, act); got != 1 {
			t.Errorf("%v: forgotten before a day was over", got)
		}
		time.Sleep(time.Second)
		if got, _ := o.do(t.Context(), requestKey{key: "k"}, requestTwo, act); got != 4 {
			t.Errorf("%v: remembered for more than a day", got)
		}
		if len(o.byAge) != 1 || len(o.byKey) != 1 {
			t.Errorf("%d and %d are remembered", len(o.byAge), len(o.byKey))
		}
	})
}

// Callers that repeat a running request wait for its end, or for their
// deadline.
func TestIdempotencyTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newIdempotency()
		var times atomic.Int32
		slow := func(context.Context) (any, error) {
			time.Sleep(time.Minute)
			return times.Add(1), nil
		}
		for range 8 {
			go func() {
				if got, err := o.do(t.Context(), requestKey{key: "k"}, requestOne, slow); got != int32(1) || err != nil {
					t.Errorf("%v %v", got, err)
				}
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := o.do(ctx, requestKey{key: "k"}, requestOne, slow); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if times.Load() != 1 {
			t.Errorf("carried out %d times", times.Load())
		}
	})
}

// A request that failed, or panicked, can be retried with the same key.
func TestIdempotencyFails(t *testing.T) {
	o := newIdempotency()
	if _, err := o.do(t.Context(), requestKey{key: "k"}, requestOne, func(context.Context) (any, error) { return nil, errors.New("no") }); err == nil {
		t.Error("no error")
	}
	func() {
		defer func() { recover() }()
		_, _ = o.do(t.Context(), requestKey{key: "k"}, requestOne, func(context.Context) (any, error) { panic("no") })
	}()
	if got, err := o.do(t.Context(), requestKey{key: "k"}, requestOne, func(context.Context) (any, error) { return "yes", nil }); got != "yes" || err != nil {
		t.Errorf("%v %v", got, err)
	}
}

// Failed requests do not use up the key limit.
func TestIdempotencyForgetsWhatFailed(t *testing.T) {
	o := newIdempotency()
	act := func(context.Context) (any, error) { return true, nil }
	if _, err := o.do(t.Context(), requestKey{key: "kept"}, requestOne, act); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		_, _ = o.do(t.Context(), requestKey{key: fmt.Sprint(i)}, requestOne, func(context.Context) (any, error) { return nil, errors.New("no") })
	}
	if len(o.byAge) != 1 || len(o.byKey) != 1 {
		t.Errorf("%d and %d are remembered", len(o.byAge), len(o.byKey))
	}
}

// Keys are limited in length and in number.
func TestIdempotencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newIdempotency()
		act := func(context.Context) (any, error) { return true, nil }
		for _, key := range []string{"a\nb", "ü", strings.Repeat("k", maxIdempotencyKeyBytes+1)} {
			if _, err := o.do(t.Context(), requestKey{key: key}, requestOne, act); fault.KindOf(err) != fault.Malformed {
				t.Errorf("%.10q: %v", key, err)
			}
		}
		for i := range maxIdempotencyKeys {
			if _, err := o.do(t.Context(), requestKey{key: fmt.Sprint(i)}, requestOne, act); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := o.do(t.Context(), requestKey{key: "one more"}, requestOne, act); err != nil || len(o.byAge) != maxIdempotencyKeys {
			t.Errorf("%v; %d are remembered", err, len(o.byAge))
		}
		if got, err := o.do(t.Context(), requestKey{key: "7"}, requestTwo, act); fault.KindOf(err) != fault.Conflict {
			t.Errorf("more than the oldest was forgotten: %v %v", got, err)
		}
		if _, err := o.do(t.Context(), requestKey{key: "0"}, requestTwo, act); err != nil {
			t.Errorf("the oldest was not forgotten: %v", err)
		}
		time.Sleep(idempotencyTTL)
		if _, err := o.do(t.Context(), requestKey{key: "one more"}, requestOne, act); err != nil {
			t.Error(err)
		}
	})
}

// A key belongs to its sender and its route, and a flood of keys displaces
// those of its sender only.
func TestIdempotencyKeysAreShared(t *testing.T) {
	o := newIdempotency()
	act := func(context.Context) (any, error) { return true, nil }
	do := func(k requestKey, what b3.Address) error {
		_, err := o.do(t.Context(), k, what, act)
		return err
	}
	mine := requestKey{"me", "pin", "k"}
	testkit.Must(t, do(mine, requestOne))
	for _, other := range []requestKey{{"you", "pin", "k"}, {"me", "unpin", "k"}} {
		testkit.Must(t, do(other, requestTwo))
	}
	for i := range maxIdempotencyKeys + 10 {
		testkit.Must(t, do(requestKey{"you", "pin", fmt.Sprint(i)}, requestOne))
	}
	testkit.WantKind(t, do(mine, requestTwo), fault.Conflict, "the key of a sender with few")
	testkit.Must(t, do(requestKey{"you", "pin", "k"}, requestOne)) // forgotten: it was the oldest of the greedy one
}
