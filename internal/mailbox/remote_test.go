package mailbox_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/observe"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// handlerTransport carries requests to a server without a network, so that time
// can be faked on both sides of it.
type handlerTransport struct {
	handler         http.Handler
	loseResponses   atomic.Bool // the response does not arrive, though the server has done its work
	requests        atomic.Int64
	largestResponse atomic.Int64 // bytes of the largest response
}

func (h *handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	h.requests.Add(1)
	answer := httptest.NewRecorder()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.handler.ServeHTTP(answer, r.Clone(r.Context()))
	}()
	select {
	case <-ended:
	case <-r.Context().Done():
		<-ended
		return nil, r.Context().Err()
	}
	if h.loseResponses.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	h.largestResponse.Store(max(h.largestResponse.Load(), int64(answer.Body.Len())))
	return answer.Result(), nil
}

// remoteEngine is an engine as another process of its node has it. Methods that
// Remote does not have go to the engine itself.
type remoteEngine struct {
	*mailbox.Remote
	local     mailbox.Engine
	transport *handlerTransport
	client    *client.Client
}

func (r *remoteEngine) Resend(ctx context.Context, box, id string) error {
	return r.local.Resend(ctx, box, id)
}

func (r *remoteEngine) Drop(ctx context.Context, box, id string) error {
	return r.local.Drop(ctx, box, id)
}

func (r *remoteEngine) Dead(ctx context.Context, box, after string, limit int) ([]mailbox.DeadLetter, error) {
	return r.local.Dead(ctx, box, after, limit)
}
func (r *remoteEngine) Usage() mailbox.Usage { return r.local.Usage() }
func (r *remoteEngine) Close() error         { return r.local.Close() }

// remoteOf is an engine seen from another process.
func remoteOf(t *testing.T, e mailbox.Engine) *remoteEngine {
	t.Helper()
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	supervisor, err := supervise.New(supervise.Options{DrainTimeout: time.Second, Stages: []supervise.Stage{{Name: "state"}}})
	testkit.Must(t, err)
	box := mailbox.New(inv, mailbox.Spec{Config: mailbox.DefaultConfig(), Engine: e, Metrics: metrics, Readiness: observe.NewReadiness(inv, supervisor)})
	table, err := ingress.NewTable(append(box.Routes(), box.PartRoutes()...)...)
	testkit.Must(t, err)
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst, limits.Inflight = 1_000_000, 1_000_000, 10_000
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: limits,
		Authorise: func(_ context.Context, ask ingress.AuthRequest) error {
			if ask.Scope != "admin" {
				return fault.New("test", fault.Forbidden, "a part asks for %q", ask.Scope)
			}
			return nil
		},
		Inventory: inv, Metrics: metrics, Logger: slog.New(slog.DiscardHandler),
	})
	testkit.Must(t, err)
	w := &handlerTransport{handler: server}
	c, err := client.New(client.Options{URL: "http://127.0.0.1:1", HTTPClient: &http.Client{Transport: w}, Retry: client.Retry{Tries: 1}})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return &remoteEngine{Remote: mailbox.NewRemote(c), local: e, transport: w, client: c}
}

// A mailbox in another process makes the same promises.
func TestAMailboxElsewhere(t *testing.T) {
	open := func(t *testing.T, limits mailbox.Limits) mailbox.Engine {
		return remoteOf(t, runTasks(t, mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: limits})))
	}
	mailboxtest.Run(t, mailboxtest.Spec{Open: open, Bubble: true, Strict: true, Remote: true})
}

// A board of long notes comes in pages, none of which exceeds the limit of a
// response, and a note goes to many boards in several requests.
func TestABoardElsewhereComesInPages(t *testing.T) {
	far := remoteOf(t, runTasks(t, mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: mailboxtest.Limits()})))
	for i := range 200 {
		testkit.Must(t, far.Post(t.Context(), []string{"wall"}, mailbox.Note{ID: fmt.Sprint(i), Body: bytes.Repeat([]byte{'<'}, 40<<10), At: time.Unix(int64(i), 7)}))
	}
	notes, err := far.Notes(t.Context(), "wall", "", 500)
	testkit.Must(t, err)
	if len(notes) != 200 || notes[0].ID != "199" || notes[199].ID != "0" || len(notes[7].Body) != 40<<10 || !notes[3].At.Equal(time.Unix(196, 7)) {
		t.Errorf("%d notes", len(notes))
	}
	if most := far.transport.largestResponse.Load(); most > 1<<20 {
		t.Errorf("an answer of %d bytes", most)
	}
	if some, err := far.Notes(t.Context(), "wall", "150", 30); err != nil || len(some) != 30 || some[0].ID != "149" || some[29].ID != "120" {
		t.Errorf("%d notes, %v", len(some), err)
	}

	boards := make([]string, 2000)
	for i := range boards {
		boards[i] = fmt.Sprintf("%s%04d", strings.Repeat("<", 380), i)
	}
	before := far.transport.requests.Load()
	testkit.Must(t, far.Post(t.Context(), boards, mailbox.Note{ID: "x", Body: []byte("hi")}))
	if asked := far.transport.requests.Load() - before; asked < 2 || asked > 10 {
		t.Errorf("it took %d requests", asked)
	}
	for _, name := range []string{boards[0], boards[1000], boards[1999]} {
		if notes, err := far.Notes(t.Context(), name, "", 10); err != nil || len(notes) != 1 {
			t.Errorf("%d notes, %v", len(notes), err)
		}
	}
}

// A lost response is reported as such, and never as something else: the caller
// knows what may be repeated.
func TestAnAnswerOfAMailboxElsewhereIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := remoteOf(t, runTasks(t, mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: mailboxtest.Limits()})))
		m := mailbox.Message{Box: "facet/feed", Key: "k", Body: []byte("hi")}
		far.transport.loseResponses.Store(true)
		if _, err := far.Send(t.Context(), m); !fault.KindOf(err).Retryable() {
			t.Errorf("%v", err)
		}
		far.transport.loseResponses.Store(false)
		sent, err := far.Send(t.Context(), m)
		if err != nil || !sent.Repeated {
			t.Errorf("%+v, %v", sent, err)
		}
		far.transport.loseResponses.Store(true)
		if got, err := far.Receive(t.Context(), m.Box, 40*time.Second, time.Second); !fault.KindOf(err).Retryable() {
			t.Errorf("%+v, %v", got, err)
		}
		far.transport.loseResponses.Store(false)
		if _, err := far.Receive(t.Context(), m.Box, time.Minute, 0); fault.KindOf(err) != fault.NotFound {
			t.Errorf("it is leased: %v", err)
		}
		if got, err := far.Receive(t.Context(), m.Box, time.Minute, 2*time.Minute); fault.KindOf(err) != fault.NotFound {
			t.Errorf("nobody waits for longer than half a minute: %+v, %v", got, err)
		}
		if got, err := far.Receive(t.Context(), m.Box, time.Minute, 30*time.Second); err != nil || got.ID != sent.ID || got.Deliveries != 2 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// The part routes reject invalid requests, and require the scope of parts.
func TestTheSeamOfTheMailboxIsStrict(t *testing.T) {
	far := remoteOf(t, runTasks(t, mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: mailboxtest.Limits()})))
	for _, name := range []string{"send", "receive", "ack", "nack", "extend", "post", "board"} {
		if err := far.client.Call(t.Context(), "POST", "/part/mailbox/"+name, 3, nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, wait := range []time.Duration{-1, time.Hour} {
		if err := far.client.Call(t.Context(), "POST", "/part/mailbox/receive", map[string]any{"box": "jobs", "wait": wait}, nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("a wait of %s: %v", wait, err)
		}
	}
	if err := far.Post(t.Context(), make([]string, 20_000), mailbox.Note{ID: "1"}); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	if _, err := far.Send(t.Context(), mailbox.Message{Box: "jobs", Key: "\xff"}); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	if _, err := far.Notes(t.Context(), "\x00", "", 1); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	scopes := []string{}
	for _, route := range new(mailbox.Mailbox).PartRoutes() {
		scopes = append(scopes, route.Scope)
	}
	if scopes = slices.Compact(scopes); !slices.Equal(scopes, []string{"admin"}) {
		t.Errorf("whoever has one of %q may ask", scopes)
	}
}

// A mailbox that ends in another process is not ready; that does not cancel the
// callers here.
func TestAMailboxElsewhereEnds(t *testing.T) {
	far := remoteOf(t, runTasks(t, mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: mailboxtest.Limits()})))
	testkit.Must(t, far.Close())
	if _, err := far.Receive(t.Context(), "jobs", time.Minute, 0); fault.KindOf(err) != fault.NotReady || !strings.Contains(fault.NextOf(err), "--only mailbox") {
		t.Errorf("%v: %s", err, fault.NextOf(err))
	}
}
