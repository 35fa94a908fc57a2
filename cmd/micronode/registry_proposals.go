package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry"
	"micronode/internal/registry/approval"
	"micronode/internal/terminal"
)

type registryPropose struct {
	File string        `arg:"" complete:"file" help:"The change, as JSON or TOML; - is standard input."`
	Base bool          `help:"Base the proposal on the current version: if another version is committed first, the proposal is void."`
	TTL  time.Duration `name:"ttl" placeholder:"DURATION" help:"The lifetime of the proposal, such as 24h. Without it, registry.proposal_ttl of the node."`
	nodeFlags
	outputFlags
}

// Help is shown by registry propose --help.
func (registryPropose) Help() string {
	return `In TOML, each [[put]] is an item to add or to replace, and each [[delete]] has the ID of one to remove:

    [[put]]
    kind = "name"
    id = "docs"
    manifest = "b3:…"

    [[put]]
    kind = "node"
    id = "edge-1"
    peer_id = "wq3…"
    addrs = ["192.0.2.1:9500"]

    [[delete]]
    id = "edge-2"

In JSON it is the request of the HTTP API: {"ops":[{"op":"put","item":{…}},{"op":"delete","id":"…"}]}. All operations are committed, or none.

Examples:

    micronode registry propose change.toml
    micronode registry propose change.json --base --ttl 24h
    jq -n '{ops: [{op: "delete", id: "edge-2"}]}' | micronode registry propose -`
}

const proposeOp = "registry.propose"

// Run proposes a change.
func (r *registryPropose) Run(ctx context.Context, c *console) error {
	want, err := c.readChange(ctx, r.File)
	if err != nil {
		return err
	}
	if ttl, err := ttlSeconds(r.TTL); err != nil {
		return err
	} else if ttl > 0 {
		want.TTL = ttl
	}
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if r.Base {
		head, err := node.RegistryHead(ctx)
		if err != nil {
			return err
		}
		want.Base = &client.RegistryBase{Version: head.Version, Hash: head.Hash}
	}
	proposal, err := node.Propose(ctx, want)
	if err != nil {
		return withSubject(proposeOp, r.File, err)
	}
	c.printProposal(proposal, r.Socket)
	return nil
}

// ttlSeconds is a lifetime as the API takes it; 0 if none was given.
func ttlSeconds(ttl time.Duration) (int64, error) {
	if ttl < 0 || ttl > 0 && ttl < time.Second {
		return 0, &fault.Error{Op: proposeOp, Kind: fault.Malformed, Detail: fmt.Sprintf("--ttl %s is not above zero", ttl),
			Next: "Give --ttl a duration such as 1h."}
	}
	return int64(ttl / time.Second), nil
}

// readChange reads a change from a file or from standard input.
func (c *console) readChange(ctx context.Context, name string) (change client.ProposalRequest, err error) {
	raw, err := c.readAll(ctx, name, approval.MaxChangeBytes)
	if err == nil {
		change, err = approval.ParseChange(name, raw)
	}
	if err != nil {
		return client.ProposalRequest{}, withSubject(proposeOp, name, err)
	}
	return change, nil
}

type registrySupersede struct {
	File   string        `arg:"" optional:"" complete:"file" help:"The replacement change, in the format of propose. Without it, the operations of the version are undone."`
	Reason string        `required:"" placeholder:"TEXT" help:"The reason. It is kept in the log."`
	TTL    time.Duration `name:"ttl" placeholder:"DURATION" help:"The lifetime of the proposal, such as 24h."`
	nodeFlags
	outputFlags
}

// Help is shown by registry supersede --help.
func (registrySupersede) Help() string {
	return `A version in the log is never changed. A wrong version is followed by one that names it and corrects it. Only the last version can be superseded, and the correction needs as many approvals as any other change.

Examples:

    micronode registry supersede --reason "the address of edge-1 was wrong"
    micronode registry supersede --reason "the address of edge-1 was wrong" right.toml`
}

// Run proposes to take back the last version.
func (r *registrySupersede) Run(ctx context.Context, c *console) error {
	want := client.SupersedeRequest{SchemaVersion: registry.SchemaVersion, Reason: r.Reason}
	var err error
	if want.TTL, err = ttlSeconds(r.TTL); err != nil {
		return err
	}
	if r.File != "" {
		change, err := c.readChange(ctx, r.File)
		if err != nil {
			return err
		}
		want.Ops = change.Ops
	}
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	head, err := node.RegistryHead(ctx)
	if err != nil {
		return err
	}
	want.Version, want.Hash = head.Version, head.Hash
	proposal, err := node.Supersede(ctx, want)
	if err != nil {
		return err
	}
	c.printProposal(proposal, r.Socket)
	return nil
}

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

type registryCommit struct {
	ID string `arg:"" help:"The ID of the proposal."`
	nodeFlags
	outputFlags
}

// Help is shown by registry commit --help.
func (registryCommit) Help() string {
	return `When the hash is printed, the version is in the log, and on disk with --persist. If there are too few approvals, or an item that the proposal touches has changed since, nothing is committed.

Example:

    micronode registry commit k7w2…`
}

// Run commits a proposal.
func (r *registryCommit) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	head, err := node.Commit(ctx, r.ID)
	if err != nil {
		return err
	}
	c.printHead(head)
	return nil
}
