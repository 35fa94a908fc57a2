//go:build gates

package gates

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
)

// respondGarbage answers with something other than records.
func respondGarbage(w http.ResponseWriter, _ *http.Request, address b3.Address) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"Providers": "`+strings.Repeat("\x00\xff<script>", 1+int(address[0])))
}

// redirectForever redirects forever, and stays on its host, so that a client
// could follow.
func redirectForever(w http.ResponseWriter, r *http.Request, _ b3.Address) {
	http.Redirect(w, r, "/again"+r.URL.Path, http.StatusFound)
}

// redirectToMetadata redirects to an address behind the node's own firewall.
func redirectToMetadata(w http.ResponseWriter, r *http.Request, _ b3.Address) {
	http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
}

// respondSlowly sends a byte now and then, and would need minutes.
func respondSlowly(w http.ResponseWriter, r *http.Request, _ b3.Address) {
	w.Header().Set("Content-Type", "application/json")
	for _, c := range []byte(`{"Providers":[` + strings.Repeat(" ", 2000) + `]}`) {
		_, _ = w.Write([]byte{c})
		_ = http.NewResponseController(w).Flush()
		if !sleepRequest(r, 50*time.Millisecond) {
			return
		}
	}
}

// respondTooMany lists ten thousand providers, with a hundred addresses each.
func respondTooMany(w http.ResponseWriter, _ *http.Request, _ b3.Address) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	addrs := strings.TrimSuffix(strings.Repeat(`"/ip4/127.0.0.1/tcp/1/http",`, 100), ",")
	for i := range 10_000 {
		if _, err := fmt.Fprintf(w, `{"Schema":"peer","ID":"invented-%d","Addrs":[%s]}`+"\n", i, addrs); err != nil {
			return // the client has stopped reading
		}
	}
}

// respondForbiddenAddrs lists providers at addresses that a node must not dial.
func respondForbiddenAddrs(w http.ResponseWriter, _ *http.Request, _ b3.Address) {
	writeProviders(w, providerRecord{"peer", "metadata", []string{"/ip4/169.254.169.254/tcp/80/http", "/ip6/fe80::1/tcp/80/http"}},
		providerRecord{"peer", "nowhere", []string{"/ip4/0.0.0.0/tcp/80/http", "/ip4/224.0.0.1/tcp/80/http"}})
}

// The only endpoint fails in its own way: each look-up has a typed error, and
// after a few of them the circuit breaker of the endpoint opens, which
// readiness shows.
func TestIndexLyingEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		conduct routerHandler
		status  int
		code    string
	}{
		"rubbish":           {respondGarbage, http.StatusBadGateway, "UpstreamFailed"},
		"endless redirects": {redirectForever, http.StatusBadGateway, "UpstreamFailed"},
		"a redirect away":   {redirectToMetadata, http.StatusBadGateway, "UpstreamFailed"},
		"slow bytes":        {respondSlowly, http.StatusGatewayTimeout, "Timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			one := newFakeRouters(t, 1, c.conduct)
			p := start(t, nil, append(delegatedSettings(one), "MICRO_INDEX__DHT__DEADLINE_MS=400")...)
			var answers []string
			for i := range 8 {
				f := p.lookupProviders(testAddress(name, i))
				answers = append(answers, fmt.Sprint(f.status, " ", f.code))
				if i < 5 && (f.status != c.status || f.code != c.code) {
					t.Errorf("question %d: %d %s, want %d %s", i, f.status, f.code, c.status, c.code)
				}
			}
			if last := answers[len(answers)-1]; last != "503 BreakerOpen" {
				t.Errorf("the last answers were %v", answers)
			}
			if open := p.metric("breaker_state", `state="open"`); open != 1 {
				t.Errorf("%v breakers are open", open)
			}
			awaitCondition(t, p, "readiness to tell of it", func() bool {
				_, body := p.ready()
				return strings.Contains(body, "endpoints of Delegated Routing fail")
			})
			if one[0].requests.Load() > 40 {
				t.Errorf("it was asked %d times for 8 questions", one[0].requests.Load())
			}
			p.stop(syscall.SIGTERM)
		})
	}
}

// Endpoints with exaggerated answers: each is cut down to what can be used.
func TestIndexBoastingEndpoints(t *testing.T) {
	p := start(t, nil, delegatedSettings(newFakeRouters(t, 1, respondTooMany))...)
	before := p.rss()
	answer, body, err := fetch(p.http + "/providers/" + testAddress("boast", 0).String() + "?limit=100")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v %v %s", answer, err, body)
	}
	if n := strings.Count(string(body), `"invented-`); n == 0 || n > 100 {
		t.Errorf("%d of ten thousand providers were taken", n)
	}
	for i := range 20 {
		if f := p.lookupProviders(testAddress("boast more", i)); f.status != http.StatusOK {
			t.Errorf("%d %s", f.status, f.code)
		}
	}
	if after := p.rss(); after > before+64<<20 {
		t.Errorf("rss grew from %d to %d MiB", before>>20, after>>20)
	}
	p.stop(syscall.SIGTERM)

	p = start(t, nil, delegatedSettings(newFakeRouters(t, 1, respondForbiddenAddrs))...)
	address := testAddress("tempt", 0)
	if f := p.lookupProviders(address); f.status != http.StatusOK || strings.Contains(fmt.Sprint(f.Providers.Providers), "169.254") || strings.Contains(fmt.Sprint(f.Providers.Providers), "0.0.0.0") {
		t.Errorf("%d %s %+v", f.status, f.code, f.Providers.Providers)
	}
	if _, err := p.local().FetchAnywhere(t.Context(), address); errorCode(err) != "NotFound" {
		t.Errorf("fetching from there: %v", err)
	}
	p.stop(syscall.SIGTERM)
}

// All of them at once, and one that is correct but not the fastest: every
// look-up finds its answer, in time, and the circuit breakers of those that
// fail open.
func TestIndexLiarsAmongOthers(t *testing.T) {
	var liars []*fakeRouter
	for _, one := range []routerHandler{respondGarbage, redirectForever, redirectToMetadata, respondSlowly, respondForbiddenAddrs} {
		liars = append(liars, newFakeRouter(t, one))
	}
	honest := newFakeRouters(t, 1, respondAfter(60*time.Millisecond))
	p := start(t, nil, append(delegatedSettings(liars, honest), "MICRO_INDEX__DHT__ALPHA=6")...) // all of them at once
	var took []time.Duration
	for i := range 40 {
		f := p.lookupProviders(testAddress("among others", i))
		took = append(took, f.took)
		if f.status != http.StatusOK || !strings.Contains(fmt.Sprint(f.Providers.Providers), someProvider.ID) {
			t.Errorf("look-up %d: %d %s %+v", i, f.status, f.code, f.Providers.Providers)
		}
	}
	open := p.metric("breaker_state", `state="open"`)
	t.Logf("look-ups took %s at p50 and %s at p99; %v of 6 breakers are open", percentile(took, .5).Round(time.Millisecond), percentile(took, .99).Round(time.Millisecond), open)
	if open != 3 {
		t.Errorf("%v breakers are open, and three of the endpoints do nothing but fail", open)
	}
	p.stop(syscall.SIGTERM)
}

// objectServer simulates a provider: a server that returns arbitrary bytes for
// an object.
type objectServer struct {
	*httptest.Server
	requests atomic.Int64
}

func newObjectServer(t *testing.T, give func(w http.ResponseWriter, r *http.Request)) *objectServer {
	t.Helper()
	g := &objectServer{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.requests.Add(1)
		give(w, r)
	}))
	t.Cleanup(func() {
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

// providerRecord is how a router lists it.
func (o *objectServer) providerRecord(id string) providerRecord {
	host, port, _ := strings.Cut(strings.TrimPrefix(o.URL, "http://"), ":")
	return providerRecord{"peer", id, []string{"/ip4/" + host + "/tcp/" + port + "/http"}}
}

// Providers that send wrong bytes, too few, too many or none: the next one is
// tried, what is right is stored, and nothing of what is wrong.
func TestIndexLyingProviders(t *testing.T) {
	object := bytes.Repeat([]byte("the real thing "), 20_000)
	address := b3.Of(object)
	wrong := bytes.Clone(object)
	wrong[len(wrong)-1] ^= 1
	give := func(body []byte) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }
	}
	for name, lie := range map[string]func(http.ResponseWriter, *http.Request){
		"the last byte is another": give(wrong),
		"all bytes are others":     give([]byte("something else")),
		"nothing":                  give(nil),
		"the end is missing":       give(object[:len(object)/2]),
		"more than there is":       give(append(bytes.Clone(object), 'x')),
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(object)))
			_, _ = w.Write(object[:1000])
			panic(http.ErrAbortHandler)
		},
		"no end": func(w http.ResponseWriter, _ *http.Request) {
			for block := make([]byte, 1<<20); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		},
		"silence": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"refusal": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
	} {
		t.Run(name, func(t *testing.T) {
			liar, honest := newObjectServer(t, lie), newObjectServer(t, give(object))
			// Of two unknown providers, the first by name is tried first.
			all := newFakeRouters(t, 1, func(w http.ResponseWriter, _ *http.Request, _ b3.Address) {
				writeProviders(w, liar.providerRecord("a-liar"), honest.providerRecord("b-honest"))
			})
			p := start(t, nil, append(delegatedSettings(all), "MICRO_STORE__RAM_BYTES=64MiB")...)
			got, err := p.local().FetchAnywhere(t.Context(), address)
			if err != nil || !got.Created || got.Size != int64(len(object)) {
				t.Fatalf("%+v, %v\n%s", got, err, p.stderr)
			}
			answer, body, err := fetch(p.http + "/o/" + address.String())
			if err != nil || answer.StatusCode != http.StatusOK || !bytes.Equal(body, object) {
				t.Errorf("what was fetched: %v, %v, %d bytes", answer, err, len(body))
			}
			if liar.requests.Load() == 0 || honest.requests.Load() == 0 {
				t.Errorf("the liar was asked %d times, the honest one %d times", liar.requests.Load(), honest.requests.Load())
			}
			wantStored(t, p, 1, float64(len(object)))
			p.stop(syscall.SIGTERM)
		})
	}
}

// Only lying providers: the error is typed, and nothing is kept.
func TestIndexOnlyLiars(t *testing.T) {
	liar := newObjectServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("something else")) })
	all := newFakeRouters(t, 1, func(w http.ResponseWriter, _ *http.Request, _ b3.Address) {
		writeProviders(w, liar.providerRecord("a-liar"))
	})
	p := start(t, nil, delegatedSettings(all)...)
	address := testAddress("only liars", 0)
	_, err := p.local().FetchAnywhere(t.Context(), address)
	if code := errorCode(err); code != "IntegrityFail" {
		t.Errorf("fetched from a liar: %v", err)
	}
	if answer, body, err := fetch(p.http + "/o/" + address.String()); err != nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("it is kept: %v %v %s", answer, err, body)
	}
	wantStored(t, p, 0, 0)
	if !strings.Contains(p.stderr.String(), "a-liar") {
		t.Errorf("the log does not say who lied:\n%s", p.stderr)
	}
	p.stop(syscall.SIGTERM)
}

// wantStored checks how many objects a node has, and that it holds no more
// bytes than they take: nothing of what was rejected.
func wantStored(t *testing.T, p *process, n, bytes float64) {
	t.Helper()
	if kept := p.metric("store_objects", ""); kept != n {
		t.Errorf("%v objects are stored, want %v", kept, n)
	}
	if held := p.metric("store_held_bytes", ""); held > bytes+bytes/2 {
		t.Errorf("%v bytes are held for objects of %v", held, bytes)
	}
}

// Names without a valid signature are not names: what a router or another peer
// says of one is not even requested, and a name without a peer belongs to this
// node only.
func TestIndexNobodyElsesNames(t *testing.T) {
	p := start(t, nil, delegatedSettings(newFakeRouters(t, 1, respondAfter(0)))...)
	for _, id := range []string{"name:docs", "docs"} {
		if _, err := p.local().Resolve(t.Context(), id, client.ResolveOptions{}); errorCode(err) != "NotFound" {
			t.Errorf("%s: %v", id, err)
		}
	}
	for id, code := range map[string]string{"name:" + strings.Repeat("x", 10_000): "Malformed", "name:Docs": "Malformed", "name:a%00b": "Malformed", "b3:123": "Malformed", "bafyfoo": ""} {
		answer, body, err := fetch(p.http + "/resolve/" + id)
		if err != nil || answer.StatusCode < 400 || problemCode(body) == "" || code != "" && problemCode(body) != code {
			t.Errorf("%.40s: %v %v %s", id, answer, err, body)
		}
	}
	p.stop(syscall.SIGTERM)
}
