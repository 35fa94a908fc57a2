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
)

// played is a mailbox that a test may interfere with.
type played struct {
	mailbox.Engine
	post    func(ctx context.Context, boards []string) error // before a note is pinned
	extends func() error                                     // instead of an extension

	mu       sync.Mutex
	pages    []int // how many boards each Post had
	extended int
	received int
}

func (p *played) Tasks() []mailbox.Task { return p.Engine.(mailbox.Tasked).Tasks() }

func (p *played) Receive(ctx context.Context, box string, visibility, wait time.Duration) (mailbox.Delivery, error) {
	got, err := p.Engine.Receive(ctx, box, visibility, wait)
	if err == nil {
		p.mu.Lock()
		p.received++
		p.mu.Unlock()
	}
	return got, err
}

func (p *played) Post(ctx context.Context, boards []string, n mailbox.Note) error {
	p.mu.Lock()
	p.pages = append(p.pages, len(boards))
	p.mu.Unlock()
	if p.post != nil {
		if err := p.post(ctx, boards); err != nil {
			return err
		}
	}
	return p.Engine.Post(ctx, boards, n)
}

func (p *played) Extend(ctx context.Context, box, receipt string, visibility time.Duration) error {
	p.mu.Lock()
	p.extended++
	p.mu.Unlock()
	if p.extends != nil {
		return p.extends()
	}
	return p.Engine.Extend(ctx, box, receipt, visibility)
}

// through makes the mailbox one that a test may interfere with.
func through(p *played) setting {
	return func(s *Spec) {
		p.Engine = s.Mailbox.(mailbox.Engine)
		s.Mailbox = p
	}
}

// fans makes so many follow a star.
func (r *rig) fans(n int) (names []string) {
	r.t.Helper()
	for i := range n {
		names = append(names, fmt.Sprintf("fan%05d", i))
		r.follow(names[i], "star")
	}
	return names
}

// holds reports how many of these have exactly one note on their board, with
// the right ID.
func (r *rig) holds(users []string, id string) (n int) {
	r.t.Helper()
	for _, user := range users {
		notes, err := r.office.Board(context.Background(), board(user), "", boardNotes)
		must(r.t, err)
		if len(notes) == 1 && notes[0].ID == id {
			n++
		}
	}
	return n
}

// dead lists the dead letters of the box.
func (r *rig) dead() []mailbox.DeadLetter {
	r.t.Helper()
	letters, err := r.office.Dead(context.Background(), box, "", 100)
	must(r.t, err)
	return letters
}

func TestPostsComeToFollowers(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		r.follow("bob", "ann", "cem", "ann", "ann", "dot")
		id := r.post("ann", "hello")
		synctest.Wait()
		for _, user := range []string{"ann", "bob", "cem"} {
			items := r.read(user)
			if len(items) != 1 || items[0].ID != id || items[0].Author != "ann" || items[0].Body != "hello" || !near(items[0].Score, 1) || items[0].At.IsZero() {
				t.Errorf("the feed of %s is %+v", user, items)
			}
		}
		if items := r.read("dot"); len(items) != 0 {
			t.Errorf("dot, who follows nobody, reads %v", bodies(items))
		}
		if got := r.office.Usage().Messages; got != 0 {
			t.Errorf("%d messages are left in the box", got)
		}
		if posted := r.told(Posted); len(posted) != 1 || posted[0].Key != id || posted[0].Facet != feedName {
			t.Errorf("for the record: %+v", posted)
		}
		if r.count(feedName, "feed_posts_total") != 1 || r.count(feedName, "feed_notes_total") != 3 || r.count(feedName, "feed_deliveries_total", "outcome=done") != 1 || r.count(feedName, "feed_fanout_seconds") != 1 {
			t.Error("the post was not counted")
		}
	})
}

// TestTheTimeOfAPost holds what its author is told against what others read.
func TestTheTimeOfAPost(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		for _, header := range [][]string{nil, {"Idempotency-Key", "k"}} {
			time.Sleep(time.Hour)
			told := answered[client.Posted](t, r.ask(http.MethodPost, "/feed/ann", `{"body":"hello"}`, header...), http.StatusCreated)
			synctest.Wait()
			if read := r.read("ann")[0]; !read.At.Equal(told.At) || told.Author != "ann" || read.ID != told.ID {
				t.Errorf("%+v was told, %+v is read", told, read)
			}
		}
	})
}

func TestAPostIsTakenOnce(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		held := make(chan struct{})
		r := open(t, on("feed", "graph"), through(&played{post: func(context.Context, []string) error { <-held; return nil }}))
		send := func(author, body, key string) *client.Posted {
			answer := r.ask(http.MethodPost, "/feed/"+author, `{"body":"`+body+`"}`, "Idempotency-Key", key)
			told := answered[client.Posted](t, answer, answer.Code)
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
		again := r.ask(http.MethodPost, "/feed/ann", `{"body":"hello"}`, "Idempotency-Key", "k")
		if told := answered[client.Posted](t, again, http.StatusOK); told.ID != first.ID || !told.At.Equal(first.At) {
			t.Errorf("%+v, and again %+v", first, told)
		}
		if other := send("bob", "hello", "k"); other.ID == first.ID {
			t.Error("the key of one author is that of another")
		}
		refused(t, r.ask(http.MethodPost, "/feed/ann", `{"body":"another"}`, "Idempotency-Key", "k"), fault.Conflict)
		synctest.Wait()
		if items := r.read("ann"); len(items) != 1 {
			t.Errorf("ann reads %v", bodies(items))
		}
	})
}

func TestWhatIsNoPost(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
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
			t.Log(name) // the last one is the one that is wrong
			refused(t, r.ask(http.MethodPost, c.path, c.body, c.header...), c.kind)
		}
		for _, bad := range []string{"/feed/a%2Fb", "/feed/ann?limit=0", "/feed/ann?limit=101", "/feed/ann?offset=-1", "/feed/ann?offset=501", "/feed/ann?limit=x"} {
			refused(t, r.ask(http.MethodGet, bad, ""), fault.Malformed)
		}
		r.post("ann", long)
		synctest.Wait()
		if items := r.read("ann"); len(items) != 1 || items[0].Body != long {
			t.Error("the longest post does not come")
		}
	})
}

func TestTheMailboxIsFull(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := build(t, on("feed", "graph"), func(s *Spec) {
			limits := usualLimits()
			limits.BoxMessages = 1
			s.Mailbox = mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: limits})
		})
		defer r.end()
		r.post("ann", "one") // nobody delivers yet
		refused(t, r.ask(http.MethodPost, "/feed/ann", `{"body":"two"}`), fault.Busy)
		must(t, r.office.Close())
		if answer := r.ask(http.MethodGet, "/feed/ann", ""); answer.Code == http.StatusOK {
			t.Error("a closed mailbox has a feed")
		}
	})
}

// TestAFeedIsPutInOrder reads posts of friends, of others and of one who is not
// followed any more.
func TestAFeedIsPutInOrder(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		r.follow("ann", "friend", "friend", "ann", "ann", "other", "ann", "gone")
		r.post("friend", "of a friend, old")
		time.Sleep(11 * time.Hour)
		r.post("other", "new")
		r.post("gone", "of nobody")
		synctest.Wait()
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"of a friend, old", "of nobody", "new"}) && !slices.Equal(got, []string{"of a friend, old", "new", "of nobody"}) {
			t.Errorf("ann reads %q", got)
		}
		r.ask(http.MethodDelete, "/graph/ann/follows/gone", "")
		items := r.read("ann")
		if !slices.Equal(bodies(items), []string{"of a friend, old", "new"}) {
			t.Errorf("ann reads %q", bodies(items))
		}
		if want := 2 * 0.5297315471796477; !near(items[0].Score, want) || !near(items[1].Score, 1) {
			t.Errorf("scores %v and %v, want %v and 1", items[0].Score, items[1].Score, want)
		}
		r.ask(http.MethodDelete, "/graph/friend/follows/ann", "")
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"new", "of a friend, old"}) {
			t.Errorf("when the friend is none any more, ann reads %q", got)
		}
	})
}

func TestPagesOfAFeed(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		for i := range 30 {
			r.post("ann", fmt.Sprint(i, " ", strings.Repeat("a", 10<<10)))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		whole, seen := r.ask(http.MethodGet, "/feed/ann?limit=100", ""), 0
		if told := answered[client.Feed](t, whole, http.StatusOK); len(told.Items) != 12 || told.Next != 12 || told.User != "ann" {
			t.Errorf("%d long posts on a page, next %d", len(told.Items), told.Next)
		}
		for offset := 0; ; {
			told := answered[client.Feed](t, r.ask(http.MethodGet, fmt.Sprint("/feed/ann?limit=7&offset=", offset), ""), http.StatusOK)
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
		if past := answered[client.Feed](t, r.ask(http.MethodGet, "/feed/ann?offset=500", ""), http.StatusOK); len(past.Items) != 0 || past.Items == nil || past.Next != 0 {
			t.Errorf("past the end: %+v", past)
		}
	})
}

// TestNotesOfAnotherVersion are left out.
func TestNotesOfAnotherVersion(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		must(t, r.office.Post(t.Context(), []string{board("ann")}, mailbox.Note{ID: "x", Body: []byte("not JSON"), At: time.Now()}))
		r.post("ann", "hello")
		synctest.Wait()
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"hello"}) {
			t.Errorf("ann reads %q", got)
		}
	})
}

// TestManyFollowers delivers in pages, each feed once.
func TestManyFollowers(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		p := &played{}
		r := open(t, on("feed", "graph"), through(p))
		fans := r.fans(10_000)
		id := r.post("star", "hello")
		synctest.Wait()
		if n := r.holds(append(fans, "star"), id); n != 10_001 {
			t.Errorf("%d of 10001 have it once", n)
		}
		if most := slices.Max(p.pages); most > pageBoards+1 || len(p.pages) != 20 {
			t.Errorf("%d pages of up to %d boards", len(p.pages), most)
		}
	})
}

// TestAFullPageIsNotTheEnd has exactly as many followers as fit on a page.
func TestAFullPageIsNotTheEnd(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		p := &played{}
		r := open(t, on("feed", "graph"), through(p))
		fans := r.fans(pageBoards)
		id := r.post("star", "hello")
		synctest.Wait()
		if n := r.holds(append(fans, "star"), id); n != pageBoards+1 {
			t.Errorf("%d of %d have it once", n, pageBoards+1)
		}
	})
}

// TestAWorkerIsKilled kills one in the middle of a fan-out: it is gone on with
// at once, and everybody has the post once.
func TestAWorkerIsKilled(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var once sync.Once
		p := &played{}
		p.post = func(ctx context.Context, boards []string) (err error) {
			if !slices.Contains(boards, board("fan01000")) {
				return nil
			}
			once.Do(func() {
				close(stuck)
				<-ctx.Done()
				err = flow.Ended(ctx, "test")
			})
			return err
		}
		r := open(t, on("feed", "graph"), through(p), func(s *Spec) { s.Config.Feed.Fanout.Value = 1 })
		r.rough = true
		fans := r.fans(2000)
		id := r.post("star", "hello")
		<-stuck
		if n := r.holds(fans, id); n == 0 || n == 2000 {
			t.Fatalf("%d have it when the worker is killed", n)
		}
		must(t, r.supervisor.Kill("feed fan-out", 0))
		synctest.Wait()
		if n := r.holds(append(fans, "star"), id); n != 2001 {
			t.Errorf("%d of 2001 have it once", n)
		}
		if got := r.office.Usage(); got.Messages != 0 || got.Dead != 0 || p.received != 1 {
			t.Errorf("%d messages and %d dead letters are left; %d deliveries", got.Messages, got.Dead, p.received)
		}
		time.Sleep(time.Minute) // the worker comes back
		next := r.post("star", "again")
		synctest.Wait()
		if items := r.read("fan00000"); len(items) != 2 || items[0].ID != next {
			t.Errorf("after that, %v is read", bodies(items))
		}
	})
}

// TestTheNodeDies stops everything in the middle of a fan-out without a word
// to the mailbox, as a power failure does. Others on the same mailbox go on
// when the lease has ended.
func TestTheNodeDies(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		fans := r.fans(1500)
		r.drain()
		id := r.post("star", "hello")
		got, err := r.office.Receive(t.Context(), box, lease, 0)
		must(t, err)
		j := &fanout{facets: r.Facets, delivery: got}
		p, err := parsePost(got)
		must(t, err)
		must(t, j.pin(t.Context(), []string{board("star"), board(fans[0]), board(fans[1])}, mailbox.Note{ID: got.ID, Body: encode(note{p.Author, p.Body}), At: p.At}))

		next := open(t, on("feed", "graph"), func(s *Spec) { s.Mailbox, s.Graph, s.Audience = r.office, r.edges, r.edges })
		synctest.Wait()
		if n := r.holds(fans, id); n != 2 {
			t.Fatalf("%d have it while the lease holds", n)
		}
		time.Sleep(lease + time.Second)
		synctest.Wait()
		if n := r.holds(append(fans, "star"), id); n != 1501 {
			t.Errorf("%d of 1501 have it once", n)
		}
		if left := next.office.Usage().Messages; left != 0 {
			t.Errorf("%d messages are left", left)
		}
	})
}

// TestTheNodeStops drains it in the middle of a fan-out: the post is given
// back, for the next node to go on with, and none of the workers that stop takes
// it again.
func TestTheNodeStops(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		stuck := make(chan struct{})
		p := &played{}
		p.post = func(ctx context.Context, _ []string) error {
			close(stuck)
			<-ctx.Done()
			return flow.Ended(ctx, "test")
		}
		r := open(t, on("feed", "graph"), through(p))
		r.post("ann", "hello")
		<-stuck
		r.drain()
		time.Sleep(stopPause)
		got, err := p.Engine.Receive(t.Context(), box, lease, 0)
		if err != nil || got.Deliveries != 2 {
			t.Fatalf("the post is not there: %+v, %v", got, err)
		}
		if n := r.count(feedName, "feed_deliveries_total", "outcome=stopped"); n != 1 {
			t.Errorf("%v were counted as stopped", n)
		}
	})
}

// TestPoison puts things into the box that are no posts. They become dead
// letters with the reason, and posts go on.
func TestPoison(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		for _, body := range []string{"\xff\x00", `{"author":"a/b","body":"x"}`, `{"author":"ann","surprise":1}`} {
			_, err := r.office.Send(t.Context(), mailbox.Message{Box: box, Body: []byte(body)})
			must(t, err)
		}
		r.post("ann", "hello")
		synctest.Wait()
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"hello"}) {
			t.Errorf("ann reads %q", got)
		}
		letters := r.dead()
		if len(letters) != 3 {
			t.Fatalf("%d dead letters", len(letters))
		}
		for _, one := range letters {
			if one.Deliveries != 5 || !strings.Contains(one.Reason, "no post") && !strings.Contains(one.Reason, "no name") {
				t.Errorf("%q died after %d deliveries: %s", one.Body, one.Deliveries, one.Reason)
			}
		}
		if r.count(feedName, "feed_deliveries_total", "outcome=poison") != 15 || len(r.told(Undelivered)) != 15 {
			t.Error("poison was not counted, or not told")
		}
	})
}

// TestBoardsThatFail are tried again after a while, and given up in the end.
func TestBoardsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		failures  int
		delivered bool
	}{"for a while": {4, true}, "for good": {100, false}} {
		t.Run(name, func(t *testing.T) {
			inBothForms(t, func(t *testing.T) {
				tries := []time.Time{}
				p := &played{}
				p.post = func(context.Context, []string) error {
					tries = append(tries, time.Now())
					if len(tries) <= c.failures {
						return fault.New("test", fault.Busy, "the boards are full")
					}
					return nil
				}
				r := open(t, on("feed", "graph"), through(p))
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
				letters := r.dead()
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
	inBothForms(t, func(t *testing.T) {
		p := &played{post: func(ctx context.Context, _ []string) error { return flow.Sleep(ctx, patience-time.Second) }}
		r := open(t, on("feed", "graph"), through(p))
		fans := r.fans(5000)
		id := r.post("star", "hello")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := r.holds(append(fans, "star"), id); n != 5001 {
			t.Errorf("%d of 5001 have it once", n)
		}
		if p.received != 1 || len(p.pages) != 10 || p.extended == 0 || r.office.Usage().Timeouts != 0 {
			t.Errorf("%d deliveries in %d pages; the lease was held %d times and ended %d times", p.received, len(p.pages), p.extended, r.office.Usage().Timeouts)
		}
	})
}

// TestAPageThatHangs is given up before the lease ends.
func TestAPageThatHangs(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		hangs := true
		p := &played{}
		p.post = func(ctx context.Context, _ []string) error {
			if !hangs {
				return nil
			}
			hangs = false
			<-ctx.Done()
			return flow.Ended(ctx, "test")
		}
		r := open(t, on("feed", "graph"), through(p))
		r.post("ann", "hello")
		time.Sleep(lease - 1)
		synctest.Wait()
		if got := r.office.Usage().Timeouts; len(r.read("ann")) != 1 || got != 0 {
			t.Errorf("ann reads %d posts; %d leases ended", len(r.read("ann")), got)
		}
	})
}

// TestALeaseIsLost has somebody else take the post over half-way.
func TestALeaseIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		kind    fault.Kind
		outcome outcome
	}{"somebody has it": {fault.NotFound, lost}, "nobody knows": {fault.StorageBusy, failed}} {
		t.Run(name, func(t *testing.T) {
			inBothForms(t, func(t *testing.T) {
				p := &played{post: func(ctx context.Context, _ []string) error { return flow.Sleep(ctx, patience-time.Second) }}
				p.extends = func() error { return fault.New("test", c.kind, "no extension") }
				r := open(t, on("feed", "graph"), through(p))
				r.fans(2000)
				r.post("star", "hello")
				time.Sleep(lease - time.Second)
				synctest.Wait()
				if n := r.count(feedName, "feed_deliveries_total", "outcome="+string(c.outcome)); n != 1 || len(p.pages) < 2 {
					t.Errorf("%v were counted as %s after %d pages", n, c.outcome, len(p.pages))
				}
			})
		})
	}
}

// TestAPostThatKills makes whoever delivers it panic: it becomes a dead letter
// in the end, and others are delivered.
func TestAPostThatKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &played{post: func(_ context.Context, boards []string) error {
			if slices.Contains(boards, board("killer")) {
				panic("boom")
			}
			return nil
		}}
		r := open(t, on("feed", "graph"), through(p))
		r.rough = true
		r.post("killer", "boo")
		r.post("ann", "hello")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := bodies(r.read("ann")); !slices.Equal(got, []string{"hello"}) {
			t.Errorf("ann reads %q", got)
		}
		letters := r.dead()
		if len(letters) != 1 || !strings.Contains(letters[0].Reason, "died") {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}

// TestNoPermit gives a post back when it waits for a permit too long.
func TestNoPermit(t *testing.T) {
	inBothForms(t, func(t *testing.T) {
		r := open(t, on("feed", "graph"))
		for range 4 {
			must(t, r.feed.permits.Acquire(t.Context()))
		}
		r.post("ann", "hello")
		time.Sleep(patience + 10*time.Millisecond)
		synctest.Wait()
		if n := r.count(feedName, "feed_deliveries_total", "outcome=failed"); n != 1 {
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
		r := open(t, on("feed", "graph"))
		time.Sleep(time.Hour) // nothing to do for long is no failure
		must(t, r.office.Close())
		synctest.Wait()
		for _, one := range r.supervisor.Status() {
			if one.Name == "feed fan-out" && (one.Restarts != 0 || one.Live != 0) {
				t.Errorf("after the mailbox was closed: %+v", one)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		broken := fault.New("test", fault.StorageBusy, "no disk")
		r := open(t, on("feed", "graph"), through(&played{}), func(s *Spec) { s.Mailbox = &deaf{s.Mailbox.(*played), broken} })
		r.rough = true
		time.Sleep(time.Minute)
		if restarts := r.count(feedName, "service_restarts_total"); restarts == 0 {
			t.Error("workers that fail do not come back")
		}
	})
}

// TestAMailboxWithTooManyReceivers is waited for: nobody has failed.
func TestAMailboxWithTooManyReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowded := fault.New("test", fault.Busy, "too many wait for messages")
		r := open(t, on("feed", "graph"), through(&played{}), func(s *Spec) { s.Mailbox = &deaf{s.Mailbox.(*played), crowded} })
		time.Sleep(time.Minute)
		if restarts := r.count(feedName, "service_restarts_total"); restarts != 0 {
			t.Errorf("%v workers died of it", restarts)
		}
	})
}

// deaf is a mailbox that cannot give anything out.
type deaf struct {
	*played
	err error
}

func (d *deaf) Receive(context.Context, string, time.Duration, time.Duration) (mailbox.Delivery, error) {
	return mailbox.Delivery{}, d.err
}

// BenchmarkFanOut delivers a post to 10,000 followers.
func BenchmarkFanOut(b *testing.B) {
	r := build(b, on("feed", "graph"))
	defer r.end()
	r.fans(10_000)
	body := strings.Repeat("a", 280)
	b.ReportAllocs()
	for b.Loop() {
		_, _, err := r.take(b.Context(), "star", body, "")
		must(b, err)
		job, err := r.nextPost(b.Context())
		must(b, err)
		job.Run(b.Context())
	}
	b.StopTimer()
	if n := r.office.Usage().Messages; n != 0 {
		b.Fatalf("%d posts were not delivered", n)
	}
}

// BenchmarkRead reads a page of a full feed.
func BenchmarkRead(b *testing.B) {
	r := build(b, on("feed", "graph"))
	defer r.end()
	for i := range 50 {
		r.follow("ann", fmt.Sprint("author", i))
	}
	for i := range boardNotes {
		raw, _ := json.Marshal(note{Author: fmt.Sprint("author", i%50), Body: strings.Repeat("a", 280)})
		must(b, r.office.Post(b.Context(), []string{board("ann")}, mailbox.Note{ID: fmt.Sprint(i), Body: raw, At: time.Now()}))
	}
	b.ReportAllocs()
	for b.Loop() {
		if answer := r.ask(http.MethodGet, "/feed/ann", ""); answer.Code != http.StatusOK {
			b.Fatal(answer.Body)
		}
	}
}
