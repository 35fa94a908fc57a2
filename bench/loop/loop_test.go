package loop

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/bench/peers/loopclient"
)

// pipeline is a pub/sub system in the test: what is published goes through
// pass, and what that returns goes to every counter.
type pipeline struct {
	*Loop
	permits *io.PipeReader // the permits of the publisher
	reports []*io.PipeWriter

	mu             sync.Mutex
	sent, maxAhead uint64 // messages, and how many were ahead of the slowest counter at most
	counts         []uint64
}

// newPipeline starts a publisher with several goroutines and several counters.
// All of them end with the test.
func newPipeline(t *testing.T, shape Shape, goroutines, counters int, pass func(message []byte) [][]byte) *pipeline {
	t.Helper()
	l := &pipeline{counts: make([]uint64, counters)}
	var permits io.WriteCloser
	l.permits, permits = io.Pipe()
	var readers []io.Reader
	var countersTo []*loopclient.Counter
	for range counters {
		reader, writer := io.Pipe()
		readers, l.reports = append(readers, reader), append(l.reports, writer)
		countersTo = append(countersTo, loopclient.NewCounter(writer, shape.Size, shape.Step))
	}
	l.Loop = New(shape, permits, readers)
	var all sync.WaitGroup
	all.Go(func() {
		defer l.permits.Close() // as when a process ends
		_ = loopclient.Publish(l.permits, shape.Size, goroutines, func(message []byte) error { return l.deliver(pass(message), countersTo) })
	})
	t.Cleanup(func() {
		_ = permits.Close()
		for _, writer := range l.reports {
			_ = writer.Close()
		}
		all.Wait()
	})
	return l
}

// deliver passes messages to all counters, one at a time.
func (p *pipeline) deliver(messages [][]byte, counters []*loopclient.Counter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent++
	for i, take := range counters {
		p.maxAhead = max(p.maxAhead, p.sent-p.counts[i])
		for _, message := range messages {
			if err := take.Take(message); err != nil {
				return err
			}
		}
		p.counts[i] = p.sent
	}
	return nil
}

func passThrough(message []byte) [][]byte { return [][]byte{message} }

// Every message arrives at every counter, in one turn and in the next, and
// there are never more in flight than the window.
func TestTurns(t *testing.T) {
	for _, c := range []struct{ goroutines, counters int }{{1, 1}, {1, 3}, {4, 2}} {
		shape := Shape{Size: 100, Window: 32, Step: 4}
		l := newPipeline(t, shape, c.goroutines, c.counters, passThrough)
		for turn := range 3 {
			report, err := l.Turn(t.Context(), 0, time.Millisecond)
			if err != nil {
				t.Fatalf("%+v, turn %d: %v", c, turn, err)
			}
			if report.Messages == 0 || report.Messages%uint64(c.counters*shape.Step) != 0 || !(report.Rate > 0) {
				t.Errorf("%+v, turn %d: %+v", c, turn, report)
			}
		}
		if l.maxAhead > uint64(shape.Window) {
			t.Errorf("%+v: %d messages were under way", c, l.maxAhead)
		}
	}
}

// New permits are for what the slowest counter has, and for no more.
func TestTheSlowestCounts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	permits, giver := io.Pipe()
	slow, slowReports := io.Pipe()
	quick, quickReports := io.Pipe()
	l := New(Shape{Size: 8, Window: 8, Step: 2}, giver, []io.Reader{slow, quick})
	over := make(chan error)
	go func() { _, err := l.Turn(ctx, 0, 24*time.Hour); over <- err }()
	lines := bufio.NewReader(permits)
	expect := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); got != want+"\n" {
			t.Errorf("permits for %q, want %s, %v", got, want, err)
		}
	}
	report := func(to io.Writer, text string) {
		t.Helper()
		if _, err := io.WriteString(to, text+"\n"); err != nil {
			t.Error(err)
		}
	}
	expect("8")
	report(quickReports, "6 15")
	report(slowReports, "2 1")
	expect("2")
	report(slowReports, "8 28")
	expect("4") // up to a window beyond the other, which is the slow one by now
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	_, _ = slowReports.Close(), quickReports.Close()
}

// messageNumber is the number of a message.
func messageNumber(message []byte) uint64 { return binary.BigEndian.Uint64(message) }

// A turn with a loss has no figure, however the loss is hidden.
func TestLosses(t *testing.T) {
	for name, c := range map[string]struct {
		pass func(message []byte) [][]byte
		says string
	}{
		"lost": {func(message []byte) [][]byte {
			if messageNumber(message) == 100 {
				return nil
			}
			return passThrough(message)
		}, "messages did not arrive: nothing came for 10s"},
		"another came twice": {func(message []byte) [][]byte {
			switch messageNumber(message) {
			case 100:
				return nil
			case 101:
				return [][]byte{message, message}
			}
			return passThrough(message)
		}, "were sent"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// In here time stands still while anything runs, so the loop
				// would never see the end of its turn if the pipeline took no
				// time.
				pass := func(message []byte) [][]byte { time.Sleep(time.Millisecond); return c.pass(message) }
				l := newPipeline(t, Shape{Size: 8, Window: 32, Step: 4}, 1, 1, pass)
				if _, err := l.Turn(t.Context(), 0, time.Second); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("said %v", err)
				}
			})
		})
	}
}

// A program that ends in the middle ends the turn.
func TestEnds(t *testing.T) {
	forever := 24 * time.Hour
	for name, c := range map[string]struct {
		end  func(l *pipeline, cancel context.CancelFunc)
		says string
	}{
		"counter":   {func(l *pipeline, _ context.CancelFunc) { _ = l.reports[0].Close() }, "no more"}, // and with it, the publisher
		"publisher": {func(l *pipeline, _ context.CancelFunc) { _ = l.permits.Close() }, "the publisher takes no more permits"},
		"bench":     {func(_ *pipeline, cancel context.CancelFunc) { cancel() }, context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begun := make(chan struct{})
			var once sync.Once
			l := newPipeline(t, Shape{Size: 8, Window: 32, Step: 4}, 1, 1, func(message []byte) [][]byte {
				if messageNumber(message) == 500 {
					once.Do(func() { close(begun) })
				}
				return passThrough(message)
			})
			go func() { <-begun; c.end(l, cancel) }()
			if _, err := l.Turn(ctx, 0, forever); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("said %v", err)
			}
			if _, err := l.Turn(ctx, 0, forever); err == nil {
				t.Error("there was another turn")
			}
		})
	}
}

// Only counts are counted.
func TestNonsense(t *testing.T) {
	for _, report := range []string{"much\n", ""} {
		l := New(Shape{Size: 8, Window: 8, Step: 1}, io.Discard, []io.Reader{strings.NewReader("1 0\n2 1\n3 3\n"), strings.NewReader(report)})
		if _, err := l.Turn(t.Context(), 0, time.Hour); err == nil || !strings.Contains(err.Error(), "reports no more") {
			t.Errorf("%q: said %v", report, err)
		}
	}
}

// A counter rejects a message that is not what was sent.
func TestWrongMessages(t *testing.T) {
	take := func(change func([]byte) []byte) error {
		var failed error
		counter := loopclient.NewCounter(io.Discard, 100, 1)
		_ = loopclient.Publish(strings.NewReader("1\n"), 100, 1, func(message []byte) error {
			failed = counter.Take(change(message))
			return nil
		})
		return failed
	}
	for name, change := range map[string]func([]byte) []byte{
		"short":   func(l []byte) []byte { return l[:99] },
		"changed": func(l []byte) []byte { l[50]++; return l },
	} {
		if err := take(change); err == nil {
			t.Errorf("%s: it was counted", name)
		}
	}
	if err := take(func(l []byte) []byte { return l }); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// A publisher that cannot continue returns an error.
func TestPublishersFail(t *testing.T) {
	broken := errors.New("broken")
	for _, goroutines := range []int{1, 2} {
		err := loopclient.Publish(strings.NewReader("10\n"), 100, goroutines, func([]byte) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("%d goroutines: %v", goroutines, err)
		}
	}
	if err := loopclient.Publish(strings.NewReader("many\n"), 100, 1, nil); err == nil {
		t.Error("it was permitted many")
	}
	if err := loopclient.Publish(brokenReader{broken}, 100, 1, nil); !errors.Is(err, broken) {
		t.Errorf("an input that fails: %v", err)
	}
}

// brokenReader is a reader that fails.
type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }
