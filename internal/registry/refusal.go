package registry

import "micronode/fault"

// notInitialised is what a registry says that has no version yet.
func notInitialised(op string) error {
	return &fault.Error{Op: op, Kind: fault.NotFound, Detail: "there is no registry here yet",
		Next: "Begin one with `micronode registry init --m 2 --key alice.pub --key bob.pub --key carol.pub`."}
}

// stale is what becomes of a proposal when the signers change.
func stale(op string) error {
	return &fault.Error{Op: op, Kind: fault.Conflict, Detail: "the signers have changed since this was proposed, so approvals of it do not count any more",
		Next: "Propose it again, and have it signed by those who are signers now."}
}
