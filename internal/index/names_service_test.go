package index

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// publishEngine is a DHT that records what is published.
type publishEngine struct {
	fakeEngine
	mu        sync.Mutex
	published []record.Name
	fail      error
}

func newPublishEngine() *publishEngine {
	b := &publishEngine{}
	b.size.Store(20)
	return b
}

func (p *publishEngine) Publish(_ context.Context, one record.Name) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail == nil {
		p.published = append(p.published, one)
	}
	return p.fail
}

func (p *publishEngine) setError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

func (p *publishEngine) publishedNames() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.published {
		names = append(names, one.Name)
	}
	return names
}

func withBoardEngine(b *publishEngine) option { return func(s *Spec) { s.Engine = b } }
func withNameStore(k NameStore) option        { return func(s *Spec) { s.NameStore = k } }
func (ti *testIndex) send(method, path, body string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	ti.server.ServeHTTP(answer, request)
	return answer
}

func manifestOf(text string) string { return `{"manifest":"` + address(text).String() + `"}` }

// A name is set, resolved, listed and removed, as a client sees it.
func TestNamesOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		r.put("one")
		for _, name := range []string{"docs", "maps%2Feu"} {
			if answer := r.send(http.MethodPut, "/names/"+name, manifestOf("one")); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"seq":`) {
				t.Error(answer.Code, answer.Body)
			}
		}
		if answer := r.get("/resolve/name:docs"); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), address("one").String()) {
			t.Error(answer.Code, answer.Body)
		}
		if answer := r.get("/names?limit=1"); !strings.Contains(answer.Body.String(), `"next":"docs"`) {
			t.Error(answer.Body)
		}
		if answer := r.get("/names?after=docs"); !strings.Contains(answer.Body.String(), `"name":"maps/eu"`) || strings.Contains(answer.Body.String(), "docs") {
			t.Error(answer.Body)
		}
		if answer := r.send(http.MethodDelete, "/names/docs", ""); answer.Code != http.StatusNoContent {
			t.Error(answer.Code, answer.Body)
		}
		for _, path := range []string{"/names/docs"} {
			if answer := r.send(http.MethodDelete, path, ""); answer.Code != http.StatusNotFound {
				t.Error(answer.Code, answer.Body)
			}
		}
		if answer := r.get("/resolve/name:docs"); answer.Code != http.StatusNotFound {
			t.Error(answer.Code, answer.Body)
		}
		synctest.Wait()
		if set, gone := r.log.ofType(NameSet), r.log.ofType(NameDeleted); len(set) != 2 || len(gone) != 1 {
			t.Errorf("%v %v", set, gone)
		}
	})
}

// The clock of a node may be ten minutes ahead: what it names, and what it renews,
// is found by another node. One that is a day ahead is named with the difference.
func TestNamesOfAClockThatIsAhead(t *testing.T) {
	for _, c := range []struct {
		ahead time.Duration
		want  string
	}{
		{10 * time.Minute, ""},
		{-10 * time.Minute, ""},
		{24 * time.Hour, "24h0m0s ahead of this node's"},
	} {
		synctest.Test(t, func(t *testing.T) {
			drawer := newFakeNameStore()
			issued := time.Now().Add(c.ahead)
			signed := record.SignName(keyOfNode("alice"), record.Name{Name: "docs", Manifest: address("one"), Seq: 1, Issued: issued, Expires: issued.Add(nameTTL)})
			testkit.Must(t, drawer.Save("docs", signed.Encode()))
			alice := open(t, func(s *Spec) { s.Key, s.NameStore = keyOfNode("alice"), drawer })
			peers := &fakeOverlay{}
			peers.join("alice", func(_ context.Context, q record.Question) (record.Answer, error) {
				return alice.Answer(q), nil
			})
			r := open(t, withPeers(peers))
			id, err := record.ParseID("name:docs@" + idOfNode("alice").String())
			testkit.Must(t, err)
			found, err := r.Resolve(t.Context(), id, Options{})
			if c.want == "" && (err != nil || found.Manifest != address("one")) {
				t.Errorf("%s ahead: %v, %v", c.ahead, found.Manifest, err)
			}
			if c.want != "" {
				synctest.Wait()
				text := fmt.Sprint(err, r.log.ofType(Lied))
				if err == nil || !strings.Contains(text, c.want) {
					t.Errorf("%s ahead: %s", c.ahead, text)
				}
			}
		})
	}
}

// Bad names and bad requests are rejected, with what to do.
func TestBadNamesOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withRegistry(fakeRegistry{"taken": address("x")}))
		for _, test := range []struct {
			method, path, body string
			status             int
		}{
			{"PUT", "/names/Docs", manifestOf("one"), 400},
			{"PUT", "/names/a%00b", manifestOf("one"), 400},
			{"PUT", "/names/a@b", manifestOf("one"), 400},
			{"PUT", "/names/" + strings.Repeat("n", 10_000), manifestOf("one"), 400},
			{"PUT", "/names/docs", `{}`, 400},
			{"PUT", "/names/docs", `{"manifest":"b3:12"}`, 400},
			{"PUT", "/names/docs", `{"manifest":"` + address("x").String() + `","x":1}`, 400},
			{"PUT", "/names/docs", `{"manifest":`, 400},
			{"PUT", "/names/docs", strings.Repeat(" ", 5000) + manifestOf("one"), 413},
			{"PUT", "/names/taken", manifestOf("one"), 409},
			{"DELETE", "/names/Docs", "", 400},
			{"GET", "/names?limit=0", "", 400},
			{"GET", "/names?limit=x", "", 400},
		} {
			answer := r.send(test.method, test.path, test.body)
			if answer.Code != test.status || !strings.Contains(answer.Body.String(), `"next"`) {
				t.Errorf("%s %.40s %.40s: %d %s", test.method, test.path, test.body, answer.Code, answer.Body)
			}
		}
		if r.names.count() != 0 {
			t.Error("a name was set")
		}
	})
}

// Names are published in the DHT, again after a failure, and again when they
// are renewed.
func TestNamesArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dht := newPublishEngine()
		r := open(t, withBoardEngine(dht))
		dht.setError(fault.New("test", fault.NoRoute, "nobody is there"))
		if _, err := r.SetName(t.Context(), "docs", address("one")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if failed := r.log.ofType(Failed); len(failed) == 0 || len(dht.publishedNames()) != 0 {
			t.Errorf("%v %v", failed, dht.publishedNames())
		}
		dht.setError(nil)
		time.Sleep(publishRetryInterval)
		synctest.Wait()
		if got := dht.publishedNames(); len(got) != 1 {
			t.Errorf("%v", got)
		}
		time.Sleep(nameRenewAfter + publishInterval)
		synctest.Wait()
		if got := dht.publishedNames(); len(got) != 2 || dht.published[1].Seq <= dht.published[0].Seq {
			t.Errorf("%v", dht.published)
		}
	})
}

// A name that the registry begins to govern is reported once.
func TestAShadowedName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := &mutableRegistry{}
		r := open(t, func(s *Spec) { s.Registry = registry })
		if _, err := r.SetName(t.Context(), "docs", address("one")); err != nil {
			t.Fatal(err)
		}
		registry.set(fakeRegistry{"docs": address("two"), "other": address("two")})
		for range 3 {
			r.RegistryChanged()
			synctest.Wait()
		}
		if events := r.log.ofType(NameShadowed); len(events) != 1 || events[0].Key != "name:docs" {
			t.Errorf("%v", events)
		}
		if answer := r.get("/names"); !strings.Contains(answer.Body.String(), `"shadowed":true`) {
			t.Error(answer.Body)
		}
		found, err := r.Resolve(t.Context(), mustParseID(t, "name:docs"), Options{Stale: true})
		if err != nil || found.Source != record.Registry || found.Manifest != address("two") {
			t.Error(found, err)
		}
		registry.set(nil)
		found, err = r.Resolve(t.Context(), mustParseID(t, "name:docs"), Options{Stale: true})
		if err != nil || found.Source != record.Local || found.Manifest != address("one") {
			t.Error(found, err)
		}
	})
}

// mutableRegistry is a registry that changes.
type mutableRegistry struct {
	mu  sync.Mutex
	now fakeRegistry
}

func (m *mutableRegistry) set(now fakeRegistry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

func (m *mutableRegistry) Name(name string) (manifest b3.Address, version uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.Name(name)
}

// Names that cannot be read leave the node degraded, and running.
func TestUnreadableNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper := newFakeNameStore()
		keeper.kept["x"] = []byte("garbage")
		r := open(t, withNameStore(keeper))
		synctest.Wait()
		verdict := r.readiness.Evaluate()
		if !verdict.Degraded {
			t.Errorf("%+v", verdict)
		}
		if _, err := r.SetName(t.Context(), "docs", address("one")); err != nil {
			t.Error(err)
		}
	})
}

// Pin, unpin and reindex: carried out once per key, reported once, and rejected
// if invalid.
func TestAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		one := r.put("one")
		pin := `{"b3":"` + one.String() + `"}`
		for range 2 {
			if answer := r.send("POST", "/admin/unpin", pin, "Idempotency-Key", "k1"); answer.Code != 200 || !strings.Contains(answer.Body.String(), `"pinned":false`) {
				t.Error(answer.Code, answer.Body)
			}
			if answer := r.send("POST", "/admin/pin", pin, "Idempotency-Key", "k2"); answer.Code != 200 || !strings.Contains(answer.Body.String(), `"pinned":true`) {
				t.Error(answer.Code, answer.Body)
			}
			if answer := r.send("POST", "/admin/reindex", "", "Idempotency-Key", "k3"); answer.Code != 202 || !strings.Contains(answer.Body.String(), `"objects":1`) {
				t.Error(answer.Code, answer.Body)
			}
		}
		for _, test := range []struct {
			path, body, key string
			status          int
		}{
			{"/admin/unpin", `{"b3":"` + address("other").String() + `"}`, "k1", 409},
			{"/admin/pin", `{}`, "", 400},
			{"/admin/pin", `{"b3":"x"}`, "", 400},
			{"/admin/pin", `{"b3":"` + address("other").String() + `"}`, "", 404},
			{"/admin/unpin", pin, strings.Repeat("k", 300), 400},
		} {
			answer := r.send("POST", test.path, test.body, "Idempotency-Key", test.key)
			if answer.Code != test.status || !strings.Contains(answer.Body.String(), `"next"`) {
				t.Errorf("%s %s: %d %s", test.path, test.body, answer.Code, answer.Body)
			}
		}
		synctest.Wait()
		for _, what := range []EventType{Pinned, Unpinned, Reindexed} {
			if events := r.log.ofType(what); len(events) != 1 {
				t.Errorf("%s: %d events", what, len(events))
			}
		}
	})
}

// POST /fetch fetches an object, and reports whether it was added.
func TestFetchOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overlay := &fetchOverlay{}
		overlay.serve("ana", bodyOf("hello"))
		r := open(t, withOverlay(overlay))
		for _, status := range []int{http.StatusCreated, http.StatusOK} {
			answer := r.send("POST", "/fetch/"+address("hello").String(), "")
			if answer.Code != status || answer.Header().Get("Location") != "/o/"+address("hello").String() || !strings.Contains(answer.Body.String(), `"size":5`) {
				t.Error(answer.Code, answer.Body)
			}
		}
		if answer := r.send("POST", "/fetch/b3:12", ""); answer.Code != http.StatusBadRequest {
			t.Error(answer.Code)
		}
	})
}

// A record that cannot be renewed is reported, and renewed later.
func TestARenewalThatFailsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drawer := newFakeNameStore()
		r := open(t, func(s *Spec) { s.NameStore = drawer })
		old, err := r.SetName(t.Context(), "docs", address("one"))
		testkit.Must(t, err)
		drawer.setError(fault.New("test", fault.StoreFull, "the disk is full"))
		time.Sleep(nameRenewAfter + publishInterval)
		synctest.Wait()
		if failed := r.log.ofType(Failed); len(failed) == 0 || !strings.Contains(failed[0].Detail, "full") {
			t.Errorf("%v", failed)
		}
		drawer.setError(nil)
		time.Sleep(publishRetryInterval)
		synctest.Wait()
		if now, _ := r.names.lookup("docs"); now.Seq <= old.Seq {
			t.Error("it was not renewed")
		}
	})
}
