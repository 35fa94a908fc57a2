package index

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
	"micronode/internal/supervise"
)

// decode reads an answer, which must be of this status.
func decode[T any](t *testing.T, answer *httptest.ResponseRecorder, status int) (v T) {
	t.Helper()
	if answer.Code != status {
		t.Fatalf("%d %s, want %d", answer.Code, answer.Body, status)
	}
	must(t, json.Unmarshal(answer.Body.Bytes(), &v))
	return v
}

// The shape of an answer is a promise.
func TestTheShapeOfAResolution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bob := where("bob")
		bob.Seen = time.Now().Add(-7 * time.Second)
		bob.HTTP = nil
		r := open(t, over(newNetwork(target("a", knowing(0, bob)))))
		a := address("x")
		var raw map[string]any
		answer := r.get("/resolve/" + a.CID())
		must(t, json.Unmarshal(answer.Body.Bytes(), &raw))
		provider := raw["providers"].([]any)[0].(map[string]any)
		for key, want := range map[string]any{"key": a.String(), "kind": "cid", "manifest_cid": a.String(), "source": "dht", "freshness_s": 0.0, "etag": answer.Header().Get("Etag")} {
			equal(t, key, raw[key], want)
		}
		for key, want := range map[string]any{"id": bob.ID, "addr": "127.0.0.1:9500", "region": "eu-west", "last_seen_s": 7.0, "latency": "unknown"} {
			equal(t, key, provider[key], want)
		}
		if _, stale := raw["stale"]; stale || provider["class"] == "" || provider["score"].(float64) <= 0 {
			t.Errorf("%s", answer.Body)
		}
		equal(t, "Cache-Control", answer.Header().Get("Cache-Control"), "no-cache")
		equal(t, "Content-Type", answer.Header().Get("Content-Type"), "application/json")

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

// The answer to who has something.
func TestTheShapeOfProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far, old, strange := where("near"), where("far"), where("old"), record.Provider{ID: "12D3KooW", Other: []string{"/ip4/1.2.3.4/udp/4001/quic-v1", "/p2p/12D3KooW"}}
		far.Region, old.Seen = "us-east", time.Now().Add(-time.Hour)
		r := open(t, over(newNetwork(target("a", knowing(20*time.Millisecond, near, far, old, strange)))), with(func(c *Config) { c.Region = "eu-west" }))
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
		if got = decode[client.Providers](t, r.get("/providers/"+a.CID()+"?region=us-east&limit=1"), 200); len(got.Providers) != 1 || got.Providers[0].ID != far.ID || got.Hedge != quiet {
			t.Errorf("with a wish: %+v", got)
		}
		if got = decode[client.Providers](t, r.get("/providers/"+a.String()+"?min_freshness=60"), 200); len(got.Providers) != 2 {
			t.Errorf("the fresh ones: %+v", got)
		}
		equal(t, "the source of what is remembered", got.Source, "cache")
	})
}

// That nobody has it is an answer to the one, and none to the other.
func TestNobodyHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", ignorant))))
		for range 2 {
			answer := r.get("/providers/" + address("x").String())
			if got := decode[client.Providers](t, answer, 200); len(got.Providers) != 0 || !strings.Contains(answer.Body.String(), `"providers":[]`) || got.Hedge.Winner != "none" {
				t.Errorf("%s", answer.Body)
			}
			equal(t, "resolve", r.get("/resolve/"+address("x").String()).Code, 404)
		}
	})
}

// What cannot be meant is refused in words.
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
		equal(t, "look-ups", r.count("index_dht_lookup_ms"), 0)
	})
}

// A name may have slashes, and they may be escaped.
func TestNamesWithSlashesInPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, governed(decided{"docs/api": address("api")}))
		for _, path := range []string{"/resolve/name:docs/api", "/resolve/docs%2Fapi", "/resolve/docs/api"} {
			if got := decode[client.Resolution](t, r.get(path), 200); got.Key != "name:docs/api" || got.Kind != "name" || got.Source != "registry" || got.Manifest != address("api") {
				t.Errorf("%s: %+v", path, got)
			}
		}
	})
}

// The warm lane says what the handler says.
func TestTheWarmLaneSaysTheSame(t *testing.T) {
	r := open(t, over(newNetwork(target("a", knowing(0, where("bob"))))))
	a := address("x")
	target := "/resolve/" + a.String()
	if _, ok := r.shelf.Lookup([]byte(target)); ok {
		t.Fatal("an answer is ready before anybody asked")
	}
	decode[client.Resolution](t, r.get(target), 200)
	warm, cold := r.overTCP(t, target), r.get(target)
	if warm.status != cold.Code || warm.header.Get("Etag") != cold.Header().Get("Etag") || warm.header.Get("Content-Type") != cold.Header().Get("Content-Type") ||
		warm.header.Get("Cache-Control") != cold.Header().Get("Cache-Control") || warm.header.Get("Accept-Ranges") != cold.Header().Get("Accept-Ranges") {
		t.Errorf("warm: %+v; cold: %v", warm, cold.Header())
	}
	var one, other client.Resolution
	must(t, json.Unmarshal([]byte(warm.body), &one))
	must(t, json.Unmarshal(cold.Body.Bytes(), &other))
	one.Freshness, other.Freshness = 0, 0
	for _, told := range []*client.Resolution{&one, &other} {
		told.Providers[0].LastSeen, told.Providers[0].Score = 0, 0
	}
	equal(t, "the warm answer", fmt.Sprint(one), fmt.Sprint(other))
	if r.count("index_cache_hits_total") < 2 {
		t.Error("hits of the lane are not counted")
	}
	if conditional := r.overTCP(t, target, "If-None-Match: "+warm.header.Get("Etag")); conditional.status != 304 {
		t.Errorf("who has it gets %d", conditional.status)
	}
}

type reply struct {
	status int
	header http.Header
	body   string
}

// overTCP sends a plain GET twice over a real connection, so that the lane may
// answer, and gives the second answer.
func (r *rig) overTCP(t *testing.T, target string, header ...string) reply {
	t.Helper()
	supervisor, err := supervise.New(supervise.Options{Total: time.Second, Stages: []supervise.Stage{{Name: "intake"}}})
	must(t, err)
	var plain net.ListenConfig
	inner, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	listener := r.server.Attach(inner, ingress.ListenOptions{Name: "http " + inner.Addr().String(), Addr: inner.Addr().String(), Warm: true})
	must(t, supervisor.Add(supervise.Service{Service: "gateway", Name: "http", Stage: "intake", Serve: listener.Serve, Drain: listener.Drain}))
	done := make(chan struct{})
	go func() { _, _ = supervisor.Run(t.Context()); close(done) }()
	defer func() { supervisor.Shutdown("done"); <-done }()
	conn, err := net.Dial("tcp", inner.Addr().String())
	must(t, err)
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	var last reply
	for range 2 {
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, inner.Addr(), strings.Join(append(header, ""), "\r\n"))
		must(t, err)
		response, err := http.ReadResponse(in, nil)
		must(t, err)
		body := make([]byte, max(0, response.ContentLength))
		if response.StatusCode != http.StatusNotModified {
			_, err = bufio.NewReader(response.Body).Read(body)
			must(t, err)
		}
		last = reply{response.StatusCode, response.Header, string(body)}
	}
	return last
}

// A ready answer costs nothing, is made anew each second, and goes with what it
// was made of.
func TestReadyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", knowing(0, where("bob"))))))
		a := address("x")
		target := []byte("/resolve/" + a.String())
		must(t, <-r.ask("x", 0))
		first, ok := r.shelf.Lookup(target)
		if again, _ := r.shelf.Lookup(target); !ok || again != first {
			t.Fatal("it is made twice in a second")
		}
		if n := testing.AllocsPerRun(100, func() { r.shelf.Lookup(target) }); n != 0 {
			t.Errorf("a ready answer costs %g allocations", n)
		}
		time.Sleep(time.Second)
		second, ok := r.shelf.Lookup(target)
		if !ok || second == first {
			t.Error("it does not grow older")
		}
		must(t, r.Reconfigure(r.settings.Load().Config))
		if same, ok := r.shelf.Lookup(target); !ok || same != second {
			t.Error("a reload that changes nothing drops ready answers")
		}
		next := r.settings.Load().Config
		next.Cache.TTL++
		must(t, r.Reconfigure(next))
		if third, ok := r.shelf.Lookup(target); !ok || third == second {
			t.Error("a reload keeps ready answers")
		}
		r.put("x")
		if _, ok := r.shelf.Lookup(target); ok {
			t.Error("after a put the old answer is ready")
		}
		for _, other := range []string{"/resolve/" + a.CID(), "/resolve/name:docs", "/resolve/" + strings.Repeat("x", 1000), "/resolve/b3:zz", "/resolve/b3:" + strings.Repeat("z", 64), "/resolve/b3:" + strings.Repeat("A", 64), "/elsewhere", string(target) + "?fresh=false"} {
			if _, ok := r.shelf.Lookup([]byte(other)); ok {
				t.Errorf("%.40s is ready", other)
			}
		}
		time.Sleep(time.Minute)
		must(t, <-r.ask("nobody's", 0))
	})
}

// What nobody has is not for the lane, and what is too much is not kept.
func TestReadyAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var crowd []record.Provider
		for i := range 50 {
			crowd = append(crowd, where(fmt.Sprint("node ", i)))
		}
		r := open(t, over(newNetwork(target("a", knowing(0, crowd...)))), with(func(c *Config) { c.Cache.ShelfBytes = 256 << 10 }))
		for i := range 200 {
			must(t, <-r.ask(fmt.Sprint(i), 0))
			r.shelf.Lookup([]byte("/resolve/" + address(fmt.Sprint(i)).String()))
		}
		r.shelf.ready.CleanUp()
		if weight := r.shelf.ready.WeightedSize(); weight > 256<<10 {
			t.Errorf("ready answers take %d bytes", weight)
		}
		none := open(t, with(func(c *Config) { c.Cache.ShelfBytes = 0 }))
		if _, ok := none.shelf.Lookup([]byte("/resolve/" + address("0").String())); ok {
			t.Error("without a shelf there is an answer")
		}
		none.Has(address("0"))
		none.Trim()
	})
}

// Answers of an endpoint of Delegated Routing come from there.
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
	r := open(t, with(func(c *Config) { c.Delegated, c.DHT.DeadlineMS = []string{endpoint.URL}, 10_000 }))
	got := decode[client.Resolution](t, r.get("/resolve/"+a.String()), 200)
	if got.Source != "delegated" || len(got.Providers) != 1 || got.Providers[0].Addr != "http://127.0.0.1:8080" {
		t.Errorf("%+v", got)
	}
	equal(t, "another", r.get("/resolve/"+b3.Of([]byte("y")).String()).Code, 404)
}

// Each client is a class of its own; a network of IPv6 is one.
func TestClientsAreToldApart(t *testing.T) {
	r := build(t)
	defer func() { must(t, r.Close()) }()
	class := func(text string) uint64 { return r.classOf(netip.MustParseAddr(text)) }
	equal(t, "nobody", r.client(httptest.NewRequest("GET", "/", nil)), 0)
	equal(t, "the same address, written differently", class("192.0.2.1"), class("::ffff:192.0.2.1"))
	equal(t, "the same network", class("2001:db8::1"), class("2001:db8::ffff:2"))
	if class("192.0.2.1") == class("192.0.2.2") || class("2001:db8::1") == class("2001:db8:0:1::1") {
		t.Error("two clients are one")
	}
}

// Behind a gateway in another process, look-ups are shared between the clients of
// the gateway, as it says who they are.
func TestFairnessIsByTheGatewaysClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", silent))))
		for i, client := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.2"} {
			go r.get("/resolve/"+address(fmt.Sprint(i)).String(), ingress.ClientHeader, client, ingress.VoucherHeader, "a part's")
		}
		synctest.Wait()
		r.sky(func(fs *flights) {
			one, two := r.classOf(netip.MustParseAddr("192.0.2.1")), r.classOf(netip.MustParseAddr("192.0.2.2"))
			equal(t, "clients", len(fs.hands), 2)
			equal(t, "in the hand of one", fs.hands[one], 1)
			equal(t, "in the hand of the other", fs.hands[two], 2)
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
	})
}

func BenchmarkReadyAnswer(b *testing.B) {
	r := open(b, over(newNetwork(target("a", knowing(0, where("bob"))))))
	must(b, <-r.ask("x", 0))
	target := []byte("/resolve/" + address("x").String())
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := r.shelf.Lookup(target); !ok {
			must(b, <-r.ask("x", 0))
		}
	}
}

func BenchmarkCachedResolve(b *testing.B) {
	r := open(b, over(newNetwork(target("a", knowing(0, where("bob"))))))
	id := byAddress(address("x"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Resolve(b.Context(), id, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
