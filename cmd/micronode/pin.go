package main

import (
	"context"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/terminal"
)

type pinCommand struct {
	Addresses []string `arg:"" name:"address" help:"Addresses, such as b3:af13…, or names, such as name:docs."`
	nodeFlags
	outputFlags
}

// Help is shown by pin --help.
func (pinCommand) Help() string {
	return `An object that was put without a name is pinned, and stays until it is unpinned or removed. One that was put for a name is named: it stays as long as a name stands for it. One that was fetched from another node is cached, and may be evicted. Only an object that the node has can be pinned. With the name of a folder, its manifest and all its files are.

Examples:

    micronode pin b3:af13…
    micronode pin name:docs
    micronode pin name:docs/index.html`
}

// Run pins one object after the other.
func (p *pinCommand) Run(ctx context.Context, c *console) error {
	return c.pinEach(ctx, "pin", p.nodeFlags, p.Addresses, (*client.Client).Pin, true)
}

type unpinCommand struct {
	Addresses []string `arg:"" name:"address" help:"Addresses, such as b3:af13…, or names, such as name:docs."`
	nodeFlags
	outputFlags
}

// Help is shown by unpin --help.
func (unpinCommand) Help() string {
	return `The node keeps them until it needs the space. To remove them at once, use rm.

Examples:

    micronode unpin b3:af13…
    micronode unpin name:docs`
}

// Run unpins one object after the other.
func (u *unpinCommand) Run(ctx context.Context, c *console) error {
	return c.pinEach(ctx, "unpin", u.nodeFlags, u.Addresses, (*client.Client).Unpin, false)
}

// pinOutput is the output for an object, with --json only.
type pinOutput struct {
	Address b3.Address `json:"address"`
	Pinned  bool       `json:"pinned"`
}

func (c *console) pinEach(ctx context.Context, op string, at nodeFlags, addresses []string, do func(*client.Client, context.Context, b3.Address) error, on bool) error {
	node, err := at.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.forEach(ctx, op, addresses, func(text string) error {
		all, err := addressesOf(ctx, node, text)
		if err != nil {
			return err
		}
		for _, address := range all {
			if err := do(node, ctx, address); err != nil {
				return err
			}
			if c.json {
				c.printJSON(pinOutput{address, on})
			}
		}
		return nil
	})
}

type reindexCommand struct {
	nodeFlags
	outputFlags
}

// Help is shown by reindex --help.
func (reindexCommand) Help() string {
	return `The node scans its objects, clears its cache of answers, and announces its objects again. The work continues after this command ends.

Example:

    micronode reindex`
}

// Run starts the reindexing.
func (r *reindexCommand) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	answer, err := node.Reindex(ctx)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(answer)
	} else {
		c.print("%s\n", terminal.Pluralize(answer.Objects, "object"))
	}
	return nil
}
