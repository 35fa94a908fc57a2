package flow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"micronode/internal/flow"
)

func permitsOf(capacity, waiting int) *flow.Permits {
	return flow.NewPermits(flow.NewInventory(), flow.PermitsSpec{Service: "overlay", Name: "inflight", Cap: capacity, Waiting: waiting})
}

// Permits acquired and released in batches and one by one are one number, too.
func TestManyPermitsAgainstANumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(1, 6).Draw(t, "room")
		inv := flow.NewInventory()
		permits := flow.NewPermits(inv, flow.PermitsSpec{
			Service: "overlay", Name: "inflight", Cap: room, Waiting: rapid.IntRange(0, 1).Draw(t, "line"),
		})
		out, closed := 0, false
		var want flow.Counts
		several := rapid.IntRange(0, 8)

		t.Repeat(map[string]func(*rapid.T){
			"try acquire": func(t *rapid.T) {
				n := several.Draw(t, "n")
				got := permits.TryAcquire(n)
				if closed {
					check(t, got == 0, "closed permits gave %d", got)
					return
				}
				check(t, got == min(n, room-out), "got %d of %d with %d of %d out", got, n, out, room)
				out += got
				want.Accepted += uint64(got)
				want.Refused += uint64(n - got)
			},
			"acquire": func(t *rapid.T) {
				if out < room && !closed {
					check(t, permits.Acquire(context.Background()) == nil, "there is one")
					out++
					want.Accepted++
				}
			},
			"release many": func(t *rapid.T) {
				n := min(several.Draw(t, "n"), out)
				permits.ReleaseMany(n)
				out -= n
				want.Delivered += uint64(n)
			},
			"release": func(t *rapid.T) {
				if out > 0 {
					permits.Release()
					out--
					want.Delivered++
				}
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					permits.Close()
					closed = true
				}
			},
			"": func(t *rapid.T) {
				stat := inv.Read()[0]
				check(t, stat.Inside == out && out <= room, "%d out, want %d of %d", stat.Inside, out, room)
				check(t, sameCounts(stat.Counts, want), "counts %+v, want %+v", stat.Counts, want)
			},
		})
	})
}

func TestTryAcquireDoesNotOvertakeThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permits := permitsOf(2, 2)
		if got := permits.TryAcquire(3); got != 2 {
			t.Fatalf("got %d of 2", got)
		}
		in := make(chan error, 2)
		for range 2 {
			go func() { in <- permits.Acquire(t.Context()) }()
		}
		synctest.Wait()
		permits.ReleaseMany(1)
		if got := permits.TryAcquire(1); got != 0 {
			t.Error("a newcomer got the permit of one who waits")
		}
		permits.ReleaseMany(1)
		for range 2 {
			if err := <-in; err != nil {
				t.Error(err)
			}
		}
		permits.ReleaseMany(2)
		if got := permits.TryAcquire(2); got != 2 {
			t.Errorf("got %d of 2 that are back", got)
		}
	})
}

// Several are released at once, and more wait than that.
func TestReleaseManyWakesTheLongestWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permits := permitsOf(3, 4)
		permits.TryAcquire(3)
		in := make(chan int, 4)
		for who := range 4 {
			go func() {
				if permits.Acquire(t.Context()) == nil {
					in <- who
				}
			}()
			synctest.Wait()
		}
		for _, n := range []int{3, 1} {
			permits.ReleaseMany(n)
			synctest.Wait()
			if len(in) != n {
				t.Fatalf("%d came back, and %d went in", n, len(in))
			}
			for range n {
				if who := <-in; n == 3 && who == 3 {
					t.Error("the last in line went first")
				}
			}
		}
		permits.ReleaseMany(3)
	})
}

func TestDrainEndsWithTheLastOfMany(t *testing.T) {
	for _, line := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			permits := permitsOf(4, line)
			permits.TryAcquire(4)
			drained := make(chan error, 1)
			go func() { drained <- permits.Drain(t.Context()) }()
			synctest.Wait()
			permits.ReleaseMany(3)
			synctest.Wait()
			if len(drained) > 0 {
				t.Error("drained with one still out")
			}
			permits.ReleaseMany(1)
			if err := <-drained; err != nil {
				t.Error(err)
			}
			if permits.TryAcquire(1) != 0 || !errors.Is(permits.Acquire(t.Context()), flow.ErrClosed) {
				t.Error("drained permits gave one")
			}
		})
	}
}

func TestMistakesWithManyPermitsPanicAndSayWhatToDo(t *testing.T) {
	for want, mistake := range map[string]func(){
		"released at once must be 0 or more":  func() { permitsOf(1, 0).ReleaseMany(-1) },
		"asked for at once must be 0 or more": func() { permitsOf(1, 0).TryAcquire(-1) },
		"released more often than acquired": func() {
			permits := permitsOf(2, 0)
			permits.TryAcquire(1)
			permits.ReleaseMany(2)
		},
		"pair each successful call": func() {
			permits := permitsOf(2, 1)
			permits.TryAcquire(1)
			permits.ReleaseMany(2)
		},
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if message, _ := recover().(string); !strings.Contains(message, want) {
					t.Errorf("panic %q", message)
				}
			}()
			mistake()
		})
	}
}
