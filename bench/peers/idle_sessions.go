package peers

import (
	"bufio"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"micronode/bench/testbed"
)

// IdleSessions is a node of ours, and another process that holds many idle
// sessions with it.
type IdleSessions struct {
	node     *testbed.Process
	holder   *testbed.Process
	baseline int64 // the node's memory before the first session
}

// StartIdleSessions opens all sessions.
func StartIdleSessions(ctx context.Context, g *testbed.Testbed, sessions int) (*IdleSessions, error) {
	visitors, err := g.Build(ctx, "sessions", "bench", "./peers/sessions")
	if err != nil {
		return nil, err
	}
	node, err := launchMicronode(ctx, g, []string{
		"MICRO_OVERLAY__OPEN=true", "MICRO_OVERLAY__HANDSHAKE_RATE=1000000",
		"MICRO_OVERLAY__MAX_CONNS=" + strconv.Itoa(sessions+100), // a session that closes and one that opens may overlap
		"MICRO_AMNESIA__PURGE_INTERVAL_MS=5000",                  // it returns memory after five seconds, not after thirty, to shorten the bench
	}, "--overlay", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if err := node.awaitReady(ctx); err != nil {
		return nil, err
	}
	address, err := node.process.Await(ctx, bannerPeer)
	if err != nil {
		return nil, err
	}
	c := &IdleSessions{node: node.process}
	if c.baseline, err = c.node.RSS(); err != nil {
		return nil, err
	}
	if c.holder, err = g.StartPiped("sessions", nil, visitors, "-listener", address[0], "-sessions", strconv.Itoa(sessions)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	_, err = c.holder.Await(ctx, readyLine)
	return c, err
}

// bannerPeer finds the address by which other nodes dial the node.
var bannerPeer = regexp.MustCompile(`[a-z2-7]{52}@127\.0\.0\.1:\d+`)

// fillTimeout is how long opening the sessions may take: every handshake costs
// both sides about a millisecond.
const fillTimeout = 5 * time.Minute

// MemoryBytes is the memory that the node holds for its sessions.
func (i *IdleSessions) MemoryBytes() (int64, error) {
	held, err := i.node.RSS()
	return held - i.baseline, err
}

// Churn replaces sessions for a while. A session that the node has closed is an
// error.
func (i *IdleSessions) Churn(ctx context.Context, length time.Duration) error {
	if _, err := fmt.Fprintln(i.holder.Input, length); err != nil {
		return err
	}
	type result struct {
		replaced, lost int
		err            error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		_, r.err = fmt.Fscanln(bufio.NewReader(i.holder.Reports), &r.replaced, &r.lost)
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
