package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// benchNode is a fake node for bench. Errors can be injected by route.
type benchNode struct {
	mu          sync.Mutex
	objects     map[string][]byte
	messages    int // in the box
	inFlight    int // calls that are under way
	maxInFlight int // of them at a time
	calls       map[string]int
	injected    map[string]func(n int) *fault.Error // by kind of call; n counts them
}

const benchStatus = `{"peer_id":"abc","version":"1.0","ready":true,"write_ready":true,"services":[%s],"store":{"objects":0,"bytes":0,"budget":%d}}`

func newBenchNode(t *testing.T, status string) *benchNode {
	n := &benchNode{objects: map[string][]byte{}, calls: map[string]int{}, injected: map[string]func(int) *fault.Error{}}
	fakeNode(t, map[string]http.HandlerFunc{
		"GET /admin/status":                respondJSON(http.StatusOK, status),
		"POST /put":                        n.handler("put"),
		"GET /o/{b3}":                      n.handler("get"),
		"DELETE /o/{b3}":                   n.handler("rm"),
		"GET /resolve/{id}":                n.handler("resolve"),
		"POST /overlay/publish/{topic...}": n.handler("publish"),
		"POST /mbox/send":                  n.handler("send"),
		"POST /mbox/recv":                  n.handler("receive"),
		"POST /mbox/ack":                   n.handler("ack"),
	})
	return n
}

// callCounts is how many calls there were, by kind.
func (n *benchNode) callCounts() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.calls)
}

// begin counts the start of a call, and returns the error to inject, if any.
func (n *benchNode) begin(what string) *fault.Error {
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

func (n *benchNode) handler(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		wrong := n.begin(what)
		body, _ := io.ReadAll(r.Body)
		status, document := n.end(r, what, body, wrong == nil)
		if wrong != nil {
			reply(w, 0, wrong)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, document)
	}
}

// end counts the end of a call, after it took effect.
func (n *benchNode) end(r *http.Request, what string, body []byte, effect bool) (status int, document string) {
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
func (n *benchNode) expectClean(t *testing.T, connections int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.objects) > 0 || n.messages > 0 || n.maxInFlight > connections {
		t.Errorf("%d objects and %d messages are left; %d calls at a time", len(n.objects), n.messages, n.maxInFlight)
	}
}

const allParts = `{"name":"index worker","state":"running"},{"name":"overlay gossip","state":"running"},{"name":"mailbox sweeper","state":"running"}`

func parseReport(t *testing.T, text string) (benchReport, map[string]benchMeasure) {
	t.Helper()
	var found benchReport
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	byName := map[string]benchMeasure{}
	for _, one := range found.Measures {
		byName[one.What] = one
	}
	return found, byName
}

func TestBenchMeasuresAll(t *testing.T) {
	node := newBenchNode(t, fmt.Sprintf(benchStatus, allParts, 1<<20))
	_, got := parseReport(t, mustRun(t, "bench", "--time", "200ms", "--connections", "3", "--size", "8KiB", "--json"))
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
func TestBenchCounts(t *testing.T) {
	node := newBenchNode(t, fmt.Sprintf(benchStatus, allParts, 0))
	mustRun(t, "bench", "--time", "24h", "--count", "5", "--connections", "3")
	called := node.callCounts()
	for what, least := range map[string]int{"put": 5, "get": 1, "resolve": 1, "publish": 5, "send": 5, "ack": 5, "rm": 5} {
		if n := called[what]; n < least || n > 5 {
			t.Errorf("%s: %d", what, n)
		}
	}
	node.expectClean(t, 3)
}

func TestBenchWithoutParts(t *testing.T) {
	node := newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	got := mustRun(t, "bench", "--time", "30ms", "--connections", "1", "--size", "5")
	for _, want := range []string{"1 connections for 0.03s or 1000000 calls of a kind, objects of 5B", "Not measured: resolve; the node has no index.\n",
		"Not measured: publish; the node has no overlay.\n", "Not measured: send, receive, ack; the node has no mailbox.\n", benchNote} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	node.expectClean(t, 1)
}

// Some refusals of a node are no failure. If all calls are refused, it is one.
func TestBenchOfABusyNode(t *testing.T) {
	busy := fault.New("fake", fault.Busy, "enough to do")
	node := newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	node.injected["put"] = func(n int) *fault.Error {
		if n == 1 {
			return busy
		}
		return nil
	}
	found, got := parseReport(t, mustRun(t, "bench", "--time", "200ms", "--connections", "2", "--json"))
	if one := got["put"]; !maps.Equal(one.Refused, map[string]int{"Busy": 1}) || len(one.Errors) > 0 || one.Done == 0 || len(found.NotMeasured) != 3 {
		t.Errorf("%+v", found)
	}
	node.expectClean(t, 2)
	node.injected["get"] = func(int) *fault.Error { return busy }
	newTestConsole(t).expect(t, t.Context(), fault.Busy.Exit(), []string{"bench", "--time", "20ms", "--connections", "1"}, "get: the node refused every call: 1 Busy")
	node.expectClean(t, 2)
}

func TestBenchOfANodeThatFails(t *testing.T) {
	node := newBenchNode(t, fmt.Sprintf(benchStatus, allParts, 0))
	node.injected["receive"] = func(n int) *fault.Error {
		if n == 1 {
			return fault.New("fake", fault.Internal, "it broke")
		}
		return nil
	}
	s := newTestConsole(t)
	s.expect(t, t.Context(), fault.Internal.Exit(), []string{"bench", "--time", "500ms", "--connections", "1"}, "receive: it broke")
	if !strings.Contains(s.stdout.String(), "1 Internal") {
		t.Errorf("%s", &s.stdout)
	}
	node.expectClean(t, 1)

	// A forbidden call is tried once by each worker, and not repeated.
	node = newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	node.injected["put"] = func(int) *fault.Error { return fault.New("fake", fault.Forbidden, "not you") }
	newTestConsole(t).expect(t, t.Context(), fault.Forbidden.Exit(), []string{"bench", "--time", "1h", "--connections", "2"}, "put: not you")
	if want := map[string]int{"put": 2}; !maps.Equal(node.callCounts(), want) {
		t.Errorf("it asked %v", node.callCounts())
	}

	// Objects that cannot be removed are listed.
	node = newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	node.injected["rm"] = func(int) *fault.Error { return fault.New("fake", fault.Forbidden, "not you") }
	newTestConsole(t).expect(t, t.Context(), fault.UpstreamFailed.Exit(), []string{"bench", "--time", "20ms", "--connections", "1"},
		"objects could not be removed\nRemove them: micronode rm b3:")

	// So is a box that may still hold a message.
	node = newBenchNode(t, fmt.Sprintf(benchStatus, allParts, 0))
	node.injected["ack"] = func(int) *fault.Error { return fault.New("fake", fault.Forbidden, "not you") }
	newTestConsole(t).expect(t, t.Context(), fault.UpstreamFailed.Exit(), []string{"bench", "--time", "1h", "--count", "1", "--connections", "1"},
		"1 messages may be left in the box bench-", "micronode mbox recv bench-")

	// An object whose put failed is removed too: it may be stored anyway.
	node = newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	node.injected["put"] = func(int) *fault.Error { return fault.New("fake", fault.Internal, "it broke") }
	newTestConsole(t).expect(t, t.Context(), fault.Internal.Exit(), []string{"bench", "--time", "20ms", "--connections", "1"}, "put: it broke")
	if node.callCounts()["rm"] == 0 {
		t.Error("nothing was removed")
	}
}

func TestBenchInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	node := newBenchNode(t, fmt.Sprintf(benchStatus, allParts, 0))
	node.injected["put"] = func(n int) *fault.Error {
		if n == 10 {
			interrupt(&interruptError{syscall.SIGINT})
		}
		return nil
	}
	newTestConsole(t).expect(t, ctx, fault.Canceled.Exit(), []string{"bench", "--time", "1h", "--connections", "4"}, "stopped by SIGINT\nNo work was left half done.")
	if called := node.callCounts(); called["put"] < 10 || called["rm"] == 0 {
		t.Errorf("%v", called)
	}
	node.expectClean(t, 4)
}

func TestBenchThatCannotBe(t *testing.T) {
	newBenchNode(t, fmt.Sprintf(benchStatus, "", 1000))
	for args, wantStderr := range map[string]string{
		"--time 0s":                     "above zero",
		"--time 25h":                    "24h0m0s or less",
		"--count 0":                     "from 1 to 1000000000",
		"--connections 0":               "from 1 to 256",
		"--connections 257":             "from 1 to 256",
		"--connections 256 --size 1MiB": "256 concurrent objects of 1MiB exceed 64MiB",
	} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), append([]string{"bench"}, strings.Fields(args)...), wantStderr)
	}
	newTestConsole(t).expect(t, t.Context(), fault.StoreFull.Exit(), []string{"bench"}, "too little free space for 8 objects of 16KiB")
	for _, size := range []string{"", "0", "1MB", "x", "16KiBs", "99999999999999999999", "-1", "68719476736MiB"} {
		newTestConsole(t).expect(t, t.Context(), exitUsage, []string{"bench", "--size=" + size})
	}
	fakeNode(t, nil)
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"bench"})
	t.Setenv("MICRO_URL", "ftp://nowhere")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"bench"}, "does not begin with http")
}

func TestBenchPartsElsewhere(t *testing.T) {
	status := client.Status{Parts: []client.Part{{Name: "index", Up: true}, {Name: "mailbox"}}, Services: []client.Service{{Name: "mailbox news"}}}
	if !hasPart(status, "index") || hasPart(status, "mailbox") || hasPart(status, "overlay") {
		t.Error("a part is not where it is")
	}
}

// A quantile is off by one in 32 at most.
func TestBenchQuantiles(t *testing.T) {
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
