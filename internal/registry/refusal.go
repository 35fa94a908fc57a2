package registry

import "micronode/fault"

// notInitialised is the error of a registry that has no version yet.
func notInitialised(op string) error {
	return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "this node has no registry yet",
		Next: "Create one with `micronode registry init --m 2 --key alice.pub --key bob.pub --key carol.pub`."}
}

// staleProposal is the error for a proposal that was made before the signers changed.
func staleProposal(op string) error {
	return &fault.Error{Op: op, Kind: fault.Conflict, Detail: "the signers have changed since this was proposed, so that its approvals are void",
		Next: "Propose it again, and have it signed by the current signers."}
}
