package main

import (
	"context"
	"errors"
	"time"

	"micronode/client"
	"micronode/fault"
)

type eventsCommand struct {
	Count uint `placeholder:"N" help:"Stop after N events."`
	nodeFlags
	outputFlags
}

// Help is shown by events --help.
func (eventsCommand) Help() string {
	return `Each line is the time, the event and its subject: peers that connect and disconnect, restarted services, reloaded configuration, new registry versions, readiness, refused clients and peers. It starts with the next event; earlier ones are in the log. Ctrl-C stops it.

Examples:

    micronode events
    micronode events --json | jq -r 'select(.type == "auth_failure") | .name'`
}

// Run prints events until the count is reached or the stream ends.
func (e *eventsCommand) Run(ctx context.Context, c *console) error {
	node, err := e.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	in, err := node.WatchNode(ctx)
	if err != nil {
		return err
	}
	defer in.Close()
	if c.errTerminal {
		c.notice("waiting for events; Ctrl-C stops it")
	}
	err = e.follow(ctx, c, in)
	if ctx.Err() != nil && e.Count == 0 {
		return nil // it was interrupted
	}
	return err
}

func (e *eventsCommand) follow(ctx context.Context, c *console, in *client.NodeWatch) error {
	for seen := uint(0); e.Count == 0 || seen < e.Count; seen++ {
		event, err := in.Next(ctx)
		if _, behind := errors.AsType[*client.Lagged](err); behind {
			c.reportError(&fault.Error{Op: "events", Kind: fault.Lagging, Detail: "events were lost: the reader is too slow", Err: reportedError{err},
				Next: "See the current state: micronode status"})
			continue
		}
		if err != nil {
			return err
		}
		printEvent(c, event)
		if c.outputErr != nil {
			return nil
		}
	}
	return nil
}

func printEvent(c *console, event client.NodeEvent) {
	if c.json {
		c.printJSON(event)
		return
	}
	line := event.At.Local().Format(time.TimeOnly) + "  " + sanitize([]byte(event.Type))
	for _, more := range []string{event.Name, event.Detail} {
		if more != "" {
			line += "  " + sanitize([]byte(more))
		}
	}
	c.print("%s\n", line)
}
