package letters

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

	"micronode/bench/peers/talk"
)

// line is a carrier that lives in the test: what is published goes through
// pass, and what that returns goes to every counter.
type line struct {
	*Loop
	permits *io.PipeReader // where the publisher is told
	reports []*io.PipeWriter

	mu         sync.Mutex
	sent, most uint64 // letters, and how many were ahead of the slowest counter at most
	counts     []uint64
}

// newLine starts a publisher with so many goroutines and so many counters. All
// of them end with the test.
func newLine(t *testing.T, shape Shape, goroutines, counters int, pass func(letter []byte) [][]byte) *line {
	t.Helper()
	l := &line{counts: make([]uint64, counters)}
	var permits io.WriteCloser
	l.permits, permits = io.Pipe()
	var readers []io.Reader
	var takes []*talk.Counter
	for range counters {
		reader, writer := io.Pipe()
		readers, l.reports = append(readers, reader), append(l.reports, writer)
		takes = append(takes, talk.NewCounter(writer, shape.Size, shape.Step))
	}
	l.Loop = New(shape, permits, readers)
	var all sync.WaitGroup
	all.Go(func() {
		defer l.permits.Close() // as when a process ends
		_ = talk.Publish(l.permits, shape.Size, goroutines, func(letter []byte) error { return l.carry(pass(letter), takes) })
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

// carry hands letters to all counters, one at a time.
func (l *line) carry(letters [][]byte, takes []*talk.Counter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	for i, take := range takes {
		l.most = max(l.most, l.sent-l.counts[i])
		for _, letter := range letters {
			if err := take.Take(letter); err != nil {
				return err
			}
		}
		l.counts[i] = l.sent
	}
	return nil
}

func all(letter []byte) [][]byte { return [][]byte{letter} }

// Every letter arrives at every counter, in one turn and in the next, and there
// are never more under way than the window.
func TestTurns(t *testing.T) {
	for _, c := range []struct{ goroutines, counters int }{{1, 1}, {1, 3}, {4, 2}} {
		shape := Shape{Size: 100, Window: 32, Step: 4}
		l := newLine(t, shape, c.goroutines, c.counters, all)
		for turn := range 3 {
			report, err := l.Turn(t.Context(), 0, time.Millisecond)
			if err != nil {
				t.Fatalf("%+v, turn %d: %v", c, turn, err)
			}
			if report.Letters == 0 || report.Letters%uint64(c.counters*shape.Step) != 0 || !(report.Rate > 0) {
				t.Errorf("%+v, turn %d: %+v", c, turn, report)
			}
		}
		if l.most > uint64(shape.Window) {
			t.Errorf("%+v: %d letters were under way", c, l.most)
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

// number is where a letter stands in the row of all.
func number(letter []byte) uint64 { return binary.BigEndian.Uint64(letter) }

// A turn with a loss gives no figure, whatever is done to hide it.
func TestLosses(t *testing.T) {
	for name, c := range map[string]struct {
		pass func(letter []byte) [][]byte
		says string
	}{
		"lost": {func(letter []byte) [][]byte {
			if number(letter) == 100 {
				return nil
			}
			return all(letter)
		}, "letters did not arrive: nothing came for 10s"},
		"another came twice": {func(letter []byte) [][]byte {
			switch number(letter) {
			case 100:
				return nil
			case 101:
				return [][]byte{letter, letter}
			}
			return all(letter)
		}, "were sent"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// In here time stands still while anything moves, so the loop
				// would never see the end of its turn if the line took none.
				pass := func(letter []byte) [][]byte { time.Sleep(time.Millisecond); return c.pass(letter) }
				l := newLine(t, Shape{Size: 8, Window: 32, Step: 4}, 1, 1, pass)
				if _, err := l.Turn(t.Context(), 0, time.Second); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("said %v", err)
				}
			})
		})
	}
}

// Whoever ends in the middle ends the turn.
func TestEnds(t *testing.T) {
	forever := 24 * time.Hour
	for name, c := range map[string]struct {
		end  func(l *line, cancel context.CancelFunc)
		says string
	}{
		"counter":   {func(l *line, _ context.CancelFunc) { _ = l.reports[0].Close() }, "no more"}, // and with it, the publisher
		"publisher": {func(l *line, _ context.CancelFunc) { _ = l.permits.Close() }, "the publisher takes no more permits"},
		"bench":     {func(_ *line, cancel context.CancelFunc) { cancel() }, context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begun := make(chan struct{})
			var once sync.Once
			l := newLine(t, Shape{Size: 8, Window: 32, Step: 4}, 1, 1, func(letter []byte) [][]byte {
				if number(letter) == 500 {
					once.Do(func() { close(begun) })
				}
				return all(letter)
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

// A letter that is not what was sent is refused by the one who counts.
func TestWrongLetters(t *testing.T) {
	take := func(change func([]byte) []byte) error {
		var failed error
		counter := talk.NewCounter(io.Discard, 100, 1)
		_ = talk.Publish(strings.NewReader("1\n"), 100, 1, func(letter []byte) error {
			failed = counter.Take(change(letter))
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

// A publisher that cannot go on says so.
func TestPublishersFail(t *testing.T) {
	broken := errors.New("broken")
	for _, goroutines := range []int{1, 2} {
		err := talk.Publish(strings.NewReader("10\n"), 100, goroutines, func([]byte) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("%d goroutines: %v", goroutines, err)
		}
	}
	if err := talk.Publish(strings.NewReader("many\n"), 100, 1, nil); err == nil {
		t.Error("it was permitted many")
	}
	if err := talk.Publish(brokenReader{broken}, 100, 1, nil); !errors.Is(err, broken) {
		t.Errorf("an input that fails: %v", err)
	}
}

// brokenReader is a reader that fails.
type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }
