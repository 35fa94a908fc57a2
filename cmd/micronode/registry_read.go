package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/terminal"
)

type registryHead struct {
	nodeFlags
	outputFlags
}

// Help is shown by registry head --help.
func (registryHead) Help() string {
	return `Examples:

    micronode registry head
    micronode registry head --json | jq -r .hash`
}

// Run prints the head of the log.
func (h *registryHead) Run(ctx context.Context, c *console) error {
	node, err := h.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	head, err := node.RegistryHead(ctx)
	if err != nil {
		return err
	}
	c.printHead(head)
	return nil
}

func (c *console) printHead(head client.RegistryHead) {
	if c.json {
		c.printJSON(head)
		return
	}
	c.print("version    %d\nhash       %s\npayload    %s\ncommitted  %s\n", head.Version, head.Hash, head.PayloadB3, formatTime(head.CommittedAt))
}

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
	for _, raw := range one.Items {
		item := decodeObject(raw)
		c.print("  %s%s\n", itemTitle(item["kind"], item["id"]), formatMembers(item))
		keys := signerKeysOf(item)
		for _, signer := range slices.Sorted(maps.Keys(keys)) {
			c.print("    %s  %s\n", signer, keys[signer])
		}
	}
}

// formatSuperseded names the version that was taken back, and the reason.
func formatSuperseded(s *client.Superseded) string {
	return fmt.Sprintf("version %d: %s", s.Version, sanitize([]byte(s.Reason)))
}

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

type registryBundle struct {
	Version uint64 `arg:"" help:"The version."`
	Output  string `short:"o" placeholder:"PATH" complete:"file" help:"Write it to this file instead of standard output."`
	nodeFlags
	outputFlags
}

// Help is shown by registry bundle --help.
func (registryBundle) Help() string {
	return `A bundle is one version with its proofs: its approvals, the history of the signers, and its inclusion proof in the log that the last checkpoint signs. It is verified without a node.

Examples:

    micronode registry bundle 7 -o version-7.json
    micronode registry verify version-7.json --registry b3:… --log-key …`
}

// bundleOutput is the output for a bundle that was written to a file.
type bundleOutput struct {
	Version uint64 `json:"version"`
	File    string `json:"file"`
	Size    int    `json:"size"`
}

// Run exports one version.
func (r *registryBundle) Run(ctx context.Context, c *console) error {
	const op = "registry.bundle"
	toStdout := r.Output == "" || r.Output == "-"
	if toStdout && c.json {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "--json and the bundle cannot both go to standard output",
			Next: "Name a file for the bundle with -o PATH."}
	}
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	raw, err := node.RegistryBundle(ctx, r.Version)
	if err != nil {
		return err
	}
	if toStdout {
		c.print("%s", raw)
		return nil
	}
	if err := writeFileAtomic(op, r.Output, raw, publicMode); err != nil {
		return err
	}
	if c.json {
		c.printJSON(bundleOutput{r.Version, r.Output, len(raw)})
	} else {
		c.print("%s  %s\n", r.Output, fmt.Sprintf("%d bytes", len(raw)))
	}
	return nil
}
