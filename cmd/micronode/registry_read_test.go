package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

func versionDocument(version int, more string) string {
	header := fmt.Appendf(nil, `{"version":%d}`, version)
	return fmt.Sprintf(`{"version":%d,"header":%q,"hash":%q,"prev_hash":%q,"payload_b3":%q,"committed_at":"2026-01-02T03:04:05Z"%s}`,
		version, base64.StdEncoding.EncodeToString(header), b3.Of(header), emptyID, emptyID, more)
}

func TestLookingAtARegistry(t *testing.T) {
	approvals := `,"proposal_id":"p","signer_set":{"version":0,"m":2,"keys":[{},{},{}]},"approvals":[{"signer_id":"alice"},{"signer_id":"b\u001bob"}]`
	two := versionDocument(2, approvals+`,"ops":[{"op":"delete","id":"x"},{"op":"put","item":{"kind":"name","id":"docs"}},{"op":"delete","id":"1"},{"op":"delete","id":"2"},{"op":"delete","id":"3"}],
		"items":[`+docsItem+`,{"kind":"signers","id":"signers","m":1,"keys":[{"signer_id":"alice","public":"A"}]}],"supersedes":{"version":1,"hash":"`+emptyID+`","reason":"a slip"}`)
	head := fmt.Sprintf(`{"version":2,"hash":%q,"payload_b3":%q,"committed_at":"2026-01-02T03:04:05Z"}`, emptyID, emptyID)
	routes := map[string]http.HandlerFunc{
		"GET /registry/head": respondJSON(200, head),
		"GET /registry/2":    respondJSON(200, two),
		"GET /registry/1":    respondJSON(200, versionDocument(1, `,"ops":[{"op":"delete","id":"x"}]`)),
		"GET /registry/0":    respondJSON(200, versionDocument(0, "")),
		"GET /registry/proposals": respondJSON(200, `{"proposals":[{"proposal_id":"later","status":"stale","reason":"the signers are others","next":"Propose it again.","approvals":[],"quorum":{"m":2,"n":3},"expires_at":"2099-01-02T03:04:05Z"},
			{"proposal_id":"b","approvals":["alice","bob"],"quorum":{"m":2,"n":3},"expires_at":"2001-01-02T03:04:05Z","supersedes":{"version":1,"reason":"a slip"},"diff":[{"id":"x","kind":"name","after":{}}]},
			{"proposal_id":"a","approvals":[],"quorum":{"m":2,"n":3},"expires_at":"2001-01-02T03:04:05Z"}]}`),
		"POST /registry/commit/p": respondJSON(201, head),
		"GET /registry/bundle/2":  respondJSON(200, "a bundle\n"),
	}
	fakeNode(t, routes)
	file := filepath.Join(t.TempDir(), "b.json")
	headText := "version    2\nhash       " + emptyID + "\npayload    " + emptyID + "\ncommitted  2026-01-02T03:04:05.000Z\n"
	for line, want := range map[string]string{
		"head":                       headText,
		"head --json":                head + "\n",
		"commit p":                   headText,
		"show":                       "version 2 of 2026-01-02T03:04:05.000Z\n",
		"show 2":                     "  approved  by alice, b\\x1bob; quorum 2 of 3\n\noperations\n  delete x\n  put name docs\n",
		"show  2":                    "\ncontents (2 items)\n  name docs  manifest " + emptyID + "\n  signers  m 1\n    alice  A\n",
		"show --json":                `{"schema_version":"","version":2,"ops":[`,
		"show 0":                     "contents (0 items)\n",
		"log":                        "alice, b\\x1bob  delete x, put name docs, delete 1, delete 2, 1 more operation (takes back version 1: a slip)\n1  2026",
		"log -n 1":                   "2  2026-01-02T03:04:05.000Z  b3:",
		"log --json":                 `{"schema_version":"","version":0,`,
		"proposals":                  "a  approved 0 of 2  expires it has expired\n\nb  approved 2 of 2: alice, bob  expires it has expired\n  takes back version 1: a slip\n  + name x\n\nlater  approved 0 of 2  expires in ",
		"proposals ":                 "\n  stale: the signers are others\n  Propose it again.\n",
		"proposals --json":           `[{"proposal_id":"a",`,
		"bundle 2":                   "a bundle\n",
		"bundle 2 -o " + file:        file + "  9 bytes\n",
		"bundle 2 --json -o " + file: `{"version":2,"file":"` + file + `","size":9}` + "\n",
	} {
		s := newTestConsole(t)
		s.expect(t, t.Context(), 0, append([]string{"registry"}, strings.Fields(line)...))
		if !strings.Contains(s.stdout.String(), want) || s.stderr.Len() > 0 {
			t.Errorf("%s: no %q in\n%s%s", line, want, &s.stdout, &s.stderr)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "a bundle\n" {
		t.Errorf("%q, %v", data, err)
	}
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "log", "-n", "1"})
	if n := strings.Count(s.stdout.String(), "\n"); n != 1 {
		t.Errorf("%d lines", n)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "bundle", "2", "--json"}, "-o PATH")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "bundle", "2", "-o", "/nowhere/x"}, "mkdir -p /nowhere")
	newTestConsole(t).expect(t, t.Context(), fault.Conflict.Exit(), []string{"registry", "bundle", "2", "-o", t.TempDir()}, "is there already")

	routes["GET /registry/1"], routes["GET /registry/proposals"] = respondProblem(fault.Expired, "it was pruned"), respondJSON(200, `{"proposals":[]}`)
	fakeNode(t, routes)
	newTestConsole(t).expect(t, t.Context(), 0, []string{"registry", "log"}, "versions before this one were pruned")
	newTestConsole(t).expect(t, t.Context(), fault.Expired.Exit(), []string{"registry", "show", "1"}, "it was pruned")
	newTestConsole(t).expect(t, t.Context(), 0, []string{"registry", "proposals"}, "no proposal is open\nSubmit one: micronode registry propose FILE")
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "proposals", "--json"})
	if s.stdout.String() != "[]\n" {
		t.Errorf("it printed %s", &s.stdout)
	}
	fakeNode(t, nil)
	for _, line := range []string{"head", "show", "log", "proposals", "commit p", "bundle 1", "watch", "approve p --print", "init --m 1 --key x=" + newSigner(t, "x").public()} {
		newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), append([]string{"registry"}, strings.Fields(line)...))
	}
	t.Setenv("MICRO_URL", "ftp://x")
	for _, line := range []string{"head", "show", "log", "proposals", "commit p", "bundle 1", "watch", "approve p --print", "supersede --reason x", "propose " + writeChangeFile(t), "init --m 1 --key x=" + newSigner(t, "x").public()} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), append([]string{"registry"}, strings.Fields(line)...), "http://")
	}
}

func writeChangeFile(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "change.json")
	testkit.Must(t, os.WriteFile(file, []byte(`{"ops":[1]}`), 0o600))
	return file
}

func registryEvent(version int) string {
	return fmt.Sprintf("event: RegistryUpdated\nid: %d\ndata: {\"version\":%d,\"b3\":%q,\"committed_at\":\"2026-01-02T03:04:05Z\"}\n\n", version, version, emptyID)
}

func TestWatchingCommits(t *testing.T) {
	event := func(text string) *http.Response {
		return newResponse(200, "text/event-stream", strings.NewReader(text))
	}
	synctest.Test(t, func(t *testing.T) {
		s := newTestConsole(t)
		s.errTerminal = true
		after := []string{}
		w := &watcher{console: s.console, registryWatch: &registryWatch{Count: 3, Reconnect: time.Minute}}
		w.node = scriptedNode(func(n int, r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/registry/head" {
				return newResponse(200, "application/json", strings.NewReader(fmt.Sprintf(`{"version":9,"hash":%q}`, emptyID))), nil
			}
			after = append(after, r.Header.Get("Last-Event-ID"))
			switch n {
			case 1:
				return event(registryEvent(4) + "event: lagged\ndata: {\"missed\":3}\n\n" + registryEvent(8)), nil
			case 3, 4:
				return nil, io.ErrUnexpectedEOF
			default:
				return event(registryEvent(9)), nil
			}
		}).client(t)
		if err := w.run(t.Context()); err != nil {
			t.Error(err)
		}
		line := "  2026-01-02T03:04:05.000Z  " + emptyID + "\n"
		if want := "4" + line + "8" + line + "9" + line; s.stdout.String() != want {
			t.Errorf("it printed\n%s", &s.stdout)
		}
		if got := strings.Join(after, ","); got != ",8,8,8" {
			t.Errorf("it asked for what comes after %s", got)
		}
		for _, want := range []string{"waiting for commits; Ctrl-C stops it\n", "versions were lost: the reader is too slow; the last one is 9", "micronode registry log\n", "the connection was lost", "connected again\n"} {
			if !strings.Contains(s.stderr.String(), want) {
				t.Errorf("no %q in\n%s", want, &s.stderr)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) { // a node that does not return
		w := &watcher{console: newTestConsole(t).console, registryWatch: &registryWatch{Reconnect: time.Minute}}
		w.node = scriptedNode(func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return event(registryEvent(4)), nil
			}
			return nil, syscall.ECONNREFUSED
		}).client(t)
		start := time.Now()
		if err := w.run(t.Context()); fault.KindOf(err) != fault.NotReady || time.Since(start) < time.Minute {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.reconnect(ctx); err == nil {
			t.Error("it waited for ever")
		}
	})
	fakeNode(t, map[string]http.HandlerFunc{"GET /registry/stream": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, registryEvent(5))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}})
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "watch", "--count", "1", "--after", "4", "--json"})
	if want := `{"version":5,"b3":"` + emptyID + `","committed_at":"2026-01-02T03:04:05Z"}` + "\n"; s.stdout.String() != want {
		t.Errorf("it printed %s", &s.stdout)
	}
	for code, count := range map[int]string{0: "0", fault.Canceled.Exit(): "2"} { // Ctrl-C
		ctx, interrupt := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { interrupt(&interruptError{syscall.SIGINT}) })
		newTestConsole(t).expect(t, ctx, code, []string{"registry", "watch", "--count", count})
	}
}
