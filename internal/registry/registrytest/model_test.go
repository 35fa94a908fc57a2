package registrytest

import (
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The model does reject wrong histories.
func TestTheModelSaysNo(t *testing.T) {
	op := func(call, back int64, in input, out output) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: call, Return: back}
	}
	propose := op(0, 1, input{what: "propose"}, output{})
	approve := func(at int64, signer int, code string, count int) porcupine.Operation {
		return op(at, at+1, input{what: "approve", signer: signer}, output{code: code, count: count})
	}
	approvals := History{approve(2, 0, "", 1), approve(4, 1, "", 2)}
	commit := func(at int64, code string, version uint64) porcupine.Operation {
		return op(at, at+1, input{what: "commit"}, output{code: code, version: version, hash: "h"})
	}
	read := func(at int64, version uint64, hash string) porcupine.Operation {
		return op(at, at+1, input{what: "read"}, output{version: version, hash: hash})
	}
	lost := func(o porcupine.Operation) porcupine.Operation {
		o.Return = 100
		return o
	}
	open, half := lost(commit(6, unknown, 0)), lost(approve(4, 1, unknown, 0))
	for what, history := range map[string]struct {
		after History
		want  bool
	}{
		"a commit":                      {append(approvals, commit(6, "", 1), read(8, 1, "h")), true},
		"without quorum":                {append(approvals[:1:1], commit(6, "", 1)), false},
		"twice":                         {append(approvals, commit(6, "", 1), commit(8, "", 2)), false},
		"a version left out":            {append(approvals, commit(6, "", 2)), false},
		"a head that goes back":         {append(approvals, commit(6, "", 1), read(8, 0, "g")), false},
		"another hash":                  {append(approvals, commit(6, "", 1), read(8, 1, "x")), false},
		"a conflict with nothing":       {append(approvals, commit(6, "Conflict", 0)), false},
		"a quorum that is there":        {append(approvals, commit(6, "QuorumFailed", 0)), false},
		"not known and there":           {append(approvals, open, read(8, 1, "h"), read(10, 1, "h")), true},
		"not known and not there":       {append(approvals, open, read(8, 0, "g")), true},
		"not known, there and gone":     {append(approvals, open, read(8, 1, "h"), read(10, 0, "g")), false},
		"not known, and then done":      {append(approvals, open, commit(8, "", 1)), true},
		"not known, there, and done":    {append(approvals, open, read(8, 1, "h"), commit(10, "", 2)), false},
		"not known, and two of a thing": {append(approvals, open, read(8, 1, "h"), read(10, 1, "x")), false},
		"not known without quorum":      {append(approvals[:1:1], open, read(8, 1, "h")), false},
		"approved twice":                {append(approvals, approve(6, 1, "DuplicateApproval", 0)), true},
		"approved twice, and counted":   {append(approvals, approve(6, 1, "", 3)), false},
		"counted wrong":                 {History{approve(2, 0, "", 2)}, false},
		"approved when it is committed": {append(approvals, commit(6, "", 1), approve(8, 2, "Conflict", 0)), true},
		"a conflict of approvals":       {append(approvals, approve(8, 2, "Conflict", 0)), false},
		"approved, not known":           {append(approvals[:1:1], half, commit(6, "", 1)), true},
		"not approved, not known":       {append(approvals[:1:1], half, commit(6, "QuorumFailed", 0)), true},
		"approved, and not any more":    {append(approvals[:1:1], half, approve(6, 1, "DuplicateApproval", 0), commit(8, "QuorumFailed", 0)), false},
		"proposed twice":                {History{propose}, false},
		"proposed, not known":           {History{lost(op(2, 3, input{what: "propose", proposal: 1}, output{code: unknown}))}, true},
		"a code that nobody promised":   {History{approve(2, 0, "Internal", 0)}, false},
	} {
		err := Check(append(History{propose}, history.after...))
		if (err == nil) != history.want {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && !strings.Contains(err.Error(), "what:propose") {
			t.Errorf("%s: the history is not shown: %v", what, err)
		}
	}
}
