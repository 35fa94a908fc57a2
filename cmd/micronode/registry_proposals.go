package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"micronode/client"
	"micronode/internal/terminal"
)

type registryProposals struct {
	nodeFlags
	outputFlags
}

// Help is shown by registry proposals --help.
func (registryProposals) Help() string {
	return `The node that received a proposal holds it in memory, until it is committed, it expires, or the node stops. A stale proposal cannot be committed, because the signers or the items that it changes have changed since.

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
		c.notice("no proposal is open\nSubmit one: micronode registry propose FILE")
	default:
		c.printProposals(list)
	}
	return nil
}

func (c *console) printProposals(list []client.Proposal) {
	for i, one := range list {
		if i > 0 {
			c.print("\n")
		}
		approved := fmt.Sprintf("%d of %d", len(one.Approvals), one.Quorum.M)
		if len(one.Approvals) > 0 {
			approved += ": " + joinNames(one.Approvals)
		}
		c.print("%s  approved %s  expires %s\n", sanitize([]byte(one.ProposalID)), approved, formatRemaining(one.ExpiresAt, time.Now()))
		if one.Status == client.ProposalStale {
			c.print("  %s %s\n  %s\n", c.paint(terminal.Yellow, "stale:"), sanitize([]byte(one.Reason)), sanitize([]byte(one.Next)))
		}
		if one.Supersedes != nil {
			c.print("  takes back version %d: %s\n", one.Supersedes.Version, sanitize([]byte(one.Supersedes.Reason)))
		}
		c.printChanges(one.Diff)
	}
}
