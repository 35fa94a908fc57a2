package registry

import (
	"net/netip"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// pendingProposals holds the open proposals, and remembers for a while what became of
// the others. Only the committer adds to it and changes what is in it; storageHealth's
// task removes what has expired.
type pendingProposals struct {
	mu            sync.RWMutex
	open          map[string]pendingProposal
	finished      map[string]finishedProposal
	finishedOrder []string // the keys of finished, oldest first; the oldest are evicted
	bytes         int      // of the open proposals
	byClient      map[netip.Addr]clientShare
	keeps         bool              // the open ones are kept in the storage
	dropped       []droppedProposal // what the storage may still have and need not, at most maxFinished
}

// droppedProposal is a proposal that is not open any more, and who had approved it.
type droppedProposal struct {
	id      string
	signers []string
}

// clientShare is what one client holds of the open proposals.
type clientShare struct{ n, bytes int }

// pendingProposal is a proposal and its approvals. It is replaced, never changed.
type pendingProposal struct {
	proposal  *ledger.Proposal
	from      netip.Addr // the client that proposed it; invalid if the client is not limited to a share
	approvals []ledger.Approval
}

// finishedProposal is what is remembered of a proposal: little, because there are many.
type finishedProposal struct {
	payload   b3.Address
	expiresAt time.Time
	version   uint64 // if it was committed
	expired   bool
}

// Bounds of pendingProposals: the bytes of open proposals, and how many finished ones
// are remembered.
const (
	maxPendingBytes = 64 << 20
	maxFinished     = 4096
)

func newPendingProposals(keeps bool) *pendingProposals {
	return &pendingProposals{keeps: keeps, open: map[string]pendingProposal{}, finished: map[string]finishedProposal{}, byClient: map[netip.Addr]clientShare{}}
}

// size returns about how much memory a proposal takes.
func (p pendingProposal) size() int {
	return len(p.proposal.Payload) + len(p.proposal.Preconditions) + len(p.proposal.SignThis)
}

// add adds a proposal of a client, if there is room and the client is within its
// share. A client may hold at most as many as remain free.
func (pp *pendingProposals) add(p *ledger.Proposal, from netip.Addr, limit int, now time.Time) error {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	e := pendingProposal{proposal: p, from: from}
	if !pp.hasRoom(e, limit) || pp.exceedsShare(e, limit) {
		pp.expireLocked(now)
	}
	if !pp.hasRoom(e, limit) {
		return &fault.Error{Op: "registry.propose", Kind: fault.QuotaExceeded, Detail: "too many proposals are open",
			Next: "Commit some of them, or wait until they expire; `micronode registry proposals` lists them."}
	}
	if pp.exceedsShare(e, limit) {
		return &fault.Error{Op: "registry.propose", Kind: fault.QuotaExceeded, Detail: "this client holds its share of the open proposals",
			Next: "Commit some of them, or wait until they expire; `micronode registry proposals` lists them."}
	}
	pp.open[p.ID] = e
	pp.bytes += e.size()
	pp.updateShare(e, 1)
	return nil
}

// exceedsShare reports whether with this proposal a client would hold more than remains
// free. The lock is held.
func (pp *pendingProposals) exceedsShare(e pendingProposal, limit int) bool {
	has := pp.byClient[e.from]
	return e.from.IsValid() && has.n > 0 && (has.n >= limit-len(pp.open) || has.bytes+e.size() > maxPendingBytes-pp.bytes)
}

// updateShare adds a proposal to the share of its client, or removes it. The lock is held.
func (pp *pendingProposals) updateShare(e pendingProposal, sign int) {
	if !e.from.IsValid() {
		return
	}
	has := pp.byClient[e.from]
	has.n += sign
	has.bytes += sign * e.size()
	if pp.byClient[e.from] = has; has.n == 0 {
		delete(pp.byClient, e.from)
	}
}

// hasRoom reports whether there is room for a proposal. The lock is held.
func (pp *pendingProposals) hasRoom(e pendingProposal, limit int) bool {
	return len(pp.open) < limit && pp.bytes+e.size() <= maxPendingBytes
}

// findOpen returns an open proposal, or an error that says what became of it.
func (pp *pendingProposals) findOpen(op, id string, now time.Time) (pendingProposal, error) {
	pp.mu.RLock()
	e, open := pp.open[id]
	finished, ended := pp.finished[id]
	pp.mu.RUnlock()
	switch {
	case open && now.Before(e.proposal.ExpiresAt):
		return e, nil
	case open, ended && finished.expired:
		return e, &fault.Error{Op: op, Kind: fault.Expired, Detail: "the proposal has expired", Next: "Propose it again, and have it signed again."}
	case ended:
		return e, fault.New(op, fault.Conflict, "the proposal was committed as version %d", finished.version)
	}
	return e, &fault.Error{Op: op, Kind: fault.NotFound, Detail: "this node does not have the proposal",
		Next: "A proposal is at the node that received it until it expires; with a registry in RAM, until that node stops. Propose it again."}
}

// lookup returns a proposal, or what became of it.
func (pp *pendingProposals) lookup(id string, now time.Time) (e pendingProposal, finished *finishedProposal, ok bool) {
	pp.mu.RLock()
	defer pp.mu.RUnlock()
	if e, ok = pp.open[id]; ok {
		if !now.Before(e.proposal.ExpiresAt) {
			finished = &finishedProposal{payload: e.proposal.PayloadB3, expiresAt: e.proposal.ExpiresAt, expired: true}
		}
		return e, finished, true
	}
	was, ok := pp.finished[id]
	return e, &was, ok
}

// addApproval adds an approval, and returns how many there are. It copies the slice,
// because handlers may be reading the old one.
func (pp *pendingProposals) addApproval(e pendingProposal, a ledger.Approval) int {
	next := pendingProposal{proposal: e.proposal, from: e.from, approvals: append(e.approvals[:len(e.approvals):len(e.approvals)], a)}
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if _, open := pp.open[e.proposal.ID]; open {
		pp.open[e.proposal.ID] = next
	}
	return len(next.approvals)
}

// markCommitted removes a proposal from the open ones and returns what it changes. One
// that expired while it was being written is ours all the same, but only its
// finishedProposal is left. One that was never here was another node's.
func (pp *pendingProposals) markCommitted(id string, version uint64) (diff ledger.Diff, ours bool) {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if e, open := pp.open[id]; open {
		pp.finish(e, finishedProposal{version: version})
		return e.proposal.Diff, true
	}
	if was, swept := pp.finished[id]; swept && was.expired {
		was.expired, was.version = false, version
		pp.finished[id] = was
		return nil, true
	}
	return nil, false
}

// versionOf returns the version that a proposal was committed as, if it was.
func (pp *pendingProposals) versionOf(id string) (uint64, bool) {
	pp.mu.RLock()
	defer pp.mu.RUnlock()
	finished, ended := pp.finished[id]
	return finished.version, ended && !finished.expired
}

// expire removes open proposals that have expired, and returns how many are left.
func (pp *pendingProposals) expire(now time.Time) int {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	pp.expireLocked(now)
	return len(pp.open)
}

// expireLocked is expire with the lock held.
func (pp *pendingProposals) expireLocked(now time.Time) {
	for _, e := range pp.open {
		if !now.Before(e.proposal.ExpiresAt) {
			pp.finish(e, finishedProposal{expired: true})
		}
	}
}

// finish moves a proposal from open to finished. The lock is held.
func (pp *pendingProposals) finish(e pendingProposal, how finishedProposal) {
	id := e.proposal.ID
	how.payload, how.expiresAt = e.proposal.PayloadB3, e.proposal.ExpiresAt
	pp.remove(e)
	if len(pp.finishedOrder) == maxFinished {
		delete(pp.finished, pp.finishedOrder[0])
		pp.finishedOrder = pp.finishedOrder[1:]
	}
	pp.finished[id] = how
	pp.finishedOrder = append(pp.finishedOrder, id)
}

// cancel removes a proposal that could not be kept: it was never acknowledged.
func (pp *pendingProposals) cancel(id string) {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if e, open := pp.open[id]; open {
		pp.remove(e)
	}
}

// remove removes a proposal from the open ones, and remembers that the storage need
// not keep it any more. The lock is held.
func (pp *pendingProposals) remove(e pendingProposal) {
	pp.bytes -= e.size()
	pp.updateShare(e, -1)
	delete(pp.open, e.proposal.ID)
	one := droppedProposal{id: e.proposal.ID}
	for _, a := range e.approvals {
		one.signers = append(one.signers, a.SignerID)
	}
	pp.appendDropped(one)
}

// appendDropped adds to what is to be removed. Beyond the bound it is left to the next
// start. The lock is held.
func (pp *pendingProposals) appendDropped(one droppedProposal) {
	if pp.keeps && len(pp.dropped) < maxFinished {
		pp.dropped = append(pp.dropped, one)
	}
}

// drop remembers that the storage need not keep something.
func (pp *pendingProposals) drop(id string, signers []string) {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	pp.appendDropped(droppedProposal{id, signers})
}

// takeDropped returns what the storage need not keep any more, once.
func (pp *pendingProposals) takeDropped() []droppedProposal {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	taken := pp.dropped
	pp.dropped = nil
	return taken
}

// listOpen returns the open proposals.
func (pp *pendingProposals) listOpen(now time.Time) []pendingProposal {
	pp.mu.RLock()
	defer pp.mu.RUnlock()
	all := make([]pendingProposal, 0, len(pp.open))
	for _, e := range pp.open {
		if now.Before(e.proposal.ExpiresAt) { // expire may not have removed it yet
			all = append(all, e)
		}
	}
	return all
}
