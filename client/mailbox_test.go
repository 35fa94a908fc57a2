package client

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/testkit"
)

// fakeMailbox is a fake of the mailbox of a node: one message at a time, as
// far as a client can tell.
type fakeMailbox struct {
	mu     sync.Mutex
	lose   int               // answers that get lost
	asked  []string          // paths and bodies
	keys   []string          // in the order in which they arrived
	sent   map[string]string // IDs by key
	leased map[string]bool   // receipts
	answer string            // instead of the right one
}

func serveMailbox(t testing.TB) (*fakeMailbox, *Client) {
	t.Helper()
	f := &fakeMailbox{sent: map[string]string{}, leased: map[string]bool{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, dial(t, Options{URL: server.URL, Retry: quick})
}

func (f *fakeMailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, document, kind, lost := f.do(r)
	switch {
	case lost:
		panic(http.ErrAbortHandler)
	case kind != none:
		refuse(w, r, kind, "no")
	case document == "":
		w.WriteHeader(status)
	default:
		writeJSON(w, status, document)
	}
}

// do answers a request, and reports whether the answer gets lost.
func (f *fakeMailbox) do(r *http.Request) (status int, document string, kind fault.Kind, lost bool) {
	var body struct{ Box, Receipt string }
	var raw json.RawMessage
	if json.NewDecoder(r.Body).Decode(&raw) == nil {
		_ = json.Unmarshal(raw, &body)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, strings.TrimSpace(r.URL.String()+" "+string(raw)))
	lost = f.lose > 0
	f.lose--
	switch r.URL.Path {
	case "/mbox/send":
		key := r.Header.Get("Idempotency-Key")
		f.keys = append(f.keys, key)
		status = http.StatusOK
		if f.sent[key] == "" {
			f.sent[key], status = "m-"+key, http.StatusCreated
		}
		document = `{"id":"` + f.sent[key] + `"}`
	case "/mbox/recv":
		if body.Box == "empty" {
			return http.StatusNoContent, "", none, lost
		}
		f.leased["R"] = true
		status, document = http.StatusOK, `{"id":"m-1","receipt":"R","body":"aGk=","deliveries":2,"sent_at":"2026-01-02T03:04:05Z"}`
	case "/mbox/ack", "/mbox/nack":
		if !f.leased[body.Receipt] {
			return 0, "", fault.NotFound, lost
		}
		delete(f.leased, body.Receipt)
		return http.StatusNoContent, "", none, lost
	case "/mbox/extend":
		return http.StatusNoContent, "", none, lost
	case "/mbox/dlq":
		status, document = http.StatusOK, `{"box":"jobs","letters":[{"id":"m-1","body":"aGk=","deliveries":5,"reason":"why","sent_at":"2026-01-02T03:04:05Z","died_at":"2026-01-02T03:04:06Z"}],"next":"m-1"}`
	}
	if f.answer != "" {
		document = f.answer
	}
	return status, document, none, lost
}

// set changes the mailbox under its lock.
func (f *fakeMailbox) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeMailbox) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fakeMailbox) isLeased(receipt string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leased[receipt]
}

func TestSendMail(t *testing.T) {
	f, c := serveMailbox(t)
	sent, err := c.SendMail(t.Context(), "jobs", []byte("hi"), MailOptions{Key: "k", Delay: 1500 * time.Millisecond, MaxDeliveries: 3})
	if err != nil || sent != (MailSent{ID: "m-k"}) {
		t.Fatalf("%+v, %v", sent, err)
	}
	if want := `/mbox/send {"box":"jobs","body":"aGk=","delay_s":1,"max_deliveries":3}`; f.requests()[0] != want {
		t.Errorf("asked %s, want %s", f.requests()[0], want)
	}
	if again, err := c.SendMail(t.Context(), "jobs", []byte("hi"), MailOptions{Key: "k"}); err != nil || again != (MailSent{ID: "m-k", Repeated: true}) {
		t.Errorf("again: %+v, %v", again, err)
	}
	f.set(func() { f.lose = 2 })
	if _, err := c.SendMail(t.Context(), "jobs", nil, MailOptions{Delay: time.Millisecond}); err != nil {
		t.Fatalf("after two answers were lost: %v", err)
	}
	var keys []string
	f.set(func() { keys = f.keys[2:] })
	if len(keys) != 3 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] {
		t.Errorf("keys %q", keys)
	}
	if want := `/mbox/send {"box":"jobs","body":"","delay_s":1}`; f.requests()[4] != want {
		t.Errorf("asked %s, want %s", f.requests()[4], want)
	}
	for _, strange := range []string{`{}`, `[]`, `{"id":`} {
		f.set(func() { f.answer = strange })
		_, err := c.SendMail(t.Context(), "jobs", nil, MailOptions{})
		testkit.WantKind(t, err, fault.UpstreamFailed, strange)
	}
}

func TestReceiveMail(t *testing.T) {
	f, c := serveMailbox(t)
	mail, err := c.ReceiveMail(t.Context(), "jobs", ReceiveOptions{Visibility: time.Minute, Wait: 20 * time.Second})
	if err != nil || mail.ID != "m-1" || mail.Receipt != "R" || string(mail.Body) != "hi" || mail.Deliveries != 2 || mail.SentAt.Year() != 2026 {
		t.Fatalf("%+v, %v", mail, err)
	}
	if want := `/mbox/recv {"box":"jobs","visibility_timeout_s":60,"wait_s":20}`; f.requests()[0] != want {
		t.Errorf("asked %s, want %s", f.requests()[0], want)
	}
	_, err = c.ReceiveMail(t.Context(), "empty", ReceiveOptions{})
	testkit.WantKind(t, err, fault.NotFound, "an empty box")
	f.set(func() { f.lose = 1 })
	if _, err = c.ReceiveMail(t.Context(), "jobs", ReceiveOptions{}); err == nil || len(f.requests()) != 3 {
		t.Errorf("an answer that was lost: %v, asked %d times: what was leased must not be leased again", err, len(f.requests()))
	}
	for _, strange := range []string{`{}`, `[]`} {
		f.set(func() { f.answer = strange })
		_, err := c.ReceiveMail(t.Context(), "jobs", ReceiveOptions{})
		testkit.WantKind(t, err, fault.UpstreamFailed, strange)
	}
}

func TestAckAndNackMail(t *testing.T) {
	f, c := serveMailbox(t)
	for name, update := range map[string]func() error{
		"ack":  func() error { return c.AckMail(t.Context(), "jobs", "R") },
		"nack": func() error { return c.NackMail(t.Context(), "jobs", "R", time.Minute, "why") },
	} {
		testkit.WantKind(t, update(), fault.NotFound, name+" of nothing")
		for lost := range 2 {
			f.set(func() { f.leased["R"], f.lose = true, lost })
			if err := update(); err != nil || f.isLeased("R") {
				t.Errorf("%s, when %d answers get lost: %v", name, lost, err)
			}
		}
	}
	f.set(func() { f.lose = 1 })
	if err := c.ExtendMail(t.Context(), "jobs", "R", 10*time.Minute); err != nil {
		t.Error(err)
	}
	for _, want := range []string{`/mbox/ack {"box":"jobs","receipt":"R"}`, `/mbox/nack {"box":"jobs","receipt":"R","delay_s":60,"reason":"why"}`,
		`/mbox/extend {"box":"jobs","receipt":"R","visibility_timeout_s":600}`} {
		if !slices.Contains(f.requests(), want) {
			t.Errorf("nobody asked %s, but %q", want, f.requests())
		}
	}
}

func TestDeadMail(t *testing.T) {
	f, c := serveMailbox(t)
	page, err := c.DeadMail(t.Context(), "a b", "", 0)
	if err != nil || len(page.Messages) != 1 || page.Messages[0].Reason != "why" || page.Next != "m-1" {
		t.Fatalf("%+v, %v", page, err)
	}
	_, err = c.DeadMail(t.Context(), "a b", "m-1", 7)
	testkit.WantKind(t, err, fault.UpstreamFailed, "pages that go round in circles")
	if want := []string{"/mbox/dlq?box=a+b", "/mbox/dlq?after=m-1&box=a+b&limit=7"}; !slices.Equal(f.requests(), want) {
		t.Errorf("asked %q", f.requests())
	}
	f.set(func() { f.answer = `[]` })
	_, err = c.DeadMail(t.Context(), "a b", "", 0)
	testkit.WantKind(t, err, fault.UpstreamFailed, "another answer")
}
