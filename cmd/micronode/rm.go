package main

import (
	"context"

	"micronode/b3"
)

type rmCommand struct {
	Addresses []string `arg:"" name:"address" help:"The addresses of the objects, such as b3:af13…"`
	target
	printing
}

// Help is shown by rm --help.
func (rmCommand) Help() string {
	return `Only this node forgets them. Other nodes that have them keep them.

Example:

    micronode rm b3:af13…`
}

// removed is what is printed for an object, with --json only.
type removed struct {
	Address b3.Address `json:"address"`
	Removed bool       `json:"removed"`
}

// Run removes one object after the other.
func (r *rmCommand) Run(ctx context.Context, c *console) error {
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return c.each(ctx, "rm", r.Addresses, func(text string) error {
		address, err := parseAddress(text)
		if err != nil {
			return err
		}
		if err := node.Delete(ctx, address); err != nil {
			return err
		}
		if c.json {
			c.printJSON(removed{address, true})
		}
		return nil
	})
}
