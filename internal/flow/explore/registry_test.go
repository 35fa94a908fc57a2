package explore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/flow/explore"
)

// The registry as its threads see it: handlers submit requests, the one
// committer takes them in batches, appends to the log, publishes on the bus,
// and answers. What a change says and who signed it is left out; that a
// proposal needs an approval, and is committed once, is not.

// The bands of the one queue to the committer.
const (
	proposals = iota + 1
	approvals
	commits
)

// request is a request that a handler makes of the committer.
type request struct {
	band     int
	proposal int
	response *flow.Queue[error] // has capacity one: the committer never waits to answer

	// what is watched
	accepted bool
	answers  int
	verdict  error
}

// registry has a switch for each mistake.
type registry struct {
	// set at construction
	w         *explore.World
	bug       string
	requests  *flow.Fair[*request]
	committed *flow.Bus[int]      // versions
	head      *flow.Snapshot[int] // the last version
	heard     *flow.Snapshot[int] // the last version that the reader knows

	// owned by the committer
	open map[int]int // approvals by proposal
	log  []int       // the proposal of each version, from 1 on

	// what is watched
	closed bool // a Close has returned
	gone   bool // the committer has ended
	all    []*request
}

// newRegistry begins with proposals 1 and 2 open and approved. The queues are as short as
// they can be for what they have to show, the bus keeps one event.
func newRegistry(w *explore.World, bug string) *registry {
	inv := w.Inventory()
	snapshot := func(name string) flow.SnapshotSpec {
		return flow.SnapshotSpec{Service: "registry", Name: name, From: "committer", To: "readers"}
	}
	return &registry{
		w: w, bug: bug,
		requests: flow.NewFair[*request](inv, flow.FairSpec{
			Service: "registry", Quantum: 1, From: "handlers", To: "committer",
			Bands: []flow.BandSpec{
				{Name: "proposals", Cap: 1, Bytes: 1}, {Name: "approvals", Cap: 1, Bytes: 1}, {Name: "commits", Cap: 2, Bytes: 2},
			},
		}),
		committed: flow.NewBus[int](inv, flow.BusSpec{Service: "registry", Name: "committed", Cap: 1, Readers: 1, From: "committer", To: "publisher"}),
		head:      flow.NewSnapshot(inv, snapshot("head"), 0),
		heard:     flow.NewSnapshot(inv, snapshot("heard"), 0),
		open:      map[int]int{1: 1, 2: 1},
	}
}

// offer enqueues a request and never waits for room.
func (r *registry) offer(band, proposal int) (*request, error) {
	a := &request{band: band, proposal: proposal, response: flow.NewQueue[error](r.w.Inventory(), flow.QueueSpec{
		Service: "registry", Name: "answer", Cap: 1, From: "committer", To: "handler", Each: "request",
	})}
	r.all = append(r.all, a)
	after := r.closed
	err := r.requests.TryPush(band, flow.FairItem[*request]{Item: a})
	r.w.Check(err == nil || errors.Is(err, fault.Busy) || errors.Is(err, flow.ErrClosed), "push: %v", err)
	r.w.Check(!after || errors.Is(err, flow.ErrClosed), "push after close: %v", err)
	a.accepted = err == nil
	return a, err
}

// submit is a handler: it waits for the answer without a deadline.
func (r *registry) submit(band, proposal int) error {
	a, err := r.offer(band, proposal)
	if err != nil {
		return err
	}
	verdict, err := a.response.Pop(context.Background())
	r.w.Check(err == nil, "no answer: %v", err)
	return verdict
}

// commit is the loop of the committer. Once the queue is closed it decides what
// is left; once it is aborted it refuses what is left, and first of all makes
// sure that nothing is enqueued behind that.
func (r *registry) commit(ctx context.Context) {
	into := make([]*request, 2)
	for {
		n, err := r.requests.Take(ctx, into, len(into))
		if err != nil {
			r.w.Check(errors.Is(err, flow.ErrClosed) || errors.Is(err, fault.Canceled), "take: %v", err)
			break
		}
		r.batch(ctx, into[:n])
	}
	switch r.bug {
	case "goes without a sweep":
	case "sweeps, then closes":
		for r.requests.Len(proposals)+r.requests.Len(approvals)+r.requests.Len(commits) > 0 {
			n, _ := r.requests.Take(context.Background(), into, len(into))
			r.refuse(into[:n])
		}
		r.requests.Close()
	default:
		r.requests.Close()
		for {
			n, err := r.requests.Take(context.Background(), into, len(into))
			if err != nil {
				break
			}
			r.refuse(into[:n])
		}
	}
	if r.bug != "leaves the bus open" {
		r.committed.Close()
	}
	r.gone = true
}

func (r *registry) refuse(asks []*request) {
	for _, a := range asks {
		r.answer(a, fault.Canceled)
	}
}

// batch decides one after another, each on the result of the one before, then
// appends all at once, publishes, and answers.
func (r *registry) batch(ctx context.Context, asks []*request) {
	log, verdicts := slices.Clone(r.log), make([]error, len(asks))
	for i, a := range asks {
		verdicts[i] = r.decide(log, a)
		if a.band == commits && verdicts[i] == nil {
			log = append(log, a.proposal)
		}
	}
	if r.bug == "answers before it has appended" {
		r.answerAll(asks, verdicts)
		if ctx.Err() != nil {
			return
		}
	}
	if fresh := log[len(r.log):]; len(fresh) > 0 {
		r.w.Point("append and sync")
		before := len(r.log)
		r.log = log
		r.head.Store(len(log))
		for i := range fresh {
			r.w.Check(r.committed.Publish(before+i+1) == nil, "the bus is closed before the committer has gone")
		}
		if r.bug == "waits for its reader" {
			r.waitForReader(len(log))
		}
	}
	if r.bug != "answers before it has appended" {
		r.answerAll(asks, verdicts)
	}
}

func (r *registry) waitForReader(version int) {
	for heard, seen := r.heard.LoadVersion(); heard < version; {
		heard, seen, _ = r.heard.WaitForChange(context.Background(), seen)
	}
}

// decide checks a request against the log that it would be appended to.
func (r *registry) decide(log []int, a *request) error {
	if r.bug == "looks at the log before the batch" {
		log = r.log
	}
	count, open := r.open[a.proposal]
	switch {
	case a.band == proposals && open:
		return fault.Conflict
	case a.band == proposals:
		r.open[a.proposal] = 0
	case !open:
		return fault.NotFound
	case slices.Contains(log, a.proposal):
		return fault.Conflict
	case a.band == approvals:
		r.open[a.proposal]++
	case count < 1:
		return fault.QuorumFailed
	}
	return nil
}

func (r *registry) answerAll(asks []*request, verdicts []error) {
	for i, a := range asks {
		r.answer(a, verdicts[i])
	}
}

// answer never waits, whether the handler is still there or not.
func (r *registry) answer(a *request, verdict error) {
	a.answers++
	a.verdict = verdict
	r.w.Check(a.answers == 1, "proposal %d: answered %d times", a.proposal, a.answers)
	r.w.Check(a.response.TryPush(verdict) == nil, "proposal %d: there is room for one answer", a.proposal)
}

// publisher is the reader of the bus: it receives versions until the bus is
// closed, and after a lag it continues from HEAD.
func (r *registry) publisher() func() {
	heard, missed, known := 0, 0, 0
	reader, err := r.committed.Subscribe("publisher", func(_ context.Context, n uint64) error {
		missed += int(n)
		known = r.head.Load()
		return nil
	})
	r.w.Check(err == nil, "subscribe: %v", err)
	return func() {
		for {
			version, err := reader.Recv(context.Background())
			if err != nil {
				r.w.Check(errors.Is(err, flow.ErrClosed), "recv: %v", err)
				break
			}
			heard++
			known = max(known, version)
			if r.bug == "waits for its reader" {
				r.heard.Store(known)
			}
		}
		r.w.Check(known == len(r.log) && heard+missed == known, "the log has %d, heard %d, missed %d, knows of %d", len(r.log), heard, missed, known)
	}
}

// checkComplete checks the outcome of all requests at the end.
func (r *registry) checkComplete() {
	r.w.Check(r.gone, "the committer has not seen the shutdown")
	committed := map[int]bool{}
	for _, proposal := range r.log {
		r.w.Check(!committed[proposal], "proposal %d was committed twice: %v", proposal, r.log)
		committed[proposal] = true
	}
	done := 0
	for _, a := range r.all {
		r.w.Check(!a.accepted || a.answers == 1, "proposal %d: accepted, and answered %d times", a.proposal, a.answers)
		r.w.Check(a.accepted || a.answers == 0, "proposal %d: turned away, and answered", a.proposal)
		if a.accepted && a.band == commits && a.verdict == nil {
			done++
			r.w.Check(committed[a.proposal], "proposal %d was acknowledged and is not in the log %v", a.proposal, r.log)
		}
	}
	r.w.Check(done == len(r.log), "%d commits were acknowledged, and the log has %v", done, r.log)
}

// stall makes the publisher one that does not read before all the others have
// ended. A thread that waits for it waits for ever.
func (r *registry) stall() { r.w.After(r.publisher()) }

// racing is two handlers that commit the same proposal. The committer is aborted
// at any moment, with the intake still open; that is closed later.
func racing(bug string) func(*explore.World) {
	return func(w *explore.World) {
		r := newRegistry(w, bug)
		ctx, abort := w.Context()
		for _, name := range []string{"handler", "rival"} {
			w.Go(name, func() { _ = r.submit(commits, 1) })
		}
		w.Go("committer", func() { r.commit(ctx) })
		w.Go("shutdown", func() {
			abort()
			r.requests.Close()
			r.closed = true
		})
		r.stall()
		w.After(r.checkComplete)
	}
}

// walking is a proposal on its whole way. At any moment the intake is closed, and
// some time later, when all has been drained or not, the committer is aborted.
func walking(bug string) func(*explore.World) {
	return func(w *explore.World) {
		r := newRegistry(w, bug)
		ctx, abort := w.Context()
		w.Go("handler", func() {
			for _, band := range []int{proposals, approvals, commits} {
				if err := r.submit(band, 3); err != nil {
					w.Check(errors.Is(err, fault.Canceled), "nothing but a shutdown is in the way of band %d: %v", band, err)
					return
				}
			}
		})
		w.Go("committer", func() { r.commit(ctx) })
		w.Go("shutdown", func() {
			r.requests.Close()
			r.closed = true
			abort()
		})
		r.stall()
		w.After(r.checkComplete)
	}
}

// publishing is two commits for a reader that keeps up or lags. The callers have
// left before the answer, and the shutdown lets all that was accepted drain.
func publishing(bug string) func(*explore.World) {
	return func(w *explore.World) {
		r := newRegistry(w, bug)
		_, err := r.offer(commits, 1)
		w.Check(err == nil, "there is room for the first: %v", err)
		w.Go("handler", func() { _, _ = r.offer(commits, 2) })
		w.Go("committer", func() { r.commit(context.Background()) })
		w.Go("publisher", r.publisher())
		w.Go("shutdown", func() {
			r.requests.Close()
			r.closed = true
		})
		w.After(func() {
			r.checkComplete()
			for _, a := range r.all {
				w.Check(!a.accepted || a.verdict == nil, "proposal %d was accepted, and then refused: %v", a.proposal, a.verdict)
			}
		})
	}
}

func TestRegistryCommitsOnceWheneverItIsAborted(t *testing.T) { explore.Test(t, quick, racing("")) }

func TestRegistryAnswersAProposalOnItsWay(t *testing.T) { explore.Test(t, thorough, walking("")) }

func TestRegistryTellsEveryCommit(t *testing.T) { explore.Test(t, quick, publishing("")) }

func TestEverySeededBugOfARegistryIsFound(t *testing.T) {
	for bug, found := range map[string]struct {
		model func(bug string) func(*explore.World)
		sign  string
	}{
		"looks at the log before the batch": {racing, "committed twice"},
		"answers before it has appended":    {racing, "acknowledged and is not in the log"},
		"goes without a sweep":              {walking, "deadlock"},
		"sweeps, then closes":               {racing, "deadlock"},
		"waits for its reader":              {racing, "deadlock"},
		"leaves the bus open":               {publishing, "deadlock"},
	} {
		t.Run(bug, func(t *testing.T) { mustFind(t, found.model(bug), found.sign) })
	}
}
