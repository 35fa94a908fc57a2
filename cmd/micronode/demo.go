package main

import (
	"context"

	"micronode/internal/demo"
)

type demoCommand struct {
	Nodes int  `default:"3" placeholder:"N" help:"The number of nodes to start, 3 to 9 (default ${default})."`
	Keep  bool `help:"Keep the nodes running after the last step, until Ctrl-C."`
	outputFlags
}

// Help is shown by demo --help.
func (demoCommand) Help() string {
	return `The demonstration starts real nodes on this machine, each in its own process, on free ports, connected in a chain. Each step is checked: put and name a folder on the first node, resolve it on the second, fetch it through the edge of the third; relay a message; commit a registry change with two signatures of three; kill the first node and continue with the others. Everything is in RAM. Nothing is written to disk, and nothing is left at the end.

With --json each step is one line, {"step","ok","ms","detail","command"}, and the last line is the summary.

The exit code is 0 only if every step succeeded.

Examples:

    micronode demo
    micronode demo --nodes 5
    micronode demo --keep
    micronode demo --json | jq -c '[.step, .ok, .ms]'`
}

// Run runs the demo.
func (d *demoCommand) Run(ctx context.Context, c *console) error {
	show := demo.Demo{Nodes: d.Nodes, Keep: d.Keep, Out: printWriter{c}, Err: c.err, JSON: c.json, Colours: c.colours}
	if c.outTerminal {
		show.Live = c.out // the names of steps are ours, and what makes text safe would escape the return
	}
	return show.Run(ctx)
}
