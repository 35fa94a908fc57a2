package registrytest

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// Limits of the model.
const (
	maxItems     = 3
	maxProposals = 96
	quorum       = 2
)

// state is the state of the model. It is a plain value: assigning copies it,
// and == compares.
type state struct {
	version   uint64
	hash      string           // empty if the last commit was one whose answer was lost
	items     [maxItems]uint64 // the version that changed each item last
	proposals [maxProposals]proposal
}

// proposal is a proposal on one item.
type proposal struct {
	exists, committed bool
	item              int
	itemVersion       uint64 // the version of the item when it was proposed
	approvals         uint8  // one bit per signer
}

// input is a request of a client.
type input struct {
	node     int    // which one it is sent to; the model has only one
	what     string // read, propose, approve or commit
	proposal int
	item     int // of propose
	signer   int // of approve
}

// output is the answer: done, the code of a refusal, or unknown.
type output struct {
	code    string // "" for done
	version uint64 // of read and commit
	hash    string
	count   int // of approve
}

// unknown is the code of a lost answer: it happened, or it did not.
const unknown = "?"

// model is the specification.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(s, in, out any) []any {
		return s.(state).step(in.(input), out.(output))
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}).ToModel()

// checkTimeout is how long the checker may run.
const checkTimeout = 20 * time.Second

// Check returns an error if a history of one node is not linearizable. The
// error contains all of it, for debugging.
func Check(h History) error {
	if result := porcupine.CheckOperationsTimeout(model, h, checkTimeout); result != porcupine.Ok {
		return fmt.Errorf("%d operations: %s\n%s", len(h), result, h)
	}
	return nil
}

// step returns the states that an answer may lead to; none if the answer is
// wrong.
func (s state) step(in input, out output) []any {
	switch in.what {
	case "read":
		return s.read(out)
	case "propose":
		return s.propose(in, out)
	case "approve":
		return s.approve(in, out)
	default:
		return s.commit(in, out)
	}
}

func (s state) read(out output) []any {
	if out.code != "" || out.version != s.version || s.hash != "" && s.hash != out.hash {
		return nil
	}
	s.hash = out.hash
	return []any{s}
}

func (s state) propose(in input, out output) []any {
	if out.code == unknown { // no client has its ID, so it is as if it did not exist
		return []any{s}
	}
	if out.code != "" || s.proposals[in.proposal].exists {
		return nil
	}
	s.proposals[in.proposal] = proposal{exists: true, item: in.item, itemVersion: s.items[in.item]}
	return []any{s}
}

func (s state) approve(in input, out output) []any {
	p := s.proposals[in.proposal]
	had := p.approvals&(1<<in.signer) != 0
	may := p.exists && !p.committed && !had
	after := s
	after.proposals[in.proposal].approvals |= 1 << in.signer
	switch {
	case out.code == "" && may && bits(after.proposals[in.proposal].approvals) == out.count:
		return []any{after}
	case out.code == unknown && may:
		return []any{s, after}
	case out.code == unknown,
		out.code == "DuplicateApproval" && p.exists && !p.committed && had,
		out.code == "Conflict" && p.committed:
		return []any{s}
	}
	return nil
}

func (s state) commit(in input, out output) []any {
	p := s.proposals[in.proposal]
	stale := p.committed || s.items[p.item] != p.itemVersion
	may := p.exists && !stale && bits(p.approvals) >= quorum
	switch {
	case out.code == "" && may && out.version == s.version+1:
		return []any{s.after(in.proposal, out.hash)}
	case out.code == unknown && may:
		return []any{s, s.after(in.proposal, "")}
	case out.code == unknown,
		out.code == "Conflict" && stale,
		out.code == "QuorumFailed" && p.exists && !stale && !may:
		return []any{s}
	}
	return nil
}

// after is the state after a commit.
func (s state) after(proposal int, hash string) state {
	s.version, s.hash = s.version+1, hash
	s.proposals[proposal].committed = true
	s.items[s.proposals[proposal].item] = s.version
	return s
}

func bits(set uint8) (n int) {
	for ; set != 0; set &= set - 1 {
		n++
	}
	return n
}
