package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"micronode/internal/config"
	"micronode/internal/node"
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
	if err := os.WriteFile(file, []byte("from\na file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), client.MaxMessage+1), 0o600); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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

// messageEvent is a message as a node sends it.
func messageEvent(origin, data string, signed bool) string {
	raw, _ := json.Marshal(client.Message{Origin: origin, Topic: "news", ID: b3.Of([]byte(data)), Data: []byte(data), Seq: 1, TS: 2, Signed: signed})
	return fmt.Sprintf("event: message\nid: %s\ndata: %s\n\n", b3.Of([]byte(data)), raw)
}

// fakeSubscribeNode is a fake node whose subscribers get these events only.
func fakeSubscribeNode(t *testing.T, events ...string) {
	fakeNode(t, map[string]http.HandlerFunc{"GET /overlay/subscribe/{topic...}": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ":\n\n", strings.Join(events, ""))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}})
}

func TestWhatSubPrints(t *testing.T) {
	events := []string{
		messageEvent(someID, "hello", true), messageEvent(someID, "two\nlines\n", true), messageEvent(someID, "\x1b[2J\xff\u202e\tü", true), messageEvent("\x1b]0;", "", false),
	}
	for name, c := range map[string]struct {
		terminal bool
		args     []string
		want     string
	}{
		"a pipe": {false, nil, "hello\ntwo\\nlines\n\x1b[2J\xff\u202e\tü\n\n"},
		"a terminal": {true, nil, "aaaaaaaa  hello\naaaaaaaa  two\\nlines\naaaaaaaa  \\x1b[2J\\xff\\u202e\\tü\n" +
			`\x1b]0;` + " (not signed)  \n"},
		"a program": {false, []string{"--json"},
			`{"origin":"` + someID + `","topic":"news","id":"` + b3.Of([]byte("hello")).String() + `","data":"aGVsbG8=","seq":1,"ts":2,"signed":true}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeSubscribeNode(t, events...)
			s := newTestConsole(t)
			s.outTerminal = c.terminal
			s.expect(t, t.Context(), 0, append([]string{"sub", "news", "--count", "4"}, c.args...))
			if got := s.stdout.String(); !strings.HasPrefix(got, c.want) || name != "a program" && got != c.want || s.stderr.Len() > 0 {
				t.Errorf("it printed %q and said %q", got, &s.stderr)
			}
			if name == "a program" && !strings.Contains(s.stdout.String(), `"data":"","seq"`) {
				t.Errorf("an empty message is\n%s", &s.stdout)
			}
		})
	}
	fakeSubscribeNode(t, messageEvent(someID, "hello", true))
	s := newTestConsole(t)
	s.errTerminal = true
	s.expect(t, t.Context(), 0, []string{"sub", "news", "--count", "1"}, "micronode: subscribed to news; Ctrl-C stops it\n")
}

func TestHowSubEnds(t *testing.T) {
	fakeSubscribeNode(t, messageEvent(someID, "hello", true))
	newTestConsole(t).expect(t, t.Context(), 0, []string{"sub", "news", "--timeout", "50ms"})
	newTestConsole(t).expect(t, t.Context(), fault.Timeout.Exit(), []string{"sub", "news", "--timeout", "50ms", "--count", "2"},
		" of 2 messages arrived within 50ms\n", "micronode peers")
	for count, code := range map[string]int{"0": 0, "2": fault.Canceled.Exit()} {
		ctx, interrupt := context.WithCancelCause(t.Context())
		s := newTestConsole(t)
		s.out = writeHook(func() { interrupt(&interruptError{syscall.SIGINT}) })
		s.expect(t, ctx, code, []string{"sub", "news", "--count", count})
		if code == 0 && s.stderr.Len() > 0 || code != 0 && !strings.Contains(s.stderr.String(), "stopped by SIGINT") {
			t.Errorf("it said %q", &s.stderr)
		}
	}
	full := newTestConsole(t)
	full.out = fullDiskWriter{}
	full.expect(t, t.Context(), fault.StoreFull.Exit(), []string{"sub", "news"}, "standard output cannot be written")

	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"sub", "news/../x"})
	newTestConsole(t).expect(t, t.Context(), exitUsage, []string{"sub", "news", "--count=-1"})
	fakeNode(t, map[string]http.HandlerFunc{"GET /overlay/subscribe/{topic...}": respondProblem(fault.Forbidden, "not for you")})
	newTestConsole(t).expect(t, t.Context(), fault.Forbidden.Exit(), []string{"sub", "news"}, "micronode: not for you: HTTP 403")
}

func TestALagIsReported(t *testing.T) {
	for _, args := range [][]string{{}, {"--json"}} {
		fakeSubscribeNode(t, "event: lagged\ndata: {\"missed\":7}\n\n", messageEvent(someID, "hello", true))
		s := newTestConsole(t)
		s.expect(t, t.Context(), 0, append([]string{"sub", "news", "--count", "1"}, args...), "7 messages were lost")
		var problem struct{ Code string }
		if len(args) > 0 && (json.Unmarshal(s.stderr.Bytes(), &problem) != nil || problem.Code != "Lagging") {
			t.Errorf("a program is told %q", &s.stderr)
		}
	}
}

// runSubscriber runs sub in a bubble, against a scripted node.
func runSubscriber(t *testing.T, ctx context.Context, o subCommand, node scriptedNode) (*testConsole, error) {
	s := newTestConsole(t)
	l := &subscriber{console: s.console, subCommand: &o, node: node.client(t)}
	l.Topic = "news"
	return s, l.run(ctx)
}

func TestALostConnection(t *testing.T) {
	gone := errors.New("connection reset by peer")
	stream := func(events ...string) *http.Response {
		return newResponse(200, "text/event-stream", strings.NewReader(strings.Join(events, "")))
	}
	synctest.Test(t, func(t *testing.T) { // the node returns
		s, err := runSubscriber(t, t.Context(), subCommand{Count: 2, Reconnect: time.Minute}, func(n int, _ *http.Request) (*http.Response, error) {
			switch {
			case n == 1:
				return stream(messageEvent(someID, "one", true), ": draining\n\n"), nil
			case n < 20:
				return nil, gone
			}
			return stream(messageEvent(someID, "two", true)), nil
		})
		if err != nil || s.stdout.String() != "one\ntwo\n" {
			t.Errorf("%v; it printed %q", err, &s.stdout)
		}
		for _, want := range []string{"the connection was lost: ", "draining", "\nReconnecting. ", "micronode: connected again\n"} {
			if strings.Count(s.stderr.String(), want) != 1 {
				t.Errorf("no %q in\n%s", want, &s.stderr)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) { // the node does not return
		start := time.Now()
		_, err := runSubscriber(t, t.Context(), subCommand{Reconnect: time.Minute}, func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return stream(), nil
			}
			return nil, syscall.ECONNREFUSED
		})
		if took := time.Since(start); fault.KindOf(err) != fault.NotReady || took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // without --reconnect
		_, err := runSubscriber(t, t.Context(), subCommand{}, func(int, *http.Request) (*http.Response, error) { return stream(), nil })
		if fault.KindOf(err) != fault.BrokenPipe {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the node answers that a retry cannot help
		_, err := runSubscriber(t, t.Context(), subCommand{Reconnect: time.Minute}, func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return stream(), nil
			}
			return newResponse(403, "text/html", strings.NewReader("")), nil
		})
		if fault.KindOf(err) != fault.Forbidden {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the context ends meanwhile
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := runSubscriber(t, ctx, subCommand{Reconnect: time.Minute}, func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return stream(), nil
			}
			return nil, gone
		})
		if fault.KindOf(err) != fault.Timeout || ctx.Err() == nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // reconnects to a node that ends every stream are paced
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		asked := 0
		_, _ = runSubscriber(t, ctx, subCommand{Reconnect: time.Hour}, func(n int, _ *http.Request) (*http.Response, error) {
			asked = n
			return stream(), nil
		})
		if asked > 121 {
			t.Errorf("it was asked %d times in a minute", asked)
		}
	})
}

func TestPeersAreShown(t *testing.T) {
	const peers = `{"peers":[
		{"id":"abc","addr":"10.0.0.1:9500","state":"active","pq":true,"rtt_ms":1.26,"dialed":true,"since":"2026-01-02T03:04:05Z"},
		{"id":"def","addr":"10.0.0.2:9500","state":"busy","pq":false,"rtt_ms":0,"dialed":false},
		{"id":"ghi","addr":"10.0.0.3:9500","state":"backoff","pq":true,"rtt_ms":5,"dialed":true,"last_error":"refused\u001b[2J","retry_in_ms":1500},
		{"id":"jkl","addr":"10.0.0.4:9500","state":"dialing","pq":false,"rtt_ms":0,"dialed":true,"last_error":"reset"}]}`
	const table = `  id   address        state    pq   rtt
  abc  10.0.0.1:9500  active   yes  1.3 ms
  def  10.0.0.2:9500  busy     no   -
  ghi  10.0.0.3:9500  backoff  -    -
  jkl  10.0.0.4:9500  dialing  -    -

  ghi: refused\x1b[2J
  The next attempt is in 1.5s.

  jkl: reset
`
	fakeNode(t, map[string]http.HandlerFunc{"GET /overlay/peers": respondJSON(http.StatusOK, peers)})
	for _, args := range [][]string{{"peers"}, {"peers", "list"}} {
		s := newTestConsole(t)
		s.expect(t, t.Context(), 0, args)
		if s.stdout.String() != table {
			t.Errorf("%q shows\n%s", args, &s.stdout)
		}
	}
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "--json"})
	var list []map[string]any
	if err := json.Unmarshal(s.stdout.Bytes(), &list); err != nil || len(list) != 4 || list[0]["rtt_ms"] != 1.26 || list[0]["pq"] != true || list[2]["state"] != "backoff" {
		t.Errorf("%v: %s", err, &s.stdout)
	}
	fakeNode(t, map[string]http.HandlerFunc{"GET /overlay/peers": respondJSON(http.StatusOK, `{"peers":null}`)})
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "--json"})
	if s.stdout.String() != "[]\n" {
		t.Errorf("no peers are %q", &s.stdout)
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers"}, "the node has no peers\nAdd one: ")
	if s.stdout.Len() > 0 {
		t.Errorf("it printed %q", &s.stdout)
	}
	fakeNode(t, nil)
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"peers"})
}

func TestPeersAreAddedAndRemoved(t *testing.T) {
	var asked []string
	fakeNode(t, map[string]http.HandlerFunc{
		"POST /overlay/peers": func(w http.ResponseWriter, r *http.Request) {
			var ask client.PeerRequest
			_ = json.NewDecoder(r.Body).Decode(&ask)
			asked = append(asked, "+"+ask.Peer)
			respondJSON(http.StatusCreated, fmt.Sprintf(`{"id":%q,"addr":"h:1","state":"dialing"}`, someID))(w, r)
		},
		"DELETE /overlay/peers/{id}": func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, "-"+r.PathValue("id"))
			if len(asked) > 3 {
				respondProblem(fault.Conflict, "it is in the configuration")(w, r)
			}
		},
	})
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "add", someID + "@h:1"})
	s.expect(t, t.Context(), 0, []string{"peers", "add", someID + "@[::1]:1", "--json"})
	if want := someID + "  dialing\n" + `{"id":"` + someID + `","addr":"h:1","state":"dialing","pq":false,"rtt_ms":0,"dialed":false}` + "\n"; s.stdout.String() != want {
		t.Errorf("it printed %s", &s.stdout)
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"peers", "rm", someID + "@h:1", "--json"})
	if want := `{"id":"` + someID + `","removed":true}` + "\n"; s.stdout.String() != want {
		t.Errorf("it printed %s", &s.stdout)
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), fault.Conflict.Exit(), []string{"peers", "rm", someID}, someID+": it is in the configuration")
	if s.stdout.Len() > 0 {
		t.Errorf("it printed %q", &s.stdout)
	}
	if want := []string{"+" + someID + "@h:1", "+" + someID + "@[::1]:1", "-" + someID, "-" + someID}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
	for _, bad := range []string{"x", someID, "x@h:1", someID + "@h", someID + "@h:", "@h:1"} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"peers", "add", bad}, bad)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"peers", "rm", "x"}, `"x" is not a peer ID`)
	if len(asked) != 4 {
		t.Errorf("what cannot be a peer was asked for: %q", asked)
	}
	fakeNode(t, nil)
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"peers", "add", someID + "@h:1"})
}

func TestAnObjectOfAPeer(t *testing.T) {
	content := []byte("from afar")
	address := b3.Of(content).String()
	var asked []string
	there := false
	fakeNode(t, map[string]http.HandlerFunc{
		"POST /overlay/fetch/{address}": func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = append(asked, string(body))
			there = true
			respondJSON(http.StatusCreated, fmt.Sprintf(`{"address":%q,"size":%d}`, r.PathValue("address"), len(content)))(w, r)
		},
		"GET /o/{address}": func(w http.ResponseWriter, r *http.Request) {
			if !there {
				respondProblem(fault.NotFound, "there is no such object")(w, r)
				return
			}
			_, _ = w.Write(content)
		},
	})
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"get", address})
	for _, peer := range []string{"any", someID, someID + "@h:1"} {
		s := newTestConsole(t)
		s.expect(t, t.Context(), 0, []string{"get", address, "--peer", peer})
		if s.stdout.String() != string(content) {
			t.Errorf("it printed %q", &s.stdout)
		}
	}
	if want := []string{`{}`, `{"peer":"` + someID + `"}`, `{"peer":"` + someID + `"}`}; !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"get", address, "--peer", "some"}, `"some" is not a peer ID`)
	fakeNode(t, map[string]http.HandlerFunc{"POST /overlay/fetch/{address}": respondProblem(fault.NotFound, "no peer has it")})
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"get", address, "--peer", "any"}, "micronode: no peer has it")
}

func TestTheFlagsOfTheOverlay(t *testing.T) {
	address := "127.0.0.1:0"
	got := (&runCommand{Overlay: &address, Peer: []string{"a@b:1", "c@d:2"}, Pack: []string{"x"}}).flags()
	want := []config.Flag{{Key: "overlay.addr", Name: "--overlay", Value: address}, {Key: "overlay.peers", Name: "--peer", Value: "a@b:1"},
		{Key: "overlay.peers", Name: "--peer", Value: "c@d:2"}, {Key: "edge.packs", Name: "--pack", Value: "x"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// The banner names the overlay as another node's --peer takes it.
func TestTheBannerNamesTheOverlay(t *testing.T) {
	info := node.Info{PeerID: someID, HTTP: "http://127.0.0.1:1", Admin: "http://127.0.0.1:2", Socket: "x"}
	for overlay, want := range map[string]string{
		"127.0.0.1:9500": "\n  overlay  " + someID + "@127.0.0.1:9500\n",
		"[::1]:9500":     "\n  overlay  " + someID + "@[::1]:9500\n",
		"0.0.0.0:9500":   "\n  overlay  " + someID + "@HOST:9500\n",
		"[::]:9500":      "\n  overlay  " + someID + "@HOST:9500\n",
		":9500":          "\n  overlay  " + someID + "@HOST:9500\n",
	} {
		s := newTestConsole(t)
		s.printBanner(info, overlay, "")
		if !strings.Contains(s.stdout.String(), want) {
			t.Errorf("%s:\n%s", overlay, &s.stdout)
		}
	}
	s := newTestConsole(t)
	s.printBanner(info, "", "")
	if strings.Contains(s.stdout.String(), "overlay") {
		t.Errorf("it shows what is not there:\n%s", &s.stdout)
	}
	for overlay, has := range map[string]bool{"": false, "127.0.0.1:9500": true} {
		s := newTestConsole(t)
		s.json = true
		s.printBanner(info, overlay, "")
		if strings.Contains(s.stdout.String(), `"overlay":"`+someID+`@127.0.0.1:9500"`) != has {
			t.Error(s.stdout.String())
		}
	}
}
