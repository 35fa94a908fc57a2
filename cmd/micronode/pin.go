package main

import (
	"context"

	"micronode/b3"
	"micronode/client"
)

type pinCommand struct {
	Addresses []string `arg:"" name:"address" help:"The addresses of the objects, such as b3:af13…"`
	target
	printing
}

// Help is shown by pin --help.
func (pinCommand) Help() string {
	return `What was put is pinned; what was fetched from others is not, because it can be had again, and goes when the node needs the room. Only an object that the node has can be pinned. Of a folder, each file is an object of its own.

Examples:

    micronode pin b3:af13…
    micronode get name:docs --json | jq -r '.entries[].address' | xargs micronode pin`
}

// Run pins one object after the other.
func (p *pinCommand) Run(ctx context.Context, c *console) error {
	return c.pin(ctx, "pin", p.target, p.Addresses, (*client.Client).Pin, true)
}

type unpinCommand struct {
	Addresses []string `arg:"" name:"address" help:"The addresses of the objects, such as b3:af13…"`
	target
	printing
}

// Help is shown by unpin --help.
func (unpinCommand) Help() string {
	return `The node keeps them until it needs the room. To remove them at once, use rm.

Example:

    micronode unpin b3:af13…`
}

// Run unpins one object after the other.
func (u *unpinCommand) Run(ctx context.Context, c *console) error {
	return c.pin(ctx, "unpin", u.target, u.Addresses, (*client.Client).Unpin, false)
}

// pinned is what is printed for an object, with --json only.
type pinned struct {
	Address b3.Address `json:"address"`
	Pinned  bool       `json:"pinned"`
}

func (c *console) pin(ctx context.Context, op string, at target, addresses []string, do func(*client.Client, context.Context, b3.Address) error, on bool) error {
	node, err := at.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.each(ctx, op, addresses, func(text string) error {
		address, err := parseAddress(text)
		if err != nil {
			return err
		}
		if err := do(node, ctx, address); err != nil {
			return err
		}
		if c.json {
			c.printJSON(pinned{address, on})
		}
		return nil
	})
}

type reindexCommand struct {
	target
	printing
}

// Help is shown by reindex --help.
func (reindexCommand) Help() string {
	return `The node looks through all objects that it has, forgets what it remembers of others, and announces its own again. It goes on after this command has ended.

Example:

    micronode reindex`
}

// Run starts it.
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
		c.print("%s\n", counted(answer.Objects, "object"))
	}
	return nil
}
