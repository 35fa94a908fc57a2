package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// sessionRows measure what an idle session costs. The other ends are in a
// process of their own; only the node's memory is measured. If the machine does
// not allow a process that many connections, there are fewer, and the title
// says so.
func sessionRows(t schedule) []Benchmark {
	n := maxSessions(t.sessions)
	title := fmt.Sprintf("overlay, %s idle TLS sessions", groupDigits(float64(n)))
	churned := &sessionMemory{sessions: n, idle: t.crowdIdle, churn: t.churn}
	return []Benchmark{
		Row{Name: title, Unit: "KB each", Lower: true, Bar: 25, Aim: 15, Rounds: 1,
			Ours: Side{"micronode", (&sessionMemory{sessions: n, idle: t.crowdIdle}).start}},
		Row{Name: fmt.Sprintf("%s, after %s of churn, beside before", title, t.churn), Unit: "KB each", Lower: true, Bar: 1.1, Rounds: 1,
			Ours: Side{"after", churned.startAndChurn}, Peer: Side{"before", churned.beforeChurn}},
	}
}

// spareDescriptors is how many descriptors a process needs besides its connections.
const spareDescriptors = 200

// maxSessions returns how many of the wanted connections a process may have
// here. Programs in Go raise their own limit to the hard one.
func maxSessions(wanted int) int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Max > uint64(wanted+spareDescriptors) {
		return wanted
	}
	return max(int(limit.Max)-spareDescriptors, 1)
}

// sessionMemory is a node with many idle sessions.
type sessionMemory struct {
	sessions int
	idle     time.Duration // before the node's memory is read
	churn    time.Duration

	before float64 // memory of a session before the churn
}

// start opens the sessions and measures the node's memory.
func (s *sessionMemory) start(ctx context.Context, g *testbed.Testbed) (Measure, error) {
	idle, err := peers.StartIdleSessions(ctx, g, s.sessions)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Sample, error) { return s.measure(ctx, idle) }, nil
}

// startAndChurn measures twice and keeps the first figure for the other side.
func (s *sessionMemory) startAndChurn(ctx context.Context, g *testbed.Testbed) (Measure, error) {
	idle, err := peers.StartIdleSessions(ctx, g, s.sessions)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Sample, error) {
		first, err := s.measure(ctx, idle)
		if err != nil {
			return first, err
		}
		s.before = first.Value
		if err := idle.Churn(ctx, s.churn); err != nil {
			return Sample{}, err
		}
		return s.measure(ctx, idle)
	}, nil
}

// beforeChurn returns the figure before the churn.
func (s *sessionMemory) beforeChurn(context.Context, *testbed.Testbed) (Measure, error) {
	return func(context.Context) (Sample, error) { return Sample{Value: s.before}, nil }, nil
}

// measure is the resident memory that a session adds to the node.
func (s *sessionMemory) measure(ctx context.Context, idle *peers.IdleSessions) (Sample, error) {
	select {
	case <-time.After(s.idle):
	case <-ctx.Done():
		return Sample{}, ctx.Err()
	}
	held, err := idle.MemoryBytes()
	return Sample{Value: float64(held) / float64(s.sessions) / 1e3}, err
}
