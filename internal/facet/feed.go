package facet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
)

const opFeed = "feed.post"

// Mailbox is what the feed needs of a mailbox. Every mailbox.Engine has it, and
// so has the mailbox.Remote of one in another process.
type Mailbox interface {
	Send(ctx context.Context, m mailbox.Message) (mailbox.Sent, error)
	Receive(ctx context.Context, box string, visibility, wait time.Duration) (mailbox.Delivery, error)
	Ack(ctx context.Context, box, receipt string) error
	Nack(ctx context.Context, box, receipt string, delay time.Duration, reason string) error
	Extend(ctx context.Context, box, receipt string, visibility time.Duration) error
	Post(ctx context.Context, boards []string, n mailbox.Note) error
	Board(ctx context.Context, name, after string, limit int) ([]mailbox.Note, error)
}

// Audience is what the feed needs of the graph: to whom a post goes, and what
// those are to a reader whose posts it has. An index.Graph knows, and so does the
// index.RemoteGraph of one in another process. Both are asked for many at once.
type Audience interface {
	Followers(ctx context.Context, b, after string, limit int) ([]string, error)
	Ties(ctx context.Context, a string, others []string) ([]index.Tie, error)
}

// feed is the facet's own.
type feed struct {
	part

	// set at construction; nil if the facet is off
	posts    prometheus.Counter
	notes    prometheus.Counter
	outcomes map[outcome]prometheus.Counter
	took     prometheus.Histogram
}

// openFeed makes what the facet needs.
func (f *Facets) openFeed() error {
	if err := errors.Join(f.feed.need("mailbox", f.spec.Mailbox != nil), f.feed.need("graph", f.spec.Audience != nil)); err != nil || !f.feed.on {
		return err
	}
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "feed_deliveries_total",
		Help: "Posts that were taken out of the box, by what came of it: done, failed (and given back), poison (not a post at all), stopped (by the end of the node), lost (somebody else has it)."}, []string{"outcome"})
	f.feed.outcomes = map[outcome]prometheus.Counter{}
	for _, one := range []outcome{done, failed, poison, stopped, lost} {
		f.feed.outcomes[one] = outcomes.WithLabelValues(string(one))
	}
	f.feed.posts = prometheus.NewCounter(prometheus.CounterOpts{Name: "feed_posts_total", Help: "Posts that were taken in."})
	f.feed.notes = prometheus.NewCounter(prometheus.CounterOpts{Name: "feed_notes_total", Help: "Feeds that a post was put into, repetitions counted."})
	f.feed.took = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "feed_fanout_seconds",
		Help: "How long it took to put a post into all feeds.", Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2, 5, 10, 30}})
	f.feed.instruments.Register(outcomes, f.feed.posts, f.feed.notes, f.feed.took)
	return nil
}

const feedPattern = "/feed/{user}"

// How much of a feed is shown at a time.
const (
	boardNotes = 500       // that a feed has at most, as a board does
	usualItems = 20        // shown if nobody says how many
	mostItems  = 100       // shown at a time
	pageBytes  = 128 << 10 // of the posts of a page
)

// feedRoutes lists the routes of the facet as if it were on.
func (f *Facets) feedRoutes() []ingress.Route {
	user := path("user", "1 to 128 bytes of UTF-8 in NFC, without slashes and control characters.")
	return []ingress.Route{
		{
			// Whatever is written in JSON takes six times its room at most.
			Methods: []string{http.MethodPost}, Pattern: feedPattern, Handler: f.postFeed, Class: ingress.Control, Scope: "feed:post", BodyCap: 6*int64(longestPost) + 64,
			Docs: ingress.Docs{Summary: "Post to those who follow",
				Description: "When it is answered, the post is kept; it comes into the feeds of the author and of all followers in a moment.",
				Request:     client.PostRequest{},
				Params: []ingress.Param{user,
					{Name: "Idempotency-Key", In: "header", Type: "string", Doc: "Names the post, so that sending it again is no second one."}},
				Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.Posted{}}, {Status: http.StatusOK, Body: client.Posted{}, Doc: "It was posted before, with the same key."}},
				Kinds:     []fault.Kind{fault.Malformed, fault.BodyTooLarge, fault.Conflict, fault.Busy, fault.StorageBusy, fault.StoreFull, fault.NotReady, fault.UpstreamFailed}},
		},
		{
			Methods: []string{http.MethodGet}, Pattern: feedPattern, Handler: f.serveFeed, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "The feed of a user, the best first",
				Description: "A post counts by its age, and twice as much if its author and the reader follow each other. A page may end early if posts are long; next is the offset of the next one, if there is one.",
				Params: []ingress.Param{user, query("limit", "At most so many, from 1 to 100; 20 if not said."),
					query("offset", "How many to leave out, from 0 to 500.")},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Feed{}}},
				Kinds:     []fault.Kind{fault.Malformed, fault.Timeout, fault.NotReady, fault.UpstreamFailed}},
		},
	}
}

// box is where posts wait to be delivered.
const box = "facet/feed"

// board is the name of the board that is the feed of a user.
func board(user string) string { return "feed/" + user }

// post is a message in the box.
type post struct {
	Author string    `json:"author"`
	Body   string    `json:"body"`
	At     time.Time `json:"at,omitzero"` // nothing if it came with a key: its repetition must be the same message
}

// note is what is pinned to boards.
type note struct {
	Author string `json:"author"`
	Body   string `json:"body"`
}

// encode is for our own structs of texts and times, which cannot fail.
func encode(v any) []byte {
	raw, _ := json.Marshal(v)
	return raw
}

func (f *Facets) postFeed(w http.ResponseWriter, r *http.Request) error {
	author := r.PathValue("user")
	if err := index.CheckNode(author); err != nil {
		return err
	}
	var wanted client.PostRequest
	if err := ingress.DecodeJSON(r, &wanted); err != nil {
		return err
	}
	key, err := f.checkPost(wanted.Body, r.Header["Idempotency-Key"])
	if err != nil {
		return err
	}
	told, repeated, err := f.take(r.Context(), author, wanted.Body, key)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if repeated {
		status = http.StatusOK
	}
	return ingress.WriteJSON(w, status, told)
}

// checkPost refuses what is no post, and returns its key, if it has one.
func (f *Facets) checkPost(body string, keys []string) (key string, err error) {
	const mostKey = 255
	if len(keys) > 0 {
		key = keys[0]
	}
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	most := f.spec.Config.Feed.MaxBytes
	refused := &fault.Error{Op: opFeed, Kind: fault.Malformed}
	switch {
	case body == "":
		refused.Detail, refused.Next = "the post is empty", `Send {"body":"…"} with some text.`
	case len(body) > int(most):
		refused.Kind, refused.Detail = fault.BodyTooLarge, fmt.Sprintf("a post of %d bytes", len(body))
		refused.Next = fmt.Sprintf("Write %s or less. Store what is longer with `micronode put`, and post its address.", most)
	case len(keys) > 1 || len(keys) == 1 && key == "" || len(key) > mostKey || strings.ContainsFunc(key, unprintable):
		refused.Detail, refused.Next = "the Idempotency-Key is none", "Send one random text of printable ASCII, such as a UUID."
	default:
		return key, nil
	}
	return "", refused
}

// take puts a post into the box. When it returns, it is kept.
func (f *Facets) take(ctx context.Context, author, body, key string) (told client.Posted, repeated bool, err error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	m, p := mailbox.Message{Box: box}, post{Author: author, Body: body}
	if key == "" {
		p.At = now
	} else {
		m.Key = feedKey(author, key)
	}
	m.Body = encode(p)
	sent, err := f.spec.Mailbox.Send(ctx, m)
	if err != nil {
		return told, false, fault.Wrap(opFeed, err)
	}
	told = client.Posted{ID: sent.ID, Author: author, At: now}
	if sent.Repeated {
		told.At = f.postedAt(ctx, told)
		return told, true, nil
	}
	f.feed.posts.Inc()
	f.audit(Event{Type: Posted, Facet: feedName, Key: sent.ID})
	return told, false, nil
}

// feedKey is the key of a post among all those of the mailbox. Authors do not
// get in each other's way, nor in that of others who send.
func feedKey(author, key string) string {
	return "feed:" + b3.Of([]byte(author+"/"+key)).String() // there is no slash in the name of an author
}

// postedAt is when something was posted that is posted again. If it is not in
// the feed of its author, it has not been delivered yet, and that is now.
func (f *Facets) postedAt(ctx context.Context, again client.Posted) time.Time {
	notes, _ := f.spec.Mailbox.Board(ctx, board(again.Author), "", boardNotes) // without it, the time is that of the repetition
	for _, n := range notes {
		if n.ID == again.ID {
			return n.At
		}
	}
	return again.At
}

func (f *Facets) serveFeed(w http.ResponseWriter, r *http.Request) error {
	user := r.PathValue("user")
	if err := index.CheckNode(user); err != nil {
		return err
	}
	limit, err := number(r, "limit", usualItems, 1, mostItems)
	if err != nil {
		return err
	}
	offset, err := number(r, "offset", 0, 0, boardNotes)
	if err != nil {
		return err
	}
	notes, err := f.spec.Mailbox.Board(r.Context(), board(user), "", boardNotes)
	if err != nil {
		return fault.Wrap("feed.read", err)
	}
	shown, err := f.candidates(r.Context(), user, notes)
	if err != nil {
		return fault.Wrap("feed.read", err)
	}
	ranked := rank(shown, f.spec.Config.Feed.HalfLife)
	return ingress.WriteJSON(w, http.StatusOK, page(user, ranked, limit, offset, time.Now(), f.spec.Config.Feed.HalfLife))
}

// candidates are the notes of a board that belong into the feed of a user: its
// own, and those of authors whom it still follows.
func (f *Facets) candidates(ctx context.Context, user string, notes []mailbox.Note) ([]candidate, error) {
	all := make([]candidate, 0, len(notes))
	var authors []string
	known := map[string]tie{user: follows}
	for _, n := range notes {
		var told note
		if json.Unmarshal(n.Body, &told) != nil {
			continue // of another version; the others are still good
		}
		if _, met := known[told.Author]; !met {
			known[told.Author] = none
			authors = append(authors, told.Author)
		}
		all = append(all, candidate{id: n.ID, author: told.Author, body: told.Body, at: n.At})
	}
	ties, err := f.spec.Audience.Ties(ctx, user, authors)
	if err != nil {
		return nil, err
	}
	for i, author := range authors {
		known[author] = tieOf(ties[i])
	}
	for i := range all {
		all[i].tie = known[all[i].author]
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return c.tie == none }), nil
}

// tieOf is what an author is to a reader.
func tieOf(between index.Tie) tie {
	switch {
	case !between.Follows:
		return none
	case between.Followed:
		return mutual
	default:
		return follows
	}
}
