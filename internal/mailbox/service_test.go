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
	"strings"
	"sync"
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
)

// rig is a mailbox with real parts all around it.
type rig struct {
	*mailbox.Mailbox
	t          *testing.T
	supervisor *supervise.Supervisor
	readiness  *observe.Readiness
	observed   *observe.Metrics
	server     *ingress.Server
	stop       context.CancelFunc
	done       chan *supervise.Report

	mu     sync.Mutex
	events []mailbox.Event // guarded by mu
}

// start runs a mailbox over an engine until the test ends.
func start(t *testing.T, engine func(inv *flow.Inventory, c mailbox.Config) mailbox.Engine, change ...func(*mailbox.Config)) *rig {
	t.Helper()
	supervisor, err := supervise.New(supervise.Options{Total: 5 * time.Second, Jitter: func(lo, _ time.Duration) time.Duration { return lo },
		Stages: []supervise.Stage{{Name: "state"}, {Name: "intake"}}})
	must(t, err)
	inv := flow.NewInventory()
	r := &rig{t: t, supervisor: supervisor, observed: observe.NewMetrics(observe.Build{}), readiness: observe.NewReadiness(inv, supervisor), done: make(chan *supervise.Report, 1)}
	r.observed.Watch(observe.Sources{Inventory: inv, Supervisor: supervisor, Readiness: r.readiness})
	c := mailbox.DefaultConfig()
	for _, set := range change {
		set(&c)
	}
	must(t, c.Validate())
	r.Mailbox = mailbox.New(inv, mailbox.Spec{Config: c, Engine: engine(inv, c), Metrics: r.observed, Readiness: r.readiness})
	must(t, r.Add(supervisor, mailbox.Stages{State: "state", Intake: "intake"}, r.heard))
	table, err := ingress.NewTable(r.Routes()...)
	must(t, err)
	r.server, err = ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: ingress.DefaultLimits(),
		Authorise: func(context.Context, ingress.Ask) error { return nil },
		Inventory: inv, Metrics: r.observed, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	must(t, err)
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

// drain stops the mailbox; what it closes with is for those who expect an error.
func (r *rig) drain() error {
	if r.stop == nil {
		return nil
	}
	r.stop()
	r.stop = nil
	if report := <-r.done; len(report.Aborted) > 0 || report.Restarts > 0 {
		r.t.Errorf("the drain aborted %v; %d restarts", report.Aborted, report.Restarts)
	}
	return r.Close()
}

func (r *rig) heard(e mailbox.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *rig) told() (all []mailbox.EventType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		all = append(all, e.Type)
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask sends a request, as a client does.
func (r *rig) ask(method, path, body string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	r.server.ServeHTTP(answer, request)
	return answer
}

// post sends a document that must get a status, and reads the answer.
func (r *rig) post(path, body string, status int, into any, header ...string) {
	r.t.Helper()
	answer := r.ask(http.MethodPost, path, body, header...)
	if answer.Code != status {
		r.t.Fatalf("POST %s %s: %d %s, want %d", path, body, answer.Code, answer.Body, status)
	}
	if into != nil {
		must(r.t, json.Unmarshal(answer.Body.Bytes(), into))
	}
}

// refuse sends a document that must be refused.
func (r *rig) refuse(path, body string, want fault.Kind, header ...string) {
	r.t.Helper()
	var problem struct{ Code, Next string }
	r.post(path, body, want.Status(), &problem, header...)
	if problem.Code != want.Code() || problem.Next == "" {
		r.t.Errorf("POST %s %s: %+v, want %s with a next step", path, body, problem, want)
	}
}

// count reads a metric of the mailbox.
func (r *rig) count(name string) float64 {
	r.t.Helper()
	families, err := r.observed.Gatherer().Gather()
	must(r.t, err)
	for _, family := range families {
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if family.GetName() == name && label.GetName() == "service" && label.GetValue() == "mailbox" {
					return series.GetGauge().GetValue() + series.GetCounter().GetValue()
				}
			}
		}
	}
	r.t.Fatalf("there is no %s", name)
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
		r.refuse("/mbox/send", hello+`}`, fault.Conflict, "Idempotency-Key", "k1")
		r.refuse("/mbox/send", hello+`}`, fault.Malformed)

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
		r.refuse("/mbox/ack", receipt(""), fault.NotFound)
		r.refuse("/mbox/nack", receipt(""), fault.NotFound)
		r.refuse("/mbox/extend", receipt(""), fault.NotFound)
		r.post("/mbox/recv", `{"box":"jobs","wait_s":5}`, http.StatusOK, &got)
		if got.Deliveries != 2 {
			t.Errorf("delivery %d", got.Deliveries)
		}
		r.post("/mbox/send", hello+`}`, http.StatusCreated, nil, "Idempotency-Key", "k2")
		time.Sleep(31 * time.Second) // the default visibility time-out, which kills the first
		r.post("/mbox/recv", `{"box":"jobs"}`, http.StatusOK, &got)
		r.post("/mbox/ack", receipt(""), http.StatusNoContent, nil)

		answer := r.ask(http.MethodGet, "/mbox/dlq?box=jobs", "")
		var letters client.DeadLetters
		must(t, json.Unmarshal(answer.Body.Bytes(), &letters))
		if len(letters.Letters) != 1 || letters.Letters[0].ID != sent.ID || letters.Letters[0].Deliveries != 2 || letters.Letters[0].Reason == "" || letters.Next != "" || letters.Box != "jobs" {
			t.Errorf("dead letters: %s", answer.Body)
		}
		for name, want := range map[string]float64{"mailbox_visibility_timeout_total": 1, "mailbox_dlq_total": 1, "mailbox_depth": 0, "mailbox_leased": 0, "mailbox_dead": 1,
			"mailbox_boxes": 1, "mailbox_notes": 0, "mailbox_dlq_dropped_total": 0} {
			if have := r.count(name); have != want {
				t.Errorf("%s is %g, want %g", name, have, want)
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if told := r.told(); len(told) != 1 || told[0] != mailbox.Died {
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
			r.refuse(path, `{"box":""}`, fault.Malformed, key...)
			r.refuse(path, `{"box":"facet/feed"}`, fault.RejectPolicy, key...)
			r.refuse(path, `{"box":"jobs","whatever":1}`, fault.Malformed, key...)
			r.refuse(path, `{"box":"jobs"`, fault.Malformed, key...)
		}
		for _, body := range []string{`"delay_s":-1`, `"delay_s":604801`, `"delay_s":99999999999999999`, `"max_deliveries":-1`, `"max_deliveries":1001`, `"body":"not base64!"`} {
			r.refuse("/mbox/send", `{"box":"jobs",`+body+`}`, fault.Malformed, key...)
		}
		r.refuse("/mbox/send", `{"box":"jobs","body":"`+base64.StdEncoding.EncodeToString(make([]byte, 1001))+`"}`, fault.BodyTooLarge, key...)
		r.refuse("/mbox/send", `{"box":"jobs","body":"`+base64.StdEncoding.EncodeToString(make([]byte, 30_000))+`"}`, fault.BodyTooLarge, key...)
		r.refuse("/mbox/send", `{"box":"jobs"}`, fault.Malformed, "Idempotency-Key", strings.Repeat("k", 256))
		for _, body := range []string{`"wait_s":31`, `"wait_s":-1`, `"visibility_timeout_s":-1`, `"visibility_timeout_s":43201`} {
			r.refuse("/mbox/recv", `{"box":"jobs",`+body+`}`, fault.Malformed)
		}
		r.refuse("/mbox/nack", `{"box":"jobs","receipt":"x","delay_s":-1}`, fault.Malformed)
		r.refuse("/mbox/extend", `{"box":"jobs","receipt":"x","visibility_timeout_s":-1}`, fault.Malformed)
		for _, query := range []string{"", "?box=a&limit=0", "?box=a&limit=101", "?box=a&limit=x"} {
			if answer := r.ask(http.MethodGet, "/mbox/dlq"+query, ""); answer.Code != http.StatusBadRequest {
				t.Errorf("GET /mbox/dlq%s: %d", query, answer.Code)
			}
		}
		if answer := r.ask(http.MethodGet, "/mbox/dlq?box=facet/feed", ""); answer.Code != http.StatusOK {
			t.Errorf("dead letters of a part of the node: %d", answer.Code)
		}
		r.post("/mbox/send", `{"box":"full","body":""}`, http.StatusCreated, nil, key...)
		r.refuse("/mbox/send", `{"box":"full","body":""}`, fault.Busy, "Idempotency-Key", "another")

		waiting := make(chan int)
		go func() { waiting <- r.ask(http.MethodPost, "/mbox/recv", `{"box":"jobs","wait_s":30}`).Code }()
		synctest.Wait()
		r.refuse("/mbox/recv", `{"box":"jobs","wait_s":30}`, fault.Busy)
		if code := <-waiting; code != http.StatusNoContent {
			t.Errorf("the one who waits got %d", code)
		}
	})
}

// A client that has less time than it asked to wait for is told in time, and not
// before most of its time is over.
func TestAShorterDeadlineIsHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, inRAM)
		for timeout, most := range map[string]time.Duration{"3": 3 * time.Second, "1": time.Second, "0.2": 200 * time.Millisecond} {
			before := time.Now()
			if answer := r.ask(http.MethodPost, "/mbox/recv", `{"box":"jobs","wait_s":20}`, "Request-Timeout", timeout); answer.Code != http.StatusNoContent {
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

// No drain waits for those who wait.
func TestWhoWaitsIsSentAwayByADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, inRAM)
		waiting := make(chan *httptest.ResponseRecorder)
		go func() { waiting <- r.ask(http.MethodPost, "/mbox/recv", `{"box":"jobs","wait_s":30}`) }()
		synctest.Wait()
		before := time.Now()
		r.stop()
		if answer := <-waiting; answer.Code != http.StatusServiceUnavailable || time.Since(before) > 0 {
			t.Errorf("%d %s after %s", answer.Code, answer.Body, time.Since(before))
		}
	})
}

// Pages of dead letters end by number and by size, and lead through all of them.
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
			must(t, err)
			got, err := e.Receive(t.Context(), "a b&c", time.Minute, 0)
			must(t, err)
			must(t, e.Nack(t.Context(), "a b&c", got.Receipt, 0, "no"))
			want = append(want, sent.ID)
		}
		for _, limit := range []string{"", "&limit=7", "&limit=100"} {
			var seen []string
			for after := ""; ; {
				var page client.DeadLetters
				answer := r.ask(http.MethodGet, "/mbox/dlq?box=a+b%26c"+limit+"&after="+after, "")
				must(t, json.Unmarshal(answer.Body.Bytes(), &page))
				if answer.Body.Len() > 1<<20 || len(page.Letters) == 0 && page.Next != "" {
					t.Fatalf("a page of %d letters and %d bytes", len(page.Letters), answer.Body.Len())
				}
				for _, one := range page.Letters {
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

// failingFS is a disk that fails, or is full, when it is told so. It syncs
// nothing.
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

func (f *failingFS) set(err error) {
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
	// On a disk that is full, what is there can still be written over.
	size, _ := f.File.Size()
	if err := f.fs.failure(); errors.Is(err, syscall.EIO) || err != nil && at+int64(len(b)) > size {
		return 0, err
	}
	return f.File.WriteAt(b, at)
}

// A disk that fails is told of by readiness, and nothing is acknowledged.
func TestADiskThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &failingFS{FS: disk.Real()}
		r := start(t, func(inv *flow.Inventory, c mailbox.Config) mailbox.Engine {
			spec := c.DiskSpec(t.TempDir())
			spec.FS = fs
			d, err := mailbox.OpenDisk(inv, spec)
			must(t, err)
			return d
		})
		r.post("/mbox/send", `{"box":"jobs","body":""}`, http.StatusCreated, nil, "Idempotency-Key", "1")
		fs.set(syscall.EIO)
		r.refuse("/mbox/send", `{"box":"jobs","body":""}`, fault.StorageBusy, "Idempotency-Key", "2")
		fs.set(nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if r.readiness.Evaluate().WriteReady {
			t.Error("ready for writes")
		}
		if told := r.told(); len(told) != 1 || told[0] != mailbox.EngineFailed {
			t.Errorf("told %q", told)
		}
		r.refuse("/mbox/send", `{"box":"jobs","body":""}`, fault.StorageBusy, "Idempotency-Key", "1x")
		if err := r.drain(); fault.KindOf(err) != fault.StorageBusy {
			t.Errorf("Close: %v", err)
		}
	})
}

// sick is an engine that is well and is not.
type sick struct {
	mailbox.Engine
	mu     sync.Mutex
	health error
}

func (s *sick) Health() error { s.mu.Lock(); defer s.mu.Unlock(); return s.health }

func TestAnEngineThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &sick{health: errors.New("away")}
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
		if told := r.told(); len(told) != 2 || told[1] != mailbox.EngineBack || !r.readiness.Evaluate().WriteReady {
			t.Errorf("told %q; %+v", told, r.readiness.Evaluate())
		}
	})
}
