package ingress

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"micronode/fault"
	"micronode/internal/flow"
)

// streamFixture offers the events of a bus by SSE and WebSocket.
type streamFixture struct {
	*fixture
	bus *flow.Bus[int]
}

func newStreamFixture(t testing.TB, changes ...func(*Options)) *streamFixture {
	t.Helper()
	bus := flow.NewBus[int](flow.NewInventory(), flow.BusSpec{Service: "registry", Name: "committed", Cap: 4, Readers: 8})
	render := func(n int) (Event, error) {
		if n < 0 {
			return Event{}, fault.New("test", fault.IntegrityFail, "event %d is bad", n)
		}
		return Event{Name: "count", ID: fmt.Sprint(n), Data: fmt.Appendf(nil, `{"n":%d}`, n)}, nil
	}
	route := Route{Service: "registry", Methods: []string{"GET"}, Pattern: "/stream", Class: Stream, Handler: func(w http.ResponseWriter, r *http.Request) error {
		reader, err := bus.Subscribe("stream", nil)
		if err != nil {
			return err
		}
		defer reader.Close()
		if IsUpgrade(r) {
			return WebSocket(w, r, fromBus(reader, render))
		}
		return SSE(w, r, fromBus(reader, render))
	}}
	wrong := Route{Service: "registry", Methods: []string{"GET", "POST"}, Pattern: "/socket", Class: Stream, Open: true, Handler: func(w http.ResponseWriter, r *http.Request) error {
		return WebSocket(w, r, func(ctx context.Context) (Event, error) { <-ctx.Done(); return Event{}, ctx.Err() })
	}}
	return &streamFixture{newFixture(t, []Route{route, wrong}, changes...), bus}
}

// subscribe opens an event stream and reads it line by line.
func (f *streamFixture) subscribe(headers ...string) (*client, *bufio.Scanner) {
	f.t.Helper()
	c := f.dial()
	c.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n%s\r\n", lines(headers))
	response, err := http.ReadResponse(c.r, nil)
	if err != nil || response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" || response.Header.Get("Cache-Control") != "no-store" {
		f.t.Fatalf("%v %v", err, response)
	}
	scanner := bufio.NewScanner(response.Body)
	if !scanner.Scan() || scanner.Text() != ":" || !scanner.Scan() {
		f.t.Fatalf("it begins with a comment, not with %q", scanner.Text())
	}
	return c, scanner
}

// readEventBlock reads up to an empty line.
func readEventBlock(s *bufio.Scanner) string {
	var all []string
	for s.Scan() && s.Text() != "" {
		all = append(all, s.Text())
	}
	return strings.Join(all, "\n")
}

func TestSSE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStreamFixture(t)
		f.listen()
		c, events := f.subscribe()
		f.bus.Publish(1)
		f.bus.Publish(2)
		for n := 1; n <= 2; n++ {
			if got, want := readEventBlock(events), fmt.Sprintf("event: count\nid: %d\ndata: {\"n\":%d}", n, n); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		from := time.Now()
		for range 3 {
			if got := readEventBlock(events); got != ":" {
				t.Errorf("heartbeat %q", got)
			}
		}
		if took := time.Since(from); took != 45*time.Second {
			t.Errorf("three heartbeats in %s", took)
		}
		f.wantMetric(1, "inflight_requests", "route", "/stream")
		c.Close()
		synctest.Wait()
		f.wantMetric(0, "inflight_requests", "route", "/stream")
		f.wantMetric(1, "http_requests_total", "route", "/stream", "status", "499")
	})
}

// A stream ends when the capability that opened it becomes invalid, and gives
// the reason; one that needed no capability goes on.
func TestAStreamEndsWithItsCapability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var again atomic.Int64
		f := newStreamFixture(t, func(o *Options) {
			o.Authorise = func(_ context.Context, ask AuthRequest) error {
				if ask.Recheck {
					again.Add(1)
				}
				if ask.Token == "short" && time.Since(began) >= 5*time.Second {
					return fault.New("test", fault.Unauthorized, "the token expired")
				}
				return nil
			}
		})
		f.listen()
		_, events := f.subscribe("Authorization: Bearer short")
		_, lasting := f.subscribe("Authorization: Bearer long")
		_, without := f.subscribe()
		socket := f.socket(t, "Authorization", "Bearer short")
		if got := readEventBlock(events); !strings.HasPrefix(got, "event: error\n") || !strings.Contains(got, "the token expired") {
			t.Errorf("%q", got)
		}
		if events.Scan() {
			t.Errorf("it goes on: %q", events.Text())
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it ended after %s", took)
		}
		bounded, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, _, err := socket.Read(bounded); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("the WebSocket: %v", err)
		}
		for _, one := range []*bufio.Scanner{lasting, without} {
			if got := readEventBlock(one); got != ":" {
				t.Errorf("%q", got)
			}
		}
		if asked := again.Load(); asked < 15 || asked > 30 {
			t.Errorf("it was asked %d times", asked)
		}
	})
}

// A client that does not keep up receives the number of lost events, and slows
// no other.
func TestSSELag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStreamFixture(t)
		f.listen()
		_, events := f.subscribe()
		synctest.Wait() // the reader waits for its first event
		for n := range 10 {
			f.bus.Publish(n) // none of these blocks, so the reader cannot keep up
		}
		got := readEventBlock(events)
		if !strings.HasPrefix(got, "event: lagged\ndata: {\"missed\":") && !strings.HasPrefix(got, "event: count") {
			t.Fatalf("%q", got)
		}
		for !strings.HasSuffix(got, `{"n":9}`) {
			got = readEventBlock(events)
		}
	})
	if e := lagEvent(&flow.LagError{Missed: 7}); e.Name != "lagged" || string(e.Data) != `{"missed":7}` {
		t.Errorf("%+v", e)
	}
	if e := lagEvent(fault.Lagging); string(e.Data) != `{"missed":0}` {
		t.Errorf("%+v", e)
	}
}

func TestSSEEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStreamFixture(t)
		f.listen()
		_, failing := f.subscribe()
		f.bus.Publish(-1)
		if got := readEventBlock(failing); !strings.HasPrefix(got, "event: error\ndata: {\"code\":\"IntegrityFail\"") || failing.Scan() {
			t.Errorf("%q", got)
		}
		from := time.Now()
		_, short := f.subscribe("Request-Timeout: 20")
		readEventBlock(short) // a heartbeat
		if got := readEventBlock(short); got != ": end" || time.Since(from) != 20*time.Second {
			t.Errorf("%q after %s: a caller may say how long it wants to listen", got, time.Since(from))
		}
		_, closing := f.subscribe()
		f.bus.Close()
		if got := readEventBlock(closing); got != ": end" || closing.Scan() {
			t.Errorf("%q", got)
		}
	})
}

func TestStreamsAreDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStreamFixture(t)
		f.listen()
		_, events := f.subscribe()
		socket := f.socket(t)
		closed := make(chan error, 1)
		go func() {
			_, _, err := socket.Read(context.Background())
			closed <- err
		}()
		synctest.Wait()
		from := time.Now()
		if err := f.listener.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		if got := readEventBlock(events); got != ": draining" || events.Scan() {
			t.Errorf("%q", got)
		}
		if err := <-closed; websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("%v", err)
		}
		if took := time.Since(from); took > 0 {
			t.Errorf("streams ended after %s", took)
		}
		// One that is registered later is cancelled at once.
		canceled := make(chan error, 1)
		leave := f.listener.streams.register(func(err error) { canceled <- err })
		defer leave()
		if err := <-canceled; !errors.Is(err, fault.Canceled) {
			t.Error(err)
		}
	})
}

// A client that does not answer a close cannot hold a drain.
func TestADeafSocketDoesNotHoldADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStreamFixture(t)
		f.listen()
		c := f.dial()
		c.send("GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		if r, err := http.ReadResponse(c.r, nil); err != nil || r.StatusCode != 101 || r.Header.Get("X-Corr-ID") == "" {
			t.Fatalf("%v %v", err, r)
		}
		synctest.Wait()
		from := time.Now()
		if err := f.listener.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(from); took > answerGrace {
			t.Errorf("took %s", took)
		}
	})
}

// socket opens a WebSocket on the stream.
func (f *streamFixture) socket(t *testing.T, headers ...string) *websocket.Conn {
	t.Helper()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return f.mem.connect("127.0.0.1:4002") }}
	t.Cleanup(transport.CloseIdleConnections)
	header := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	socket, _, err := websocket.Dial(t.Context(), "ws://localhost/stream", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}, HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.CloseNow() })
	return socket
}

func TestWebSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStreamFixture(t)
		f.listen()
		socket := f.socket(t)
		synctest.Wait()
		f.bus.Publish(5)
		kind, text, err := socket.Read(t.Context())
		var m webSocketEvent
		if err != nil || kind != websocket.MessageText || json.Unmarshal(text, &m) != nil || m.Event != "count" || m.ID != "5" || string(m.Data) != `{"n":5}` {
			t.Fatalf("%v %s", err, text)
		}
		// It stays open through heartbeats, which a client that reads answers.
		read := make(chan error, 1)
		go func() {
			_, text, err := socket.Read(context.Background())
			if err == nil && !strings.Contains(string(text), `"n":6`) {
				err = errors.New(string(text))
			}
			read <- err
		}()
		time.Sleep(40 * time.Second)
		f.bus.Publish(6)
		if err := <-read; err != nil {
			t.Error(err)
		}
		if err := socket.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		f.wantMetric(0, "inflight_requests", "route", "/stream")

		talking := f.socket(t)
		talking.Write(t.Context(), websocket.MessageText, []byte("hello"))
		if _, _, err := talking.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("clients only listen: %v", err)
		}

		// One that has vanished without closing is noticed by the heartbeat.
		deaf := f.socket(t)
		_ = deaf // it never reads, and so never answers
		time.Sleep(21 * time.Second)
		synctest.Wait()
		f.wantMetric(0, "inflight_requests", "route", "/stream")

		ending := f.socket(t)
		synctest.Wait()
		f.bus.Publish(-1)
		if _, _, err := ending.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusInternalError {
			t.Errorf("%v", err)
		}
		last := f.socket(t)
		synctest.Wait()
		f.bus.Close()
		if _, _, err := last.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("%v", err)
		}
	})
}

// A frame that no client may send is answered with the close code for that,
// however it comes.
func TestWebSocketFramesThatAreNotValid(t *testing.T) {
	const handshake = "GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	ping := "\x89\x82\x00\x00\x00\x00hi"
	for name, c := range map[string]struct {
		frame string
		code  websocket.StatusCode
	}{
		"the top bit of its length": {"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x05", websocket.StatusProtocolError},
		"no mask":                   {"\x82\x02hi", websocket.StatusProtocolError},
		"no mask, of 16 bits":       {"\x82\x7e\x00\x80", websocket.StatusProtocolError},
		"after another":             {ping + "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x05", websocket.StatusProtocolError},
		"reserved bits":             {"\xf2\x80\x00\x00\x00\x00", websocket.StatusProtocolError},
		"a large one that is valid": {"\x82\xff\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00", websocket.StatusPolicyViolation},
		"a close":                   {"\x88\x82\x00\x00\x00\x00\x03\xe8", websocket.StatusNormalClosure},
	} {
		for _, way := range []string{"whole", "drip", "with the handshake"} {
			synctest.Test(t, func(t *testing.T) {
				f := newStreamFixture(t)
				f.listen()
				client := f.dial()
				text := c.frame
				if way == "with the handshake" {
					client.send("%s", handshake+text)
					text = ""
				} else {
					client.send(handshake)
				}
				if r, err := http.ReadResponse(client.r, nil); err != nil || r.StatusCode != 101 {
					t.Fatalf("%v %v", err, r)
				}
				go func() {
					for ; way == "drip" && len(text) > 1; text = text[1:] {
						_, _ = io.WriteString(client.Conn, text[:1])
					}
					_, _ = io.WriteString(client.Conn, text)
				}()
				for {
					var head [2]byte
					if _, err := io.ReadFull(client.r, head[:]); err != nil {
						t.Fatalf("%s, %s: no close frame: %v", name, way, err)
					}
					payload := make([]byte, head[1])
					_, _ = io.ReadFull(client.r, payload)
					if head[0] == 0x88 {
						if len(payload) < 2 || websocket.StatusCode(binary.BigEndian.Uint16(payload)) != c.code {
							t.Errorf("%s, %s: closed with %q", name, way, payload)
						}
						break
					}
				}
				client.Close()
				time.Sleep(time.Minute) // the library waits for the client's close frame
			})
		}
	}
}

func TestNotAWebSocket(t *testing.T) {
	f := newStreamFixture(t)
	f.listen()
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	f.dial().get("/socket").wantRefusal(t, 400, "Malformed")
	f.dial().get("/socket", upgrade[1:]...).wantRefusal(t, 400, "Malformed")
	f.dial().get("/socket", upgrade[:3]...).wantRefusal(t, 400, "Malformed")
	f.dial().get("/socket", upgrade[0], upgrade[1], "Sec-WebSocket-Version: 8", upgrade[3]).wantRefusal(t, 400, "Malformed")
	for _, key := range []string{"", "x", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25j", "dGhlIHNhbXBsZSBub25jZSBkcw==", "dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="} {
		f.dial().get("/socket", append(upgrade[:3:3], "Sec-WebSocket-Key: "+key)...).wantRefusal(t, 400, "Malformed")
	}
	f.dial().ask("POST", "/socket", append(upgrade, "Content-Length: 0")...).wantRefusal(t, 400, "Malformed")
	f.dial().get("/socket", append(upgrade, "Origin: http://evil.example")...).wantRefusal(t, 403, "RejectPolicy")

	for name, handler := range map[string]Handler{
		"socket": func(w http.ResponseWriter, r *http.Request) error { return WebSocket(w, r, nil) },
		"sse":    func(w http.ResponseWriter, r *http.Request) error { return SSE(w, r, nil) },
	} {
		if err := handler(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)); fault.KindOf(err) != fault.Internal {
			t.Errorf("%s outside of a server: %v", name, err)
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStreamFixture(t, func(o *Options) { o.Limits.Streams, o.Limits.Inflight = 3, 1 })
		f.listen()
		c, _ := f.subscribe()
		f.subscribe() // streams do not use the slots of requests
		f.dial().get("/stream").wantRefusal(t, 429, "Busy")
		c.Close()
		synctest.Wait()
		f.subscribe()
	})
}

func TestSSEText(t *testing.T) {
	w := httptest.NewRecorder()
	f := newFixture(t, []Route{control("GET", "/x", respondWith(""))})
	s := &sseWriter{call: &call{inner: w, server: f.server, policy: f.server.policy.Load()}, w: w, controller: http.NewResponseController(w), writeTimeout: time.Second}
	for _, c := range []struct {
		event Event
		want  string
	}{
		{Event{Data: []byte("one")}, "data: one\n\n"},
		{Event{Data: []byte("one\ntwo\r\nthree\n")}, "data: one\ndata: two\ndata: three\n\n"},
		{Event{Name: "a\nevent: b", ID: "1\r2", Data: []byte("x\ry")}, "event: aevent: b\nid: 12\ndata: xy\n\n"},
		{Event{Name: "empty"}, "event: empty\n\n"},
	} {
		w.Body.Reset()
		if err := s.send(c.event); err != nil || w.Body.String() != c.want {
			t.Errorf("%v %q, want %q", err, w.Body, c.want)
		}
	}
}

// What is not JSON is sent as a text.
func TestWebSocketText(t *testing.T) {
	f := newFixture(t, []Route{{Service: "overlay", Methods: []string{"GET"}, Pattern: "/s", Class: Stream, Handler: func(w http.ResponseWriter, r *http.Request) error {
		sent := false
		return WebSocket(w, r, func(ctx context.Context) (Event, error) {
			if sent {
				return Event{}, io.EOF
			}
			sent = true
			return Event{Data: []byte("plain <text>")}, nil
		})
	}}}).listenTCP()
	socket, _, err := websocket.Dial(t.Context(), "ws://"+f.listener.Addr().String()+"/s", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	_, text, err := socket.Read(t.Context())
	var m struct{ Data string }
	if err != nil || json.Unmarshal(text, &m) != nil || m.Data != "plain <text>" {
		t.Errorf("%v %s", err, text)
	}
}

// Where the chain does not check the origin, the WebSocket does.
func TestTheOriginOfASocket(t *testing.T) {
	f := newStreamFixture(t)
	f.mem = newMemListener()
	f.mem.addr = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443}
	f.serve(f.server.Attach(f.mem, ListenOptions{Name: "http"}))
	upgrade := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	f.dial().get("/stream", upgrade, "Origin: https://evil.example").wantRefusal(t, 403, "RejectPolicy")
	f.dial().get("/stream", upgrade, "Origin: https://%zz").wantRefusal(t, 403, "RejectPolicy")
	times := f.options.Times
	times.CORS = []string{mapsPage}
	f.server.Reconfigure(times)
	for _, origin := range []string{"https://NODE.example", mapsPage} {
		c := f.dial()
		c.send("GET /stream HTTP/1.1\r\nHost: node.example\r\nOrigin: %s\r\n%s\r\n\r\n", origin, upgrade)
		if r, err := http.ReadResponse(c.r, nil); err != nil || r.StatusCode != 101 {
			t.Errorf("%s: %v %v", origin, err, r)
		}
	}
}

// A connection that the warm lane had, and net/http, and the lane again, can
// still become a WebSocket, and its bytes are then not read as a request.
func TestASocketAfterTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		template, err := NewTemplate(TemplateSpec{Pattern: "/x", Header: http.Header{"Content-Type": {"text/plain"}}})
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan string, 1)
		hijack := func(w http.ResponseWriter, r *http.Request) error {
			raw, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return err
			}
			defer raw.Close()
			w.WriteHeader(http.StatusSwitchingProtocols) // for the chain; net/http sends nothing any more
			io.WriteString(raw, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			all, _ := io.ReadAll(buffered)
			said <- string(all)
			return nil
		}
		f := newFixture(t, []Route{control("GET", "/x", respondWith("cold")), {Service: "gateway", Methods: []string{"GET"}, Pattern: "/hijack", Class: Stream, Handler: hijack}},
			func(o *Options) {
				o.Warm = warmFunc(func(target []byte) (*PreparedResponse, bool) {
					if string(target) != "/x" {
						return nil, false
					}
					return template.Render(TemplateValues{}, nil, []byte("warm"))
				})
			}).listen()
		c := f.dial()
		for _, want := range []string{"warm", "cold", "warm"} {
			synctest.Wait() // net/http waits for the next request; one that comes sooner is still net/http's
			headers := map[string][]string{"warm": nil, "cold": {"X-Other: 1"}}[want]
			if r := c.get("/x", headers...); r.body != want {
				t.Errorf("%q, want %q", r.body, want)
			}
		}
		const after = "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
		c.send("GET /hijack HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		if r, err := http.ReadResponse(c.r, nil); err != nil || r.StatusCode != 101 {
			t.Fatalf("%v %v", err, r)
		}
		c.send(after)
		c.Conn.(*memConn).CloseWrite()
		if got := <-said; got != after {
			t.Errorf("%q", got)
		}
	})
}

// fromBus is the NextEvent of a reader of a bus.
func fromBus[T any](reader *flow.Reader[T], render func(T) (Event, error)) NextEvent {
	return func(ctx context.Context) (Event, error) {
		item, err := reader.Recv(ctx)
		if err != nil {
			return Event{}, err
		}
		return render(item)
	}
}
