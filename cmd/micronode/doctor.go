package main

import (
	"context"
	"strings"

	"micronode/fault"
	"micronode/internal/node"
)

type doctorCommand struct {
	setup
	printing
	Persist string `placeholder:"DIR" complete:"file" help:"Look at this folder, too: can a node keep things there?"`
}

// Help is shown by doctor --help.
func (doctorCommand) Help() string {
	return `Each line is ok, warn or fail. A fail is an error; a warning is not.

Example:

    micronode doctor --config micronode.toml --persist ~/node`
}

// Run checks the machine.
func (d *doctorCommand) Run(ctx context.Context, c *console) error {
	loaded, err := d.load()
	if err != nil {
		return err
	}
	checks := node.Doctor(ctx, loaded.Value, d.Persist)
	if c.json {
		c.printJSON(checks)
	}
	failed := 0
	for _, check := range checks {
		if check.Status == node.CheckFail {
			failed++
		}
		if !c.json {
			c.finding(check)
		}
	}
	if failed > 0 {
		err := fault.New("doctor", fault.NotReady, "%d of %d checks failed", failed, len(checks))
		err.Next = "Do what the lines marked fail say, then run micronode doctor again."
		return err
	}
	return nil
}

// finding shows a check to a person.
func (c *console) finding(check node.Check) {
	colour := map[string]string{node.CheckOK: green, node.CheckWarn: yellow, node.CheckFail: red}[check.Status]
	pad := strings.Repeat(" ", max(0, len(node.CheckFail)-len(check.Status)))
	c.print("%s%s  %-14s %s\n", c.paint(colour, check.Status), pad, check.Name, check.Detail)
	if check.Next != "" {
		c.print("      %-14s %s\n", "", check.Next)
	}
}
