package fill

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/breaker"
	"micronode/internal/testkit"
)

// requestFrom is a request of one client.
func requestFrom(client, path string) Request {
	r := request(path)
	r.Client = netip.MustParseAddr(client)
	return r
}

// slowPath is an origin that takes long for what is below /slow/, and answers
// everything else at once.
func slowPath(takes time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/slow/") {
			select {
			case <-time.After(takes):
			case <-r.Context().Done():
				return
			}
		}
		answerWith("good", "Cache-Control", "max-age=60")(w, r)
	}
}

// A client that asks for what an origin takes long for does not delay what
// another one asks of it, whether it takes less than the deadline or more. The
// breaker judges the origin, not the slow path.
func TestClientsShareAnOrigin(t *testing.T) {
	const greedy, other = "192.0.2.1", "192.0.2.2"
	for name, takes := range map[string]time.Duration{"slow": 4 * time.Second, "silent": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w, c := newFixture(t), &concurrentClients{}
				w.origin(slowPath(takes))
				for i := range 12 { // nobody else is there, and silence opens the breaker
					c.ask(w, requestFrom(greedy, fmt.Sprint("/slow/alone/", i)))
				}
				c.group.Wait()
				for round := range 6 {
					for i := range 12 {
						c.ask(w, requestFrom(greedy, fmt.Sprintf("/slow/%d/%d", round, i)))
					}
					synctest.Wait()
					for i := range 4 {
						began := time.Now()
						answer, err := w.ask(requestFrom(other, fmt.Sprintf("/quick/%d/%d", round, i)))
						if err != nil || answer.body != "good" {
							t.Fatalf("round %d: another client: %+v, %v", round, answer, err)
						}
						if took := time.Since(began); took > time.Second {
							t.Errorf("round %d: another client waited %s", round, took)
						}
					}
					c.group.Wait()
				}
				if states := w.BreakerStates(); states[breaker.Open] != 0 {
					t.Errorf("the breaker of an origin that answers: %v", states)
				}
			})
		})
	}
}

// A client that boards a fill which waits behind all that another one wants
// does not wait for the turn of that one.
func TestWhoBoardsDoesNotWaitForTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newFixture(t), &concurrentClients{}
		w.timeout = time.Hour
		w.origin(slowPath(4 * time.Second))
		for i := range 40 {
			c.ask(w, requestFrom("192.0.2.1", fmt.Sprint("/slow/", i)))
			synctest.Wait()
		}
		c.ask(w, requestFrom("192.0.2.1", "/wanted"))
		synctest.Wait()
		began := time.Now()
		answer, err := w.ask(requestFrom("192.0.2.2", "/wanted"))
		if took := time.Since(began); err != nil || answer.body != "good" || took > time.Second {
			t.Errorf("%+v, %v after %s", answer, err, took)
		}
		c.group.Wait()
	})
}

// A full queue rejects work of the client that has the most in it.
func TestAFullQueueHasRoomForAnotherClient(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newFixture(t, withoutBreaker), &concurrentClients{}
		w.origin(slowPath(4 * time.Second))
		for i := range workers + workCap {
			c.ask(w, requestFrom("192.0.2.1", fmt.Sprint("/slow/", i)))
			if i < workers {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if answer, err := w.ask(requestFrom("192.0.2.2", "/quick")); err != nil || answer.body != "good" {
			t.Errorf("%+v %v", answer, err)
		}
		c.group.Wait()
	})
}

// An origin that answers nobody opens its breaker for all, and one that nobody
// else asks for the client that met it.
func TestAnOriginThatAnswersNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.Timeout, c.Tries = time.Second, 1 }))
		w.origin(hangingOrigin("origin.test", nil))
		for i := range 12 {
			_, _ = w.ask(requestFrom(fmt.Sprint("192.0.2.", 1+i%4), fmt.Sprint("/", i)))
		}
		for i := range 4 {
			_, err := w.ask(requestFrom(fmt.Sprint("192.0.2.", 1+i), fmt.Sprint("/again/", i)))
			testkit.WantKind(t, err, fault.BreakerOpen, fmt.Sprint("client ", i))
		}
	})
}
