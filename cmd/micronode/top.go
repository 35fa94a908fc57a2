package main

import (
	"context"
	"os"
	"syscall"
	"time"

	"micronode/fault"
	"micronode/internal/top"
)

type topCommand struct {
	Interval time.Duration `placeholder:"DURATION" help:"The interval between samples (default 1s)."`
	Once     bool          `help:"Print one view and exit."`
	nodeFlags
	outputFlags
}

// Help is shown by top --help.
func (topCommand) Help() string {
	return `A live view of the node: readiness and next steps, stored objects, messages, sessions, memory, parts in other processes, refusals, requests by route, queues, services. Rates are those since the last sample. q and Ctrl-C stop it. If the node disconnects, the view says so and reconnects.

In a pipe there is one view, unless --interval is given. With --json each view is an object on its own line. One view takes two samples, an interval apart.

On the node's machine it uses the local socket. With MICRO_URL it needs a token in MICRO_TOKEN, and for the rates, which come from /metrics, one with the scope admin.

Examples:

    micronode top
    micronode top --once
    micronode top --json --interval 5s | jq '.routes[0]'`
}

const (
	defaultInterval = time.Second
	minInterval     = 10 * time.Millisecond
)

// Run shows the state of the node until it is interrupted.
func (t *topCommand) Run(ctx context.Context, c *console) error {
	interval := t.Interval
	if interval == 0 {
		interval = defaultInterval
	}
	if interval < minInterval {
		return &fault.Error{Op: "top", Kind: fault.Malformed, Detail: "an interval of " + interval.String() + " is too short",
			Next: "Use " + minInterval.String() + " or more."}
	}
	node, err := t.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	w := top.NewWatcher(node, interval)
	live := c.outTerminal && os.Getenv("TERM") != "dumb" // a terminal that cannot move its cursor is treated as a pipe
	switch {
	case t.Once, !live && t.Interval == 0:
		view, err := w.Once(ctx)
		if err == nil {
			c.printView(view)
		}
		return err
	case live && !c.json:
		return c.watch(ctx, w)
	default:
		return w.Each(ctx, func(view top.View) bool {
			c.printView(view)
			return c.outputErr == nil
		})
	}
}

func (c *console) printView(view top.View) {
	if c.json {
		c.printJSON(view)
		return
	}
	for _, line := range view.Lines(c.colours, 0, 0) {
		c.print("%s\n", line)
	}
}

// watch draws the view on the terminal. A terminal that hangs up ends it.
func (c *console) watch(ctx context.Context, w *top.Watcher) error {
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	stop, err := onSignals(func(os.Signal) { hangUp() }, syscall.SIGHUP)
	if err != nil {
		return err
	}
	defer stop()
	screen := top.Screen{Out: c.out, Colours: c.colours, OnStart: func(restore func()) { c.restoreTerminal.Store(&restore) }}
	if c.inTerminal {
		screen.In = c.in
	}
	defer c.restoreTerminal.Store(nil)
	return w.Watch(ctx, screen)
}
