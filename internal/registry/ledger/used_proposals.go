package ledger

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// A proposal is committed once. Its preconditions ensure that unless a later
// version undoes it; then the state is again what the proposal requires, and
// its approvals, which are public in the log, would be valid a second time. So
// the ids of committed proposals are remembered until they expire, after which
// no commit can use them: committed_at never decreases.

// usedProposal is one proposal that was committed.
type usedProposal struct {
	id      proposalID
	expires int64 // milliseconds
	version uint64
}

// usedProposals is an immutable set of uses: adding makes a new one that shares
// almost everything with the old. It is a list of sorted runs, each longer than
// the next, that are merged as in a merge sort; a merge drops what has expired.
// An entry costs 32 bytes, adding one is O(log n) on average.
type usedProposals []sortedRun

type sortedRun struct {
	uses  []usedProposal // sorted by id
	until int64          // the latest expiry in it
}

// with returns the set with one more use, as of a time.
func (p usedProposals) with(u usedProposal, now time.Time) usedProposals {
	runs := make(usedProposals, 0, len(p)+1)
	for _, r := range p {
		if r.until >= now.UnixMilli() {
			runs = append(runs, r)
		}
	}
	last := sortedRun{[]usedProposal{u}, u.expires}
	for n := len(runs); n > 0 && len(runs[n-1].uses) <= len(last.uses); n-- {
		last = merge(runs[n-1], last, now.UnixMilli())
		runs = runs[:n-1]
	}
	return append(runs, last)
}

func merge(a, b sortedRun, now int64) sortedRun {
	m := sortedRun{make([]usedProposal, 0, len(a.uses)+len(b.uses)), max(a.until, b.until)}
	keep := func(u usedProposal) {
		if u.expires >= now {
			m.uses = append(m.uses, u)
		}
	}
	x, y := a.uses, b.uses
	for len(x) > 0 && len(y) > 0 {
		if compareUsed(x[0], y[0]) < 0 {
			keep(x[0])
			x = x[1:]
		} else {
			keep(y[0])
			y = y[1:]
		}
	}
	for _, u := range append(x[:len(x):len(x)], y...) {
		keep(u)
	}
	return m
}

func compareUsed(a, b usedProposal) int { return bytes.Compare(a.id[:], b.id[:]) }

// find returns the version that used a proposal, unless it has expired.
func (p usedProposals) find(id proposalID, now time.Time) (version uint64, ok bool) {
	for _, r := range p {
		i, found := slices.BinarySearchFunc(r.uses, usedProposal{id: id}, compareUsed)
		if found && r.uses[i].expires >= now.UnixMilli() {
			return r.uses[i].version, true
		}
	}
	return 0, false
}

// unexpired lists the uses that have not expired, by version.
func (p usedProposals) unexpired(now time.Time) []usedProposal {
	var all []usedProposal
	for _, r := range p {
		for _, u := range r.uses {
			if u.expires >= now.UnixMilli() {
				all = append(all, u)
			}
		}
	}
	slices.SortFunc(all, func(a, b usedProposal) int { return cmp.Compare(a.version, b.version) })
	return all
}
