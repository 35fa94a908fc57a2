package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
)

// committer is the one task that advances the head. Nobody else appends to the
// journal, changes the docket or shows a new view.
type committer struct {
	*Registry

	// owned by the task
	doubt bool // the log may end elsewhere than the view says: look before the next commit
}

// What one turn of the committer takes: as many versions share a sync.
const (
	groupMost  = 256
	groupBytes = 8 << 20
)

// casTries is how often a group is built anew because another registry on the
// same storage was faster, and casPause the longest pause before another try:
// two that never pause can keep each other out for long.
const (
	casTries = 64
	casPause = 10 * time.Millisecond
)

// commitLoop is the committer's Serve. It ends when the queue is closed and
// empty, so everything that was taken is answered.
func (r *Registry) commitLoop(ctx context.Context) error {
	c := &committer{Registry: r, doubt: true} // a predecessor may have died in the middle
	_ = c.settle(ctx)                         // readers shall see what it left; if it fails, the next commit tries again
	batch := make([]*job, groupMost)
	for {
		n, err := r.jobs.Take(ctx, batch, groupBytes)
		if errors.Is(err, flow.ErrClosed) {
			return nil
		}
		if err != nil { // the drain has no more time
			r.leave(batch)
			return fault.Wrap("registry.committer", err)
		}
		c.turn(ctx, batch[:n])
		clear(batch[:n])
	}
}

// leave answers those who are still in the queue when a drain has no more time
// for them.
func (r *Registry) leave(batch []*job) {
	r.jobs.Close()
	for {
		n, err := r.jobs.Take(context.Background(), batch, groupBytes)
		if err != nil {
			return // it is closed, so that is its end
		}
		refuse(batch[:n], fault.New("registry.committer", fault.Canceled, "this node is draining, and has not begun what was asked for"))
	}
}

// turn does what was taken from the queue: the small things at once, the
// commits together.
func (c *committer) turn(ctx context.Context, jobs []*job) {
	defer abandon(jobs)
	commits := jobs[:0:0]
	for _, j := range jobs {
		switch {
		case j.ctx.Err() != nil:
			j.answer(outcome{err: flow.Ended(j.ctx, "registry.commit")})
		case j.do == nil:
			commits = append(commits, j)
		default:
			j.answer(j.do(c, j))
		}
	}
	c.commit(ctx, commits)
}

// abandon answers whoever is still waiting after a turn: there is nobody, unless
// the turn panicked.
func abandon(jobs []*job) {
	lost := outcome{err: &fault.Error{Op: "registry.committer", Kind: fault.Internal, Detail: "the committer failed; what was asked for may have happened",
		Next: "Look at GET /registry/head and at the proposal before you try again."}}
	for _, j := range jobs {
		j.answer(lost)
	}
}

// group is a row of records that are written together, each built on the state
// after the one before.
type group struct {
	jobs    []*job
	ids     []string // of the proposals
	records []ledger.Record
	states  []*ledger.State

	refused []refusal // because of records of this group: true only if those are kept
}

// refusal is a job that cannot be done, and why.
type refusal struct {
	job *job
	err error
}

// everybody is all who wait for the group.
func (g *group) everybody() []*job {
	all := slices.Clone(g.jobs)
	for _, r := range g.refused {
		all = append(all, r.job)
	}
	return all
}

func (g *group) add(id string, record ledger.Record, state *ledger.State) {
	g.ids, g.records, g.states = append(g.ids, id), append(g.records, record), append(g.states, state)
}

// commit writes proposals to the log, all that can be in one go.
func (c *committer) commit(ctx context.Context, jobs []*job) {
	for try := range casTries {
		if len(jobs) == 0 {
			return
		}
		if try > 1 && flow.Sleep(ctx, rand.N(casPause)) != nil {
			break
		}
		if err := c.settle(ctx); err != nil {
			refuse(jobs, err)
			return
		}
		g := c.build(jobs)
		if len(g.records) == 0 {
			return
		}
		err := c.append(ctx, g)
		switch {
		case err == nil:
			c.show(ctx, g)
			c.metrics.groups.Observe(float64(len(g.records)))
			g.acknowledge()
			return
		case errors.Is(err, fault.ChainMismatch):
			c.metrics.casFailed.Inc()
			c.doubt, jobs = true, g.everybody()
		default:
			c.findOut(ctx, g, err)
			return
		}
	}
	refuse(jobs, &fault.Error{Op: "registry.commit", Kind: fault.ChainMismatch, Detail: "another registry on the same storage was faster, again and again",
		Next: "Try again."})
}

// build puts the proposals behind each other. Those that cannot be committed
// are answered; those that cannot because of another one of the group have to
// wait until that one is kept, for it may come to nothing.
func (c *committer) build(jobs []*job) group {
	var g group
	state, now := c.view.Load().state, c.now()
	for _, j := range jobs {
		record, next, err := c.place(state, j, now)
		if err != nil && len(g.records) > 0 {
			g.refused = append(g.refused, refusal{j, err})
			continue
		}
		if err != nil {
			j.answer(outcome{err: err})
			continue
		}
		g.jobs = append(g.jobs, j)
		g.add(j.proposal, record, next)
		state = next
	}
	return g
}

// place makes the record of one proposal.
func (c *committer) place(state *ledger.State, j *job, now time.Time) (ledger.Record, *ledger.State, error) {
	if state == nil {
		return ledger.Record{}, nil, notInitialised("registry.commit")
	}
	e, err := c.docket.find("registry.commit", j.proposal, now)
	if err != nil {
		return ledger.Record{}, nil, err
	}
	return state.Commit(e.proposal, e.approvals, now)
}

// append writes a group and tells the gate how long it takes.
func (c *committer) append(ctx context.Context, g group) error {
	ctx, cancel := context.WithTimeout(ctx, c.settings.Load().Storage.Timeout)
	defer cancel()
	ctx, span := c.spec.Tracer.Start(ctx, "registry.append", trace.WithAttributes(attribute.Int("versions", len(g.records))))
	defer span.End()
	began := c.gate.begin()
	err := c.journal.Append(ctx, c.view.Load().expect(), g.records)
	c.gate.end(err)
	c.metrics.appendSeconds.Observe(time.Since(began).Seconds())
	if err != nil && !errors.Is(err, fault.ChainMismatch) {
		c.metrics.failed("commit", err)
	}
	marked(span, err)
	return err
}

// acknowledge answers everybody when the records are kept for good.
func (g *group) acknowledge() {
	for i := range g.jobs {
		g.done(i)
	}
	for _, r := range g.refused {
		r.job.answer(outcome{err: r.err})
	}
}

// done answers one whose record is kept for good.
func (g *group) done(i int) {
	g.jobs[i].answer(outcome{commit: commitment{head: g.records[i].Head(), record: g.records[i], state: g.states[i]}})
}

// findOut reads what became of a group whose write failed. What is in the log
// has happened; what is not has not; and if the log cannot be read nobody
// knows, which is what the callers are told.
func (c *committer) findOut(ctx context.Context, g group, cause error) {
	c.doubt = true
	if err := c.settle(ctx); err != nil {
		refuse(g.everybody(), &fault.Error{Op: "registry.commit", Kind: fault.KindOf(cause), Err: errors.Join(cause, err),
			Detail: "the storage failed, and whether the commit is in the log is not known",
			Next:   "Look at GET /registry/head when the storage is back, before you try again."})
		return
	}
	c.metrics.recoveries.Inc()
	for i, j := range g.jobs {
		if version, ok := c.docket.versionOf(g.ids[i]); ok && version == g.records[i].Version { // taken over from the log a moment ago
			g.done(i)
			continue
		}
		j.answer(outcome{err: fault.Wrap("registry.commit", cause)})
	}
	for _, r := range g.refused {
		_, _, err := c.place(c.view.Load().state, r.job, c.now())
		if err == nil { // what stood in its way is gone, but so is the storage
			err = fault.Wrap("registry.commit", cause)
		}
		r.job.answer(outcome{err: err})
	}
}

// settle makes sure that the view shows the end of the log.
func (c *committer) settle(ctx context.Context) error {
	if err := c.gate.harmed(); err != nil {
		return err // nothing is put behind what is damaged
	}
	if !c.doubt {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.settings.Load().Storage.Timeout)
	defer cancel()
	if err := c.catchUp(ctx); err != nil {
		c.metrics.failed("read", err)
		return fault.Wrap("registry.catch up", err)
	}
	c.doubt = false
	return nil
}

// catchUp takes over what the log has and the view does not: the commits of
// another registry on the same storage, or our own whose answers were lost.
// Every record is verified like a stranger's.
func (c *committer) catchUp(ctx context.Context) error {
	v := c.view.Load()
	head, err := c.journal.Head(ctx)
	switch {
	case errors.Is(err, fault.NotFound) && v.state == nil:
		return nil
	case err != nil:
		return err
	case v.state != nil && head == v.state.Head():
		return nil
	case v.state != nil && head.Version <= v.state.Head().Version:
		return fault.New("registry.catch up", fault.IntegrityFail, "the log ends at version %d, but version %d was acknowledged", head.Version, v.state.Head().Version)
	}
	return c.takeOver(ctx, v)
}

// takeOver reads and verifies the records behind the view, and shows them in
// groups, so that a long absence does not need all of them in memory.
func (c *committer) takeOver(ctx context.Context, v *view) error {
	var g group
	flush := func() {
		c.show(ctx, g)
		g = group{}
	}
	state := v.state
	err := c.journal.Scan(ctx, v.next(), func(record ledger.Record) error {
		next, err := state.Apply(record)
		if err != nil {
			return err
		}
		header, err := record.Decode()
		if err != nil {
			return err
		}
		state = next
		g.add(header.ProposalID, own(record), next)
		if len(g.records) == groupMost {
			flush()
		}
		return nil
	})
	flush()
	return err
}

// own copies a record that is ours only for a moment.
func own(r ledger.Record) ledger.Record {
	return ledger.Record{Version: r.Version, Header: slices.Clone(r.Header), Payload: slices.Clone(r.Payload), Preconditions: slices.Clone(r.Preconditions)}
}

// show makes new versions the ones that everybody sees, and tells of them.
func (c *committer) show(ctx context.Context, g group) {
	if len(g.records) == 0 {
		return
	}
	for _, record := range g.records {
		c.tree.Append(leafOf(record))
	}
	next := newView(c.view.Load(), g.records, g.states, c.tree.View())
	c.view.Store(next)
	for i, state := range g.states {
		if e, ours := c.docket.committed(g.ids[i], state.Head().Version); ours {
			c.metrics.committed.Inc() // here and not in the handler: whoever asked for it may have gone meanwhile
			c.audit(Event{Type: CommittedNow, Proposal: g.ids[i], Version: state.Head().Version, Diff: e.diff()})
		}
		_ = c.committed.Publish(Committed{Head: state.Head(), At: state.CommittedAt()}) // a closed bus has no readers left
	}
	c.metrics.version.Set(float64(next.state.Head().Version))
	c.metrics.items.Set(float64(next.state.Len()))
	c.saveTiles(ctx)
}

// saveTiles keeps the tiles that have filled. They can be made again from the
// records, so a failure is counted and the next turn tries again.
func (c *committer) saveTiles(ctx context.Context) {
	unsaved := c.tree.Unsaved()
	for i, tile := range unsaved {
		if err := c.journal.SaveTile(ctx, tileID(tile.ID), tile.Data); err != nil {
			c.metrics.failed("write", err)
			c.tree.Saved(i)
			return
		}
	}
	c.tree.Saved(len(unsaved))
}

// refuse answers all of them with the same refusal.
func refuse(jobs []*job, err error) {
	for _, j := range jobs {
		j.answer(outcome{err: err})
	}
}

// begin is the genesis: the first record of an empty log.
func (c *committer) begin(ctx context.Context, record ledger.Record, state *ledger.State) outcome {
	if err := c.settle(ctx); err != nil {
		return outcome{err: err}
	}
	if c.view.Load().state != nil {
		return outcome{err: &fault.Error{Op: "registry.init", Kind: fault.Conflict, Detail: "there is a registry here already",
			Next: "Look at it with `micronode registry show`. A new one needs a new folder, or another prefix on etcd."}}
	}
	var g group
	g.add("", record, state)
	if err := c.append(ctx, g); err != nil {
		c.doubt = true
		_ = c.settle(ctx) // what is in the log has happened; if that cannot be read either, it has not for all we know
		if head := c.view.Load().expect(); head == nil || *head != record.Head() {
			return outcome{err: fault.Wrap("registry.init", err)}
		}
	} else {
		c.show(ctx, g)
	}
	return outcome{commit: commitment{head: record.Head(), record: record, state: state}}
}

// propose puts a proposal on the docket.
func (c *committer) propose(p *ledger.Proposal) outcome {
	if err := c.docket.add(p, c.settings.Load().MaxProposals, c.now()); err != nil {
		return outcome{err: err}
	}
	c.metrics.proposed.Inc()
	return outcome{}
}

// approve adds an approval whose signature the handler has verified. Whether it
// counts is decided here, where nothing can change meanwhile.
func (c *committer) approve(id string, a ledger.Approval) outcome {
	const op = "registry.approve"
	e, err := c.docket.find(op, id, c.now())
	if err != nil {
		return outcome{err: err}
	}
	if slices.ContainsFunc(e.approvals, func(other ledger.Approval) bool { return other.SignerID == a.SignerID }) {
		return outcome{err: fault.New(op, fault.DuplicateApproval, "%s has approved it already", a.SignerID)}
	}
	if e.proposal.SignersVersion != c.view.Load().state.SignersVersion() {
		return outcome{err: stale(op)}
	}
	c.metrics.approved.Inc()
	return outcome{entry: c.docket.approve(e, a)}
}
