package observe

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"micronode/internal/flow"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// The list "Everywhere" of the contract, copied by hand. Those with labels
// other than service name them.
var everywhere = []string{
	"queue_depth{queue}", "queue_dropped_total{queue}", "busy_rejections_total{endpoint}", "tasks_spawned_total{kind}",
	"tasks_completed_total{kind}", "tasks_aborted_total{kind}", "tasks_canceled_total{kind}", "tasks_panicked_total{kind}",
	"service_restarts_total{name}", "io_timeouts_total{op}", "io_errors_total{op}", "backoff_retries_total{op}",
	"backpressure_events_total{size}", "bus_lagged_total{consumer}", "ready_state{}", "ready_dependency_unmet{dep}",
	"config_coalesced_total{}", "config_update_total{}", "config_reload_total{result}", "http_requests_total{method,route,status}",
	"request_latency_seconds{route}", "inflight_requests{route}", "rejected_total{reason}", "amnesia_mode{}",
	"build_info{build,commit,go,version}",
}

var testBuild = Build{Service: "micronode", Version: "1.2.3", Commit: "f00", Build: "today", Go: "go1.26", Features: []string{}}

// testNode is a small node: something of each kind, all of it used.
type testNode struct {
	Admin
	work      *flow.Queue[int]
	telemetry *flow.Queue[int]
	updates   *flow.Queue[int]
	bus       *flow.Bus[int]
	stop      func()
}

// newTestNode must be called inside a synctest bubble.
func newTestNode(t *testing.T) *testNode {
	inv := flow.NewInventory()
	failed := false
	sup := newSupervisor(t,
		supervise.Service{Service: "overlay", Name: "listener", Serve: func(ctx context.Context) error {
			if !failed {
				failed = true
				return errors.New("the first time")
			}
			return serveUntilDone(ctx)
		}},
		supervise.Service{Service: "node", Name: "once", Serve: func(context.Context) error { return nil }},
		supervise.Service{Service: "media", Name: "thumbs", Serve: func(context.Context) error { panic("a bad picture") },
			Restart: supervise.Restart{First: time.Second, Cap: time.Second, Window: time.Minute, OnCrashLoop: supervise.Down}})
	s := &testNode{
		work:      flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 2, From: "routes", To: "workers"}),
		telemetry: flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "telemetry", Cap: 2, Policy: flow.DropOldest}),
		updates:   flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "cfg_updates", Cap: 1, Policy: flow.Coalesce}),
		bus:       flow.NewBus[int](inv, flow.BusSpec{Service: "node", Name: "bus", Cap: 4, Readers: 2}),
	}
	ready := NewReadiness(inv, sup)
	ready.Dependency("store", "disk", ForWrites).Degraded("slow", "Look at the disk.")
	s.Admin = Admin{
		Sources: Sources{Inventory: inv, Supervisor: sup, Readiness: ready},
		Metrics: NewMetrics(testBuild), Build: testBuild,
	}
	s.Metrics.Attach(s.Sources)
	s.stop = startSupervisor(t, sup)
	time.Sleep(time.Second)
	s.use(t, inv)
	return s
}

// use makes every component do what it is counted for.
func (n *testNode) use(t *testing.T, inv *flow.Inventory) {
	slow, err := n.bus.Subscribe("gateway", func(context.Context, uint64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		n.work.TryPush(i) // 5 are refused
		n.telemetry.TryPush(i)
		n.updates.TryPush(i)
		n.bus.Publish(i) // 3 are lost
	}
	if _, err := slow.Recv(context.Background()); err != nil {
		t.Fatal(err)
	}
	lane := flow.NewLane(inv, flow.LaneSpec{Service: "edge", Name: "stream", Running: 1, Waiting: 1})
	permits := flow.NewPermits(inv, flow.PermitsSpec{Service: "search", Name: "calls", Cap: 1})
	late, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	lane.Enter(late)
	lane.Enter(late) // expires after a second
	permits.Acquire(context.Background())
	permits.Acquire(context.Background()) // refused

	edge := n.Metrics.For("edge")
	edge.Busy("GET /edge/assets/{path...}").Inc()
	edge.BackoffRetries.WithLabelValues("fill").Inc()
	edge.Rejected.WithLabelValues("body_cap").Inc()
	edge.HTTPRequests.WithLabelValues("GET /o/{b3}", "GET", "200").Inc()
	edge.RequestLatency.WithLabelValues("GET /o/{b3}").Observe(0.003)
	edge.InflightRequests.WithLabelValues("GET /o/{b3}").Set(2)
	n.Metrics.AmnesiaMode.Set(1)
}

// gather scrapes, and fails the test if the scrape does.
func gather(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, family := range families {
		byName[family.GetName()] = family
	}
	return byName
}

// value is the value of one series, written as name{label="value",…} with the
// labels sorted; -1 if there is no such series.
func value(families map[string]*dto.MetricFamily, want string) float64 {
	name, _, _ := strings.Cut(want, "{")
	for _, metric := range families[name].GetMetric() {
		if name+labelText(metric, true) == want {
			return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return -1
}

// labelText is the labels of a series: all with their values, or the names of
// those that are not everywhere.
func labelText(metric *dto.Metric, values bool) string {
	var labels []string
	for _, pair := range metric.GetLabel() {
		switch {
		case values:
			labels = append(labels, fmt.Sprintf("%s=%q", pair.GetName(), pair.GetValue()))
		case pair.GetName() != "service":
			labels = append(labels, pair.GetName())
		}
	}
	slices.Sort(labels)
	return "{" + strings.Join(labels, ",") + "}"
}

// isRuntime reports whether a metric is one of the Go runtime or the process:
// which of them there are depends on the Go release and the system.
func isRuntime(name string) bool {
	return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
}

func TestMetricsHaveTheNamesOfTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t)
		defer s.stop()
		families := gather(t, s.Metrics)
		var names []string
		runtime := 0
		for name, family := range families {
			if isRuntime(name) {
				runtime++
				continue
			}
			names = append(names, name+labelText(family.GetMetric()[0], false))
		}
		for _, want := range everywhere {
			if !slices.Contains(names, want) {
				t.Errorf("%s is missing", want)
			}
		}
		if runtime < 20 || families["go_goroutines"] == nil || families["process_open_fds"] == nil {
			t.Errorf("%d metrics of the runtime and the process", runtime)
		}
		slices.Sort(names)
		testkit.Golden(t, "testdata/metrics.golden", []byte(strings.Join(names, "\n")+"\n")) // promised names are added to, never changed
	})
}

func TestEverySeriesHasAServiceOfTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t)
		defer s.stop()
		for name, family := range gather(t, s.Metrics) {
			for _, metric := range family.GetMetric() {
				at := slices.IndexFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "service" })
				if at < 0 || !knownService(metric.GetLabel()[at].GetValue()) {
					t.Errorf("%s%s", name, labelText(metric, true))
				}
			}
		}
	})
}

func TestMetricsAreWellMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t)
		defer s.stop()
		problems, err := testutil.GatherAndLint(s.Metrics.Gatherer())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

func TestMetricsTellWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t)
		families := gather(t, s.Metrics)
		for series, want := range map[string]float64{
			`queue_depth{queue="work",service="node"}`:                                          2,
			`queue_depth{queue="bus",service="node"}`:                                           3,
			`queue_depth{queue="stream",service="edge"}`:                                        0,
			`queue_capacity{queue="work",service="node"}`:                                       2,
			`queue_dropped_total{queue="work",service="node"}`:                                  0,
			`queue_dropped_total{queue="telemetry",service="node"}`:                             5,
			`queue_dropped_total{queue="cfg_updates",service="node"}`:                           0,
			`queue_dropped_total{queue="bus",service="node"}`:                                   0,
			`queue_expired_total{queue="stream",service="edge"}`:                                1,
			`queue_depth{queue="readiness",service="node"}`:                                     -1,
			`queue_depth{queue="state_meta",service="store"}`:                                   -1,
			`busy_rejections_total{endpoint="work",service="node"}`:                             5,
			`busy_rejections_total{endpoint="telemetry",service="node"}`:                        0,
			`busy_rejections_total{endpoint="calls",service="search"}`:                          1,
			`busy_rejections_total{endpoint="GET /edge/assets/{path...}",service="edge"}`:       1,
			`bus_lagged_total{consumer="gateway",service="node"}`:                               3,
			`config_coalesced_total{service="node"}`:                                            6,
			`config_update_total{service="node"}`:                                               0,
			`config_reload_total{result="rejected",service="node"}`:                             0,
			`tasks_spawned_total{kind="listener",service="overlay"}`:                            2,
			`tasks_failed_total{kind="listener",service="overlay"}`:                             1,
			`tasks_completed_total{kind="once",service="node"}`:                                 1,
			`tasks_panicked_total{kind="thumbs",service="media"}`:                               1,
			`tasks_canceled_total{kind="listener",service="overlay"}`:                           0,
			`tasks_aborted_total{kind="listener",service="overlay"}`:                            0,
			`service_restarts_total{name="listener",service="overlay"}`:                         1,
			`ready_state{service="node"}`:                                                       0,
			`ready_state{service="media"}`:                                                      0,
			`ready_state{service="store"}`:                                                      2,
			`ready_state{service="overlay"}`:                                                    1,
			`ready_dependency_unmet{dep="thumbs",service="media"}`:                              1,
			`ready_dependency_unmet{dep="disk",service="store"}`:                                0,
			`ready_dependency_unmet{dep="node",service="node"}`:                                 0,
			`io_timeouts_total{op="read",service="edge"}`:                                       0,
			`backpressure_events_total{service="edge",size="med"}`:                              0,
			`http_requests_total{method="GET",route="GET /o/{b3}",service="edge",status="200"}`: 1,
			`amnesia_mode{service="node"}`:                                                      1,
			`trace_spans_total{outcome="dropped",service="node"}`:                               0,
			`build_info{build="today",commit="f00",go="go1.26",service="node",version="1.2.3"}`: 1,
		} {
			if got := value(families, series); got != want {
				t.Errorf("%s is %v, want %v", series, got, want)
			}
		}
		s.stop()
		if got := value(gather(t, s.Metrics), `tasks_canceled_total{kind="listener",service="overlay"}`); got != 1 {
			t.Errorf("after the drain the listener counts as canceled %v times", got)
		}
	})
}

func TestRefusalsOfARouteAndAQueueOfOneNameAddUp(t *testing.T) {
	inv := flow.NewInventory()
	queue := flow.NewQueue[int](inv, flow.QueueSpec{Service: "index", Name: "work", Cap: 1})
	m := NewMetrics(testBuild)
	m.Attach(Sources{Inventory: inv})
	queue.TryPush(1)
	queue.TryPush(2)
	m.For("index").Busy("work").Inc()
	m.For("index").Busy("work").Inc()
	if got := value(gather(t, m), `busy_rejections_total{endpoint="work",service="index"}`); got != 3 {
		t.Errorf("%v, want 1 of the queue and 2 of the route", got)
	}
}

func TestSeveralBusesOfAServiceAddUp(t *testing.T) {
	inv := flow.NewInventory()
	m := NewMetrics(testBuild)
	m.Attach(Sources{Inventory: inv})
	for _, name := range []string{"events", "sessions"} {
		bus := flow.NewBus[int](inv, flow.BusSpec{Service: "overlay", Name: name, Cap: 1, Readers: 1})
		reader, err := bus.Subscribe("sse", func(context.Context, uint64) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		bus.Publish(1)
		bus.Publish(2)
		if _, err := reader.Recv(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if got := value(gather(t, m), `bus_lagged_total{consumer="sse",service="overlay"}`); got != 2 {
		t.Errorf("%v, want one of each bus", got)
	}
}

// A component of an unknown service makes the scrape fail with its name; the
// admin plane reports it in a problem document.
func TestForeignServicesAreRefusedLoudly(t *testing.T) {
	for what, plant := range map[string]func(*flow.Inventory) *supervise.Supervisor{
		"queue": func(inv *flow.Inventory) *supervise.Supervisor {
			flow.NewQueue[int](inv, flow.QueueSpec{Service: "warehouse", Name: "work", Cap: 1})
			return nil
		},
		"service": func(*flow.Inventory) *supervise.Supervisor {
			return newSupervisor(t, supervise.Service{Service: "warehouse", Name: "forklift", Serve: serveUntilDone})
		},
	} {
		inv := flow.NewInventory()
		m := NewMetrics(testBuild)
		sources := Sources{Inventory: inv, Supervisor: plant(inv)}
		m.Attach(sources)
		if _, err := m.Gatherer().Gather(); err == nil || !strings.Contains(err.Error(), `"warehouse" is not one of the services`) {
			t.Errorf("%s: %v", what, err)
		}
		w := httptest.NewRecorder()
		(&Admin{Sources: sources, Metrics: m}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != 500 || !strings.Contains(w.Body.String(), `\"warehouse\" is not one of the services`) {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, `"warehouse" is not one of the services node, gateway`) {
			t.Errorf("For said %q", said)
		}
	}()
	NewMetrics(testBuild).For("warehouse")
}

func TestTwoKindsOfPartsOfOneNameAreRefused(t *testing.T) {
	inv := flow.NewInventory()
	flow.NewQueue[int](inv, flow.QueueSpec{Service: "edge", Name: "fill", Cap: 1})
	flow.NewPermits(inv, flow.PermitsSpec{Service: "edge", Name: "fill", Cap: 1})
	m := NewMetrics(testBuild)
	m.Attach(Sources{Inventory: inv})
	if _, err := m.Gatherer().Gather(); err == nil || !strings.Contains(err.Error(), "the permits and the queue of service edge are both called fill") {
		t.Error(err)
	}
}

func TestAServiceAddsMetricsOfItsOwn(t *testing.T) {
	m := NewMetrics(testBuild)
	if first, again := m.For("store"), m.For("store"); first != again {
		t.Error("a service has one set of instruments")
	}
	objects := prometheus.NewGauge(prometheus.GaugeOpts{Name: "store_objects", Help: "Objects in the store."})
	m.For("store").Register(objects)
	objects.Set(3)
	if got := value(gather(t, m), `store_objects{service="store"}`); got != 3 {
		t.Errorf("%v", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name that is taken must be refused")
		}
	}()
	m.For("store").Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "store_objects", Help: "Objects in the store."}))
}

// Updates of the config are counted, whether a full queue or one reload
// coalesced them; other coalescing queues are not.
func TestConfigCoalescedCountsConfig(t *testing.T) {
	inv, m := flow.NewInventory(), NewMetrics(testBuild)
	m.Attach(Sources{Inventory: inv})
	for service, name := range map[string]string{"node": "cfg_updates", "registry": "cfg_reload", "mailbox": "wakes"} {
		q := flow.NewQueue[int](inv, flow.QueueSpec{Service: service, Name: name, Cap: 1, Policy: flow.Coalesce, From: "a", To: "b"})
		for i := range 3 {
			if err := q.TryPush(i); err != nil {
				t.Fatal(err)
			}
		}
		q.Close()
	}
	m.ConfigCoalesced(5)
	want := `# HELP config_coalesced_total Updates of the config that a newer one replaced, or that one reload covered together.
# TYPE config_coalesced_total counter
config_coalesced_total{service="node"} 7
config_coalesced_total{service="registry"} 2
`
	if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want), "config_coalesced_total"); err != nil {
		t.Error(err)
	}
}
