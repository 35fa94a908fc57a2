package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gatewayFixture is a gateway before a part that a test simulates.
type gatewayFixture struct {
	t            *testing.T
	url          string
	partRequests atomic.Int64 // how many requests reached the part
	requestToken string       // the gateway's token for a request; empty to forward the caller's own
	partToken    *string      // the proof that it is a part; nil for none
	tokenExpired atomic.Bool  // the token "short" is no longer valid
	drain        func()
}

// newGatewayFixture starts a gateway. The part is reached by its URL.
func newGatewayFixture(t *testing.T, part http.HandlerFunc, routes ...ingress.Route) *gatewayFixture {
	t.Helper()
	b := &gatewayFixture{t: t}
	there := httptest.NewServer(provingHandler(t, func(w http.ResponseWriter, r *http.Request) {
		b.partRequests.Add(1)
		part(w, r)
	}))
	t.Cleanup(there.Close)
	b.startGateway(there.URL, routes...)
	return b
}

// startGateway starts a gateway before an address.
func (g *gatewayFixture) startGateway(addr string, routes ...ingress.Route) {
	g.t.Helper()
	parsed, err := ParsePartAddr(addr)
	if err != nil {
		g.t.Fatal(err)
	}
	spec := RemotePartSpec{Name: "index", Addr: parsed, Prove: testProof, MaxRequests: 16, MaxStreams: 16, RequestToken: func(*http.Request, string) (string, error) { return g.requestToken, nil }}
	if g.partToken != nil {
		spec.PartToken = func() (string, error) { return *g.partToken, nil }
	}
	away := NewRemotePart(spec)
	here := ingress.Route{Service: "node", Methods: []string{"GET"}, Pattern: "/here", Class: ingress.Control, Open: true,
		Handler: func(w http.ResponseWriter, _ *http.Request) error { _, err := io.WriteString(w, "here"); return err }}
	table, _, err := Mount([]Part{{Routes: []ingress.Route{here}}, {Routes: routes, Remote: away}})
	if err != nil {
		g.t.Fatal(err)
	}
	times := ingress.DefaultHTTP()
	times.Deadline, times.FirstByte, times.Progress = time.Minute, time.Minute, time.Minute // a busy machine is slow
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: times, Limits: ingress.DefaultLimits(),
		Inventory: flow.NewInventory(), Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
		Authorise: func(_ context.Context, ask ingress.AuthRequest) error {
			if ask.Path == ingress.VoucherPath || (ask.Scope != "" || !ask.Loopback) && ask.Token == "" {
				return fault.New("test", fault.Unauthorized, "no token")
			}
			if ask.Token == "short" && g.tokenExpired.Load() {
				return fault.New("test", fault.Unauthorized, "the token expired")
			}
			return nil
		},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	listener, err := server.Listen(g.t.Context(), ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:0"})
	if err != nil {
		g.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- listener.Serve(context.Background()) }()
	g.url = "http://" + listener.Addr().String()
	g.drain = func() { _ = listener.Drain(g.t.Context()) }
	g.t.Cleanup(func() {
		_ = listener.Drain(context.Background())
		<-served
		away.Close()
	})
}

func route(class ingress.Class, method, pattern string) ingress.Route {
	r := ingress.Route{Service: "index", Methods: []string{method}, Pattern: pattern, Class: class, Handler: func(http.ResponseWriter, *http.Request) error { panic("it runs elsewhere") }}
	if method != http.MethodGet {
		r.Scope = "name:set"
	}
	return r
}

// do sends a request to the gateway.
func (g *gatewayFixture) do(method, path string, body io.Reader, header http.Header) (*http.Response, string) {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, body)
	if err != nil {
		g.t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		text = append(text, " cut: "+err.Error()...)
	}
	return answer, string(text)
}

// wantRefusal sends a request, and expects a refusal.
func (g *gatewayFixture) wantRefusal(kind fault.Kind, method, path string, body io.Reader, header http.Header) {
	g.t.Helper()
	answer, text := g.do(method, path, body, header)
	if answer.StatusCode != kind.Status() || !strings.Contains(text, `"code":"`+kind.Code()+`"`) || answer.Header.Get("Content-Type") != "application/problem+json" {
		g.t.Errorf("%d %s", answer.StatusCode, text)
	}
	if away := kind == fault.NotReady || kind == fault.UpstreamFailed; away && answer.Header.Get("Retry-After") == "" {
		g.t.Errorf("nobody knows when to come back: %v", answer.Header)
	}
	if answer.Header.Get("X-Corr-Id") == "" || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
		g.t.Errorf("%v", answer.Header)
	}
}

var token = http.Header{"Authorization": {"Bearer mine"}}

// A request arrives as it was sent, except for hop-by-hop headers.
func TestWhatIsPassedOn(t *testing.T) {
	var got *http.Request
	var body string
	b := newGatewayFixture(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, body = r, string(raw)
		w.Header()["X-Content-Type-Options"] = []string{"nosniff"}
		w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	}, route(ingress.Control, "PUT", "/names/{name...}"))
	answer, text := b.do("PUT", "/names/a%2Fb/c?x=%zz&y;z", strings.NewReader("hello"), http.Header{
		"Authorization": {"Bearer mine"}, "X-Corr-Id": {"corr-12345678"}, "Traceparent": {"00-1-2-01"}, "Origin": {b.url},
		"Connection": {"X-Near"}, "X-Near": {"1"}, "Request-Timeout": {"20.5"}, "X-Any": {"a", "b"},
	})
	if answer.StatusCode != http.StatusCreated || text != "done" || body != "hello" {
		t.Fatalf("%d %q %q", answer.StatusCode, text, body)
	}
	if got.URL.EscapedPath() != "/names/a%2Fb/c" || got.URL.RawQuery != "x=%zz&y;z" || got.Method != "PUT" || got.ContentLength != 5 {
		t.Errorf("%s %s", got.Method, got.URL)
	}
	left := got.Header.Get("Request-Timeout")
	if seconds, err := strconv.ParseFloat(left, 64); err != nil || seconds >= 20.5 || seconds <= 0 {
		t.Errorf("it has %q seconds left", left)
	}
	for name, want := range map[string][]string{
		"Authorization": {"Bearer mine"}, "X-Corr-Id": {"corr-12345678"}, "Traceparent": {"00-1-2-01"}, "X-Any": {"a", "b"}, "Origin": nil, "X-Near": nil,
	} {
		if have := got.Header.Values(name); fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%s arrived as %q", name, have)
		}
	}
	for name, want := range map[string]string{
		"X-Corr-Id": "[corr-12345678]", "X-Content-Type-Options": "[nosniff]", "Cross-Origin-Resource-Policy": "[cross-origin]", "X-Hop": "[]",
	} {
		if have := fmt.Sprint(answer.Header.Values(name)); have != want {
			t.Errorf("the answer has %s: %s", name, have)
		}
	}
}

// A part that needs it receives the address of the gateway's client, and the
// same header of a client does not arrive.
func TestForWhomTheGatewayAsks(t *testing.T) {
	voucher, kernel := "voucher", ""
	root, err := capability.NewRoot(nil)
	testkit.Must(t, err)
	token, err := capability.NewAuthority(root).Mint(capability.Caveats{Scopes: []capability.Scope{capability.Admin}})
	testkit.Must(t, err)
	family := capability.Family(token)
	for name, c := range map[string]struct {
		shown                *string
		wantClient, wantSign string
		wantSender           string
	}{
		"by URL":     {&voucher, "[127.0.0.1]", "[voucher]", family},
		"by socket":  {&kernel, "[127.0.0.1]", "[]", family},
		"not at all": {nil, "[]", "[]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan http.Header, 1)
			there := httptest.NewServer(provingHandler(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
			defer there.Close()
			b := &gatewayFixture{t: t, partToken: c.shown}
			b.startGateway(there.URL, route(ingress.Control, "GET", "/names"))
			b.do("GET", "/names", nil, http.Header{ingress.ClientHeader: {"192.0.2.1", "192.0.2.2"}, ingress.VoucherHeader: {"mine"}, ingress.SenderHeader: {"another"}, "Authorization": {"Bearer " + token}})
			header := <-got
			if sender := header.Get(ingress.SenderHeader); sender != c.wantSender {
				t.Errorf("the sender is %q, want %q", sender, c.wantSender)
			}
			if client, sign := fmt.Sprint(header.Values(ingress.ClientHeader)), fmt.Sprint(header.Values(ingress.VoucherHeader)); client != c.wantClient || sign != c.wantSign {
				t.Errorf("%s, shown by %s", client, sign)
			}
		})
	}
}

// A part sees the gateway's capability for every caller; so it is told if the
// caller is anonymous, and a caller cannot remove that mark.
func TestThePartIsToldOfStrangers(t *testing.T) {
	got := make(chan http.Header, 1)
	b := newGatewayFixture(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }, route(ingress.Control, "GET", "/names"), route(ingress.Control, "PUT", "/names"))
	for _, c := range []struct {
		method string
		header http.Header
		want   string
	}{
		{"GET", nil, "[1]"},
		{"GET", http.Header{"Authorization": {"Bearer mine"}}, "[]"},
		{"GET", http.Header{"Authorization": {"Bearer mine"}, ingress.AnonymousHeader: {"0"}}, "[1]"},
		{"PUT", http.Header{"Authorization": {"Bearer mine"}}, "[]"},
	} {
		b.do(c.method, "/names", nil, c.header)
		if anonymous := fmt.Sprint((<-got).Values(ingress.AnonymousHeader)); anonymous != c.want {
			t.Errorf("%s with %v: the part is told %s, want %s", c.method, c.header, anonymous, c.want)
		}
	}
}

// A part receives the client's Host, unless it would reject it.
func TestHowTheNodeWasCalled(t *testing.T) {
	b := newGatewayFixture(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }, route(ingress.Control, "GET", "/names"))
	if _, text := b.do("GET", "/names", nil, nil); "http://"+text != b.url {
		t.Errorf("%s, not %s", text, b.url)
	}
	for host, want := range map[string]string{"node.example:8443": "there.example:1", "[::1]": "[::1]", "localhost": "localhost"} {
		addr, err := ParsePartAddr("http://127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		addr.base.Host = "there.example:1"
		in := httptest.NewRequest("GET", "https://"+host+"/names", nil)
		in = in.WithContext(context.WithValue(in.Context(), proxiedRequestKey{}, &proxiedRequest{}))
		out := in.Clone(in.Context())
		NewRemotePart(RemotePartSpec{Addr: addr}).rewrite(&httputil.ProxyRequest{In: in, Out: out})
		if out.Host != want || !strings.HasPrefix(out.Header.Get(ingress.BaseHeader), "https://") {
			t.Errorf("%s became %s, %v", host, out.Host, out.Header)
		}
	}
}

// A caller's deadline for a transfer is forwarded as it is.
func TestADeadlineForATransfer(t *testing.T) {
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	b := newGatewayFixture(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Deadline")+r.Header.Get("Request-Timeout"))
	}, route(ingress.Transfer, "GET", "/o"))
	if _, text := b.do("GET", "/o", nil, http.Header{"Deadline": {at}}); text != at {
		t.Errorf("%q", text)
	}
}

// A request that the table rejects is not sent.
func TestNothingTravelsThatIsNotLetIn(t *testing.T) {
	capped := route(ingress.Control, "PUT", "/names")
	capped.BodyCap = 10
	b := newGatewayFixture(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, capped)
	b.wantRefusal(fault.Unauthorized, "PUT", "/names", strings.NewReader("x"), nil)
	b.wantRefusal(fault.BodyTooLarge, "PUT", "/names", strings.NewReader(strings.Repeat("x", 11)), token)
	b.wantRefusal(fault.MethodNotAllowed, "GET", "/names", nil, nil)
	if n := b.partRequests.Load(); n != 0 {
		t.Errorf("%d requests reached the part", n)
	}
	b.wantRefusal(fault.BodyTooLarge, "PUT", "/names", struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 11))}, token)
	if answer, text := b.do("GET", "/here", nil, nil); answer.StatusCode != http.StatusOK || text != "here" {
		t.Errorf("what is here answers %d %q", answer.StatusCode, text)
	}
}

// A caller that needs no capability here is forwarded with the gateway's, and
// if the part rejects that one, the error does not ask the caller for a better
// one.
func TestTheGatewayVouches(t *testing.T) {
	known := "ours"
	b := newGatewayFixture(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+known {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, route(ingress.Control, "GET", "/names"))
	b.requestToken = "ours"
	if answer, text := b.do("GET", "/names", nil, nil); answer.StatusCode != http.StatusOK {
		t.Errorf("%d %s", answer.StatusCode, text)
	}
	known = "another"
	b.wantRefusal(fault.UpstreamFailed, "GET", "/names", nil, nil)
	b.requestToken = ""
	if answer, _ := b.do("GET", "/names", nil, token); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the caller's own capability was refused, and it hears %d", answer.StatusCode)
	}
}

func TestNobodyToVouch(t *testing.T) {
	noKey := errors.New("no key")
	for _, spec := range []RemotePartSpec{
		{Name: "index", RequestToken: func(*http.Request, string) (string, error) { return "", noKey }},
		{Name: "index", RequestToken: func(*http.Request, string) (string, error) { return "", nil }, PartToken: func() (string, error) { return "", noKey }},
	} {
		err := NewRemotePart(spec).Route(route(ingress.Control, "GET", "/names")).Handler(httptest.NewRecorder(), httptest.NewRequest("GET", "/names", nil))
		if fault.KindOf(err) != fault.Internal {
			t.Error(err)
		}
	}
}

// Nothing listens, by URL and by socket.
func TestAPartThatIsAway(t *testing.T) {
	for _, addr := range []string{"http://127.0.0.1:1", fmt.Sprintf("@micronode-gateway-test-%d", os.Getpid()), t.TempDir() + "/s"} {
		b := &gatewayFixture{t: t}
		b.startGateway(addr, route(ingress.Control, "GET", "/names"), route(ingress.Stream, "GET", "/stream"), route(ingress.Transfer, "GET", "/o"))
		for _, path := range []string{"/names", "/stream", "/o"} {
			b.wantRefusal(fault.NotReady, "GET", path, nil, nil)
		}
	}
}

// The part is up, and breaks off.
func TestAPartThatBreaksOff(t *testing.T) {
	stuck := make(chan struct{})
	b := newGatewayFixture(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/early":
			panic(http.ErrAbortHandler)
		case "/middle":
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, strings.Repeat("half", 10_000)) // more than any buffer holds
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/late":
			<-stuck
		case "/interim":
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			_, _ = io.WriteString(w, "after")
		}
	}, route(ingress.Control, "GET", "/early"), route(ingress.Transfer, "GET", "/middle"), route(ingress.Control, "GET", "/late"), route(ingress.Control, "GET", "/interim"))
	b.wantRefusal(fault.UpstreamFailed, "GET", "/early", nil, nil)
	if answer, text := b.do("GET", "/middle", nil, nil); answer.StatusCode != http.StatusOK || !strings.Contains(text, "cut: ") {
		t.Errorf("half an answer passed for a whole one: %q", text)
	}
	b.wantRefusal(fault.Timeout, "GET", "/late", nil, http.Header{"Request-Timeout": {"0.05"}})
	close(stuck)
	if answer, text := b.do("GET", "/interim", nil, nil); text != "after" || answer.Header.Get("X-Content-Type-Options") != "nosniff" || len(answer.Header.Values("X-Corr-Id")) != 1 {
		t.Errorf("%q %v", text, answer.Header)
	}
}

// Events come as they are made, and a drain of the gateway ends them.
func TestStreamsFlow(t *testing.T) {
	more := make(chan string)
	b := newGatewayFixture(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case text := <-more:
				_, _ = io.WriteString(w, text+"\n")
			case <-r.Context().Done():
				return
			}
		}
	}, route(ingress.Stream, "GET", "/stream"))
	answer, err := http.Get(b.url + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for _, want := range []string{"one", "two"} {
		more <- want
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
	}
	b.drain()
	for lines.Scan() {
	}
	http.DefaultClient.CloseIdleConnections()
}

// A stream of a part ends with the token that opened it, for the client and for
// the part. Others go on.
func TestPassedOnStreamsEndWithTheirToken(t *testing.T) {
	more := make(chan string)
	left := make(chan string, 3)
	b := newGatewayFixture(t, func(w http.ResponseWriter, r *http.Request) {
		what := r.URL.Query().Get("of")
		defer func() { left <- what }()
		if what == "socket" {
			socket, err := websocket.Accept(w, r, nil)
			if err == nil {
				_, _, _ = socket.Read(r.Context())
				_ = socket.CloseNow()
			}
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case text := <-more:
				_, _ = io.WriteString(w, text+"\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}, route(ingress.Stream, "GET", "/stream"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	open := func(of, token string) *bufio.Scanner {
		r, _ := http.NewRequestWithContext(ctx, "GET", b.url+"/stream?of="+of, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := transport.RoundTrip(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %+v, %v", of, answer, err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		return bufio.NewScanner(answer.Body)
	}
	short := open("short", "short")
	socket, _, err := websocket.Dial(ctx, b.url+"/stream?of=socket", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer short"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.CloseNow() }()
	more <- "one"
	if !short.Scan() || short.Text() != "one" {
		t.Fatalf("%q, %v", short.Text(), short.Err())
	}
	lasting := open("lasting", "long")
	b.tokenExpired.Store(true)
	for short.Scan() {
	}
	if _, _, err := socket.Read(ctx); err == nil {
		t.Error("the socket goes on")
	}
	if ctx.Err() != nil {
		t.Fatal("the streams have outlived their token")
	}
	if one, other := <-left, <-left; one == "lasting" || other == "lasting" || one == other {
		t.Errorf("the part was left by %s and %s", one, other)
	}
	more <- "two"
	if !lasting.Scan() || lasting.Text() != "two" {
		t.Errorf("the other stream: %q, %v", lasting.Text(), lasting.Err())
	}
	http.DefaultClient.CloseIdleConnections()
}

// A request that a part lets wait ends with the token of its client, and what
// the part answers after that does not reach the client.
func TestPassedOnWaitsEndWithTheirToken(t *testing.T) {
	arrived, answer, left := make(chan string, 1), make(chan struct{}), make(chan struct{}, 1)
	polled := route(ingress.Control, "POST", "/poll")
	polled.Waits = true
	b := newGatewayFixture(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- r.URL.Path
		select {
		case <-answer:
			_, _ = io.WriteString(w, "a secret")
		case <-r.Context().Done():
			left <- struct{}{}
		}
	}, polled)
	for _, answered := range []bool{true, false} {
		b.tokenExpired.Store(false)
		result := make(chan string, 1)
		go func() {
			response, text := b.do("POST", "/poll", strings.NewReader("{}"), http.Header{"Authorization": {"Bearer short"}})
			result <- strconv.Itoa(response.StatusCode) + " " + text
		}()
		<-arrived
		b.tokenExpired.Store(true)
		if answered {
			answer <- struct{}{}
		} else {
			<-left
		}
		if text := <-result; !strings.HasPrefix(text, "401 ") || strings.Contains(text, "secret") {
			t.Errorf("with an answer (%t): %s", answered, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestSocketsPass(t *testing.T) {
	b := newGatewayFixture(t, func(w http.ResponseWriter, r *http.Request) {
		socket, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = socket.CloseNow() }()
		kind, text, err := socket.Read(r.Context())
		if err == nil {
			_ = socket.Write(r.Context(), kind, append([]byte("echo "), text...))
		}
		_ = socket.Close(websocket.StatusNormalClosure, "")
	}, route(ingress.Stream, "GET", "/stream"))
	socket, answer, err := websocket.Dial(t.Context(), b.url+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.CloseNow() }()
	if err := socket.Write(t.Context(), websocket.MessageText, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := socket.Read(t.Context()); err != nil || string(text) != "echo hi" || answer.Header.Get("X-Corr-Id") == "" {
		t.Errorf("%q %v %v", text, answer.Header, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// The client leaves before there is an answer: nothing waits for it any more.
func TestTheClientLeaves(t *testing.T) {
	gone := make(chan struct{})
	arrived := make(chan struct{})
	b := newGatewayFixture(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(gone)
	}, route(ingress.Transfer, "GET", "/o"))
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", b.url+"/o", nil)
	go func() { <-arrived; leave() }()
	if answer, err := http.DefaultClient.Do(r); err == nil {
		answer.Body.Close()
		t.Error("it was answered")
	}
	<-gone
	http.DefaultClient.CloseIdleConnections()
}

func TestATableThatCannotBe(t *testing.T) {
	if _, _, err := Mount([]Part{{Routes: []ingress.Route{{}}}}); fault.KindOf(err) != fault.Internal {
		t.Error(err)
	}
}
