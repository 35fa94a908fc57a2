//go:build gates

package gates

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
)

// fakeRouter simulates an endpoint of Delegated Routing: a real server that a
// real node queries, with the behaviour that a test sets.
type fakeRouter struct {
	*httptest.Server
	requests atomic.Int64 // queries received
	canceled atomic.Int64 // queries that the node cancelled before they were answered
}

// routerHandler is how a router answers a query.
type routerHandler func(w http.ResponseWriter, r *http.Request, address b3.Address)

func newFakeRouter(t *testing.T, answer routerHandler) *fakeRouter {
	t.Helper()
	one := &fakeRouter{}
	one.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address, err := b3.ParseCID(strings.TrimPrefix(r.URL.Path, "/routing/v1/providers/"))
		if err != nil && !strings.Contains(r.URL.Path, "/again") {
			t.Errorf("a router was asked for %s: %v", r.URL.Path, err)
		}
		one.requests.Add(1)
		answer(w, r, address)
		if r.Context().Err() != nil {
			one.canceled.Add(1)
		}
	}))
	t.Cleanup(func() {
		one.CloseClientConnections()
		one.Close()
	})
	return one
}

// newFakeRouters starts n that behave the same.
func newFakeRouters(t *testing.T, n int, answer routerHandler) (all []*fakeRouter) {
	t.Helper()
	for range n {
		all = append(all, newFakeRouter(t, answer))
	}
	return all
}

// delegatedSettings is the settings of a node that queries these routers, in
// this order as long as it knows nothing of them.
func delegatedSettings(all ...[]*fakeRouter) []string {
	var urls []string
	for _, one := range slices.Concat(all...) {
		urls = append(urls, one.URL)
	}
	return append([]string{"MICRO_INDEX__DELEGATED=" + strings.Join(urls, ",")}, unlimited...)
}

// providerRecord is a record of a provider, as it goes over the wire.
type providerRecord struct {
	Schema string
	ID     string
	Addrs  []string
}

// someProvider is listed for every object. Nothing listens there; only a fetch
// finds that out.
var someProvider = providerRecord{Schema: "peer", ID: "somebody", Addrs: []string{"/ip4/127.0.0.1/tcp/1/http"}}

// writeProviders writes an answer.
func writeProviders(w http.ResponseWriter, records ...providerRecord) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"Providers": records})
}

// Behaviours of routers. One that knows answers after a while, unless the node
// cancels the query.
func respondAfter(after time.Duration) routerHandler {
	return func(w http.ResponseWriter, r *http.Request, _ b3.Address) {
		if sleepRequest(r, after) {
			writeProviders(w, someProvider)
		}
	}
}

// sleepRequest waits, and reports whether the client is still connected.
func sleepRequest(r *http.Request, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-r.Context().Done():
		return false
	}
}

// respondNever reads the query and never answers.
func respondNever(_ http.ResponseWriter, r *http.Request, _ b3.Address) { <-r.Context().Done() }

// closeConn reads the query and closes the connection.
func closeConn(w http.ResponseWriter, _ *http.Request, _ b3.Address) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// closeMidResponse closes the connection in the middle of its answer.
func closeMidResponse(w http.ResponseWriter, _ *http.Request, _ b3.Address) {
	conn, out, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = out.WriteString("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"Providers\":[{\"Schema\":\"pe")
	_ = out.Flush()
	_ = conn.Close()
}

// testAddress is an address that was not looked up before.
func testAddress(what string, n int) b3.Address { return b3.Of(fmt.Appendf(nil, "%s %d", what, n)) }

// lookupResult is the result of a look-up.
type lookupResult struct {
	status int
	code   string // of a problem
	took   time.Duration
	client.Providers
}

// lookupProviders asks a node for the providers of an object. An answer that is
// neither a list nor a problem with a code is an error.
func lookupProviders(ctx context.Context, web *http.Client, base string, address b3.Address, header ...string) (f lookupResult, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/providers/"+address.String(), nil)
	if err != nil {
		return f, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	from := time.Now()
	answer, err := web.Do(r)
	if err != nil {
		return f, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	f.status, f.took = answer.StatusCode, time.Since(from)
	switch {
	case err != nil:
		return f, err
	case f.status == http.StatusOK:
		return f, json.Unmarshal(body, &f.Providers)
	}
	if f.code = problemCode(body); f.code == "" {
		err = fmt.Errorf("%s is no typed answer: %s", answer.Status, body)
	}
	return f, err
}

// lookupProviders is the same for one node, and for tests in which it must not fail.
func (p *process) lookupProviders(address b3.Address, header ...string) lookupResult {
	p.t.Helper()
	f, err := lookupProviders(p.t.Context(), http.DefaultClient, p.http, address, header...)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.stderr)
	}
	return f
}

// clientFrom is an HTTP client that comes from one address of this machine.
func clientFrom(t *testing.T, ip string, connections int) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: connections}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// The targets of the first wave fail, each in its way, during the request. The
// second wave has the answer, the requests to those that hang are cancelled,
// and no target is penalised for being slower.
func TestIndexAlphaDropped(t *testing.T) {
	for name, c := range map[string]struct {
		alpha []routerHandler
		fired bool // β was sent although a target was silent, which is what is counted
		hung  int
	}{
		"all are cut":               {[]routerHandler{closeConn, closeConn, closeConn}, false, 0},
		"all die in the answer":     {[]routerHandler{closeMidResponse, closeMidResponse, closeMidResponse}, false, 0},
		"all hang":                  {[]routerHandler{respondNever, respondNever, respondNever}, true, 3},
		"one of each":               {[]routerHandler{closeConn, closeMidResponse, respondNever}, true, 1},
		"one is cut and two hang":   {[]routerHandler{closeConn, respondNever, respondNever}, true, 2},
		"two hang, and nobody else": {[]routerHandler{respondNever, respondNever, func(w http.ResponseWriter, _ *http.Request, _ b3.Address) { writeProviders(w) }}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var alpha []*fakeRouter
			for _, answer := range c.alpha {
				alpha = append(alpha, newFakeRouter(t, answer))
			}
			beta := newFakeRouters(t, 2, respondAfter(0))
			p := start(t, nil, delegatedSettings(alpha, beta)...)
			f := p.lookupProviders(testAddress("dropped", 0))
			if f.status != http.StatusOK || len(f.Providers.Providers) != 1 || f.Source != "delegated" || f.Hedge != (client.Hedge{Fired: c.fired, Winner: "beta"}) {
				t.Errorf("%d %s %+v", f.status, f.code, f.Providers)
			}
			awaitCondition(t, p, "those who hung to be told", func() bool {
				var left int64
				for _, one := range alpha {
					left += one.canceled.Load()
				}
				return left >= int64(c.hung)
			})
			hedges, want := p.metric("hedge_total", `winner="beta"`), 0.0
			if c.fired {
				want = 1
			}
			if hedges != want {
				t.Errorf("hedge_total{winner=beta} is %v, want %v", hedges, want)
			}
			if open := p.metric("breaker_state", `state="open"`); open != 0 {
				t.Errorf("%v breakers are open", open)
			}
			t.Logf("answered after %s", f.took.Round(time.Millisecond))
			p.stop(syscall.SIGTERM)
		})
	}
}

// An endpoint disappears in the middle of a load: every look-up is answered.
func TestIndexAlphaDroppedUnderLoad(t *testing.T) {
	all := newFakeRouters(t, 5, respondAfter(20*time.Millisecond))
	p := start(t, nil, delegatedSettings(all)...)
	web := clientFrom(t, "127.0.0.1", 16)
	var next, answered atomic.Int64
	dropped := make(chan struct{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				n := int(next.Add(1))
				if n > 600 {
					return
				}
				f, err := lookupProviders(t.Context(), web, p.http, testAddress("load", n))
				if err != nil || f.status != http.StatusOK || len(f.Providers.Providers) != 1 {
					t.Errorf("look-up %d: %d %s, %v", n, f.status, f.code, err)
				}
				if answered.Add(1) == 200 {
					close(dropped)
				}
			}
		})
	}
	<-dropped
	all[0].Listener.Close()
	all[0].CloseClientConnections()
	group.Wait()
	t.Logf("of those who were asked, each was asked %d, %d, %d, %d and %d times; %v retries, %v breakers open",
		all[0].requests.Load(), all[1].requests.Load(), all[2].requests.Load(), all[3].requests.Load(), all[4].requests.Load(),
		p.metric("backoff_retries_total", `"lookup"`), p.metric("breaker_state", `state="open"`))
	p.stop(syscall.SIGTERM)
}

// Three routers of the first wave answer one question in twenty and are silent
// otherwise, and the look-ups are more than the budget for second waves allows:
// the one router that knows is asked all the same, and no look-up runs out of
// time.
func TestIndexSilentAlphaBeyondTheBudget(t *testing.T) {
	lookups := 300
	if isLong() {
		lookups = 1200
	}
	var questions atomic.Int64
	silent := newFakeRouters(t, 3, func(w http.ResponseWriter, r *http.Request, address b3.Address) {
		if questions.Add(1)%20 == 0 {
			writeProviders(w)
		} else {
			respondNever(w, r, address)
		}
	})
	knows := newFakeRouters(t, 1, respondAfter(400*time.Millisecond)) // so late that the others rank before it for a while
	p := start(t, nil, append(delegatedSettings(silent, knows), "MICRO_INDEX__BREAKER__LEAST=1000000", "MICRO_INDEX__DHT__HEDGE_BUDGET=0")...)
	const callers = 20
	web := clientFrom(t, "127.0.0.1", callers)
	var next atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	codes := map[string]int{}
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for n := int(next.Add(1)); n <= lookups; n = int(next.Add(1)) {
				f, err := lookupProviders(t.Context(), web, p.http, testAddress("beyond the budget", n))
				what := fmt.Sprint(f.status, " ", f.code)
				if err != nil {
					what = err.Error()
				}
				mu.Lock()
				took = append(took, f.took)
				codes[what]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if codes["200 "] != lookups {
		t.Errorf("of %d look-ups: %v", lookups, codes)
	}
	asked := silent[0].requests.Load() + silent[1].requests.Load() + silent[2].requests.Load()
	if asked < 3*callers {
		t.Errorf("the silent ones were asked %d times", asked)
	}
	report(t, "index: silent α beyond the budget", "no look-up is 504", fmt.Sprintf("%d of %d answered, p99 %s; the silent ones were asked %d times", codes["200 "], lookups, rounded(percentile(took, .99)), asked))
	p.stop(syscall.SIGTERM)
}

// All targets are silent: the look-up fails at the deadline, not before and not
// after, and at that of the client if it is sooner.
func TestIndexDeadline(t *testing.T) {
	lookups := 30
	if isLong() {
		lookups = 300
	}
	p := start(t, nil, append(delegatedSettings(newFakeRouters(t, 5, respondNever)), "MICRO_INDEX__BREAKER__LEAST=1000000")...)
	var asked atomic.Int64
	within := func(budget time.Duration, header ...string) {
		retryMeasurement(t, func() error { return p.measureTimeouts(&asked, lookups, budget, header...) })
	}
	within(1200 * time.Millisecond)
	within(500*time.Millisecond, "Request-Timeout", "0.5")
	within(1200*time.Millisecond, "Request-Timeout", "5") // shortens, never lengthens
	if hits := p.metric("resolve_deadline_hit_total", ""); hits < float64(3*lookups) {
		t.Errorf("%v deadlines were counted, and there were %d or more", hits, 3*lookups)
	}
	p.stop(syscall.SIGTERM)
}

// measureTimeouts looks up keys that no target answers for, ten at a time, each
// key once.
func (p *process) measureTimeouts(asked *atomic.Int64, n int, deadline time.Duration, header ...string) error {
	const callers, tolerance = 10, 50 * time.Millisecond
	web := clientFrom(p.t, "127.0.0.1", callers)
	var mu sync.Mutex
	var took []time.Duration
	var wrong error
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range n / callers {
				f, err := lookupProviders(p.t.Context(), web, p.http, testAddress("silence", int(asked.Add(1))), header...)
				if err == nil && (f.status != http.StatusGatewayTimeout || f.code != "Timeout") {
					err = fmt.Errorf("answered %d %s", f.status, f.code)
				}
				mu.Lock()
				took = append(took, f.took)
				if err != nil {
					wrong = err
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if wrong != nil {
		return wrong
	}
	low, high := slices.Min(took), percentile(took, 0.99)
	report(p.t, fmt.Sprintf("index: a deadline of %s", deadline), "p99 within 50 ms of it", fmt.Sprintf("p50 %s, p99 %s over %d look-ups", rounded(percentile(took, 0.5)), rounded(high), len(took)))
	p.t.Logf("a deadline of %s: from %s, p50 %s, p99 %s over %d look-ups", deadline, low.Round(time.Millisecond), percentile(took, 0.5).Round(time.Millisecond), high.Round(time.Millisecond), len(took))
	if low < deadline-tolerance {
		return fmt.Errorf("answered after %s, and the deadline was %s", low, deadline)
	}
	return checkBound(high, deadline+tolerance, "the answers at a deadline of %s, at p99", deadline)
}

// floodPrefix is the first byte of the addresses of a flood, so that routers
// recognise them.
const floodPrefix byte = 0xff

// lookupFlood is a client that sends far too many look-ups, and its answers.
type lookupFlood struct {
	callers int
	pause   time.Duration // of a caller that was rejected
	sent    atomic.Int64

	mu    sync.Mutex
	codes map[string]int
}

// run floods until ctx ends. Every refusal must be a typed one.
func (f *lookupFlood) run(ctx context.Context, p *process, web *http.Client) *sync.WaitGroup {
	f.codes = map[string]int{}
	var group sync.WaitGroup
	for range f.callers {
		group.Go(func() {
			for ctx.Err() == nil {
				key := testAddress("flood", int(f.sent.Add(1)))
				key[0] = floodPrefix
				answer, err := lookupProviders(ctx, web, p.http, key)
				what := answer.code
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					what = err.Error()
				case what == "":
					what = fmt.Sprint(answer.status)
				}
				f.mu.Lock()
				f.codes[what]++
				f.mu.Unlock()
				if answer.status == http.StatusTooManyRequests {
					select {
					case <-time.After(f.pause):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	return &group
}

// count is the number of answers with a code.
func (f *lookupFlood) count(code string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.codes[code]
}

// measureLookups sends look-ups one after the other, at a moderate rate, each
// of which must be answered, and returns how long they took.
func (p *process) measureLookups(web *http.Client, what string, n int) (took []time.Duration, err error) {
	for i := range n {
		key := testAddress(what, i)
		key[0] = 0
		f, err := lookupProviders(p.t.Context(), web, p.http, key)
		if err != nil || f.status != http.StatusOK || len(f.Providers.Providers) != 1 {
			return took, fmt.Errorf("a polite look-up: %d %s, %v", f.status, f.code, err)
		}
		took = append(took, f.took)
		time.Sleep(20 * time.Millisecond) // a moderate rate
	}
	return took, nil
}

// measureHealth requests what never waits for work, until ctx ends.
func (p *process) measureHealth(ctx context.Context) (took []time.Duration, err error) {
	for ctx.Err() == nil {
		for _, url := range []string{p.admin + "/healthz", p.admin + "/readyz", p.admin + "/version", p.http + "/healthz", p.http + "/version"} {
			from := time.Now()
			answer, body, err := fetch(url)
			if err != nil || answer.StatusCode != http.StatusOK && !strings.HasSuffix(url, "/readyz") {
				return took, fmt.Errorf("%s during the flood: %v %v %s", url, answer, err, body)
			}
			took = append(took, time.Since(from))
		}
		time.Sleep(50 * time.Millisecond)
	}
	return took, nil
}

// One address floods, and another one, with few look-ups, hardly notices. First
// the rate limit of an address stops the flood; then only the index's own
// queue, in which each client has its own share; and then the look-ups of the
// flood take so long that most of them time out, for which no target that was
// asked too late may be penalised.
func TestIndexFlood(t *testing.T) {
	span := 3 * time.Second
	if isLong() {
		span = 20 * time.Second
	}
	limited := []string{"MICRO_LIMITS__RATE=200", "MICRO_LIMITS__BURST=200"}
	limitless := append([]string{"MICRO_LIMITS__CONNS_PER_IP=4096", "MICRO_LIMITS__INFLIGHT=4096"}, unlimited...)
	for _, c := range []struct {
		name     string
		settings []string
		flood    *lookupFlood
		takes    [2]time.Duration // from and to, to find out that the objects of the flood have no provider
		refusal  string
	}{
		{"by rate", limited, &lookupFlood{callers: 32, pause: 40 * time.Millisecond}, [2]time.Duration{0, 20 * time.Millisecond}, "RateLimited"},
		{"by queue", append([]string{"MICRO_INDEX__DHT__DEADLINE_MS=4000"}, limitless...), &lookupFlood{callers: 1200, pause: time.Second}, [2]time.Duration{100 * time.Millisecond, 1300 * time.Millisecond}, "Busy"},
		{"by time", limitless, &lookupFlood{callers: 1200, pause: time.Second}, [2]time.Duration{300 * time.Millisecond, 1100 * time.Millisecond}, "Busy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := newFakeRouters(t, 1, func(w http.ResponseWriter, r *http.Request, address b3.Address) {
				if address[0] != floodPrefix {
					writeProviders(w, someProvider)
				} else if sleepRequest(r, c.takes[0]+(c.takes[1]-c.takes[0])*time.Duration(address[1])/256) {
					writeProviders(w)
				}
			})
			p := start(t, nil, append(delegatedSettings(all)[:1], c.settings...)...)
			try := 0
			retryMeasurement(t, func() error {
				try++
				return p.measureUnderFlood(c.flood, span, c.refusal, fmt.Sprint("polite ", try))
			})
			if opened := p.metric("breaker_open_total", ""); opened != 0 {
				t.Errorf("the flood has opened the breaker of an endpoint that does nothing wrong, %v times", opened)
			}
			p.stop(syscall.SIGTERM)
		})
	}
}

// measureUnderFlood measures a well-behaved client without a flood and with
// one.
func (p *process) measureUnderFlood(f *lookupFlood, span time.Duration, refusal, tag string) error {
	polite := clientFrom(p.t, "127.0.0.1", 4)
	before, err := p.measureLookups(polite, tag+" before", 50)
	if err != nil {
		return err
	}
	quietly, enough := context.WithTimeout(p.t.Context(), time.Second)
	well, err := p.measureHealth(quietly)
	enough()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	group := f.run(ctx, p, clientFrom(p.t, "127.0.0.2", f.callers))
	awaitCondition(p.t, p, "the first refusal", func() bool { return f.count(refusal) > 0 })
	vital := make(chan error, 1)
	var vitals []time.Duration
	watched, stop := context.WithTimeout(ctx, span)
	defer stop()
	go func() {
		var err error
		vitals, err = p.measureHealth(watched)
		vital <- err
	}()
	timer := watchTimer()
	var during []time.Duration
	var memory []int64
	for round := 0; watched.Err() == nil && err == nil; round++ {
		var some []time.Duration
		some, err = p.measureLookups(polite, fmt.Sprint(tag, " during ", round), 5)
		during = append(during, some...)
		if err == nil {
			memory = append(memory, p.rss())
		}
	}
	stop()
	late := timer()
	sick := <-vital
	cancel()
	group.Wait()
	if err = errors.Join(err, sick); err != nil {
		return fmt.Errorf("%w\n%s", err, p.stderr)
	}
	middle := (len(memory) + 1) / 2
	half, full := slices.Max(memory[:middle]), slices.Max(memory[middle-1:])
	reportRatio(p.t, "index: one address floods, refused with "+refusal, percentile(before, .99), percentile(during, .99), late)
	reportRatio(p.t, "index: health beside the flood, refused with "+refusal, percentile(well, .99), percentile(vitals, .99), late)
	p.t.Logf("polite: p50 %s, p99 %s before; p50 %s, p99 %s during the flood; health, readiness and version: p50 %s, p99 %s; the flood was told %v; rss %d, then %d MiB; %v breakers opened",
		percentile(before, .5), percentile(before, .99), percentile(during, .5), percentile(during, .99), percentile(vitals, .5), percentile(vitals, .99), f.codes, half>>20, full>>20, p.metric("breaker_open_total", ""))
	switch {
	case f.codes[refusal] == 0:
		return fmt.Errorf("the flood was never told %s: %v", refusal, f.codes)
	case full > half+half/4+16<<20:
		return fmt.Errorf("memory grows: %d MiB, then %d MiB", half>>20, full>>20)
	}
	for code := range f.codes {
		if !slices.Contains([]string{refusal, "200", "Timeout"}, code) {
			return fmt.Errorf("the flood was told %s", code)
		}
	}
	return cmp.Or(checkRatio("polite look-ups", percentile(before, .99), percentile(during, .99), late),
		checkRatio("health, readiness and version", percentile(well, .99), percentile(vitals, .99), late))
}

// The waves and the budget change again and again under load, and no request is
// lost.
func TestIndexReloadUnderLoad(t *testing.T) {
	reloads := 20
	if isLong() {
		reloads = 200
	}
	file := filepath.Join(t.TempDir(), "micronode.toml")
	configure := func(alpha, beta, hedge, deadline int) {
		text := fmt.Sprintf("[index.dht]\nalpha = %d\nbeta = %d\nhedge_ms = %d\ndeadline_ms = %d\n", alpha, beta, hedge, deadline)
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil { // it is never seen half written
			t.Fatal(err)
		}
	}
	configure(1, 1, 10, 8000)
	quiet := testAddress("nobody says", 0)
	all := newFakeRouters(t, 4, func(w http.ResponseWriter, r *http.Request, address b3.Address) {
		if address == quiet {
			respondNever(w, r, address)
		} else {
			respondAfter(15*time.Millisecond)(w, r, address)
		}
	})
	p := startWith(t, nil, []string{"--config", file}, delegatedSettings(all)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	web := clientFrom(t, "127.0.0.1", 16)
	var asked, answered atomic.Int64
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for ctx.Err() == nil {
				n := int(asked.Add(1))
				f, err := lookupProviders(t.Context(), web, p.http, testAddress("reload", n))
				if err != nil || f.status != http.StatusOK || len(f.Providers.Providers) != 1 {
					t.Errorf("look-up %d: %d %s, %v", n, f.status, f.code, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for i := range reloads {
		before := answered.Load()
		configure(1+i%4, i%3, 5+i%50, 8000-i)
		p.reload()
		awaitCondition(t, p, "look-ups under the new settings", func() bool { return answered.Load() > before+20 || t.Failed() })
	}
	cancel()
	group.Wait()
	configure(2, 1, 20, 300)
	p.reload()
	retryMeasurement(t, func() error {
		f := p.lookupProviders(quiet)
		if f.status != http.StatusGatewayTimeout {
			return fmt.Errorf("with a deadline of 300 ms: %d %s after %s", f.status, f.code, f.took)
		}
		report(t, "index: reloads under load", "no look-up lost, and the last deadline holds", fmt.Sprintf("%d over %d reloads, 300 ms kept after %s", answered.Load(), reloads, rounded(f.took)))
		return checkBound(f.took, 350*time.Millisecond, "a look-up with a deadline of 300 ms")
	})
	p.stop(syscall.SIGTERM)
}

// reload has the configuration reloaded, and waits until it is in force.
func (p *process) reload() {
	p.t.Helper()
	before := p.metric("config_reload_total", "")
	if err := syscall.Kill(p.pid(), syscall.SIGHUP); err != nil {
		p.t.Fatal(err)
	}
	awaitCondition(p.t, p, "the reload", func() bool { return p.metric("config_reload_total", "") > before })
	if rejected := p.metric("config_reload_total", `"rejected"`); rejected != 0 {
		p.t.Fatalf("%v reloads were rejected:\n%s", rejected, p.stderr)
	}
}
