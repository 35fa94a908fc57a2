package delegated

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The hosts of the tests.
func keyOf(n int) ed25519.PublicKey {
	seed := bytes.Repeat([]byte{byte(n), byte(n >> 8)}, ed25519.SeedSize/2)
	return ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
}

func idOf(n int) string { return record.Libp2pID(keyOf(n)) }

func peerOf(n int) string { return oap.PeerIDOf(keyOf(n)).String() }

// recordLine is a record of a host, as text.
func recordLine(n int, addrs ...string) string {
	quoted := make([]string, len(addrs))
	for i, a := range addrs {
		quoted[i] = strconv.Quote(a)
	}
	return fmt.Sprintf(`{"Schema":"peer","ID":%q,"Addrs":[%s]}`, idOf(n), strings.Join(quoted, ","))
}

var question = record.Question{Kind: record.CID, Address: b3.Of([]byte("question"))}

// pipeListener is a host in memory, so that time can be faked and no test waits
// for the connections of another.
type pipeListener struct{ conns chan net.Conn }

func (p pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipeListener) Close() error   { return nil }
func (p pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// serve runs a host with this handler, and returns an endpoint for it.
func serve(t *testing.T, handler http.HandlerFunc) *Endpoint {
	t.Helper()
	n := pipeListener{make(chan net.Conn)}
	var answering atomic.Int64 // handlers outlive their server
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answering.Add(1)
		defer answering.Add(-1)
		handler(w, r)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(n) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case n.conns <- theirs:
			return ours, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		close(n.conns)
		_ = server.Close()
		<-done
		testkit.WaitFor(t, "all handlers have returned", func() bool { return answering.Load() == 0 })
	})
	e, err := NewEndpoint(EndpointSpec{URL: "http://127.0.0.1/routing/v1/", Client: &http.Client{Transport: transport}})
	testkit.Must(t, err)
	return e
}

// respondWith is a host that always returns the same answer.
func respondWith(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

// askEndpoint asks with fake time, within the budget of a node.
func askEndpoint(t *testing.T, handler http.HandlerFunc, then func(t *testing.T, a record.Answer, err error, took time.Duration)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := serve(t, handler)
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		began := time.Now()
		a, err := e.Ask(ctx, question)
		then(t, a, err, time.Since(began))
	})
}

func ids(a record.Answer) (all []string) {
	for _, p := range a.Providers {
		all = append(all, p.ID)
	}
	return all
}

func TestBothForms(t *testing.T) {
	one := recordLine(1, "/ip4/192.0.2.1/tcp/9500/tls", "/dns4/one.example/tcp/443/tls/http", "/ip4/192.0.2.1/udp/4001/quic-v1", "/ip4/10.0.0.1/tcp/80/http", "/p2p/"+idOf(9))
	old := `{"Schema":"bitswap","Protocol":"transport-bitswap","ID":"QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N","Addrs":["/ip4/192.0.2.2/tcp/4001"]}`
	odd := `{"Schema":"future","ID":"x"},{"Schema":"peer","ID":7},{"Schema":"peer","ID":""},{"Schema":"peer","ID":"a b"},"text",null`
	want := []record.Provider{
		{ID: peerOf(1), Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{"https://one.example:443", "http://10.0.0.1:80"},
			Other: []string{"/ip4/192.0.2.1/udp/4001/quic-v1", "/p2p/" + idOf(1)}, Source: record.Delegated},
		{ID: "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N", Other: []string{"/ip4/192.0.2.2/tcp/4001"}, Source: record.Delegated},
	}
	for name, handler := range map[string]http.HandlerFunc{
		"document": respondWith("application/json; charset=utf-8", `{"Extra":{"a":[1]},"Providers":[`+one+`,`+odd+`,`+old+`],"More":1}`),
		"stream":   respondWith("application/x-ndjson", one+"\n"+old+"\n"),
		"lines":    respondWith("application/x-ndjson", strings.Join([]string{`{"Schema":"future"}`, one, `null`, `"text"`, `{"Schema":"peer","ID":7}`, old}, "\n")),
	} {
		t.Run(name, func(t *testing.T) {
			askEndpoint(t, handler, func(t *testing.T, a record.Answer, err error, _ time.Duration) {
				if err != nil || !reflect.DeepEqual(a.Providers, want) {
					t.Errorf("%v\n%+v\nwant\n%+v", err, a.Providers, want)
				}
			})
		})
	}
}

func TestWhatIsAsked(t *testing.T) {
	askEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" || r.URL.Path != "/routing/v1/providers/"+question.Address.CID() {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		if r.Header.Get("Accept") != "application/x-ndjson, application/json;q=0.9" || r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("%v", r.Header)
		}
		respondWith("application/x-ndjson", "")(w, r)
	}, func(t *testing.T, a record.Answer, err error, _ time.Duration) {
		if err != nil || len(a.Providers) != 0 {
			t.Errorf("an empty stream: %+v, %v", a, err)
		}
	})
}

func TestNobody(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"404":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"an empty":    respondWith("application/json", `{"Providers":[]}`),
		"a null":      respondWith("application/json", `{"Providers":null}`),
		"no list":     respondWith("application/json", `{}`),
		"only others": respondWith("application/x-ndjson", `{"Schema":"future"}`+"\n"),
	} {
		t.Run(name, func(t *testing.T) {
			askEndpoint(t, handler, func(t *testing.T, a record.Answer, err error, _ time.Duration) {
				if err != nil || len(a.Providers) != 0 {
					t.Errorf("%+v, %v", a, err)
				}
			})
		})
	}
}

func TestNamesAreNotAskedFor(t *testing.T) {
	asked := false
	e := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	a, err := e.Ask(t.Context(), record.Question{Kind: record.ByName, Name: "docs"})
	if err != nil || len(a.Providers) > 0 || a.Name != nil || asked {
		t.Errorf("%+v, %v, asked: %t", a, err, asked)
	}
}

// Whatever an endpoint does, the result is typed and arrives within the
// deadline.
func TestHostileEndpoints(t *testing.T) {
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	bomb := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for range 1 << 7 {
			_, _ = z.Write(make([]byte, 1<<14))
		}
		_ = z.Close()
	}
	dribble := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	}
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, recordLine(1)[:20])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	// A client that follows gets an answer.
	leading := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Host == "127.0.0.1" && r.URL.Path != "/" {
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
				return
			}
			respondWith("application/x-ndjson", recordLine(1))(w, r)
		}
	}
	coded := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "none of ours")
		respondWith("application/x-ndjson", recordLine(1))(w, r)
	}
	hangUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		kind    fault.Kind
		again   time.Duration
	}{
		"a redirect for ever":         {handler: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) }, kind: fault.UpstreamFailed},
		"a redirect elsewhere":        {handler: leading("http://127.0.0.2/"), kind: fault.UpstreamFailed},
		"a redirect to another port":  {handler: leading("http://127.0.0.1:9600/"), kind: fault.UpstreamFailed},
		"a redirect by another road":  {handler: leading("https://127.0.0.1/"), kind: fault.UpstreamFailed},
		"a redirect nowhere":          {handler: status(302), kind: fault.UpstreamFailed},
		"10 MB of space":              {handler: respondWith("application/json", strings.Repeat(" ", 10<<20)), kind: fault.UpstreamFailed},
		"10 MB of one record":         {handler: respondWith("application/x-ndjson", `{"Schema":"`+strings.Repeat("x", 10<<20)+`"}`), kind: fault.UpstreamFailed},
		"deep brackets":               {handler: respondWith("application/json", `{"Providers":[`+strings.Repeat("[", 1<<19)), kind: fault.UpstreamFailed},
		"byte by byte":                {handler: dribble, kind: fault.Timeout},
		"silence":                     {handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, kind: fault.Timeout},
		"garbage":                     {handler: respondWith("application/json", `{"Providers":[{]}`), kind: fault.UpstreamFailed},
		"garbage in lines":            {handler: respondWith("application/x-ndjson", "what?\n"), kind: fault.UpstreamFailed},
		"a list":                      {handler: respondWith("application/json", `[]`), kind: fault.UpstreamFailed},
		"a list that is none":         {handler: respondWith("application/json", `{"Providers":{}}`), kind: fault.UpstreamFailed},
		"a key that is none":          {handler: respondWith("application/json", `{1:2}`), kind: fault.UpstreamFailed},
		"a member that is none":       {handler: respondWith("application/json", `{"a":]`), kind: fault.UpstreamFailed},
		"a list without an end":       {handler: respondWith("application/json", `{"Providers":[`), kind: fault.Transient},
		"a document without an end":   {handler: respondWith("application/json", `{"Providers":[]`), kind: fault.Transient},
		"a document that just begins": {handler: respondWith("application/json", `{"Providers":`), kind: fault.Transient},
		"nothing":                     {handler: respondWith("application/json", ``), kind: fault.Transient},
		"HTML":                        {handler: respondWith("text/html", `{"Providers":[]}`), kind: fault.UpstreamFailed},
		"no type":                     {handler: respondWith("", `{"Providers":[]}`), kind: fault.UpstreamFailed},
		"a bomb":                      {handler: bomb, kind: fault.UpstreamFailed},
		"a coding":                    {handler: coded, kind: fault.UpstreamFailed},
		"429":                         {handler: status(429, "Retry-After", "7"), kind: fault.UpstreamFailed, again: 7 * time.Second},
		"429 for ever":                {handler: status(429, "Retry-After", "2000000000"), kind: fault.UpstreamFailed, again: time.Hour},
		"500":                         {handler: status(500), kind: fault.UpstreamFailed},
		"503":                         {handler: status(503, "Retry-After", "Sat, 01 Jan 2000 00:00:30 GMT"), kind: fault.Transient, again: 30 * time.Second},
		"504":                         {handler: status(504, "Retry-After", "soon"), kind: fault.Transient},
		"204":                         {handler: status(204), kind: fault.UpstreamFailed},
		"cut in the first line":       {handler: cut, kind: fault.Transient},
		"hung up":                     {handler: hangUp, kind: fault.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			askEndpoint(t, c.handler, func(t *testing.T, a record.Answer, err error, took time.Duration) {
				if kind := fault.KindOf(err); kind != c.kind || len(a.Providers) > 0 {
					t.Errorf("%v is %s, want %s", err, kind, c.kind)
				}
				own, _ := err.(*fault.Error)
				if own == nil || own.Op != opAsk || own.RetryAfter != c.again {
					t.Errorf("%+v", own)
				}
				if took > 1200*time.Millisecond {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

func TestRedirectsOnTheHost(t *testing.T) {
	for times, kind := range map[int64]fault.Kind{maxRedirects: 0, maxRedirects + 1: fault.UpstreamFailed} {
		var asked atomic.Int64
		askEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
			if n := asked.Add(1); n <= times {
				http.Redirect(w, r, "http://127.0.0.1/other"+strconv.FormatInt(n, 10), http.StatusTemporaryRedirect)
				return
			}
			respondWith("application/x-ndjson", recordLine(1))(w, r)
		}, func(t *testing.T, a record.Answer, err error, _ time.Duration) {
			if fault.KindOf(err) != kind || (err == nil) != (len(a.Providers) == 1) || asked.Load() != maxRedirects+1 {
				t.Errorf("%+v, %v after %d requests", a, err, asked.Load())
			}
		})
	}
}

// An endpoint may go on searching after the client has enough.
func TestStreamsThatDoNotEnd(t *testing.T) {
	begin := func(w http.ResponseWriter, lines ...string) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, strings.Join(lines, "\n"))
		_ = http.NewResponseController(w).Flush()
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    []string
		took    time.Duration
	}{
		"it is silent": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				begin(w, recordLine(1), recordLine(2), "")
				<-r.Context().Done()
			},
			want: []string{peerOf(1), peerOf(2)}, took: moreTimeout,
		},
		"it finds one more in time, and one too late": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				begin(w, recordLine(1), "")
				time.Sleep(200 * time.Millisecond)
				begin(w, recordLine(2), "")
				time.Sleep(200 * time.Millisecond)
				begin(w, recordLine(3), "")
			},
			want: []string{peerOf(1), peerOf(2)}, took: moreTimeout,
		},
		"it breaks off": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				begin(w, recordLine(1), recordLine(2), recordLine(3)[:30])
				panic(http.ErrAbortHandler)
			},
			want: []string{peerOf(1), peerOf(2)},
		},
		"it ends in a line": {
			handler: func(w http.ResponseWriter, r *http.Request) { begin(w, recordLine(1), recordLine(3)[:30]) },
			want:    []string{peerOf(1)},
		},
		"it goes on with garbage": {
			handler: func(w http.ResponseWriter, r *http.Request) { begin(w, recordLine(1), "<html>", recordLine(2)) },
			want:    []string{peerOf(1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			askEndpoint(t, c.handler, func(t *testing.T, a record.Answer, err error, took time.Duration) {
				if err != nil || !reflect.DeepEqual(ids(a), c.want) || took != c.took {
					t.Errorf("%v, %v after %s; want %v after %s", ids(a), err, took, c.want, c.took)
				}
			})
		})
	}
}

func TestTenThousandProviders(t *testing.T) {
	var lines []string
	for n := range 10_000 {
		lines = append(lines, fmt.Sprintf(`{"Schema":"peer","ID":"host-%d","Addrs":["/ip4/192.0.2.1/tcp/%d/tls"]}`, n, n+1))
	}
	for name, handler := range map[string]http.HandlerFunc{
		"lines":    respondWith("application/x-ndjson", strings.Join(lines, "\n")),
		"document": respondWith("application/json", `{"Providers":[`+strings.Join(lines, ",")+`]}`),
	} {
		t.Run(name, func(t *testing.T) {
			askEndpoint(t, handler, func(t *testing.T, a record.Answer, err error, _ time.Duration) {
				if err != nil || len(a.Providers) != maxProviders || a.Providers[99].ID != "host-99" {
					t.Errorf("%d providers, %v", len(a.Providers), err)
				}
			})
		})
	}
}

// A host that is named more than once is one host, in whatever base its ID is
// written.
func TestHostsThatAreNamedTwice(t *testing.T) {
	raw := append([]byte{1, 0x72, 0, 0x24, 8, 1, 0x12, 0x20}, keyOf(1)...)
	again := fmt.Sprintf(`{"Schema":"peer","ID":"b%s","Addrs":["/ip4/192.0.2.1/tcp/1/tls","/ip4/192.0.2.1/tcp/2/http"]}`, record.Base32.EncodeToString(raw))
	askEndpoint(t, respondWith("application/x-ndjson", recordLine(1, "/ip4/192.0.2.1/tcp/1/tls")+recordLine(2)+again), func(t *testing.T, a record.Answer, err error, _ time.Duration) {
		want := []record.Provider{
			{ID: peerOf(1), Overlay: []string{"192.0.2.1:1"}, HTTP: []string{"http://192.0.2.1:2"}, Other: []string{"/p2p/" + idOf(1)}, Source: record.Delegated},
			{ID: peerOf(2), Other: []string{"/p2p/" + idOf(2)}, Source: record.Delegated},
		}
		if err != nil || !reflect.DeepEqual(a.Providers, want) {
			t.Errorf("%v\n%+v\nwant\n%+v", err, a.Providers, want)
		}
	})
}

func TestManyAddresses(t *testing.T) {
	var addrs []string
	for n := range 1000 {
		addrs = append(addrs, fmt.Sprintf("/ip4/192.0.2.1/tcp/%d", n+1), fmt.Sprintf("/ip4/192.0.2.1/tcp/%d/http", n+1))
	}
	askEndpoint(t, respondWith("application/x-ndjson", recordLine(1, addrs...)+recordLine(1, addrs...)), func(t *testing.T, a record.Answer, err error, _ time.Duration) {
		if err != nil || len(a.Providers) != 1 || len(a.Providers[0].HTTP) != maxAddrs || !reflect.DeepEqual(a.Providers[0].Other, []string{"/p2p/" + idOf(1)}) {
			t.Errorf("%+v, %v", a.Providers, err)
		}
	})
}

func TestUnreachableEndpoints(t *testing.T) {
	const address = "127.0.0.1:1" // there is no listener
	secret := httptest.NewTLSServer(respondWith("application/json", `{}`))
	secret.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer secret.Close()
	open := httptest.NewServer(respondWith("application/json", `{}`))
	defer open.Close()
	for name, c := range map[string]struct {
		url  string
		kind fault.Kind
	}{
		"nobody listens":           {"http://" + address, fault.Transient},
		"a certificate of nobody":  {secret.URL, fault.UpstreamFailed},
		"no TLS where it is asked": {strings.Replace(open.URL, "http:", "https:", 1), fault.UpstreamFailed},
	} {
		transport := &http.Transport{}
		e, err := NewEndpoint(EndpointSpec{URL: c.url, Client: &http.Client{Transport: transport}})
		testkit.Must(t, err)
		_, err = e.Ask(t.Context(), question)
		if fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v is %s, want %s", name, err, fault.KindOf(err), c.kind)
		}
		transport.CloseIdleConnections()
	}
}

func TestCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := e.Ask(ctx, question); fault.KindOf(err) != fault.Canceled {
			t.Errorf("%v is %s", err, fault.KindOf(err))
		}
	})
}

// A caller without a deadline waits for half a minute.
func TestNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		began := time.Now()
		if _, err := e.Ask(t.Context(), question); fault.KindOf(err) != fault.Timeout || time.Since(began) != maxAskTime {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"https://node.example":                  "https://node.example/routing/v1/providers/",
		"https://node.example:8443/routing/v1":  "https://node.example:8443/routing/v1/providers/",
		"https://node.example/routing/v1/":      "https://node.example/routing/v1/providers/",
		"https://node.example/deep/routing/v1/": "https://node.example/deep/routing/v1/providers/",
		"http://127.0.0.1:8080":                 "http://127.0.0.1:8080/routing/v1/providers/",
		"http://[::1]:8080/":                    "http://[::1]:8080/routing/v1/providers/",
		"http://localhost":                      "http://localhost/routing/v1/providers/",
	} {
		e, err := NewEndpoint(EndpointSpec{URL: url})
		if err != nil || e.base != want {
			t.Errorf("%s: %v, %v; want %s", url, e, err, want)
		}
	}
	for _, url := range []string{"", "node.example", "http://node.example", "http://10.0.0.1", "ftp://node.example", "https://", "https://a@node.example",
		"https://node.example?a=b", "https://node.example?", "https://node.example#a", "https://%zz", "unix:///run/x"} {
		if _, err := NewEndpoint(EndpointSpec{URL: url}); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
			t.Errorf("%q: %v", url, err)
		}
	}
}
