package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"micronode/bench/ground"
	"micronode/bench/peers"
)

// sessionRows ask what a session costs that says nothing. The other ends are in
// a process of their own; only the node is weighed. If the machine does not let
// a process have as many connections, there are fewer, and the title says so.
func sessionRows(t turns) []Work {
	n := fitting(t.sessions)
	title := fmt.Sprintf("overlay, %s idle TLS sessions", grouped(float64(n)))
	churned := &weighing{sessions: n, settle: t.settle, churn: t.churn}
	return []Work{
		Row{Name: title, Unit: "KB each", Lower: true, Bar: 25, Aim: 15, Rounds: 1,
			Ours: Side{"micronode", (&weighing{sessions: n, settle: t.settle}).open}},
		Row{Name: fmt.Sprintf("%s, after %s of churn, beside before", title, t.churn), Unit: "KB each", Lower: true, Bar: 1.1, Rounds: 1,
			Ours: Side{"after", churned.openAndChurn}, Peer: Side{"before", churned.remembered}},
	}
}

// spare is how many descriptors a process needs besides its connections.
const spare = 200

// fitting is how many of so many connections a process may have here. Programs
// in Go raise their own limit to the hard one.
func fitting(wanted int) int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Max > uint64(wanted+spare) {
		return wanted
	}
	return max(int(limit.Max)-spare, 1)
}

// weighing is a node with a crowd around it.
type weighing struct {
	sessions int
	settle   time.Duration // before the node is weighed
	churn    time.Duration

	before float64 // what a session weighed before the churn
}

// open fills the node and weighs it.
func (w *weighing) open(ctx context.Context, g *ground.Ground) (Measure, error) {
	crowd, err := peers.StartCrowd(ctx, g, w.sessions)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Sample, error) { return w.weigh(ctx, crowd) }, nil
}

// openAndChurn weighs twice and keeps the first figure for the other side.
func (w *weighing) openAndChurn(ctx context.Context, g *ground.Ground) (Measure, error) {
	crowd, err := peers.StartCrowd(ctx, g, w.sessions)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Sample, error) {
		first, err := w.weigh(ctx, crowd)
		if err != nil {
			return first, err
		}
		w.before = first.Value
		if err := crowd.Churn(ctx, w.churn); err != nil {
			return Sample{}, err
		}
		return w.weigh(ctx, crowd)
	}, nil
}

// remembered is what the churn began with.
func (w *weighing) remembered(context.Context, *ground.Ground) (Measure, error) {
	return func(context.Context) (Sample, error) { return Sample{Value: w.before}, nil }, nil
}

// weigh is the resident memory that a session adds to the node.
func (w *weighing) weigh(ctx context.Context, crowd *peers.Crowd) (Sample, error) {
	select {
	case <-time.After(w.settle):
	case <-ctx.Done():
		return Sample{}, ctx.Err()
	}
	held, err := crowd.Held()
	return Sample{Value: float64(held) / float64(w.sessions) / 1e3}, err
}
