package observe

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"micronode/internal/corr"
	"micronode/internal/flow"
)

// serveAdmin sends a request to the admin plane.
func serveAdmin(a *Admin, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, target, nil)
	r.Header.Set(corr.Header, "corr-0001")
	a.ServeHTTP(w, r)
	return w
}

// newAdmin is an admin plane over one dependency and nothing else.
func newAdmin() (*Admin, *Dependency) {
	inv := flow.NewInventory()
	ready := NewReadiness(inv, nil)
	a := &Admin{Sources: Sources{Inventory: inv, Readiness: ready}, Metrics: NewMetrics(testBuild), Build: testBuild}
	a.Metrics.Attach(a.Sources)
	return a, ready.Dependency("registry", "disk", ForWrites)
}

func decodeJSON(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return body
}

func TestEveryAnswerCarriesTheCorrelationID(t *testing.T) {
	a, _ := newAdmin()
	for _, target := range []string{"/metrics", "/healthz", "/readyz", "/version", "/debug/inventory", "/debug/pprof/", "/nowhere", "/readyz?for=tea"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			if w := serveAdmin(a, method, target); w.Header().Get("X-Corr-ID") != "corr-0001" {
				t.Errorf("%s %s: %q", method, target, w.Header().Get("X-Corr-ID"))
			}
		}
	}
}

func TestHealthzAnswersAsLongAsTheProcessLives(t *testing.T) {
	a, _ := newAdmin()
	if w := serveAdmin(a, "GET", "/healthz"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"alive":true}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestVersionHasTheShapeOfTheContract(t *testing.T) {
	a, _ := newAdmin()
	want := `{"service":"micronode","version":"1.2.3","commit":"f00","build":"today","go":"go1.26","features":[]}`
	if w := serveAdmin(a, "GET", "/version"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestReadyzTellsTheTruth(t *testing.T) {
	a, disk := newAdmin()
	reads := a.Readiness.Dependency("store", "ram", ForReads)
	for _, step := range []struct {
		say         func()
		all, onRead int
	}{
		{func() {}, 503, 503},
		{reads.Up, 503, 200},
		{disk.Up, 200, 200},
		{func() { disk.Degraded("slow", "Look at it.") }, 503, 200},
		{func() { disk.Down("gone", "Find it.") }, 503, 200},
		{func() { reads.Down("gone", "Find it.") }, 503, 503},
	} {
		step.say()
		for target, want := range map[string]int{"/readyz": step.all, "/readyz?for=read": step.onRead} {
			w := serveAdmin(a, "GET", target)
			if w.Code != want || (w.Header().Get("Retry-After") != "") != (want == 503) {
				t.Errorf("%s: %d, Retry-After %q, want %d: %s", target, w.Code, w.Header().Get("Retry-After"), want, w.Body)
			}
			var said Verdict
			if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || !said.Equal(a.Readiness.Evaluate()) {
				t.Errorf("%s: %v: %s", target, err, w.Body)
			}
		}
	}
}

func TestReadyzAnswersOnlyQuestionsItKnows(t *testing.T) {
	a, disk := newAdmin()
	disk.Up()
	for _, query := range []string{"for=write", "for=", "for=read&for=write", "for=READ"} {
		if w := serveAdmin(a, "GET", "/readyz?"+query); w.Code != 400 || decodeJSON(t, w)["code"] != "Malformed" {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	if w := serveAdmin(a, "GET", "/readyz?cachebuster=1"); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}

func TestMetricsAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t)
		defer s.stop()
		w := serveAdmin(&s.Admin, "GET", "/metrics")
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%d %s", w.Code, w.Header().Get("Content-Type"))
		}
		for _, line := range []string{`queue_depth{queue="work",service="node"} 2`, "# TYPE queue_dropped_total counter", "go_goroutines{"} {
			if !strings.Contains(w.Body.String(), line) {
				t.Errorf("%q is missing", line)
			}
		}
	})
}

func TestInventoryHasTheShapeOfTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestNode(t)
		defer s.stop()
		w := serveAdmin(&s.Admin, "GET", "/debug/inventory")
		var got struct {
			Queues, Locks, Tasks []map[string]any
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("%d %v", w.Code, err)
		}
		find := func(list []map[string]any, name, value string) map[string]any {
			at := slices.IndexFunc(list, func(line map[string]any) bool { return line[name] == value })
			if at < 0 {
				t.Fatalf("there is no %s %s in %v", name, value, list)
			}
			return list[at]
		}
		want := map[string]any{
			"service": "node", "name": "work", "kind": "queue", "cap": 2.0, "depth": 2.0, "policy": "reject-new", "from": "routes", "to": "workers",
			"instances": 1.0, "inside": 0.0, "accepted": 2.0, "delivered": 0.0, "refused": 5.0, "expired": 0.0, "dropped": 0.0, "coalesced": 0.0,
		}
		if line := find(got.Queues, "name", "work"); !reflect.DeepEqual(line, want) {
			t.Errorf("%v\nwant %v", line, want)
		}
		if lagged := find(got.Queues, "name", "bus")["lagged"]; !reflect.DeepEqual(lagged, map[string]any{"gateway": 3.0}) {
			t.Errorf("the bus says %v", lagged)
		}
		if line := find(got.Queues, "name", "stream"); line["inside"] != 1.0 || line["waiting"] != 1.0 || line["kind"] != "lane" {
			t.Errorf("the lane says %v", line)
		}
		if got.Locks == nil || len(got.Locks) > 0 {
			t.Errorf("locks %v, and clients expect an empty list", got.Locks)
		}
		if task := find(got.Tasks, "kind", "listener"); task["service"] != "overlay" || task["state"] != "running" || task["running"] != 1.0 {
			t.Errorf("the listener says %v", task)
		}
	})
}

func TestAnEmptyInventoryHasNoNulls(t *testing.T) {
	w := serveAdmin(&Admin{}, "GET", "/debug/inventory")
	if want := `{"queues":[],"locks":[],"tasks":[]}`; strings.TrimSpace(w.Body.String()) != want {
		t.Error(w.Body)
	}
}

func TestOtherMethodsAndPathsAreRefused(t *testing.T) {
	a, _ := newAdmin()
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		w := serveAdmin(a, method, "/healthz")
		if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" || decodeJSON(t, w)["code"] != "MethodNotAllowed" {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/", "/metric", "/healthz/", "/debug", "/debug/pprof", "/debug/pproff/"} {
		w := serveAdmin(a, "POST", path)
		if body := decodeJSON(t, w); w.Code != 404 || body["code"] != "NotFound" || body["next"] == "" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := serveAdmin(a, "HEAD", "/healthz"); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
}

func TestProfilesAreForThoseWhoMay(t *testing.T) {
	a, _ := newAdmin()
	refused := func(when string) {
		t.Helper()
		for _, page := range []string{"", "heap", "cmdline", "profile", "symbol", "trace"} {
			w := serveAdmin(a, "GET", pprofPrefix+page)
			if w.Code != 403 || decodeJSON(t, w)["code"] != "Forbidden" {
				t.Errorf("%s: %q: %d", when, page, w.Code)
			}
		}
	}
	refused("nobody was allowed")
	a.Allow = func(r *http.Request) bool { return r.Header.Get("X-May") == "yes" }
	refused("somebody else was allowed")
	a.Allow = func(*http.Request) bool { return true }
	for page, want := range map[string]int{
		"": 200, "goroutine?debug=1": 200, "cmdline": 200, "symbol": 200, "nonsense": 404,
		"profile?seconds=0": 400, "profile?seconds=86400": 400, "profile?seconds=soon": 400, "heap?seconds=-1": 400,
		"trace?seconds=0.01": 200,
	} {
		if w := serveAdmin(a, "GET", pprofPrefix+page); w.Code != want {
			t.Errorf("%q: %d, want %d: %.200s", page, w.Code, want, w.Body)
		} else if want >= 400 && decodeJSON(t, w)["next"] == nil {
			t.Errorf("%q: %.200s", page, w.Body)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel() // a client that left does not get its thirty seconds
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", pprofPrefix+"profile?seconds=30", nil).WithContext(gone))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/octet-stream" {
		t.Errorf("a profile: %d %s", w.Code, w.Header())
	}
}
