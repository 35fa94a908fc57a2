package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

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
