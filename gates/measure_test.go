//go:build gates

package gates

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// maxTimerDelay is how late the machine itself may be before a measurement of
// milliseconds means nothing.
const maxTimerDelay = 15 * time.Millisecond

// slowError is a measurement over its bound. Only such a failure may be the
// machine's; a wrong answer is wrong on every machine.
type slowError string

func (s slowError) Error() string { return string(s) }

func slowErrorf(format string, args ...any) error { return slowError(fmt.Sprintf(format, args...)) }

// maxStolen is the share of the processors that a hypervisor may give to others
// before a measurement of milliseconds means nothing.
const maxStolen = 0.05

// retryMeasurement runs a measurement that must hold. If it was too slow, and
// the machine was so busy that not even a bare timer fired in time, it is run
// again when the machine is quiet, a few times; the bound stays what it is.
//
// The last try fails, unless the hypervisor says that it gave the processors to
// others: nothing that the node does can cause that, and nothing was measured.
// The table at the end then says so, and GATES=long fails all the same.
func retryMeasurement(t *testing.T, measure func() error) {
	t.Helper()
	for try := 1; ; try++ {
		stop, stolen := watchTimer(), watchStolen()
		err := measure()
		late, share := stop(), stolen()
		_, slow := err.(slowError)
		switch {
		case err == nil:
			return
		case !slow || late < maxTimerDelay || try == 5 && (share < maxStolen || isLong()):
			t.Fatalf("%v (a bare timer was %s late at most, %.0f %% of the processors were given to others)", err, late, 100*share)
		case try == 5:
			reportUnmeasured(t, fmt.Sprintf("%v, with %.0f %% of the processors given to others", err, 100*share))
			return
		}
		t.Logf("try %d says nothing: a bare timer was %s late meanwhile, %.0f %% of the processors were given to others (%v)", try, late, 100*share, err)
		awaitQuiet(t)
	}
}

// quietBudget is how long all gates together may still wait for a quiet machine.
var quietBudget = 10 * time.Minute

// awaitQuiet waits until timers fire in time for a few seconds: on a machine
// that others use as well, such times come and go.
func awaitQuiet(t *testing.T) {
	t.Helper()
	began, limit := time.Now(), min(2*time.Minute, quietBudget)
	for quiet := 0; quiet < 3 && time.Since(began) < limit; {
		stop := watchTimer()
		time.Sleep(time.Second)
		if quiet++; stop() >= maxTimerDelay {
			quiet = 0
		}
	}
	waited := time.Since(began)
	quietBudget -= waited
	t.Logf("waited %s for a quiet machine", waited.Round(time.Second))
}

// rounded is a duration for people.
func rounded(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// watchTimer measures the maximum delay of a timer of this very process, until
// the returned function is called.
func watchTimer() (stop func() time.Duration) {
	const beat = 5 * time.Millisecond
	quit, worst := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			from := time.Now()
			select {
			case <-quit:
				worst <- most
				return
			case <-time.After(beat):
				most = max(most, time.Since(from)-beat)
			}
		}
	}()
	return func() time.Duration {
		close(quit)
		return <-worst
	}
}

// watchStolen measures which share of the processors' time the hypervisor gave
// to others, until the returned function is called.
func watchStolen() (stop func() float64) {
	stolen, total := processorTime()
	return func() float64 {
		s, all := processorTime()
		if all == total {
			return 0
		}
		return float64(s-stolen) / float64(all-total)
	}
}

// processorTime reads the first line of /proc/stat: user, nice, system, idle,
// iowait, irq, softirq, steal; what follows is part of these.
func processorTime() (stolen, total uint64) {
	stat, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(line) {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil || i > 8 {
			continue
		}
		total += n
		if i == 8 {
			stolen = n
		}
	}
	return stolen, total
}
