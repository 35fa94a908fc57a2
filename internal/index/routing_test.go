package index

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/index/delegated"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

const stranger = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"

func libp2pIDOf(name string) string {
	return record.Libp2pID(keyOfNode(name).Public().(ed25519.PublicKey))
}

// providerWithLibp2pID is a fake node whose libp2p ID is known.
func providerWithLibp2pID(name string) record.Provider {
	return delegated.WithLibp2pID(providerOf(name), keyOfNode(name).Public().(ed25519.PublicKey))
}

func routingPath(a b3.Address) string { return "/routing/v1/providers/" + a.CID() }

// recordIDs are the IDs of an answer, in either encoding.
func recordIDs(t *testing.T, answer *httptest.ResponseRecorder) []string {
	t.Helper()
	all := []string{}
	testkit.Equal(t, "status of "+answer.Body.String(), answer.Code, http.StatusOK)
	if answer.Header().Get("Content-Type") == "application/json" {
		var list delegated.Response
		testkit.Must(t, json.Unmarshal(answer.Body.Bytes(), &list))
		for _, r := range list.Providers {
			all = append(all, r.ID)
		}
		return all
	}
	testkit.Equal(t, "type", answer.Header().Get("Content-Type"), "application/x-ndjson")
	for line := range strings.Lines(answer.Body.String()) {
		var r delegated.Record
		testkit.Must(t, json.Unmarshal([]byte(line), &r))
		all = append(all, r.ID)
	}
	return all
}

func TestRoutingNamesThisNode(t *testing.T) {
	r := open(t)
	a := r.put("a block")
	answer := r.get(routingPath(a))
	want := `{"Providers":[{"Schema":"peer","ID":"` + libp2pIDOf("self") + `","Addrs":["/ip4/127.0.0.1/tcp/9500/tls","/ip4/127.0.0.1/tcp/8080/http"],"Protocols":["transport-ipfs-gateway-http"]}]}` + "\n"
	testkit.Equal(t, "answer", answer.Body.String(), want)
	for name, value := range map[string]string{"Content-Type": "application/json", "Vary": "Accept", "Cache-Control": "public, max-age=300, stale-while-revalidate=600, stale-if-error=172800"} {
		testkit.Equal(t, name, answer.Header().Get(name), value)
	}
	again := r.get(routingPath(a), "If-None-Match", answer.Header().Get("Etag"))
	testkit.Equal(t, "status of what the client has", again.Code, http.StatusNotModified)
	for _, text := range []string{"B" + strings.ToUpper(a.CID()[1:])} {
		testkit.Equal(t, "hosts by "+text, strings.Join(recordIDs(t, r.get("/routing/v1/providers/"+text)), " "), libp2pIDOf("self"))
	}
}

// Both encodings return the same: all providers found that have a libp2p ID.
func TestRoutingNamesOthers(t *testing.T) {
	far := record.Provider{ID: stranger, Other: []string{"/ip4/192.0.2.1/udp/4001/quic-v1"}}
	r := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, providerWithLibp2pID("a"), providerOf("unknown"), far)))))
	for _, accept := range []string{"application/json", "application/x-ndjson"} {
		answer := r.get(routingPath(address("elsewhere")), "Accept", accept)
		got := recordIDs(t, answer)
		slices.Sort(got)
		testkit.Equal(t, accept, strings.Join(got, " "), libp2pIDOf("a")+" "+stranger)
		if keep := answer.Header().Get("Cache-Control"); !strings.Contains(keep, "max-age=300,") || answer.Header().Get("Vary") != "Accept" {
			t.Errorf("%v", answer.Header())
		}
	}
	testkit.Equal(t, "hosts that speak HTTP", strings.Join(recordIDs(t, r.get(routingPath(address("elsewhere"))+"?filter-protocols=transport-ipfs-gateway-http")), " "), libp2pIDOf("a"))
	testkit.Equal(t, "hosts that do not say", strings.Join(recordIDs(t, r.get(routingPath(address("elsewhere"))+"?filter-protocols=unknown")), " "), stranger)
}

func TestRoutingNamesNobody(t *testing.T) {
	r := open(t, withEngine(newFakeEngine(target("a", answersEmpty))))
	for _, path := range []string{
		routingPath(address("nowhere")), // there are no providers
		"/routing/v1/providers/bafkreidcd7frenco2m6ch7mny63wztgztv3q6fctaffgowkro6kljre5ei", // another hash
		"/routing/v1/providers/bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", // another codec
		"/routing/v1/providers/" + stranger, "/routing/v1/providers/bafkqaaa",
	} {
		for _, accept := range []string{"application/json", "application/x-ndjson"} {
			answer := r.get(path, "Accept", accept)
			testkit.Equal(t, path, len(recordIDs(t, answer)), 0)
			if keep := answer.Header().Get("Cache-Control"); !strings.Contains(keep, "max-age=15,") {
				t.Errorf("%s: %s", path, keep)
			}
		}
	}
	alone := open(t)
	testkit.Equal(t, "hosts that a node knows that knows nobody", len(recordIDs(t, alone.get(routingPath(address("nowhere"))))), 0)
}

func TestRoutingRefuses(t *testing.T) {
	n := newFakeEngine(target("a", alwaysFails))
	n.walk = alwaysFails
	r := open(t, withEngine(n))
	for _, c := range []struct {
		path, accept string
		status       int
	}{
		{"/routing/v1/providers/docs", "", http.StatusBadRequest},
		{"/routing/v1/providers/" + address("x").CID()[:50], "", http.StatusBadRequest},
		{"/routing/v1/providers/" + strings.Repeat("b", 4000), "", http.StatusBadRequest},
		{routingPath(address("x")), "text/plain", http.StatusBadRequest},
		{routingPath(address("x")), "application/json", http.StatusBadGateway},
		{routingPath(address("x")), "application/x-ndjson", http.StatusBadGateway},
	} {
		answer := r.get(c.path, "Accept", c.accept)
		var problem struct{ Code, Next string }
		testkit.Must(t, json.Unmarshal(answer.Body.Bytes(), &problem))
		if answer.Code != c.status || problem.Next == "" || answer.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s, %s: %d %v %s", c.path, c.accept, answer.Code, answer.Header(), answer.Body)
		}
	}
}

// This node is sent before others are looked up, and stays in the answer if
// none are found.
func TestRoutingStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(time.Second, providerWithLibp2pID("a"))))), withConfig(func(c *Config) {
			c.DHT.Quorum, c.DHT.HedgeMS = 2, config.Auto[int]{Value: 1100}
		}))
		a := r.put("a block")
		w := &flushRecorder{ResponseRecorder: httptest.NewRecorder()}
		request := httptest.NewRequest(http.MethodGet, routingPath(a), nil)
		request.Header.Set("Accept", "application/x-ndjson")
		began := time.Now()
		r.server.ServeHTTP(w, request)
		testkit.Equal(t, "hosts", strings.Join(recordIDs(t, w.ResponseRecorder), " "), libp2pIDOf("self")+" "+libp2pIDOf("a"))
		if len(w.at) < 2 || w.at[0] != began || w.at[1] != began.Add(time.Second) {
			t.Errorf("began %s, flushed at %s", began, w.at)
		}
	})
}

// flushRecorder records when what was written was sent.
type flushRecorder struct {
	*httptest.ResponseRecorder
	at []time.Time
}

func (f *flushRecorder) FlushError() error {
	f.at = append(f.at, time.Now())
	return nil
}

func TestRoutingStreamsWhatWasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", neverAnswers))), withConfig(func(c *Config) { c.DHT.Quorum = 2 }))
		a := r.put("a block")
		testkit.Equal(t, "hosts", strings.Join(recordIDs(t, r.get(routingPath(a), "Accept", "application/x-ndjson")), " "), libp2pIDOf("self"))
		testkit.Equal(t, "hosts in a document", strings.Join(recordIDs(t, r.get(routingPath(a))), " "), libp2pIDOf("self"))
	})
}

// A search that is cancelled ends a stream properly.
func TestRoutingStreamsEndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", neverAnswers))), withConfig(func(c *Config) { c.DHT.Quorum = 2 }))
		a := r.put("a block")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		w := httptest.NewRecorder()
		testkit.Must(t, r.writeProviders(ctx, delegated.NewRecordWriter(w, delegated.NDJSON, delegated.Filter{}, time.Now()), a, 1))
		testkit.Equal(t, "hosts", strings.Join(recordIDs(t, w), " "), libp2pIDOf("self"))
		testkit.WantKind(t, r.writeProviders(ctx, delegated.NewRecordWriter(w, delegated.JSON, delegated.Filter{}, time.Now()), address("elsewhere"), 1), fault.Canceled)
	})
}

// A client that leaves in the middle is not a failure of the node.
func TestRoutingToSomebodyWhoLeaves(t *testing.T) {
	r := open(t)
	a := r.put("a block")
	page := delegated.NewRecordWriter(brokenWriter{httptest.NewRecorder()}, delegated.NDJSON, delegated.Filter{}, time.Now())
	testkit.WantKind(t, r.writeProviders(context.Background(), page, a, 1), fault.BrokenPipe)
	n := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, providerWithLibp2pID("a"))))))
	page = delegated.NewRecordWriter(brokenWriter{httptest.NewRecorder()}, delegated.NDJSON, delegated.Filter{}, time.Now())
	testkit.WantKind(t, n.writeProviders(context.Background(), page, a, 1), fault.BrokenPipe)
}

type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { return 0, fault.BrokenPipe }

// Over a real connection each line arrives when it is sent.
func TestRoutingOverTheWire(t *testing.T) {
	hold := make(chan struct{})
	r := open(t, withEngine(newFakeEngine(target("a", func(context.Context, record.Question) (record.Answer, error) {
		<-hold
		return record.Answer{Providers: []record.Provider{providerWithLibp2pID("a")}}, nil
	}))), withConfig(func(c *Config) { c.DHT.Quorum, c.DHT.DeadlineMS = 2, 10_000 }))
	a := r.put("a block")
	server := httptest.NewServer(r.server)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+routingPath(a), nil)
	testkit.Must(t, err)
	request.Header.Set("Accept", "application/x-ndjson")
	response, err := server.Client().Do(request)
	testkit.Must(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	if !lines.Scan() || !strings.Contains(lines.Text(), libp2pIDOf("self")) {
		t.Errorf("the first line is %q", lines.Text())
	}
	close(hold)
	if !lines.Scan() || !strings.Contains(lines.Text(), libp2pIDOf("a")) || lines.Scan() {
		t.Errorf("the last line is %q", lines.Text())
	}
}
