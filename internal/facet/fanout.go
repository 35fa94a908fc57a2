package facet

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index"
	"micronode/internal/mailbox"
	"micronode/internal/supervise"
)

// How posts are delivered.
const (
	lease      = 30 * time.Second // on a post; held anew while its delivery goes on
	patience   = lease / 3        // for one page: so the lease never ends while it is written
	askFor     = 20 * time.Second // a post is waited for, and then again
	pageBoards = 512              // that a post is put on at a time
	handBack   = time.Second      // to give a post back when the node stops
	stopPause  = 5 * time.Second  // before it is given out again: until then, the others here have stopped, too
	firstPause = time.Second      // before a post is tried again, doubled each time
	mostPause  = 30 * time.Second

	awayPause  = 250 * time.Millisecond // before a part that is away is asked again
	mostBroken = 3                      // times that a part may break off over one page: the post may be what it dies of
)

// outcome is what came of a post that was taken out of the box.
type outcome string

const (
	done    outcome = "done"
	failed  outcome = "failed"
	poison  outcome = "poison"
	stopped outcome = "stopped"
	lost    outcome = "lost"
)

// addFeed adds those who deliver posts: as many as there are permits.
func (f *Facets) addFeed(to *supervise.Supervisor, in Stages) error {
	if !f.feed.on {
		return nil
	}
	return to.AddPool(supervise.Pool{N: f.spec.Config.Feed.fanout(), Next: f.nextPost,
		Service: supervise.Service{Service: feedName, Name: "feed fan-out", Stage: in.Workers}})
}

// nextPost waits for a post and leases it. That the mailbox is away, or has more
// receivers than it can keep waiting, is no failure of whoever asks: it is
// waited for.
func (f *Facets) nextPost(ctx context.Context) (supervise.Job, error) {
	for {
		got, err := f.spec.Mailbox.Receive(ctx, box, lease, askFor)
		switch kind := fault.KindOf(err); {
		case err == nil:
			return &fanout{facets: f, delivery: got}, nil
		case kind == fault.NotReady || kind == fault.UpstreamFailed || kind == fault.Busy:
			if err := flow.Sleep(ctx, awayPause); err != nil {
				return nil, err
			}
		case kind != fault.NotFound:
			return nil, err
		}
	}
}

// fanout is the delivery of one post. To put a post on a board again does
// nothing, so it may be begun anew as often as it takes.
type fanout struct {
	// set at construction
	facets   *Facets
	delivery mailbox.Delivery

	// owned by whoever runs it
	held time.Time // when the lease was last made to last; zero for when it was taken
	told bool      // that it is held up
}

// Idempotent says that a dead worker's post may be tried again at once.
func (j *fanout) Idempotent() bool { return true }

// Run delivers the post and says so to the mailbox. A post whose worker was
// killed stays leased: it is tried again, or its lease ends.
func (j *fanout) Run(ctx context.Context) {
	f := j.facets
	if j.held.IsZero() {
		j.held = time.Now()
	}
	ctx, span := f.spec.Tracer.Start(ctx, "feed.fanout")
	defer span.End()
	begun := time.Now()
	p, err := parsePost(j.delivery)
	if err != nil {
		j.fail(ctx, poison, err)
		return
	}
	err = j.deliver(ctx, p)
	switch {
	case err == nil:
		f.feed.took.Observe(time.Since(begun).Seconds())
		j.settle(done, j.patiently(ctx, func() error { return f.spec.Mailbox.Ack(ctx, box, j.delivery.Receipt) }))
	case context.Cause(ctx) == supervise.ErrKilled:
	case ctx.Err() != nil:
		j.handBack(ctx)
	case err == errLost:
		j.settle(lost, nil)
	default:
		j.fail(ctx, failed, err)
	}
}

// Abandon gives a post back that killed those who tried to deliver it.
func (j *fanout) Abandon(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), handBack)
	defer cancel()
	j.fail(ctx, failed, err)
}

// parsePost reads a message. What anybody else put into the box is no post.
func parsePost(d mailbox.Delivery) (p post, err error) {
	in := json.NewDecoder(bytes.NewReader(d.Body))
	in.DisallowUnknownFields()
	if err := in.Decode(&p); err != nil {
		return p, &fault.Error{Op: "feed.fanout", Kind: fault.Malformed, Detail: "the message is no post", Err: err}
	}
	if err := index.CheckNode(p.Author); err != nil {
		return p, fault.Wrap("feed.fanout", err)
	}
	if p.At.IsZero() {
		p.At = d.SentAt.UTC().Truncate(time.Millisecond)
	}
	return p, nil
}

// errLost is that the lease has ended: somebody else has the post.
var errLost error = fault.New("feed.fanout", fault.NotFound, "the lease of the post has ended")

// deliver puts the post on the boards of its author and of all followers, under
// a permit.
func (j *fanout) deliver(ctx context.Context, p post) error {
	f := j.facets
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return f.feed.under(wait, func() error {
		n := mailbox.Note{ID: j.delivery.ID, Body: encode(note{Author: p.Author, Body: p.Body}), At: p.At}
		for after, more := "", true; more; {
			err := j.patiently(ctx, func() (err error) {
				after, more, err = j.page(ctx, p.Author, after, n)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// patiently does something that may be done again, until no part is away that
// it needs. The post stays leased meanwhile, so that it does not use up its
// deliveries because of an owner who is not there, and goes on where it was.
func (j *fanout) patiently(ctx context.Context, do func() error) error {
	for broken := 0; ; {
		err := do()
		switch fault.KindOf(err) {
		case fault.NotReady:
		case fault.UpstreamFailed:
			if broken++; broken > mostBroken {
				return err
			}
		default:
			return err
		}
		if !j.told {
			j.told = true
			j.facets.audit(Event{Type: HeldUp, Facet: feedName, Key: j.delivery.ID, Detail: err.Error()})
		}
		if err := flow.Sleep(ctx, awayPause); err != nil {
			return err
		}
	}
}

// page puts the note on the boards of the next followers, with a lease that
// lasts until that is done. The author comes before the first of them. It tells
// who was the last, and whether there may be more.
func (j *fanout) page(ctx context.Context, author, after string, n mailbox.Note) (last string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := j.hold(ctx); err != nil {
		return after, true, err
	}
	followers, err := j.facets.spec.Audience.Followers(ctx, author, after, pageBoards)
	if err != nil {
		return after, true, err
	}
	boards := make([]string, 0, pageBoards+1)
	if after == "" {
		boards = append(boards, board(author))
	}
	for _, one := range followers {
		boards = append(boards, board(one))
	}
	if err := j.pin(ctx, boards, n); err != nil {
		return after, true, err
	}
	if len(followers) < pageBoards {
		return after, false, nil
	}
	return followers[len(followers)-1], true, nil
}

// hold makes the lease last for a page.
func (j *fanout) hold(ctx context.Context) error {
	if time.Since(j.held) <= lease-2*patience {
		return nil
	}
	err := j.facets.spec.Mailbox.Extend(ctx, box, j.delivery.Receipt, lease)
	if fault.KindOf(err) == fault.NotFound {
		return errLost
	}
	if err == nil {
		j.held = time.Now()
	}
	return err
}

// pin puts a note on boards.
func (j *fanout) pin(ctx context.Context, boards []string, n mailbox.Note) error {
	f := j.facets
	if err := f.spec.Mailbox.Post(ctx, boards, n); err != nil {
		return err
	}
	f.feed.notes.Add(float64(len(boards)))
	return nil
}

// fail gives the post back with the reason, to be tried again after a pause
// that becomes longer. When it has failed too often, it is a dead letter. What
// is no post will not become one: it is not waited for.
func (j *fanout) fail(ctx context.Context, what outcome, reason error) {
	pause := time.Duration(0)
	if what != poison {
		pause = min(mostPause, firstPause<<min(max(0, j.delivery.Deliveries-1), 5))
	}
	j.facets.audit(Event{Type: Undelivered, Facet: feedName, Key: j.delivery.ID, Detail: reason.Error()})
	j.settle(what, j.facets.spec.Mailbox.Nack(ctx, box, j.delivery.Receipt, pause, reason.Error()))
}

// handBack gives the post back because the node stops. It must not come to one
// of those who are about to stop as well: each would use up a delivery.
func (j *fanout) handBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBack)
	defer cancel()
	j.settle(stopped, j.facets.spec.Mailbox.Nack(ctx, box, j.delivery.Receipt, stopPause, "the node stopped while it was delivered"))
}

// settle counts what came of a post. If the mailbox was not told, the lease
// ends by itself and the post comes again; that does no harm.
func (j *fanout) settle(what outcome, told error) {
	if told != nil {
		what = lost
	}
	j.facets.feed.outcomes[what].Inc()
}
