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
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/mailbox"
	"micronode/internal/observe"
	"micronode/internal/supervise"
)

// rig is facets with real owners, in memory, behind a real server.
type rig struct {
	*Facets
	t          testing.TB
	supervisor *supervise.Supervisor
	inventory  *flow.Inventory
	observed   *observe.Metrics
	readiness  *observe.Readiness
	office     mailbox.Engine // as it is
	edges      *index.Graph
	server     *ingress.Server
	wire       *wire // to owners in another process; nil if they are here
	rough      bool  // the test makes workers fail: that is not a mistake here
	stop       context.CancelFunc
	ended      chan *supervise.Report

	mu     sync.Mutex
	events []Event
}

// setting changes what a rig is made of.
type setting func(*Spec)

// on turns facets on.
func on(names ...string) setting {
	return func(s *Spec) {
		c := &s.Config
		for _, name := range names {
			*map[string]*bool{"feed": &c.Feed.Enabled, "graph": &c.Graph.Enabled, "search": &c.Search.Enabled, "media": &c.Media.Enabled}[name] = true
		}
	}
}

var testStages = Stages{State: "state", Workers: "workers"}

// build makes facets that do not run yet. Without settings, all are off.
func build(t testing.TB, settings ...setting) *rig {
	t.Helper()
	supervisor, err := supervise.New(supervise.Options{Total: 5 * time.Second, Jitter: func(lo, _ time.Duration) time.Duration { return lo },
		Stages: []supervise.Stage{{Name: "state"}, {Name: "workers"}}})
	must(t, err)
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	r := &rig{t: t, supervisor: supervisor, inventory: inv, observed: metrics, readiness: observe.NewReadiness(inv, supervisor), ended: make(chan *supervise.Report, 1)}
	metrics.Watch(observe.Sources{Inventory: inv, Supervisor: supervisor, Readiness: r.readiness})
	spec := Spec{Config: DefaultConfig(), Metrics: metrics, Readiness: r.readiness}
	r.edges, err = index.OpenGraph(inv, spec.Config.Graph.Spec(""))
	must(t, err)
	r.office = newOffice(inv)
	spec.Mailbox, spec.Graph, spec.Audience = r.office, r.edges, r.edges
	spec.Config.Feed.Fanout.Auto, spec.Config.Feed.Fanout.Value = false, 4
	for _, set := range settings {
		set(&spec)
	}
	must(t, spec.Config.Validate())
	if engine, whole := spec.Mailbox.(mailbox.Engine); whole {
		r.office = engine
	}
	if elsewhere {
		r.wire = newWire(t, r.office, spec.Audience.(*index.Graph))
		spec.Mailbox, spec.Audience = mailbox.NewRemote(r.wire.to(t, "mailbox")), index.NewRemoteGraph(r.wire.to(t, "graph"))
	}
	for _, task := range r.office.(mailbox.Tasked).Tasks() {
		must(t, supervisor.Add(supervise.Service{Service: "mailbox", Name: task.Name, Stage: "state", Serve: task.Serve}))
	}
	r.Facets, err = New(inv, supervisor, testStages, spec)
	must(t, err)
	must(t, r.Add(supervisor, testStages, r.note))
	table, err := ingress.NewTable(r.Routes()...)
	must(t, err)
	r.server = serve(t, inv, metrics, table)
	return r
}

// serve makes a server that lets everybody in.
func serve(t testing.TB, inv *flow.Inventory, metrics *observe.Metrics, table *ingress.Table) *ingress.Server {
	t.Helper()
	limits := ingress.DefaultLimits()
	limits.Rate, limits.Burst, limits.WorkRate, limits.Inflight, limits.ConnsPerIP = 1_000_000, 1_000_000, 1_000_000, 10_000, 4096
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: limits,
		Authorise: func(context.Context, ingress.Ask) error { return nil },
		Inventory: inv, Metrics: metrics, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	must(t, err)
	return server
}

// elsewhere says that the owners of the feed are in another process. It is set by
// inBothForms, for the rigs that its test makes.
var elsewhere bool

// inBothForms runs a test in a bubble twice: with the owners of the feed in the
// same process, and in another one.
func inBothForms(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for name, away := range map[string]bool{"here": false, "elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			elsewhere = away
			defer func() { elsewhere = false }()
			synctest.Test(t, test)
		})
	}
}

// wire leads to owners in another process. There is no network in it, so that
// time can be faked on both sides.
type wire struct {
	server *ingress.Server

	mu   sync.Mutex
	away map[string]bool                               // parts that do not answer; guarded by mu
	lose func(part string, request *http.Request) bool // whether an answer is lost, after the work was done; guarded by mu
}

func newWire(t testing.TB, office mailbox.Engine, edges *index.Graph) *wire {
	t.Helper()
	inv, metrics := flow.NewInventory(), observe.NewMetrics(observe.Build{})
	supervisor, err := supervise.New(supervise.Options{Total: time.Second, Stages: []supervise.Stage{{Name: "state"}}})
	must(t, err)
	box := mailbox.New(inv, mailbox.Spec{Config: mailbox.DefaultConfig(), Engine: office, Metrics: metrics, Readiness: observe.NewReadiness(inv, supervisor)})
	table, err := ingress.NewTable(append(box.Seams(), edges.Seams()...)...)
	must(t, err)
	return &wire{server: serve(t, inv, metrics, table), away: map[string]bool{}}
}

// to is a client of a part.
func (w *wire) to(t testing.TB, part string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: "http://127.0.0.1:1", HTTPClient: &http.Client{Transport: &strand{w, part}}, Retry: client.Retry{Tries: 1}})
	must(t, err)
	return c
}

// set says whether a part is away.
func (w *wire) set(part string, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away[part] = away
}

// strand is the way to one part.
type strand struct {
	wire *wire
	part string
}

func (s *strand) RoundTrip(r *http.Request) (*http.Response, error) {
	s.wire.mu.Lock()
	away, lose := s.wire.away[s.part], s.wire.lose
	s.wire.mu.Unlock()
	if away {
		return nil, &fault.Error{Op: "test", Kind: fault.NotReady, Detail: "the part " + s.part + " does not answer", RetryAfter: time.Second, Next: "Start it."}
	}
	answer := httptest.NewRecorder()
	s.wire.server.ServeHTTP(answer, r.Clone(r.Context()))
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if lose != nil && lose(s.part, r) {
		return nil, &fault.Error{Op: "test", Kind: fault.UpstreamFailed, Detail: "the part " + s.part + " broke off", Next: "Ask again."}
	}
	return answer.Result(), nil
}

// newOffice is a mailbox in memory, with room for large feeds.
func newOffice(inv *flow.Inventory) mailbox.Engine {
	limits := usualLimits()
	limits.Bytes = 1 << 30
	return mailbox.NewRAM(inv, mailbox.RAMSpec{Limits: limits})
}

func usualLimits() mailbox.Limits {
	c := mailbox.DefaultConfig()
	return c.Limits()
}

// open makes facets and runs them until the test ends.
func open(t testing.TB, settings ...setting) *rig {
	t.Helper()
	r := build(t, settings...)
	r.run()
	t.Cleanup(r.end)
	return r
}

func (r *rig) run() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		report, _ := r.supervisor.Run(ctx)
		r.ended <- report
	}()
}

// drain stops the tasks; what the owners keep stays.
func (r *rig) drain() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	report := <-r.ended
	if !r.rough && (len(report.Aborted) > 0 || report.Restarts > 0) {
		r.t.Errorf("the drain aborted %v; %d restarts", report.Aborted, report.Restarts)
	}
	must(r.t, r.Close())
}

// end stops everything.
func (r *rig) end() {
	r.drain()
	must(r.t, r.office.Close())
	must(r.t, r.edges.Close())
}

func (r *rig) note(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *rig) told(what EventType) (found []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Type == what {
			found = append(found, e)
		}
	}
	return found
}

// ask sends a request as a client does.
func (r *rig) ask(method, path, body string, header ...string) *httptest.ResponseRecorder {
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
	r.server.ServeHTTP(answer, request)
	return answer
}

// answered holds an answer to its status and reads it.
func answered[T any](t testing.TB, answer *httptest.ResponseRecorder, status int) (told T) {
	t.Helper()
	if answer.Code != status {
		t.Fatalf("the answer is %d, want %d: %s", answer.Code, status, answer.Body)
	}
	must(t, json.Unmarshal(answer.Body.Bytes(), &told))
	return told
}

// refused holds an answer to the kind of its refusal, and to saying what to do.
func refused(t testing.TB, answer *httptest.ResponseRecorder, kind fault.Kind) (next string) {
	t.Helper()
	var problem struct{ Code, Next string }
	must(t, json.Unmarshal(answer.Body.Bytes(), &problem))
	if problem.Code != kind.Code() || answer.Code != kind.Status() || problem.Next == "" {
		t.Fatalf("the answer is %d, want %s: %s", answer.Code, kind.Code(), answer.Body)
	}
	return problem.Next
}

// follow makes some follow others, given as pairs.
func (r *rig) follow(pairs ...string) {
	r.t.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		_, err := r.edges.Follow(context.Background(), pairs[i], pairs[i+1])
		must(r.t, err)
	}
}

// post posts something and returns its ID.
func (r *rig) post(author, body string) string {
	r.t.Helper()
	text, _ := json.Marshal(client.PostRequest{Body: body})
	return answered[client.Posted](r.t, r.ask(http.MethodPost, "/feed/"+author, string(text)), http.StatusCreated).ID
}

// read reads the feed of a user.
func (r *rig) read(user string) []client.FeedItem {
	r.t.Helper()
	return answered[client.Feed](r.t, r.ask(http.MethodGet, "/feed/"+user+"?limit=100", ""), http.StatusOK).Items
}

// bodies are the posts of a feed.
func bodies(items []client.FeedItem) (all []string) {
	for _, one := range items {
		all = append(all, one.Body)
	}
	return all
}

// count reads a metric of a service, summed over the series that have these
// labels.
func (r *rig) count(service, metric string, labels ...string) (sum float64) {
	r.t.Helper()
	families, err := r.observed.Gatherer().Gather()
	must(r.t, err)
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// near reports whether two scores are the same.
func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
