package facet

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/graph"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/observe"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// harness is facets with real owners, in memory, behind a real server.
type harness struct {
	*Facets
	t              testing.TB
	supervisor     *supervise.Supervisor
	inventory      *flow.Inventory
	metrics        *observe.Metrics
	readiness      *observe.Readiness
	engine         mailbox.Engine // the engine itself
	edges          *graph.Graph
	server         *ingress.Server
	remote         *remoteOwners // to owners in another process; nil if they are here
	expectFailures bool          // the test makes workers fail: that is not a mistake here
	stop           context.CancelFunc
	ended          chan *supervise.Report

	mu     sync.Mutex
	events []Event
}

// option changes what a harness is made of.
type option func(*Spec)

// enable turns facets on.
func enable(names ...string) option {
	return func(s *Spec) {
		c := &s.Config
		for _, name := range names {
			*map[string]*bool{"feed": &c.Feed.Enabled, "graph": &c.Graph.Enabled, "search": &c.Search.Enabled, "media": &c.Media.Enabled}[name] = true
		}
	}
}

var testStages = Stages{State: "state", Workers: "workers"}

// build makes facets that do not run yet. Without options, all are off.
func build(t testing.TB, settings ...option) *harness {
	t.Helper()
	supervisor, err := supervise.New(supervise.Options{DrainTimeout: 5 * time.Second, Jitter: func(lo, _ time.Duration) time.Duration { return lo },
		Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}}})
	testkit.Must(t, err)
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	r := &harness{t: t, supervisor: supervisor, inventory: inv, metrics: metrics, readiness: observe.NewReadiness(inv, supervisor), ended: make(chan *supervise.Report, 1)}
	metrics.Attach(observe.Sources{Inventory: inv, Supervisor: supervisor, Readiness: r.readiness})
	spec := Spec{Config: DefaultConfig(), Metrics: metrics, Readiness: r.readiness}
	r.edges, err = graph.Open(inv, spec.Config.Graph.Spec(""))
	testkit.Must(t, err)
	r.engine = newRAMEngine(inv)
	spec.Mailbox, spec.Graph, spec.Audience = r.engine, r.edges, r.edges
	spec.Config.Feed.Fanout.Auto, spec.Config.Feed.Fanout.Value = false, 4
	for _, set := range settings {
		set(&spec)
	}
	testkit.Must(t, spec.Config.Validate())
	if engine, whole := spec.Mailbox.(mailbox.Engine); whole {
		r.engine = engine
	}
	if ownersRemote {
		r.remote = newRemoteOwners(t, r.engine, spec.Audience.(*graph.Graph))
		spec.Mailbox, spec.Audience = mailbox.NewRemote(r.remote.client(t, "mailbox")), graph.NewRemote(r.remote.client(t, "graph"))
	}
	for _, task := range r.engine.(mailbox.Tasker).Tasks() {
		testkit.Must(t, supervisor.Add(supervise.Service{Service: "mailbox", Name: task.Name, Stage: "state", Serve: task.Serve}))
	}
	r.Facets, err = New(inv, supervisor, testStages, spec)
	testkit.Must(t, err)
	testkit.Must(t, r.Add(supervisor, testStages, r.recordEvent))
	table, err := ingress.NewTable(r.Routes()...)
	testkit.Must(t, err)
	r.server = serve(t, inv, metrics, table)
	return r
}

// serve makes a server that allows every request.
func serve(t testing.TB, inv *flow.Inventory, metrics *observe.Metrics, table *ingress.Table) *ingress.Server {
	t.Helper()
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst, limits.WorkRate, limits.Inflight, limits.ConnsPerIP = 1_000_000, 1_000_000, 1_000_000, 10_000, 4096
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: limits,
		Authorise: func(context.Context, ingress.AuthRequest) error { return nil },
		Inventory: inv, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	testkit.Must(t, err)
	return server
}

// ownersRemote says that the owners of the feed are in another process. It is
// set by localAndRemote, for the harnesses that its test makes.
var ownersRemote bool

// localAndRemote runs a test in a bubble twice: with the owners of the feed in the
// same process, and in another one.
func localAndRemote(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for name, away := range map[string]bool{"here": false, "elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			ownersRemote = away
			defer func() { ownersRemote = false }()
			synctest.Test(t, test)
		})
	}
}

// remoteOwners connects to owners in another process. There is no network in
// it, so that time can be faked on both sides.
type remoteOwners struct {
	server *ingress.Server

	mu           sync.Mutex
	away         map[string]bool                               // parts that do not answer; guarded by mu
	loseResponse func(part string, request *http.Request) bool // whether an answer is lost, after the work was done; guarded by mu
}

func newRemoteOwners(t testing.TB, engine mailbox.Engine, edges *graph.Graph) *remoteOwners {
	t.Helper()
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	supervisor, err := supervise.New(supervise.Options{DrainTimeout: time.Second, Stages: []supervise.Stage{{Name: "state"}}})
	testkit.Must(t, err)
	box := mailbox.New(inv, mailbox.Spec{Config: mailbox.DefaultConfig(), Engine: engine, Metrics: metrics, Readiness: observe.NewReadiness(inv, supervisor)})
	table, err := ingress.NewTable(append(box.PartRoutes(), edges.PartRoutes()...)...)
	testkit.Must(t, err)
	return &remoteOwners{server: serve(t, inv, metrics, table), away: map[string]bool{}}
}

// client is a client of a part.
func (r *remoteOwners) client(t testing.TB, part string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: "http://127.0.0.1:1", HTTPClient: &http.Client{Transport: &partTransport{r, part}}, Retry: client.Retry{Tries: 1}})
	testkit.Must(t, err)
	return c
}

// setAway says whether a part is away.
func (r *remoteOwners) setAway(part string, away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away[part] = away
}

// partTransport is the transport to one part.
type partTransport struct {
	owners *remoteOwners
	part   string
}

func (p *partTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	p.owners.mu.Lock()
	away, lose := p.owners.away[p.part], p.owners.loseResponse
	p.owners.mu.Unlock()
	if away {
		return nil, &fault.Error{Op: "test", Kind: fault.NotReady, Detail: "the part " + p.part + " does not answer", RetryAfter: time.Second, Next: "Start it."}
	}
	answer := httptest.NewRecorder()
	p.owners.server.ServeHTTP(answer, r.Clone(r.Context()))
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if lose != nil && lose(p.part, r) {
		return nil, &fault.Error{Op: "test", Kind: fault.UpstreamFailed, Detail: "the part " + p.part + " broke off", Next: "Ask again."}
	}
	return answer.Result(), nil
}

// newRAMEngine is a mailbox in memory, with room for large feeds.
func newRAMEngine(inv *flow.Inventory) mailbox.Engine {
	limits := defaultLimits()
	limits.Bytes = 1 << 30
	return mailbox.NewRAM(inv, mailbox.RAMSpec{Limits: limits})
}

func defaultLimits() mailbox.Limits {
	c := mailbox.DefaultConfig()
	return c.Limits()
}

// open makes facets and runs them until the test ends.
func open(t testing.TB, settings ...option) *harness {
	t.Helper()
	r := build(t, settings...)
	r.run()
	t.Cleanup(r.end)
	return r
}

func (h *harness) run() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() {
		report, _ := h.supervisor.Run(ctx)
		h.ended <- report
	}()
}

// drain stops the tasks; what the owners keep stays.
func (h *harness) drain() {
	if h.stop == nil {
		return
	}
	h.stop()
	h.stop = nil
	report := <-h.ended
	if !h.expectFailures && (len(report.Aborted) > 0 || report.Restarts > 0) {
		h.t.Errorf("the drain aborted %v; %d restarts", report.Aborted, report.Restarts)
	}
	testkit.Must(h.t, h.Close())
}

// end stops everything.
func (h *harness) end() {
	h.drain()
	testkit.Must(h.t, h.engine.Close())
	testkit.Must(h.t, h.edges.Close())
}

func (h *harness) recordEvent(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *harness) eventsOf(what EventType) (found []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.Type == what {
			found = append(found, e)
		}
	}
	return found
}

// request sends a request as a client does.
func (h *harness) request(method, path, body string, header ...string) *httptest.ResponseRecorder {
	var src io.Reader
	if body != "" {
		src = strings.NewReader(body)
	}
	request := httptest.NewRequest(method, path, src)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	h.server.ServeHTTP(answer, request)
	return answer
}

// expectJSON checks the status of an answer and decodes it.
func expectJSON[T any](t testing.TB, answer *httptest.ResponseRecorder, status int) (body T) {
	t.Helper()
	if answer.Code != status {
		t.Fatalf("the answer is %d, want %d: %s", answer.Code, status, answer.Body)
	}
	testkit.Must(t, json.Unmarshal(answer.Body.Bytes(), &body))
	return body
}

// expectRefusal checks the kind of a refusal, and that it has a next step.
func expectRefusal(t testing.TB, answer *httptest.ResponseRecorder, kind fault.Kind) (next string) {
	t.Helper()
	var problem struct{ Code, Next string }
	testkit.Must(t, json.Unmarshal(answer.Body.Bytes(), &problem))
	if problem.Code != kind.Code() || answer.Code != kind.Status() || problem.Next == "" {
		t.Fatalf("the answer is %d, want %s: %s", answer.Code, kind.Code(), answer.Body)
	}
	return problem.Next
}

// follow makes users follow others, given as pairs.
func (h *harness) follow(pairs ...string) {
	h.t.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		_, err := h.edges.Follow(context.Background(), pairs[i], pairs[i+1])
		testkit.Must(h.t, err)
	}
}

// post posts something and returns its ID.
func (h *harness) post(author, body string) string {
	h.t.Helper()
	text, _ := json.Marshal(client.PostRequest{Body: body})
	return expectJSON[client.Posted](h.t, h.request(http.MethodPost, "/feed/"+author, string(text)), http.StatusCreated).ID
}

// read reads the feed of a user.
func (h *harness) read(user string) []client.FeedItem {
	h.t.Helper()
	return expectJSON[client.Feed](h.t, h.request(http.MethodGet, "/feed/"+user+"?limit=100", ""), http.StatusOK).Items
}

// bodies are the posts of a feed.
func bodies(items []client.FeedItem) (all []string) {
	for _, one := range items {
		all = append(all, one.Body)
	}
	return all
}

// metric reads a metric of a service, summed over the series that have these
// labels.
func (h *harness) metric(service, metric string, labels ...string) (sum float64) {
	h.t.Helper()
	families, err := h.metrics.Gatherer().Gather()
	testkit.Must(h.t, err)
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, series := range family.GetMetric() {
			if hasLabels(series, append(labels, "service="+service)) {
				sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + float64(series.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func hasLabels(series *dto.Metric, wanted []string) bool {
	for _, want := range wanted {
		if !slices.ContainsFunc(series.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == want }) {
			return false
		}
	}
	return true
}

// almostEqual reports whether two scores are the same.
func almostEqual(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
