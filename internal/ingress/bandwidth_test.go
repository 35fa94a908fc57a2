package ingress

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/bandwidth"
	"micronode/internal/config"
)

const kib = 1 << 10

// pacedFixture listens where everybody can connect, with limits of bytes.
func pacedFixture(t *testing.T, limits bandwidth.Settings, routes []Route, changes ...func(*Options)) *fixture {
	on := ListenOptions{Name: "http", Addr: "192.0.2.1:8080"}
	f := newFixture(t, routes, append([]func(*Options){func(o *Options) { o.Bandwidth = bandwidth.New(o.Inventory, limits) }}, changes...)...)
	f.mem = newMemListener()
	f.mem.addr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(on.Addr))
	f.serve(f.server.Attach(f.mem, on))
	return f
}

// readers count what the readers of each client have read.
type readers struct {
	f     *fixture
	all   sync.WaitGroup
	conns []net.Conn
	cut   atomic.Int64
}

// read reads a path on so many connections of a client, as fast as it comes.
func (r *readers) read(from, conns int, path string, headers ...string) *atomic.Int64 {
	n := new(atomic.Int64)
	for range conns {
		c := r.f.dialFrom(from)
		r.conns = append(r.conns, c)
		c.send("GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, lines(headers))
		r.all.Go(func() {
			buffer := make([]byte, 64*kib)
			for {
				m, err := c.Read(buffer)
				if n.Add(int64(m)); err != nil {
					r.cut.Add(1)
					return
				}
			}
		})
	}
	return n
}

func (r *readers) close() {
	for _, c := range r.conns {
		c.Close()
	}
	r.all.Wait()
}

// bigRoute is a read that has no end.
func bigRoute() Route {
	big := transfer("GET", "/big", endless)
	big.Scope, big.Cheap, big.Public = "", true, PublicTiles
	return big
}

// wantAbout checks a rate.
func wantAbout(t *testing.T, what string, got, want int64) {
	t.Helper()
	if got < want*9/10 || got > want*11/10 {
		t.Errorf("%s: %d bytes a second, want %d", what, got, want)
	}
}

// However slow a limit of the node makes them, transfers are not cut for it, and
// get the same.
func TestALimitOfTheNodeCutsNoTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := pacedFixture(t, bandwidth.Settings{Up: 32 * kib}, []Route{bigRoute()})
		r := &readers{f: f}
		const clients = 150 // a turn takes 50 ms, and so each has one in 7.5 s
		var all [clients]*atomic.Int64
		for i := range clients {
			all[i] = r.read(i, 1, "/big")
		}
		time.Sleep(5 * time.Minute)
		if n := r.cut.Load(); n > 0 {
			t.Errorf("%d of %d transfers were cut", n, clients)
		}
		for i, n := range all {
			if got, want := n.Load(), int64(32*kib*300/clients); got < want*8/10 || got > want*12/10 {
				t.Errorf("client %d got %d bytes, want about %d", i, got, want)
			}
		}
		r.close()
	})
}

// The same holds for uploads, and for HTTP/2, where deadlines are those of a
// stream.
func TestALimitOfTheNodeCutsNoStreamOfHTTP2(t *testing.T) {
	const clients, size = 120, 8 * kib
	for name, c := range map[string]struct{ method, path string }{"up": {"GET", "/some"}, "down": {"POST", "/take"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				authority := newAuthority(t) // here, so that its certificates are valid in the bubble
				some := transfer("GET", "/some", func(w http.ResponseWriter, _ *http.Request) error {
					for range size / kib {
						if _, err := w.Write(make([]byte, kib)); err != nil {
							return err
						}
					}
					return nil
				})
				some.Scope = ""
				take := transfer("POST", "/take", func(w http.ResponseWriter, r *http.Request) error {
					n, err := io.Copy(io.Discard, r.Body)
					if err == nil && n != size {
						t.Errorf("%d bytes arrived", n)
					}
					return err
				})
				f := newFixture(t, []Route{some, take}, func(o *Options) {
					o.Bandwidth = bandwidth.New(o.Inventory, bandwidth.Settings{Up: 32 * kib, Down: 32 * kib})
					o.Limits.HandshakeRate, o.Limits.HandshakeBurst = 1<<20, 1<<20
				})
				f.mem = newMemListener()
				f.mem.addr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:8443"))
				f.serve(f.server.Attach(f.mem, ListenOptions{Name: "http", TLS: f.keyring(authority.issue("server"))}))
				var all sync.WaitGroup
				for i := range clients {
					web := f.http2From(authority, i)
					all.Go(func() {
						defer web.CloseIdleConnections()
						var body io.Reader
						if c.method == "POST" {
							body = strings.NewReader(strings.Repeat("x", size))
						}
						request, _ := http.NewRequestWithContext(t.Context(), c.method, "https://localhost"+c.path, body)
						answer, err := web.Do(request)
						if err != nil {
							t.Error(err)
							return
						}
						defer answer.Body.Close()
						if n, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != 200 || c.method == "GET" && n != size {
							t.Errorf("%d, %d bytes: %v", answer.StatusCode, n, err)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// http2From is a browser at the address of a client.
func (f *fixture) http2From(a *authority, n int) *http.Client {
	over := new(http.Protocols)
	over.SetHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols: over, TLSClientConfig: &tls.Config{RootCAs: a.pool},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return f.mem.connect(fmt.Sprintf("10.0.0.%d:4001", n))
		},
	}}
}

// A client with many connections gets no more than one with a single one.
func TestClientsShareTheBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := pacedFixture(t, bandwidth.Settings{Up: 1 << 20}, []Route{bigRoute()})
		r := &readers{f: f}
		greedy := r.read(1, 64, "/big")
		var rest []*atomic.Int64
		for i := range 9 {
			rest = append(rest, r.read(2+i, 1, "/big"))
		}
		time.Sleep(20 * time.Second)
		wantAbout(t, "the greedy one", greedy.Load()/20, 1<<20/10)
		for _, one := range rest {
			wantAbout(t, "one of the rest", one.Load()/20, 1<<20/10)
		}
		r.close()
	})
}

// What strangers read is bounded, and callers who are known are not.
func TestStrangersShareTheirBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := pacedFixture(t, bandwidth.Settings{}, []Route{bigRoute()}, func(o *Options) {
			o.Authorise, o.Times.Public, o.Limits.PublicBytes = knowsCallers, []string{"tiles"}, config.Rate(1<<20)
		})
		r := &readers{f: f}
		alone := r.read(2, 1, "/big")
		time.Sleep(20 * time.Second)
		wantAbout(t, "a stranger alone", alone.Load()/20, 1<<20)
		alone.Store(0)
		greedy := r.read(1, 64, "/big")
		time.Sleep(20 * time.Second)
		wantAbout(t, "beside a greedy one", alone.Load()/20, 1<<20/2)
		wantAbout(t, "the greedy one", greedy.Load()/20, 1<<20/2)
		known := f.dialFrom(1)
		known.send("GET /big HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good\r\n\r\n")
		began := time.Now()
		if _, err := io.CopyN(io.Discard, known.r, 64<<20); err != nil || time.Since(began) > time.Second {
			t.Errorf("with a capability 64 MiB took %s: %v", time.Since(began), err)
		}
		known.Close()
		r.close()
	})
}

// Small answers do not wait behind bulk, and callers on this machine have no
// limit.
func TestWhatDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := control("GET", "/small", respondWith("small"))
		small.Scope = ""
		f := pacedFixture(t, bandwidth.Settings{Up: 32 * kib, Down: 32 * kib}, []Route{bigRoute(), small})
		r := &readers{f: f}
		for i := range 20 {
			r.read(i, 4, "/big")
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		for i := range 20 {
			if answer := f.dialFrom(i).get("/small"); answer.body != "small" {
				t.Error(answer)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("small answers took %s", took)
		}
		r.close()

		here := newFixture(t, []Route{bigRoute()}, func(o *Options) { o.Bandwidth = bandwidth.New(o.Inventory, bandwidth.Settings{Up: 32 * kib}) }).listen()
		c := here.dial()
		c.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
		began = time.Now()
		if _, err := io.CopyN(io.Discard, c.r, 64<<20); err != nil || time.Since(began) > 0 {
			t.Errorf("on this machine 64 MiB took %s: %v", time.Since(began), err)
		}
		c.Close()
		if n := here.options.Bandwidth.Up().Bytes(bandwidth.Gateway); n != 0 {
			t.Errorf("%d bytes on this machine were counted", n)
		}
	})
}

// A client that would read faster is not the slowest one, and keeps its slot.
func TestWhoIsHeldBackDoesNotGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := transfer("GET", "/big", endless)
		big.Scope = ""
		f := pacedFixture(t, bandwidth.Settings{Up: 32 * kib}, []Route{big}, func(o *Options) { o.Limits.Inflight = 16 })
		r := &readers{f: f}
		for i := range 16 {
			r.read(i, 1, "/big")
		}
		time.Sleep(2*slowWindow + time.Second)
		r.read(100, 1, "/big")
		time.Sleep(time.Second)
		f.wantMetric(0, "rejected_total", "reason", "gave_way")
		r.close()
	})
}

// What has moved is counted as it moves, and a limit that is set while a
// transfer runs holds for the rest of it.
func TestALimitIsTakenUpByATransferUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := pacedFixture(t, bandwidth.Settings{Up: 1 << 20}, []Route{bigRoute()})
		r := &readers{f: f}
		n := r.read(1, 1, "/big")
		time.Sleep(10 * time.Second)
		f.options.Bandwidth.Set(bandwidth.Settings{Up: 64 * kib})
		before := n.Load()
		wantAbout(t, "before", before/10, 1<<20)
		time.Sleep(10 * time.Second)
		wantAbout(t, "after", (n.Load()-before)/10, 64*kib)
		if counted := f.options.Bandwidth.Up().Bytes(bandwidth.Gateway); counted < n.Load()*95/100 || counted > n.Load()+256*kib {
			t.Errorf("%d bytes were counted of %d", counted, n.Load())
		}
		r.close()
	})
}
