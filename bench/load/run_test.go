package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serve starts a fake peer on loopback.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func get(length int, body []byte) Exchange {
	return Exchange{Request: []byte("GET / HTTP/1.1\r\nHost: peer\r\n\r\n"), Status: 200, Length: length, Body: body}
}

// nTimes is a script that sends n requests in all.
func nTimes(n int64, exchange Exchange) Script {
	var sent atomic.Int64
	return func(int) (Exchange, bool) { return exchange, sent.Add(1) <= n }
}

func TestEveryRequestIsSentAndCounted(t *testing.T) {
	var seen atomic.Int64
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		fmt.Fprint(w, "hello")
	})
	report, err := Run(t.Context(), Plan{Address: at, Connections: 300, Script: nTimes(1000, get(5, []byte("hello")))})
	if err != nil {
		t.Fatal(err)
	}
	if report.Responses != 1000 || seen.Load() != 1000 || report.Latency.Count() != 1000 {
		t.Errorf("%d answers, %d timed, %d requests seen, want 1000", report.Responses, report.Latency.Count(), seen.Load())
	}
	if report.Rate() <= 0 || report.Latency.Quantile(0.5) <= 0 {
		t.Errorf("rate %v, p50 %v", report.Rate(), report.Latency.Quantile(0.5))
	}
}

func TestOnlyAnswersWithinTheTimeCount(t *testing.T) {
	var seen atomic.Int64
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		fmt.Fprint(w, "hello")
	})
	plan := Plan{Address: at, Connections: 2, Warmup: time.Second, Duration: time.Second, Script: Always(get(5, nil))}
	report, err := Run(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if report.Elapsed != plan.Duration {
		t.Errorf("elapsed %s, want %s", report.Elapsed, plan.Duration)
	}
	// At the end one answer on each connection may come too late to count; what
	// is missing beyond that is the warm-up.
	if missing := seen.Load() - int64(report.Responses); report.Responses == 0 || missing <= int64(plan.Connections) {
		t.Errorf("%d of %d answers counted: the warm-up must not be", report.Responses, seen.Load())
	}
}

// Connections beyond 128 come from the next address of the loopback net.
func TestManyConnectionsComeFromSeveralAddresses(t *testing.T) {
	var second atomic.Int64
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.RemoteAddr, "127.0.0.2:") {
			second.Add(1)
		}
		fmt.Fprint(w, "hello")
	})
	seen := make([]bool, connsPerSource+3)
	script := func(connection int) (Exchange, bool) {
		first := !seen[connection]
		seen[connection] = true
		return get(5, nil), first
	}
	if _, err := Run(t.Context(), Plan{Address: at, Connections: len(seen), Script: script}); err != nil {
		t.Fatal(err)
	}
	if got := second.Load(); got != 3 {
		t.Errorf("%d requests from 127.0.0.2, want 3", got)
	}
}

// A request that is larger than the kernel accepts at once is sent in parts.
func TestLargeRequests(t *testing.T) {
	const size = 32 << 20
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	post := Exchange{
		Request: append(fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: peer\r\nContent-Length: %d\r\n\r\n", size), make([]byte, size)...),
		Status:  200, Length: AnyLength, Contains: fmt.Append(nil, size),
	}
	report, err := Run(t.Context(), Plan{Address: at, Connections: 2, Script: nTimes(4, post)})
	if err != nil || report.Responses != 4 {
		t.Fatal(report, err)
	}
}

func TestTheFirstWrongAnswerEndsTheRun(t *testing.T) {
	var seen atomic.Int64
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) == 100 {
			http.Error(w, "enough", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "hello")
	})
	_, err := Run(t.Context(), Plan{Address: at, Connections: 4, Duration: time.Minute, Script: Always(get(5, nil))})
	if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "enough") {
		t.Errorf("said %v", err)
	}
}

// A body that differs is detected although its length is right: at the latest
// 64 answers later.
func TestWrongBytesAreFound(t *testing.T) {
	var seen atomic.Int64
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1) > 10 {
			fmt.Fprint(w, "hallo")
			return
		}
		fmt.Fprint(w, "hello")
	})
	_, err := Run(t.Context(), Plan{Address: at, Connections: 1, Script: nTimes(compareEvery+1, get(5, []byte("hello")))})
	if err == nil || !strings.Contains(err.Error(), "other bytes") {
		t.Errorf("said %v", err)
	}
}

func TestAClosedConnectionIsAFailure(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "hello")
	})
	_, err := Run(t.Context(), Plan{Address: at, Connections: 1, Duration: time.Minute, Script: Always(get(5, nil))})
	if err == nil || !strings.Contains(err.Error(), "closed the connection") {
		t.Errorf("said %v", err)
	}
}

func TestBytesThatNobodyAskedForAreAFailure(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			fmt.Fprint(c, hello) // before any request
		}
	}()
	// The second connection sends nothing; the first keeps the run going.
	script := func(connection int) (Exchange, bool) { return get(5, nil), connection == 0 }
	_, err = Run(t.Context(), Plan{Address: listener.Addr().String(), Connections: 2, Threads: 1, Script: script})
	if err == nil || !strings.Contains(err.Error(), "nobody asked for") {
		t.Errorf("said %v", err)
	}
}

func TestSilenceIsAFailure(t *testing.T) {
	release := make(chan struct{})
	at := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	_, err := Run(t.Context(), Plan{Address: at, Connections: 1, IdleTimeout: time.Millisecond, Script: Always(get(5, nil))})
	if err == nil || !strings.Contains(err.Error(), "no answer for") {
		t.Errorf("said %v", err)
	}
}

func TestCancelEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		fmt.Fprint(w, "hello")
	})
	if _, err := Run(ctx, Plan{Address: at, Connections: 4, Script: Always(get(5, nil))}); err == nil {
		t.Error("the run ended well although it was canceled")
	}
}

// A panic in a script must not end the program before it has stopped the peers.
func TestAPanicIsAnError(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })
	_, err := Run(t.Context(), Plan{Address: at, Connections: 1, Script: func(int) (Exchange, bool) { panic("oops") }})
	if err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("said %v", err)
	}
}

func TestPlansThatAreRefused(t *testing.T) {
	script := Always(get(5, nil))
	for name, c := range map[string]struct {
		plan Plan
		says string
	}{
		"not an address":  {Plan{Address: "localhost", Connections: 1, Script: script}, "the address of the plan"},
		"not loopback":    {Plan{Address: "192.0.2.1:80", Connections: 1, Script: script}, "not IPv4 loopback"},
		"not IPv4":        {Plan{Address: "[::1]:80", Connections: 1, Script: script}, "not IPv4 loopback"},
		"no connections":  {Plan{Address: "127.0.0.1:80", Script: script}, "needs connections"},
		"no script":       {Plan{Address: "127.0.0.1:80", Connections: 1}, "needs connections and a script"},
		"nobody there":    {Plan{Address: "127.0.0.1:1", Connections: 1, Script: script}, "refused"},
		"nothing to send": {Plan{Address: serve(t, nil), Connections: 1, Script: nTimes(0, Exchange{})}, "no answer came"},
	} {
		if _, err := Run(t.Context(), c.plan); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: said %v", name, err)
		}
	}
}
