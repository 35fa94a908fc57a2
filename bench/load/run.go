package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Run executes a plan. The first wrong response, closed connection or silence
// ends it with an error; so does the context.
func Run(ctx context.Context, plan Plan) (*Report, error) {
	at, err := plan.normalize()
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	workers, err := connect(at, plan)
	defer closeAll(workers)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	report, err := drive(ctx, plan, workers)
	if err != nil {
		return nil, fmt.Errorf("load on %s: %w", at, err)
	}
	return report, nil
}

// connect opens all connections before the first request, so that the time of
// connecting is not in the figures.
func connect(at netip.AddrPort, plan Plan) (workers []*worker, err error) {
	for range plan.Threads {
		w, err := newWorker(plan.Script)
		if err != nil {
			return workers, err
		}
		workers = append(workers, w)
	}
	for i := range plan.Connections {
		c, err := dial(at, i)
		if err != nil {
			return workers, err
		}
		if err := workers[i%len(workers)].add(c); err != nil {
			return workers, err
		}
	}
	return workers, nil
}

func closeAll(workers []*worker) {
	for _, w := range workers {
		w.close()
	}
}

// drive runs the workers; the first failure of one ends the others.
func drive(ctx context.Context, plan Plan, workers []*worker) (*Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := time.Now()
	var wait sync.WaitGroup
	for _, w := range workers {
		w.canceled, w.idleTimeout, w.from = ctx.Done(), plan.IdleTimeout, start
		if plan.Duration > 0 {
			w.from = start.Add(plan.Warmup)
			w.until = w.from.Add(plan.Duration)
		}
		wait.Go(func() {
			if err := w.run(); err != nil && !errors.Is(err, errCanceled) {
				cancel(err)
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return gather(plan, start, workers)
}

// gather adds up what the workers counted.
func gather(plan Plan, start time.Time, workers []*worker) (*Report, error) {
	report, last := &Report{Elapsed: plan.Duration}, start
	for _, w := range workers {
		report.Responses += w.responses
		report.Latency.Merge(&w.latency)
		if w.last.After(last) {
			last = w.last
		}
	}
	if plan.Duration == 0 {
		report.Elapsed = last.Sub(start)
	}
	if report.Responses == 0 {
		return nil, errors.New("no answer came within the time")
	}
	return report, nil
}
