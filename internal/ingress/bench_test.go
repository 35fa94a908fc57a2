package ingress

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// sink is a connection that discards everything.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error)      { return len(p), nil }
func (sink) SetReadDeadline(time.Time) error  { return nil }
func (sink) SetWriteDeadline(time.Time) error { return nil }

// warmHit is one warm request on a connection, without the kernel.
func warmHit(tb testing.TB, headers string) func() { return warmHitFrom(tb, headers, nil) }

// warmHitFrom is the same with answers of another source.
func warmHitFrom(tb testing.TB, headers string, warm WarmSource) func() {
	f := newWarmFixture(tb, func(o *Options) {
		o.Limits.Rate, o.Limits.Burst = 1<<30, 1<<30
		if warm != nil {
			o.Warm = warm
		}
	})
	memory := newMemListener()
	l := f.server.Attach(memory, ListenOptions{Name: "http", Warm: true})
	c, why := l.admit(&addrConn{sink{}, memory.addr})
	if why != "" {
		tb.Fatal(why)
	}
	request := "GET /w/small HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n" + headers + "\r\n"
	w := c.warmConn
	w.buffer = new(warmBuffer)
	copy(w.buffer.in[:], request)
	return func() {
		w.from, w.to = 0, len(request)
		if !c.answerWarm(w) {
			tb.Fatal("not warm")
		}
	}
}

type addrConn struct {
	sink
	addr net.Addr
}

func (a *addrConn) RemoteAddr() net.Addr { return a.addr }

const browserHeaders = "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate, br\r\nConnection: keep-alive\r\nX-Corr-ID: 0123456789abcdef\r\n"

func TestAWarmHitDoesNotAllocate(t *testing.T) {
	for name, headers := range map[string]string{"plain": "", "as a browser": browserHeaders} {
		hit := warmHit(t, headers)
		hit() // fills the caches
		if n := testing.AllocsPerRun(2000, hit); n != 0 {
			t.Errorf("%s: %v allocations a request", name, n)
		}
	}
}

// BenchmarkWarmHit is the lane alone: recognise, find, count, write to a sink.
func BenchmarkWarmHit(b *testing.B) {
	hit := warmHit(b, browserHeaders)
	b.ReportAllocs()
	for b.Loop() {
		hit()
	}
}

// chainAllocations is what a request costs beyond what net/http allocates.
const chainAllocations = 12

// contentAllocations is the same for a content that is transferred.
const contentAllocations = 13

// TestWhatTheChainAllocates guards the cost of a small answer.
func TestWhatTheChainAllocates(t *testing.T) {
	for name, c := range map[string]struct {
		ask  func()
		most float64
	}{"control": {controlRequest(t), chainAllocations}, "content": {contentRequest(t), contentAllocations}} {
		c.ask()
		if n := testing.AllocsPerRun(500, c.ask); n > c.most {
			t.Errorf("%s: %v allocations a request, at most %v are allowed", name, n, c.most)
		}
	}
}

// BenchmarkChain is the chain alone, for a small answer of a control route.
func BenchmarkChain(b *testing.B) {
	ask := controlRequest(b)
	b.ReportAllocs()
	for b.Loop() {
		ask()
	}
}

// BenchmarkContent is the chain alone, for a content of 16 KiB.
func BenchmarkContent(b *testing.B) {
	ask := contentRequest(b)
	b.ReportAllocs()
	for b.Loop() {
		ask()
	}
}

// discard is a response writer that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header              { return d.header }
func (d *discard) Write(p []byte) (int, error)      { return len(p), nil }
func (d *discard) WriteHeader(int)                  {}
func (d *discard) SetWriteDeadline(time.Time) error { return nil }

func controlRequest(tb testing.TB) func() {
	return chainCall(tb, control("GET", "/x/{id}", respondWith("hello")))
}

func contentRequest(tb testing.TB) func() {
	content := contentOf(smallBody)
	content.Ready = true
	return chainCall(tb, transfer("GET", "/x/{id}", func(w http.ResponseWriter, r *http.Request) error {
		_, err := ServeContent(w, r, content)
		return err
	}))
}

// chainCall is one request through the chain, without a socket.
func chainCall(tb testing.TB, route Route) func() {
	f := newFixture(tb, []Route{route}, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1<<30, 1<<30 })
	memory := newMemListener()
	l := f.server.Attach(memory, ListenOptions{Name: "http"})
	c, _ := l.admit(&addrConn{sink{}, memory.addr})
	r, _ := http.NewRequestWithContext(context.WithValue(context.Background(), connKey{}, c), "GET", "http://localhost/x/1", nil)
	w := &discard{http.Header{}}
	return func() {
		clear(w.header)
		f.server.ServeHTTP(w, r)
	}
}

// BenchmarkWarmGet and BenchmarkColdGet request 16 KiB over loopback, on one
// connection for each processor. bench/ measures them beside other servers.
func BenchmarkWarmGet(b *testing.B) { benchmarkGet(b, true, "/w/small") }
func BenchmarkMadeGet(b *testing.B) { benchmarkGet(b, true, "/m/small") }
func BenchmarkFileGet(b *testing.B) { benchmarkGet(b, true, "/f/small") }
func BenchmarkColdGet(b *testing.B) { benchmarkGet(b, false, "/w/small") }

func benchmarkGet(b *testing.B, warm bool, path string) {
	f := newWarmFixture(b, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1<<30, 1<<30 })
	f.fixture.listenTCP(func(o *ListenOptions) { o.Warm = warm })
	request := []byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
	length := answerLength(b, f, request)
	b.SetBytes(int64(len(smallBody)))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", f.listener.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		buffer := make([]byte, length)
		for pb.Next() {
			if _, err := c.Write(request); err != nil {
				b.Error(err)
				return
			}
			if _, err := io.ReadFull(c, buffer); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// answerLength is how many bytes an answer has, header and body.
func answerLength(b *testing.B, f *warmFixture, request []byte) int {
	c := f.dialReal()
	defer c.Close()
	c.Write(request)
	head := 0
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		if head += len(line); strings.TrimSpace(line) == "" {
			return head + len(smallBody)
		}
	}
}

func BenchmarkClientTable(b *testing.B) {
	p := newClientTable(DefaultLimits(), true, firstLaneShare) // otherwise it would run into the rate
	ip := netip.MustParseAddr("10.0.0.1")
	b.ReportAllocs()
	for b.Loop() {
		one, _ := p.acquire(ip, false)
		p.release(one)
	}
}
