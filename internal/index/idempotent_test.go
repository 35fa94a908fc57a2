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
)

var (
	pinOne = b3.Of([]byte("pin one"))
	pinTwo = b3.Of([]byte("pin two"))
)

// The same request with the same key is carried out once, for a day.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOnce()
		times := 0
		act := func(context.Context) (any, error) { times++; return times, nil }
		for range 3 {
			if got, err := o.do(t.Context(), "k", pinOne, act); got != 1 || err != nil {
				t.Errorf("%v %v", got, err)
			}
		}
		if _, err := o.do(t.Context(), "k", pinTwo, act); fault.KindOf(err) != fault.Conflict || fault.NextOf(err) == "" {
			t.Error(err)
		}
		if got, _ := o.do(t.Context(), "other", pinOne, act); got != 2 {
			t.Error(got)
		}
		if got, _ := o.do(t.Context(), "", pinOne, act); got != 3 {
			t.Error("a request without a key was not carried out")
		}
		time.Sleep(onceLife - time.Second)
		if got, _ := o.do(t.Context(), "k", pinOne, act); got != 1 {
			t.Errorf("%v: forgotten before a day was over", got)
		}
		time.Sleep(time.Second)
		if got, _ := o.do(t.Context(), "k", pinTwo, act); got != 4 {
			t.Errorf("%v: remembered for more than a day", got)
		}
		if len(o.order) != 1 || len(o.deeds) != 1 {
			t.Errorf("%d and %d are remembered", len(o.order), len(o.deeds))
		}
	})
}

// Those who repeat a request that is under way wait for its end, or for theirs.
func TestOnceTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOnce()
		var times atomic.Int32
		slow := func(context.Context) (any, error) {
			time.Sleep(time.Minute)
			return times.Add(1), nil
		}
		for range 8 {
			go func() {
				if got, err := o.do(t.Context(), "k", pinOne, slow); got != int32(1) || err != nil {
					t.Errorf("%v %v", got, err)
				}
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := o.do(ctx, "k", pinOne, slow); fault.KindOf(err) != fault.Timeout {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if times.Load() != 1 {
			t.Errorf("carried out %d times", times.Load())
		}
	})
}

// What failed, or panicked, can be tried again with the same key.
func TestOnceFails(t *testing.T) {
	o := newOnce()
	if _, err := o.do(t.Context(), "k", pinOne, func(context.Context) (any, error) { return nil, errors.New("no") }); err == nil {
		t.Error("no error")
	}
	func() {
		defer func() { recover() }()
		_, _ = o.do(t.Context(), "k", pinOne, func(context.Context) (any, error) { panic("no") })
	}()
	if got, err := o.do(t.Context(), "k", pinOne, func(context.Context) (any, error) { return "yes", nil }); got != "yes" || err != nil {
		t.Errorf("%v %v", got, err)
	}
}

// Requests that fail use up nobody's keys.
func TestOnceForgetsWhatFailed(t *testing.T) {
	o := newOnce()
	act := func(context.Context) (any, error) { return true, nil }
	if _, err := o.do(t.Context(), "kept", pinOne, act); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		_, _ = o.do(t.Context(), fmt.Sprint(i), pinOne, func(context.Context) (any, error) { return nil, errors.New("no") })
	}
	if len(o.order) != 1 || len(o.deeds) != 1 {
		t.Errorf("%d and %d are remembered", len(o.order), len(o.deeds))
	}
}

// Keys are bounded, each and all together.
func TestOnceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOnce()
		act := func(context.Context) (any, error) { return true, nil }
		for _, key := range []string{"a\nb", "ü", strings.Repeat("k", mostKey+1)} {
			if _, err := o.do(t.Context(), key, pinOne, act); fault.KindOf(err) != fault.Malformed {
				t.Errorf("%.10q: %v", key, err)
			}
		}
		for i := range mostDeeds {
			if _, err := o.do(t.Context(), fmt.Sprint(i), pinOne, act); err != nil {
				t.Fatal(err)
			}
		}
		_, err := o.do(t.Context(), "one more", pinOne, act)
		if fault.KindOf(err) != fault.QuotaExceeded || fault.RetryAfterOf(err) != onceLife {
			t.Error(err)
		}
		if got, err := o.do(t.Context(), "7", pinOne, act); got != true || err != nil {
			t.Errorf("%v %v", got, err)
		}
		time.Sleep(onceLife)
		if _, err := o.do(t.Context(), "one more", pinOne, act); err != nil {
			t.Error(err)
		}
	})
}
