package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// Opened is a new, empty journal, and the ways to open the same storage again.
type Opened struct {
	Journal journal.Journal

	// Reopen opens the same storage again after the last journal was closed.
	// Needed with Options.Durable.
	Reopen func(t *testing.T) journal.Journal

	// Another opens the same storage while the others are open. Needed with
	// Options.Shared. The suite closes what it opens.
	Another func(t *testing.T) journal.Journal
}

// Options say what a journal supports beyond the interface.
type Options struct {
	Durable bool // what was acknowledged is there after Close and Reopen
	Shared  bool // several may be open on the same storage at a time
}

// Run checks a journal against everything that the interface promises. Each
// check opens one of its own.
func Run(t *testing.T, open func(t *testing.T) Opened, o Options) {
	for _, check := range checks() {
		if check.durable && !o.Durable || check.shared && !o.Shared {
			continue
		}
		t.Run(check.name, func(t *testing.T) {
			opened := open(t)
			c := &subject{TB: t, ctx: t.Context(), j: opened.Journal}
			if opened.Reopen != nil {
				c.reopen = func() journal.Journal { return opened.Reopen(t) }
			}
			if opened.Another != nil {
				c.another = func() journal.Journal { return opened.Another(t) }
			}
			c.run(check)
		})
	}
}

// check is one rule.
type check struct {
	name    string
	durable bool // only for journals that can be opened again
	shared  bool // only for those that can be open several times at once
	rule    func(c *subject)
}

func checks() []check {
	return slices.Concat(appendChecks, readChecks, checkpointChecks, pruneChecks, closeChecks, durableChecks, pendingChecks, sharedChecks)
}

// subject is a journal under test, with helpers.
type subject struct {
	testing.TB
	ctx             context.Context
	j               journal.Journal
	reopen, another func() journal.Journal
}

func (s *subject) run(check check) {
	s.Helper()
	check.rule(s)
	if err := s.j.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
}

// record makes the record of a version. Another seed makes another record.
func record(version uint64, seed, size int) ledger.Record {
	part := func(name string, size int) []byte {
		text := fmt.Appendf(nil, "%s %d %d ", name, version, seed)
		return append(text, bytes.Repeat([]byte{0, 255, byte(version), '\n'}, size/4)...)
	}
	return ledger.Record{Version: version, Header: part("header", size/2), Payload: part("payload", size/4), Preconditions: part("preconditions", size/4)}
}

// batch makes the records that come after a head.
func batch(after *ledger.Head, n, seed int) []ledger.Record {
	next := uint64(0)
	if after != nil {
		next = after.Version + 1
	}
	var all []ledger.Record
	for i := range n {
		all = append(all, record(next+uint64(i), seed, 300+100*(i%7)))
	}
	return all
}

// headOf is the head after a batch.
func headOf(batch []ledger.Record) *ledger.Head {
	head := batch[len(batch)-1].Head()
	return &head
}

// fill appends n versions in batches of a few to an empty log and returns them.
func (s *subject) fill(n int) (all []ledger.Record) {
	s.Helper()
	var head *ledger.Head
	for len(all) < n {
		some := batch(head, min(1+len(all)%5, n-len(all)), 0)
		s.must(s.j.Append(s.ctx, head, some), "Append of %d records behind %v", len(some), head)
		all, head = append(all, some...), headOf(some)
	}
	return all
}

// must stops the check at an error.
func (s *subject) must(err error, what string, args ...any) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

// wantKind wants an error of a kind.
func (s *subject) wantKind(err error, kind fault.Kind, what string, args ...any) {
	s.Helper()
	if fault.KindOf(err) != kind {
		s.Errorf("%s: %v (%v), want %v", fmt.Sprintf(what, args...), err, fault.KindOf(err), kind)
	}
}

// wantHead wants a head; nil for an empty log.
func (s *subject) wantHead(want *ledger.Head) {
	s.Helper()
	got, err := s.j.Head(s.ctx)
	if want == nil {
		s.wantKind(err, fault.NotFound, "Head of an empty log")
		return
	}
	if err != nil || got != *want {
		s.Errorf("Head: %v, %v; want %v", got, err, *want)
	}
}

// wantRecords wants these records, one by one and in a scan, and no more.
func (s *subject) wantRecords(want []ledger.Record) {
	s.Helper()
	for _, r := range want {
		got, err := s.j.Read(s.ctx, r.Version)
		if err != nil || !equal(got, r) {
			s.Fatalf("Read(%d): %.80v, %v; want %.80v", r.Version, got, err, r)
		}
	}
	next := uint64(0)
	if len(want) > 0 {
		next = want[0].Version
		s.wantHead(headOf(want))
	}
	s.wantScan(next, want)
	if len(want) > 0 {
		next = want[len(want)-1].Version + 1
	}
	_, err := s.j.Read(s.ctx, next)
	s.wantKind(err, fault.NotFound, "Read of version %d, which is not there yet", next)
}

// wantScan wants these records from a version on.
func (s *subject) wantScan(from uint64, want []ledger.Record) {
	s.Helper()
	seen := 0
	err := s.j.Scan(s.ctx, from, func(r ledger.Record) error {
		if seen == len(want) || !equal(r, want[seen]) {
			return fmt.Errorf("record %d of the scan is version %d, and not what it should be", seen, r.Version)
		}
		seen++
		return nil
	})
	if err != nil || seen != len(want) {
		s.Errorf("Scan from %d: saw %d records of %d, %v", from, seen, len(want), err)
	}
}

func equal(a, b ledger.Record) bool {
	return a.Version == b.Version && bytes.Equal(a.Header, b.Header) && bytes.Equal(a.Payload, b.Payload) && bytes.Equal(a.Preconditions, b.Preconditions)
}

// together calls do at the same time for each of n, and waits for all.
func together(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) }) //lockblock:allow this package is a test; all are waited for below
	}
	all.Wait()
}
