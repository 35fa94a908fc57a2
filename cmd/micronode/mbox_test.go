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
)

// fakeMailbox answers as the mailbox of a node does, and remembers what it was
// asked.
func fakeMailbox(t *testing.T) *[]string {
	asked := &[]string{}
	answer := func(status int, document any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			_ = json.NewDecoder(r.Body).Decode(&body)
			raw, _ := json.Marshal(body)
			*asked = append(*asked, strings.TrimSpace(fmt.Sprint(r.URL, " ", string(raw), " ", r.Header.Get("Idempotency-Key"))))
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
	dead := client.DeadLetters{Box: "jobs", Letters: []client.DeadLetter{{ID: "m-1", Body: []byte("abc"), Deliveries: 5, Reason: "no\x1b", SentAt: at, DiedAt: at}}, Next: "m-1"}
	fakeNode(t, map[string]http.HandlerFunc{
		"POST /mbox/send":   answer(http.StatusCreated, client.MailSent{ID: "m-1"}),
		"POST /mbox/recv":   answer(http.StatusOK, client.Mail{ID: "m-1", Receipt: "R", Body: []byte("hello\x1b\n"), Deliveries: 2, SentAt: at}),
		"POST /mbox/ack":    answer(http.StatusNoContent, nil),
		"POST /mbox/nack":   answer(http.StatusNoContent, nil),
		"POST /mbox/extend": answer(http.StatusNoContent, nil),
		"GET /mbox/dlq": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("box") == "empty" {
				answer(http.StatusOK, client.DeadLetters{Box: "empty", Letters: []client.DeadLetter{}})(w, r)
				return
			}
			answer(http.StatusOK, dead)(w, r)
		},
	})
	return asked
}

func last(asked *[]string) string { return (*asked)[len(*asked)-1] }

func TestSendingMail(t *testing.T) {
	asked := fakeMailbox(t)
	if got := run(t, "mbox", "send", "jobs", "hello", "--key", "k", "--delay", "90s", "--max-deliveries", "3"); got != "m-1\n" {
		t.Errorf("%q", got)
	}
	if want := `/mbox/send {"body":"aGVsbG8=","box":"jobs","delay_s":90,"max_deliveries":3} k`; last(asked) != want {
		t.Errorf("asked %s, want %s", last(asked), want)
	}
	if got := run(t, "mbox", "send", "jobs", "hello", "--json"); got != `{"id":"m-1","repeated":false}`+"\n" {
		t.Errorf("%q", got)
	}
	newSession(t).expect(t, t.Context(), 0, []string{"mbox", "send", "again", "hello"}, "it was sent before")
	s := newSession(t)
	s.console.in, s.console.inTerminal, s.console.errTerminal = strings.NewReader("typed"), true, true
	s.expect(t, t.Context(), 0, []string{"mbox", "send", "jobs"}, "Ctrl-D")
	if !strings.Contains(last(asked), `"dHlwZWQ="`) {
		t.Errorf("asked %s", last(asked))
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("filed"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "mbox", "send", "jobs", "--file", file)
	if !strings.Contains(last(asked), `"ZmlsZWQ="`) {
		t.Errorf("asked %s", last(asked))
	}
	if err := os.WriteFile(file, make([]byte, 512<<10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	newSession(t).expect(t, t.Context(), fault.BodyTooLarge.Exit(), []string{"mbox", "send", "jobs", "--file", file}, "micronode put")
	newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"mbox", "send", "jobs", "x", "--file", file}, "two messages")
	newSession(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"mbox", "send", "jobs", "--file", file + "x"})
}

func TestReceivingMail(t *testing.T) {
	asked := fakeMailbox(t)
	s := newSession(t)
	s.expect(t, t.Context(), 0, []string{"mbox", "recv", "jobs", "--wait", "20s", "--visibility", "1m"}, "micronode mbox ack jobs R")
	if s.stdout.String() != "hello\x1b\n" || last(asked) != `/mbox/recv {"box":"jobs","visibility_timeout_s":60,"wait_s":20}` {
		t.Errorf("printed %q, asked %s", &s.stdout, last(asked))
	}
	s = newSession(t)
	s.console.outTerminal = true
	s.expect(t, t.Context(), 0, []string{"mbox", "recv", "jobs", "--ack"})
	if strings.Contains(s.stdout.String(), "\x1b") || s.stderr.Len() > 0 || last(asked) != `/mbox/ack {"box":"jobs","receipt":"R"}` {
		t.Errorf("printed %q, said %q, asked %s", &s.stdout, &s.stderr, last(asked))
	}
	if got := run(t, "mbox", "recv", "jobs", "--json"); got != `{"id":"m-1","receipt":"R","body":"aGVsbG8bCg==","deliveries":2,"sent_at":"2026-01-02T03:04:05Z"}`+"\n" {
		t.Errorf("%s", got)
	}
	newSession(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"mbox", "recv", "nothing"}, "there is no message")

	for args, want := range map[string]string{
		"ack jobs R":                          `/mbox/ack {"box":"jobs","receipt":"R"}`,
		"nack jobs R --delay 1m --reason why": `/mbox/nack {"box":"jobs","delay_s":60,"reason":"why","receipt":"R"}`,
		"extend jobs R --visibility 10m":      `/mbox/extend {"box":"jobs","receipt":"R","visibility_timeout_s":600}`,
	} {
		run(t, append([]string{"mbox"}, strings.Fields(args)...)...)
		if last(asked) != want {
			t.Errorf("%s: asked %s, want %s", args, last(asked), want)
		}
	}
	newSession(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"mbox", "ack", "jobs", "late"}, "the receipt is late")
}

func TestDeadMail(t *testing.T) {
	asked := fakeMailbox(t)
	s := newSession(t)
	s.expect(t, t.Context(), 0, []string{"mbox", "dlq", "jobs", "--after", "m-0", "--limit", "1"}, "there are more: micronode mbox dlq jobs --after m-1")
	if want := "  id   died                  deliveries  bytes  reason\n  m-1  2026-01-02T03:04:05Z  5           3      no\\x1b\n"; s.stdout.String() != want {
		t.Errorf("printed %q, want %q", &s.stdout, want)
	}
	if last(asked) != "/mbox/dlq?after=m-0&box=jobs&limit=1 null" {
		t.Errorf("asked %s", last(asked))
	}
	newSession(t).expect(t, t.Context(), 0, []string{"mbox", "dlq", "empty"}, "there are no dead letters")
	if got := run(t, "mbox", "dlq", "empty", "--json"); got != `{"box":"empty","letters":[]}`+"\n" {
		t.Errorf("%s", got)
	}
}

func TestMailWithoutANode(t *testing.T) {
	t.Setenv("MICRO_URL", "ftp://nowhere")
	for _, args := range []string{"send jobs x", "recv jobs", "ack jobs R", "nack jobs R", "extend jobs R", "dlq jobs"} {
		newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), append([]string{"mbox"}, strings.Fields(args)...))
	}
}
