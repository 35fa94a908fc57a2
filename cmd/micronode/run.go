package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"micronode/internal/node"
	"micronode/internal/observe"
)

type runCommand struct {
	Admin     string        `default:"127.0.0.1:9600" help:"Address of the admin plane; port 0 picks a free one."`
	Pulse     time.Duration `default:"1s" help:"How often the node gives itself something to do; 0 for never."`
	LogFormat string        `default:"text" enum:"text,json" help:"Format of the log: text or json."`
}

// Run runs a node until it is told to stop, then prints how the drain went.
func (c *runCommand) Run(ctx context.Context) error {
	logs, err := observe.NewLogs(os.Stderr, c.LogFormat)
	if err != nil {
		return err
	}
	n, err := node.New(node.Options{Admin: c.Admin, Pulse: c.Pulse, Log: logs})
	if err != nil {
		return err
	}
	c.banner(n)
	report, err := n.Run(ctx)
	if report != nil {
		fmt.Fprint(os.Stderr, report)
	}
	return err
}

func (c *runCommand) banner(n *node.Node) {
	fmt.Printf(`micronode is running, with the admin plane on http://%[1]s

  AMNESIA: everything is gone at exit

  curl http://%[1]s/readyz            is it ready, and if not, what to do
  curl http://%[1]s/debug/inventory   every queue, lock and task
  curl http://%[1]s/metrics           the same for Prometheus

Stop it with Ctrl-C; it drains and says how that went.

`, n.AdminAddr())
}
