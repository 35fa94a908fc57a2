package main

import (
	"context"
	"time"

	"micronode/client"
	"micronode/internal/registry"
)

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
