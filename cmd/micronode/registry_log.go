package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"micronode/client"
	"micronode/fault"
)

type registryLog struct {
	Count uint `short:"n" default:"20" placeholder:"N" help:"How many versions to show, ${default} unless said otherwise; 0 for all."`
	target
	printing
}

// Help is shown by registry log --help.
func (registryLog) Help() string {
	return `A line is the version, when it was committed, the beginning of its hash, who approved it, and what it touched. With --json it is the version as the node has it, without the items, one document a line.

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
	for n, version := uint(0), head.Version; c.unwritten == nil && (r.Count == 0 || n < r.Count); n, version = n+1, version-1 {
		one, err := node.RegistryVersion(ctx, version, false)
		if n > 0 && errors.Is(err, fault.Expired) {
			c.remark("versions before this one were pruned")
			return nil
		}
		if err != nil {
			return err
		}
		c.logLine(one)
		if version == 0 {
			return nil
		}
	}
	return nil
}

func (c *console) logLine(one client.RegistryVersion) {
	if c.json {
		c.printJSON(one)
		return
	}
	c.print("%d  %s  %s  %s  %s\n", one.Version, stamp(one.CommittedAt), shortHash(one.Hash), signersOf(one), opsLine(one))
}

// signersOf says who approved a version. The log has them in the order of their
// keys, which says nothing to anybody.
func signersOf(one client.RegistryVersion) string {
	if len(one.Approvals) == 0 {
		return "(genesis)"
	}
	var list []string
	for _, approval := range one.Approvals {
		list = append(list, approval.SignerID)
	}
	slices.Sort(list)
	return names(list)
}

// mostOps is how many operations a line names.
const mostOps = 4

// opsLine says what a version touched.
func opsLine(one client.RegistryVersion) string {
	var parts []string
	for _, op := range one.Ops[:min(len(one.Ops), mostOps)] {
		parts = append(parts, opText(op))
	}
	if more := len(one.Ops) - mostOps; more > 0 {
		parts = append(parts, counted(more, "more operation"))
	}
	line := strings.Join(parts, ", ")
	if one.Supersedes != nil {
		line += " (takes back " + opsReason(one.Supersedes) + ")"
	}
	return line
}

// opText names an operation: put node edge-1.
func opText(raw json.RawMessage) string {
	op := membersOf(raw)
	if item, ok := op["item"].(map[string]any); ok {
		return text(op["op"]) + " " + titleOf(item["kind"], item["id"])
	}
	return text(op["op"]) + " " + text(op["id"])
}
