package ledger_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"time"

	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// Two of three signers agree that there is a region, and an auditor checks it.
func Example() {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	keys := map[string]ed25519.PrivateKey{}
	set := ledger.SignerSet{M: 2}
	for i, id := range []string{"alice", "bob", "carol"} {
		keys[id] = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{byte(i)}, ed25519.SeedSize)) // in production: random
		set.Keys = append(set.Keys, ledger.Signer{ID: id, Public: ledger.PublicKey(keys[id].Public().(ed25519.PublicKey))})
	}
	first, state, err := ledger.Genesis(ledger.GenesisSpec{Signers: set, Nonce: [16]byte{1}, At: at}) // in production: random
	if err != nil {
		fmt.Println(err)
		return
	}

	request, err := ledger.DecodeRequest([]byte(`{"schema_version":"1.0.0","ops":[{"op":"put","item":{"kind":"region","id":"eu","title":"Europe"}}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	proposal, err := state.Propose(request, ledger.ProposalID([16]byte{2}), at, at.Add(time.Hour)) // in production: random
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(proposal.Diff)

	var approvals []ledger.Approval
	for _, id := range []string{"alice", "carol"} {
		_, _, err := state.Commit(proposal, approvals, at)
		fmt.Println(fault.KindOf(err).Code())
		a := ledger.Approve(proposal.SignThis, keys[id], id, at)
		if err := proposal.Check(state, a, at, time.Minute); err != nil {
			fmt.Println(err)
			return
		}
		approvals = append(approvals, a)
	}
	second, state, err := state.Commit(proposal, approvals, at)
	if err != nil {
		fmt.Println(err)
		return
	}

	var stranger *ledger.State
	for _, record := range []ledger.Record{first, second} {
		if stranger, err = stranger.Apply(record); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(stranger.Head().Version, stranger.Head() == state.Head())
	// Output:
	// + region eu title Europe
	// QuorumFailed
	// QuorumFailed
	// 1 true
}
