package mailbox_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/observe"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// harness is a mailbox with all its real dependencies.
type harness struct {
	*mailbox.Mailbox
	t          *testing.T
	supervisor *supervise.Supervisor
	readiness  *observe.Readiness
	metrics    *observe.Metrics
	server     *ingress.Server
	stop       context.CancelFunc
	done       chan *supervise.Report

	deadToken atomic.Value // the token that is not valid any more

	mu     sync.Mutex
	events []mailbox.Event // guarded by mu
}

// start runs a mailbox over an engine until the test ends.
func start(t *testing.T, engine func(inv *flow.Inventory, c mailbox.Config) mailbox.Engine, change ...func(*mailbox.Config)) *harness {
	t.Helper()
	supervisor, err := supervise.New(supervise.Options{DrainTimeout: 5 * time.Second, Jitter: func(lo, _ time.Duration) time.Duration { return lo },
		Stages: []supervise.Stage{{Name: "state"}, {Name: "intake"}}})
	testkit.Must(t, err)
	inv := flow.NewInventory()
	r := &harness{t: t, supervisor: supervisor, metrics: observe.NewMetrics(observe.Build{}), readiness: observe.NewReadiness(inv, supervisor), done: make(chan *supervise.Report, 1)}
	r.metrics.Attach(observe.Sources{Inventory: inv, Supervisor: supervisor, Readiness: r.readiness})
	c := mailbox.DefaultConfig()
	for _, set := range change {
		set(&c)
	}
	testkit.Must(t, c.Validate())
	r.Mailbox = mailbox.New(inv, mailbox.Spec{Config: c, Engine: engine(inv, c), Metrics: r.metrics, Readiness: r.readiness})
	testkit.Must(t, r.Add(supervisor, mailbox.Stages{State: "state", Intake: "intake"}, r.recordEvent))
	table, err := ingress.NewTable(r.Routes()...)
	testkit.Must(t, err)
	r.server, err = ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: ingress.DefaultLimits(),
		Authorise: func(_ context.Context, ask ingress.AuthRequest) error {
			if ask.Token != "" && ask.Token == r.deadToken.Load() {
				return fault.New("test", fault.Unauthorized, "the token was revoked")
			}
			return nil
		},
		Inventory: inv, Metrics: r.metrics, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	testkit.Must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		report, _ := supervisor.Run(ctx)
		r.done <- report
	}()
	t.Cleanup(func() { r.drain() })
	return r
}

func inRAM(inv *flow.Inventory, c mailbox.Config) mailbox.Engine {
	return mailbox.NewRAM(inv, c.RAMSpec(true))
}

// drain stops the mailbox, and returns the error of Close.
func (h *harness) drain() error {
	if h.stop == nil {
		return nil
	}
	h.stop()
	h.stop = nil
	if report := <-h.done; len(report.Aborted) > 0 || report.Restarts > 0 {
		h.t.Errorf("the drain aborted %v; %d restarts", report.Aborted, report.Restarts)
	}
	return h.Close()
}

func (h *harness) recordEvent(e mailbox.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *harness) eventTypes() (all []mailbox.EventType) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		all = append(all, e.Type)
	}
	return all
}

// request sends a request, as a client does.
func (h *harness) request(method, path, body string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	h.server.ServeHTTP(answer, request)
	return answer
}

// post sends a document that must get a status, and reads the response.
func (h *harness) post(path, body string, status int, into any, header ...string) {
	h.t.Helper()
	answer := h.request(http.MethodPost, path, body, header...)
	if answer.Code != status {
		h.t.Fatalf("POST %s %s: %d %s, want %d", path, body, answer.Code, answer.Body, status)
	}
	if into != nil {
		testkit.Must(h.t, json.Unmarshal(answer.Body.Bytes(), into))
	}
}

// expectRefusal sends a document that must be refused.
func (h *harness) expectRefusal(path, body string, want fault.Kind, header ...string) {
	h.t.Helper()
	var problem struct{ Code, Next string }
	h.post(path, body, want.Status(), &problem, header...)
	if problem.Code != want.Code() || problem.Next == "" {
		h.t.Errorf("POST %s %s: %+v, want %s with a next step", path, body, problem, want)
	}
}

// metric reads a metric of the mailbox.
func (h *harness) metric(name string) float64 {
	h.t.Helper()
	families, err := h.metrics.Gatherer().Gather()
	testkit.Must(h.t, err)
	for _, family := range families {
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if family.GetName() == name && label.GetName() == "service" && label.GetValue() == "mailbox" {
					return series.GetGauge().GetValue() + series.GetCounter().GetValue()
				}
			}
		}
	}
	h.t.Fatalf("there is no %s", name)
	return 0
}

func TestTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, inRAM)
		hello := `{"box":"jobs","body":"` + base64.StdEncoding.EncodeToString([]byte("hello")) + `"`
		var sent, again client.MailSent
		r.post("/mbox/send", hello+`,"max_deliveries":2}`, http.StatusCreated, &sent, "Idempotency-Key", "k1")
		r.post("/mbox/send", hello+`,"max_deliveries":2}`, http.StatusOK, &again, "Idempotency-Key", "k1")
		if sent.ID == "" || again != sent {
			t.Fatalf("sent %+v, then %+v", sent, again)
		}
		r.expectRefusal("/mbox/send", hello+`}`, fault.Conflict, "Idempotency-Key", "k1")
		r.expectRefusal("/mbox/send", hello+`}`, fault.Malformed)

		var got client.Mail
		r.post("/mbox/recv", `{"box":"jobs","visibility_timeout_s":10,"wait_s":5}`, http.StatusOK, &got)
		if got.ID != sent.ID || string(got.Body) != "hello" || got.Deliveries != 1 || got.Receipt == "" {
			t.Fatalf("received %+v", got)
		}
		before := time.Now()
		r.post("/mbox/recv", `{"box":"jobs","wait_s":5}`, http.StatusNoContent, nil)
		if waited := time.Since(before); waited != 5*time.Second {
			t.Errorf("waited %s", waited)
		}
		receipt := func(extra string) string { return fmt.Sprintf(`{"box":"jobs","receipt":%q%s}`, got.Receipt, extra) }
		r.post("/mbox/extend", receipt(`,"visibility_timeout_s":20`), http.StatusNoContent, nil)
		time.Sleep(19 * time.Second)
		r.post("/mbox/nack", receipt(`,"delay_s":3,"reason":"not yet"`), http.StatusNoContent, nil)
		r.expectRefusal("/mbox/ack", receipt(""), fault.NotFound)
		r.expectRefusal("/mbox/nack", receipt(""), fault.NotFound)
		r.expectRefusal("/mbox/extend", receipt(""), fault.NotFound)
		r.post("/mbox/recv", `{"box":"jobs","wait_s":5}`, http.StatusOK, &got)
		if got.Deliveries != 2 {
			t.Errorf("delivery %d", got.Deliveries)
		}
		r.post("/mbox/send", hello+`}`, http.StatusCreated, nil, "Idempotency-Key", "k2")
		time.Sleep(31 * time.Second) // the default visibility time-out, which kills the first
		r.post("/mbox/recv", `{"box":"jobs"}`, http.StatusOK, &got)
		r.post("/mbox/ack", receipt(""), http.StatusNoContent, nil)

		answer := r.request(http.MethodGet, "/mbox/dlq?box=jobs", "")
		var letters client.DeadLetters
		testkit.Must(t, json.Unmarshal(answer.Body.Bytes(), &letters))
		if len(letters.Messages) != 1 || letters.Messages[0].ID != sent.ID || letters.Messages[0].Deliveries != 2 || letters.Messages[0].Reason == "" || letters.Next != "" || letters.Box != "jobs" {
			t.Errorf("dead letters: %s", answer.Body)
		}
		for name, want := range map[string]float64{"mailbox_visibility_timeout_total": 1, "mailbox_dlq_total": 1, "mailbox_depth": 0, "mailbox_leased": 0, "mailbox_dead": 1,
			"mailbox_boxes": 1, "mailbox_notes": 0, "mailbox_dlq_dropped_total": 0} {
			if have := r.metric(name); have != want {
				t.Errorf("%s is %g, want %g", name, have, want)
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if told := r.eventTypes(); len(told) != 1 || told[0] != mailbox.Died {
			t.Errorf("told %q", told)
		}
		if !r.readiness.Evaluate().Ready {
			t.Error("not ready")
		}
	})
}

func TestWhatIsNotMeantIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, inRAM, func(c *mailbox.Config) { c.MaxMessageBytes, c.Receivers, c.BoxMessages = 1000, 1, 1 })
		key := []string{"Idempotency-Key", "k"}
		for _, path := range []string{"/mbox/send", "/mbox/recv", "/mbox/ack", "/mbox/nack", "/mbox/extend"} {
			r.expectRefusal(path, `{"box":""}`, fault.Malformed, key...)
			r.expectRefusal(path, `{"box":"facet/feed"}`, fault.RejectPolicy, key...)
			r.expectRefusal(path, `{"box":"jobs","whatever":1}`, fault.Malformed, key...)
			for _, name := range []string{"\u200b", "jobs\u200b", "\u2060\ufeff", "\u3164", "\uffa0", "\u2800", "a\u034fb", "a\ufe0f", "\u00a0", " ", "jobs ", "\u202ejobs", "\u2028"} {
				r.expectRefusal(path, `{"box":`+strconv.QuoteToASCII(name)+`}`, fault.Malformed, key...)
			}
			r.expectRefusal(path, `{"box":"jobs"`, fault.Malformed, key...)
		}
		for _, body := range []string{`"delay_s":-1`, `"delay_s":604801`, `"delay_s":99999999999999999`, `"max_deliveries":-1`, `"max_deliveries":1001`, `"body":"not base64!"`} {
			r.expectRefusal("/mbox/send", `{"box":"jobs",`+body+`}`, fault.Malformed, key...)
		}
		r.expectRefusal("/mbox/send", `{"box":"jobs","body":"`+base64.StdEncoding.EncodeToString(make([]byte, 1001))+`"}`, fault.BodyTooLarge, key...)
		r.expectRefusal("/mbox/send", `{"box":"jobs","body":"`+base64.StdEncoding.EncodeToString(make([]byte, 30_000))+`"}`, fault.BodyTooLarge, key...)
		r.expectRefusal("/mbox/send", `{"box":"jobs"}`, fault.Malformed, "Idempotency-Key", strings.Repeat("k", 256))
		for _, body := range []string{`"wait_s":31`, `"wait_s":-1`, `"visibility_timeout_s":-1`, `"visibility_timeout_s":43201`} {
			r.expectRefusal("/mbox/recv", `{"box":"jobs",`+body+`}`, fault.Malformed)
		}
		r.expectRefusal("/mbox/nack", `{"box":"jobs","receipt":"x","delay_s":-1}`, fault.Malformed)
		r.expectRefusal("/mbox/extend", `{"box":"jobs","receipt":"x","visibility_timeout_s":-1}`, fault.Malformed)
		for _, query := range []string{"", "?box=a&limit=0", "?box=a&limit=101", "?box=a&limit=x"} {
			if answer := r.request(http.MethodGet, "/mbox/dlq"+query, ""); answer.Code != http.StatusBadRequest {
				t.Errorf("GET /mbox/dlq%s: %d", query, answer.Code)
			}
		}
		if answer := r.request(http.MethodGet, "/mbox/dlq?box=facet/feed", ""); answer.Code != http.StatusOK {
			t.Errorf("dead letters of a part of the node: %d", answer.Code)
		}
		r.post("/mbox/send", `{"box":"full","body":""}`, http.StatusCreated, nil, key...)
		r.expectRefusal("/mbox/send", `{"box":"full","body":""}`, fault.Busy, "Idempotency-Key", "another")

		waiting := make(chan int)
		go func() { waiting <- r.request(http.MethodPost, "/mbox/recv", `{"box":"jobs","wait_s":30}`).Code }()
		synctest.Wait()
		r.expectRefusal("/mbox/recv", `{"box":"jobs","wait_s":30}`, fault.Busy)
		if code := <-waiting; code != http.StatusNoContent {
			t.Errorf("the one who waits got %d", code)
		}
	})
}

// A client with less time than it asked to wait for gets a response in time,
// and not before most of its time is over.
func TestAShorterDeadlineIsHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, inRAM)
		for timeout, most := range map[string]time.Duration{"3": 3 * time.Second, "1": time.Second, "0.2": 200 * time.Millisecond} {
			before := time.Now()
			if answer := r.request(http.MethodPost, "/mbox/recv", `{"box":"jobs","wait_s":20}`, "Request-Timeout", timeout); answer.Code != http.StatusNoContent {
				t.Errorf("%d %s", answer.Code, answer.Body)
			}
			if waited := time.Since(before); waited >= most || waited < most*2/3 {
				t.Errorf("waited %s of %s", waited, most)
			}
		}
		r.post("/mbox/send", `{"box":"jobs","body":""}`, http.StatusCreated, nil, "Idempotency-Key", "k")
		r.post("/mbox/recv", `{"box":"jobs","wait_s":20}`, http.StatusOK, nil, "Request-Timeout", "0.2")
	})
}

// No drain waits for waiting receivers.
func TestWhoWaitsIsSentAwayByADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, inRAM)
		waiting := make(chan *httptest.ResponseRecorder)
		go func() { waiting <- r.request(http.MethodPost, "/mbox/recv", `{"box":"jobs","wait_s":30}`) }()
		synctest.Wait()
		before := time.Now()
		r.stop()
		if answer := <-waiting; answer.Code != http.StatusServiceUnavailable || time.Since(before) > 0 {
			t.Errorf("%d %s after %s", answer.Code, answer.Body, time.Since(before))
		}
	})
}

// A receiver whose token is revoked while it waits gets no message: neither one
// that is sent after its wait was ended, nor one that is sent in the moment
// before. Another receiver gets both.
func TestAWaitEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, inRAM)
		for i, after := range []time.Duration{5 * time.Second, 10 * time.Millisecond} {
			r.deadToken.Store("")
			waiting := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				waiting <- r.request(http.MethodPost, "/mbox/recv", `{"box":"jobs","wait_s":30}`, "Authorization", "Bearer short")
			}()
			time.Sleep(2500 * time.Millisecond)
			r.deadToken.Store("short")
			time.Sleep(after)
			r.post("/mbox/send", `{"box":"jobs","body":"aGk=","max_deliveries":2}`, http.StatusCreated, nil, "Idempotency-Key", after.String())
			if answer := <-waiting; answer.Code != http.StatusUnauthorized || strings.Contains(answer.Body.String(), "aGk=") {
				t.Errorf("sent %s after the revocation: %d %s", after, answer.Code, answer.Body)
			}
			var got client.Mail
			r.post("/mbox/recv", `{"box":"jobs"}`, http.StatusOK, &got, "Authorization", "Bearer long")
			if string(got.Body) != "hi" || got.Deliveries != i+1 {
				t.Errorf("sent %s after the revocation: the other receiver has %+v", after, got)
			}
			r.post("/mbox/ack", fmt.Sprintf(`{"box":"jobs","receipt":%q}`, got.Receipt), http.StatusNoContent, nil)
		}
	})
}

// Pages of dead letters end by number and by size, and together list all of
// them.
func TestDeadLettersInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, inRAM)
		e := r.Engine()
		var want []string
		for i := range 45 {
			size := 10
			if i%3 == 0 {
				size = 100 << 10
			}
			sent, err := e.Send(t.Context(), mailbox.Message{Box: "a b&c", Body: make([]byte, size), MaxDeliveries: 1})
			testkit.Must(t, err)
			got, err := e.Receive(t.Context(), "a b&c", time.Minute, 0)
			testkit.Must(t, err)
			testkit.Must(t, e.Nack(t.Context(), "a b&c", got.Receipt, 0, "no"))
			want = append(want, sent.ID)
		}
		for _, limit := range []string{"", "&limit=7", "&limit=100"} {
			var seen []string
			for after := ""; ; {
				var page client.DeadLetters
				answer := r.request(http.MethodGet, "/mbox/dlq?box=a+b%26c"+limit+"&after="+after, "")
				testkit.Must(t, json.Unmarshal(answer.Body.Bytes(), &page))
				if answer.Body.Len() > 1<<20 || len(page.Messages) == 0 && page.Next != "" {
					t.Fatalf("a page of %d letters and %d bytes", len(page.Messages), answer.Body.Len())
				}
				for _, one := range page.Messages {
					seen = append(seen, one.ID)
				}
				if after = page.Next; after == "" {
					break
				}
			}
			if strings.Join(seen, " ") != strings.Join(want, " ") {
				t.Errorf("with %q: %d letters, want %d", limit, len(seen), len(want))
			}
		}
	})
}

// failingFS is a disk that fails, or is full, on demand. It syncs nothing.
type failingFS struct {
	disk.FS
	mu   sync.Mutex
	fail error // guarded by mu
}

type failingFile struct {
	disk.File
	fs *failingFS
}

func (f *failingFS) Open(name string, mode disk.Mode) (disk.File, error) {
	file, err := f.FS.Open(name, mode)
	return &failingFile{file, f}, err
}

func (f *failingFS) setError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *failingFS) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail
}

func (f *failingFile) Sync() error {
	if err := f.fs.failure(); errors.Is(err, syscall.EIO) {
		return err
	}
	return nil
}

func (f *failingFile) WriteAt(b []byte, at int64) (int, error) {
	// On a full disk, what is there can still be overwritten.
	size, _ := f.File.Size()
	if err := f.fs.failure(); errors.Is(err, syscall.EIO) || err != nil && at+int64(len(b)) > size {
		return 0, err
	}
	return f.File.WriteAt(b, at)
}

// A failing disk shows in readiness, and nothing is acknowledged.
func TestADiskThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &failingFS{FS: disk.OS()}
		r := start(t, func(inv *flow.Inventory, c mailbox.Config) mailbox.Engine {
			spec := c.DiskSpec(t.TempDir())
			spec.FS = fs
			d, err := mailbox.OpenDisk(inv, spec)
			testkit.Must(t, err)
			return d
		})
		r.post("/mbox/send", `{"box":"jobs","body":""}`, http.StatusCreated, nil, "Idempotency-Key", "1")
		fs.setError(syscall.EIO)
		r.expectRefusal("/mbox/send", `{"box":"jobs","body":""}`, fault.StorageBusy, "Idempotency-Key", "2")
		fs.setError(nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if r.readiness.Evaluate().WriteReady {
			t.Error("ready for writes")
		}
		if told := r.eventTypes(); len(told) != 1 || told[0] != mailbox.EngineFailed {
			t.Errorf("told %q", told)
		}
		r.expectRefusal("/mbox/send", `{"box":"jobs","body":""}`, fault.StorageBusy, "Idempotency-Key", "1x")
		if err := r.drain(); fault.KindOf(err) != fault.StorageBusy {
			t.Errorf("Close: %v", err)
		}
	})
}

// unhealthyEngine is an engine whose health can be set.
type unhealthyEngine struct {
	mailbox.Engine
	mu     sync.Mutex
	health error
}

func (u *unhealthyEngine) Health() error { u.mu.Lock(); defer u.mu.Unlock(); return u.health }

func TestAnEngineThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &unhealthyEngine{health: errors.New("away")}
		r := start(t, func(inv *flow.Inventory, c mailbox.Config) mailbox.Engine {
			engine.Engine = inRAM(inv, c)
			return engine
		})
		synctest.Wait()
		if r.readiness.Evaluate().WriteReady {
			t.Error("ready for writes")
		}
		engine.mu.Lock()
		engine.health = nil
		engine.mu.Unlock()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if told := r.eventTypes(); len(told) != 2 || told[1] != mailbox.EngineRecovered || !r.readiness.Evaluate().WriteReady {
			t.Errorf("told %q; %+v", told, r.readiness.Evaluate())
		}
	})
}
