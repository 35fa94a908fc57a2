package facet

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/graph"
	"micronode/internal/mailbox"
	"micronode/internal/supervise"
)

// How posts are delivered.
const (
	leaseTime           = 30 * time.Second // on a post; extended while its delivery is under way
	pageTimeout         = leaseTime / 3    // for one page: so the lease never ends while it is written
	receiveWait         = 20 * time.Second // for one Receive, which is then repeated
	boardsPerPage       = 512              // that a post is posted to at a time
	nackTimeout         = time.Second      // to return a post when the node stops
	stopRedeliveryDelay = 5 * time.Second  // before it is redelivered: until then, the other workers here have stopped, too

	partRetryDelay  = 250 * time.Millisecond // before a call to an owner that is away is retried
	maxPartFailures = 3                      // failures of an owner over one page: the post may be what it dies of
)

// redeliveryBackoff is how long a post that failed waits.
var redeliveryBackoff = flow.Backoff{First: time.Second, Max: 30 * time.Second}

// outcome is the result of one delivery of a post.
type outcome string

const (
	outcomeDone    outcome = "done"
	outcomeFailed  outcome = "failed"
	outcomePoison  outcome = "poison"
	outcomeStopped outcome = "stopped"
	outcomeLost    outcome = "lost"
)

// addFeed adds the workers that deliver posts: as many as there are permits.
func (f *Facets) addFeed(to *supervise.Supervisor, in Stages) error {
	if !f.feed.on {
		return nil
	}
	return to.AddPool(supervise.Pool{N: f.spec.Config.Feed.fanout(), NextJob: f.nextPost,
		Service: supervise.Service{Service: feedName, Name: "feed fan-out", Stage: in.Workers}})
}

// nextPost waits for a post and leases it. If the mailbox is away, or has too
// many waiting receivers, the worker has not failed: it retries.
func (f *Facets) nextPost(ctx context.Context) (supervise.Job, error) {
	for {
		got, err := f.spec.Mailbox.Receive(ctx, feedBox, leaseTime, receiveWait)
		switch kind := fault.KindOf(err); {
		case err == nil:
			return &fanout{facets: f, delivery: got}, nil
		case kind == fault.NotReady || kind == fault.UpstreamFailed || kind == fault.Busy:
			if err := flow.Sleep(ctx, partRetryDelay); err != nil {
				return nil, err
			}
		case kind != fault.NotFound:
			return nil, err
		}
	}
}

// fanout is the delivery of one post. Posting it to a board again has no
// effect, so it may be restarted as often as it takes.
type fanout struct {
	// set at construction
	facets   *Facets
	delivery mailbox.Delivery

	// owned by the worker that runs it
	extendedAt time.Time // when the lease was last extended; zero for when it was taken
	reported   bool      // that it is held up
}

// Idempotent says that a dead worker's post may be retried at once.
func (j *fanout) Idempotent() bool { return true }

// Run delivers the post and acknowledges it. A post whose worker was killed
// stays leased: it is retried, or its lease ends.
func (j *fanout) Run(ctx context.Context) {
	f := j.facets
	if j.extendedAt.IsZero() {
		j.extendedAt = time.Now()
	}
	ctx, span := f.spec.Tracer.Start(ctx, "feed.fanout")
	defer span.End()
	begun := time.Now()
	p, err := parsePost(j.delivery)
	if err != nil {
		j.fail(ctx, outcomePoison, err)
		return
	}
	err = j.deliver(ctx, p)
	switch {
	case err == nil:
		f.feed.fanoutSeconds.Observe(time.Since(begun).Seconds())
		j.countOutcome(outcomeDone, j.retryWhileAway(ctx, func() error { return f.spec.Mailbox.Ack(ctx, feedBox, j.delivery.Receipt) }))
	case context.Cause(ctx) == supervise.ErrKilled:
	case ctx.Err() != nil:
		j.nackOnStop(ctx)
	case err == errLeaseLost:
		j.countOutcome(outcomeLost, nil)
	default:
		j.fail(ctx, outcomeFailed, err)
	}
}

// Abandon returns a post that killed the workers that tried to deliver it.
func (j *fanout) Abandon(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), nackTimeout)
	defer cancel()
	j.fail(ctx, outcomeFailed, err)
}

// parsePost decodes a message. Anything in the box that the feed did not put
// there is no post.
func parsePost(d mailbox.Delivery) (p feedPost, err error) {
	in := json.NewDecoder(bytes.NewReader(d.Body))
	in.DisallowUnknownFields()
	if err := in.Decode(&p); err != nil {
		return p, &fault.Error{Op: "feed.fanout", Kind: fault.Malformed, Detail: "the message is not a post", Err: err}
	}
	if err := graph.CheckNode(p.Author); err != nil {
		return p, fault.Wrap("feed.fanout", err)
	}
	if p.At.IsZero() {
		p.At = d.SentAt.UTC().Truncate(time.Millisecond)
	}
	return p, nil
}

// errLeaseLost says that the lease has ended: another worker may have the post.
var errLeaseLost error = fault.New("feed.fanout", fault.NotFound, "the lease of the post has ended")

// deliver posts to the boards of the author and of all followers, under a
// permit.
func (j *fanout) deliver(ctx context.Context, p feedPost) error {
	f := j.facets
	wait, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return f.feed.withPermit(wait, func() error {
		n := mailbox.Note{ID: j.delivery.ID, Body: marshal(feedNote{Author: p.Author, Body: p.Body}), At: p.At}
		for after, more := "", true; more; {
			err := j.retryWhileAway(ctx, func() (err error) {
				if after, more, err = j.postPage(ctx, p.Author, after, n); err == nil {
					supervise.Progress(ctx)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// retryWhileAway retries something idempotent while an owner that it needs is
// away. The post stays leased meanwhile, so that it does not use up its
// deliveries because of an owner that is away, and continues where it was.
func (j *fanout) retryWhileAway(ctx context.Context, do func() error) error {
	for failures := 0; ; {
		err := do()
		switch fault.KindOf(err) {
		case fault.NotReady:
		case fault.UpstreamFailed:
			if failures++; failures > maxPartFailures {
				return err
			}
		default:
			return err
		}
		if !j.reported {
			j.reported = true
			j.facets.audit(Event{Type: HeldUp, Facet: feedName, Key: j.delivery.ID, Detail: err.Error()})
		}
		if err := flow.Sleep(ctx, partRetryDelay); err != nil {
			return err
		}
	}
}

// postPage posts the note to the boards of the next followers, with a lease
// that lasts until that is done. The author comes before the first of them. It
// returns the last follower, and whether there may be more.
func (j *fanout) postPage(ctx context.Context, author, after string, n mailbox.Note) (last string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	if err := j.extendLease(ctx); err != nil {
		return after, true, err
	}
	followers, err := j.facets.spec.Audience.Followers(ctx, author, after, boardsPerPage)
	if err != nil {
		return after, true, err
	}
	boards := make([]string, 0, boardsPerPage+1)
	if after == "" {
		boards = append(boards, feedBoard(author))
	}
	for _, one := range followers {
		boards = append(boards, feedBoard(one))
	}
	if err := j.postNote(ctx, boards, n); err != nil {
		return after, true, err
	}
	if len(followers) < boardsPerPage {
		return after, false, nil
	}
	return followers[len(followers)-1], true, nil
}

// extendLease extends the lease if it would not last for a page.
func (j *fanout) extendLease(ctx context.Context) error {
	if time.Since(j.extendedAt) <= leaseTime-2*pageTimeout {
		return nil
	}
	err := j.facets.spec.Mailbox.Extend(ctx, feedBox, j.delivery.Receipt, leaseTime)
	if fault.KindOf(err) == fault.NotFound {
		return errLeaseLost
	}
	if err == nil {
		j.extendedAt = time.Now()
	}
	return err
}

// postNote posts a note to boards.
func (j *fanout) postNote(ctx context.Context, boards []string, n mailbox.Note) error {
	f := j.facets
	if err := f.spec.Mailbox.Post(ctx, boards, n); err != nil {
		return err
	}
	f.feed.notes.Add(float64(len(boards)))
	return nil
}

// fail returns the post with the reason, to be redelivered after a growing
// pause. When it has failed too often, it becomes a dead letter. A message that
// is no post is returned without a pause.
func (j *fanout) fail(ctx context.Context, what outcome, reason error) {
	pause := time.Duration(0)
	if what != outcomePoison {
		pause = redeliveryBackoff.Limit(j.delivery.Deliveries - 1)
	}
	j.facets.audit(Event{Type: Undelivered, Facet: feedName, Key: j.delivery.ID, Detail: reason.Error()})
	j.countOutcome(what, j.facets.spec.Mailbox.Nack(ctx, feedBox, j.delivery.Receipt, pause, reason.Error()))
}

// nackOnStop returns the post because the node stops. It must not be
// redelivered to a worker that is about to stop as well: each would use up a
// delivery.
func (j *fanout) nackOnStop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nackTimeout)
	defer cancel()
	j.countOutcome(outcomeStopped, j.facets.spec.Mailbox.Nack(ctx, feedBox, j.delivery.Receipt, stopRedeliveryDelay, "the node stopped while it was delivered"))
}

// countOutcome counts the outcome of a post. If the mailbox did not learn of
// it, the lease ends by itself and the post is redelivered; that does no harm.
func (j *fanout) countOutcome(what outcome, reportErr error) {
	if reportErr != nil {
		what = outcomeLost
	}
	j.facets.feed.outcomes[what].Inc()
}
