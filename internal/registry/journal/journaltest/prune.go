package journaltest

import (
	"context"
	"fmt"

	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

var pruneChecks = []check{
	{name: "prune keeps the rest", rule: pruneKeepsTheRest},
	{name: "prune never takes the head", rule: pruneSparesTheHead},
	{name: "prune never goes back", rule: pruneNeverBack},
	{name: "a prune of what is not there is refused", rule: pruneAhead},
	{name: "prune keeps the checkpoint that is needed", rule: pruneCheckpoints},
	{name: "prune beside readers and a writer", rule: pruneBeside},
}

func prune(below uint64) journal.Prune {
	return journal.Prune{Below: below, Note: fmt.Appendf(nil, "note for %d", below)}
}

// mustPrune prunes and wants a plausible result.
func (s *subject) mustPrune(below uint64) (first uint64) {
	s.Helper()
	given := prune(below)
	first, err := s.j.Prune(s.ctx, given)
	s.must(err, "Prune below %d", below)
	clear(given.Note)
	if first > below {
		s.Fatalf("Prune below %d: the first version is %d", below, first)
	}
	return first
}

// wantPruned wants the note of a prune, a first version, and what follows from
// it.
func (s *subject) wantPruned(below, first uint64, all []ledger.Record) {
	s.Helper()
	p, got, err := s.j.Pruned(s.ctx)
	if err != nil || p.Below != below || string(p.Note) != string(prune(below).Note) || got != first {
		s.Errorf("Pruned: below %d, note %q, first %d, %v; want below %d, first %d", p.Below, p.Note, got, err, below, first)
	}
	for version := range first {
		_, err := s.j.Read(s.ctx, version)
		s.wantKind(err, fault.Expired, "Read(%d), which was pruned", version)
	}
	if first > 0 {
		err := s.j.Scan(s.ctx, first-1, func(ledger.Record) error { return nil })
		s.wantKind(err, fault.Expired, "Scan from %d, which was pruned", first-1)
	}
	s.wantRecords(all[first:])
}

func pruneKeepsTheRest(c *subject) {
	all := c.fill(40)
	c.saveTiles()
	for _, below := range []uint64{1, 9, 25} {
		first := c.mustPrune(below)
		c.wantPruned(below, first, all)
		more := batch(headOf(all), 3, 0)
		c.must(c.j.Append(c.ctx, headOf(all), more), "Append after Prune")
		all = append(all, more...)
		c.wantPruned(below, first, all)
	}
	c.wantTiles()
}

func pruneSparesTheHead(c *subject) {
	all := c.fill(12)
	first := c.mustPrune(12)
	if first > 11 {
		c.Fatalf("Prune took the head: the first version is %d", first)
	}
	c.wantPruned(12, first, all)
}

func pruneNeverBack(c *subject) {
	all := c.fill(40)
	first := c.mustPrune(30)
	if again := c.mustPruneLess(10); again != first {
		c.Errorf("Prune for less than before: first %d, want %d", again, first)
	}
	c.wantPruned(30, first, all)
}

// mustPruneLess prunes for less than was pruned before; the result is the first
// version that remains, which may be above.
func (s *subject) mustPruneLess(below uint64) uint64 {
	s.Helper()
	first, err := s.j.Prune(s.ctx, prune(below))
	s.must(err, "Prune for less than before")
	return first
}

func pruneAhead(c *subject) {
	_, err := c.j.Prune(c.ctx, prune(1))
	c.wantKind(err, fault.NotFound, "Prune of an empty log")
	all := c.fill(5)
	_, err = c.j.Prune(c.ctx, prune(7))
	c.wantKind(err, fault.Malformed, "Prune of more than there is")
	c.wantRecords(all)
}

func pruneCheckpoints(c *subject) {
	c.fill(40)
	all := []journal.Checkpoint{checkpoint(5, 0), checkpoint(10, 0), checkpoint(20, 0), checkpoint(40, 0)}
	c.saveCheckpoints(all...)
	first := c.mustPrune(22)
	c.wantCheckpoint(100, &all[3])
	for i, one := range all {
		if needed := i+1 == len(all) || all[i+1].Size > first; needed {
			c.wantCheckpoint(one.Size, &one)
		}
	}
}

func pruneBeside(c *subject) {
	all := c.fill(60)
	ctx, stop := context.WithCancel(c.ctx)
	defer stop()
	together(4, func(i int) {
		if i == 0 {
			defer stop()
			for below := uint64(2); below < 58; below += 7 {
				if _, err := c.j.Prune(c.ctx, prune(below)); err != nil {
					c.Errorf("Prune beside readers: %v", err)
				}
			}
			return
		}
		if i == 1 {
			more := batch(headOf(all), 5, 0)
			if err := c.j.Append(c.ctx, headOf(all), more); err != nil {
				c.Errorf("Append beside Prune: %v", err)
			}
			return
		}
		for v := uint64(0); ctx.Err() == nil; v = (v + 7) % 60 {
			r, err := c.j.Read(c.ctx, v)
			if err != nil && fault.KindOf(err) != fault.Expired || err == nil && !equal(r, all[v]) {
				c.Errorf("Read(%d) beside Prune: %v", v, err)
			}
		}
	})
}
