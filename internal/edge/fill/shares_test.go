package fill

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/breaker"
)

// requestOf is a request of another origin than the usual one.
func requestOf(host, path string) Request {
	r := request(path)
	r.Host = host
	return r
}

// hangingOrigin is an origin that never answers at one host, and does at the
// others.
func hangingOrigin(host string, others http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Host == host {
			<-r.Context().Done()
			return
		}
		others(w, r)
	}
}

// withoutBreaker disables the breakers.
func withoutBreaker(s *Spec) { s.Breaker.Threshold = 1 }

// askAndLeave sends n requests to a host at once and cancels each after 30 ms.
func (w *fixture) askAndLeave(host string, n int) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			ctx, cancel := context.WithTimeoutCause(context.Background(), 30*time.Millisecond, context.Canceled)
			defer cancel()
			if answer, err := w.Get(ctx, requestOf(host, fmt.Sprint("/hang/", i))); err == nil {
				answer.Close()
			}
		})
	}
	group.Wait()
}

// 600 cancelled requests to a hanging origin do not delay requests to another
// one.
func TestAHangingOriginKeepsNobodyElseWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(hangingOrigin("origin.test", answerWith("good", "Cache-Control", "max-age=60")))
		w.askAndLeave("origin.test", 600)
		synctest.Wait()
		for i := range 20 {
			began := time.Now()
			answer, err := w.ask(requestOf("other.test", fmt.Sprint("/", i)))
			if err != nil || answer.body != "good" {
				t.Fatalf("a miss of another origin: %+v %v", answer, err)
			}
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Fatalf("a miss of another origin took %s", took)
			}
		}
	})
}

// Without waiters, nothing stays in the queue, and nothing that was under way
// is retried.
func TestWhatNobodyWaitsForLeavesTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(hangingOrigin("origin.test", nil))
		w.askAndLeave("origin.test", 600)
		synctest.Wait()
		if n := w.Stats().Flights; n > workers {
			t.Errorf("%d fills go on, and nobody waits for them", n)
		}
		time.Sleep(DefaultConfig().Timeout + time.Second)
		if n := w.Stats().Flights; n != 0 {
			t.Errorf("%d fills go on after their first try, and nobody waits for them", n)
		}
		if asked := len(w.requests()); asked > workers {
			t.Errorf("the origin was asked %d times", asked)
		}
	})
}

// A request that arrives while a queued fill loses its last waiter gets an
// answer, whether the fill was withdrawn just then or not.
func TestWhoComesWhenAnotherLeaves(t *testing.T) {
	for range 30 {
		inBubble(t, func(t *testing.T) {
			w := newFixture(t, func(s *Spec) { s.Workers = 1 })
			w.origin(answerWith("here", "Cache-Control", "no-store"))
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() {
				if answer, err := w.Get(ctx, request("/")); err == nil {
					answer.Close()
				}
			})
			group.Go(cancel)
			for range 3 {
				group.Go(func() {
					if answer, err := w.ask(request("/")); err != nil || answer.body != "here" {
						t.Errorf("%+v %v", answer, err)
					}
				})
			}
			group.Wait()
		})
	}
}

// A full queue accepts another origin: it rejects work of the origin with the
// most queued fills, and the waiters of that get the error.
func TestAFullQueueHasRoomForAnotherOrigin(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newFixture(t, withoutBreaker), &concurrentClients{}
		w.origin(hangingOrigin("origin.test", answerWith("good", "Cache-Control", "max-age=60")))
		for i := range workers + workCap {
			c.ask(w, request(fmt.Sprint("/", i)))
			if i < workers {
				synctest.Wait() // each worker has its own
			}
		}
		synctest.Wait()
		if n := w.work.Len(workBand); n != workCap {
			t.Fatalf("%d wait, want %d", n, workCap)
		}
		if answer, err := w.ask(requestOf("other.test", "/")); err != nil || answer.body != "good" {
			t.Errorf("%+v %v", answer, err)
		}
		synctest.Wait() // the rejected waiter may notice after the other is answered
		c.mu.Lock()
		rejected := slices.Clone(c.errs)
		c.mu.Unlock()
		if len(rejected) != 1 || fault.KindOf(rejected[0]) != fault.Busy || w.rejected(ReasonBusy) != 1 {
			t.Errorf("who gave way was told %v, counted %d times", rejected, w.rejected(ReasonBusy))
		}
		c.group.Wait()
	})
}

// A fill that times out in the queue is reported as such, and not as a slow
// origin.
func TestATurnThatDoesNotCome(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, withoutBreaker, func(s *Spec) { s.Workers = 1 })
		w.origin(hangingOrigin("origin.test", nil))
		w.askAndLeave("origin.test", 1)
		w.timeout = time.Second
		err := w.wantRefused(request("/second"), fault.Timeout, ReasonTimeout)
		if !strings.Contains(fault.DetailOf(err), "queue") || !strings.Contains(fault.NextOf(err), "edge.workers") {
			t.Errorf("%s: %s", fault.DetailOf(err), fault.NextOf(err))
		}
	})
}

// The breaker of an origin that hangs opens: requests fail at once, with its
// name and a Retry-After; stale entries are served where that is allowed; and
// when the origin has recovered, two requests are enough to close it.
func TestAnOriginThatHangsIsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var admitted atomic.Int64
		w, c := newFixture(t, func(s *Spec) { s.Admit = func(string, uint64) error { admitted.Add(1); return nil } }), &concurrentClients{}
		var sick atomic.Bool
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if sick.Load() && r.Host == "origin.test" {
				<-r.Context().Done()
				return
			}
			answerWith("well", "Cache-Control", "max-age=1, stale-if-error=600")(rw, r)
		})
		w.get("/kept")
		sick.Store(true)
		time.Sleep(time.Minute)
		w.timeout = time.Minute // all wait for the result
		for i := range 8 {
			c.ask(w, request(fmt.Sprint("/", i)))
		}
		c.group.Wait()
		synctest.Wait()
		if w.opened != 1 || len(w.eventsOf(EventBreakerOpened)) != 1 || w.eventsOf(EventBreakerOpened)[0].URL != "https://origin.test" || w.BreakerStates()[breaker.Open] != 1 {
			t.Fatalf("opened %d times, %v, %v", w.opened, w.eventsOf(EventBreakerOpened), w.BreakerStates())
		}
		asked, began := len(w.requests()), time.Now()
		admitted.Store(0)
		err := w.wantRefused(request("/new"), fault.BreakerOpen, ReasonBreaker)
		if !strings.Contains(fault.DetailOf(err), "origin.test") || fault.NextOf(err) == "" || fault.RetryAfterOf(err) <= 0 {
			t.Errorf("%s: %s, after %s", fault.DetailOf(err), fault.NextOf(err), fault.RetryAfterOf(err))
		}
		if got := w.get("/kept"); !got.Stale || got.body != "well" || w.stale != 1 {
			t.Errorf("what is kept does not stand in: %+v, counted %d times", got, w.stale)
		}
		if took := time.Since(began); took != 0 || len(w.requests()) != asked {
			t.Errorf("it took %s, and the origin was asked %d times", took, len(w.requests())-asked)
		}
		if n := admitted.Load(); n != 0 {
			t.Errorf("what is refused took %d places", n)
		}
		if answer, err := w.ask(requestOf("other.test", "/")); err != nil || answer.body != "well" {
			t.Errorf("another origin: %+v %v", answer, err)
		}
		sick.Store(false)
		time.Sleep(DefaultBreakerConfig().Cooldown)
		w.get("/one")
		w.get("/two")
		if n := w.BreakerStates()[breaker.Open] + w.BreakerStates()[breaker.HalfOpen]; n != 0 {
			t.Errorf("the origin is well, and its breaker is not: %v", w.BreakerStates())
		}
	})
}

// A response is no failure, whatever its status: requests for what fails there
// do not block the rest of the origin. An origin that sends a header and then
// nothing hangs.
func TestWhatCountsAsAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		open   bool
	}{
		"503":               {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, false},
		"500":               {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, false},
		"206":               {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) }, false},
		"broken off":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"a header, no body": {func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() }, true},
		"half a body": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = w.Write([]byte("half"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t, with(func(c *Config) { c.Timeout = time.Second }))
				w.origin(c.answer)
				for i := range 8 {
					_, _ = w.ask(request(fmt.Sprint("/", i)))
				}
				if open := w.BreakerStates()[breaker.Open] > 0; open != c.open {
					t.Errorf("left alone: %t, want %t", open, c.open)
				}
			})
		})
	}
}

// Warm-up and background refreshes do not wait for an origin with an open
// breaker, and take no slot.
func TestTheBackgroundLeavesOriginsAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.Timeout = time.Second }))
		var sick atomic.Bool
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if sick.Load() && r.Host == "origin.test" {
				<-r.Context().Done()
				return
			}
			answerWith("well", "Cache-Control", "max-age=1, stale-while-revalidate=600")(rw, r)
		})
		w.get("/")
		sick.Store(true)
		for i := range 3 {
			_, _ = w.ask(request(fmt.Sprint("/", i)))
		}
		asked := len(w.requests())
		if got := w.get("/"); !got.Stale {
			t.Errorf("%+v", got)
		}
		config := w.spec.Config
		config.Warm = []string{"https://origin.test/warm", "https://other.test/warm"}
		if err := w.Reconfigure(config, w.spec.Breaker, w.spec.Allow); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(w.requests()) - asked; n != 1 || w.requests()[asked].Host != "other.test" {
			t.Errorf("%d requests while the origin is left alone", n)
		}
		if w.Stats().Flights != 0 {
			t.Errorf("%d fills wait", w.Stats().Flights)
		}
	})
}
