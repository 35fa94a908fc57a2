package journaltest

import (
	"context"
	"slices"
	"sync/atomic"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
)

var appendChecks = []check{
	{name: "a new log is empty", rule: newIsEmpty},
	{name: "what is appended is there", rule: appendIsThere},
	{name: "a head that is another is a mismatch", rule: appendCompares},
	{name: "a batch with wrong versions is malformed", rule: appendMalformed},
	{name: "sizes from nothing to the largest", rule: appendSizes},
	{name: "a long batch", rule: appendLong},
	{name: "what was appended belongs to the journal", rule: appendOwns},
	{name: "one of many writers wins", rule: appendRace},
	{name: "readers see whole batches in order", rule: appendReaders},
}

func newIsEmpty(c *subject) {
	c.wantHead(nil)
	c.wantRecords(nil)
	_, err := c.j.LoadCheckpoint(c.ctx, 1<<63)
	c.wantKind(err, fault.NotFound, "LoadCheckpoint of an empty journal")
	p, first, err := c.j.Pruned(c.ctx)
	if err != nil || first != 0 || p.Below != 0 || len(p.Note) != 0 {
		c.Errorf("Pruned of an empty journal: %v, %d, %v", p, first, err)
	}
	_ = c.j.Append(c.ctx, nil, nil)
	c.wantHead(nil)
}

func appendIsThere(c *subject) {
	all := c.fill(40)
	c.wantRecords(all)
	_ = c.j.Append(c.ctx, headOf(all), nil)
	c.wantRecords(all)
}

func appendCompares(c *subject) {
	other := batch(nil, 1, 9)
	c.wantKind(c.j.Append(c.ctx, headOf(other), batch(headOf(other), 1, 0)), fault.ChainMismatch, "Append behind a version that is not there")
	c.wantHead(nil)

	all := c.fill(7)
	head := headOf(all)
	wrongHash := &ledger.Head{Version: head.Version, Hash: b3.Of([]byte("another"))}
	later := &ledger.Head{Version: head.Version + 1, Hash: head.Hash}
	earlier := headOf(all[:6])
	for name, expect := range map[string]*ledger.Head{"an empty log": nil, "the same version of another log": wrongHash, "a later version": later, "an earlier version": earlier} {
		c.wantKind(c.j.Append(c.ctx, expect, batch(expect, 2, 5)), fault.ChainMismatch, "Append behind %s", name)
	}
	c.wantRecords(all)
	more := batch(head, 2, 0)
	c.must(c.j.Append(c.ctx, head, more), "Append after mismatches")
	c.wantRecords(append(all, more...))
}

func appendMalformed(c *subject) {
	all := c.fill(3)
	head := headOf(all)
	for name, wrong := range map[string][]ledger.Record{
		"a version too late":  {record(4, 0, 10)},
		"a version again":     {record(2, 0, 10)},
		"a gap in the middle": {record(3, 0, 10), record(5, 0, 10)},
		"a version twice":     {record(3, 0, 10), record(3, 0, 10)},
	} {
		c.wantKind(c.j.Append(c.ctx, head, wrong), fault.Malformed, "Append of %s", name)
	}
	c.wantKind(c.j.Append(c.ctx, head, []ledger.Record{{Version: 3, Header: []byte("x"), Payload: make([]byte, 8<<20)}}), fault.BodyTooLarge, "Append of far too much")
	c.wantRecords(all)
}

func appendSizes(c *subject) {
	var all []ledger.Record
	var head *ledger.Head
	for _, sizes := range [][3]int{{1, 0, 0}, {0, 0, 0}, {1, 1, 1}, {7, 8, 9}, {4096, 0, 1}, {65535, 1 << 20, 100_000}, {0, 3, 0}} {
		r := ledger.Record{Version: uint64(len(all)), Header: make([]byte, sizes[0]), Payload: make([]byte, sizes[1]), Preconditions: make([]byte, sizes[2])}
		for _, part := range [][]byte{r.Header, r.Payload, r.Preconditions} {
			for i := range part {
				part[i] = byte(i * len(part))
			}
		}
		c.must(c.j.Append(c.ctx, head, []ledger.Record{r}), "Append of a record of %v bytes", sizes)
		all = append(all, r)
		head = headOf(all)
	}
	c.wantRecords(all)
}

func appendLong(c *subject) {
	all := batch(nil, 300, 0)
	c.must(c.j.Append(c.ctx, nil, all), "Append of %d records", len(all))
	c.wantRecords(all)
}

func appendOwns(c *subject) {
	given, want := batch(nil, 3, 0), batch(nil, 3, 0)
	c.must(c.j.Append(c.ctx, nil, given), "Append")
	for _, r := range given {
		clear(r.Header)
		clear(r.Payload)
		clear(r.Preconditions)
	}
	c.wantRecords(want)
}

// appendRace lets several writers append after the same head, again and again.
func appendRace(c *subject) {
	var head *ledger.Head
	var all []ledger.Record
	for range 10 {
		var won [4][]ledger.Record
		var wins atomic.Int32
		together(len(won), func(i int) {
			mine := batch(head, 1+i, i)
			switch err := c.j.Append(c.ctx, head, mine); fault.KindOf(err) {
			case 0:
				won[i] = mine
				wins.Add(1)
			case fault.ChainMismatch:
			default:
				c.Errorf("Append in a race: %v", err)
			}
		})
		if wins.Load() != 1 {
			c.Fatalf("%d of %d writers behind the same head were told that they had won", wins.Load(), len(won))
		}
		all = append(all, slices.Concat(won[:]...)...)
		head = headOf(all)
	}
	c.wantRecords(all)
}

// appendReaders lets readers run beside a writer: the record of the head can be
// read, and no record disappears.
func appendReaders(c *subject) {
	const readers, rounds = 3, 60
	ctx, stop := context.WithCancel(c.ctx)
	defer stop()
	together(readers+1, func(i int) {
		if i == readers {
			defer stop()
			c.appendRounds(rounds)
			return
		}
		for last := uint64(0); ctx.Err() == nil; {
			last = c.readAlong(last)
		}
		c.readAlong(0) // once at least, and all of it
	})
}

func (s *subject) appendRounds(rounds int) {
	var head *ledger.Head
	for i := range rounds {
		some := batch(head, 1+i%4, 0)
		if err := s.j.Append(s.ctx, head, some); err != nil {
			s.Errorf("Append beside readers: %v", err)
			return
		}
		head = headOf(some)
	}
}

// readAlong reads the head and the record that it is of. It returns the version.
func (s *subject) readAlong(last uint64) uint64 {
	head, err := s.j.Head(s.ctx)
	if fault.KindOf(err) == fault.NotFound && last == 0 {
		return 0
	}
	if err != nil || head.Version < last {
		s.Errorf("Head beside a writer: %v, %v; it was %d before", head, err, last)
		return last
	}
	r, err := s.j.Read(s.ctx, head.Version)
	if err != nil || r.Head() != head {
		s.Errorf("Read(%d) beside a writer: %v, %v; the head is %v", head.Version, r.Head(), err, head)
	}
	next := last
	err = s.j.Scan(s.ctx, last, func(r ledger.Record) error {
		if r.Version != next {
			return fault.New("scan", fault.Internal, "version %d comes where %d should", r.Version, next)
		}
		next++
		return nil
	})
	if err != nil || next <= head.Version {
		s.Errorf("Scan from %d beside a writer came to %d, %v; the head was %d", last, next, err, head.Version)
	}
	return head.Version
}
