package fill

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"code.dny.dev/ssrf"

	"micronode/fault"
	"micronode/internal/store"
)

// hostileOrigin is a real TLS origin on loopback that writes arbitrary bytes.
// It behaves well at /good.
type hostileOrigin struct {
	address string
	act     func(c net.Conn, r *http.Request)
	sent    atomic.Int64
}

func newHostileOrigin(t *testing.T, act func(c net.Conn, r *http.Request)) *hostileOrigin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &hostileOrigin{address: l.Addr().String(), act: act}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go v.serve(c)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return v
}

// counting counts what is written.
type counting struct {
	net.Conn
	n *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func (h *hostileOrigin) serve(raw net.Conn) {
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(20 * time.Second))
	c := tls.Server(raw, serverTLS("http/1.1"))
	from := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		if r.URL.Path == "/good" {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\ngood")
			continue
		}
		if r.URL.Path == "/reset" {
			_ = raw.(*net.TCPConn).SetLinger(0)
			return
		}
		h.act(counting{c, &h.sent}, r)
		return
	}
}

// newHostileFixture makes a cache that may ask a real origin.
func newHostileFixture(t *testing.T, address string, options ...option) *fixture {
	t.Helper()
	w := newBareFixture(t, append([]option{func(s *Spec) {
		s.dial, s.Allow = nil, []string{address}
		s.Config.AllowPrivate, s.Config.Tries = true, 1
		s.Config.Timeout = longTimeout
		s.Config.MaxBytes = 1 << 20
	}}, options...)...)
	w.timeout = longTimeout
	return w
}

// longTimeout is how long an origin may take where time is not faked: on a busy
// machine, a handshake alone may take seconds.
const longTimeout = 20 * time.Second

func requestAt(address, path string) Request {
	return Request{Host: address, Path: path, Method: http.MethodGet, Header: http.Header{}}
}

// writeText makes an origin that writes a text and closes the connection.
func writeText(text string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) { _, _ = io.WriteString(c, text) }
}

// writeEndlessly writes a text and then a chunk again and again.
func writeEndlessly(text, chunk string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) {
		_, err := io.WriteString(c, text)
		for err == nil {
			_, err = io.WriteString(c, chunk)
		}
	}
}

// writeSlowly is writeEndlessly with a pause before each chunk.
func writeSlowly(text, chunk string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) {
		_, err := io.WriteString(c, text)
		for err == nil {
			time.Sleep(50 * time.Millisecond)
			_, err = io.WriteString(c, chunk)
		}
	}
}

const zeros = 8 << 20

// bomb compresses zeros.
func bomb(t testing.TB, coding string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "raw deflate":
		w, _ = flate.NewWriter(&b, 9)
	case "zstd":
		w, _ = zstd.NewWriter(&b)
	}
	_, err := w.Write(make([]byte, zeros))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func whole(header, body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: %d\r\n%s\r\n%s", len(body), header, body)
}

func TestHostileOrigins(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n"
	block := strings.Repeat("x", 64<<10)
	bombs := map[string]string{}
	for _, coding := range []string{"gzip", "deflate", "raw deflate", "zstd"} {
		bombs[coding] = string(bomb(t, coding))
	}
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(block), block)
	twice := func(data string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, data)
		_ = w.Close()
		return b.String()
	}
	for name, c := range map[string]struct {
		act    func(net.Conn, *http.Request)
		kind   fault.Kind
		reason string
	}{
		"says that it sends too much":  {writeText(head + "Content-Length: 1048577\r\n\r\n"), fault.UpstreamFailed, ReasonBody},
		"sends without end":            {writeEndlessly(head+"Transfer-Encoding: chunked\r\n\r\n", chunk), fault.UpstreamFailed, ReasonBody},
		"sends without end or length":  {writeEndlessly(head+"\r\n", block), fault.UpstreamFailed, ReasonBody},
		"hangs up at once":             {writeText(""), fault.UpstreamFailed, ReasonUpstream},
		"hangs up in the header":       {writeText("HTTP/1.1 200 OK\r\nCont"), fault.UpstreamFailed, ReasonUpstream},
		"sends half of the body":       {writeText(head + "Content-Length: 10\r\n\r\nhello"), fault.UpstreamFailed, ReasonUpstream},
		"sends half of a chunk":        {writeText(head + "Transfer-Encoding: chunked\r\n\r\nff\r\nhello"), fault.UpstreamFailed, ReasonUpstream},
		"forgets the last chunk":       {writeText(head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), fault.UpstreamFailed, ReasonUpstream},
		"sends chunks that are none":   {writeText(head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n"), fault.UpstreamFailed, ReasonUpstream},
		"sends two lengths":            {writeText(head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"), fault.UpstreamFailed, ReasonUpstream},
		"sends a length below zero":    {writeText(head + "Content-Length: -5\r\n\r\nhello"), fault.UpstreamFailed, ReasonUpstream},
		"sends a part":                 {writeText("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nhello"), fault.UpstreamFailed, ReasonUpstream},
		"sends no status line":         {writeText("what?\r\n\r\n"), fault.UpstreamFailed, ReasonUpstream},
		"sends huge headers":           {writeText(head + "X: " + strings.Repeat("y", 2*maxHeaderBytes) + "\r\nContent-Length: 0\r\n\r\n"), fault.UpstreamFailed, ReasonUpstream},
		"sends many headers":           {writeEndlessly("HTTP/1.1 200 OK\r\n", strings.Repeat("A: b\r\n", 1000)), fault.UpstreamFailed, ReasonUpstream},
		"sends a flood of early hints": {writeEndlessly("", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 100)), fault.UpstreamFailed, ReasonUpstream},
		"switches protocols":           {writeText("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), fault.UpstreamFailed, ReasonUpstream},
		"says 304 to no question":      {writeText("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"), fault.IntegrityFail, ReasonValidator},
		"sends a bomb of gzip":         {writeText(whole("Content-Encoding: gzip\r\n", bombs["gzip"])), fault.RatioCap, ReasonInflate},
		"sends a bomb of zlib":         {writeText(whole("Content-Encoding: deflate\r\n", bombs["deflate"])), fault.RatioCap, ReasonInflate},
		"sends a bomb of raw deflate":  {writeText(whole("Content-Encoding: DEFLATE\r\n", bombs["raw deflate"])), fault.RatioCap, ReasonInflate},
		"sends a bomb of zstd":         {writeText(whole("Content-Encoding: zstd\r\n", bombs["zstd"])), fault.RatioCap, ReasonInflate},
		"sends a bomb in a bomb":       {writeText(whole("Content-Encoding: gzip, x-gzip\r\n", twice(bombs["gzip"]))), fault.RatioCap, ReasonInflate},
		"sends a window of gigabytes":  {writeText(whole("Content-Encoding: zstd\r\n", "\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00")), fault.RatioCap, ReasonInflate},
		"sends padding only":           {writeText(whole("Content-Encoding: zstd\r\n", strings.Repeat("\x50\x2a\x4d\x18\x00\x10\x00\x00"+strings.Repeat("p", 4096), 255))), fault.UpstreamFailed, ReasonUpstream},
		"sends no gzip":                {writeText(whole("Content-Encoding: gzip\r\n", "plain text, in fact")), fault.UpstreamFailed, ReasonUpstream},
		"sends half a gzip":            {writeText(whole("Content-Encoding: gzip\r\n", bombs["gzip"][:100])), fault.UpstreamFailed, ReasonUpstream},
		"compresses five times":        {writeText(whole("Content-Encoding: gzip, gzip\r\nContent-Encoding: gzip, gzip, gzip\r\n", "x")), fault.UpstreamFailed, ReasonUpstream},
		"breaks off inside a gzip":     {writeText(strings.Replace(whole("Content-Encoding: gzip\r\n", bombs["gzip"][:100]), "Length: 100", "Length: 200", 1)), fault.UpstreamFailed, ReasonUpstream},
	} {
		t.Run(name, func(t *testing.T) {
			v := newHostileOrigin(t, c.act)
			w := newHostileFixture(t, v.address)
			w.wantRefused(requestAt(v.address, "/"), c.kind, c.reason)
			w.wantEmpty()
			if held := w.store.Usage().Held; held != 0 {
				t.Errorf("%d bytes are still reserved", held)
			}
			if sent := v.sent.Load(); sent > 64<<20 {
				t.Errorf("took %d bytes before it said no", sent)
			}
			if got, err := w.ask(requestAt(v.address, "/good")); err != nil || got.body != "good" {
				t.Errorf("another key of the same origin: %+v, %v", got, err)
			}
			if events := w.eventsOf(EventRefused); len(events) != 1 || events[0].Reason != c.reason {
				t.Errorf("the audit heard %+v", events)
			}
		})
	}
}

// An origin that lets the reader wait is refused at the timeout, however it
// does so, and costs its other keys nothing.
func TestOriginsThatTakeTheirTime(t *testing.T) {
	for name, act := range map[string]func(net.Conn, *http.Request){
		"sends a byte now and then":  writeSlowly("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 1000\r\n\r\n", "x"),
		"sends headers now and then": writeSlowly("HTTP/1.1 200 OK\r\n", "A: b\r\n"),
		"says nothing":               func(c net.Conn, _ *http.Request) { _, _ = io.Copy(io.Discard, c) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var served sync.WaitGroup
				t.Cleanup(served.Wait) // after the fixture has cut the connections
				w := newBareFixture(t, with(func(c *Config) { c.Tries, c.Timeout = 1, 400*time.Millisecond }))
				w.network.host("origin.test:443", func(c net.Conn) {
					served.Add(1)
					defer served.Done()
					(&hostileOrigin{act: act}).serve(c)
				})
				w.wantRefused(request("/"), fault.Timeout, ReasonTimeout)
				w.wantEmpty()
				if held := w.store.Usage().Held; held != 0 {
					t.Errorf("%d bytes are still reserved", held)
				}
				if got, err := w.ask(request("/good")); err != nil || got.body != "good" {
					t.Errorf("another key of the same origin: %+v, %v", got, err)
				}
				if events := w.eventsOf(EventRefused); len(events) != 1 || events[0].Reason != ReasonTimeout {
					t.Errorf("the audit heard %+v", events)
				}
			})
		})
	}
}

func TestConnectionReset(t *testing.T) {
	v := newHostileOrigin(t, nil)
	w := newHostileFixture(t, v.address)
	w.wantRefused(requestAt(v.address, "/reset"), fault.UpstreamFailed, ReasonUpstream)
	w.wantEmpty()
}

func TestNobodyListens(t *testing.T) {
	address := "127.0.0.1:1"
	w := newHostileFixture(t, address)
	w.wantRefused(requestAt(address, "/"), fault.UpstreamFailed, ReasonUpstream)
}

// Bytes beyond the announced length are cut off, as HTTP says, and the
// connection is not used again.
func TestMoreThanAnnounced(t *testing.T) {
	v := newHostileOrigin(t, writeText(whole("", "hello")+whole("", "evil")))
	w := newHostileFixture(t, v.address)
	if got, err := w.ask(requestAt(v.address, "/")); err != nil || got.body != "hello" {
		t.Errorf("%+v, %v", got, err)
	}
}

// What an origin appends to an answer is never the answer to the next request,
// not even if that takes the connection before net/http has looked at it.
func TestUnreadBytesAreNoAnswer(t *testing.T) {
	for name, appended := range map[string]string{"an answer": whole("", "evil"), "the beginning of one": "HTTP/1.1 200 OK\r\nX-Evil: 1\r\nX-Rest:"} {
		t.Run(name, func(t *testing.T) {
			v := newHostileOrigin(t, func(c net.Conn, _ *http.Request) {
				_, _ = io.WriteString(c, whole("", "hello")+appended)
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.WriteString(c, whole("X-Evil: 1\r\n", "good"))
				}
			})
			config := DefaultConfig()
			config.CAFile, config.AllowPrivate, config.Timeout = caFile(t), true, longTimeout
			p, err := newPolicy(config, []string{v.address}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer p.client.close()
			ctx, cancel := context.WithTimeout(t.Context(), longTimeout)
			defer cancel()
			ask := func(path string, trace *httptrace.ClientTrace) (http.Header, string) {
				to, err := newTarget(v.address, path, "")
				if err != nil {
					t.Error(err)
					return nil, ""
				}
				var got originResponse
				if err := p.roundTrip(httptrace.WithClientTrace(ctx, trace), to, http.Header{}, &got); err != nil {
					t.Error(err)
					return nil, ""
				}
				defer got.Body.Close()
				body, err := io.ReadAll(got.Body)
				if err != nil {
					t.Error(err)
				}
				return got.Header, string(body)
			}
			pooled, asked := make(chan struct{}), make(chan struct{})
			look := sync.OnceFunc(func() { close(asked) })
			first := make(chan string, 1)
			go func() { // the connection is in the pool, and its reader held up, while the next request takes it
				_, body := ask("/", &httptrace.ClientTrace{PutIdleConn: func(error) { close(pooled); <-asked }})
				first <- body
			}()
			select {
			case <-pooled:
			case body := <-first:
				t.Fatalf("the connection of the first answer, %q, was not kept", body)
			}
			header, second := ask("/good", &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { look() }})
			look()
			if first := <-first; first != "hello" || second != "good" || header.Get("X-Evil") != "" {
				t.Errorf("%q, then %q with %v", first, second, header)
			}
		})
	}
}

// A connection is clean while its reader waits and nothing has come.
func TestACleanConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		c := &originConn{Conn: here}
		defer c.Close()
		if c.isClean() {
			t.Error("its reader has not looked")
		}
		go func() { _, _ = c.Read(make([]byte, 1)) }()
		synctest.Wait()
		if !c.isClean() {
			t.Error("its reader waits")
		}
		_, _ = there.Write([]byte("x"))
		synctest.Wait()
		if c.isClean() {
			t.Error("its reader has read something")
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := &originConn{Conn: here}
	c.waiting.Store(true) // as one whose goroutine does not run yet
	if !c.isClean() {
		t.Error("nothing has come")
	}
	_, _ = there.Write([]byte("x"))
	_ = there.Close()
	var one [1]byte
	for { // until it has come
		if n, _ := here.Read(one[:]); n == 0 {
			break
		}
	}
	if c.isClean() {
		t.Error("the origin has closed it")
	}
}

// A 200 that says that it is a part is refused, as a 206 to a request without a
// range is. If it says that the part is everything, it is the whole.
func TestAPartIsNotTheWhole(t *testing.T) {
	for text, part := range map[string]bool{
		"bytes 0-4/10": true, "bytes 5-9/10": true, "Bytes 0-4/*": true, "bytes */5": true, "bytes": true, "bytes 1-5/5": true, "bytes 0-9/10": true,
		"bytes 0-4/5": false, "items 0-24/319": false,
	} {
		v := newHostileOrigin(t, writeText(whole("Content-Range: "+text+"\r\n", "hello")))
		w := newHostileFixture(t, v.address)
		got, err := w.ask(requestAt(v.address, "/"))
		if part && fault.KindOf(err) != fault.UpstreamFailed || !part && (err != nil || got.body != "hello") {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if part {
			w.wantEmpty()
		}
	}
}

// A body that ends with the connection may be truncated.
func TestBodyWithoutEnd(t *testing.T) {
	v := newHostileOrigin(t, writeText("HTTP/1.0 200 OK\r\nCache-Control: max-age=60\r\n\r\nhello"))
	w := newHostileFixture(t, v.address)
	if got, err := w.ask(requestAt(v.address, "/")); err != nil || got.body != "hello" {
		t.Errorf("%+v, %v", got, err)
	}
	w.wantEmpty()
}

func TestHTTP2Resets(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"before the header": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"in the body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = io.WriteString(w, "hel")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"shorter than announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "hello")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var protocol atomic.Value
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				protocol.Store(r.Proto)
				if r.URL.Path == "/good" {
					_, _ = io.WriteString(w, "good")
					return
				}
				handler(w, r)
			}))
			server.EnableHTTP2, server.TLS, server.Config.ErrorLog = true, serverTLS(), quiet
			server.StartTLS()
			defer server.Close()
			address := server.Listener.Addr().String()
			w := newHostileFixture(t, address)
			w.wantRefused(requestAt(address, "/"), fault.UpstreamFailed, ReasonUpstream)
			w.wantEmpty()
			if got, err := w.ask(requestAt(address, "/good")); err != nil || got.body != "good" || protocol.Load() != "HTTP/2.0" {
				t.Errorf("%+v, %v, by %v", got, err, protocol.Load())
			}
			w.close = append(w.close, server.CloseClientConnections)
		})
	}
}

func TestWhoIsTrusted(t *testing.T) {
	v := newHostileOrigin(t, nil)
	w := newHostileFixture(t, v.address, with(func(c *Config) { c.CAFile = "" }))
	err := w.wantRefused(requestAt(v.address, "/good"), fault.UpstreamFailed, ReasonUpstream)
	if !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v does not say that it is the certificate", err)
	}
}

// By default no name, however allowed, leads to an address that is not public.
// Nothing is sent there: the check comes before the connection.
func TestPrivateAddresses(t *testing.T) {
	v := newHostileOrigin(t, nil)
	_, port, _ := net.SplitHostPort(v.address)
	hosts := []string{"127.0.0.1:" + port, "localhost:" + port, "10.0.0.1", "172.16.5.5", "192.168.1.1:8443", "169.254.169.254", "100.64.0.1", "0.0.0.0",
		"224.0.0.1", "255.255.255.255", "192.0.2.1"}
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = l.Close()
		hosts = append(hosts, "[::1]:"+port, "[fd00::1]", "[fe80::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]")
	}
	w := newBareFixture(t, func(s *Spec) { s.dial, s.Allow = nil, hosts })
	for _, host := range hosts {
		err := w.wantRefused(requestAt(host, "/good"), fault.RejectPolicy, ReasonNotAllowed)
		if !errors.Is(err, ssrf.ErrProhibitedIP) {
			t.Errorf("%s: %v", host, err)
		}
	}
	w.wantEmpty()
}

// Whatever the operator allows, the addresses of cloud metadata are never
// dialled.
func TestMetadataAddresses(t *testing.T) {
	hosts := []string{"169.254.169.254", "100.100.100.200", "168.63.129.16"}
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = l.Close()
		hosts = append(hosts, "[fd00:ec2::254]", "[fe80::1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]")
	}
	w := newBareFixture(t, func(s *Spec) { s.dial, s.Allow, s.Config.AllowPrivate = nil, hosts, true })
	for _, host := range hosts {
		if err := w.wantRefused(requestAt(host, "/latest/meta-data"), fault.RejectPolicy, ReasonNotAllowed); !errors.Is(err, ssrf.ErrProhibitedIP) {
			t.Errorf("%s: %v", host, err)
		}
	}
	w.wantEmpty()
}

// The environment has no influence: a proxy named there would see everything,
// and dial forbidden addresses.
func TestNoProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("ALL_PROXY", "http://127.0.0.1:1")
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("straight"))
		if got := w.get("/"); got.body != "straight" || w.policy.Load().client.transport.Proxy != nil {
			t.Errorf("%+v", got)
		}
	})
}

// A body that compresses honestly may still be too large.
func TestInflatesToTooMuch(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range 200_000 {
		fmt.Fprintf(z, "line %d\n", i*i)
	}
	_ = z.Close()
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.Inflate = 1 << 20 }))
		w.origin(answerWith(b.String(), "Cache-Control", "max-age=60", "Content-Encoding", "gzip"))
		w.wantRefused(request("/"), fault.RatioCap, ReasonInflate)
		w.wantEmpty()
	})
}

func TestRedirectToAPrivateAddress(t *testing.T) {
	guarded := &net.Dialer{Control: ssrf.New(ssrf.WithAnyPort()).Safe}
	inBubble(t, func(t *testing.T) {
		var w *fixture
		w = newFixture(t, func(s *Spec) {
			s.Allow = append(s.Allow, "169.254.169.254", "10.0.0.1")
			s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if strings.HasSuffix(address, ".test:443") {
					return w.network.dial(ctx, network, address)
				}
				return guarded.DialContext(ctx, network, address)
			}
		})
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://"+strings.TrimPrefix(r.URL.Path, "/"), http.StatusFound)
		})
		for _, path := range []string{"/169.254.169.254", "/10.0.0.1"} {
			w.wantRefused(request(path), fault.RejectPolicy, ReasonNotAllowed)
		}
		w.wantEmpty()
	})
}

func TestDoesNotFit(t *testing.T) {
	body := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		amnesia bool
		act     func(net.Conn, *http.Request)
		reason  string
	}{
		"in amnesia":          {true, writeText(whole("", body)), ReasonAmnesia},
		"in amnesia, unknown": {true, writeText(fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)), ReasonAmnesia},
		"on disk":             {false, writeText(whole("", body)), ReasonBody},
	} {
		t.Run(name, func(t *testing.T) {
			v := newHostileOrigin(t, c.act)
			w := newHostileFixture(t, v.address, func(s *Spec) {
				s.Amnesia = c.amnesia
				s.Store = store.NewRAM(store.RAMSpec{Budget: 256 << 10})
			})
			w.wantRefused(requestAt(v.address, "/"), fault.StoreFull, c.reason)
			w.wantEmpty()
			if _, err := w.ask(requestAt(v.address, "/good")); err != nil {
				t.Error(err)
			}
		})
	}
}

// Honest compression is kept as it was sent.
func TestHonestCompression(t *testing.T) {
	var text strings.Builder
	for i := range 4_000 {
		fmt.Fprintf(&text, `{"id":%d,"name":"feature %d"},`, i, i*i)
	}
	squeeze := func(coding string) string {
		var b bytes.Buffer
		var w io.WriteCloser
		switch coding {
		case "gzip":
			w = gzip.NewWriter(&b)
		case "deflate":
			w = zlib.NewWriter(&b)
		case "zstd":
			w, _ = zstd.NewWriter(&b)
		}
		_, _ = io.WriteString(w, text.String())
		_ = w.Close()
		return b.String()
	}
	for name, c := range map[string]struct{ coding, body string }{
		"gzip":                     {"gzip", squeeze("gzip")},
		"deflate":                  {"deflate", squeeze("deflate")},
		"zstd":                     {"zstd", squeeze("zstd")},
		"brotli":                   {"br", "what it is, we cannot know"},
		"brotli under gzip":        {"br, gzip", squeeze("gzip")},
		"identity":                 {"identity", "as it is"},
		"nothing at all":           {"gzip", ""},
		"nothing in zlib":          {"deflate", ""},
		"something after":          {"zstd", squeeze("zstd") + squeeze("zstd")},
		"small and compresses":     {"gzip", string(smallZeros())},
		"text after deflate's end": {"deflate", squeeze("deflate") + "and so on"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t)
				w.origin(answerWith(c.body, "Cache-Control", "max-age=60", "Content-Encoding", c.coding))
				for range 2 {
					got := w.get("/", "Accept-Encoding", "gzip, deflate, br, zstd")
					if got.body != c.body || got.Header.Get("Content-Encoding") != c.coding {
						t.Errorf("%d bytes of %q, want %d", len(got.body), got.Header.Get("Content-Encoding"), len(c.body))
					}
				}
				w.wantAsked(1)
				if w.requests()[0].Header.Get("Accept-Encoding") != "gzip, deflate, br, zstd" {
					t.Error("the origin did not see what the client takes")
				}
			})
		})
	}
}

// smallZeros inflates a thousandfold, but to so little that it is harmless.
func smallZeros() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, 500<<10))
	_ = w.Close()
	return b.Bytes()
}

func TestRetries(t *testing.T) {
	type plan struct {
		statuses []int
		after    string
		took     time.Duration // of the pauses
		asked    int
	}
	for name, c := range map[string]plan{
		"once more":             {[]int{503, 200}, "", 50 * time.Millisecond, 2},
		"and once more":         {[]int{504, 503, 200}, "", 150 * time.Millisecond, 3},
		"not for ever":          {[]int{503, 503, 503, 200}, "", 150 * time.Millisecond, 3},
		"not for other reasons": {[]int{500, 200}, "", 0, 1},
		"not in a while":        {[]int{503, 200}, "2", 0, 1},
		"at once":               {[]int{503, 200}, "0", 50 * time.Millisecond, 2},
		"not in an hour":        {[]int{503, 200}, "3600", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t)
				var n atomic.Int64
				w.origin(func(rw http.ResponseWriter, _ *http.Request) {
					i := n.Add(1)
					status := c.statuses[i-1]
					if c.after != "" {
						rw.Header().Set("Retry-After", c.after)
					}
					rw.Header().Set("Etag", fmt.Sprintf(`"%d"`, i)) // it may change from try to try
					rw.WriteHeader(status)
				})
				began := time.Now()
				if got, want := w.get("/"), c.statuses[c.asked-1]; got.Status != want || want != 200 && got.Header.Get("Retry-After") != c.after {
					t.Errorf("%d %v, want %d", got.Status, got.Header, want)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("it took %s, want %s", took, c.took)
				}
				w.wantAsked(c.asked)
				if w.retries != c.asked-1 {
					t.Errorf("%d retries were counted", w.retries)
				}
			})
		})
	}
}

func TestSlowOriginsAreAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.Timeout = time.Second }), withoutBreaker)
		var n atomic.Int64
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if n.Add(1) < 3 {
				<-r.Context().Done()
				return
			}
			answerWith("at last")(rw, r)
		})
		if got := w.get("/"); got.body != "at last" {
			t.Errorf("%+v", got)
		}
		w.wantAsked(3)
		w.origin(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		began := time.Now()
		w.wantRefused(request("/never"), fault.Timeout, ReasonTimeout)
		if took := time.Since(began); took != 3*time.Second+150*time.Millisecond {
			t.Errorf("gave up after %s", took)
		}
	})
}

// Whatever an origin sends, under whatever coding: it is passed on unchanged,
// or refused with a kind.
func FuzzBody(f *testing.F) {
	f.Add("gzip", smallZeros())
	f.Add("zstd", []byte("\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00"))
	f.Add("deflate, gzip", []byte("\x78\x9c"))
	f.Add("br", []byte("anything"))
	f.Fuzz(func(t *testing.T, coding string, data []byte) {
		config := DefaultConfig()
		config.MaxBytes, config.Inflate = 1<<20, 4<<20
		b, err := newOriginBody(&http.Response{Body: io.NopCloser(bytes.NewReader(data)), ContentLength: -1, Header: http.Header{"Content-Encoding": {coding}}}, &config)
		if err == nil {
			defer b.close()
			var out []byte
			if out, err = io.ReadAll(b); err == nil && !bytes.Equal(out, data) {
				t.Fatalf("%d bytes became %d", len(data), len(out))
			}
			if b.buffered.Cap() > 4*maxReadAhead {
				t.Fatalf("%d bytes were read ahead", b.buffered.Cap())
			}
		}
		switch fault.KindOf(err) {
		case 0, fault.UpstreamFailed, fault.RatioCap:
		default:
			t.Fatalf("%v is %s", err, fault.KindOf(err))
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "99999999999999999999": 0,
		"Sun, 15 Nov 2026 12:00:30 GMT": 30 * time.Second, "Sun, 15 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
