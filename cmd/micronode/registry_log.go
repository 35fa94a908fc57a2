package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/terminal"
)

type registryLog struct {
	Count uint `short:"n" default:"20" placeholder:"N" help:"The number of versions to show; 0 for all (default ${default})."`
	nodeFlags
	outputFlags
}

// Help is shown by registry log --help.
func (registryLog) Help() string {
	return `Each line is the version, its time, the start of its hash, its approvers, and the items it changed. With --json each line is the version as the node stores it, without the items.

Examples:

    micronode registry log
    micronode registry log -n 0 --json`
}

// Run prints the newest versions.
func (r *registryLog) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	head, err := node.RegistryHead(ctx)
	if err != nil {
		return err
	}
	for n, version := uint(0), head.Version; c.outputErr == nil && (r.Count == 0 || n < r.Count); n, version = n+1, version-1 {
		one, err := node.RegistryVersion(ctx, version, false)
		if n > 0 && errors.Is(err, fault.Expired) {
			c.notice("versions before this one were pruned")
			return nil
		}
		if err != nil {
			return err
		}
		c.printLogLine(one)
		if version == 0 {
			return nil
		}
	}
	return nil
}

func (c *console) printLogLine(one client.RegistryVersion) {
	if c.json {
		c.printJSON(one)
		return
	}
	c.print("%d  %s  %s  %s  %s\n", one.Version, formatTime(one.CommittedAt), shortHash(one.Hash), approversOf(one), formatOps(one))
}

// approversOf lists the approvers of a version. The log has them in the order
// of their keys, which has no meaning for a reader.
func approversOf(one client.RegistryVersion) string {
	if len(one.Approvals) == 0 {
		return "(genesis)"
	}
	var list []string
	for _, approval := range one.Approvals {
		list = append(list, approval.SignerID)
	}
	slices.Sort(list)
	return joinNames(list)
}

// maxOpsShown is how many operations a line shows.
const maxOpsShown = 4

// formatOps describes the operations of a version.
func formatOps(one client.RegistryVersion) string {
	var parts []string
	for _, op := range one.Ops[:min(len(one.Ops), maxOpsShown)] {
		parts = append(parts, formatOp(op))
	}
	if more := len(one.Ops) - maxOpsShown; more > 0 {
		parts = append(parts, terminal.Pluralize(more, "more operation"))
	}
	line := strings.Join(parts, ", ")
	if one.Supersedes != nil {
		line += " (takes back " + formatSuperseded(one.Supersedes) + ")"
	}
	return line
}

// formatOp describes an operation: put node edge-1.
func formatOp(raw json.RawMessage) string {
	op := decodeObject(raw)
	if item, ok := op["item"].(map[string]any); ok {
		return formatValue(op["op"]) + " " + itemTitle(item["kind"], item["id"])
	}
	return formatValue(op["op"]) + " " + formatValue(op["id"])
}
