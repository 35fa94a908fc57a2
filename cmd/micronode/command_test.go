package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/node"
	"micronode/internal/terminal"
	"micronode/internal/testkit"
)

// testConsole is one command that is run inside the test.
type testConsole struct {
	*console
	stdout, stderr bytes.Buffer
}

func newTestConsole(t *testing.T) *testConsole {
	s := &testConsole{}
	s.console = &console{in: strings.NewReader(""), out: &s.stdout, err: &s.stderr, restoreTerminal: new(atomic.Pointer[func()]),
		exit: func(code int) { t.Errorf("it ended the process with %d", code) }}
	return s
}

// expect runs a command and checks its exit code and texts on standard error.
func (c *testConsole) expect(t *testing.T, ctx context.Context, code int, args []string, wantStderr ...string) {
	t.Helper()
	if got := execute(ctx, c.console, args); got != code {
		t.Errorf("%q ended with %d, not %d; it said\n%s", args, got, code, &c.stderr)
	}
	for _, text := range wantStderr {
		if !strings.Contains(c.stderr.String(), text) {
			t.Errorf("%q does not say %q, but\n%s", args, text, &c.stderr)
		}
	}
}

// fakeNode answers as an unhealthy node does, because a real one rarely is.
// Commands reach it by MICRO_URL.
func fakeNode(t *testing.T, routes map[string]http.HandlerFunc) {
	mux := http.NewServeMux()
	for pattern, handler := range routes {
		mux.HandleFunc(pattern, handler)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Setenv("MICRO_URL", server.URL)
}

func respondJSON(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func TestAnObjectThatIsWrongLeavesNoFile(t *testing.T) {
	right := []byte("the right bytes")
	address := b3.Of(right).String()
	fakeNode(t, map[string]http.HandlerFunc{"GET /o/{address}": respondJSON(http.StatusOK, "the wrong bytes")})

	folder := t.TempDir()
	newTestConsole(t).expect(t, t.Context(), fault.IntegrityFail.Exit(), []string{"get", address, "-o", filepath.Join(folder, "new")}, address)
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	kept := filepath.Join(folder, "kept")
	testkit.Must(t, os.WriteFile(kept, []byte("old"), 0o600))
	newTestConsole(t).expect(t, t.Context(), fault.IntegrityFail.Exit(), []string{"get", address, "-o", kept})
	if data, _ := os.ReadFile(kept); string(data) != "old" {
		t.Errorf("the file that was there is now %q", data)
	}
	// A pipe gets the bytes as they arrive; only the exit code shows the
	// mismatch.
	newTestConsole(t).expect(t, t.Context(), fault.IntegrityFail.Exit(), []string{"get", address})
	pipe := newTestConsole(t)
	pipe.outTerminal = true
	pipe.expect(t, t.Context(), fault.IntegrityFail.Exit(), []string{"get", address})
}

const unhealthyStatus = `{"peer_id":"abc","version":"1","profile":"micronode","amnesia":true,
	"listen":{"http":"https://127.0.0.1:1","admin":"127.0.0.1:2","overlay":""},
	"ready":true,"write_ready":true,"degraded":false,
	"services":[{"name":"store","state":"backoff","restarts":7}],
	"queues":[{"service":"node","name":"work","depth":250,"cap":256},{"service":"node","name":"bus","depth":0,"cap":512}]}`

// What the status says and why are of one moment, that of /readyz: the rest of the
// status was asked for before.
func TestWhyANodeIsNotReady(t *testing.T) {
	respond := func(ready, writeReady, degraded bool) http.HandlerFunc {
		return respondJSON(http.StatusServiceUnavailable, fmt.Sprintf(`{"ready":%t,"write_ready":%t,"degraded":%t,"missing":["store"],
			"reasons":[{"dep":"store","reason":"it is full","next":"Remove objects."}],"retry_after":1}`, ready, writeReady, degraded))
	}
	readiness := respond(false, false, true)
	for name, c := range map[string]struct {
		readiness http.HandlerFunc
		want      string
	}{
		"down":       {readiness, "is not ready\n"},
		"reads only": {respond(true, false, false), "is ready for reads only\n"},
		"degraded":   {respond(true, true, true), "is ready, but degraded\n"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeNode(t, map[string]http.HandlerFunc{"GET /admin/status": respondJSON(http.StatusOK, unhealthyStatus), "GET /readyz": c.readiness})
			s := newTestConsole(t)
			s.expect(t, t.Context(), 0, []string{"status"})
			for _, want := range []string{c.want, "\n  store: it is full\n  Remove objects.\n", "store    backoff  7\n",
				"gateway  https://127.0.0.1:1\n", "admin    http://127.0.0.1:2\n", "node.work  250    256\n"} {
				if !strings.Contains(s.stdout.String(), want) {
					t.Errorf("no %q in\n%s", want, &s.stdout)
				}
			}
			if strings.Contains(s.stdout.String(), "overlay") || strings.Contains(s.stdout.String(), "node.bus") {
				t.Errorf("it shows what is not there:\n%s", &s.stdout)
			}
		})
	}
	asked := 0
	ctx, pass := testkit.Deadline(t)
	fakeNode(t, map[string]http.HandlerFunc{"GET /readyz": func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 2 {
			pass()
		}
		readiness(w, r)
	}})
	newTestConsole(t).expect(t, ctx, fault.NotReady.Exit(), []string{"status", "--wait", "1h"},
		"micronode: waited for 1h0m0s: the node is not ready: store: it is full\nRemove objects.\n")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"status"})

	fakeNode(t, map[string]http.HandlerFunc{"GET /admin/status": respondJSON(http.StatusOK, "{}")})
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"status"})
}

// A signal cancels what is under way: a wait, and a transfer with all that
// follow.
func TestAnInterruptedCommand(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	fakeNode(t, map[string]http.HandlerFunc{
		"POST /put": func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		},
		"GET /readyz": respondJSON(http.StatusServiceUnavailable, `{}`),
	})
	defer close(release)
	file := filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, []byte("hello"), 0o600))
	ctx, interrupt := context.WithCancelCause(t.Context())
	go func() {
		<-begun
		interrupt(&interruptError{syscall.SIGINT})
	}()
	newTestConsole(t).expect(t, ctx, fault.Canceled.Exit(), []string{"put", file, file, file},
		"stopped by SIGINT\nNo work was left half done.", "micronode: 2 more not tried\n")
	newTestConsole(t).expect(t, ctx, fault.Canceled.Exit(), []string{"status", "--wait", "1h"}, "micronode: stopped by SIGINT\n")
}

func TestTheSecondSignalEndsTheProcess(t *testing.T) {
	exitCodes := make(chan int, 1)
	var stderr bytes.Buffer
	c := &console{err: &stderr, exit: func(code int) { exitCodes <- code }, restoreTerminal: new(atomic.Pointer[func()])}
	ctx, stop := c.untilInterrupted(t.Context())
	testkit.Must(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	if cause := context.Cause(ctx).Error(); cause != "stopped by SIGTERM" {
		t.Errorf("the cause is %q", cause)
	}
	c.json = true // as the parser does, on another goroutine: the race detector finds a handler that reads it
	testkit.Must(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	if code := <-exitCodes; code != 130 {
		t.Errorf("it ended with %d", code)
	}
	stop()
	if stderr.String() != "micronode: stopped at once\n" {
		t.Errorf("it said %q", &stderr)
	}
	if fault.KindOf(&interruptError{os.Kill}) != fault.Canceled || (&interruptError{unknownSignal{}}).Error() != "stopped by an odd signal" {
		t.Error("an interruption is of another kind")
	}
}

// Programs such as timeout(1) send a signal to a process and to its group, and
// mean it once. The terminal is restored before the process ends.
func TestASignalThatComesTwiceAtOnceIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trace := ""
		c := &console{err: io.Discard, exit: func(code int) { trace += fmt.Sprint("ended with ", code) }, restoreTerminal: new(atomic.Pointer[func()])}
		leave := func() { trace += "left the screen, " }
		c.restoreTerminal.Store(&leave)
		handle := c.signalHandler(func(cause error) { trace += cause.Error() + ", " })
		handle(syscall.SIGINT)
		handle(syscall.SIGINT)
		if trace != "stopped by SIGINT, " {
			t.Error(trace)
		}
		time.Sleep(duplicateSignalWindow)
		handle(syscall.SIGINT)
		if trace != "stopped by SIGINT, left the screen, ended with 130" {
			t.Error(trace)
		}
	})
}

type unknownSignal struct{}

func (unknownSignal) Signal()        {}
func (unknownSignal) String() string { return "an odd signal" }

type panickingWriter struct{}

func (panickingWriter) Write([]byte) (int, error) { panic("boom") }

func TestABugIsReportedWithoutAStack(t *testing.T) {
	s := newTestConsole(t)
	s.out = panickingWriter{}
	s.expect(t, t.Context(), fault.Internal.Exit(), []string{"version"}, "micronode: boom\nThis is a bug in micronode.")
	if strings.Contains(s.stderr.String(), "goroutine") {
		t.Error("there is a stack trace")
	}
}

func TestWhatIsBinary(t *testing.T) {
	for text, want := range map[string]bool{
		"":                      false,
		"plain\ttext\n":         false,
		"grüße":                 false,
		"cut in two: gr\xc3":    false,
		"cut: \xf0\x9f\x98":     false,
		"a zero\x00":            true,
		"latin \xfc in between": true,
		"\xff\xfe\xff\xfe\xff":  true,
	} {
		if isBinary([]byte(text)) != want {
			t.Errorf("%q", text)
		}
	}
}

func TestWhatAnErrorSays(t *testing.T) {
	cause := errors.New("connection refused")
	same := fault.New("client.dial", fault.NotReady, "no node")
	same.Err = cause
	for want, err := range map[string]error{
		"Not ready":                   &fault.Error{Op: "x", Kind: fault.NotReady},
		"no room":                     fault.New("store.put", fault.StoreFull, "no room"),
		"no node: connection refused": &fault.Error{Op: "client.dial", Kind: fault.NotReady, Detail: "no node", Err: reportedError{same}},
		"connection refused":          fault.Wrap("outer", fault.Wrap("inner", cause)),
		"one":                         errors.Join(errors.New("one"), nil),
		"one\ntwo":                    errors.Join(errors.New("one"), errors.New("two")),
	} {
		if got := terminal.ErrorText(err); got != want {
			t.Errorf("%v: it says %q, not %q", err, got, want)
		}
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	for want, err := range map[fault.Kind]error{
		fault.NotFound:  newOpenError(fs.ErrNotExist),
		fault.Forbidden: newOpenError(&fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}),
		fault.Malformed: newOpenError(&fs.PathError{Op: "open", Path: "x", Err: syscall.ENAMETOOLONG}),
		fault.StoreFull: wrapSaveError("x", syscall.ENOSPC),
	} {
		if fault.KindOf(err) != want || fault.NextOf(err) == want.Next() {
			t.Errorf("%v, %s", err, fault.NextOf(err))
		}
	}
	for want, err := range map[fault.Kind]error{
		fault.Forbidden: wrapSaveError("x", fs.ErrPermission),
		fault.Conflict:  wrapSaveError("x", fs.ErrExist),
	} {
		if fault.KindOf(err) != want {
			t.Errorf("%v", err)
		}
	}
	if err := wrapWriteError("x", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}); fault.KindOf(err) != fault.Forbidden {
		t.Errorf("%v", err)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"put", strings.Repeat("x", 5000)}, "it cannot be opened: file name too long")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"identity", "new", "--out", "/dev/full/x"}, "mkdir -p /dev/full")
}

// failingReader is a source that fails.
type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("the keyboard is broken") }

func TestATokenFromTheKeyboard(t *testing.T) {
	s := newTestConsole(t)
	s.inTerminal, s.in = true, strings.NewReader("hunter2\n")
	s.expect(t, t.Context(), fault.Malformed.Exit(), []string{"token", "show"}, "token: micronode: this is not a micronode token")
	s = newTestConsole(t)
	s.in = failingReader{}
	s.expect(t, t.Context(), fault.Internal.Exit(), []string{"token", "attenuate", "-", "--ttl", "1h"}, "the keyboard is broken")
}

// The input of a pipe has no size; the progress bar shows the bytes so far,
// and is cleared at the end.
func TestTheMeterOfAPipe(t *testing.T) {
	content := bytes.Repeat([]byte("x"), 2<<20)
	fakeNode(t, map[string]http.HandlerFunc{"POST /o": func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		respondJSON(http.StatusCreated, fmt.Sprintf(`{"address":%q,"size":%d}`, b3.Of(body), len(body)))(w, r)
	}})
	s := newTestConsole(t)
	s.errTerminal, s.in = true, io.MultiReader(bytes.NewReader(content)) // not a Seeker
	s.expect(t, t.Context(), 0, []string{"put", "-"}, "standard input")
	if want := b3.Of(content).String() + "  -\n"; s.stdout.String() != want {
		t.Errorf("it printed %q", &s.stdout)
	}
	lines := strings.Split(strings.TrimRight(s.stderr.String(), "\r"), "\r")
	if last := lines[len(lines)-1]; strings.TrimSpace(last) != "" {
		t.Errorf("left on the screen: %q", last)
	}
}

// Completion knows which options take a value by their name alone, so a name
// must mean the same everywhere.
func TestOptionsMeanTheSameEverywhere(t *testing.T) {
	all := completionPointsOf(newParser(t.Context(), newTestConsole(t).console).Model.Node)
	for _, at := range all {
		for _, one := range at.Options {
			if slices.Contains(all.ValueFlags(), "--"+one.Long) != one.TakesValue {
				t.Errorf("%s --%s: takes a value elsewhere", at.Path, one.Long)
			}
		}
	}
	if len(all) < 18 || len(all.ValueFlags()) < 10 {
		t.Errorf("only %d places and %d options with a value", len(all), len(all.ValueFlags()))
	}
}

func TestJSONIsSeenInALineThatDoesNotParse(t *testing.T) {
	for want, line := range map[bool][]string{
		true:  {"nonsense", "--json"},
		false: {"put", "--", "--json"},
	} {
		if wantsJSON(line) != want {
			t.Errorf("%q", line)
		}
	}
}

// TestOnlyNamesAllParts: the help and the completion of --only name every part.
func TestOnlyNamesAllParts(t *testing.T) {
	field, _ := reflect.TypeFor[runCommand]().FieldByName("Only")
	offered, names := strings.Split(field.Tag.Get("complete"), ","), node.PartNames()
	slices.Sort(offered)
	slices.Sort(names)
	if !slices.Equal(offered, names) {
		t.Errorf("--only completes %q, the parts are %q", offered, names)
	}
	for _, name := range names {
		if !strings.Contains(field.Tag.Get("help"), name) {
			t.Errorf("the help of --only does not name %s", name)
		}
	}
}
