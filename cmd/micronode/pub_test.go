package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/testkit"
)

var (
	someID     = strings.Repeat("a", 52)
	emptyID    = b3.Of(nil).String()
	sentToOne  = fmt.Sprintf(`{"id":%q,"peers":1,"busy":0}`, emptyID)
	sentToNone = fmt.Sprintf(`{"id":%q,"peers":0,"busy":0}`, emptyID)
	sentToBusy = fmt.Sprintf(`{"id":%q,"peers":0,"busy":2}`, emptyID)
)

// fakePublishNode is a fake node that records what is published.
func fakePublishNode(t *testing.T, answers ...string) *[]string {
	var got []string
	fakeNode(t, map[string]http.HandlerFunc{"POST /overlay/publish/{topic...}": func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got = append(got, r.PathValue("topic")+" "+string(data))
		respondJSON(http.StatusOK, answers[min(len(got), len(answers))-1])(w, r)
	}})
	return &got
}

func TestPublishing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "message")
	testkit.Must(t, os.WriteFile(file, []byte("from\na file\n"), 0o600))
	line := emptyID + "  1 peer\n"
	for name, c := range map[string]struct {
		args   []string
		in     string
		want   []string
		stdout string
	}{
		"an argument":       {[]string{"news/local", "hello"}, "", []string{"news/local hello"}, line},
		"an empty argument": {[]string{"news", ""}, "not this", []string{"news "}, line},
		"standard input":    {[]string{"news"}, "hello\nworld\n", []string{"news hello\nworld\n"}, line},
		"a hyphen":          {[]string{"news", "-"}, "hello", []string{"news hello"}, line},
		"a file":            {[]string{"news", "--file", file}, "", []string{"news from\na file\n"}, line},
		"a file called -":   {[]string{"news", "--file", "-"}, "hello", []string{"news hello"}, line},
		"lines":             {[]string{"news", "--lines"}, "one\ntwo\r\n\nlast", []string{"news one", "news two", "news ", "news last"}, strings.Repeat(line, 4)},
		"lines of a file":   {[]string{"news", "--lines", "--file", file}, "", []string{"news from", "news a file"}, strings.Repeat(line, 2)},
		"no lines":          {[]string{"news", "--lines"}, "", nil, ""},
		"JSON":              {[]string{"news", "x", "--json"}, "", []string{"news x"}, sentToOne + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := fakePublishNode(t, sentToOne)
			s := newTestConsole(t)
			s.in = strings.NewReader(c.in)
			s.expect(t, t.Context(), 0, append([]string{"pub"}, c.args...))
			if !slices.Equal(*got, c.want) || s.stdout.String() != c.stdout || s.stderr.Len() > 0 {
				t.Errorf("%q; it printed %q and said %q", *got, &s.stdout, &s.stderr)
			}
		})
	}
}

// Publishing without peers prints a warning once, with the next step.
func TestPublishingToNobody(t *testing.T) {
	fakePublishNode(t, sentToNone)
	s := newTestConsole(t)
	s.in = strings.NewReader("one\ntwo\n")
	s.expect(t, t.Context(), 0, []string{"pub", "news", "--lines"}, "no peer received it: the node is connected to none\nAdd one with micronode peers add ID@HOST:PORT")
	if n := strings.Count(s.stderr.String(), "no peer"); n != 1 || s.stdout.String() != strings.Repeat(emptyID+"  0 peers\n", 2) {
		t.Errorf("%d warnings; it printed %q", n, &s.stdout)
	}
	fakePublishNode(t, sentToBusy)
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"pub", "news", "x"}, "all connected peers are busy\nPublish it again")
	if s.stdout.String() != emptyID+"  0 peers, 2 busy\n" {
		t.Errorf("it printed %q", &s.stdout)
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"pub", "news", "x", "--json"})
	if s.stderr.Len() > 0 || s.stdout.String() != sentToBusy+"\n" {
		t.Errorf("it printed %q and said %q", &s.stdout, &s.stderr)
	}
	s = newTestConsole(t)
	s.inTerminal, s.errTerminal = true, true
	s.expect(t, t.Context(), 0, []string{"pub", "news"}, "Ctrl-D")
}

func TestWhatCannotBePublished(t *testing.T) {
	got := fakePublishNode(t, sentToOne)
	file := filepath.Join(t.TempDir(), "large")
	testkit.Must(t, os.WriteFile(file, bytes.Repeat([]byte("x"), client.MaxMessage+1), 0o600))
	for name, c := range map[string]struct {
		kind fault.Kind
		args []string
		in   io.Reader
		told string
	}{
		"two messages":       {fault.Malformed, []string{"news", "x", "--file", "y"}, nil, "two messages"},
		"a message of lines": {fault.Malformed, []string{"news", "x", "--lines"}, nil, "--lines needs"},
		"no time":            {fault.Malformed, []string{"news", "x", "--timeout", "0s"}, nil, "--timeout"},
		"no such file":       {fault.NotFound, []string{"news", "--file", "/nowhere"}, nil, "micronode: /nowhere: there is no such file"},
		"a large file":       {fault.BodyTooLarge, []string{"news", "--file", file}, nil, "micronode put"},
		"a bad topic":        {fault.Malformed, []string{"news//local", "x"}, nil, "news//local"},
		"a broken keyboard":  {fault.Malformed, []string{"news"}, failingReader{}, "the message cannot be read: the keyboard is broken"},
		"a line too long":    {fault.BodyTooLarge, []string{"news", "--lines"}, strings.NewReader(strings.Repeat("x", client.MaxMessage+3)), "line 1; all lines before it were published: the message exceeds"},
		"a little too long":  {fault.BodyTooLarge, []string{"news", "--lines"}, strings.NewReader(strings.Repeat("x", client.MaxMessage+1) + "\n"), "line 1; all lines before it were published: a message of"},
		"broken in a line":   {fault.Malformed, []string{"news", "--lines"}, io.MultiReader(strings.NewReader("half"), failingReader{}), "line 1; all lines before it were published: the message cannot be read"},
		"broken at once":     {fault.Malformed, []string{"news", "--lines"}, failingReader{}, "line 1; all lines before it were published: the message cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestConsole(t)
			if c.in != nil {
				s.in = c.in
			}
			s.expect(t, t.Context(), c.kind.Exit(), append([]string{"pub"}, c.args...), c.told)
			if len(*got) > 0 || s.stdout.Len() > 0 {
				t.Errorf("%q was published, and %q printed", *got, &s.stdout)
			}
		})
	}
	s := newTestConsole(t) // the maximum size is accepted
	s.in = strings.NewReader(strings.Repeat("x", client.MaxMessage) + "\r\n")
	s.expect(t, t.Context(), 0, []string{"pub", "news", "--lines"})
	if len(*got) != 1 || len((*got)[0]) != client.MaxMessage+len("news ") {
		t.Errorf("%d were published", len(*got))
	}
}

// respondProblem answers with a problem document.
func respondProblem(kind fault.Kind, detail string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(kind.Status())
		fmt.Fprintf(w, `{"code":%q,"detail":%q}`, kind.Code(), detail)
	}
}

// Publishing stops at the first line that fails, and the error names the line.
func TestALineThatFails(t *testing.T) {
	n := 0
	fakeNode(t, map[string]http.HandlerFunc{"POST /overlay/publish/{topic...}": func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 3 {
			respondProblem(fault.Forbidden, "the token is for another topic")(w, r)
			return
		}
		respondJSON(http.StatusOK, sentToOne)(w, r)
	}})
	s := newTestConsole(t)
	s.in = strings.NewReader("1\n2\n3\n4\n")
	s.expect(t, t.Context(), fault.Forbidden.Exit(), []string{"pub", "news", "--lines"}, "micronode: line 3; all lines before it were published: the token is for another topic")
	if n != 3 {
		t.Errorf("%d tries", n)
	}
	fakeNode(t, map[string]http.HandlerFunc{"POST /overlay/publish/{topic...}": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "60") // longer than the timeout
		respondProblem(fault.Busy, "the queue is full")(w, r)
	}})
	newTestConsole(t).expect(t, t.Context(), fault.Busy.Exit(), []string{"pub", "news", "x"}, "micronode: the queue is full")
	full := newTestConsole(t)
	got := fakePublishNode(t, sentToOne)
	full.out, full.in = fullDiskWriter{}, strings.NewReader("1\n2\n")
	full.expect(t, t.Context(), fault.StoreFull.Exit(), []string{"pub", "news", "--lines"}, "standard output cannot be written")
	if len(*got) != 1 {
		t.Errorf("it went on with %q", *got)
	}
}

// fullDiskWriter is a standard output on a full disk.
type fullDiskWriter struct{}

func (fullDiskWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// scriptedNode is a fake node inside a bubble, where time is faked.
type scriptedNode func(n int, r *http.Request) (*http.Response, error)

// client makes a client of a scripted node.
func (s scriptedNode) client(t *testing.T) *client.Client {
	n := 0
	transport := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		n++
		if r.Body != nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		answer, err := s(n, r)
		if answer != nil {
			answer.Request = r
		}
		return answer, err
	})
	c, err := client.New(client.Options{URL: "http://node.example", HTTPClient: &http.Client{Transport: transport}})
	testkit.Must(t, err)
	return c
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newResponse(status int, media string, body io.Reader) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}}, ContentLength: -1, Body: io.NopCloser(body)}
}

func TestABusyNodeIsWaitedFor(t *testing.T) {
	refusal := `{"code":"Busy","detail":"the queue is full"}`
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{console: newTestConsole(t).console, topic: "news", timeout: time.Minute}
		p.node = scriptedNode(func(n int, _ *http.Request) (*http.Response, error) {
			if n <= 20 {
				return newResponse(429, "application/problem+json", strings.NewReader(refusal)), nil
			}
			return newResponse(200, "application/json", strings.NewReader(sentToOne)), nil
		}).client(t)
		if err := p.publish(t.Context(), []byte("x")); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{console: newTestConsole(t).console, topic: "news", timeout: time.Minute}
		p.node = scriptedNode(func(int, *http.Request) (*http.Response, error) {
			return newResponse(429, "application/problem+json", strings.NewReader(refusal)), nil
		}).client(t)
		start := time.Now()
		if err := p.publish(t.Context(), []byte("x")); fault.KindOf(err) != fault.Busy || time.Since(start) > time.Minute || time.Since(start) < 58*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(700*time.Millisecond, cancel)
		if err := p.publish(ctx, []byte("x")); fault.KindOf(err) != fault.Canceled {
			t.Error(err)
		}
	})
}

// A signal cancels the wait for a keyboard.
func TestInterruptedInput(t *testing.T) {
	fakePublishNode(t, sentToOne)
	for _, args := range [][]string{{"pub", "news"}, {"pub", "news", "--lines"}} {
		in, keyboard, err := os.Pipe()
		testkit.Must(t, err)
		defer in.Close()
		defer keyboard.Close()
		ctx, interrupt := context.WithCancelCause(t.Context())
		s := newTestConsole(t)
		s.in, s.out = in, writeHook(func() { interrupt(&interruptError{syscall.SIGINT}) })
		if _, err := io.WriteString(keyboard, "half a line\nand a half"); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(args, "--lines") {
			interrupt(&interruptError{syscall.SIGINT})
		}
		wantStderr := "micronode: stopped by SIGINT\n"
		if slices.Contains(args, "--lines") {
			wantStderr = "stopped by SIGINT\nTo continue, skip the published lines: tail -n +2\n"
		}
		s.expect(t, ctx, fault.Canceled.Exit(), args, wantStderr)
	}
	in, keyboard, err := os.Pipe()
	testkit.Must(t, err)
	defer in.Close()
	_, _ = io.WriteString(keyboard, "hello")
	_ = keyboard.Close()
	got := fakePublishNode(t, sentToOne)
	s := newTestConsole(t)
	s.in = in
	s.expect(t, t.Context(), 0, []string{"pub", "news"})
	if !slices.Equal(*got, []string{"news hello"}) {
		t.Errorf("%q", *got)
	}
}

// writeHook calls a function at each write.
type writeHook func()

func (w writeHook) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}
