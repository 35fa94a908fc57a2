package main

import (
	"context"
	"strings"

	"micronode/fault"
	"micronode/internal/node"
	"micronode/internal/terminal"
)

type doctorCommand struct {
	configFlags
	outputFlags
	Persist string `placeholder:"DIR" complete:"file" help:"Check this folder too, for a node with --persist."`
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
			c.printCheck(check)
		}
	}
	if failed > 0 {
		return fault.New("doctor", fault.NotReady, "%d of %d checks failed", failed, len(checks)).
			Advise("Follow the lines marked fail, then run micronode doctor again.")
	}
	return nil
}

// printCheck prints one check as text.
func (c *console) printCheck(check node.Check) {
	colour := map[string]terminal.Colour{node.CheckOK: terminal.Green, node.CheckWarn: terminal.Yellow, node.CheckFail: terminal.Red}[check.Status]
	pad := strings.Repeat(" ", max(0, len(node.CheckFail)-len(check.Status)))
	c.print("%s%s  %-14s %s\n", c.paint(colour, check.Status), pad, check.Name, check.Detail)
	if check.Next != "" {
		c.print("      %-14s %s\n", "", check.Next)
	}
}
