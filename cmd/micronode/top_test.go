package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/testkit"
)

// readTopFile reads what a fake node answers to top.
func readTopFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../internal/top/testdata", name))
	testkit.Must(t, err)
	return string(data)
}

// fakeTopNode is a node for top. While away is set it answers with errors.
func fakeTopNode(t *testing.T, away *atomic.Bool) {
	var scrapes atomic.Int64
	metrics := readTopFile(t, "metrics.txt")
	unless := func(answer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				reply(w, 0, fault.New("fake", fault.UpstreamFailed, "it is going away"))
				return
			}
			answer(w, r)
		}
	}
	fakeNode(t, map[string]http.HandlerFunc{
		"GET /admin/status": unless(respondJSON(http.StatusOK, readTopFile(t, "status.json"))),
		"GET /readyz":       unless(respondJSON(http.StatusServiceUnavailable, readTopFile(t, "readiness.json"))),
		"GET /metrics": unless(func(w http.ResponseWriter, _ *http.Request) {
			n := 100 * scrapes.Add(1)
			fmt.Fprintf(w, metrics, n, 10*n, 0)
		}),
	})
}

func TestTopOnce(t *testing.T) {
	var away atomic.Bool
	fakeTopNode(t, &away)
	got := mustRun(t, "top", "--once", "--interval", "10ms")
	for _, want := range []string{"  ready, but degraded  (micronode 1.0, profile micronode, up ", "\n  overlay: no peer answers\n    Check the addresses: micronode peers\n", "\n  /put ", "\n  node.work       250    256"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("it moves the cursor of a pipe: %q", got)
	}
	var view struct {
		Answers bool
		Seconds float64
		Routes  []struct{ Route string }
	}
	if err := json.Unmarshal([]byte(mustRun(t, "top", "--once", "--json", "--interval", "10ms")), &view); err != nil || !view.Answers || view.Seconds <= 0 || len(view.Routes) != 4 {
		t.Errorf("%+v, %v", view, err)
	}
	away.Store(true)
	newTestConsole(t).expect(t, t.Context(), fault.UpstreamFailed.Exit(), []string{"top", "--once"}, "it is going away")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"top", "--interval", "1ms"}, "too short", "10ms or more")
	t.Setenv("MICRO_URL", "ftp://nowhere")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"top"}, "does not begin with http")
}

func TestTopWithoutTheRightToFigures(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 0, fault.New("fake", fault.Unauthorized, "a token is missing"))
	}
	fakeNode(t, map[string]http.HandlerFunc{"GET /admin/status": respondJSON(200, readTopFile(t, "status.json")), "GET /readyz": respondJSON(200, readTopFile(t, "readiness.json")), "GET /metrics": refuse})
	if got := mustRun(t, "top", "--once", "--interval", "10ms"); !strings.Contains(got, "  no figures: a token is missing") {
		t.Errorf("%s", got)
	}
	fakeNode(t, map[string]http.HandlerFunc{"GET /admin/status": refuse})
	newTestConsole(t).expect(t, t.Context(), fault.Unauthorized.Exit(), []string{"top", "--interval", "10ms"}, "a token is missing")
}

// lineWriter calls a function after each line.
type lineWriter struct {
	bytes.Buffer
	after func(line string)
}

func (l *lineWriter) Write(text []byte) (int, error) {
	l.after(string(text))
	return l.Buffer.Write(text)
}

// top waits for a node that does not answer, and the rates start again.
func TestTopWaitsForTheNode(t *testing.T) {
	var away atomic.Bool
	fakeTopNode(t, &away)
	ctx, stop := context.WithCancel(t.Context())
	var trace []string
	s := newTestConsole(t)
	s.out = &lineWriter{after: func(line string) {
		var view struct {
			Answers    bool
			Error      string
			Seconds    float64
			LastAnswer *time.Time `json:"last_answer"`
		}
		if err := json.Unmarshal([]byte(line), &view); err != nil {
			t.Error(err)
		}
		switch {
		case !view.Answers && view.LastAnswer == nil:
			t.Error("when the node last answered is not told")
		case !view.Answers:
			trace = append(trace, "away: "+strings.TrimSuffix(view.Error, ": HTTP 502, corr_id corr-1234"))
			away.Store(false)
		case view.Seconds == 0:
			trace = append(trace, "first")
		default:
			trace = append(trace, "rates")
			away.Store(true)
		}
		if len(trace) == 5 {
			stop()
		}
	}}
	s.expect(t, ctx, 0, []string{"top", "--json", "--interval", "10ms"})
	if got := strings.Join(trace, ", "); got != "first, rates, away: it is going away, first, rates" {
		t.Error(got)
	}
}

// Control sequences of terminals.
const (
	enterScreen = "\x1b[?1049h" // the alternate screen
	leaveScreen = "\x1b[?1049l"
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
)

// runOnTerminal runs a command on a terminal. When the text to wait for
// appears, it calls then to type.
func runOnTerminal(t *testing.T, ctx context.Context, args []string, wait string, then func(keyboard io.Writer)) string {
	t.Helper()
	t.Setenv("TERM", "xterm")
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	master, slave, err := openTerminal()
	testkit.Must(t, err)
	defer master.Close()
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	testkit.Must(t, err)
	shown := make(chan string)
	go func() {
		var all bytes.Buffer
		for buffer, waiting := make([]byte, 4096), true; ; {
			n, err := master.Read(buffer)
			all.Write(buffer[:n])
			if waiting && bytes.Contains(all.Bytes(), []byte(wait)) {
				waiting = false
				then(master)
			}
			if err != nil {
				shown <- all.String()
				return
			}
		}
	}()
	s := newTestConsole(t)
	s.in, s.out, s.inTerminal, s.outTerminal = slave, slave, true, true
	s.expect(t, ctx, 0, args)
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *before != *after {
		t.Errorf("the keyboard is not as it was: %+v, %v", after, err)
	}
	slave.Close()
	all := <-shown
	if !strings.Contains(all, wait) {
		t.Errorf("it never showed %q: %q", wait, all)
	}
	entered, left := strings.Index(all, enterScreen), strings.LastIndex(all, leaveScreen)
	if entered < 0 || left < entered || strings.LastIndex(all, showCursor) < strings.LastIndex(all, hideCursor) {
		t.Errorf("the screen was not given back: %q", all)
	}
	return all
}

func TestTopOnATerminal(t *testing.T) {
	var away atomic.Bool
	fakeTopNode(t, &away)
	args := []string{"top", "--interval", "10ms"}
	for name, key := range map[string]string{"q": "q", "Ctrl-C": "\x03"} {
		t.Run(name, func(t *testing.T) {
			all := runOnTerminal(t, t.Context(), args, "/o/{b3}", func(keyboard io.Writer) { fmt.Fprint(keyboard, "x"+key) })
			if want := "ready, but degraded"; !strings.Contains(all, want) {
				t.Errorf("no %q in %q", want, all)
			}
			if strings.Count(all, "\n") > 24 && !strings.Contains(all, "\x1b[H") {
				t.Errorf("it scrolls: %q", all)
			}
		})
	}
	t.Run("a signal", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		runOnTerminal(t, ctx, args, "/o/{b3}", func(io.Writer) { stop() })
	})
	t.Run("a hang-up", func(t *testing.T) {
		runOnTerminal(t, t.Context(), args, "/o/{b3}", func(io.Writer) {
			if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("away", func(t *testing.T) {
		t.Setenv("MICRO_URL", "http://127.0.0.1:1")
		runOnTerminal(t, t.Context(), args, "the node does not answer; retrying", func(keyboard io.Writer) { fmt.Fprint(keyboard, "q") })
	})
	t.Run("dumb", func(t *testing.T) {
		t.Setenv("TERM", "dumb")
		s := newTestConsole(t)
		s.outTerminal = true
		s.expect(t, t.Context(), 0, []string{"top"})
		if strings.Contains(s.stdout.String(), "\x1b") {
			t.Errorf("%q", &s.stdout)
		}
	})
}
