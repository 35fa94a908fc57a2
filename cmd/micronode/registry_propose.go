package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/approval"
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

// readAll reads a small file, or standard input, to its end.
func (c *console) readAll(ctx context.Context, name string, most int) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil, &fault.Error{Op: openOp, Kind: fault.Malformed, Detail: "it is a folder", Next: "Name a file."}
	}
	source, _, err := c.open(name)
	if name == "-" {
		source, err = c.openStdin(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer source.Close()
	raw, err := io.ReadAll(io.LimitReader(source, int64(most)+1))
	if err != nil {
		return nil, newOpenError(err)
	}
	if len(raw) > most {
		return nil, &fault.Error{Op: openOp, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("it has more than %d bytes", most),
			Next: "Check that it is the right file. Split a large change into several proposals."}
	}
	return raw, nil
}
