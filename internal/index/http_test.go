package index

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/index/rank"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// decode decodes an answer, which must have this status.
func decode[T any](t *testing.T, answer *httptest.ResponseRecorder, status int) (v T) {
	t.Helper()
	if answer.Code != status {
		t.Fatalf("%d %s, want %d", answer.Code, answer.Body, status)
	}
	testkit.Must(t, json.Unmarshal(answer.Body.Bytes(), &v))
	return v
}

// The answer that the document shows is one that a node gives.
func TestTheAnswerInTheDocument(t *testing.T) {
	const peer = "giqezx27uzky3gjhkewuaadwx63hqaj6znudhrysrtl4jzx5lnhq"
	id, err := record.ParseID("name:docs@" + peer)
	testkit.Must(t, err)
	now := time.Now()
	body, _ := encodeResolution(Resolution{ID: id, Manifest: b3.Of(nil), Source: record.Peer, At: now, Providers: []rank.Ranked{{
		Provider: record.Provider{ID: peer, Region: "eu-west", Overlay: []string{"192.0.2.1:9500"}, HTTP: []string{"https://192.0.2.1:8443"}, Seen: now.Add(-2 * time.Second)},
		Class:    "best", Score: 0.81, Latency: "near",
	}}}, now, "")
	var pretty bytes.Buffer
	testkit.Must(t, json.Indent(&pretty, body, "", "  "))
	text, err := os.ReadFile("../../docs/index.md")
	testkit.Must(t, err)
	_, shown, _ := strings.Cut(string(text), "$ curl http://127.0.0.1:8080/resolve/name:docs@"+peer+" | jq\n")
	shown, _, _ = strings.Cut(shown, "```")
	if shown != pretty.String() {
		t.Errorf("docs/index.md shows\n%s\nand a node answers\n%s", shown, &pretty)
	}
}

// The shape of an answer is part of the API.
func TestTheShapeOfAResolution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bob := providerOf("bob")
		bob.Seen = time.Now().Add(-7 * time.Second)
		bob.HTTP = nil
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, bob)))))
		a := address("x")
		var raw map[string]any
		answer := r.get("/resolve/" + a.CID())
		testkit.Must(t, json.Unmarshal(answer.Body.Bytes(), &raw))
		provider := raw["providers"].([]any)[0].(map[string]any)
		for key, want := range map[string]any{"key": a.String(), "kind": "cid", "manifest_cid": a.String(), "source": "dht", "freshness_s": 0.0, "etag": answer.Header().Get("Etag")} {
			testkit.Equal(t, key, raw[key], want)
		}
		for key, want := range map[string]any{"id": bob.ID, "addr": "127.0.0.1:9500", "region": "eu-west", "last_seen_s": 7.0, "latency": "unknown"} {
			testkit.Equal(t, key, provider[key], want)
		}
		if _, stale := raw["stale"]; stale || provider["class"] == "" || provider["score"].(float64) <= 0 {
			t.Errorf("%s", answer.Body)
		}
		testkit.Equal(t, "Cache-Control", answer.Header().Get("Cache-Control"), "no-cache")
		testkit.Equal(t, "Content-Type", answer.Header().Get("Content-Type"), "application/json")

		time.Sleep(3 * time.Second)
		again := r.get("/resolve/"+a.String(), "If-None-Match", answer.Header().Get("Etag"))
		if again.Code != 304 || again.Body.Len() != 0 {
			t.Errorf("who has it gets %d %s", again.Code, again.Body)
		}
		aged := decode[client.Resolution](t, r.get("/resolve/"+a.String()), 200)
		if aged.Freshness != 3 || aged.Source != "cache" || aged.ETag != answer.Header().Get("Etag") || aged.Providers[0].LastSeen != 10 {
			t.Errorf("three seconds later: %+v", aged)
		}
		time.Sleep(20 * time.Second)
		stale := decode[client.Resolution](t, r.get("/resolve/"+a.String()+"?fresh=false"), 200)
		if !stale.Stale || stale.Freshness != 23 || stale.ETag == aged.ETag {
			t.Errorf("stale: %+v", stale)
		}
		if got := decode[client.Resolution](t, r.get("/resolve/"+a.String()+"?fresh=true"), 200); got.Stale {
			t.Errorf("fresh: %+v", got)
		}
	})
}

// The answer of /providers.
func TestTheShapeOfProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far, old, strange := providerOf("near"), providerOf("far"), providerOf("old"), record.Provider{ID: "12D3KooW", Other: []string{"/ip4/1.2.3.4/udp/4001/quic-v1", "/p2p/12D3KooW"}}
		far.Region, old.Seen = "us-east", time.Now().Add(-time.Hour)
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(20*time.Millisecond, near, far, old, strange)))), withConfig(func(c *Config) { c.Region = "eu-west" }))
		a := address("x")
		got := decode[client.Providers](t, r.get("/providers/"+a.String()), 200)
		if got.CID != a || got.Source != "dht" || len(got.Providers) != 4 || got.Hedge != (client.Hedge{Winner: "alpha"}) {
			t.Fatalf("%+v", got)
		}
		if got.Providers[0].ID != near.ID || len(got.Providers[0].Addrs) != 2 {
			t.Errorf("the first is %+v", got.Providers[0])
		}
		last := got.Providers[3]
		if last.ID != "12D3KooW" || last.Addr != "/ip4/1.2.3.4/udp/4001/quic-v1" || last.LastSeen != -1 {
			t.Errorf("the last is %+v", last)
		}
		if got = decode[client.Providers](t, r.get("/providers/"+a.CID()+"?region=us-east&limit=1"), 200); len(got.Providers) != 1 || got.Providers[0].ID != far.ID || got.Hedge != (client.Hedge{Winner: "none"}) {
			t.Errorf("with a region: %+v", got)
		}
		if got = decode[client.Providers](t, r.get("/providers/"+a.String()+"?min_freshness=60"), 200); len(got.Providers) != 2 {
			t.Errorf("the fresh ones: %+v", got)
		}
		testkit.Equal(t, "the source of what is remembered", got.Source, "cache")
	})
}

// An empty result is an answer of /providers, and an error of /resolve.
func TestNobodyHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersEmpty))))
		for range 2 {
			answer := r.get("/providers/" + address("x").String())
			if got := decode[client.Providers](t, answer, 200); len(got.Providers) != 0 || !strings.Contains(answer.Body.String(), `"providers":[]`) || got.Hedge.Winner != "none" {
				t.Errorf("%s", answer.Body)
			}
			testkit.Equal(t, "resolve", r.get("/resolve/"+address("x").String()).Code, 404)
		}
	})
}

// Malformed questions are rejected with an explanation.
func TestMalformedQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		a := address("x").String()
		for _, path := range []string{
			"/resolve/b3:xyz", "/resolve/b3:" + strings.Repeat("A", 64), "/resolve/name:UPPER", "/resolve/" + strings.Repeat("x", 10_000), "/resolve/name:a%00b",
			"/resolve/QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKXzYT", "/resolve/docs@nobody", "/resolve/" + a + "?fresh=maybe",
			"/providers/docs", "/providers/b3:00", "/providers/" + a + "?limit=0", "/providers/" + a + "?limit=101", "/providers/" + a + "?limit=", "/providers/" + a + "?limit=x",
			"/providers/" + a + "?min_freshness=-1", "/providers/" + a + "?min_freshness=1e9", "/providers/" + a + "?min_freshness=99999999999", "/providers/" + a + "?region=a%20b",
			"/providers/" + a + "?region=" + strings.Repeat("x", 500),
		} {
			answer := r.get(path)
			problem := decode[map[string]any](t, answer, 400)
			if problem["code"] != "Malformed" || problem["next"] == "" || answer.Body.Len() > 2000 {
				t.Errorf("%.60s: %s", path, answer.Body)
			}
		}
		testkit.Equal(t, "look-ups", r.count("index_dht_lookup_ms"), 0)
	})
}

// A name may have slashes, and they may be escaped.
func TestNamesWithSlashesInPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withRegistry(fakeRegistry{"docs/api": address("api")}))
		for _, path := range []string{"/resolve/name:docs/api", "/resolve/docs%2Fapi", "/resolve/docs/api"} {
			if got := decode[client.Resolution](t, r.get(path), 200); got.Key != "name:docs/api" || got.Kind != "name" || got.Source != "registry" || got.Manifest != address("api") {
				t.Errorf("%s: %+v", path, got)
			}
		}
	})
}

// The warm lane returns the same as the handler.
func TestTheWarmLaneSaysTheSame(t *testing.T) {
	r := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, providerOf("bob"))))))
	a := address("x")
	target := "/resolve/" + a.String()
	if _, ok := r.answerCache.Lookup([]byte(target)); ok {
		t.Fatal("an answer is ready before anybody asked")
	}
	decode[client.Resolution](t, r.get(target), 200)
	warm, cold := r.overTCP(t, target), r.get(target)
	if warm.status != cold.Code || warm.header.Get("Etag") != cold.Header().Get("Etag") || warm.header.Get("Content-Type") != cold.Header().Get("Content-Type") ||
		warm.header.Get("Cache-Control") != cold.Header().Get("Cache-Control") || warm.header.Get("Accept-Ranges") != cold.Header().Get("Accept-Ranges") {
		t.Errorf("warm: %+v; cold: %v", warm, cold.Header())
	}
	var one, other client.Resolution
	testkit.Must(t, json.Unmarshal([]byte(warm.body), &one))
	testkit.Must(t, json.Unmarshal(cold.Body.Bytes(), &other))
	one.Freshness, other.Freshness = 0, 0
	for _, resolution := range []*client.Resolution{&one, &other} {
		resolution.Providers[0].LastSeen, resolution.Providers[0].Score = 0, 0
	}
	testkit.Equal(t, "the warm answer", fmt.Sprint(one), fmt.Sprint(other))
	if r.count("index_cache_hits_total") < 2 {
		t.Error("hits of the lane are not counted")
	}
	if conditional := r.overTCP(t, target, "If-None-Match: "+warm.header.Get("Etag")); conditional.status != 304 {
		t.Errorf("who has it gets %d", conditional.status)
	}
}

type httpReply struct {
	status int
	header http.Header
	body   string
}

// overTCP sends a plain GET twice over a real connection, so that the lane may
// answer, and returns the second answer.
func (ti *testIndex) overTCP(t *testing.T, target string, header ...string) httpReply {
	t.Helper()
	supervisor, err := supervise.New(supervise.Options{DrainTimeout: time.Second, Stages: []supervise.Stage{{Name: "intake"}}})
	testkit.Must(t, err)
	var plain net.ListenConfig
	inner, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	listener := ti.server.Attach(inner, ingress.ListenOptions{Name: "http " + inner.Addr().String(), Addr: inner.Addr().String(), Warm: true})
	testkit.Must(t, supervisor.Add(supervise.Service{Service: "gateway", Name: "http", Stage: "intake", Serve: listener.Serve, Drain: listener.Drain}))
	done := make(chan struct{})
	go func() { _, _ = supervisor.Run(t.Context()); close(done) }()
	defer func() { supervisor.Shutdown("done"); <-done }()
	conn, err := net.Dial("tcp", inner.Addr().String())
	testkit.Must(t, err)
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	var last httpReply
	for range 2 {
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, inner.Addr(), strings.Join(append(header, ""), "\r\n"))
		testkit.Must(t, err)
		response, err := http.ReadResponse(in, nil)
		testkit.Must(t, err)
		body := make([]byte, max(0, response.ContentLength))
		if response.StatusCode != http.StatusNotModified {
			_, err = bufio.NewReader(response.Body).Read(body)
			testkit.Must(t, err)
		}
		last = httpReply{response.StatusCode, response.Header, string(body)}
	}
	return last
}

// A prepared answer costs nothing, is rebuilt each second, and is invalidated
// with its entry.
func TestReadyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, providerOf("bob"))))))
		a := address("x")
		target := []byte("/resolve/" + a.String())
		testkit.Must(t, <-r.ask("x", 0))
		first, ok := r.answerCache.Lookup(target)
		if again, _ := r.answerCache.Lookup(target); !ok || again != first {
			t.Fatal("it is made twice in a second")
		}
		if n := testing.AllocsPerRun(100, func() { r.answerCache.Lookup(target) }); n != 0 {
			t.Errorf("a ready answer costs %g allocations", n)
		}
		time.Sleep(time.Second)
		second, ok := r.answerCache.Lookup(target)
		if !ok || second == first {
			t.Error("it does not grow older")
		}
		testkit.Must(t, r.Reconfigure(r.settings.Load().Config))
		if same, ok := r.answerCache.Lookup(target); !ok || same != second {
			t.Error("a reload that changes nothing drops ready answers")
		}
		next := r.settings.Load().Config
		next.Cache.TTL++
		testkit.Must(t, r.Reconfigure(next))
		if third, ok := r.answerCache.Lookup(target); !ok || third == second {
			t.Error("a reload keeps ready answers")
		}
		r.put("x")
		if _, ok := r.answerCache.Lookup(target); ok {
			t.Error("after a put the old answer is ready")
		}
		for _, other := range []string{"/resolve/" + a.CID(), "/resolve/name:docs", "/resolve/" + strings.Repeat("x", 1000), "/resolve/b3:zz", "/resolve/b3:" + strings.Repeat("z", 64), "/resolve/b3:" + strings.Repeat("A", 64), "/elsewhere", string(target) + "?fresh=false"} {
			if _, ok := r.answerCache.Lookup([]byte(other)); ok {
				t.Errorf("%.40s is ready", other)
			}
		}
		time.Sleep(time.Minute)
		testkit.Must(t, <-r.ask("nobody's", 0))
	})
}

// Empty answers are not prepared, and answers beyond the limit are not kept.
func TestReadyAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var crowd []record.Provider
		for i := range 50 {
			crowd = append(crowd, providerOf(fmt.Sprint("node ", i)))
		}
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, crowd...)))), withConfig(func(c *Config) { c.Cache.PreparedBytes = 256 << 10 }))
		for i := range 200 {
			testkit.Must(t, <-r.ask(fmt.Sprint(i), 0))
			r.answerCache.Lookup([]byte("/resolve/" + address(fmt.Sprint(i)).String()))
		}
		r.answerCache.entries.CleanUp()
		if weight := r.answerCache.entries.WeightedSize(); weight > 256<<10 {
			t.Errorf("ready answers take %d bytes", weight)
		}
		none := open(t, withConfig(func(c *Config) { c.Cache.PreparedBytes = 0 }))
		if _, ok := none.answerCache.Lookup([]byte("/resolve/" + address("0").String())); ok {
			t.Error("without memory for prepared answers there is one")
		}
		none.ObjectAdded(address("0"))
		none.Trim()
	})
}

// Answers of an endpoint of Delegated Routing have that source.
func TestDelegatedRoutingIsAsked(t *testing.T) {
	a := address("x")
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, a.CID()) {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"Providers":[{"Schema":"peer","ID":"12D3KooWM8sovaEGU1bmiWGWAzvs47DEcXKZZTuJnpQyVTkRs2Vn","Addrs":["/ip4/127.0.0.1/tcp/8080/http"],"Protocols":["transport-ipfs-gateway-http"]}]}`)
	}))
	defer endpoint.Close()
	defer endpointClient.CloseIdleConnections()
	r := open(t, withConfig(func(c *Config) { c.Delegated, c.DHT.DeadlineMS = []string{endpoint.URL}, 10_000 }))
	got := decode[client.Resolution](t, r.get("/resolve/"+a.String()), 200)
	if got.Source != "delegated" || len(got.Providers) != 1 || got.Providers[0].Addr != "http://127.0.0.1:8080" {
		t.Errorf("%+v", got)
	}
	testkit.Equal(t, "another", r.get("/resolve/"+b3.Of([]byte("y")).String()).Code, 404)
}

// Each client is a class of its own; an IPv6 network is one.
func TestClientsAreToldApart(t *testing.T) {
	r := build(t)
	defer func() { testkit.Must(t, r.Close()) }()
	class := func(text string) uint64 { return r.clientClass(netip.MustParseAddr(text)) }
	testkit.Equal(t, "nobody", r.clientClass(ingress.ForwardedClient(httptest.NewRequest("GET", "/", nil))), 0)
	testkit.Equal(t, "the same address, written differently", class("192.0.2.1"), class("::ffff:192.0.2.1"))
	testkit.Equal(t, "the same network", class("2001:db8::1"), class("2001:db8::ffff:2"))
	if class("192.0.2.1") == class("192.0.2.2") || class("2001:db8::1") == class("2001:db8:0:1::1") {
		t.Error("two clients are one")
	}
}

// Behind a gateway in another process, look-ups are shared between the clients
// that the gateway reports.
func TestFairnessIsByTheGatewaysClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", neverAnswers))))
		for i, client := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.2"} {
			go r.get("/resolve/"+address(fmt.Sprint(i)).String(), ingress.ClientHeader, client, ingress.VoucherHeader, "a part's")
		}
		synctest.Wait()
		r.withFlights(func(fs *flights) {
			one, two := r.clientClass(netip.MustParseAddr("192.0.2.1")), r.clientClass(netip.MustParseAddr("192.0.2.2"))
			testkit.Equal(t, "clients", len(fs.perClient), 2)
			testkit.Equal(t, "look-ups of one", fs.perClient[one], 1)
			testkit.Equal(t, "look-ups of the other", fs.perClient[two], 2)
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
	})
}

func BenchmarkReadyAnswer(b *testing.B) {
	r := open(b, withEngine(newFakeEngine(target("a", answersAfter(0, providerOf("bob"))))))
	testkit.Must(b, <-r.ask("x", 0))
	target := []byte("/resolve/" + address("x").String())
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := r.answerCache.Lookup(target); !ok {
			testkit.Must(b, <-r.ask("x", 0))
		}
	}
}

func BenchmarkCachedResolve(b *testing.B) {
	r := open(b, withEngine(newFakeEngine(target("a", answersAfter(0, providerOf("bob"))))))
	id := byAddress(address("x"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Resolve(b.Context(), id, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
