//go:build gates

package gates

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
)

// A hostile client of one service, at the defaults, beside a good one of the
// same service at another address. The good one is served, and its p99 stays
// within twice its quiet value, less what a bare timer was late.

// clientOp is one operation of a good client; it must be served.
type clientOp func(i int) error

// timeOps calls do n times, at a moderate rate, and returns how long each took.
func timeOps(do clientOp, interval time.Duration, next *int, n int) (took []time.Duration, err error) {
	for range n {
		*next++
		begun := time.Now()
		if err := do(*next); err != nil {
			return took, fmt.Errorf("a good client: %w", err)
		}
		took = append(took, time.Since(begun))
		time.Sleep(interval)
	}
	return took, nil
}

// compareLatency measures a good client alone and beside a hostile one, in
// turns, so that other load of this machine is in both. The medians of the p99s
// count.
func compareLatency(t *testing.T, gate string, do clientOp, attack func() (end func())) {
	t.Helper()
	compareLatencyAt(t, gate, 10*time.Millisecond, do, attack)
}

// compareLatencyAt is compareLatency with a pause of its own between two
// operations.
func compareLatencyAt(t *testing.T, gate string, interval time.Duration, do clientOp, attack func() (end func())) {
	t.Helper()
	const rounds, each = 3, 40
	next := 0
	retryMeasurement(t, func() error {
		var quiet, busy, timers []time.Duration
		for range rounds {
			alone, err := timeOps(do, interval, &next, each)
			if err != nil {
				return fmt.Errorf("%s, nobody else: %w", gate, err)
			}
			end := attack()
			timer := watchTimer()
			beside, err := timeOps(do, interval, &next, each)
			late := timer()
			end()
			if err != nil {
				return fmt.Errorf("%s: %w", gate, err)
			}
			quiet, busy = append(quiet, percentile(alone, 0.99)), append(busy, percentile(beside, 0.99))
			timers = append(timers, late.p99)
		}
		before, during, late := percentile(quiet, 0.5), percentile(busy, 0.5), lateness{p99: percentile(timers, 0.5)}
		reportRatio(t, gate, before, during, late)
		return checkRatio(fmt.Sprintf("%s: a good client (%v, quiet %v)", gate, busy, quiet), before, during, late)
	})
}

// hostileClient sends requests from one address, from several callers, each of
// which waits a little after every answer: together above the rate limit of the
// address.
type hostileClient struct {
	ip      string
	callers int
	pause   time.Duration
	rampUp  time.Duration // over which the callers start: their number matters, not that they start at once
	send    func(ctx context.Context, web *http.Client, i int) (code string)

	sent  atomic.Int64
	mu    sync.Mutex
	codes map[string]int // answers by code
}

// start sends until the returned function is called. It returns when all have
// begun.
func (h *hostileClient) start(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	web := clientFrom(t, h.ip, h.callers)
	begun := h.sent.Load()
	var group sync.WaitGroup
	for i := range h.callers {
		group.Go(func() {
			sleepContext(ctx, h.rampUp*time.Duration(i)/time.Duration(h.callers))
			for ctx.Err() == nil {
				code := h.send(ctx, web, int(h.sent.Add(1)))
				if ctx.Err() != nil {
					return
				}
				h.mu.Lock()
				if h.codes == nil {
					h.codes = map[string]int{}
				}
				h.codes[code]++
				h.mu.Unlock()
				sleepContext(ctx, h.pause)
			}
		})
	}
	answers := func() (n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, each := range h.codes {
			n += each
		}
		return n
	}
	for limit := time.Now().Add(30 * time.Second); h.sent.Load() < begun+int64(h.callers) || answers() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			cancel()
			t.Fatalf("%s: %d of %d callers have begun, and %d answers came", h.ip, h.sent.Load()-begun, h.callers, answers())
		}
	}
	return func() { cancel(); group.Wait(); web.CloseIdleConnections() }
}

func sleepContext(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// responseCodes is its answers by code. Everything must have a code.
func (h *hostileClient) responseCodes(t *testing.T) map[string]int {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for code := range h.codes {
		if strings.Contains(code, " ") || code == "" {
			t.Errorf("a hostile client was told %q, which is no code", code)
		}
	}
	t.Logf("the hostile client at %s was told %v", h.ip, h.codes)
	return h.codes
}

// requestSerial makes each request unique.
var requestSerial atomic.Int64

// send is a request, and the code of the answer: 200 and the like, or that of a
// problem.
func send(ctx context.Context, web *http.Client, method, url, token, body string) string {
	status, code, _, err := doRequest(ctx, web, method, url, token, []byte(body), "Content-Type", "application/json", "Idempotency-Key", fmt.Sprint(requestSerial.Add(1)))
	switch {
	case err != nil:
		return err.Error()
	case status < 400:
		return fmt.Sprint(status)
	}
	return code
}

// requestOK requires the answer to a request to be a success.
func requestOK(t *testing.T, web *http.Client, method, url, token, body string) error {
	status, _, text, err := doRequest(t.Context(), web, method, url, token, []byte(body), "Content-Type", "application/json", "Idempotency-Key", fmt.Sprint(requestSerial.Add(1)))
	if err != nil || status >= 300 {
		return fmt.Errorf("%s %s: %d %s, %v", method, url, status, text, err)
	}
	return nil
}

// One address puts objects as fast as it can, without a token and then with
// one. Clients at other addresses are served.
func TestPutFlood(t *testing.T) {
	p := start(t, nil)
	token := p.token("object:put")
	web := clientFrom(t, "127.0.0.9", 2)
	good := func(i int) error {
		return requestOK(t, web, http.MethodPost, p.http+"/put", token, fmt.Sprint("good ", i))
	}
	for gate, right := range map[string]string{"objects: a flood of puts without a token": "", "objects: a flood of puts": token} {
		flood := &hostileClient{ip: "127.0.0.2", callers: 16, pause: 16 * time.Millisecond, send: func(ctx context.Context, web *http.Client, i int) string {
			return send(ctx, web, http.MethodPost, p.http+"/put", right, fmt.Sprint("flood ", i%1000))
		}}
		compareLatency(t, gate, good, func() func() { return flood.start(t) })
		flood.responseCodes(t)
	}
	p.stop(syscall.SIGTERM)
}

// One address begins as many uploads as it can and hardly continues them.
// Uploads from other addresses are served, and the node is ready for writes.
func TestSlowUploads(t *testing.T) {
	p := start(t, nil)
	token := p.token("object:put")
	web := clientFrom(t, "127.0.0.9", 2)
	good := func(i int) error {
		return requestOK(t, web, http.MethodPost, p.http+"/o", token, fmt.Sprint("good ", i))
	}
	slow := &hostileClient{ip: "127.0.0.2", callers: 240, pause: time.Second, rampUp: time.Second, send: func(ctx context.Context, _ *http.Client, _ int) string {
		return p.slowUpload(ctx, "127.0.0.2", token)
	}}
	compareLatency(t, "objects: slow uploads", good, func() func() {
		end := slow.start(t)
		if now := p.readyz(); !now.WriteReady {
			t.Errorf("one client with slow uploads stops all writes: %s", now.reasons())
		}
		return end
	})
	if codes := slow.responseCodes(t); codes["Busy"] == 0 {
		t.Errorf("nobody was told that it has too much under way: %v", codes)
	}
	p.stop(syscall.SIGTERM)
}

// slowUpload sends a byte of a body per second until ctx ends or it is
// answered, and returns the code.
func (p *process) slowUpload(ctx context.Context, ip, token string) (code string) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(p.http, "http://"))
	if err != nil {
		return "cut"
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	fmt.Fprintf(conn, "POST /o HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", token, 1<<20)
	answered := make(chan string, 1)
	go func() {
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			answered <- "cut"
			return
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		answered <- cmp.Or(problemCode(text), answer.Status)
	}()
	for {
		_, _ = conn.Write([]byte{0})
		select {
		case code := <-answered:
			return code
		case <-time.After(time.Second):
		}
	}
}

// One address looks up names that hang at a router, as many at a time as it
// may. Look-ups of other names are answered.
func TestHangingLookups(t *testing.T) {
	all := newFakeRouters(t, 2, func(w http.ResponseWriter, r *http.Request, address b3.Address) {
		if address[0] == floodPrefix {
			respondNever(w, r, address)
		} else {
			writeProviders(w, someProvider)
		}
	})
	p := start(t, nil, delegatedSettings(all)[0])
	web := clientFrom(t, "127.0.0.9", 2)
	good := func(i int) error {
		key := testAddress("good", i)
		key[0] = 0
		f, err := lookupProviders(t.Context(), web, p.http, key)
		if err == nil && (f.status != http.StatusOK || len(f.Providers.Providers) != 1) {
			err = fmt.Errorf("%d %s", f.status, f.code)
		}
		return err
	}
	flood := &hostileClient{ip: "127.0.0.2", callers: 250, pause: 200 * time.Millisecond, rampUp: time.Second, send: func(ctx context.Context, web *http.Client, i int) string {
		key := testAddress("hangs", i)
		key[0] = floodPrefix
		return send(ctx, web, http.MethodGet, p.http+"/providers/"+key.String(), "", "")
	}}
	compareLatency(t, "index: look-ups that hang at a router", good, func() func() { return flood.start(t) })
	flood.responseCodes(t)
	p.awaitWhole(20 * time.Second)
	p.stop(syscall.SIGTERM)
}

// One address proposes as fast as it can, without a token and then with one.
// Commits from other addresses are served.
func TestProposalFlood(t *testing.T) {
	p := start(t, nil)
	c := newTestRegistry(t)
	c.initRegistry(p)
	k := c.newClient(p)
	k.web = clientFrom(t, "127.0.0.9", 2)
	for gate, right := range map[string]string{"registry: a flood of proposals without a token": "", "registry: a flood of proposals": p.token("registry:propose")} {
		flood := &hostileClient{ip: "127.0.0.2", callers: 16, pause: 16 * time.Millisecond, send: func(ctx context.Context, web *http.Client, i int) string {
			return send(ctx, web, http.MethodPost, p.http+"/registry/proposals", right,
				fmt.Sprintf(`{"schema_version":"1.0.0","ops":[{"op":"put","item":{"kind":"name","id":"flood-%d","manifest":"b3:%064x"}}]}`, i, i))
		}}
		compareLatencyAt(t, gate, 25*time.Millisecond, k.commitChange, func() func() { return flood.start(t) }) // each is four requests
		flood.responseCodes(t)
	}
	p.stop(syscall.SIGTERM)
}

// commitChange proposes, approves twice and commits.
func (c *registryClient) commitChange(int) error {
	id, err := c.proposeAndApprove(c.registry.t.Context())
	if err == nil {
		_, err = c.commit(c.registry.t.Context(), id)
	}
	return err
}

// One address waits at as many empty boxes as it may, and sends as fast as it
// can. Clients of other boxes are served.
func TestMailFlood(t *testing.T) {
	p := start(t, nil)
	token := p.token("mbox:send", "mbox:recv")
	web := clientFrom(t, "127.0.0.9", 2)
	waiting := &hostileClient{ip: "127.0.0.2", callers: 200, pause: 500 * time.Millisecond, rampUp: 500 * time.Millisecond, send: func(ctx context.Context, web *http.Client, i int) string {
		return send(ctx, web, http.MethodPost, p.http+"/mbox/recv", token, fmt.Sprintf(`{"box":"empty-%d","wait_s":20}`, i%50))
	}}
	sending := &hostileClient{ip: "127.0.0.2", callers: 16, pause: 16 * time.Millisecond, send: func(ctx context.Context, web *http.Client, i int) string {
		return send(ctx, web, http.MethodPost, p.http+"/mbox/send", token, `{"box":"rude","body":"aGk="}`)
	}}
	compareLatency(t, "mailbox: a flood of receivers and of messages", p.sendAndReceive(web, token), func() func() {
		first := waiting.start(t)
		second := sending.start(t)
		return func() { second(); first() }
	})
	waiting.responseCodes(t)
	sending.responseCodes(t)
	p.stop(syscall.SIGTERM)
}

// sendAndReceive sends a message and receives one.
func (p *process) sendAndReceive(web *http.Client, token string) clientOp {
	return func(int) error {
		if err := requestOK(p.t, web, http.MethodPost, p.http+"/mbox/send", token, `{"box":"good","body":"aGk="}`); err != nil {
			return err
		}
		return requestOK(p.t, web, http.MethodPost, p.http+"/mbox/recv", token, `{"box":"good","visibility_timeout_s":600}`)
	}
}
