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

// inAnotherProcess runs a test in a bubble, with the owners of the feed in
// another process.
func inAnotherProcess(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	elsewhere = true
	defer func() { elsewhere = false }()
	synctest.Test(t, test)
}

// losing has the wire lose an answer of a route, the n-th and those after it, so
// many of them.
func (r *rig) losing(path string, from, many int64) {
	var asked atomic.Int64
	r.wire.mu.Lock()
	defer r.wire.mu.Unlock()
	r.wire.lose = func(_ string, request *http.Request) bool {
		if !strings.HasSuffix(request.URL.Path, path) {
			return false
		}
		n := asked.Add(1)
		return n >= from && n < from+many
	}
}

// delivered waits until everybody has the post once, and makes sure that nothing
// is left of it.
func (r *rig) delivered(fans []string, id string) {
	r.t.Helper()
	for range 100 {
		if r.holds(fans, id) == len(fans) && r.office.Usage().Messages == 0 {
			break
		}
		time.Sleep(time.Second)
	}
	if n := r.holds(fans, id); n != len(fans) {
		r.t.Errorf("%d of %d have it once", n, len(fans))
	}
	if u := r.office.Usage(); u.Messages != 0 || u.Dead != 0 {
		r.t.Errorf("%d messages and %d dead letters are left", u.Messages, u.Dead)
	}
}

// TestAPartIsAwayDuringAFanOut takes one away in the middle of it, for longer
// than a lease lasts and than a post may fail. It goes on by itself, and everybody
// has it once.
func TestAPartIsAwayDuringAFanOut(t *testing.T) {
	for _, part := range []string{"graph", "mailbox"} {
		for _, long := range []time.Duration{5 * time.Second, 10 * time.Minute} {
			t.Run(fmt.Sprint(part, " for ", long), func(t *testing.T) {
				inAnotherProcess(t, func(t *testing.T) {
					r := open(t, on("feed", "graph"))
					fans := append(r.fans(3000), "star")
					var pages atomic.Int64
					r.wire.mu.Lock()
					r.wire.lose = func(_ string, request *http.Request) bool {
						if strings.HasSuffix(request.URL.Path, "/post") && pages.Add(1) == 3 {
							r.wire.set(part, true)
						}
						return false
					}
					r.wire.mu.Unlock()
					id := r.post("star", "hello")
					time.Sleep(long)
					synctest.Wait()
					if n := r.holds(fans, id); n < 1000 || n == len(fans) {
						t.Fatalf("%d have it while the %s is away", n, part)
					}
					if held := r.told(HeldUp); len(held) != 1 || held[0].Key != id || !strings.Contains(held[0].Detail, part) {
						t.Errorf("for the record: %+v", held)
					}
					r.wire.set(part, false)
					r.delivered(fans, id)
					if got := r.told(Undelivered); len(got) != 0 {
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

// TestAnAnswerOfAPartIsLost has the mailbox do its work and die before it says
// so: what is said again has no second effect.
func TestAnAnswerOfAPartIsLost(t *testing.T) {
	for _, c := range []struct {
		path       string
		from, many int64
	}{{"/post", 2, 1}, {"/post", 1, 3}, {"/followers", 2, 1}, {"/ack", 1, 1}, {"/receive", 2, 3}, {"/extend", 1, 1}} {
		t.Run(fmt.Sprint(c.path[1:], " ", c.many), func(t *testing.T) {
			inAnotherProcess(t, func(t *testing.T) {
				r := open(t, on("feed", "graph"))
				fans := append(r.fans(1200), "star")
				r.losing(c.path, c.from, c.many)
				r.delivered(fans, r.post("star", "hello"))
			})
		})
	}
}

// TestAPostThatAPartDiesOf is a dead letter in the end.
func TestAPostThatAPartDiesOf(t *testing.T) {
	inAnotherProcess(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		r.losing("/post", 1, 1<<40)
		r.post("ann", "boo")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if letters := r.dead(); len(letters) != 1 || !strings.Contains(letters[0].Reason, "broke off") {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}

// TestAFeedWhoseOwnersAreAway says so, and is back when they are.
func TestAFeedWhoseOwnersAreAway(t *testing.T) {
	inAnotherProcess(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		r.follow("bob", "ann")
		r.post("ann", "one")
		synctest.Wait()
		r.wire.set("graph", true)
		refused(t, r.ask(http.MethodGet, "/feed/bob", ""), fault.NotReady)
		r.post("ann", "two") // that takes no graph
		r.wire.set("mailbox", true)
		refused(t, r.ask(http.MethodGet, "/feed/bob", ""), fault.NotReady)
		refused(t, r.ask(http.MethodPost, "/feed/ann", `{"body":"three"}`), fault.NotReady)
		time.Sleep(time.Hour)
		r.wire.set("graph", false)
		r.wire.set("mailbox", false)
		time.Sleep(2 * lease)
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
