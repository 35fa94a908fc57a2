package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"micronode/client"
)

type registryProposals struct {
	target
	printing
}

// Help is shown by registry proposals --help.
func (registryProposals) Help() string {
	return `Proposals live in the memory of the node that took them. They are gone when it stops, when they expire, and when they are committed. One that is stale cannot be committed, because the signers, or what it would change, are not what they were when it was made.

Examples:

    micronode registry proposals
    micronode registry proposals --json | jq -r '.[].proposal_id'`
}

// Run prints the open proposals, the one that expires first at the top.
func (r *registryProposals) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	list, err := node.Proposals(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b client.Proposal) int {
		if order := a.ExpiresAt.Compare(b.ExpiresAt); order != 0 {
			return order
		}
		return strings.Compare(a.ProposalID, b.ProposalID)
	})
	switch {
	case c.json:
		c.printJSON(append([]client.Proposal{}, list...))
	case len(list) == 0:
		c.remark("no proposal is open\nMake one: micronode registry propose FILE")
	default:
		c.openProposals(list)
	}
	return nil
}

func (c *console) openProposals(list []client.Proposal) {
	for i, one := range list {
		if i > 0 {
			c.print("\n")
		}
		approved := fmt.Sprintf("%d of %d", len(one.Approvals), one.Quorum.M)
		if len(one.Approvals) > 0 {
			approved += ": " + names(one.Approvals)
		}
		c.print("%s  approved %s  expires %s\n", visible([]byte(one.ProposalID)), approved, until(one.ExpiresAt, time.Now()))
		if one.Status == client.ProposalStale {
			c.print("  %s %s\n  %s\n", c.paint(yellow, "stale:"), visible([]byte(one.Reason)), visible([]byte(one.Next)))
		}
		if one.Supersedes != nil {
			c.print("  takes back version %d: %s\n", one.Supersedes.Version, visible([]byte(one.Supersedes.Reason)))
		}
		c.changes(one.Diff)
	}
}
