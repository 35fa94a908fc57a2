package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// committer is the one task that advances the head. Only the committer appends
// records to the journal, adds to the pending proposals or installs a new view.
type committer struct {
	*Registry

	// owned by the task
	mustCatchUp bool // the log may end elsewhere than the view says: catch up before the next commit
}

// What one batch of the committer takes: so many versions share a sync.
const (
	maxGroupVersions = 256
	maxGroupBytes    = 8 << 20
)

// maxCASAttempts is how often a group is rebuilt because another registry on the same
// storage was faster, and maxCASBackoff the longest pause before a retry: two that
// never pause can block each other for long.
const (
	maxCASAttempts = 64
	maxCASBackoff  = 10 * time.Millisecond
)

// runCommitter is the committer's Serve. It ends when the queue is closed and
// empty, so every accepted job is completed.
func (r *Registry) runCommitter(ctx context.Context) error {
	c := &committer{Registry: r, mustCatchUp: true} // a previous committer may have failed in the middle of a write
	_ = c.ensureCaughtUp(ctx)                       // shows readers what it wrote; if this fails, the next commit retries
	batch, commits := make([]*job, maxGroupVersions), make([]*job, 0, maxGroupVersions)
	var taken []*job
	defer func() { // jobs are left only if one of them panicked
		failAll(taken, &fault.Error{Op: "registry.committer", Kind: fault.Internal, Detail: "the committer failed; the request may have taken effect",
			Next: "Check GET /registry/head and the proposal before you retry."})
	}()
	for {
		n, err := r.jobs.Take(ctx, batch, maxGroupBytes)
		if errors.Is(err, flow.ErrClosed) {
			return nil
		}
		if err != nil { // the drain has timed out
			r.cancelQueued(batch)
			return fault.Wrap("registry.committer", err)
		}
		taken = batch[:n]
		for _, j := range taken { // commits share a write; all others run at once
			switch {
			case j.ctx.Err() != nil:
				j.complete(outcome{err: flow.Ended(j.ctx, "registry.commit")})
			case j.run == nil:
				commits = append(commits, j)
			default:
				j.complete(j.run(c))
			}
		}
		c.commitGroup(ctx, commits)
		clear(taken)
		clear(commits)
		taken, commits = nil, commits[:0]
	}
}

// cancelQueued fails the jobs that are still in the queue when the drain has timed out.
func (r *Registry) cancelQueued(batch []*job) {
	r.jobs.Close()
	for {
		n, err := r.jobs.Take(context.Background(), batch, maxGroupBytes)
		if err != nil {
			return // the queue is closed and empty
		}
		failAll(batch[:n], fault.New("registry.committer", fault.Canceled, "this node is draining and did not start the request"))
	}
}

// group is a sequence of records that are written together, each built on the state
// after the one before.
type group struct {
	jobs    []*job
	ids     []string // of the proposals
	records []ledger.Record
	states  []*ledger.State

	refused []refusedJob // because of records of this group: valid only if those are written
}

// refusedJob is a job that is refused, and why.
type refusedJob struct {
	job *job
	err error
}

// allJobs returns all jobs that wait for the group.
func (g *group) allJobs() []*job {
	all := slices.Clone(g.jobs)
	for _, r := range g.refused {
		all = append(all, r.job)
	}
	return all
}

func (g *group) add(id string, record ledger.Record, state *ledger.State) {
	g.ids, g.records, g.states = append(g.ids, id), append(g.records, record), append(g.states, state)
}

// commitGroup writes proposals to the log, as many as possible in one write.
func (c *committer) commitGroup(ctx context.Context, jobs []*job) {
	for try := range maxCASAttempts {
		if len(jobs) == 0 {
			return
		}
		if try > 1 && flow.Sleep(ctx, rand.N(maxCASBackoff)) != nil {
			break
		}
		if err := c.ensureCaughtUp(ctx); err != nil {
			failAll(jobs, err)
			return
		}
		g := c.buildGroup(jobs)
		if len(g.records) == 0 {
			return
		}
		err := c.append(ctx, g)
		switch {
		case err == nil:
			c.install(ctx, g)
			c.metrics.groups.Observe(float64(len(g.records)))
			for i, j := range g.jobs {
				j.complete(outcome{state: g.states[i]})
			}
			for _, r := range g.refused {
				r.job.complete(outcome{err: r.err})
			}
			return
		case errors.Is(err, fault.ChainMismatch):
			c.metrics.casFailed.Inc()
			c.mustCatchUp, jobs = true, g.allJobs()
		default:
			c.resolveUnknownOutcome(ctx, g, err)
			return
		}
	}
	failAll(jobs, &fault.Error{Op: "registry.commit", Kind: fault.ChainMismatch, Detail: "another registry on the same storage committed first, repeatedly",
		Next: "Try again."})
}

// buildGroup chains the proposals. One that cannot be committed is refused at once;
// one that is refused after a record of the same group has to wait until that is
// written, because the write may fail.
func (c *committer) buildGroup(jobs []*job) group {
	var g group
	state, now := c.view.Load().state, c.now()
	for _, j := range jobs {
		var record ledger.Record
		var next *ledger.State
		e, err := c.pending.findOpen("registry.commit", j.proposal, now)
		if err == nil {
			record, next, err = state.Commit(e.proposal, e.approvals, now)
		}
		switch {
		case err == nil:
			g.jobs, state = append(g.jobs, j), next
			g.add(j.proposal, record, next)
		case len(g.records) > 0:
			g.refused = append(g.refused, refusedJob{j, err})
		default:
			j.complete(outcome{err: err})
		}
	}
	return g
}

// append writes a group and reports the call to storageHealth.
func (c *committer) append(ctx context.Context, g group) error {
	ctx, cancel := context.WithTimeout(ctx, c.settings.Load().Storage.Timeout)
	defer cancel()
	ctx, span := c.spec.Tracer.Start(ctx, "registry.append", trace.WithAttributes(attribute.Int("versions", len(g.records))))
	defer span.End()
	began := c.health.callStarted()
	err := c.journal.Append(ctx, c.view.Load().expectedHead(), g.records)
	c.health.writeEnded(err)
	c.metrics.appendSeconds.Observe(time.Since(began).Seconds())
	if err != nil {
		c.metrics.countFailure("commit", err)
		span.SetStatus(codes.Error, fault.KindOf(err).String())
	}
	return err
}

// resolveUnknownOutcome reads what became of a group whose write failed. What is in the
// log has happened, what is not there has not. If the log cannot be read, the outcome
// is unknown, and the error says so.
func (c *committer) resolveUnknownOutcome(ctx context.Context, g group, cause error) {
	c.mustCatchUp = true
	if err := c.ensureCaughtUp(ctx); err != nil {
		failAll(g.allJobs(), &fault.Error{Op: "registry.commit", Kind: fault.KindOf(cause), Err: errors.Join(cause, err),
			Detail: "the storage failed; it is unknown whether the commit is in the log",
			Next:   "Check GET /registry/head when the storage is back, before you retry."})
		return
	}
	c.metrics.recoveries.Inc()
	for i, j := range g.jobs {
		if version, ok := c.pending.versionOf(g.ids[i]); ok && version == g.records[i].Version { // just applied from the log
			j.complete(outcome{state: g.states[i]})
			continue
		}
		j.complete(outcome{err: fault.Wrap("registry.commit", cause)})
	}
	state, now := c.view.Load().state, c.now()
	for _, r := range g.refused {
		e, err := c.pending.findOpen("registry.commit", r.job.proposal, now)
		if err == nil {
			_, _, err = state.Commit(e.proposal, e.approvals, now)
		}
		if err == nil { // nothing conflicts with it any more, but the storage has failed
			err = fault.Wrap("registry.commit", cause)
		}
		r.job.complete(outcome{err: err})
	}
}

// ensureCaughtUp makes sure that the view is at the end of the log.
func (c *committer) ensureCaughtUp(ctx context.Context) error {
	if err := c.health.damageFound(); err != nil {
		return err // nothing is appended to a damaged log
	}
	if !c.mustCatchUp {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.settings.Load().Storage.Timeout)
	defer cancel()
	c.health.callStarted()
	err := c.catchUp(ctx)
	c.health.callEnded()
	if err != nil {
		c.metrics.countFailure("read", err)
		return fault.Wrap("registry.catch up", err)
	}
	c.mustCatchUp = false
	return nil
}

// catchUp applies what the log has and the view has not: the commits of another
// registry on the same storage, or our own whose answers were lost. Every record
// is verified in full, like one of an untrusted writer.
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
	return c.applyNewRecords(ctx, v)
}

// applyNewRecords reads and verifies the records after the view, and installs them in
// groups, so that after a long absence they need not all be in memory.
func (c *committer) applyNewRecords(ctx context.Context, v *view) error {
	var g group
	flush := func() {
		c.install(ctx, g)
		g = group{}
	}
	state := v.state
	err := c.journal.Scan(ctx, v.nextVersion(), func(record ledger.Record) error {
		next, err := state.Apply(record)
		if err != nil {
			return err
		}
		header, err := record.DecodeHeader()
		if err != nil {
			return err
		}
		state = next
		g.add(header.ProposalID, record.Clone(), next)
		if len(g.records) == maxGroupVersions {
			flush()
		}
		return nil
	})
	flush()
	return err
}

// install makes new versions visible to readers, and publishes them.
func (c *committer) install(ctx context.Context, g group) {
	if len(g.records) == 0 {
		return
	}
	for _, record := range g.records {
		c.tree.Append(leafOf(record))
	}
	next := newView(c.view.Load(), g.records, g.states, c.tree.View(), b3.Of(g.records[len(g.records)-1].Payload))
	c.view.Store(next)
	for i, state := range g.states {
		if diff, ours := c.pending.markCommitted(g.ids[i], state.Head().Version); ours {
			c.metrics.committed.Inc() // here and not in the handler: the client may have gone meanwhile
			c.audit(Event{Type: EventCommitted, Proposal: g.ids[i], Version: state.Head().Version, Diff: diff})
		}
		_ = c.committed.Publish(Committed{Version: state.Head().Version, Hash: state.Head().Hash, At: state.CommittedAt()}) // a closed bus has no readers left
	}
	c.metrics.version.Set(float64(next.state.Head().Version))
	c.metrics.items.Set(float64(next.state.Len()))
	if full := c.tree.Unsaved(); len(full) > 0 {
		c.saveTiles(ctx, full)
	}
}

// saveTiles saves the tiles that are full. They can be rebuilt from the records, so
// a failure is counted and the next install retries.
func (c *committer) saveTiles(ctx context.Context, full []tree.Tile) {
	c.health.callStarted()
	defer c.health.callEnded()
	for i, tile := range full {
		if err := c.journal.SaveTile(ctx, journal.TileID(tile.ID), tile.Data); err != nil {
			c.metrics.countFailure("write", err)
			c.tree.MarkSaved(i)
			return
		}
	}
	c.tree.MarkSaved(len(full))
}

// failAll completes all jobs with the same error.
func failAll(jobs []*job, err error) {
	for _, j := range jobs {
		j.complete(outcome{err: err})
	}
}

// commitGenesis commits the genesis: the first record of an empty log.
func (c *committer) commitGenesis(ctx context.Context, record ledger.Record, state *ledger.State) outcome {
	if err := c.ensureCaughtUp(ctx); err != nil {
		return outcome{err: err}
	}
	if c.view.Load().state != nil {
		return outcome{err: &fault.Error{Op: "registry.init", Kind: fault.Conflict, Detail: "this node already has a registry",
			Next: "See it with `micronode registry show`. A new registry needs a new folder, or another prefix on etcd."}}
	}
	var g group
	g.add("", record, state)
	if err := c.append(ctx, g); err != nil {
		c.mustCatchUp = true
		_ = c.ensureCaughtUp(ctx) // what is in the log has happened; if it cannot be read either, the write counts as failed
		if head := c.view.Load().expectedHead(); head == nil || *head != record.Head() {
			return outcome{err: fault.Wrap("registry.init", err)}
		}
	} else {
		c.install(ctx, g)
	}
	return outcome{state: state}
}

// addProposal adds a proposal to the pending ones. When it is acknowledged, it is
// where the log is.
func (c *committer) addProposal(p *ledger.Proposal, from netip.Addr) outcome {
	if err := c.pending.add(p, from, c.settings.Load().MaxProposals, c.now()); err != nil {
		return outcome{err: err}
	}
	if c.pendingStore() != nil {
		if err := c.keep(journal.PendingKey{Proposal: p.ID}, p.Keep()); err != nil {
			c.pending.cancel(p.ID)
			return outcome{err: fault.Wrap("registry.propose", err)}
		}
	}
	c.metrics.proposed.Inc()
	return outcome{}
}

// addApproval adds an approval whose signature the handler has verified. Whether it
// counts is decided here, because only this task changes the state.
func (c *committer) addApproval(id string, a ledger.Approval) outcome {
	const op = "registry.approve"
	e, err := c.pending.findOpen(op, id, c.now())
	if err != nil {
		return outcome{err: err}
	}
	if slices.ContainsFunc(e.approvals, func(other ledger.Approval) bool { return other.SignerID == a.SignerID }) {
		return outcome{err: fault.New(op, fault.DuplicateApproval, "%s has approved it already", a.SignerID)}
	}
	if e.proposal.SignersVersion != c.view.Load().state.SignersVersion() {
		return outcome{err: staleProposal(op)}
	}
	value, err := encodeApproval(a)
	if err == nil {
		err = c.keep(journal.PendingKey{Proposal: id, Signer: a.SignerID}, value)
	}
	if err != nil {
		return outcome{err: fault.Wrap(op, err)}
	}
	c.metrics.approved.Inc()
	return outcome{approvals: c.pending.addApproval(e, a)}
}
