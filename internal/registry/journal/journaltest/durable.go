package journaltest

import (
	"context"

	"micronode/fault"
	"micronode/internal/registry/ledger"
)

var durableChecks = []check{
	{name: "everything is there after reopening", durable: true, rule: durableAll},
	{name: "an empty log is empty after reopening", durable: true, rule: durableEmpty},
	{name: "a log goes on after reopening", durable: true, rule: durableGoesOn},
	{name: "a prune lasts", durable: true, rule: durablePrune},
}

var sharedChecks = []check{
	{name: "two journals never both append a version", shared: true, rule: sharedRace},
	{name: "a change by another is noticed", shared: true, rule: sharedChange},
	{name: "what another keeps is seen", shared: true, rule: sharedKept},
}

// closeAndReopen closes the journal and opens it again.
func (s *subject) closeAndReopen() {
	s.Helper()
	s.must(s.j.Close(), "Close")
	s.j = s.reopen()
}

func durableEmpty(c *subject) {
	c.closeAndReopen()
	newIsEmpty(c)
	c.closeAndReopen()
	c.wantRecords(c.fill(3))
}

func durableAll(c *subject) {
	all := c.fill(70)
	one := checkpoint(40, 0)
	c.saveCheckpoints(checkpoint(7, 0), one)
	c.saveTiles()
	for range 2 {
		c.closeAndReopen()
		c.wantRecords(all)
		c.wantCheckpoint(69, &one)
		c.wantTiles()
	}
}

func durableGoesOn(c *subject) {
	all := c.fill(3)
	for i := range 12 {
		c.closeAndReopen()
		c.wantKind(c.j.Append(c.ctx, nil, batch(nil, 1, 3)), fault.ChainMismatch, "Append to an empty log, after reopening")
		more := batch(headOf(all), 1+i%4, i)
		c.must(c.j.Append(c.ctx, headOf(all), more), "Append after reopening")
		all = append(all, more...)
	}
	c.closeAndReopen()
	c.wantRecords(all)
}

func durablePrune(c *subject) {
	all := c.fill(50)
	c.saveCheckpoints(checkpoint(30, 0))
	first := c.mustPrune(29)
	c.closeAndReopen()
	c.wantPruned(29, first, all)
	first = c.mustPrune(50)
	c.closeAndReopen()
	c.wantPruned(50, first, all)
	more := batch(headOf(all), 2, 0)
	c.must(c.j.Append(c.ctx, headOf(all), more), "Append after pruning and reopening")
	c.closeAndReopen()
	c.wantPruned(50, first, append(all, more...))
}

// sharedRace lets several journals on one storage append after the same head.
func sharedRace(c *subject) {
	other := c.another()
	defer func() { c.must(other.Close(), "Close") }()
	var all []ledger.Record
	var head *ledger.Head
	for round := range 10 {
		mine, theirs := batch(head, 1+round%3, 0), batch(head, 2, 1)
		var won [2]error
		together(2, func(i int) {
			if i == 0 {
				won[0] = c.j.Append(c.ctx, head, mine)
			} else {
				won[1] = other.Append(c.ctx, head, theirs)
			}
		})
		switch {
		case won[0] == nil && fault.KindOf(won[1]) == fault.ChainMismatch:
			all = append(all, mine...)
		case won[1] == nil && fault.KindOf(won[0]) == fault.ChainMismatch:
			all = append(all, theirs...)
		default:
			c.Fatalf("two journals in a race: %v and %v; want one that wins and one mismatch", won[0], won[1])
		}
		head = headOf(all)
	}
	c.wantRecords(all)
	(&subject{TB: c.TB, ctx: c.ctx, j: other}).wantRecords(all)
}

func sharedChange(c *subject) {
	other := c.another()
	defer func() { c.must(other.Close(), "Close") }()
	all := c.fill(3)
	more := batch(headOf(all), 2, 0)
	together(2, func(i int) {
		if i == 0 {
			c.wantNoError(other.Changed(c.ctx, headOf(all)), "Changed by another")
			return
		}
		c.wantNoError(c.j.Append(c.ctx, headOf(all), more), "Append")
	})
	(&subject{TB: c.TB, ctx: c.ctx, j: other}).wantRecords(append(all, more...))
	ctx, leave := context.WithCancel(c.ctx)
	leave()
	c.wantKind(other.Changed(ctx, headOf(more)), fault.Canceled, "Changed without a change")
}

// wantNoError is must for goroutines other than the test's own.
func (s *subject) wantNoError(err error, what string) {
	if err != nil {
		s.Errorf("%s: %v", what, err)
	}
}

func sharedKept(c *subject) {
	other := c.another()
	defer func() { c.must(other.Close(), "Close") }()
	all := c.fill(40)
	one := checkpoint(12, 0)
	c.saveCheckpoints(one)
	c.saveTiles()
	first := c.mustPrune(9)
	they := &subject{TB: c.TB, ctx: c.ctx, j: other}
	they.wantCheckpoint(40, &one)
	they.wantTiles()
	they.wantPruned(9, first, all)
}
