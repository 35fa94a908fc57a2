package facet

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

// withRemoteOwners runs a test in a bubble, with the owners of the feed in
// another process.
func withRemoteOwners(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	ownersRemote = true
	defer func() { ownersRemote = false }()
	synctest.Test(t, test)
}

// loseResponses makes the transport lose many answers of a route, from the n-th
// on.
func (h *harness) loseResponses(path string, from, many int64) {
	var asked atomic.Int64
	h.remote.mu.Lock()
	defer h.remote.mu.Unlock()
	h.remote.loseResponse = func(_ string, request *http.Request) bool {
		if !strings.HasSuffix(request.URL.Path, path) {
			return false
		}
		n := asked.Add(1)
		return n >= from && n < from+many
	}
}

// waitDelivered waits until every follower has the post once, and makes sure
// that nothing is left of it.
func (h *harness) waitDelivered(fans []string, id string) {
	h.t.Helper()
	for range 100 {
		if h.countDelivered(fans, id) == len(fans) && h.engine.Usage().Messages == 0 {
			break
		}
		time.Sleep(time.Second)
	}
	if n := h.countDelivered(fans, id); n != len(fans) {
		h.t.Errorf("%d of %d have it once", n, len(fans))
	}
	if u := h.engine.Usage(); u.Messages != 0 || u.Dead != 0 {
		h.t.Errorf("%d messages and %d dead letters are left", u.Messages, u.Dead)
	}
}

// TestAPartIsAwayDuringAFanOut takes one away in the middle of it, for longer
// than a lease lasts and than a post may fail. The fan-out continues by itself,
// and every follower has the post once.
func TestAPartIsAwayDuringAFanOut(t *testing.T) {
	for _, part := range []string{"graph", "mailbox"} {
		for _, long := range []time.Duration{5 * time.Second, 10 * time.Minute} {
			t.Run(fmt.Sprint(part, " for ", long), func(t *testing.T) {
				withRemoteOwners(t, func(t *testing.T) {
					r := open(t, enable("feed", "graph"))
					fans := append(r.addFollowers(3000), "star")
					var pages atomic.Int64
					r.remote.mu.Lock()
					r.remote.loseResponse = func(_ string, request *http.Request) bool {
						if strings.HasSuffix(request.URL.Path, "/post") && pages.Add(1) == 3 {
							r.remote.setAway(part, true)
						}
						return false
					}
					r.remote.mu.Unlock()
					id := r.post("star", "hello")
					time.Sleep(long)
					synctest.Wait()
					if n := r.countDelivered(fans, id); n < 1000 || n == len(fans) {
						t.Fatalf("%d have it while the %s is away", n, part)
					}
					if held := r.eventsOf(HeldUp); len(held) != 1 || held[0].Key != id || !strings.Contains(held[0].Detail, part) {
						t.Errorf("for the record: %+v", held)
					}
					r.remote.setAway(part, false)
					r.waitDelivered(fans, id)
					if got := r.eventsOf(Undelivered); len(got) != 0 {
						t.Errorf("it was given up: %+v", got)
					}
					next := r.post("star", "again")
					synctest.Wait()
					if items := r.read("fan00000"); len(items) != 2 || items[0].ID != next && items[1].ID != next {
						t.Errorf("after that, %v is read", bodies(items))
					}
				})
			})
		}
	}
}

// TestAnAnswerOfAPartIsLost has the mailbox do its work and die before it
// answers: the retry has no second effect.
func TestAnAnswerOfAPartIsLost(t *testing.T) {
	for _, c := range []struct {
		path       string
		from, many int64
	}{{"/post", 2, 1}, {"/post", 1, 3}, {"/followers", 2, 1}, {"/ack", 1, 1}, {"/receive", 2, 3}, {"/extend", 1, 1}} {
		t.Run(fmt.Sprint(c.path[1:], " ", c.many), func(t *testing.T) {
			withRemoteOwners(t, func(t *testing.T) {
				r := open(t, enable("feed", "graph"))
				fans := append(r.addFollowers(1200), "star")
				r.loseResponses(c.path, c.from, c.many)
				r.waitDelivered(fans, r.post("star", "hello"))
			})
		})
	}
}

// TestAPostThatAPartDiesOf: it is a dead letter in the end.
func TestAPostThatAPartDiesOf(t *testing.T) {
	withRemoteOwners(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		r.loseResponses("/post", 1, 1<<40)
		r.post("ann", "boo")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if letters := r.deadLetters(); len(letters) != 1 || !strings.Contains(letters[0].Reason, "broke off") {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}

// TestAFeedWhoseOwnersAreAway: it fails with NotReady, and works when they are
// back.
func TestAFeedWhoseOwnersAreAway(t *testing.T) {
	withRemoteOwners(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		r.follow("bob", "ann")
		r.post("ann", "one")
		synctest.Wait()
		r.remote.setAway("graph", true)
		expectRefusal(t, r.request(http.MethodGet, "/feed/bob", ""), fault.NotReady)
		r.post("ann", "two") // that takes no graph
		r.remote.setAway("mailbox", true)
		expectRefusal(t, r.request(http.MethodGet, "/feed/bob", ""), fault.NotReady)
		expectRefusal(t, r.request(http.MethodPost, "/feed/ann", `{"body":"three"}`), fault.NotReady)
		time.Sleep(time.Hour)
		r.remote.setAway("graph", false)
		r.remote.setAway("mailbox", false)
		time.Sleep(2 * leaseTime)
		synctest.Wait()
		if got := bodies(r.read("bob")); len(got) != 2 || !strings.Contains(strings.Join(got, " "), "two") {
			t.Errorf("bob reads %q", got)
		}
		for _, one := range r.supervisor.Status() {
			if one.Name == "feed fan-out" && one.Restarts != 0 {
				t.Errorf("that a part was away is a failure of the worker: %+v", one)
			}
		}
	})
}
