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
	"micronode/internal/graph"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
)

const opFeed = "feed.post"

// Mailbox is what the feed needs of a mailbox. Every mailbox.Engine implements
// it, and so does the mailbox.Remote of one in another process.
type Mailbox interface {
	Send(ctx context.Context, m mailbox.Message) (mailbox.Sent, error)
	Receive(ctx context.Context, box string, visibility, wait time.Duration) (mailbox.Delivery, error)
	Ack(ctx context.Context, box, receipt string) error
	Nack(ctx context.Context, box, receipt string, delay time.Duration, reason string) error
	Extend(ctx context.Context, box, receipt string, visibility time.Duration) error
	Post(ctx context.Context, boards []string, n mailbox.Note) error
	Notes(ctx context.Context, name, after string, limit int) ([]mailbox.Note, error)
}

// Audience is what the feed needs of the graph: the followers of an author, and
// the relations of a reader to authors. An graph.Graph implements it, and so
// does the graph.Remote of one in another process. Both methods are for
// many at once.
type Audience interface {
	Followers(ctx context.Context, b, after string, limit int) ([]string, error)
	Relations(ctx context.Context, a string, others []string) ([]graph.Relation, error)
}

// feedFacet is the state of the feed facet.
type feedFacet struct {
	facetBase

	// set at construction; nil if the facet is off
	posts         prometheus.Counter
	notes         prometheus.Counter
	outcomes      map[outcome]prometheus.Counter
	fanoutSeconds prometheus.Histogram
}

// openFeed makes the metrics of the facet.
func (f *Facets) openFeed() error {
	if err := errors.Join(f.feed.requireOwner("mailbox", f.spec.Mailbox != nil), f.feed.requireOwner("graph", f.spec.Audience != nil)); err != nil || !f.feed.on {
		return err
	}
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "feed_deliveries_total",
		Help: "Posts received from the box, by result: done, failed (returned to the box), poison (not a post), stopped (the node stopped), lost (the lease expired)."}, []string{"outcome"})
	f.feed.outcomes = map[outcome]prometheus.Counter{}
	for _, one := range []outcome{outcomeDone, outcomeFailed, outcomePoison, outcomeStopped, outcomeLost} {
		f.feed.outcomes[one] = outcomes.WithLabelValues(string(one))
	}
	f.feed.posts = prometheus.NewCounter(prometheus.CounterOpts{Name: "feed_posts_total", Help: "Accepted posts."})
	f.feed.notes = prometheus.NewCounter(prometheus.CounterOpts{Name: "feed_notes_total", Help: "Deliveries of posts to feeds, repetitions included."})
	f.feed.fanoutSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "feed_fanout_seconds",
		Help: "Time to deliver a post to all feeds.", Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2, 5, 10, 30}})
	f.feed.instruments.Register(outcomes, f.feed.posts, f.feed.notes, f.feed.fanoutSeconds)
	return nil
}

const feedPattern = "/feed/{user}"

// How much of a feed is shown at a time.
const (
	boardNotes   = 500       // the most that a feed has, as a board does
	defaultItems = 20        // shown without a limit in the request
	maxItems     = 100       // shown at a time
	pageBytes    = 128 << 10 // of the posts of a page
)

// feedRoutes lists the routes of the facet as if it were on.
func (f *Facets) feedRoutes() []ingress.Route {
	user := pathParam("user", "1 to 128 bytes of UTF-8 in NFC, without slashes and control characters.")
	return []ingress.Route{
		{
			// In JSON a text takes up to six times its bytes.
			Methods: []string{http.MethodPost}, Pattern: feedPattern, Handler: f.handlePost, Class: ingress.Control, Scope: "feed:post", BodyCap: 6*int64(longestPost) + 64,
			Docs: ingress.Docs{Summary: "Publish a post to the followers of its author",
				Description: "When the response arrives, the post is stored; it appears in the feeds of the author and of all followers a moment later.",
				Request:     client.PostRequest{},
				Params: []ingress.Param{user,
					{Name: "Idempotency-Key", In: "header", Type: "string", Doc: "Identifies the post: a retry with the same key creates no second post."}},
				Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.Posted{}}, {Status: http.StatusOK, Body: client.Posted{}, Doc: "It was already posted with this key."}},
				Kinds:     []fault.Kind{fault.Malformed, fault.BodyTooLarge, fault.Conflict, fault.Busy, fault.StorageBusy, fault.StoreFull, fault.NotReady, fault.UpstreamFailed}},
		},
		{
			Methods: []string{http.MethodGet}, Pattern: feedPattern, Handler: f.handleFeed, Public: ingress.OnThisMachine, Class: ingress.Control,
			Docs: ingress.Docs{Summary: "The feed of a user, best first",
				Description: "Posts rank by age; the score doubles if author and reader follow each other. A page may end early if posts are long; next is the offset of the next one, if there is one.",
				Params: []ingress.Param{user, queryParam("limit", "The maximum number, from 1 to 100; default 20."),
					queryParam("offset", "The number to skip, from 0 to 500.")},
				Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Feed{}}},
				Kinds:     []fault.Kind{fault.Malformed, fault.Timeout, fault.NotReady, fault.UpstreamFailed}},
		},
	}
}

// feedBox is the box in which posts wait to be delivered.
const feedBox = "facet/feed"

// feedBoard is the name of the board that is the feed of a user.
func feedBoard(user string) string { return "feed/" + user }

// feedPost is a message in the box.
type feedPost struct {
	Author string    `json:"author"`
	Body   string    `json:"body"`
	At     time.Time `json:"at,omitzero"` // zero if it came with a key: its repetition must be the same message
}

// feedNote is what is posted to boards.
type feedNote struct {
	Author string `json:"author"`
	Body   string `json:"body"`
}

// marshal is for our own structs of texts and times, which cannot fail.
func marshal(v any) []byte {
	raw, _ := json.Marshal(v)
	return raw
}

func (f *Facets) handlePost(w http.ResponseWriter, r *http.Request) error {
	author := r.PathValue("user")
	if err := graph.CheckNode(author); err != nil {
		return err
	}
	var request client.PostRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	key, err := f.checkPost(request.Body, r.Header["Idempotency-Key"])
	if err != nil {
		return err
	}
	done, repeated, err := f.submitPost(r.Context(), ingress.Sender(r), author, request.Body, key)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if repeated {
		status = http.StatusOK
	}
	return ingress.WriteJSON(w, status, done)
}

// checkPost refuses an invalid post, and returns its key, if it has one.
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
		refused.Next = fmt.Sprintf("Write %s or less. Store longer content with `micronode put`, and post its address.", most)
	case len(keys) > 1 || len(keys) == 1 && key == "" || len(key) > mostKey || strings.ContainsFunc(key, unprintable):
		refused.Detail, refused.Next = "the Idempotency-Key is not valid", "Send a random string of printable ASCII, such as a UUID."
	default:
		return key, nil
	}
	return "", refused
}

// postedPost is a post that is durable.
type postedPost struct {
	ID     string    `json:"id"`
	Author string    `json:"author"`
	At     time.Time `json:"at"`
}

// submitPost puts a post into the box. When it returns, the post is durable.
func (f *Facets) submitPost(ctx context.Context, sender, author, body, key string) (done postedPost, repeated bool, err error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	m, p := mailbox.Message{Box: feedBox}, feedPost{Author: author, Body: body}
	if key == "" {
		p.At = now
	} else {
		m.Key, m.Sender = feedKey(author, key), sender
	}
	m.Body = marshal(p)
	sent, err := f.spec.Mailbox.Send(ctx, m)
	if err != nil {
		return postedPost{}, false, fault.Wrap(opFeed, err)
	}
	done = postedPost{ID: sent.ID, Author: author, At: now}
	if sent.Repeated {
		done.At = f.postedAt(ctx, done)
		return done, true, nil
	}
	f.feed.posts.Inc()
	f.audit(Event{Type: Posted, Facet: feedName, Key: sent.ID})
	return done, false, nil
}

// feedKey is the idempotency key of a post in the mailbox. Keys of different
// authors do not collide, nor with those of other senders.
func feedKey(author, key string) string {
	return "feed:" + b3.Of([]byte(author+"/"+key)).String() // the name of an author has no slash
}

// postedAt is the time of the first posting of a repeated post. If it is not in
// the feed of its author, it has not been delivered yet, and that is now.
func (f *Facets) postedAt(ctx context.Context, again postedPost) time.Time {
	notes, _ := f.spec.Mailbox.Notes(ctx, feedBoard(again.Author), "", boardNotes) // on an error, the time is that of the repetition
	for _, n := range notes {
		if n.ID == again.ID {
			return n.At
		}
	}
	return again.At
}

func (f *Facets) handleFeed(w http.ResponseWriter, r *http.Request) error {
	user := r.PathValue("user")
	if err := graph.CheckNode(user); err != nil {
		return err
	}
	limit, err := queryInt(r, "limit", defaultItems, 1, maxItems)
	if err != nil {
		return err
	}
	offset, err := queryInt(r, "offset", 0, 0, boardNotes)
	if err != nil {
		return err
	}
	notes, err := f.spec.Mailbox.Notes(r.Context(), feedBoard(user), "", boardNotes)
	if err != nil {
		return fault.Wrap("feed.read", err)
	}
	shown, err := f.candidates(r.Context(), user, notes)
	if err != nil {
		return fault.Wrap("feed.read", err)
	}
	ranked := rank(shown, f.spec.Config.Feed.HalfLife)
	return ingress.WriteJSON(w, http.StatusOK, buildPage(user, ranked, limit, offset, time.Now(), f.spec.Config.Feed.HalfLife))
}

// candidates are the notes of a board that belong into the feed of a user: its
// own, and those of authors that it still follows.
func (f *Facets) candidates(ctx context.Context, user string, notes []mailbox.Note) ([]candidate, error) {
	all := make([]candidate, 0, len(notes))
	var authors []string
	known := map[string]relation{user: relationFollows}
	for _, n := range notes {
		var decoded feedNote
		if json.Unmarshal(n.Body, &decoded) != nil {
			continue // of another version; the others are still good
		}
		if _, found := known[decoded.Author]; !found {
			known[decoded.Author] = relationNone
			authors = append(authors, decoded.Author)
		}
		all = append(all, candidate{id: n.ID, author: decoded.Author, body: decoded.Body, at: n.At})
	}
	ties, err := f.spec.Audience.Relations(ctx, user, authors)
	if err != nil {
		return nil, err
	}
	for i, author := range authors {
		known[author] = relationOf(ties[i])
	}
	for i := range all {
		all[i].relation = known[all[i].author]
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return c.relation == relationNone }), nil
}

// relationOf is the relation of a reader to an author.
func relationOf(tie graph.Relation) relation {
	switch {
	case !tie.Follows:
		return relationNone
	case tie.Followed:
		return relationMutual
	default:
		return relationFollows
	}
}
