package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// testDemo is the demo with real nodes, and with steps that a test can break.
type testDemo struct {
	*testConsole
	demoRun
	network *demoNetwork // once the first step has begun
}

var testDemoCount atomic.Int64

func newTestDemo(t *testing.T) *testDemo {
	r := &testDemo{testConsole: newTestConsole(t)}
	r.demoRun = demoRun{console: r.testConsole.console, steps: demoSteps(), nodes: 3, stepTimeout: 2 * time.Minute}
	r.beforeStep("start", func(_ context.Context, s *demoNetwork) error {
		r.network = s
		// How fast a node drains is tested by the gates; here two demos and
		// their nodes share two processors with other tests.
		s.environ = append(s.environ, "GORACE=atexit_sleep_ms=10", "MICRO_NODE__DRAIN=5s")
		s.socketPrefix += fmt.Sprintf("-%d", testDemoCount.Add(1)) // several demos run in this process
		return nil
	})
	return r
}

// errSkipStep is returned in place of a step.
var errSkipStep = errors.New("the step is not played")

// beforeStep runs a function before a step, as a part of it.
func (d *testDemo) beforeStep(name string, do func(context.Context, *demoNetwork) error) {
	i := slices.IndexFunc(d.steps, func(one demoStep) bool { return one.name == name })
	run := d.steps[i].run
	d.steps[i].run = func(ctx context.Context, s *demoNetwork) (string, error) {
		switch err := do(ctx, s); {
		case errors.Is(err, errSkipStep):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("the test itself: %w", err)
		}
		return run(ctx, s)
	}
}

// runAndCheck runs the demo, returns its exit code, and checks that no node is
// left.
func (d *testDemo) runAndCheck(t *testing.T, ctx context.Context) (code int) {
	t.Helper()
	code = d.testConsole.fail(withInterruptCause(ctx, d.run(ctx)))
	for _, n := range d.network.nodes {
		if pid := n.command.Process.Pid; !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			t.Errorf("node %d, the process %d, is left", n.number, pid)
		}
	}
	return code
}

func (d *testDemo) output() string { return d.stdout.String() + d.stderr.String() }

// All steps pass, each with its duration, its result and the command to type.
func TestDemo(t *testing.T) {
	t.Parallel()
	r := newTestDemo(t)
	r.nodes = 4
	if code := r.runAndCheck(t, t.Context()); code != 0 || r.stderr.Len() > 0 {
		t.Fatalf("it ended with %d and said\n%s", code, r.output())
	}
	lines := strings.Split(r.stdout.String(), "\n")
	for i, one := range r.steps {
		if line, command := lines[2+2*i], lines[3+2*i]; !strings.HasPrefix(line, "✓ "+one.name+" ") || !strings.Contains(line, " ms  ") || !strings.Contains(command, "  $ ") {
			t.Errorf("of %s it says\n%s\n%s", one.name, line, command)
		}
	}
	for _, want := range []string{"in a chain 1 – 2 – 3 – 4;", "over 2 relays", "3 nodes drained cleanly", "All 8 steps succeeded, in "} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &r.stdout)
		}
	}
}

// Each step can fail for its own reason; then the demo ends with that kind of
// error, and prints the step, the reason and the next step.
func TestDemoBroken(t *testing.T) {
	neverSucceed := map[string]bool{ // they would run until the step timeout
		"a name that nobody has set": true, "nobody who relays": true, "content that only the dead had": true, "a node that does not drain": true,
	}
	for name, c := range map[string]struct {
		step     string // that fails
		at       string // where the cause is; the same if empty
		sabotage func(context.Context, *demoNetwork) error
		kinds    []fault.Kind // one of them
		told     []string
	}{
		"a node that does not start": {"start", "", func(_ context.Context, s *demoNetwork) error {
			s.environ = append(s.environ, "MICRO_NONSENSE=1")
			return nil
		}, []fault.Kind{fault.BrokenPipe}, []string{"node 1 has exited (exit status", "the last log lines of node 1:", "MICRO_NONSENSE: nonsense is not a key\nThe nearest variable"}},
		"no program": {"start", "", func(_ context.Context, s *demoNetwork) error {
			s.program += ".gone"
			return nil
		}, []fault.Kind{fault.Internal}, []string{"no such file"}},
		"no room": {"put", "start", func(_ context.Context, s *demoNetwork) error {
			s.environ = append(s.environ, "MICRO_STORE__RAM_BYTES=1MiB")
			return nil
		}, []fault.Kind{fault.StoreFull}, []string{"the last log lines of node 1:"}},
		"a name that nobody has set": {"resolve", "put", func(_ context.Context, s *demoNetwork) error {
			s.manifest = b3.Of([]byte("only in somebody's mind"))
			return errSkipStep
		}, []fault.Kind{fault.NotFound}, []string{"the last log lines of node 2:"}},
		"a name for something else": {"resolve", "", func(_ context.Context, s *demoNetwork) error {
			s.manifest = s.largest().address
			return nil
		}, []fault.Kind{fault.IntegrityFail}, []string{"node 2 resolves site to b3:"}},
		"a node that dies": {"resolve", "", func(_ context.Context, s *demoNetwork) error {
			return s.first().command.Process.Kill() // without a notice to the demo
		}, []fault.Kind{fault.BrokenPipe}, []string{"node 1 has exited (signal: killed)"}},
		"other bytes": {"fetch", "", func(_ context.Context, s *demoNetwork) error {
			s.largest().body[3<<20] ^= 1
			return nil
		}, []fault.Kind{fault.IntegrityFail}, []string{"node 3 returned other bytes of data/large.bin"}},
		"fetched before": {"fetch", "", func(ctx context.Context, s *demoNetwork) error {
			return s.third().fetch(ctx, s.largest().address)
		}, []fault.Kind{fault.Conflict}, []string{"node 3 has data/large.bin already"}},
		"nobody who relays": {"gossip", "", func(ctx context.Context, s *demoNetwork) error {
			return errors.Join(s.second().local.RemovePeer(ctx, s.third().id()), s.third().local.RemovePeer(ctx, s.second().id()))
		}, []fault.Kind{fault.Timeout}, []string{"the message of node 1 did not reach node 3", "micronode peers"}},
		"nothing to relay": {"gossip", "", func(ctx context.Context, s *demoNetwork) error {
			return connectPeers(ctx, s.first(), s.third())
		}, []fault.Kind{fault.Conflict}, []string{"node 3 is connected to node 1"}},
		"a stranger's key": {"registry", "", func(_ context.Context, s *demoNetwork) error {
			_, key, err := ed25519.GenerateKey(nil)
			s.signers[1].key = key
			return err
		}, []fault.Kind{fault.InvalidSig}, []string{"the last log lines of node 2:"}},
		"content that only the dead had": {"kill", "", func(ctx context.Context, s *demoNetwork) error {
			return s.third().local.Delete(ctx, s.largest().address)
		}, []fault.Kind{fault.NotFound, fault.UpstreamFailed, fault.Timeout, fault.BreakerOpen}, []string{"the last log lines of node 2:"}},
		"a node that does not drain": {"end", "", func(_ context.Context, s *demoNetwork) error {
			return s.third().command.Process.Signal(syscall.SIGSTOP)
		}, []fault.Kind{fault.Timeout}, []string{"the last log lines of node 3:"}},
		"a node that is killed instead": {"end", "", func(ctx context.Context, s *demoNetwork) error {
			return errors.Join(s.third().signal(syscall.SIGKILL), s.third().awaitEnd(ctx))
		}, []fault.Kind{fault.Internal}, []string{"node 3 did not drain cleanly: signal: killed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestDemo(t)
			at := c.at
			if at == "" {
				at = c.step
			}
			if neverSucceed[name] {
				r.shortenTimeout(c.step)
			}
			r.beforeStep(at, c.sabotage)
			code := r.runAndCheck(t, t.Context())
			if code == 0 || !slices.ContainsFunc(c.kinds, func(kind fault.Kind) bool { return kind.Exit() == code }) {
				t.Errorf("it ended with %d, and not as %v", code, c.kinds)
			}
			for _, want := range append(c.told, "✗ "+c.step+" ", "micronode: the step "+c.step+" failed: ", " of 8 steps succeeded.\n") {
				if !strings.Contains(r.output(), want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if t.Failed() {
				t.Log(r.output())
			}
		})
	}
}

// shortenTimeout shortens the timeout of a step that cannot pass.
func (d *testDemo) shortenTimeout(name string) {
	i := slices.IndexFunc(d.steps, func(one demoStep) bool { return one.name == name })
	run := d.steps[i].run
	d.steps[i].run = func(ctx context.Context, s *demoNetwork) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return run(ctx, s)
	}
}

// With --json it reports the same: the step, the node and its log.
func TestDemoBrokenForAProgram(t *testing.T) {
	t.Parallel()
	r := newTestDemo(t)
	r.testConsole.console.json = true
	r.beforeStep("start", func(_ context.Context, s *demoNetwork) error {
		s.environ = append(s.environ, "MICRO_NONSENSE=1")
		return nil
	})
	if code := r.runAndCheck(t, t.Context()); code != fault.BrokenPipe.Exit() {
		t.Errorf("it ended with %d", code)
	}
	var first, last stepResult
	decoder := json.NewDecoder(&r.stdout)
	if err := errors.Join(decoder.Decode(&first), decoder.Decode(&last)); err != nil {
		t.Fatal(err)
	}
	if first.Step != "start" || first.OK || first.Node != 1 || !strings.Contains(strings.Join(first.Log, "\n"), "MICRO_NONSENSE") {
		t.Errorf("%+v", first)
	}
	if last.Step != "demo" || last.OK || last.Detail != "0 of 8 steps succeeded" {
		t.Errorf("%+v", last)
	}
	var reported problem
	if err := json.Unmarshal(r.stderr.Bytes(), &reported); err != nil || reported.Exit != fault.BrokenPipe.Exit() || !strings.Contains(reported.Detail, "the step start failed") {
		t.Errorf("%+v, %v", reported, err)
	}
}

// A Ctrl-C ends it in the middle of a step, with all its nodes.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancelCause(t.Context())
	r := newTestDemo(t)
	r.beforeStep("resolve", func(context.Context, *demoNetwork) error {
		interrupt(&interruptError{syscall.SIGINT})
		return nil
	})
	if code := r.runAndCheck(t, ctx); code != fault.Canceled.Exit() || !strings.Contains(r.output(), "✗ resolve ") || !strings.Contains(r.output(), "stopped by SIGINT") {
		t.Errorf("it ended with %d and said\n%s", code, r.output())
	}
}

// interruptingWriter sends an interrupt when it reads the text to wait for.
type interruptingWriter struct {
	io.Writer
	interrupt func()
}

func (i interruptingWriter) Write(text []byte) (int, error) {
	n, err := i.Writer.Write(text)
	if bytes.Contains(text, []byte("Ctrl-C stops them all")) {
		i.interrupt()
	}
	return n, err
}

// With --keep the nodes stay until Ctrl-C, which is no failure.
func TestDemoKept(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancelCause(t.Context())
	r := newTestDemo(t)
	r.keep = true
	r.testConsole.console.out = interruptingWriter{&r.stdout, func() {
		for _, n := range r.network.nodes[1:] {
			if err := n.checkReady(t.Context()); err != nil {
				t.Errorf("node %d: %v", n.number, err)
			}
		}
		interrupt(&interruptError{syscall.SIGINT})
	}}
	if code := r.runAndCheck(t, ctx); code != 0 {
		t.Errorf("it ended with %d and said\n%s", code, r.output())
	}
	for _, want := range []string{"  node 1  killed\n", "  node 2  gateway http://127.0.0.1:", "\n  micronode status --socket micronode-demo-", "✓ end ", "\nAll 8 steps succeeded.\n"} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &r.stdout)
		}
	}
}

// A node that dies while they are kept ends the demo, as a failure.
func TestDemoKeptInVain(t *testing.T) {
	t.Parallel()
	r := newTestDemo(t)
	r.keep = true
	r.testConsole.console.out = interruptingWriter{&r.stdout, func() { _ = r.network.third().command.Process.Kill() }}
	if code := r.runAndCheck(t, t.Context()); code != fault.BrokenPipe.Exit() || !strings.Contains(r.output(), "✗ end ") || !strings.Contains(r.output(), "node 3 has exited (signal: killed)") {
		t.Errorf("it ended with %d and said\n%s", code, r.output())
	}
}

// A demo that is killed takes its nodes with it.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	command := &exec.Cmd{Path: program, Args: []string{"micronode", "demo", "--keep", "--json"}, Stderr: &stderr,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var kept stepResult
	for decoder := json.NewDecoder(out); kept.Step != "keep"; {
		kept = stepResult{}
		if err := decoder.Decode(&kept); err != nil || !kept.OK {
			_ = command.Process.Kill()
			t.Fatalf("%+v, %v\n%s", kept, err, &stderr)
		}
	}
	if len(kept.Nodes) != 3 || kept.Nodes[0].State != nodeKilled || !isAlive(kept.Nodes[1].PID) || !isAlive(kept.Nodes[2].PID) {
		t.Errorf("%+v", kept.Nodes)
	}
	if err := command.Process.Kill(); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = command.Wait()
	for _, one := range kept.Nodes {
		for end := time.Now().Add(testTimeout); isAlive(one.PID); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("node %d outlives the demo", one.Node)
			}
		}
	}
}

// isAlive reports whether a process runs. A zombie does not.
func isAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return err == nil && !bytes.HasPrefix(rest, []byte("Z")) && !bytes.HasPrefix(rest, []byte("X"))
}

func TestDemoSizes(t *testing.T) {
	for _, nodes := range []string{"2", "0", "-1", "10"} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"demo", "--nodes=" + nodes}, "--nodes is "+nodes, "from 3 to 9")
	}
}

// The user's own settings do not apply to the nodes of the demo.
func TestDemoEnvironment(t *testing.T) {
	got := demoEnvironment([]string{"HOME=/home/x", "MICRO_HTTP__ADDR=0.0.0.0:1", "AMNESIA=0", "MICRO_THREADS=1", "MICRO_TOKEN=secret", "MICRO_AMNESIA__ENFORCE=off"})
	want := []string{"HOME=/home/x", "MICRO_THREADS=1", "MICRO_AMNESIA__ENFORCE=off", "MICRO_INDEX__DHT__ENABLED=true", "MICRO_INDEX__DHT__ADDR=127.0.0.1:0"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// The end of a node's log is kept, within its bound.
func TestDemoTail(t *testing.T) {
	var log logTail
	if lines := log.lines(); lines != nil {
		t.Errorf("%q", lines)
	}
	for i := range 2000 {
		fmt.Fprintf(&log, "line %d\n", i)
	}
	lines := log.lines()
	if len(lines) != tailLines || lines[0] != "line 1988" || lines[tailLines-1] != "line 1999" || len(log.text) > tailBytes {
		t.Errorf("%q of %d bytes", lines, len(log.text))
	}
}

// Only the exact requested range is accepted.
func TestDemoRanges(t *testing.T) {
	s := &demoNetwork{httpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for name, c := range map[string]struct {
		status      int
		header      string
		body, wants string
	}{
		"right":      {http.StatusPartialContent, "bytes 2-4/9", "abc", ""},
		"whole":      {http.StatusOK, "", "012abc678", "with 200 OK"},
		"elsewhere":  {http.StatusPartialContent, "bytes 3-5/9", "abc", `"bytes 3-5/9"`},
		"too few":    {http.StatusPartialContent, "bytes 2-4/9", "ab", "2 bytes"},
		"not there":  {http.StatusNotFound, "", "", "404"},
		"cut in two": {http.StatusPartialContent, "bytes 2-4/9", "", "0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked := r.Header.Get("Range"); asked != "bytes=2-4" {
					t.Errorf("it asks for %q", asked)
				}
				w.Header().Set("Content-Range", c.header)
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}))
			defer server.Close()
			part, err := s.readRange(t.Context(), server.URL, 2, 5, 9)
			if c.wants == "" && (err != nil || string(part) != c.body) || c.wants != "" && (err == nil || !strings.Contains(err.Error(), c.wants)) {
				t.Errorf("%q, %v", part, err)
			}
		})
	}
	if _, err := s.readRange(t.Context(), "http://127.0.0.1:1/", 0, 1, 1); err == nil {
		t.Error("nobody listens, and that is no error")
	}
}
