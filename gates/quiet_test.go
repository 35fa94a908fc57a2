//go:build gates

package gates

import (
	"fmt"
	"testing"
	"time"
)

// tolerable is how late the machine itself may be before a measurement of
// milliseconds means nothing.
const tolerable = 15 * time.Millisecond

// slowness is a measurement over its bound. Only such a failure may be the
// machine's; a wrong answer is wrong on every machine.
type slowness string

func (s slowness) Error() string { return string(s) }

func tooSlow(format string, args ...any) error { return slowness(fmt.Sprintf(format, args...)) }

// measured runs a measurement that must hold. If it was too slow, and the
// machine was so busy with something else that not even a bare timer came in
// time, it is run again, a few times; the bound stays what it is.
func measured(t *testing.T, measure func() error) {
	t.Helper()
	for try := 1; ; try++ {
		stop := watchTimer()
		err := measure()
		late := stop()
		_, slow := err.(slowness)
		switch {
		case err == nil:
			return
		case !slow || late < tolerable || try == 5:
			t.Fatalf("%v (a bare timer was %s late at most)", err, late)
		}
		t.Logf("try %d says nothing: a bare timer was %s late meanwhile (%v)", try, late, err)
	}
}

// watchTimer measures how late a timer of this very process is at most, until
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
