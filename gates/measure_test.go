//go:build gates

package gates

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// maxTimerDelay is how late the machine itself may be before a measurement of
// milliseconds means nothing.
const maxTimerDelay = 15 * time.Millisecond

// maxStolen is the share of the processors that a hypervisor may give to others
// before a measurement of milliseconds means nothing.
const maxStolen = 0.05

// maxAttempts is how often a gate may measure.
const maxAttempts = 5

// slowError is a measurement over its bound. Only such a failure may be the
// machine's; a wrong answer is wrong on every machine.
type slowError struct {
	text string
	over time.Duration // a bound in milliseconds by so much; zero for a ratio
}

func (s slowError) Error() string { return s.text }

// slowErrorf is a ratio over its bound: the quiet value and the loaded one are
// of the same attempt, so that what else the machine did is in both.
func slowErrorf(format string, args ...any) error {
	return slowError{text: fmt.Sprintf(format, args...)}
}

// checkBound compares what took so long with a bound in milliseconds. Such a
// bound stands only where a specification has one, and the machine's noise in
// the attempt is subtracted.
func checkBound(took, bound time.Duration, format string, args ...any) error {
	if took <= bound {
		return nil
	}
	return slowError{fmt.Sprintf(format, args...) + fmt.Sprintf(": %s, and %s are allowed", took, bound), took - bound}
}

// checkRatio compares the p99 of a good client beside a load with its quiet
// one: it may double. What a bare timer was late meanwhile is subtracted twice,
// because a request waits for a processor twice, in the node and in the client.
func checkRatio(what string, quiet, busy time.Duration, late lateness) error {
	if busy > 2*(quiet+late.p99) {
		return slowErrorf("%s: p99 %s, quiet %s; a bare timer was %s late at p99 meanwhile", what, busy, quiet, late.p99)
	}
	return nil
}

// reportRatio adds the row of what checkRatio judges.
func reportRatio(t *testing.T, gate string, quiet, busy time.Duration, late lateness) {
	t.Helper()
	report(t, gate, "p99 of a good client within twice its quiet value", fmt.Sprintf("%s, quiet %s; timer %s late at p99", rounded(busy), rounded(quiet), rounded(late.p99)))
}

// noise is what the machine itself did during an attempt.
type noise struct {
	late   time.Duration // a bare timer, at most
	stolen float64       // the share of the processors that a hypervisor gave to others
}

func (n noise) String() string {
	return fmt.Sprintf("a bare timer %s late, %.0f %% stolen", rounded(n.late), 100*n.stolen)
}

// isLoud reports whether a measurement beside the noise says nothing.
func (n noise) isLoud() bool { return n.late >= maxTimerDelay || n.stolen >= maxStolen }

// excuses reports whether a measurement holds: it is not over its bound, or by
// less than a bare timer was late.
func (n noise) excuses(err error) bool {
	slow, isSlow := errors.AsType[slowError](err)
	return err == nil || isSlow && slow.over > 0 && slow.over <= n.late
}

// A rise of ten times is seen however short the times are, and a bound in
// milliseconds is exceeded only by more than the machine's own noise.
func TestWhatAMeasurementSays(t *testing.T) {
	reportGate(t)
	const ms = time.Millisecond
	for _, one := range []struct {
		err   error
		noise noise
		holds bool
	}{
		{checkRatio("x", ms, 2*ms, lateness{}), noise{}, true},
		{checkRatio("x", ms, 10*ms, lateness{}), noise{late: 5 * ms}, false},
		{checkRatio("x", ms, 10*ms, lateness{p99: 4 * ms}), noise{late: 5 * ms}, true},
		{checkBound(50*ms, 50*ms, "x"), noise{}, true},
		{checkBound(57*ms, 50*ms, "x"), noise{late: 14 * ms}, true},
		{checkBound(65*ms, 50*ms, "x"), noise{late: 14 * ms}, false},
		{errors.New("a wrong answer"), noise{late: time.Second, stolen: 1}, false},
	} {
		if got := one.noise.excuses(one.err); got != one.holds {
			t.Errorf("%v with %v: held %t", one.err, one.noise, got)
		}
	}
}

// retryMeasurement runs a measurement up to five times, and passes with the
// first one that holds. Each records the machine's own noise. A measurement
// that is over its bound by less than a bare timer was late holds.
//
// When all were too slow the gate fails; unless the machine was loud each time,
// so that nothing was measured. The table at the end then says so, and
// GATES=long fails all the same.
func retryMeasurement(t *testing.T, measure func() error) {
	t.Helper()
	var attempts []string
	judged := false
	for try := 1; ; try++ {
		timer, stolen := watchTimer(), watchStolen()
		err := measure()
		n := noise{timer().worst, stolen()}
		_, isSlow := errors.AsType[slowError](err)
		attempts = append(attempts, fmt.Sprintf("attempt %d: %v (%s)", try, err, n))
		switch {
		case n.excuses(err):
			recordNoise(t, fmt.Sprintf("attempt %d, %s", try, n))
			return
		case !isSlow:
			t.Fatalf("%v (%s)", err, n)
		}
		t.Log(attempts[try-1])
		judged = judged || !n.isLoud()
		switch {
		case try < maxAttempts && n.isLoud():
			awaitQuiet(t)
		case try < maxAttempts:
		case judged || isLong():
			t.Fatalf("no attempt held:\n%s", strings.Join(attempts, "\n"))
		default:
			reportUnmeasured(t, strings.Join(attempts, "; "))
			return
		}
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
		if quiet++; stop().worst >= maxTimerDelay {
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

// lateness is how late a bare timer was.
type lateness struct{ p99, worst time.Duration }

// watchTimer measures the delay of a timer of this very process, until the
// returned function is called.
func watchTimer() (stop func() lateness) {
	const beat = 5 * time.Millisecond
	quit, result := make(chan struct{}), make(chan lateness)
	go func() {
		late := []time.Duration{0}
		for {
			from := time.Now()
			select {
			case <-quit:
				result <- lateness{percentile(late, 0.99), slices.Max(late)}
				return
			case <-time.After(beat):
				late = append(late, time.Since(from)-beat)
			}
		}
	}()
	return func() lateness {
		close(quit)
		return <-result
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
