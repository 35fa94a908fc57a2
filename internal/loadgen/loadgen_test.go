package loadgen

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/observe"
	"micronode/internal/terminal"
)

// fakeNode is a node for a load. Errors can be injected by route.
type fakeNode struct {
	mu          sync.Mutex
	objects     map[string][]byte
	messages    int // in the box
	inFlight    int // calls that are under way
	maxInFlight int // of them at a time
	calls       map[string]int
	injected    map[string]func(n int) *fault.Error // by kind of call; n counts them

	url string // set at construction
}

const statusDocument = `{"peer_id":"abc","version":"1.0","ready":true,"write_ready":true,"services":[%s],"store":{"objects":0,"bytes":0,"budget":%d}}`

func newFakeNode(t *testing.T, status string) *fakeNode {
	n := &fakeNode{objects: map[string][]byte{}, calls: map[string]int{}, injected: map[string]func(int) *fault.Error{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /admin/status", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, status) })
	for pattern, call := range map[string]string{
		"POST /put":                        "put",
		"GET /o/{b3}":                      "get",
		"DELETE /o/{b3}":                   "rm",
		"GET /resolve/{id}":                "resolve",
		"POST /overlay/publish/{topic...}": "publish",
		"POST /mbox/send":                  "send",
		"POST /mbox/recv":                  "receive",
		"POST /mbox/ack":                   "ack",
	} {
		mux.HandleFunc(pattern, n.handler(call))
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	n.url = server.URL
	return n
}

// callCounts is how many calls there were, by kind.
func (n *fakeNode) callCounts() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.calls)
}

// begin counts the start of a call, and returns the error to inject, if any.
func (n *fakeNode) begin(what string) *fault.Error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inFlight++
	n.maxInFlight = max(n.maxInFlight, n.inFlight)
	n.calls[what]++
	if inject := n.injected[what]; inject != nil {
		return inject(n.calls[what])
	}
	return nil
}

func (n *fakeNode) handler(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		wrong := n.begin(what)
		body, _ := io.ReadAll(r.Body)
		status, document := n.end(r, what, body, wrong == nil)
		if wrong != nil {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(wrong.Kind.Status())
			_ = json.NewEncoder(w).Encode(observe.ProblemOf(wrong, "corr-1234"))
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, document)
	}
}

// end counts the end of a call, after it took effect.
func (n *fakeNode) end(r *http.Request, what string, body []byte, effect bool) (status int, document string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inFlight--
	if !effect {
		return 0, ""
	}
	address := r.PathValue("b3")
	switch what {
	case "put":
		n.objects[b3.Of(body).String()] = body
		return http.StatusCreated, fmt.Sprintf(`{"address":%q,"size":%d}`, b3.Of(body), len(body))
	case "get":
		return http.StatusOK, string(n.objects[address])
	case "rm":
		if n.objects[address] == nil {
			return http.StatusNotFound, ""
		}
		delete(n.objects, address)
		return http.StatusNoContent, ""
	case "resolve":
		return http.StatusOK, fmt.Sprintf(`{"key":%[1]q,"kind":"cid","manifest_cid":%[1]q,"source":"local","providers":[]}`, r.PathValue("id"))
	case "publish":
		return http.StatusOK, fmt.Sprintf(`{"id":%q,"peers":1,"busy":0}`, b3.Of(body))
	case "send":
		n.messages++
		return http.StatusCreated, `{"id":"m"}`
	case "receive":
		if n.messages == 0 {
			return http.StatusNoContent, ""
		}
		return http.StatusOK, `{"id":"m","receipt":"R","body":"","deliveries":1}`
	default:
		n.messages--
		return http.StatusNoContent, ""
	}
}

// expectClean fails if anything is left, or if there were more calls at a
// time.
func (n *fakeNode) expectClean(t *testing.T, connections int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.objects) > 0 || n.messages > 0 || n.maxInFlight > connections {
		t.Errorf("%d objects and %d messages are left; %d calls at a time", len(n.objects), n.messages, n.maxInFlight)
	}
}

const allParts = `{"name":"index worker","state":"running"},{"name":"overlay gossip","state":"running"},{"name":"mailbox sweeper","state":"running"}`

// load is a load for the node, with the defaults of the command.
func (n *fakeNode) load(time time.Duration, connections int) Load {
	return Load{Node: client.Options{URL: n.url}, Time: time, Count: 1_000_000, Connections: connections, Size: 16 << 10, OnStart: func(string) {}}
}

// mustRun runs a load that must succeed, and returns the report and its
// measures by name.
func mustRun(t *testing.T, l Load) (*Report, map[string]Measure) {
	t.Helper()
	found, err := l.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Measure{}
	for _, one := range found.Measures {
		byName[one.What] = one
	}
	return found, byName
}

// mustFail runs a load that must fail, with an error of a kind that has all
// texts.
func mustFail(t *testing.T, ctx context.Context, l Load, kind fault.Kind, texts ...string) *Report {
	t.Helper()
	found, err := l.Run(ctx)
	if fault.KindOf(err) != kind {
		t.Errorf("it ended with %v, and not as %v", err, kind)
		return found
	}
	said := terminal.ErrorText(err) + "\n" + fault.NextOf(err) // as a command reports an error
	for _, text := range texts {
		if !strings.Contains(said, text) {
			t.Errorf("it does not say %q, but\n%s", text, said)
		}
	}
	return found
}

func TestLoadMeasuresAll(t *testing.T) {
	node := newFakeNode(t, fmt.Sprintf(statusDocument, allParts, 1<<20))
	l, started := node.load(200*time.Millisecond, 3), ""
	l.Size, l.OnStart = 8<<10, func(id string) { started = id }
	report, got := mustRun(t, l)
	if started != "abc" || report.Node != "abc" || report.Version != "1.0" {
		t.Errorf("it measured %q: %+v", started, report)
	}
	for _, what := range []string{"put", "get", "resolve", "publish", "send", "receive", "ack", "rm"} {
		if one := got[what]; one.Done == 0 || one.Rate <= 0 || one.P50 <= 0 || one.P90 < one.P50 || one.P99 < one.P90 || one.Max <= 0 || len(one.Errors) > 0 {
			t.Errorf("%s: %+v", what, one)
		}
	}
	if most := uint64(1 << 20 / 4 / (8 << 10)); got["rm"].Done > most {
		t.Errorf("it kept %d objects; there is room for %d", got["rm"].Done, most)
	}
	node.expectClean(t, 3)
}

// The count ends a phase as the duration does, whatever the number of workers.
// A worker that has put nothing has nothing to get, so there may be fewer
// gets.
func TestLoadCounts(t *testing.T) {
	node := newFakeNode(t, fmt.Sprintf(statusDocument, allParts, 0))
	l := node.load(24*time.Hour, 3)
	l.Count = 5
	mustRun(t, l)
	called := node.callCounts()
	for what, least := range map[string]int{"put": 5, "get": 1, "resolve": 1, "publish": 5, "send": 5, "ack": 5, "rm": 5} {
		if n := called[what]; n < least || n > 5 {
			t.Errorf("%s: %d", what, n)
		}
	}
	node.expectClean(t, 3)
}

func TestLoadWithoutParts(t *testing.T) {
	node := newFakeNode(t, fmt.Sprintf(statusDocument, "", 0))
	l := node.load(30*time.Millisecond, 1)
	l.Size = 5
	report, _ := mustRun(t, l)
	got := strings.Join(report.Lines(), "\n")
	for _, want := range []string{"1 connections for 0.03s or 1000000 calls of a kind, objects of 5B", "Not measured: resolve; the node has no index.\n",
		"Not measured: publish; the node has no overlay.\n", "Not measured: send, receive, ack; the node has no mailbox.\n", note} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	node.expectClean(t, 1)
}

// Some refusals of a node are no failure. If all calls are refused, it is one.
func TestLoadOfABusyNode(t *testing.T) {
	busy := fault.New("fake", fault.Busy, "enough to do")
	node := newFakeNode(t, fmt.Sprintf(statusDocument, "", 0))
	node.injected["put"] = func(n int) *fault.Error {
		if n == 1 {
			return busy
		}
		return nil
	}
	found, got := mustRun(t, node.load(200*time.Millisecond, 2))
	if one := got["put"]; !maps.Equal(one.Refused, map[string]int{"Busy": 1}) || len(one.Errors) > 0 || one.Done == 0 || len(found.NotMeasured) != 3 {
		t.Errorf("%+v", found)
	}
	node.expectClean(t, 2)
	node.injected["get"] = func(int) *fault.Error { return busy }
	mustFail(t, t.Context(), node.load(20*time.Millisecond, 1), fault.Busy, "get: the node refused every call: 1 Busy")
	node.expectClean(t, 2)
}

func TestLoadOfANodeThatFails(t *testing.T) {
	node := newFakeNode(t, fmt.Sprintf(statusDocument, allParts, 0))
	node.injected["receive"] = func(n int) *fault.Error {
		if n == 1 {
			return fault.New("fake", fault.Internal, "it broke")
		}
		return nil
	}
	report := mustFail(t, t.Context(), node.load(500*time.Millisecond, 1), fault.Internal, "receive: it broke")
	if text := strings.Join(report.Lines(), "\n"); !strings.Contains(text, "1 Internal") {
		t.Errorf("%s", text)
	}
	node.expectClean(t, 1)

	// A forbidden call is tried once by each worker, and not repeated.
	node = newFakeNode(t, fmt.Sprintf(statusDocument, "", 0))
	node.injected["put"] = func(int) *fault.Error { return fault.New("fake", fault.Forbidden, "not you") }
	mustFail(t, t.Context(), node.load(time.Hour, 2), fault.Forbidden, "put: not you")
	if want := map[string]int{"put": 2}; !maps.Equal(node.callCounts(), want) {
		t.Errorf("it asked %v", node.callCounts())
	}

	// Objects that cannot be removed are listed.
	node = newFakeNode(t, fmt.Sprintf(statusDocument, "", 0))
	node.injected["rm"] = func(int) *fault.Error { return fault.New("fake", fault.Forbidden, "not you") }
	mustFail(t, t.Context(), node.load(20*time.Millisecond, 1), fault.UpstreamFailed,
		"objects could not be removed\nRemove them: micronode rm b3:")

	// So is a box that may still hold a message.
	node = newFakeNode(t, fmt.Sprintf(statusDocument, allParts, 0))
	node.injected["ack"] = func(int) *fault.Error { return fault.New("fake", fault.Forbidden, "not you") }
	once := node.load(time.Hour, 1)
	once.Count = 1
	mustFail(t, t.Context(), once, fault.UpstreamFailed,
		"1 messages may be left in the box bench-", "micronode mbox recv bench-")

	// An object whose put failed is removed too: it may be stored anyway.
	node = newFakeNode(t, fmt.Sprintf(statusDocument, "", 0))
	node.injected["put"] = func(int) *fault.Error { return fault.New("fake", fault.Internal, "it broke") }
	mustFail(t, t.Context(), node.load(20*time.Millisecond, 1), fault.Internal, "put: it broke")
	if node.callCounts()["rm"] == 0 {
		t.Error("nothing was removed")
	}
}

// errInterrupted is the cause of a context that Ctrl-C ended.
var errInterrupted = fault.New("test", fault.Canceled, "stopped by SIGINT")

func TestLoadInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	node := newFakeNode(t, fmt.Sprintf(statusDocument, allParts, 0))
	node.injected["put"] = func(n int) *fault.Error {
		if n == 10 {
			interrupt(errInterrupted)
		}
		return nil
	}
	if report := mustFail(t, ctx, node.load(time.Hour, 4), fault.Canceled, "stopped by SIGINT"); report != nil {
		t.Errorf("%+v", report)
	}
	if called := node.callCounts(); called["put"] < 10 || called["rm"] == 0 {
		t.Errorf("%v", called)
	}
	node.expectClean(t, 4)
}

func TestLoadThatCannotBe(t *testing.T) {
	node := newFakeNode(t, fmt.Sprintf(statusDocument, "", 1000))
	for wantText, change := range map[string]func(*Load){
		"above zero":                                  func(l *Load) { l.Time = 0 },
		"24h0m0s or less":                             func(l *Load) { l.Time = 25 * time.Hour },
		"from 1 to 1000000000":                        func(l *Load) { l.Count = 0 },
		"0 connections\nUse from 1 to 256":            func(l *Load) { l.Connections = 0 },
		"257 connections\nUse from 1 to 256":          func(l *Load) { l.Connections = 257 },
		"256 concurrent objects of 1MiB exceed 64MiB": func(l *Load) { l.Connections, l.Size = 256, 1<<20 },
	} {
		l := node.load(time.Second, 8)
		change(&l)
		mustFail(t, t.Context(), l, fault.Malformed, wantText)
	}
	mustFail(t, t.Context(), node.load(time.Second, 8), fault.StoreFull, "too little free space for 8 objects of 16KiB")
	nowhere := node.load(time.Second, 1)
	nowhere.Node.URL += "/nowhere"
	mustFail(t, t.Context(), nowhere, fault.NotFound)
	nowhere.Node.URL = "ftp://nowhere"
	mustFail(t, t.Context(), nowhere, fault.Malformed, "does not begin with http")
}

func TestLoadPartsElsewhere(t *testing.T) {
	status := client.Status{Parts: []client.Part{{Name: "index", Up: true}, {Name: "mailbox"}}, Services: []client.Service{{Name: "mailbox news"}}}
	if !hasPart(status, "index") || hasPart(status, "mailbox") || hasPart(status, "overlay") {
		t.Error("a part is not where it is")
	}
}

// A quantile is off by one in 32 at most.
func TestLoadQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		took := time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "took"))
		var all latencyHistogram
		all.add(took)
		for _, share := range []float64{0.5, 0.99} {
			got := all.quantile(share) * float64(time.Millisecond)
			if off := got - float64(took); off > float64(took)/32+0.6 || -off > float64(took)/32+0.6 {
				t.Fatalf("%f for %d", got, took)
			}
		}
	})
	var all latencyHistogram
	if all.quantile(0.5) != 0 {
		t.Error("a time of nothing")
	}
	for range 98 {
		all.add(time.Millisecond)
	}
	for range 2 {
		all.add(time.Second)
	}
	if p50, p99 := all.quantile(0.5), all.quantile(0.99); p50 > 1.1 || p99 < 900 {
		t.Errorf("%f, %f", p50, p99)
	}
}
