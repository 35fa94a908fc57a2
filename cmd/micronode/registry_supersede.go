package main

import (
	"context"
	"time"

	"micronode/client"
)

type registrySupersede struct {
	File   string        `arg:"" optional:"" complete:"file" help:"What to do instead, as propose takes it. Without it, what the version did is undone."`
	Reason string        `required:"" placeholder:"TEXT" help:"Why. The log keeps it."`
	TTL    time.Duration `name:"ttl" placeholder:"DURATION" help:"How long it may wait for approvals, such as 24h."`
	target
	printing
}

// Help is shown by registry supersede --help.
func (registrySupersede) Help() string {
	return `Nothing is ever removed from the log. A version that was a mistake is followed by one that says so and puts things right. Only the last version can be superseded, and it takes as many approvals as any other change.

Examples:

    micronode registry supersede --reason "the address of edge-1 was wrong"
    micronode registry supersede --reason "the address of edge-1 was wrong" right.toml`
}

// Run proposes to take back the last version.
func (r *registrySupersede) Run(ctx context.Context, c *console) error {
	want := client.SupersedeRequest{SchemaVersion: schemaVersion, Reason: r.Reason}
	var err error
	if want.TTL, err = seconds(r.TTL); err != nil {
		return err
	}
	if r.File != "" {
		request, err := c.readRequest(ctx, r.File)
		if err != nil {
			return err
		}
		want.Ops = request.Ops
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
	c.proposed(proposal, r.Socket)
	return nil
}
