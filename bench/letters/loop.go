package letters

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

// Shape is what is sent and how much of it at once.
type Shape struct {
	Size   int // of a letter, in bytes
	Window int // how many letters may be under way; a multiple of Step
	Step   int // how often a counter reports
}

// Loop is a line of programs. Turns are taken by one goroutine.
type Loop struct {
	// set at construction
	shape    Shape
	permits  io.Writer
	patience time.Duration // how long nothing may arrive
	news     chan struct{} // holds one token after a report

	mu      sync.Mutex
	tallies []tally // guarded by mu: the last report of each counter

	sent uint64 // owned by whoever takes turns
}

// tally is what a counter has said.
type tally struct {
	count, sum uint64
	err        error
}

// New makes a loop of what a publisher reads and what counters write. It reads
// from the latter until they end.
func New(shape Shape, permits io.Writer, counters []io.Reader) *Loop {
	l := &Loop{shape: shape, permits: permits, patience: 10 * time.Second, news: make(chan struct{}, 1), tallies: make([]tally, len(counters))}
	for i, counter := range counters {
		go l.listen(i, counter)
	}
	return l
}

// listen notes what one counter reports. Older reports that nobody has looked
// at are replaced, so it never waits for anybody but the counter.
func (l *Loop) listen(i int, counter io.Reader) {
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
		case l.news <- struct{}{}:
		default:
		}
		if now.err != nil {
			return
		}
	}
}

// Report is what a turn gave.
type Report struct {
	Letters uint64  // that arrived in the whole turn, at all counters together
	Rate    float64 // arrivals in a second, at all counters together, after the warm-up
}

// Turn lets letters run for a while, and begins to measure when the line is
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
	return Report{Letters: after.total - before.total, Rate: float64(end.total-start.total) / end.when.Sub(start.when).Seconds()}, err
}

// progress is what had arrived at a moment.
type progress struct {
	when  time.Time
	total uint64 // at all counters together
	least uint64 // at the slowest
}

// runUntil gives permits for what has arrived, and returns with the first
// report after the moment.
func (l *Loop) runUntil(ctx context.Context, moment time.Time) (progress, error) {
	for {
		now, err := l.await(ctx)
		if err != nil {
			return now, err
		}
		if room := now.least + uint64(l.shape.Window) - l.sent; room > 0 {
			if err := l.permit(room); err != nil {
				return now, err
			}
		}
		if now.when.After(moment) {
			return now, nil
		}
	}
}

// drain waits for the last letters and holds them against what was sent.
func (l *Loop) drain(ctx context.Context) (progress, error) {
	for {
		now, err := l.arrived()
		if err != nil || now.least == l.sent {
			return now, errors.Join(err, l.checkSums())
		}
		if now, err = l.await(ctx); err != nil {
			return now, err
		}
	}
}

// checkSums finds a letter that came twice in the place of another.
func (l *Loop) checkSums() error {
	want := l.sent * (l.sent - 1) / 2
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, tally := range l.tallies {
		if tally.count != l.sent || tally.sum != want {
			return fmt.Errorf("counter %d has %d letters with the sum %d, but %d with the sum %d were sent", i, tally.count, tally.sum, l.sent, want)
		}
	}
	return nil
}

// await waits for a report.
func (l *Loop) await(ctx context.Context) (progress, error) {
	lost := time.NewTimer(l.patience)
	defer lost.Stop()
	select {
	case <-l.news:
		return l.arrived()
	case <-ctx.Done():
		return progress{}, ctx.Err()
	case <-lost.C:
		now, err := l.arrived()
		return now, errors.Join(err, fmt.Errorf("%d of %d letters did not arrive: nothing came for %s", l.sent-now.least, l.sent, l.patience))
	}
}

func (l *Loop) arrived() (progress, error) {
	now := progress{when: time.Now(), least: math.MaxUint64}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, tally := range l.tallies {
		if tally.err != nil {
			return now, tally.err
		}
		now.total, now.least = now.total+tally.count, min(now.least, tally.count)
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
