package journaltest

import (
	"errors"
	"slices"

	"micronode/fault"
	"micronode/internal/registry/journal"
)

var pendingChecks = []check{
	{name: "what is pending is there after reopening", durable: true, rule: pendingDurable},
	{name: "a bad key is refused", durable: true, rule: pendingBadKey},
}

// pendingStore is the journal as a store of what is pending: every durable journal
// is one.
func (s *subject) pendingStore() journal.PendingStore {
	s.Helper()
	store, ok := s.j.(journal.PendingStore)
	if !ok {
		s.Fatal("a durable journal keeps what is pending, too")
	}
	return store
}

// wantPending wants these values, each with its proposal in front and an exclamation
// mark if it is an approval; approvals of a proposal come behind it, in any order.
func (s *subject) wantPending(want ...string) {
	s.Helper()
	var got []string
	proposed := map[string]bool{}
	s.must(s.pendingStore().ScanPending(s.ctx, func(proposal string, isApproval bool, value []byte) error {
		text := proposal + " " + string(value)
		if isApproval {
			text += "!"
		}
		if proposed[proposal] = proposed[proposal] || !isApproval; !proposed[proposal] {
			s.Errorf("an approval of %s comes before it", proposal)
		}
		got = append(got, text)
		return nil
	}), "ScanPending")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.Errorf("pending are %q, want %q", got, want)
	}
}

func pendingDurable(c *subject) {
	all := c.fill(3)
	c.wantPending()
	save := func(proposal, signer, value string) {
		c.must(c.pendingStore().SavePending(c.ctx, journal.PendingKey{Proposal: proposal, Signer: signer}, []byte(value)), "SavePending")
	}
	for i := range 20 { // more than a page
		save("p"+string(rune('a'+i)), "", "proposal")
	}
	for i := range 20 {
		if i > 1 {
			c.must(c.pendingStore().RemovePending(c.ctx, "p"+string(rune('a'+i)), nil), "RemovePending")
		}
	}
	save("pa", "alice", "one")
	save("pa", "a signer / with .. anything", "two")
	save("pb", "alice", "three")
	save("pa", "alice", "one, again")
	c.closeAndReopen()
	c.wantPending("pa proposal", "pa one, again!", "pa two!", "pb proposal", "pb three!")
	c.must(c.pendingStore().RemovePending(c.ctx, "pa", []string{"alice", "a signer / with .. anything"}), "RemovePending")
	c.must(c.pendingStore().RemovePending(c.ctx, "pa", []string{"alice"}), "RemovePending of what is removed")
	c.closeAndReopen()
	c.wantPending("pb proposal", "pb three!")
	stop := errors.New("enough")
	if err := c.pendingStore().ScanPending(c.ctx, func(string, bool, []byte) error { return stop }); !errors.Is(err, stop) {
		c.Errorf("ScanPending returns %v, not what visit returned", err)
	}
	c.wantRecords(all)
}

func pendingBadKey(c *subject) {
	for _, id := range []string{"", "../head", "a/b", "A"} {
		err := c.pendingStore().SavePending(c.ctx, journal.PendingKey{Proposal: id}, []byte("x"))
		c.wantKind(err, fault.Malformed, "SavePending of %q", id)
	}
}
