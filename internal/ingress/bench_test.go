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

// sink is a connection that takes everything.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error)      { return len(p), nil }
func (sink) SetReadDeadline(time.Time) error  { return nil }
func (sink) SetWriteDeadline(time.Time) error { return nil }

// warmHit is one warm request on a connection, without the kernel.
func warmHit(tb testing.TB, headers string) func() {
	f := newWarmFixture(tb, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1<<30, 1<<30 })
	memory := newMemory()
	l := f.server.Attach(memory, ListenOptions{Name: "http", Warm: true})
	c, why := l.admit(&addressed{sink{}, memory.addr})
	if why != "" {
		tb.Fatal(why)
	}
	request := "GET /w/small HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n" + headers + "\r\n"
	w := c.warm
	w.buffer = new(warmBuffer)
	copy(w.buffer.in[:], request)
	return func() {
		w.from, w.to = 0, len(request)
		if !c.answerWarm(w) {
			tb.Fatal("not warm")
		}
	}
}

type addressed struct {
	sink
	addr net.Addr
}

func (a *addressed) RemoteAddr() net.Addr { return a.addr }

const browserHeaders = "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate, br\r\nConnection: keep-alive\r\nX-Corr-ID: 0123456789abcdef\r\n"

func TestAWarmHitDoesNotAllocate(t *testing.T) {
	for name, headers := range map[string]string{"plain": "", "as a browser": browserHeaders} {
		hit := warmHit(t, headers)
		hit() // fills what is filled once
		if n := testing.AllocsPerRun(2000, hit); n != 0 {
			t.Errorf("%s: %v allocations a request", name, n)
		}
	}
}

// BenchmarkWarmHit is the lane alone: recognise, find, count, write to nobody.
func BenchmarkWarmHit(b *testing.B) {
	hit := warmHit(b, browserHeaders)
	b.ReportAllocs()
	for b.Loop() {
		hit()
	}
}

// chainAllocations is what a request costs beyond what net/http allocates.
const chainAllocations = 16

// TestWhatTheChainAllocates guards the cost of a small answer.
func TestWhatTheChainAllocates(t *testing.T) {
	ask := chainRequest(t)
	ask()
	if n := testing.AllocsPerRun(500, ask); n > chainAllocations {
		t.Errorf("%v allocations a request, at most %d are allowed", n, chainAllocations)
	}
}

// BenchmarkChain is the chain alone, for a small answer of a control route.
func BenchmarkChain(b *testing.B) {
	ask := chainRequest(b)
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

func chainRequest(tb testing.TB) func() {
	f := newFixture(tb, []Route{control("GET", "/x/{id}", answers("hello"))}, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1<<30, 1<<30 })
	memory := newMemory()
	l := f.server.Attach(memory, ListenOptions{Name: "http"})
	c, _ := l.admit(&addressed{sink{}, memory.addr})
	r, _ := http.NewRequestWithContext(context.WithValue(context.Background(), connKey{}, c), "GET", "http://localhost/x/1", nil)
	w := &discard{http.Header{}}
	return func() {
		clear(w.header)
		f.server.ServeHTTP(w, r)
	}
}

// BenchmarkWarmGet and BenchmarkColdGet ask for 16 KiB over loopback, on one
// connection for each processor. bench/ measures them beside other servers.
func BenchmarkWarmGet(b *testing.B) { benchmarkGet(b, true) }
func BenchmarkColdGet(b *testing.B) { benchmarkGet(b, false) }

func benchmarkGet(b *testing.B, warm bool) {
	f := newWarmFixture(b, func(o *Options) { o.Limits.Rate, o.Limits.Burst = 1<<30, 1<<30 })
	f.fixture.open(func(o *ListenOptions) { o.Warm = warm })
	request := []byte("GET /w/small HTTP/1.1\r\nHost: localhost\r\n\r\n")
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

// answerLength is how many bytes an answer has, head and body.
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

func BenchmarkPeers(b *testing.B) {
	p := newPeers(DefaultLimits(), false)
	ip := netip.MustParseAddr("10.0.0.1")
	b.ReportAllocs()
	for b.Loop() {
		one, _ := p.join(ip)
		p.leave(one)
	}
}
