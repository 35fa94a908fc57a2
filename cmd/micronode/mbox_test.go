package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/testkit"
)

// fakeMailbox is a fake of the mailbox of a node, and records its requests.
func fakeMailbox(t *testing.T) *[]string {
	requests := &[]string{}
	respond := func(status int, document any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			_ = json.NewDecoder(r.Body).Decode(&body)
			raw, _ := json.Marshal(body)
			*requests = append(*requests, strings.TrimSpace(fmt.Sprint(r.URL, " ", string(raw), " ", r.Header.Get("Idempotency-Key"))))
			switch {
			case body["box"] == "nothing":
				w.WriteHeader(http.StatusNoContent)
				return
			case body["box"] == "again":
				status = http.StatusOK
			case body["receipt"] == "late":
				reply(w, 0, fault.New("fake", fault.NotFound, "the receipt is late"))
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			if document != nil {
				_ = json.NewEncoder(w).Encode(document)
			}
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	dead := client.DeadLetters{Box: "jobs", Messages: []client.DeadLetter{{ID: "m-1", Body: []byte("abc"), Deliveries: 5, Reason: "no\x1b", SentAt: at, DiedAt: at}}, Next: "m-1"}
	fakeNode(t, map[string]http.HandlerFunc{
		"POST /mbox/send":   respond(http.StatusCreated, client.MailSent{ID: "m-1"}),
		"POST /mbox/recv":   respond(http.StatusOK, client.Mail{ID: "m-1", Receipt: "R", Body: []byte("hello\x1b\n"), Deliveries: 2, SentAt: at}),
		"POST /mbox/ack":    respond(http.StatusNoContent, nil),
		"POST /mbox/nack":   respond(http.StatusNoContent, nil),
		"POST /mbox/extend": respond(http.StatusNoContent, nil),
		"GET /mbox/dlq": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("box") == "empty" {
				respond(http.StatusOK, client.DeadLetters{Box: "empty", Messages: []client.DeadLetter{}})(w, r)
				return
			}
			respond(http.StatusOK, dead)(w, r)
		},
	})
	return requests
}

func lastRequest(asked *[]string) string { return (*asked)[len(*asked)-1] }

func TestSendingMail(t *testing.T) {
	asked := fakeMailbox(t)
	if got := mustRun(t, "mbox", "send", "jobs", "hello", "--key", "k", "--delay", "90s", "--max-deliveries", "3"); got != "m-1\n" {
		t.Errorf("%q", got)
	}
	if want := `/mbox/send {"body":"aGVsbG8=","box":"jobs","delay_s":90,"max_deliveries":3} k`; lastRequest(asked) != want {
		t.Errorf("asked %s, want %s", lastRequest(asked), want)
	}
	if got := mustRun(t, "mbox", "send", "jobs", "hello", "--json"); got != `{"id":"m-1","repeated":false}`+"\n" {
		t.Errorf("%q", got)
	}
	newTestConsole(t).expect(t, t.Context(), 0, []string{"mbox", "send", "again", "hello"}, "it was already sent")
	s := newTestConsole(t)
	s.console.in, s.console.inTerminal, s.console.errTerminal = strings.NewReader("typed"), true, true
	s.expect(t, t.Context(), 0, []string{"mbox", "send", "jobs"}, "Ctrl-D")
	if !strings.Contains(lastRequest(asked), `"dHlwZWQ="`) {
		t.Errorf("asked %s", lastRequest(asked))
	}
	file := filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, []byte("filed"), 0o600))
	mustRun(t, "mbox", "send", "jobs", "--file", file)
	if !strings.Contains(lastRequest(asked), `"ZmlsZWQ="`) {
		t.Errorf("asked %s", lastRequest(asked))
	}
	testkit.Must(t, os.WriteFile(file, make([]byte, 512<<10+1), 0o600))
	newTestConsole(t).expect(t, t.Context(), fault.BodyTooLarge.Exit(), []string{"mbox", "send", "jobs", "--file", file}, "micronode put")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"mbox", "send", "jobs", "x", "--file", file}, "two messages")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"mbox", "send", "jobs", "--file", file + "x"})
}

func TestReceivingMail(t *testing.T) {
	asked := fakeMailbox(t)
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"mbox", "recv", "jobs", "--wait", "20s", "--visibility", "1m"}, "micronode mbox ack jobs R")
	if s.stdout.String() != "hello\x1b\n" || lastRequest(asked) != `/mbox/recv {"box":"jobs","visibility_timeout_s":60,"wait_s":20}` {
		t.Errorf("printed %q, asked %s", &s.stdout, lastRequest(asked))
	}
	s = newTestConsole(t)
	s.console.outTerminal = true
	s.expect(t, t.Context(), 0, []string{"mbox", "recv", "jobs", "--ack"})
	if strings.Contains(s.stdout.String(), "\x1b") || s.stderr.Len() > 0 || lastRequest(asked) != `/mbox/ack {"box":"jobs","receipt":"R"}` {
		t.Errorf("printed %q, said %q, asked %s", &s.stdout, &s.stderr, lastRequest(asked))
	}
	if got := mustRun(t, "mbox", "recv", "jobs", "--json"); got != `{"id":"m-1","receipt":"R","body":"aGVsbG8bCg==","deliveries":2,"sent_at":"2026-01-02T03:04:05Z"}`+"\n" {
		t.Errorf("%s", got)
	}
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"mbox", "recv", "nothing"}, "has no message")

	for args, want := range map[string]string{
		"ack jobs R":                          `/mbox/ack {"box":"jobs","receipt":"R"}`,
		"nack jobs R --delay 1m --reason why": `/mbox/nack {"box":"jobs","delay_s":60,"reason":"why","receipt":"R"}`,
		"extend jobs R --visibility 10m":      `/mbox/extend {"box":"jobs","receipt":"R","visibility_timeout_s":600}`,
	} {
		mustRun(t, append([]string{"mbox"}, strings.Fields(args)...)...)
		if lastRequest(asked) != want {
			t.Errorf("%s: asked %s, want %s", args, lastRequest(asked), want)
		}
	}
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"mbox", "ack", "jobs", "late"}, "the receipt is late")
}

func TestDeadMail(t *testing.T) {
	asked := fakeMailbox(t)
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"mbox", "dlq", "jobs", "--after", "m-0", "--limit", "1"}, "there are more: micronode mbox dlq jobs --after m-1")
	if want := "  id   died                  deliveries  bytes  reason\n  m-1  2026-01-02T03:04:05Z  5           3      no\\x1b\n"; s.stdout.String() != want {
		t.Errorf("printed %q, want %q", &s.stdout, want)
	}
	if lastRequest(asked) != "/mbox/dlq?after=m-0&box=jobs&limit=1 null" {
		t.Errorf("asked %s", lastRequest(asked))
	}
	newTestConsole(t).expect(t, t.Context(), 0, []string{"mbox", "dlq", "empty"}, "there are no dead letters")
	if got := mustRun(t, "mbox", "dlq", "empty", "--json"); got != `{"box":"empty","letters":[]}`+"\n" {
		t.Errorf("%s", got)
	}
}

func TestMailWithoutANode(t *testing.T) {
	t.Setenv("MICRO_URL", "ftp://nowhere")
	for _, args := range []string{"send jobs x", "recv jobs", "ack jobs R", "nack jobs R", "extend jobs R", "dlq jobs"} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), append([]string{"mbox"}, strings.Fields(args)...))
	}
}
