package client_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"time"

	"micronode/client"
)

// A change is proposed, approved by two signers, and committed.
func ExampleClient_Propose() {
	node, registry := client.NewFakeNode(), &client.FakeRegistry{}
	node.Before = registry.Serve
	url, stop := start(node)
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	proposal, err := c.Propose(ctx, client.ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{
		json.RawMessage(`{"op":"delete","id":"edge-2"}`),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, signer := range []string{"alice", "bob"} {
		key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // in production, each signer has its own key
		_, err := c.Approve(ctx, proposal.ProposalID, client.Approval{
			SignerID: signer, Algo: "ed25519", Sig: ed25519.Sign(key, proposal.SignThis), SignedAt: time.Now(),
		})
		fmt.Println("approval", i+1, err)
	}
	head, err := c.Commit(ctx, proposal.ProposalID)
	fmt.Println("version", head.Version, err)
	// Output:
	// approval 1 <nil>
	// approval 2 <nil>
	// version 0 <nil>
}
