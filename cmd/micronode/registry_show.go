package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"micronode/client"
	"micronode/internal/terminal"
)

type registryShow struct {
	Version *uint64 `arg:"" optional:"" help:"The version. Without it, the last one."`
	nodeFlags
	outputFlags
}

// Help is shown by registry show --help.
func (registryShow) Help() string {
	return `The output is the approvals of the version, its operations, and all items as of its commit.

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
	c.printVersion(one)
	return nil
}

func (c *console) printVersion(one client.RegistryVersion) {
	if c.json {
		c.printJSON(one)
		return
	}
	c.print("version %d of %s\n\n", one.Version, formatTime(one.CommittedAt))
	c.print("  hash      %s\n  before    %s\n  payload   %s\n", one.Hash, one.PrevHash, one.PayloadB3)
	if one.ProposalID != "" {
		c.print("  proposal  %s\n", sanitize([]byte(one.ProposalID)))
	}
	if one.Supersedes != nil {
		c.print("  takes back %s\n", formatSuperseded(one.Supersedes))
	}
	if len(one.Approvals) > 0 {
		c.print("  approved  by %s; quorum %d of %d\n", approversOf(one), one.SignerSet.M, len(one.SignerSet.Keys))
	}
	c.print("\noperations\n")
	for _, op := range one.Ops {
		c.print("  %s\n", formatOp(op))
	}
	c.print("\ncontents (%s)\n", terminal.Pluralize(len(one.Items), "item"))
	for _, item := range one.Items {
		c.print("  %s\n", formatItem(item))
		keys := signerKeysOf(decodeObject(item))
		for _, signer := range slices.Sorted(maps.Keys(keys)) {
			c.print("    %s  %s\n", signer, keys[signer])
		}
	}
}

// formatSuperseded names the version that was taken back, and the reason.
func formatSuperseded(s *client.Superseded) string {
	return fmt.Sprintf("version %d: %s", s.Version, sanitize([]byte(s.Reason)))
}
