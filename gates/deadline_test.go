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

// scopes are all there are.
var scopes = []string{"object:put", "object:rm", "name:set", "index:admin", "index:pin", "edge:purge", "overlay:pub", "registry:propose", "registry:approve",
	"registry:commit", "registry:supersede", "mbox:send", "mbox:recv", "feed:post", "graph:write", "admin"}

// budget is the deadline of the requests that wait here.
const budget = time.Second

// wait is a request that has nothing to be answered with before its deadline.
type wait struct {
	method, path string
	header       []string // lines
	body         string
	missing      int  // bytes of the body that are announced and never sent
	own          bool // it ends by what it says itself; the caller sets no deadline
	status       int
	code         string // of the problem; empty for none
}

// unique is what differs from one wait on a route to the next.
var unique = regexp.MustCompile(`b3:[0-9a-f]{64}|bafk[a-z0-9]+|[0-9.]+:[0-9]+/slow/[0-9]+`)

// String is its route, more or less.
func (w wait) String() string { return w.method + " " + unique.ReplaceAllString(w.path, "…") }

// ended is how a wait ended.
type ended struct {
	wait
	answer string // status and code
	took   time.Duration
	err    error
}

// do sends the request, and takes the time until all of the answer is there.
func (w wait) do(host, token string) (e ended) {
	e.wait = w
	conn, err := net.Dial("tcp", host)
	if err != nil {
		e.err = err
		return e
	}
	defer conn.Close()
	lines := append([]string{w.method + " " + w.path + " HTTP/1.1", "Host: " + host, "Authorization: Bearer " + token}, w.header...)
	if !w.own {
		lines = append(lines, fmt.Sprintf("Request-Timeout: %g", budget.Seconds()))
	}
	if length := len(w.body) + w.missing; length > 0 {
		lines = append(lines, fmt.Sprintf("Content-Length: %d", length))
	}
	from := time.Now()
	_ = conn.SetDeadline(from.Add(20 * time.Second))
	if _, e.err = io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"+w.body); e.err != nil {
		return e
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: w.method})
	if err != nil {
		e.err = err
		return e
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	e.took, e.err = time.Since(from), err
	e.answer = strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", problem(body)))
	return e
}

// want is the answer that the wait must have.
func (w wait) want() string { return strings.TrimSpace(fmt.Sprint(w.status, " ", w.code)) }

// all has them all wait at the same time, again and again.
func all(host, token string, waits []wait, rounds int) []ended {
	var mu sync.Mutex
	var list []ended
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

// exact judges waits: each had the answer that it must have, and came within
// 100 ms of its deadline, before or after, at p99.
func exact(t *testing.T, list []ended) error {
	var off []time.Duration
	worst := map[string]time.Duration{}
	for _, e := range list {
		if e.err != nil || e.answer != e.want() {
			return fmt.Errorf("%s: %s after %s, want %s (%v)", e.wait, e.answer, e.took, e.want(), e.err)
		}
		by := (e.took - budget).Abs()
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
	if p99 > 100*time.Millisecond {
		return tooSlow("p99 is %s off the deadline", p99)
	}
	return nil
}

// placeholder is a wildcard in a path.
var placeholder = regexp.MustCompile(`\{[^}]+\}`)

// bodies is every route of the node's own document that takes a body, with one
// of which only a part comes.
func (p *process) bodies() (waits []wait) {
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
		filled := placeholder.ReplaceAllStringFunc(path, func(name string) string {
			if name == "{b3}" {
				return keyOf("body", 0).String()
			}
			return "x"
		})
		for method, operation := range methods {
			if operation.RequestBody != nil {
				waits = append(waits, wait{method: strings.ToUpper(method), path: filled, header: []string{"Idempotency-Key: k", "Content-Type: application/json"},
					body: "{", missing: 9, status: http.StatusGatewayTimeout, code: "Timeout"})
			}
		}
	}
	return waits
}

// Whoever sends half of a body is told at the deadline, on every route that
// takes one.
func TestDeadlineOfEveryBody(t *testing.T) {
	rounds := 3
	if long() {
		rounds = 30
	}
	p := start(t, nil, append(everything, unlimited...)...)
	waits, token, host := p.bodies(), p.token(scopes...), strings.TrimPrefix(p.http, "http://")
	if len(waits) < 10 {
		t.Fatalf("only %d routes take a body: %v", len(waits), waits)
	}
	measured(t, func() error { return exact(t, all(host, token, waits, rounds)) })
	p.stop(syscall.SIGTERM)
}

// Whoever waits for somebody else is told at the deadline, on every route on
// which one can: for a message, for a peer, for routers, for an origin, for news,
// for a turn.
func TestDeadlineOfEveryWait(t *testing.T) {
	rounds := 3
	if long() {
		rounds = 30
	}
	release := make(chan struct{})
	slow, settings := newOrigin(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	settings = append(append(settings, asking(routers(t, 5, hangs))...), everything...)
	p := start(t, nil, append(settings, "MICRO_INDEX__DHT__DEADLINE_MS=5000", "MICRO_INDEX__BREAKER__LEAST=1000000",
		"MICRO_OVERLAY__IDLE=5m")...) // the silent peer does not even say that it lives
	silent := newStranger(t)
	addr, _ := p.overlayOf()
	p.befriend(silent.id, nobody)
	go func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }(silent.dial(addr)) // takes everything, says nothing
	p.connected(1)
	council := newCouncil(t)
	council.begin(p)
	token, host := p.token(scopes...), strings.TrimPrefix(p.http, "http://")
	try := 0
	measured(t, func() error {
		var list []ended
		for range rounds {
			try++
			list = append(list, all(host, token, waitsFor(try, slow.host, silent.id.String()), 1)...)
		}
		return exact(t, list)
	})
	p.stop(syscall.SIGTERM)
}

// waitsFor is one of each, none of which was asked for before.
func waitsFor(try int, origin, peer string) []wait {
	late := func(method, path, body string) wait {
		return wait{method: method, path: path, body: body, status: http.StatusGatewayTimeout, code: "Timeout"}
	}
	absent := func(what string) b3.Address { return keyOf(what, try) }
	return []wait{
		{method: "POST", path: "/mbox/recv", body: fmt.Sprintf(`{"box":"empty","wait_s":%g}`, budget.Seconds()), own: true, status: http.StatusNoContent},
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
