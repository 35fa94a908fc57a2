package peers

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"time"

	"micronode/bench/ground"
)

// Crowd is a node of ours, and another process that holds many sessions with it
// and says nothing.
type Crowd struct {
	node  *ground.Process
	crowd *ground.Process
	empty int64 // what the node held before anybody came
}

// StartCrowd opens all sessions.
func StartCrowd(ctx context.Context, g *ground.Ground, sessions int) (*Crowd, error) {
	binary, err := buildOverlay(ctx, g)
	if err != nil {
		return nil, err
	}
	visitors, err := g.Build(ctx, "crowd", "bench", "./peers/crowd")
	if err != nil {
		return nil, err
	}
	// A few more than there are: one that leaves and one that comes may overlap.
	node, address, err := startReady(ctx, g, "overlay listen", binary, "-role", "listen", "-sessions", strconv.Itoa(sessions+100))
	if err != nil {
		return nil, err
	}
	c := &Crowd{node: node}
	if c.empty, err = node.RSS(); err != nil {
		return nil, err
	}
	if c.crowd, err = g.StartPiped("crowd", nil, visitors, "-listener", address, "-sessions", strconv.Itoa(sessions)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, filling)
	defer cancel()
	_, err = c.crowd.Await(ctx, carrierReady)
	return c, err
}

// filling is how long the crowd may take to come: every handshake costs both
// sides about a millisecond.
const filling = 5 * time.Minute

// Held is the memory that the node holds for its sessions.
func (c *Crowd) Held() (int64, error) {
	held, err := c.node.RSS()
	return held - c.empty, err
}

// Churn replaces sessions for a while. A session that the node has ended by
// itself is an error.
func (c *Crowd) Churn(ctx context.Context, length time.Duration) error {
	if _, err := fmt.Fprintln(c.crowd.Input, length); err != nil {
		return err
	}
	type result struct {
		replaced, lost int
		err            error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		_, r.err = fmt.Fscanln(bufio.NewReader(c.crowd.Reports), &r.replaced, &r.lost)
		done <- r
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case r := <-done:
		if r.err == nil && r.lost > 0 {
			r.err = fmt.Errorf("the node ended %d sessions that had done nothing wrong", r.lost)
		}
		return r.err
	}
}
