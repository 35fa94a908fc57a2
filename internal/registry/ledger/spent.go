package ledger

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// A proposal is committed once. Its preconditions see to that as long as
// nobody undoes it; but if somebody does, the state is again what the proposal
// asks for, and its approvals, which anybody may read in the log, would be good
// for a second time. So the ids of committed proposals are remembered until
// they expire, after which no commit can use them: committed_at never
// decreases.

// use is one proposal that was committed.
type use struct {
	id      proposalID
	expires int64 // milliseconds
	version uint64
}

// spent is a set of uses that never changes: adding makes a new one that
// shares almost everything with the old. It is a list of sorted runs, each
// longer than the next, that are merged as in a merge sort; what has expired
// is left out by the way. An entry costs 32 bytes, adding one is O(log n) on
// average.
type spent []run

type run struct {
	uses  []use // sorted by id
	until int64 // the latest expiry in it
}

// with returns the set with one more use, as of a time.
func (s spent) with(u use, now time.Time) spent {
	runs := make(spent, 0, len(s)+1)
	for _, r := range s {
		if r.until >= now.UnixMilli() {
			runs = append(runs, r)
		}
	}
	last := run{[]use{u}, u.expires}
	for n := len(runs); n > 0 && len(runs[n-1].uses) <= len(last.uses); n-- {
		last = merge(runs[n-1], last, now.UnixMilli())
		runs = runs[:n-1]
	}
	return append(runs, last)
}

func merge(a, b run, now int64) run {
	m := run{make([]use, 0, len(a.uses)+len(b.uses)), max(a.until, b.until)}
	keep := func(u use) {
		if u.expires >= now {
			m.uses = append(m.uses, u)
		}
	}
	x, y := a.uses, b.uses
	for len(x) > 0 && len(y) > 0 {
		if compareUses(x[0], y[0]) < 0 {
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

func compareUses(a, b use) int { return bytes.Compare(a.id[:], b.id[:]) }

// find returns the version that used a proposal, unless it has expired.
func (s spent) find(id proposalID, now time.Time) (version uint64, ok bool) {
	for _, r := range s {
		i, found := slices.BinarySearchFunc(r.uses, use{id: id}, compareUses)
		if found && r.uses[i].expires >= now.UnixMilli() {
			return r.uses[i].version, true
		}
	}
	return 0, false
}

// unexpired lists what may still matter, by version.
func (s spent) unexpired(now time.Time) []use {
	var all []use
	for _, r := range s {
		for _, u := range r.uses {
			if u.expires >= now.UnixMilli() {
				all = append(all, u)
			}
		}
	}
	slices.SortFunc(all, func(a, b use) int { return cmp.Compare(a.version, b.version) })
	return all
}
