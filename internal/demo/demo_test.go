package demo

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
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/terminal"
)

// testDemo is the demo with real nodes, and with steps that a test can break.
type testDemo struct {
	run
	stdout, stderr bytes.Buffer
	network        *network // once the first step has begun
}

var testDemoCount atomic.Int64

func newTestDemo() *testDemo {
	r := &testDemo{run: run{Demo: Demo{Nodes: 3}, steps: allSteps(), stepTimeout: 2 * time.Minute}}
	r.Out, r.Err = &r.stdout, &r.stderr
	r.beforeStep("start", func(_ context.Context, net *network) error {
		r.network = net
		// How fast a node drains is tested by the gates; here two demos and
		// their nodes share two processors with other tests.
		net.environ = append(net.environ, "GORACE=atexit_sleep_ms=10", "MICRO_NODE__DRAIN=5s", "MICRONODE_TEST_ROLE="+nodeRole)
		net.socketPrefix += fmt.Sprintf("-%d", testDemoCount.Add(1)) // several demos run in this process
		return nil
	})
	return r
}

// errSkipStep is returned in place of a step.
var errSkipStep = errors.New("the step is not played")

// beforeStep runs a function before a step, as a part of it.
func (d *testDemo) beforeStep(name string, do func(context.Context, *network) error) {
	i := slices.IndexFunc(d.steps, func(one step) bool { return one.name == name })
	run := d.steps[i].run
	d.steps[i].run = func(ctx context.Context, net *network) (string, error) {
		switch err := do(ctx, net); {
		case errors.Is(err, errSkipStep):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("the test itself: %w", err)
		}
		return run(ctx, net)
	}
}

// playAndCheck plays the demo, returns its error, and checks that no node is
// left.
func (d *testDemo) playAndCheck(t *testing.T, ctx context.Context) error {
	t.Helper()
	err := d.play(ctx)
	for _, n := range d.network.nodes {
		if pid := n.command.Process.Pid; !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			t.Errorf("node %d, the process %d, is left", n.number, pid)
		}
	}
	return err
}

func (d *testDemo) output() string { return d.stdout.String() + d.stderr.String() }

// errInterrupted is the cause of a context that Ctrl-C ended.
var errInterrupted = fault.New("test", fault.Canceled, "stopped by SIGINT")

// All steps pass, each with its duration, its result and the command to type.
func TestDemo(t *testing.T) {
	t.Parallel()
	r := newTestDemo()
	r.Nodes = 4
	if err := r.playAndCheck(t, t.Context()); err != nil || r.stderr.Len() > 0 {
		t.Fatalf("it ended with %v and said\n%s", err, r.output())
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
		sabotage func(context.Context, *network) error
		kinds    []fault.Kind // one of them
		told     []string
	}{
		"a node that does not start": {"start", "", func(_ context.Context, net *network) error {
			net.environ = append(net.environ, "MICRO_NONSENSE=1")
			return nil
		}, []fault.Kind{fault.BrokenPipe}, []string{"node 1 has exited (exit status", "the last log lines of node 1:", "MICRO_NONSENSE: nonsense is not a key\nThe nearest variable"}},
		"no program": {"start", "", func(_ context.Context, net *network) error {
			net.program += ".gone"
			return nil
		}, []fault.Kind{fault.Internal}, []string{"no such file"}},
		"no room": {"put", "start", func(_ context.Context, net *network) error {
			net.environ = append(net.environ, "MICRO_STORE__RAM_BYTES=1MiB")
			return nil
		}, []fault.Kind{fault.StoreFull}, []string{"the last log lines of node 1:"}},
		"a name that nobody has set": {"resolve", "put", func(_ context.Context, net *network) error {
			net.manifest = b3.Of([]byte("only in somebody's mind"))
			return errSkipStep
		}, []fault.Kind{fault.NotFound}, []string{"the last log lines of node 2:"}},
		"a name for something else": {"resolve", "", func(_ context.Context, net *network) error {
			net.manifest = net.largest().address
			return nil
		}, []fault.Kind{fault.IntegrityFail}, []string{"node 2 resolves site to b3:"}},
		"a node that dies": {"resolve", "", func(_ context.Context, net *network) error {
			return net.first().command.Process.Kill() // without a notice to the demo
		}, []fault.Kind{fault.BrokenPipe}, []string{"node 1 has exited (signal: killed)"}},
		"other bytes": {"fetch", "", func(_ context.Context, net *network) error {
			net.largest().body[3<<20] ^= 1
			return nil
		}, []fault.Kind{fault.IntegrityFail}, []string{"node 3 returned other bytes of data/large.bin"}},
		"fetched before": {"fetch", "", func(ctx context.Context, net *network) error {
			return net.third().fetch(ctx, net.largest().address)
		}, []fault.Kind{fault.Conflict}, []string{"node 3 has data/large.bin already"}},
		"nobody who relays": {"gossip", "", func(ctx context.Context, net *network) error {
			return errors.Join(net.second().local.RemovePeer(ctx, net.third().id()), net.third().local.RemovePeer(ctx, net.second().id()))
		}, []fault.Kind{fault.Timeout}, []string{"the message of node 1 did not reach node 3", "micronode peers"}},
		"nothing to relay": {"gossip", "", func(ctx context.Context, net *network) error {
			return connectPeers(ctx, net.first(), net.third())
		}, []fault.Kind{fault.Conflict}, []string{"node 3 is connected to node 1"}},
		"a stranger's key": {"registry", "", func(_ context.Context, net *network) error {
			_, key, err := ed25519.GenerateKey(nil)
			net.signers[1].key = key
			return err
		}, []fault.Kind{fault.InvalidSig}, []string{"the last log lines of node 2:"}},
		"content that only the dead had": {"kill", "", func(ctx context.Context, net *network) error {
			return net.third().local.Delete(ctx, net.largest().address)
		}, []fault.Kind{fault.NotFound, fault.UpstreamFailed, fault.Timeout, fault.BreakerOpen}, []string{"the last log lines of node 2:"}},
		"a node that does not drain": {"end", "", func(_ context.Context, net *network) error {
			return net.third().command.Process.Signal(syscall.SIGSTOP)
		}, []fault.Kind{fault.Timeout}, []string{"the last log lines of node 3:"}},
		"a node that is killed instead": {"end", "", func(ctx context.Context, net *network) error {
			return errors.Join(net.third().signal(syscall.SIGKILL), net.third().awaitEnd(ctx))
		}, []fault.Kind{fault.Internal}, []string{"node 3 did not drain cleanly: signal: killed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestDemo()
			at := c.at
			if at == "" {
				at = c.step
			}
			if neverSucceed[name] {
				r.shortenTimeout(c.step)
			}
			r.beforeStep(at, c.sabotage)
			err := r.playAndCheck(t, t.Context())
			if !slices.Contains(c.kinds, fault.KindOf(err)) {
				t.Errorf("it ended with %v, and not as %v", err, c.kinds)
			}
			said := r.output() + terminal.ErrorText(err) + "\n" + fault.NextOf(err) // as a command reports an error
			for _, want := range append(c.told, "✗ "+c.step+" ", "the step "+c.step+" failed: ", " of 8 steps succeeded.\n") {
				if !strings.Contains(said, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			if t.Failed() {
				t.Log(said)
			}
		})
	}
}

// shortenTimeout shortens the timeout of a step that cannot pass.
func (d *testDemo) shortenTimeout(name string) {
	i := slices.IndexFunc(d.steps, func(one step) bool { return one.name == name })
	run := d.steps[i].run
	d.steps[i].run = func(ctx context.Context, net *network) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return run(ctx, net)
	}
}

// With --json it reports the same: the step, the node and its log.
func TestDemoBrokenForAProgram(t *testing.T) {
	t.Parallel()
	r := newTestDemo()
	r.JSON = true
	r.beforeStep("start", func(_ context.Context, net *network) error {
		net.environ = append(net.environ, "MICRO_NONSENSE=1")
		return nil
	})
	if err := r.playAndCheck(t, t.Context()); fault.KindOf(err) != fault.BrokenPipe || !strings.HasPrefix(terminal.ErrorText(err), "the step start failed") {
		t.Errorf("it ended with %v", err)
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
	if r.stderr.Len() > 0 {
		t.Errorf("%s", &r.stderr)
	}
}

// What the steps rely on is really checked: a wrong answer, and no answer, are
// errors about the node that gave it.
func TestDemoChecks(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancelCause(t.Context())
	r := newTestDemo()
	r.JSON, r.Keep, r.Out = true, true, interruptingWriter{&r.stdout, func() { interrupt(errInterrupted) }}
	r.beforeStep("kill", func(ctx context.Context, net *network) error {
		n := net.second()
		head, err := n.local.RegistryHead(ctx)
		if err != nil {
			return err
		}
		real := net.manifest
		net.manifest = b3.Of([]byte("something else"))
		otherName := net.verifyVersion(ctx, n, head)
		net.manifest = real
		head.Version++
		ended, end := context.WithCancel(ctx)
		end()
		silent := func(step func(context.Context, *network) (string, error)) error {
			_, err := step(ended, net)
			return err
		}
		for name, c := range map[string]struct {
			err  error
			kind fault.Kind
		}{
			"another version":           {net.verifyVersion(ctx, n, head), fault.IntegrityFail},
			"a name of something else":  {otherName, fault.IntegrityFail},
			"no session":                {net.third().checkSession(ctx, net.first()), fault.NoRoute},
			"a peer that is not dead":   {net.checkSurvivors(ended), fault.Canceled},
			"a peer that does not hear": {connectPeers(ended, n, net.third()), fault.Canceled},
			"a session, unanswered":     {n.checkSession(ended, net.first()), fault.Canceled},
			"put, unanswered":           {silent(putSite), fault.Canceled},
			"resolve, unanswered":       {silent(resolveSite), fault.Canceled},
			"fetch, unanswered":         {silent(fetchSite), fault.Canceled},
			"gossip, unanswered":        {silent(relayMessage), fault.Canceled},
			"a message, unanswered":     {publishAndReceive(ended, net.first(), n, "hello"), fault.Canceled},
			"registry, unanswered":      {silent(commitChange), fault.Canceled},
			"a second registry":         {net.initRegistry(ctx, n), fault.Conflict},
			"a version, unanswered":     {net.verifyVersion(ended, n, head), fault.Canceled},
		} {
			if fault.KindOf(c.err) != c.kind {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		return nil
	})
	if err := r.playAndCheck(t, ctx); err != nil {
		t.Errorf("it ended with %v and said\n%s", err, r.output())
	}
	if lines := strings.Split(strings.TrimSpace(r.stdout.String()), "\n"); len(lines) != 10 || strings.Count(lines[7], `"state":"running"`) != 2 {
		t.Errorf("%q", lines)
	}
}

// A demo that is interrupted before its first node answers leaves none.
func TestDemoInterruptedAtOnce(t *testing.T) {
	t.Setenv("MICRONODE_TEST_ROLE", nodeRole)
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(errInterrupted)
	var stdout, stderr bytes.Buffer
	err := Demo{Nodes: 3, Out: &stdout, Err: &stderr, Live: &stdout, Colours: true}.Run(ctx)
	if fault.KindOf(err) != fault.Canceled || terminal.ErrorText(err) != "the step start failed: stopped by SIGINT" {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"3 nodes on this machine", "… start\r", terminal.Red.Paint("✗") + " start ", "\n0 of 8 steps succeeded.\n"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
}

// A Ctrl-C ends it in the middle of a step, with all its nodes.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancelCause(t.Context())
	r := newTestDemo()
	r.beforeStep("resolve", func(context.Context, *network) error {
		interrupt(errInterrupted)
		return nil
	})
	if err := r.playAndCheck(t, ctx); fault.KindOf(err) != fault.Canceled || !strings.Contains(r.output(), "✗ resolve ") || !strings.Contains(r.output(), "stopped by SIGINT") {
		t.Errorf("it ended with %v and said\n%s", err, r.output())
	}
}

// interruptingWriter sends an interrupt when it reads the text to wait for.
type interruptingWriter struct {
	io.Writer
	interrupt func()
}

func (i interruptingWriter) Write(text []byte) (int, error) {
	n, err := i.Writer.Write(text)
	if bytes.Contains(text, []byte("Ctrl-C stops them all")) || bytes.Contains(text, []byte(`{"step":"keep"`)) {
		i.interrupt()
	}
	return n, err
}

// With --keep the nodes stay until Ctrl-C, which is no failure.
func TestDemoKept(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancelCause(t.Context())
	r := newTestDemo()
	r.Keep = true
	r.Out = interruptingWriter{&r.stdout, func() {
		for _, n := range r.network.nodes[1:] {
			if err := n.checkReady(t.Context()); err != nil {
				t.Errorf("node %d: %v", n.number, err)
			}
		}
		interrupt(errInterrupted)
	}}
	if err := r.playAndCheck(t, ctx); err != nil {
		t.Errorf("it ended with %v and said\n%s", err, r.output())
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
	r := newTestDemo()
	r.Keep = true
	r.Out = interruptingWriter{&r.stdout, func() { _ = r.network.third().command.Process.Kill() }}
	if err := r.playAndCheck(t, t.Context()); fault.KindOf(err) != fault.BrokenPipe || !strings.Contains(r.output(), "✗ end ") || !strings.Contains(r.output(), "node 3 has exited (signal: killed)") {
		t.Errorf("it ended with %v and said\n%s", err, r.output())
	}
}

func TestDemoSizes(t *testing.T) {
	for _, nodes := range []int{2, 0, -1, 10} {
		err := Demo{Nodes: nodes, Out: io.Discard, Err: io.Discard}.Run(t.Context())
		if fault.KindOf(err) != fault.Malformed || terminal.ErrorText(err) != fmt.Sprint("--nodes is ", nodes) || !strings.Contains(fault.NextOf(err), "from 3 to 9") {
			t.Errorf("%d: %v", nodes, err)
		}
	}
}

// The user's own settings do not apply to the nodes of the demo.
func TestDemoEnvironment(t *testing.T) {
	got := nodeEnvironment([]string{"HOME=/home/x", "MICRO_HTTP__ADDR=0.0.0.0:1", "AMNESIA=0", "MICRO_THREADS=1", "MICRO_TOKEN=secret", "MICRO_AMNESIA__ENFORCE=off"})
	want := []string{"HOME=/home/x", "MICRO_THREADS=1", "MICRO_AMNESIA__ENFORCE=off", "MICRO_INDEX__DHT__ENABLED=true", "MICRO_INDEX__DHT__ADDR=127.0.0.1:0", "MICRO_OVERLAY__EXCHANGE=false"}
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
	net := &network{httpClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
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
			part, err := net.readRange(t.Context(), server.URL, 2, 5, 9)
			if c.wants == "" && (err != nil || string(part) != c.body) || c.wants != "" && (err == nil || !strings.Contains(err.Error(), c.wants)) {
				t.Errorf("%q, %v", part, err)
			}
		})
	}
	if _, err := net.readRange(t.Context(), "http://127.0.0.1:1/", 0, 1, 1); err == nil {
		t.Error("nobody listens, and that is no error")
	}
}
