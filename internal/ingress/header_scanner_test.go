package ingress

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

const aChunk = "5\r\nhello\r\n0\r\n\r\n"

// A request whose length can be read in two ways is refused, and what follows
// it on its connection is not a request.
func TestRequestsOfTwoLengths(t *testing.T) {
	f := newFixture(t, []Route{control("POST GET", "/{any}", echo)}).listen()
	for name, one := range map[string]struct {
		version, headers, body string
		status                 int
		open                   bool
	}{
		"chunks":                     {"1.1", "Transfer-Encoding: chunked\r\n", aChunk, 200, true},
		"a length":                   {"1.1", "Content-Length: 5\r\n", "hello", 200, true},
		"both":                       {"1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", aChunk, 400, false},
		"both, the other way round":  {"1.1", "content-LENGTH: 5\r\nTRANSFER-encoding: chunked\r\n", aChunk, 400, false},
		"both, with bare line feeds": {"1.1", "X: y\nContent-Length: 5\nTransfer-Encoding: chunked\n", aChunk, 400, false},
		"chunks in 1.0":              {"1.0", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", aChunk, 400, false},
		"both in 1.0":                {"1.0", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", "hello", 400, false},
		"a length in 1.0":            {"1.0", "Connection: keep-alive\r\nContent-Length: 5\r\n", "hello", 200, true},
		"nothing in 1.0":             {"1.0", "Connection: keep-alive\r\n", "", 200, true},
		"a body that looks like it":  {"1.0", "Connection: keep-alive\r\nContent-Length: 30\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n"[:30], 200, true},
		"a name in a value":          {"1.1", "X: Content-Length:\r\nContent-Lengthy: 5\r\nTransfer-Encoding: chunked\r\n", aChunk, 200, true},
	} {
		// At once, byte by byte, on a connection that was used before, and behind
		// requests whose answers the client does not wait for.
		for i, way := range []string{"whole", "drip", "second", "behind a get", "behind a length", "behind chunks", "behind many"} {
			path := []string{"/a", "/echo1234", "/a-longer-path", "/b", "/c", "/d", "/e"}[i]
			c := f.dial()
			if way == "second" {
				c.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%s", aChunk)
				c.receive()
				c.send("\r\n") // after a POST net/http accepts this
			}
			text := "POST " + path + " HTTP/" + one.version + "\r\nHost: localhost\r\n" + one.headers + "\r\n" + one.body
			before := map[string]string{
				"behind a get":    "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n",
				"behind a length": "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
				"behind chunks":   "POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n",
			}
			before["behind many"] = strings.Repeat(before["behind a get"]+before["behind chunks"]+before["behind a length"], 20)
			text = before[way] + text
			for len(text) > 0 {
				n := len(text)
				if way == "drip" {
					n = 1
				}
				if _, err := io.WriteString(c.Conn, text[:n]); err != nil {
					break // it has been refused
				}
				text = text[n:]
			}
			for range strings.Count(before[way], " /a HTTP/1.1") {
				if first := c.receive(); first.StatusCode != 200 {
					t.Fatalf("%s, %s: before it %d %q", name, way, first.StatusCode, first.body)
				}
			}
			r := c.receive()
			if r.StatusCode != one.status || one.status == 200 && one.body != "" && !strings.Contains(one.body, r.body) {
				t.Errorf("%s, %s: %d %q", name, way, r.StatusCode, r.body)
			}
			if one.status == 400 {
				r.wantRefusal(t, 400, "Malformed")
			}
			if one.open {
				if again := c.get("/echo"); again.StatusCode != 200 {
					t.Errorf("%s, %s: %d", name, way, again.StatusCode)
				}
			} else if !c.closed() {
				t.Errorf("%s, %s: the connection is still open", name, way)
			}
		}
	}
}

// Where the bytes of a header cannot be scanned, the connection does not
// outlive a request that might be ambiguous.
func TestLengthsThatNobodySees(t *testing.T) {
	a := newAuthority(t)
	f := newFixture(t, []Route{control("POST GET", "/echo", echo)})
	ring := f.keyring(a.issue("server"))
	f.listenTCP(func(o *ListenOptions) { o.TLS = ring })
	for name, one := range map[string]struct {
		version, headers, body string
		status                 int
		open                   bool
	}{
		"a length":        {"1.1", "Content-Length: 5\r\n", "hello", 200, true},
		"chunks":          {"1.1", "Transfer-Encoding: chunked\r\n", aChunk, 200, false},
		"chunks in 1.0":   {"1.0", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", aChunk, 411, false},
		"a length in 1.0": {"1.0", "Connection: keep-alive\r\nContent-Length: 5\r\n", "hello", 200, false},
	} {
		raw, err := tls.Dial("tcp", f.listener.Addr().String(), &tls.Config{RootCAs: a.pool})
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(t, raw)
		c.send("POST /echo HTTP/%s\r\nHost: localhost\r\n%s\r\n%s", one.version, one.headers, one.body)
		if r := c.receive(); r.StatusCode != one.status {
			t.Errorf("%s: %d %q", name, r.StatusCode, r.body)
		}
		if one.open {
			c.get("/echo")
		} else if !c.closed() {
			t.Errorf("%s: the connection is still open", name)
		}
	}
}

// A slow header is answered above TLS, too, in the middle of a line and between
// two. The handshake has no more time than the header, so it is not a short
// one.
func TestSlowHeadersOverTLS(t *testing.T) {
	a := newAuthority(t)
	f := newFixture(t, []Route{control("GET", "/x", respondWith("x"))}, func(o *Options) { o.Times.HeaderTimeout = 2 * time.Second })
	ring := f.keyring(a.issue("server"))
	f.listenTCP(func(o *ListenOptions) { o.TLS = ring })
	var slow []*client
	for _, most := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, text := range []string{"GET /x HTTP/1.1\r\nHost: localhost\r\n", "GET /x HTTP/1.1\r\nHost: local"} {
			raw, err := tls.Dial("tcp", f.listener.Addr().String(), &tls.Config{RootCAs: a.pool, MaxVersion: most})
			if err != nil {
				t.Fatal(err)
			}
			c := newClient(t, raw)
			c.send("%s", text)
			slow = append(slow, c)
		}
	}
	for i, c := range slow {
		c.receive().wantRefusal(t, 408, "RequestTimeout")
		if rest, err := io.ReadAll(c.r); len(rest) > 0 || err != nil {
			t.Errorf("%d: then %q, %v", i, rest, err)
		}
	}
}

// A body that stops is the client's fault, however the handler notices; a
// handler that is stuck is ours.
func TestStalledBodies(t *testing.T) {
	reads := func(w http.ResponseWriter, r *http.Request) error {
		_, err := io.Copy(io.Discard, r.Body)
		return err
	}
	minds := func(w http.ResponseWriter, r *http.Request) error { // as a store does
		if _, err := io.Copy(io.Discard, r.Body); r.Context().Err() == nil {
			return err
		}
		return fault.Wrap("test", r.Context().Err())
	}
	beside := func(w http.ResponseWriter, r *http.Request) error { // as a proxy does
		done := make(chan struct{})
		go func() { defer close(done); _, _ = io.Copy(io.Discard, r.Body) }()
		<-r.Context().Done()
		err := fault.Wrap("test", r.Context().Err())
		defer func() { <-done }()
		return err
	}
	stuck := func(w http.ResponseWriter, r *http.Request) error {
		<-r.Context().Done()
		_, _ = io.Copy(io.Discard, r.Body) // after the deadline
		return fault.Wrap("test", context.DeadlineExceeded)
	}
	var routes []Route
	for name, handler := range map[string]Handler{"reads": reads, "minds": minds, "beside": beside, "stuck": stuck} {
		routes = append(routes, transfer("POST", "/transfer/"+name, handler), control("POST", "/control/"+name, handler))
	}
	for _, route := range routes {
		status, code := 408, "RequestTimeout"
		if strings.HasSuffix(route.Pattern, "stuck") {
			status, code = 504, "Timeout"
		}
		// In a bubble all handlers wait before the deadline passes, however
		// busy the machine is: one that does not yet is not waiting for the
		// client.
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, []Route{route}, func(o *Options) {
				o.Times.Progress, o.Times.FirstByte, o.Times.Deadline = 60*time.Millisecond, 60*time.Millisecond, 60*time.Millisecond
			}).listen()
			lengths := []string{"Content-Length: 100000", "Transfer-Encoding: chunked"}
			clients := make([]*client, 20)
			for i := range clients {
				clients[i] = f.dial()
				clients[i].send("POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n7d0\r\n%s", route.Pattern, lengths[i%2], strings.Repeat("x", 2000))
			}
			for i, c := range clients {
				if r := c.receive(); r.StatusCode != status || r.problem(t).Code != code || !c.closed() {
					t.Errorf("%s, %s: %d %s", route.Pattern, lengths[i%2], r.StatusCode, r.body)
				}
			}
		})
	}
}
