//go:build gates

package gates

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
)

// allScopes are all there are.
var allScopes = []string{"object:put", "object:rm", "name:set", "index:admin", "index:pin", "edge:purge", "overlay:pub", "registry:propose", "registry:approve",
	"registry:commit", "registry:supersede", "mbox:send", "mbox:recv", "feed:post", "graph:write", "admin"}

// waitDeadline is the deadline of the requests that wait here.
const waitDeadline = time.Second

// blockingRequest is a request that cannot be answered before its deadline.
type blockingRequest struct {
	method, path string
	header       []string // lines
	body         string
	missingBytes int  // bytes of the body that are declared and never sent
	selfTimed    bool // the timeout is in the request itself; the caller sets no deadline
	status       int
	code         string // of the problem; empty for none
}

// variablePart is what differs from one request on a route to the next.
var variablePart = regexp.MustCompile(`b3:[0-9a-f]{64}|bafk[a-z0-9]+|[0-9.]+:[0-9]+/slow/[0-9]+`)

// String is its route, more or less.
func (b blockingRequest) String() string {
	return b.method + " " + variablePart.ReplaceAllString(b.path, "…")
}

// blockingResult is the result of a blocking request.
type blockingResult struct {
	blockingRequest
	answer string // status and code
	took   time.Duration
	err    error
}

// do sends the request, and measures the time until all of the answer is there.
func (b blockingRequest) do(host, token string) (e blockingResult) {
	e.blockingRequest = b
	conn, err := net.Dial("tcp", host)
	if err != nil {
		e.err = err
		return e
	}
	defer conn.Close()
	lines := append([]string{b.method + " " + b.path + " HTTP/1.1", "Host: " + host, "Authorization: Bearer " + token}, b.header...)
	if !b.selfTimed {
		lines = append(lines, fmt.Sprintf("Request-Timeout: %g", waitDeadline.Seconds()))
	}
	if length := len(b.body) + b.missingBytes; length > 0 {
		lines = append(lines, fmt.Sprintf("Content-Length: %d", length))
	}
	from := time.Now()
	_ = conn.SetDeadline(from.Add(20 * time.Second))
	if _, e.err = io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"+b.body); e.err != nil {
		return e
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: b.method})
	if err != nil {
		e.err = err
		return e
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	e.took, e.err = time.Since(from), err
	e.answer = strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", problemCode(body)))
	return e
}

// want is the answer that the request must have.
func (b blockingRequest) want() string { return strings.TrimSpace(fmt.Sprint(b.status, " ", b.code)) }

// sendAll sends them all at the same time, again and again.
func sendAll(host, token string, waits []blockingRequest, rounds int) []blockingResult {
	var mu sync.Mutex
	var list []blockingResult
	for range rounds {
		var group sync.WaitGroup
		for _, one := range waits {
			group.Go(func() {
				e := one.do(host, token)
				mu.Lock()
				defer mu.Unlock()
				list = append(list, e)
			})
		}
		group.Wait()
	}
	return list
}

const (
	maxOff        = 100 * time.Millisecond // how far from its deadline an answer may be, at p99
	standInAnswer = "504 Timeout"          // what the server sends for a handler that does not return
)

// checkDeadlines checks requests: each had the expected answer, within maxOff
// of its deadline, before or after, at p99.
func checkDeadlines(t *testing.T, list []blockingResult) error {
	var off []time.Duration
	worst := map[string]time.Duration{}
	for _, e := range list {
		right := e.err == nil && e.answer == e.want()
		if !right && e.answer == standInAnswer && e.took > waitDeadline+maxOff {
			return checkBound(e.took, waitDeadline+maxOff, "%s: the handler did not return in time, and the server answered %s in its place", e.blockingRequest, e.answer)
		}
		if !right {
			return fmt.Errorf("%s: %s after %s, want %s (%v)", e.blockingRequest, e.answer, e.took, e.want(), e.err)
		}
		by := (e.took - waitDeadline).Abs()
		off, worst[e.String()] = append(off, by), max(worst[e.String()], by)
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range worst {
			if !yield(name) {
				return
			}
		}
	}) {
		t.Logf("%8s  %s", worst[name].Round(100*time.Microsecond), name)
	}
	p99 := percentile(off, 0.99)
	t.Logf("%d waits on %d routes: off by %s at p50, %s at p99", len(off), len(worst), percentile(off, 0.5), p99)
	report(t, "deadline of every wait", "p99 within 100 ms of it", fmt.Sprintf("%s off at p99, %d waits on %d routes", rounded(p99), len(off), len(worst)))
	return checkBound(p99, maxOff, "off the deadline at p99")
}

// pathParameter is a wildcard in a path.
var pathParameter = regexp.MustCompile(`\{[^}]+\}`)

// halfBodyRequests is every route of the node's own document that has a body,
// with one of which only a part is sent.
func (p *process) halfBodyRequests() (waits []blockingRequest) {
	p.t.Helper()
	_, text, err := fetch(p.http + "/openapi.json")
	if err != nil {
		p.t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]struct {
			RequestBody any `json:"requestBody"`
		}
	}
	if err := json.Unmarshal(text, &document); err != nil {
		p.t.Fatal(err)
	}
	for path, methods := range document.Paths {
		filled := pathParameter.ReplaceAllStringFunc(path, func(name string) string {
			if name == "{b3}" {
				return testAddress("body", 0).String()
			}
			return "x"
		})
		for method, operation := range methods {
			if operation.RequestBody != nil {
				waits = append(waits, blockingRequest{method: strings.ToUpper(method), path: filled, header: []string{"Idempotency-Key: k", "Content-Type: application/json"},
					body: "{", missingBytes: 9, status: http.StatusRequestTimeout, code: "RequestTimeout"})
			}
		}
	}
	return waits
}

// A client that sends half of a body gets an error at the deadline, on every
// route with a body.
func TestDeadlineOfEveryBody(t *testing.T) {
	rounds := 3
	if isLong() {
		rounds = 30
	}
	p := start(t, nil, append(allFacets, unlimited...)...)
	waits, token, host := p.halfBodyRequests(), p.token(allScopes...), strings.TrimPrefix(p.http, "http://")
	if len(waits) < 10 {
		t.Fatalf("only %d routes take a body: %v", len(waits), waits)
	}
	retryMeasurement(t, func() error { return checkDeadlines(t, sendAll(host, token, waits, rounds)) })
	p.stop(syscall.SIGTERM)
}

// A request that waits gets an error at the deadline, on every route that can
// wait: for a message, for a peer, for routers, for an origin, for news, for a
// turn.
func TestDeadlineOfEveryWait(t *testing.T) {
	rounds := 3
	if isLong() {
		rounds = 30
	}
	release := make(chan struct{})
	slow, settings := newOrigin(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	settings = append(append(settings, delegatedSettings(newFakeRouters(t, 5, respondNever))...), allFacets...)
	p := start(t, nil, append(settings, "MICRO_INDEX__DHT__DEADLINE_MS=5000", "MICRO_INDEX__BREAKER__LEAST=1000000", "MICRO_EDGE__BREAKER__THRESHOLD=1",
		"MICRO_OVERLAY__IDLE=5m")...) // the silent peer does not even send pings
	silent := newRawPeer(t)
	addr, _ := p.overlayEndpoint()
	p.addPeer(silent.id, unreachableAddr)
	go func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }(silent.dial(addr)) // reads everything, sends nothing
	p.awaitSessions(1)
	council := newTestRegistry(t)
	council.initRegistry(p)
	token, host := p.token(allScopes...), strings.TrimPrefix(p.http, "http://")
	try := 0
	retryMeasurement(t, func() error {
		var list []blockingResult
		for range rounds {
			try++
			list = append(list, sendAll(host, token, blockingRequests(try, slow.host, silent.id.String()), 1)...)
		}
		return checkDeadlines(t, list)
	})
	p.stop(syscall.SIGTERM)
}

// blockingRequests is one of each, for things that were not requested before.
func blockingRequests(try int, origin, peer string) []blockingRequest {
	late := func(method, path, body string) blockingRequest {
		return blockingRequest{method: method, path: path, body: body, status: http.StatusGatewayTimeout, code: "Timeout"}
	}
	absent := func(what string) b3.Address { return testAddress(what, try) }
	return []blockingRequest{
		{method: "POST", path: "/mbox/recv", body: fmt.Sprintf(`{"box":"empty","wait_s":%g}`, waitDeadline.Seconds()), selfTimed: true, status: http.StatusNoContent},
		{method: "GET", path: "/overlay/subscribe/nothing", status: http.StatusOK},
		{method: "GET", path: "/registry/stream", status: http.StatusOK},
		late("GET", "/providers/"+absent("providers").String(), ""),
		late("GET", "/resolve/"+absent("resolve").String(), ""),
		late("GET", "/routing/v1/providers/"+absent("routing").CID(), ""),
		late("POST", "/fetch/"+absent("fetch").String(), ""),
		late("POST", "/overlay/fetch/"+absent("peer").String(), fmt.Sprintf(`{"peer":%q}`, peer)),
		late("GET", fmt.Sprintf("/edge/assets/%s/slow/%d", origin, try), ""),
		late("GET", "/edge/assets/"+absent("asset").String(), ""),
	}
}
