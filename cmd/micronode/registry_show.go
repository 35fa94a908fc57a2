package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"micronode/client"
)

type registryShow struct {
	Version *uint64 `arg:"" optional:"" help:"Which version. Without it, the last one."`
	target
	printing
}

// Help is shown by registry show --help.
func (registryShow) Help() string {
	return `Shown are who approved the version, what it did, and all items that there were when it was committed.

Examples:

    micronode registry show
    micronode registry show 7
    micronode registry show --json | jq '.items[] | select(.kind == "node")'`
}

// Run shows one version.
func (r *registryShow) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if r.Version == nil {
		head, err := node.RegistryHead(ctx)
		if err != nil {
			return err
		}
		r.Version = &head.Version
	}
	one, err := node.RegistryVersion(ctx, *r.Version, true)
	if err != nil {
		return err
	}
	c.version(one)
	return nil
}

func (c *console) version(one client.RegistryVersion) {
	if c.json {
		c.printJSON(one)
		return
	}
	c.print("version %d of %s\n\n", one.Version, stamp(one.CommittedAt))
	c.print("  hash      %s\n  before    %s\n  payload   %s\n", one.Hash, one.PrevHash, one.PayloadB3)
	if one.ProposalID != "" {
		c.print("  proposal  %s\n", visible([]byte(one.ProposalID)))
	}
	if one.Supersedes != nil {
		c.print("  takes back %s\n", opsReason(one.Supersedes))
	}
	if len(one.Approvals) > 0 {
		c.print("  approved  by %s; it took %d of %d\n", signersOf(one), one.SignerSet.M, len(one.SignerSet.Keys))
	}
	c.print("\nwhat it did\n")
	for _, op := range one.Ops {
		c.print("  %s\n", opText(op))
	}
	c.print("\nwhat there is (%s)\n", counted(len(one.Items), "item"))
	for _, item := range one.Items {
		c.print("  %s\n", itemLine(item))
		keys := keysOf(membersOf(item))
		for _, signer := range slices.Sorted(maps.Keys(keys)) {
			c.print("    %s  %s\n", signer, keys[signer])
		}
	}
}

// opsReason says which version was taken back, and why.
func opsReason(s *client.Superseded) string {
	return fmt.Sprintf("version %d: %s", s.Version, visible([]byte(s.Reason)))
}
