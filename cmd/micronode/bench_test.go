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

// benchNode is a node that can be measured. Its answers may be spoilt by route.
type benchNode struct {
	mu      sync.Mutex
	objects map[string][]byte
	mail    int // in the box
	under   int // calls that are under way
	most    int // of them at a time
	calls   map[string]int
	spoilt  map[string]func(n int) *fault.Error // by kind of call; n counts them
}

const benchStatus = `{"peer_id":"abc","version":"1.0","ready":true,"write_ready":true,"services":[%s],"store":{"objects":0,"bytes":0,"budget":%d}}`

func newBenchNode(t *testing.T, status string) *benchNode {
	n := &benchNode{objects: map[string][]byte{}, calls: map[string]int{}, spoilt: map[string]func(int) *fault.Error{}}
	fakeNode(t, map[string]http.HandlerFunc{
		"GET /admin/status":                says(http.StatusOK, status),
		"POST /put":                        n.answer("put"),
		"GET /o/{b3}":                      n.answer("get"),
		"DELETE /o/{b3}":                   n.answer("rm"),
		"GET /resolve/{id}":                n.answer("resolve"),
		"POST /overlay/publish/{topic...}": n.answer("publish"),
		"POST /mbox/send":                  n.answer("send"),
		"POST /mbox/recv":                  n.answer("receive"),
		"POST /mbox/ack":                   n.answer("ack"),
	})
	return n
}

// called is how many calls there were, by kind.
func (n *benchNode) called() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.calls)
}

// begin counts a call in, and says whether it is to fail.
func (n *benchNode) begin(what string) *fault.Error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.under++
	n.most = max(n.most, n.under)
	n.calls[what]++
	if spoil := n.spoilt[what]; spoil != nil {
		return spoil(n.calls[what])
	}
	return nil
}

func (n *benchNode) answer(what string) http.HandlerFunc {
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

// end counts a call out, after it had its effect.
func (n *benchNode) end(r *http.Request, what string, body []byte, effect bool) (status int, document string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.under--
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
		n.mail++
		return http.StatusCreated, `{"id":"m"}`
	case "receive":
		if n.mail == 0 {
			return http.StatusNoContent, ""
		}
		return http.StatusOK, `{"id":"m","receipt":"R","body":"","deliveries":1}`
	default:
		n.mail--
		return http.StatusNoContent, ""
	}
}

// left demands that nothing is left, and that nobody asked more at a time.
func (n *benchNode) left(t *testing.T, connections int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.objects) > 0 || n.mail > 0 || n.most > connections {
		t.Errorf("%d objects and %d messages are left; %d calls at a time", len(n.objects), n.mail, n.most)
	}
}

const allParts = `{"name":"index worker","state":"running"},{"name":"overlay gossip","state":"running"},{"name":"mailbox sweeper","state":"running"}`

func measured(t *testing.T, text string) (benchReport, map[string]benchMeasure) {
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
	_, got := measured(t, run(t, "bench", "--time", "200ms", "--connections", "3", "--size", "8KiB", "--json"))
	for _, what := range []string{"put", "get", "resolve", "publish", "send", "receive", "ack", "rm"} {
		if one := got[what]; one.Done == 0 || one.Rate <= 0 || one.P50 <= 0 || one.P90 < one.P50 || one.P99 < one.P90 || one.Max <= 0 || len(one.Errors) > 0 {
			t.Errorf("%s: %+v", what, one)
		}
	}
	if most := uint64(1 << 20 / 4 / (8 << 10)); got["rm"].Done > most {
		t.Errorf("it kept %d objects; there is room for %d", got["rm"].Done, most)
	}
	node.left(t, 3)
}

// A count ends it as the time does, however many take turns. Who has put nothing
// has nothing to ask for, so there may be fewer questions.
func TestBenchCounts(t *testing.T) {
	node := newBenchNode(t, fmt.Sprintf(benchStatus, allParts, 0))
	run(t, "bench", "--time", "24h", "--count", "5", "--connections", "3")
	called := node.called()
	for what, least := range map[string]int{"put": 5, "get": 1, "resolve": 1, "publish": 5, "send": 5, "ack": 5, "rm": 5} {
		if n := called[what]; n < least || n > 5 {
			t.Errorf("%s: %d", what, n)
		}
	}
	node.left(t, 3)
}

func TestBenchWithoutParts(t *testing.T) {
	node := newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	got := run(t, "bench", "--time", "30ms", "--connections", "1", "--size", "5")
	for _, want := range []string{"1 connections for 0.03s or 1000000 calls of a kind, objects of 5B", "Not measured: resolve; the node has no index.\n",
		"Not measured: publish; the node has no overlay.\n", "Not measured: send, receive, ack; the node has no mailbox.\n", benchNote} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	node.left(t, 1)
}

// A node that refuses is left alone, and that is no failure. One that does
// nothing else is one.
func TestBenchOfABusyNode(t *testing.T) {
	busy := fault.New("fake", fault.Busy, "enough to do")
	node := newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	node.spoilt["put"] = func(n int) *fault.Error {
		if n == 1 {
			return busy
		}
		return nil
	}
	found, got := measured(t, run(t, "bench", "--time", "200ms", "--connections", "2", "--json"))
	if one := got["put"]; !maps.Equal(one.Refused, map[string]int{"Busy": 1}) || len(one.Errors) > 0 || one.Done == 0 || len(found.NotMeasured) != 3 {
		t.Errorf("%+v", found)
	}
	node.left(t, 2)
	node.spoilt["get"] = func(int) *fault.Error { return busy }
	newSession(t).expect(t, t.Context(), fault.Busy.Exit(), []string{"bench", "--time", "20ms", "--connections", "1"}, "get: the node refused every call: 1 Busy")
	node.left(t, 2)
}

func TestBenchOfANodeThatFails(t *testing.T) {
	node := newBenchNode(t, fmt.Sprintf(benchStatus, allParts, 0))
	node.spoilt["receive"] = func(n int) *fault.Error {
		if n == 1 {
			return fault.New("fake", fault.Internal, "it broke")
		}
		return nil
	}
	s := newSession(t)
	s.expect(t, t.Context(), fault.Internal.Exit(), []string{"bench", "--time", "500ms", "--connections", "1"}, "receive: it broke")
	if !strings.Contains(s.stdout.String(), "1 Internal") {
		t.Errorf("%s", &s.stdout)
	}
	node.left(t, 1)

	// What may not be done is tried once by each, not again and again.
	node = newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	node.spoilt["put"] = func(int) *fault.Error { return fault.New("fake", fault.Forbidden, "not you") }
	newSession(t).expect(t, t.Context(), fault.Forbidden.Exit(), []string{"bench", "--time", "1h", "--connections", "2"}, "put: not you")
	if want := map[string]int{"put": 2}; !maps.Equal(node.called(), want) {
		t.Errorf("it asked %v", node.called())
	}

	// What cannot be removed is named.
	node = newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	node.spoilt["rm"] = func(int) *fault.Error { return fault.New("fake", fault.Forbidden, "not you") }
	newSession(t).expect(t, t.Context(), fault.UpstreamFailed.Exit(), []string{"bench", "--time", "20ms", "--connections", "1"},
		"objects could not be removed\nRemove them: micronode rm b3:")

	// So is a box in which a message may be left.
	node = newBenchNode(t, fmt.Sprintf(benchStatus, allParts, 0))
	node.spoilt["ack"] = func(int) *fault.Error { return fault.New("fake", fault.Forbidden, "not you") }
	newSession(t).expect(t, t.Context(), fault.UpstreamFailed.Exit(), []string{"bench", "--time", "1h", "--count", "1", "--connections", "1"},
		"1 messages may be left in the box bench-", "micronode mbox recv bench-")

	// What failed and is there all the same is removed, too.
	node = newBenchNode(t, fmt.Sprintf(benchStatus, "", 0))
	node.spoilt["put"] = func(int) *fault.Error { return fault.New("fake", fault.Internal, "it broke") }
	newSession(t).expect(t, t.Context(), fault.Internal.Exit(), []string{"bench", "--time", "20ms", "--connections", "1"}, "put: it broke")
	if node.called()["rm"] == 0 {
		t.Error("nothing was removed")
	}
}

func TestBenchInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	node := newBenchNode(t, fmt.Sprintf(benchStatus, allParts, 0))
	node.spoilt["put"] = func(n int) *fault.Error {
		if n == 10 {
			interrupt(&interrupted{syscall.SIGINT})
		}
		return nil
	}
	newSession(t).expect(t, ctx, fault.Canceled.Exit(), []string{"bench", "--time", "1h", "--connections", "4"}, "stopped by SIGINT\nNothing was left half done.")
	if called := node.called(); called["put"] < 10 || called["rm"] == 0 {
		t.Errorf("%v", called)
	}
	node.left(t, 4)
}

func TestBenchThatCannotBe(t *testing.T) {
	newBenchNode(t, fmt.Sprintf(benchStatus, "", 1000))
	for args, told := range map[string]string{
		"--time 0s":                     "more than nothing",
		"--time 25h":                    "24h0m0s or less",
		"--count 0":                     "from 1 to 1000000000",
		"--connections 0":               "from 1 to 256",
		"--connections 257":             "from 1 to 256",
		"--connections 256 --size 1MiB": "256 objects of 1MiB at a time are more than 64MiB",
	} {
		newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), append([]string{"bench"}, strings.Fields(args)...), told)
	}
	newSession(t).expect(t, t.Context(), fault.StoreFull.Exit(), []string{"bench"}, "too little room for 8 objects of 16KiB")
	for _, size := range []string{"", "0", "1MB", "x", "16KiBs", "99999999999999999999", "-1", "68719476736MiB"} {
		newSession(t).expect(t, t.Context(), usedWrongly, []string{"bench", "--size=" + size})
	}
	fakeNode(t, nil)
	newSession(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"bench"})
	t.Setenv("MICRO_URL", "ftp://nowhere")
	newSession(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"bench"}, "does not begin with http")
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
		var all times
		all.add(took)
		for _, share := range []float64{0.5, 0.99} {
			got := all.quantile(share) * float64(time.Millisecond)
			if off := got - float64(took); off > float64(took)/32+0.6 || -off > float64(took)/32+0.6 {
				t.Fatalf("%f for %d", got, took)
			}
		}
	})
	var all times
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
