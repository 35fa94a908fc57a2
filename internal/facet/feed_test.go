package facet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/testkit"
)

// spyMailbox is a mailbox whose calls a test can intercept.
type spyMailbox struct {
	mailbox.Engine
	post    func(ctx context.Context, boards []string) error // before a note is posted
	extends func() error                                     // instead of an extension

	mu       sync.Mutex
	pages    []int // how many boards each Post had
	extended int
	received int
}

func (s *spyMailbox) Tasks() []mailbox.Task { return s.Engine.(mailbox.Tasker).Tasks() }

func (s *spyMailbox) Receive(ctx context.Context, box string, visibility, wait time.Duration) (mailbox.Delivery, error) {
	got, err := s.Engine.Receive(ctx, box, visibility, wait)
	if err == nil {
		s.mu.Lock()
		s.received++
		s.mu.Unlock()
	}
	return got, err
}

func (s *spyMailbox) Post(ctx context.Context, boards []string, n mailbox.Note) error {
	s.mu.Lock()
	s.pages = append(s.pages, len(boards))
	s.mu.Unlock()
	if s.post != nil {
		if err := s.post(ctx, boards); err != nil {
			return err
		}
	}
	return s.Engine.Post(ctx, boards, n)
}

func (s *spyMailbox) Extend(ctx context.Context, box, receipt string, visibility time.Duration) error {
	s.mu.Lock()
	s.extended++
	s.mu.Unlock()
	if s.extends != nil {
		return s.extends()
	}
	return s.Engine.Extend(ctx, box, receipt, visibility)
}

// withMailbox makes the mailbox one whose calls a test can intercept.
func withMailbox(p *spyMailbox) option {
	return func(s *Spec) {
		p.Engine = s.Mailbox.(mailbox.Engine)
		s.Mailbox = p
	}
}

// addFollowers makes n users follow one author.
func (h *harness) addFollowers(n int) (names []string) {
	h.t.Helper()
	for i := range n {
		names = append(names, fmt.Sprintf("fan%05d", i))
		h.follow(names[i], "star")
	}
	return names
}

// countDelivered returns how many of these have exactly one note on their
// board, with the right ID.
func (h *harness) countDelivered(users []string, id string) (n int) {
	h.t.Helper()
	for _, user := range users {
		notes, err := h.engine.Notes(context.Background(), feedBoard(user), "", boardNotes)
		testkit.Must(h.t, err)
		if len(notes) == 1 && notes[0].ID == id {
			n++
		}
	}
	return n
}

// deadLetters lists the dead letters of the box.
func (h *harness) deadLetters() []mailbox.DeadLetter {
	h.t.Helper()
	letters, err := h.engine.Dead(context.Background(), feedBox, "", 100)
	testkit.Must(h.t, err)
	return letters
}

func TestPostsComeToFollowers(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		r.follow("bob", "ann", "cem", "ann", "ann", "dot")
		id := r.post("ann", "hello")
		synctest.Wait()
		for _, user := range []string{"ann", "bob", "cem"} {
			items := r.read(user)
			if len(items) != 1 || items[0].ID != id || items[0].Author != "ann" || items[0].Body != "hello" || !almostEqual(items[0].Score, 1) || items[0].At.IsZero() {
				t.Errorf("the feed of %s is %+v", user, items)
			}
		}
		if items := r.read("dot"); len(items) != 0 {
			t.Errorf("dot, who follows nobody, reads %v", bodies(items))
		}
		if got := r.engine.Usage().Messages; got != 0 {
			t.Errorf("%d messages are left in the box", got)
		}
		if posted := r.eventsOf(Posted); len(posted) != 1 || posted[0].Key != id || posted[0].Facet != feedName {
			t.Errorf("for the record: %+v", posted)
		}
		if r.metric(feedName, "feed_posts_total") != 1 || r.metric(feedName, "feed_notes_total") != 3 || r.metric(feedName, "feed_deliveries_total", "outcome=done") != 1 || r.metric(feedName, "feed_fanout_seconds") != 1 {
			t.Error("the post was not counted")
		}
	})
}

// TestTheTimeOfAPost compares the time that its author gets with what others
// read.
func TestTheTimeOfAPost(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		for _, header := range [][]string{nil, {"Idempotency-Key", "k"}} {
			time.Sleep(time.Hour)
			told := expectJSON[client.Posted](t, r.request(http.MethodPost, "/feed/ann", `{"body":"hello"}`, header...), http.StatusCreated)
			synctest.Wait()
			if read := r.read("ann")[0]; !read.At.Equal(told.At) || told.Author != "ann" || read.ID != told.ID {
				t.Errorf("%+v was told, %+v is read", told, read)
			}
		}
	})
}

func TestAPostIsTakenOnce(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		held := make(chan struct{})
		r := open(t, enable("feed", "graph"), withMailbox(&spyMailbox{post: func(context.Context, []string) error { <-held; return nil }}))
		send := func(author, body, key string) *client.Posted {
			answer := r.request(http.MethodPost, "/feed/"+author, `{"body":"`+body+`"}`, "Idempotency-Key", key)
			told := expectJSON[client.Posted](t, answer, answer.Code)
			return &told
		}
		first := send("ann", "hello", "k")
		time.Sleep(time.Minute)
		early := send("ann", "hello", "k")
		if early.ID != first.ID || early.At.Equal(first.At) {
			t.Errorf("before it is delivered, it is %+v and %+v", first, early)
		}
		close(held)
		synctest.Wait()
		again := r.request(http.MethodPost, "/feed/ann", `{"body":"hello"}`, "Idempotency-Key", "k")
		if told := expectJSON[client.Posted](t, again, http.StatusOK); told.ID != first.ID || !told.At.Equal(first.At) {
			t.Errorf("%+v, and again %+v", first, told)
		}
		if other := send("bob", "hello", "k"); other.ID == first.ID {
			t.Error("the key of one author is that of another")
		}
		expectRefusal(t, r.request(http.MethodPost, "/feed/ann", `{"body":"another"}`, "Idempotency-Key", "k"), fault.Conflict)
		synctest.Wait()
		if items := r.read("ann"); len(items) != 1 {
			t.Errorf("ann reads %v", bodies(items))
		}
	})
}

func TestWhatIsNoPost(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		long := strings.Repeat("a", int(longestPost))
		for name, c := range map[string]struct {
			path, body string
			header     []string
			kind       fault.Kind
		}{
			"empty":             {"/feed/ann", `{"body":""}`, nil, fault.Malformed},
			"no body":           {"/feed/ann", `{}`, nil, fault.Malformed},
			"another field":     {"/feed/ann", `{"body":"a","to":"b"}`, nil, fault.Malformed},
			"too long":          {"/feed/ann", `{"body":"` + long + `a"}`, nil, fault.BodyTooLarge},
			"much too long":     {"/feed/ann", `{"body":"` + strings.Repeat(long, 7) + `"}`, nil, fault.BodyTooLarge},
			"no user":           {"/feed/a%2Fb", `{"body":"a"}`, nil, fault.Malformed},
			"a long key":        {"/feed/ann", `{"body":"a"}`, []string{"Idempotency-Key", strings.Repeat("k", 256)}, fault.Malformed},
			"an empty key":      {"/feed/ann", `{"body":"a"}`, []string{"Idempotency-Key", ""}, fault.Malformed},
			"a key of no ASCII": {"/feed/ann", `{"body":"a"}`, []string{"Idempotency-Key", "ü"}, fault.Malformed},
		} {
			t.Log(name) // the last one is the failing one
			expectRefusal(t, r.request(http.MethodPost, c.path, c.body, c.header...), c.kind)
		}
		for _, bad := range []string{"/feed/a%2Fb", "/feed/ann?limit=0", "/feed/ann?limit=101", "/feed/ann?offset=-1", "/feed/ann?offset=501", "/feed/ann?limit=x"} {
			expectRefusal(t, r.request(http.MethodGet, bad, ""), fault.Malformed)
		}
		r.post("ann", long)
		synctest.Wait()
		if items := r.read("ann"); len(items) != 1 || items[0].Body != long {
			t.Error("the longest post does not come")
		}
	})
}

func TestTheMailboxIsFull(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := build(t, enable("feed", "graph"), func(s *Spec) {
			limits := defaultLimits()
			limits.BoxMessages = 1
			s.Mailbox = mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: limits})
		})
		defer r.end()
		r.post("ann", "one") // no worker runs yet
		expectRefusal(t, r.request(http.MethodPost, "/feed/ann", `{"body":"two"}`), fault.Busy)
		testkit.Must(t, r.engine.Close())
		if answer := r.request(http.MethodGet, "/feed/ann", ""); answer.Code == http.StatusOK {
			t.Error("a closed mailbox has a feed")
		}
	})
}

// TestAFeedIsPutInOrder reads posts of mutual followers, of others and of an
// author who is no longer followed.
func TestAFeedIsPutInOrder(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		r.follow("ann", "friend", "friend", "ann", "ann", "other", "ann", "gone")
		r.post("friend", "of a friend, old")
		time.Sleep(11 * time.Hour)
		r.post("other", "new")
		r.post("gone", "of nobody")
		synctest.Wait()
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"of a friend, old", "of nobody", "new"}) && !slices.Equal(got, []string{"of a friend, old", "new", "of nobody"}) {
			t.Errorf("ann reads %q", got)
		}
		r.request(http.MethodDelete, "/graph/ann/follows/gone", "")
		items := r.read("ann")
		if !slices.Equal(bodies(items), []string{"of a friend, old", "new"}) {
			t.Errorf("ann reads %q", bodies(items))
		}
		if want := 2 * 0.5297315471796477; !almostEqual(items[0].Score, want) || !almostEqual(items[1].Score, 1) {
			t.Errorf("scores %v and %v, want %v and 1", items[0].Score, items[1].Score, want)
		}
		r.request(http.MethodDelete, "/graph/friend/follows/ann", "")
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"new", "of a friend, old"}) {
			t.Errorf("when the friend is none any more, ann reads %q", got)
		}
	})
}

func TestPagesOfAFeed(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		for i := range 30 {
			r.post("ann", fmt.Sprint(i, " ", strings.Repeat("a", 10<<10)))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		whole, seen := r.request(http.MethodGet, "/feed/ann?limit=100", ""), 0
		if told := expectJSON[client.Feed](t, whole, http.StatusOK); len(told.Items) != 12 || told.Next != 12 || told.User != "ann" {
			t.Errorf("%d long posts on a page, next %d", len(told.Items), told.Next)
		}
		for offset := 0; ; {
			told := expectJSON[client.Feed](t, r.request(http.MethodGet, fmt.Sprint("/feed/ann?limit=7&offset=", offset), ""), http.StatusOK)
			for _, item := range told.Items {
				if !strings.HasPrefix(item.Body, fmt.Sprint(29-seen, " ")) {
					t.Fatalf("at %d comes %.5q", seen, item.Body)
				}
				seen++
			}
			if offset = told.Next; offset == 0 {
				break
			}
		}
		if seen != 30 {
			t.Errorf("%d of 30 were seen", seen)
		}
		if past := expectJSON[client.Feed](t, r.request(http.MethodGet, "/feed/ann?offset=500", ""), http.StatusOK); len(past.Items) != 0 || past.Items == nil || past.Next != 0 {
			t.Errorf("past the end: %+v", past)
		}
	})
}

// TestNotesOfAnotherVersion: notes of another version are skipped.
func TestNotesOfAnotherVersion(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		testkit.Must(t, r.engine.Post(t.Context(), []string{feedBoard("ann")}, mailbox.Note{ID: "x", Body: []byte("not JSON"), At: time.Now()}))
		r.post("ann", "hello")
		synctest.Wait()
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"hello"}) {
			t.Errorf("ann reads %q", got)
		}
	})
}

// TestManyFollowers delivers in pages, each feed once.
func TestManyFollowers(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		p := &spyMailbox{}
		r := open(t, enable("feed", "graph"), withMailbox(p))
		fans := r.addFollowers(10_000)
		id := r.post("star", "hello")
		synctest.Wait()
		if n := r.countDelivered(append(fans, "star"), id); n != 10_001 {
			t.Errorf("%d of 10001 have it once", n)
		}
		if most := slices.Max(p.pages); most > boardsPerPage+1 || len(p.pages) != 20 {
			t.Errorf("%d pages of up to %d boards", len(p.pages), most)
		}
	})
}

// TestAFullPageIsNotTheEnd has exactly as many followers as fit on a page.
func TestAFullPageIsNotTheEnd(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		p := &spyMailbox{}
		r := open(t, enable("feed", "graph"), withMailbox(p))
		fans := r.addFollowers(boardsPerPage)
		id := r.post("star", "hello")
		synctest.Wait()
		if n := r.countDelivered(append(fans, "star"), id); n != boardsPerPage+1 {
			t.Errorf("%d of %d have it once", n, boardsPerPage+1)
		}
	})
}

// TestAWorkerIsKilled kills one in the middle of a fan-out: it continues at
// once, and every follower has the post once.
func TestAWorkerIsKilled(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var once sync.Once
		p := &spyMailbox{}
		p.post = func(ctx context.Context, boards []string) (err error) {
			if !slices.Contains(boards, feedBoard("fan01000")) {
				return nil
			}
			once.Do(func() {
				close(stuck)
				<-ctx.Done()
				err = flow.Ended(ctx, "test")
			})
			return err
		}
		r := open(t, enable("feed", "graph"), withMailbox(p), func(s *Spec) { s.Config.Feed.Fanout.Value = 1 })
		r.expectFailures = true
		fans := r.addFollowers(2000)
		id := r.post("star", "hello")
		<-stuck
		if n := r.countDelivered(fans, id); n == 0 || n == 2000 {
			t.Fatalf("%d have it when the worker is killed", n)
		}
		testkit.Must(t, r.supervisor.Kill("feed fan-out", 0))
		synctest.Wait()
		if n := r.countDelivered(append(fans, "star"), id); n != 2001 {
			t.Errorf("%d of 2001 have it once", n)
		}
		if got := r.engine.Usage(); got.Messages != 0 || got.Dead != 0 || p.received != 1 {
			t.Errorf("%d messages and %d dead letters are left; %d deliveries", got.Messages, got.Dead, p.received)
		}
		time.Sleep(time.Minute) // the worker is restarted
		next := r.post("star", "again")
		synctest.Wait()
		if items := r.read("fan00000"); len(items) != 2 || items[0].ID != next {
			t.Errorf("after that, %v is read", bodies(items))
		}
	})
}

// TestTheNodeDies stops everything in the middle of a fan-out without a call to
// the mailbox, as a power failure does. Others on the same mailbox continue
// when the lease has ended.
func TestTheNodeDies(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		fans := r.addFollowers(1500)
		r.drain()
		id := r.post("star", "hello")
		got, err := r.engine.Receive(t.Context(), feedBox, leaseTime, 0)
		testkit.Must(t, err)
		j := &fanout{facets: r.Facets, delivery: got}
		p, err := parsePost(got)
		testkit.Must(t, err)
		testkit.Must(t, j.postNote(t.Context(), []string{feedBoard("star"), feedBoard(fans[0]), feedBoard(fans[1])}, mailbox.Note{ID: got.ID, Body: marshal(feedNote{p.Author, p.Body}), At: p.At}))

		next := open(t, enable("feed", "graph"), func(s *Spec) { s.Mailbox, s.Graph, s.Audience = r.engine, r.edges, r.edges })
		synctest.Wait()
		if n := r.countDelivered(fans, id); n != 2 {
			t.Fatalf("%d have it while the lease holds", n)
		}
		time.Sleep(leaseTime + time.Second)
		synctest.Wait()
		if n := r.countDelivered(append(fans, "star"), id); n != 1501 {
			t.Errorf("%d of 1501 have it once", n)
		}
		if left := next.engine.Usage().Messages; left != 0 {
			t.Errorf("%d messages are left", left)
		}
	})
}

// TestTheNodeStops drains it in the middle of a fan-out: the post is returned,
// for the next node to continue with, and none of the workers that stop takes
// it again.
func TestTheNodeStops(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		stuck := make(chan struct{})
		p := &spyMailbox{}
		p.post = func(ctx context.Context, _ []string) error {
			close(stuck)
			<-ctx.Done()
			return flow.Ended(ctx, "test")
		}
		r := open(t, enable("feed", "graph"), withMailbox(p))
		r.post("ann", "hello")
		<-stuck
		r.drain()
		time.Sleep(stopRedeliveryDelay)
		got, err := p.Engine.Receive(t.Context(), feedBox, leaseTime, 0)
		if err != nil || got.Deliveries != 2 {
			t.Fatalf("the post is not there: %+v, %v", got, err)
		}
		if n := r.metric(feedName, "feed_deliveries_total", "outcome=stopped"); n != 1 {
			t.Errorf("%v were counted as stopped", n)
		}
	})
}

// TestPoison puts messages into the box that are not a posts. They become dead
// letters with the reason, and posts are still delivered.
func TestPoison(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		for _, body := range []string{"\xff\x00", `{"author":"a/b","body":"x"}`, `{"author":"ann","surprise":1}`} {
			_, err := r.engine.Send(t.Context(), mailbox.Message{Box: feedBox, Body: []byte(body)})
			testkit.Must(t, err)
		}
		r.post("ann", "hello")
		synctest.Wait()
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"hello"}) {
			t.Errorf("ann reads %q", got)
		}
		letters := r.deadLetters()
		if len(letters) != 3 {
			t.Fatalf("%d dead letters", len(letters))
		}
		for _, one := range letters {
			if one.Deliveries != 5 || !strings.Contains(one.Reason, "not a post") && !strings.Contains(one.Reason, "valid name") {
				t.Errorf("%q died after %d deliveries: %s", one.Body, one.Deliveries, one.Reason)
			}
		}
		if r.metric(feedName, "feed_deliveries_total", "outcome=poison") != 15 || len(r.eventsOf(Undelivered)) != 15 {
			t.Error("poison was not counted, or not told")
		}
	})
}

// TestBoardsThatFail: failing boards are retried after a while, until the post
// is a dead letter.
func TestBoardsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		failures  int
		delivered bool
	}{"for a while": {4, true}, "for good": {100, false}} {
		t.Run(name, func(t *testing.T) {
			localAndRemote(t, func(t *testing.T) {
				tries := []time.Time{}
				p := &spyMailbox{}
				p.post = func(context.Context, []string) error {
					tries = append(tries, time.Now())
					if len(tries) <= c.failures {
						return fault.New("test", fault.Busy, "the boards are full")
					}
					return nil
				}
				r := open(t, enable("feed", "graph"), withMailbox(p))
				r.post("ann", "hello")
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				var pauses []time.Duration
				for i := range tries[1:] {
					pauses = append(pauses, tries[i+1].Sub(tries[i]))
				}
				if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}; !slices.Equal(pauses, want) {
					t.Errorf("it was tried again after %v", pauses)
				}
				if got := len(r.read("ann")) == 1; got != c.delivered {
					t.Errorf("delivered: %v", got)
				}
				letters := r.deadLetters()
				if c.delivered != (len(letters) == 0) {
					t.Fatalf("%d dead letters", len(letters))
				}
				if !c.delivered && !strings.Contains(letters[0].Reason, "the boards are full") {
					t.Errorf("it died of %q", letters[0].Reason)
				}
			})
		})
	}
}

// TestALongFanOutKeepsItsLease takes much longer than a lease lasts.
func TestALongFanOutKeepsItsLease(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		p := &spyMailbox{post: func(ctx context.Context, _ []string) error { return flow.Sleep(ctx, pageTimeout-time.Second) }}
		r := open(t, enable("feed", "graph"), withMailbox(p))
		fans := r.addFollowers(5000)
		id := r.post("star", "hello")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := r.countDelivered(append(fans, "star"), id); n != 5001 {
			t.Errorf("%d of 5001 have it once", n)
		}
		if p.received != 1 || len(p.pages) != 10 || p.extended == 0 || r.engine.Usage().Timeouts != 0 {
			t.Errorf("%d deliveries in %d pages; the lease was held %d times and ended %d times", p.received, len(p.pages), p.extended, r.engine.Usage().Timeouts)
		}
	})
}

// TestAPageThatHangs: a page that hangs is cancelled before the lease ends.
func TestAPageThatHangs(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		hangs := true
		p := &spyMailbox{}
		p.post = func(ctx context.Context, _ []string) error {
			if !hangs {
				return nil
			}
			hangs = false
			<-ctx.Done()
			return flow.Ended(ctx, "test")
		}
		r := open(t, enable("feed", "graph"), withMailbox(p))
		r.post("ann", "hello")
		time.Sleep(leaseTime - 1)
		synctest.Wait()
		if got := r.engine.Usage().Timeouts; len(r.read("ann")) != 1 || got != 0 {
			t.Errorf("ann reads %d posts; %d leases ended", len(r.read("ann")), got)
		}
	})
}

// TestALeaseIsLost has another worker take the post over half-way.
func TestALeaseIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		kind    fault.Kind
		outcome outcome
	}{"somebody has it": {fault.NotFound, outcomeLost}, "nobody knows": {fault.StorageBusy, outcomeFailed}} {
		t.Run(name, func(t *testing.T) {
			localAndRemote(t, func(t *testing.T) {
				p := &spyMailbox{post: func(ctx context.Context, _ []string) error { return flow.Sleep(ctx, pageTimeout-time.Second) }}
				p.extends = func() error { return fault.New("test", c.kind, "no extension") }
				r := open(t, enable("feed", "graph"), withMailbox(p))
				r.addFollowers(2000)
				r.post("star", "hello")
				time.Sleep(leaseTime - time.Second)
				synctest.Wait()
				if n := r.metric(feedName, "feed_deliveries_total", "outcome="+string(c.outcome)); n != 1 || len(p.pages) < 2 {
					t.Errorf("%v were counted as %s after %d pages", n, c.outcome, len(p.pages))
				}
			})
		})
	}
}

// TestAPostThatKills makes its worker panic: it becomes a dead letter in the
// end, and others are delivered.
func TestAPostThatKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &spyMailbox{post: func(_ context.Context, boards []string) error {
			if slices.Contains(boards, feedBoard("killer")) {
				panic("boom")
			}
			return nil
		}}
		r := open(t, enable("feed", "graph"), withMailbox(p))
		r.expectFailures = true
		r.post("killer", "boo")
		r.post("ann", "hello")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"hello"}) {
			t.Errorf("ann reads %q", got)
		}
		letters := r.deadLetters()
		if len(letters) != 1 || !strings.Contains(letters[0].Reason, "ended unexpectedly") {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}

// TestNoPermit returns a post when it waits for a permit too long.
func TestNoPermit(t *testing.T) {
	localAndRemote(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		for range 4 {
			testkit.Must(t, r.feed.permits.Acquire(t.Context()))
		}
		r.post("ann", "hello")
		time.Sleep(pageTimeout + 10*time.Millisecond)
		synctest.Wait()
		if n := r.metric(feedName, "feed_deliveries_total", "outcome=failed"); n != 1 {
			t.Errorf("%v were given back", n)
		}
		r.feed.permits.ReleaseMany(4)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(r.read("ann")) != 1 {
			t.Error("with permits, it does not come either")
		}
	})
}

// TestTheMailboxFails has workers that cannot even receive.
func TestTheMailboxFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, enable("feed", "graph"))
		time.Sleep(time.Hour) // a long idle time is no failure
		testkit.Must(t, r.engine.Close())
		synctest.Wait()
		for _, one := range r.supervisor.Status() {
			if one.Name == "feed fan-out" && (one.Restarts != 0 || one.Live != 0) {
				t.Errorf("after the mailbox was closed: %+v", one)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		broken := fault.New("test", fault.StorageBusy, "no disk")
		r := open(t, enable("feed", "graph"), withMailbox(&spyMailbox{}), func(s *Spec) { s.Mailbox = &failingReceiver{s.Mailbox.(*spyMailbox), broken} })
		r.expectFailures = true
		time.Sleep(time.Minute)
		if restarts := r.metric(feedName, "service_restarts_total"); restarts == 0 {
			t.Error("workers that fail do not come back")
		}
	})
}

// TestAMailboxWithTooManyReceivers: the worker retries, and has not failed.
func TestAMailboxWithTooManyReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowded := fault.New("test", fault.Busy, "too many wait for messages")
		r := open(t, enable("feed", "graph"), withMailbox(&spyMailbox{}), func(s *Spec) { s.Mailbox = &failingReceiver{s.Mailbox.(*spyMailbox), crowded} })
		time.Sleep(time.Minute)
		if restarts := r.metric(feedName, "service_restarts_total"); restarts != 0 {
			t.Errorf("%v workers died of it", restarts)
		}
	})
}

// failingReceiver is a mailbox whose Receive fails.
type failingReceiver struct {
	*spyMailbox
	err error
}

func (f *failingReceiver) Receive(context.Context, string, time.Duration, time.Duration) (mailbox.Delivery, error) {
	return mailbox.Delivery{}, f.err
}

// BenchmarkFanOut delivers a post to 10,000 followers.
func BenchmarkFanOut(b *testing.B) {
	r := build(b, enable("feed", "graph"))
	defer r.end()
	r.addFollowers(10_000)
	body := strings.Repeat("a", 280)
	b.ReportAllocs()
	for b.Loop() {
		_, _, err := r.submitPost(b.Context(), "", "star", body, "")
		testkit.Must(b, err)
		job, err := r.nextPost(b.Context())
		testkit.Must(b, err)
		job.Run(b.Context())
	}
	b.StopTimer()
	if n := r.engine.Usage().Messages; n != 0 {
		b.Fatalf("%d posts were not delivered", n)
	}
}

// BenchmarkRead reads a page of a full feed.
func BenchmarkRead(b *testing.B) {
	r := build(b, enable("feed", "graph"))
	defer r.end()
	for i := range 50 {
		r.follow("ann", fmt.Sprint("author", i))
	}
	for i := range boardNotes {
		raw, _ := json.Marshal(feedNote{Author: fmt.Sprint("author", i%50), Body: strings.Repeat("a", 280)})
		testkit.Must(b, r.engine.Post(b.Context(), []string{feedBoard("ann")}, mailbox.Note{ID: fmt.Sprint(i), Body: raw, At: time.Now()}))
	}
	b.ReportAllocs()
	for b.Loop() {
		if answer := r.request(http.MethodGet, "/feed/ann", ""); answer.Code != http.StatusOK {
			b.Fatal(answer.Body)
		}
	}
}
