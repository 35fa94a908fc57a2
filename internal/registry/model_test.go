package registry

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// This file is the registry as a few lines of arithmetic: what its clients may
// see of it when they all talk at once. It knows nothing of the code that it is
// held against.

// What the model has room for.
const (
	modelItems     = 3
	modelProposals = 96
	modelQuorum    = 2
)

// modelState is everything that matters. It is a plain value: copying it makes
// another one, and == compares.
type modelState struct {
	version   uint64
	hash      string             // empty if the last commit was one whose answer was lost
	items     [modelItems]uint64 // the version that changed each item last
	proposals [modelProposals]modelProposal
}

// modelProposal is a proposal on one item.
type modelProposal struct {
	there, committed bool
	item             int
	found            uint64 // what the item was when it was proposed
	approvals        uint8  // one bit a signer
}

// modelInput is what a client asks for.
type modelInput struct {
	what     string // read, propose, approve or commit
	proposal int
	item     int // of propose
	signer   int // of approve
}

// modelOutput is what it was told: that it was done, the code of a refusal, or
// that nobody knows.
type modelOutput struct {
	code    string // "" for done, "?" for not known
	version uint64 // of read and commit
	hash    string
	count   int // of approve
}

// model is the specification.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{modelState{}} },
	Step: func(state, input, output any) []any {
		return modelStep(state.(modelState), input.(modelInput), output.(modelOutput))
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}).ToModel()

// modelStep returns the states that an answer may leave; none if it must not be
// given.
func modelStep(s modelState, in modelInput, out modelOutput) []any {
	switch in.what {
	case "read":
		return s.read(out)
	case "propose":
		if out.code != "" || s.proposals[in.proposal].there {
			return nil
		}
		s.proposals[in.proposal] = modelProposal{there: true, item: in.item, found: s.items[in.item]}
		return []any{s}
	case "approve":
		return s.approve(in, out)
	default:
		return s.commit(in, out)
	}
}

func (s modelState) read(out modelOutput) []any {
	if out.code != "" || out.version != s.version || s.hash != "" && s.hash != out.hash {
		return nil
	}
	s.hash = out.hash
	return []any{s}
}

func (s modelState) approve(in modelInput, out modelOutput) []any {
	p := &s.proposals[in.proposal]
	had := p.approvals&(1<<in.signer) != 0
	allowed := map[string]bool{
		"":                  p.there && !p.committed && !had,
		"DuplicateApproval": p.there && !p.committed && had,
		"Conflict":          p.committed,
	}
	if !allowed[out.code] {
		return nil
	}
	if out.code == "" {
		if p.approvals |= 1 << in.signer; bits(p.approvals) != out.count {
			return nil
		}
	}
	return []any{s}
}

func (s modelState) commit(in modelInput, out modelOutput) []any {
	p := s.proposals[in.proposal]
	stale := p.committed || s.items[p.item] != p.found
	may := p.there && !stale && bits(p.approvals) >= modelQuorum
	switch out.code {
	case "":
		if !may || out.version != s.version+1 {
			return nil
		}
		return []any{s.after(in.proposal, out.hash)}
	case "?": // it happened, or it did not
		if may {
			return []any{s, s.after(in.proposal, "")}
		}
		return []any{s}
	case "Conflict":
		if stale {
			return []any{s}
		}
	case "QuorumFailed":
		if p.there && !stale && !may {
			return []any{s}
		}
	}
	return nil
}

// after is the state after a commit.
func (s modelState) after(proposal int, hash string) modelState {
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
