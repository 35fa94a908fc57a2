package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
)

type stopCommand struct {
	Reason string        `placeholder:"TEXT" help:"The reason, for the node's log."`
	Wait   time.Duration `default:"10s" placeholder:"DURATION" help:"The time to wait for its end; 0s does not wait (default ${default})."`
	nodeFlags
	outputFlags
}

// Help is shown by stop --help.
func (stopCommand) Help() string {
	return `The node drains as on SIGTERM: it refuses new work, finishes the work it has begun, and stops. In a node of several processes, only the process of this socket stops.

Examples:

    micronode stop
    micronode stop --reason "new kernel"`
}

const stopOp = "stop"

// Run stops the node, and waits until it has exited.
func (s *stopCommand) Run(ctx context.Context, c *console) error {
	node, err := s.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	before, err := node.Status(ctx)
	if err != nil {
		return err
	}
	if err := node.Shutdown(ctx, s.Reason); err != nil {
		return err
	}
	if s.Wait > 0 {
		if err := s.awaitExit(ctx, node, before); err != nil {
			return err
		}
	}
	if c.json {
		c.printJSON(map[string]any{"peer_id": before.PeerID, "ended": s.Wait > 0})
	} else if s.Wait > 0 {
		c.print("the node %s has stopped\n", before.PeerID)
	} else {
		c.print("the node %s is stopping\n", before.PeerID)
	}
	return nil
}

// isGone reports whether the node does not answer any more. A node that drains
// still answers.
func isGone(err error) bool {
	return fault.IsErrno(err, syscall.ECONNREFUSED) || fault.IsErrno(err, syscall.ENOENT)
}

// awaitExit waits until the node does not answer any more, or another one
// does.
func (s *stopCommand) awaitExit(ctx context.Context, node *client.Client, before client.Status) error {
	limited, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	for {
		now, err := node.Status(limited)
		if limited.Err() == nil && (err != nil && isGone(err) || err == nil && now.PeerID != before.PeerID) {
			return nil
		}
		if err := flow.Sleep(limited, pollInterval); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return &fault.Error{Op: stopOp, Kind: fault.Timeout, Detail: fmt.Sprintf("the node still answers after %s", s.Wait),
				Next: "Its log names what it waits for. A second SIGTERM stops it at once."}
		}
	}
}
