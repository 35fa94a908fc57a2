package main

import (
	"context"

	"micronode/b3"
)

type rmCommand struct {
	Addresses []string `arg:"" name:"address" help:"The addresses of the objects, such as b3:af13…"`
	nodeFlags
	outputFlags
}

// Help is shown by rm --help.
func (rmCommand) Help() string {
	return `Only this node removes them. Other nodes keep their copies.

Example:

    micronode rm b3:af13…`
}

// removedObject is the output for an object, with --json only.
type removedObject struct {
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
	return c.forEach(ctx, "rm", r.Addresses, func(text string) error {
		address, err := parseAddress(text)
		if err != nil {
			return err
		}
		if err := node.Delete(ctx, address); err != nil {
			return err
		}
		if c.json {
			c.printJSON(removedObject{address, true})
		}
		return nil
	})
}
