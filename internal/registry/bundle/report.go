package bundle

import (
	"strings"

	"micronode/b3"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// Report is the result of verifying a valid bundle.
type Report struct {
	Claims  []string // what was checked and found right, a sentence each
	Caveats []string // what the reader has to know or check elsewhere

	Registry   b3.Address
	Key        string
	Checkpoint tree.Checkpoint

	Head          ledger.Head // the version and its hash
	Header        ledger.Header
	Ops           []ledger.Op
	Preconditions []ledger.Precondition
	Signers       ledger.SignerSet // the set in force when the version was approved; that of version 0 for itself
}

// String is the report for people: a line for each claim and caveat.
func (r Report) String() string {
	var b strings.Builder
	for _, c := range r.Claims {
		b.WriteString("ok    " + c + "\n")
	}
	for _, c := range r.Caveats {
		b.WriteString("note  " + c + "\n")
	}
	return b.String()
}
