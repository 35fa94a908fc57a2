package peers

import (
	"bufio"
	"context"
	"fmt"
	"regexp"
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
	visitors, err := g.Build(ctx, "crowd", "bench", "./peers/crowd")
	if err != nil {
		return nil, err
	}
	node, err := launchMicronode(ctx, g, []string{
		"MICRO_OVERLAY__OPEN=true", "MICRO_OVERLAY__HANDSHAKE_RATE=1000000",
		"MICRO_OVERLAY__MAX_CONNS=" + strconv.Itoa(sessions+100), // one that leaves and one that comes may overlap
		"MICRO_AMNESIA__PURGE_INTERVAL_MS=5000",                  // it gives memory back after five seconds, not after thirty: the bench is in a hurry
	}, "--overlay", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if err := node.ready(ctx); err != nil {
		return nil, err
	}
	address, err := node.process.Await(ctx, bannerContact)
	if err != nil {
		return nil, err
	}
	c := &Crowd{node: node.process}
	if c.empty, err = c.node.RSS(); err != nil {
		return nil, err
	}
	if c.crowd, err = g.StartPiped("crowd", nil, visitors, "-listener", address[0], "-sessions", strconv.Itoa(sessions)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, filling)
	defer cancel()
	_, err = c.crowd.Await(ctx, carrierReady)
	return c, err
}

// bannerContact finds what other nodes call the node by.
var bannerContact = regexp.MustCompile(`[a-z2-7]{52}@127\.0\.0\.1:\d+`)

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
