package registry

import (
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// docket holds the proposals that wait, and remembers for a while what became
// of the others. The committer alone adds to it and changes what is in it; the
// gate takes off what has expired.
type docket struct {
	mu    sync.RWMutex
	open  map[string]entry
	ended map[string]ending
	order []string // of ended, oldest first, so that the oldest are forgotten
	bytes int      // of the proposals that are open
}

// entry is a proposal and who has approved it. It is replaced, never changed.
type entry struct {
	proposal  *ledger.Proposal
	approvals []ledger.Approval
}

// ending is what is remembered of a proposal: little, because there are many.
type ending struct {
	payload   b3.Address
	expiresAt time.Time
	version   uint64 // if it was committed
	expired   bool
}

// What the docket may hold: the payloads of open proposals, and how many ended
// ones are remembered.
const (
	docketBytes = 64 << 20
	docketEnded = 4096
)

func newDocket() *docket {
	return &docket{open: map[string]entry{}, ended: map[string]ending{}}
}

// diff is what the proposal changes, as far as it is still known.
func (e entry) diff() ledger.Diff {
	if e.proposal == nil {
		return nil
	}
	return e.proposal.Diff
}

// weigh is about what an entry takes of memory.
func (e entry) weigh() int {
	return len(e.proposal.Payload) + len(e.proposal.Preconditions) + len(e.proposal.SignThis)
}

// add takes a proposal in, if there is room.
func (d *docket) add(p *ledger.Proposal, most int, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := entry{proposal: p}
	if !d.fits(e, most) {
		d.sweep(now)
	}
	if !d.fits(e, most) {
		return &fault.Error{Op: "registry.propose", Kind: fault.QuotaExceeded, Detail: "too many proposals are open",
			Next: "Commit some of them, or wait until they expire; `micronode registry proposals` lists them."}
	}
	d.open[p.ID] = e
	d.bytes += e.weigh()
	return nil
}

// fits reports whether there is room. The lock is held.
func (d *docket) fits(e entry, most int) bool {
	return len(d.open) < most && d.bytes+e.weigh() <= docketBytes
}

// find returns a proposal that is open, or says what became of it.
func (d *docket) find(op, id string, now time.Time) (entry, error) {
	d.mu.RLock()
	e, open := d.open[id]
	end, ended := d.ended[id]
	d.mu.RUnlock()
	switch {
	case open && now.Before(e.proposal.ExpiresAt):
		return e, nil
	case open, ended && end.expired:
		return e, &fault.Error{Op: op, Kind: fault.Expired, Detail: "the proposal has expired", Next: "Propose it again, and have it signed again."}
	case ended:
		return e, fault.New(op, fault.Conflict, "the proposal was committed as version %d", end.version)
	}
	return e, &fault.Error{Op: op, Kind: fault.NotFound, Detail: "there is no such proposal here",
		Next: "Proposals live in the memory of the node that took them, and for their time only: propose it again."}
}

// look returns a proposal, or what became of it.
func (d *docket) look(id string, now time.Time) (e entry, end *ending, ok bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if e, ok = d.open[id]; ok {
		if !now.Before(e.proposal.ExpiresAt) {
			end = &ending{payload: e.proposal.PayloadB3, expiresAt: e.proposal.ExpiresAt, expired: true}
		}
		return e, end, true
	}
	was, ok := d.ended[id]
	return e, &was, ok
}

// approve adds an approval. The slice is made anew, because others may be
// reading the old one.
func (d *docket) approve(e entry, a ledger.Approval) entry {
	next := entry{proposal: e.proposal, approvals: append(e.approvals[:len(e.approvals):len(e.approvals)], a)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, open := d.open[e.proposal.ID]; open {
		d.open[e.proposal.ID] = next
	}
	return next
}

// committed takes a proposal off the docket and returns it. One that expired
// while it was being written is ours all the same, but little is left of it. One
// that was never here was another node's.
func (d *docket) committed(id string, version uint64) (e entry, ours bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ours = d.open[id]; ours {
		d.end(e, ending{version: version})
		return e, true
	}
	if was, swept := d.ended[id]; swept && was.expired {
		was.expired, was.version = false, version
		d.ended[id] = was
		return e, true
	}
	return e, false
}

// versionOf is the version that a proposal was committed as, if it was.
func (d *docket) versionOf(id string) (uint64, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	end, ended := d.ended[id]
	return end.version, ended && !end.expired
}

// expire takes off what has expired, and returns how many are left.
func (d *docket) expire(now time.Time) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep(now)
	return len(d.open)
}

// sweep does it. The lock is held.
func (d *docket) sweep(now time.Time) {
	for _, e := range d.open {
		if !now.Before(e.proposal.ExpiresAt) {
			d.end(e, ending{expired: true})
		}
	}
}

// end moves a proposal to those that are remembered. The lock is held.
func (d *docket) end(e entry, how ending) {
	id := e.proposal.ID
	how.payload, how.expiresAt = e.proposal.PayloadB3, e.proposal.ExpiresAt
	d.bytes -= e.weigh()
	delete(d.open, id)
	if len(d.order) == docketEnded {
		delete(d.ended, d.order[0])
		d.order = d.order[1:]
	}
	d.ended[id] = how
	d.order = append(d.order, id)
}

// list returns what is open.
func (d *docket) list(now time.Time) []entry {
	d.mu.RLock()
	defer d.mu.RUnlock()
	all := make([]entry, 0, len(d.open))
	for _, e := range d.open {
		if now.Before(e.proposal.ExpiresAt) { // what has expired is still to be swept
			all = append(all, e)
		}
	}
	return all
}
