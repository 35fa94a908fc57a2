package journaltest

import (
	"context"
	"errors"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

var readChecks = []check{
	{name: "a scan begins anywhere", rule: scanAnywhere},
	{name: "a scan ends when it is told to", rule: scanEnds},
	{name: "who scans may append and read", rule: scanNests},
}

var closeChecks = []check{
	{name: "who has left gets nothing", rule: leftGetsNothing},
	{name: "a change is noticed", rule: changeIsNoticed},
	{name: "a wait for a change ends", rule: changeEnds},
	{name: "a closed journal refuses all", rule: closeRefuses},
}

func scanAnywhere(c *subject) {
	all := c.fill(20)
	for from := range all {
		c.wantScan(uint64(from), all[from:])
	}
	c.wantScan(20, nil)
	c.wantScan(1000, nil)
	c.wantScan(1<<64-1, nil)
}

func scanEnds(c *subject) {
	c.fill(20)
	enough, seen := errors.New("enough"), 0
	err := c.j.Scan(c.ctx, 3, func(ledger.Record) error {
		if seen++; seen == 5 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || seen != 5 {
		c.Errorf("Scan whose visitor has had enough: %d visits, %v", seen, err)
	}
}

func scanNests(c *subject) {
	all := c.fill(6)
	head := headOf(all)
	visits := 0
	err := c.j.Scan(c.ctx, 0, func(r ledger.Record) error {
		if visits++; visits > 3 {
			return nil
		}
		more := batch(head, 1, 0)
		if err := c.j.Append(c.ctx, head, more); err != nil {
			return err
		}
		all, head = append(all, more...), headOf(more)
		_, err := c.j.Read(c.ctx, r.Version)
		return err
	})
	if err != nil || visits < 6 {
		c.Errorf("Scan with appends in it: %d visits, %v", visits, err)
	}
	c.wantRecords(all)
}

// callEverything calls every operation.
func (s *subject) callEverything(ctx context.Context, head *ledger.Head) map[string]error {
	_, errHead := s.j.Head(ctx)
	_, errRead := s.j.Read(ctx, 0)
	_, errCheckpoint := s.j.LoadCheckpoint(ctx, 9)
	_, errTile := s.j.LoadTile(ctx, journal.TileID{})
	_, errPrune := s.j.Prune(ctx, journal.Prune{Below: 1, Note: []byte("note")})
	_, _, errPruned := s.j.Pruned(ctx)
	return map[string]error{
		"Head": errHead, "Read": errRead, "LoadCheckpoint": errCheckpoint, "LoadTile": errTile, "Prune": errPrune, "Pruned": errPruned,
		"Append":         s.j.Append(ctx, head, batch(head, 1, 0)),
		"Scan":           s.j.Scan(ctx, 0, func(ledger.Record) error { return nil }),
		"SaveCheckpoint": s.j.SaveCheckpoint(ctx, journal.Checkpoint{Size: 1}),
		"SaveTile":       s.j.SaveTile(ctx, journal.TileID{}, []byte("hashes")),
		"Changed":        s.j.Changed(ctx, head),
	}
}

func leftGetsNothing(c *subject) {
	all := c.fill(4)
	gone, leave := context.WithCancel(c.ctx)
	leave()
	for what, err := range c.callEverything(gone, headOf(all)) {
		c.wantKind(err, fault.Canceled, "%s by one who has left", what)
	}
	late, leave := context.WithDeadline(c.ctx, time.Unix(0, 0))
	defer leave()
	c.wantKind(c.j.Append(late, headOf(all), batch(headOf(all), 1, 0)), fault.Timeout, "Append after its deadline")
	c.wantRecords(all)
}

func changeIsNoticed(c *subject) {
	all := c.fill(4)
	for name, since := range map[string]*ledger.Head{"nothing": nil, "an earlier head": headOf(all[:2]), "another log's head": headOf(batch(nil, 4, 8))} {
		c.must(c.j.Changed(c.ctx, since), "Changed since %s", name)
	}
}

func changeEnds(c *subject) {
	head := headOf(c.fill(4))
	brief, over := context.WithTimeout(c.ctx, 10*time.Millisecond)
	defer over()
	c.wantKind(c.j.Changed(brief, head), fault.Timeout, "Changed without a change")
	ctx, leave := context.WithCancel(c.ctx)
	together(2, func(i int) {
		if i == 0 {
			leave()
			return
		}
		c.wantKind(c.j.Changed(ctx, head), fault.Canceled, "Changed by one who leaves")
	})
	together(2, func(i int) {
		if i == 0 {
			c.must(c.j.Close(), "Close")
			return
		}
		c.wantKind(c.j.Changed(c.ctx, head), fault.Canceled, "Changed of a journal that is closed")
	})
}

func closeRefuses(c *subject) {
	all := c.fill(4)
	c.must(c.j.Close(), "Close")
	c.must(c.j.Close(), "Close for a second time")
	for what, err := range c.callEverything(c.ctx, headOf(all)) {
		c.wantKind(err, fault.Canceled, "%s after Close", what)
		if !errors.Is(err, flow.ErrClosed) {
			c.Errorf("%s after Close: %v, want flow.ErrClosed", what, err)
		}
	}
}
