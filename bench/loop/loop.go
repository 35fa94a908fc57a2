package loop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// Shape is the size and the flow control of the messages.
type Shape struct {
	Size   int // of a message, in bytes
	Window int // how many messages may be in flight; a multiple of Step
	Step   int // how often a counter reports
}

// Loop is a pipeline of programs. Turns are run by one goroutine.
type Loop struct {
	// set at construction
	shape       Shape
	permits     io.Writer
	idleTimeout time.Duration // how long nothing may arrive
	updated     chan struct{} // holds one token after a report

	mu      sync.Mutex
	tallies []tally // guarded by mu: the last report of each counter

	sent uint64 // owned by the goroutine that runs turns
}

// tally is the last report of a counter.
type tally struct {
	count, sum uint64
	err        error
}

// New makes a loop from the input of a publisher and the outputs of counters.
// It reads the latter until they end.
func New(shape Shape, permits io.Writer, counters []io.Reader) *Loop {
	l := &Loop{shape: shape, permits: permits, idleTimeout: 10 * time.Second, updated: make(chan struct{}, 1), tallies: make([]tally, len(counters))}
	for i, counter := range counters {
		go l.readReports(i, counter)
	}
	return l
}

// readReports records the reports of one counter. Unread reports are replaced,
// so it only ever waits for the counter.
func (l *Loop) readReports(i int, counter io.Reader) {
	lines := bufio.NewReader(counter)
	for {
		var now tally
		if _, err := fmt.Fscanf(lines, "%d %d\n", &now.count, &now.sum); err != nil {
			now.err = fmt.Errorf("counter %d reports no more: %w", i, err)
		}
		l.mu.Lock()
		l.tallies[i] = now
		l.mu.Unlock()
		select {
		case l.updated <- struct{}{}:
		default:
		}
		if now.err != nil {
			return
		}
	}
}

// Report is the result of a turn.
type Report struct {
	Messages uint64  // that arrived in the whole turn, at all counters together
	Rate     float64 // arrivals in a second, at all counters together, after the warm-up
}

// Turn runs messages for a while, and starts to measure when the pipeline is
// warm. It returns when all have arrived.
func (l *Loop) Turn(ctx context.Context, warm, length time.Duration) (Report, error) {
	before, err := l.arrived()
	if err != nil {
		return Report{}, err
	}
	if err := l.permit(uint64(l.shape.Window)); err != nil {
		return Report{}, err
	}
	start, err := l.runUntil(ctx, time.Now().Add(warm))
	if err != nil {
		return Report{}, err
	}
	end, err := l.runUntil(ctx, start.when.Add(length))
	if err != nil {
		return Report{}, err
	}
	after, err := l.drain(ctx)
	return Report{Messages: after.total - before.total, Rate: float64(end.total-start.total) / end.when.Sub(start.when).Seconds()}, err
}

// progress is what had arrived at a moment.
type progress struct {
	when    time.Time
	total   uint64 // at all counters together
	slowest uint64 // at the slowest
}

// runUntil grants permits for what has arrived, and returns with the first
// report after the moment.
func (l *Loop) runUntil(ctx context.Context, moment time.Time) (progress, error) {
	for {
		now, err := l.await(ctx)
		if err != nil {
			return now, err
		}
		if room := now.slowest + uint64(l.shape.Window) - l.sent; room > 0 {
			if err := l.permit(room); err != nil {
				return now, err
			}
		}
		if now.when.After(moment) {
			return now, nil
		}
	}
}

// drain waits for the last messages and compares them with what was sent.
func (l *Loop) drain(ctx context.Context) (progress, error) {
	for {
		now, err := l.arrived()
		if err != nil || now.slowest == l.sent {
			return now, errors.Join(err, l.checkSums())
		}
		if now, err = l.await(ctx); err != nil {
			return now, err
		}
	}
}

// checkSums detects a duplicate that hides a loss.
func (l *Loop) checkSums() error {
	want := l.sent * (l.sent - 1) / 2
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, tally := range l.tallies {
		if tally.count != l.sent || tally.sum != want {
			return fmt.Errorf("counter %d has %d messages with the sum %d, but %d with the sum %d were sent", i, tally.count, tally.sum, l.sent, want)
		}
	}
	return nil
}

// await waits for a report.
func (l *Loop) await(ctx context.Context) (progress, error) {
	timeout := time.NewTimer(l.idleTimeout)
	defer timeout.Stop()
	select {
	case <-l.updated:
		return l.arrived()
	case <-ctx.Done():
		return progress{}, ctx.Err()
	case <-timeout.C:
		now, err := l.arrived()
		return now, errors.Join(err, fmt.Errorf("%d of %d messages did not arrive: nothing came for %s", l.sent-now.slowest, l.sent, l.idleTimeout))
	}
}

func (l *Loop) arrived() (progress, error) {
	now := progress{when: time.Now(), slowest: math.MaxUint64}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, tally := range l.tallies {
		if tally.err != nil {
			return now, tally.err
		}
		now.total, now.slowest = now.total+tally.count, min(now.slowest, tally.count)
	}
	return now, nil
}

func (l *Loop) permit(more uint64) error {
	l.sent += more
	if _, err := fmt.Fprintf(l.permits, "%d\n", more); err != nil {
		return fmt.Errorf("the publisher takes no more permits: %w", err)
	}
	return nil
}
