package fill

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

func TestPeek(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		key := func(path string) string {
			k, err := w.Key(request(path))
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		w.origin(answerWith("ready", "Cache-Control", "max-age=5", "Content-Type", "text/plain"))
		if _, ok := w.Peek(key("/")); ok {
			t.Error("there is nothing yet")
		}
		w.get("/")
		time.Sleep(2300 * time.Millisecond)
		ready, ok := w.Peek(key("/"))
		if !ok || string(ready.Body) != "ready" || ready.Header.Get("Age") != "2" || ready.Header.Get("Etag") != `"`+b3.Of([]byte("ready")).String()+`"` {
			t.Fatalf("%t %+v", ok, ready)
		}
		if left := time.Until(ready.ValidUntil); left != 700*time.Millisecond {
			t.Errorf("it holds for %s, want until its age shows", left)
		}
		if w.hits != 0 {
			t.Errorf("%d hits, and the lane counts its own", w.hits)
		}
		time.Sleep(2500 * time.Millisecond)
		if ready, _ := w.Peek(key("/")); time.Until(ready.ValidUntil) != 200*time.Millisecond {
			t.Errorf("it holds for %s, want until it is stale", time.Until(ready.ValidUntil))
		}
		time.Sleep(200 * time.Millisecond)
		if _, ok := w.Peek(key("/")); ok {
			t.Error("it is stale")
		}

		for path, c := range map[string]struct {
			answer http.HandlerFunc
			ok     bool
		}{
			"/large":    {answerWith(strings.Repeat("x", maxPreparedBody+1), "Cache-Control", "max-age=60"), false},
			"/fits":     {answerWith(strings.Repeat("x", maxPreparedBody), "Cache-Control", "max-age=60"), true},
			"/varies":   {answerWith("x", "Cache-Control", "max-age=60", "Vary", "Accept-Language"), false},
			"/coded":    {answerWith("x", "Cache-Control", "max-age=60", "Vary", "Accept-Encoding", "Content-Encoding", "br"), true},
			"/uncoded":  {answerWith("x", "Cache-Control", "max-age=60", "Vary", "Accept-Encoding"), false},
			"/both":     {answerWith("x", "Cache-Control", "max-age=60", "Vary", "Accept-Encoding, Accept", "Content-Encoding", "br"), false},
			"/no-cache": {answerWith("x", "Cache-Control", "no-cache, max-age=60"), false},
			"/missing":  {http.NotFound, false},
		} {
			w.origin(c.answer)
			w.get(path)
			if _, ok := w.Peek(key(path)); ok != c.ok {
				t.Errorf("%s: %t", path, ok)
			}
		}
		_ = w.store.Delete(t.Context(), b3.Of([]byte(strings.Repeat("x", maxPreparedBody))))
		if _, ok := w.Peek(key("/fits")); ok {
			t.Error("its body is gone")
		}
		w.origin(answerWith("x", "Cache-Control", "max-age=60"))
		w.get("/again")
		if err := w.Reconfigure(w.spec.Config, DefaultBreakerConfig(), []string{"other.test"}); err != nil {
			t.Fatal(err)
		}
		if _, ok := w.Peek("https://origin.test/again"); ok {
			t.Error("its host is not allowed any more")
		}
	})
}

// An answer that was reached by a redirect is valid no longer than the
// redirect.
func TestPeekAfterARedirect(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if r.Host == "origin.test" {
				rw.Header().Set("Cache-Control", "max-age=5")
				http.Redirect(rw, r, "https://other.test/", http.StatusFound)
				return
			}
			answerWith("there", "Cache-Control", "max-age=600")(rw, r)
		})
		time.Sleep(300 * time.Millisecond)
		w.get("/")
		time.Sleep(4900 * time.Millisecond)
		if ready, ok := w.Peek("https://origin.test/"); !ok || time.Until(ready.ValidUntil) != 100*time.Millisecond {
			t.Errorf("%t, for %s", ok, time.Until(ready.ValidUntil))
		}
	})
}

func TestWarmUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var config Config
		w := newFixture(t, with(func(c *Config) {
			c.Warm = []string{"https://origin.test/1", "https://evil.test/", "https://origin.test/2", "https://origin.test/3?q"}
			config = *c
		}))
		w.origin(answerWith("warm", "Cache-Control", "max-age=60"))
		time.Sleep(time.Second)
		if w.Stats().Entries != 3 || w.rejected(ReasonNotAllowed) != 1 {
			t.Errorf("%+v, %v", w.Stats(), w.rejects)
		}
		if !w.get("/1").Hit || !w.get("/3?q").Hit {
			t.Error("not warm")
		}
		w.wantAsked(3)
		config.Warm = append(config.Warm, "https://origin.test/4")
		if err := w.Reconfigure(config, DefaultBreakerConfig(), []string{"origin.test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.wantAsked(4) // what is fresh is not fetched again
		if !w.get("/4").Hit {
			t.Error("a reload did not warm what is new")
		}
	})
}

func TestWarmUpWaitsForItsTurn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t), newGate(), &concurrentClients{}
		w.origin(g.then(answerWith("x", "Cache-Control", "max-age=60")))
		for i := range workCap + workers {
			c.ask(w, request(fmt.Sprint("/", i)))
			if i < workers {
				synctest.Wait() // each worker has its own, and the queue is full in the end
			}
		}
		synctest.Wait()
		config := w.spec.Config
		config.Warm = []string{"https://origin.test/warm"}
		if err := w.Reconfigure(config, DefaultBreakerConfig(), w.spec.Allow); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		close(g.open)
		c.group.Wait()
		time.Sleep(2 * time.Second)
		if !w.get("/warm").Hit {
			t.Error("it was refused once, and never came back")
		}
	})
}

func TestReconfigure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("x", "Cache-Control", "max-age=60"))
		w.get("/")
		config := w.spec.Config
		config.MaxBytes = 4
		if err := w.Reconfigure(config, DefaultBreakerConfig(), []string{"other.test"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.network.open.Load(); n != 0 {
			t.Errorf("%d connections that were made under other rules are still open", n)
		}
		w.wantRefused(request("/"), fault.RejectPolicy, ReasonNotAllowed)
		w.origin(answerWith("hello"))
		w.wantRefused(requestAt("other.test", "/"), fault.UpstreamFailed, ReasonBody)
		if err := w.Reconfigure(w.spec.Config, DefaultBreakerConfig(), w.spec.Allow); err != nil {
			t.Fatal(err)
		}
		if !w.get("/").Hit {
			t.Error("a reload threw away what was here")
		}
	})
}

// A fill uses the policy of the moment in which it runs.
func TestDisallowedWhileItWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, g, c := newFixture(t), newGate(), &concurrentClients{}
		w.origin(g.then(answerWith("x")))
		for i := range workers {
			c.ask(w, request(fmt.Sprint("/", i)))
		}
		synctest.Wait()
		late := &concurrentClients{}
		late.ask(w, request("/late"))
		synctest.Wait()
		if err := w.Reconfigure(w.spec.Config, DefaultBreakerConfig(), []string{"other.test"}); err != nil {
			t.Fatal(err)
		}
		close(g.open)
		late.group.Wait()
		c.group.Wait()
		if len(late.errs) != 1 || fault.KindOf(late.errs[0]) != fault.RejectPolicy {
			t.Errorf("%v", late.errs)
		}
	})
}

func TestAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/x")
			rw.Header().Set("Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT")
			switch r.URL.Path {
			case "/none":
				rw.WriteHeader(http.StatusNoContent)
			case "/gone":
				rw.WriteHeader(http.StatusGone)
				fmt.Fprint(rw, "gone")
			default:
				fmt.Fprint(rw, "here")
			}
		})
		here := w.get("/")
		if here.Header.Get("Content-Type") != "text/x" || !here.Modified().Equal(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) || here.Size() != 4 {
			t.Errorf("%q %s %d", here.Header.Get("Content-Type"), here.Modified(), here.Size())
		}
		for _, c := range []struct {
			path, method, body, length string
			status                     int
		}{
			{"/gone", http.MethodGet, "gone", "4", 410}, {"/gone", http.MethodHead, "", "4", 410}, {"/none", http.MethodGet, "", "", 204},
		} {
			answer, err := w.Get(t.Context(), request(c.path))
			if err != nil {
				t.Fatal(err)
			}
			out := httptest.NewRecorder()
			if err := answer.WriteTo(out, c.method); err != nil || out.Code != c.status || out.Body.String() != c.body || out.Header().Get("Content-Length") != c.length {
				t.Errorf("%s: %d %q %v, %v", c.path, out.Code, out.Body, out.Header(), err)
			}
			answer.Close()
			answer.Close()
			if answer.Header.Get("Etag") != "" {
				t.Errorf("%s has a tag", c.path)
			}
		}
	})
}

func TestTheLeastUsedGoesFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, func(s *Spec) { s.Cache.MaxEntries = 3 })
		w.origin(answerNumbered("Cache-Control", "max-age=60"))
		for _, path := range []string{"/a", "/b", "/c", "/a", "/d"} {
			w.get(path)
		}
		for path, want := range map[string]bool{"/a": true, "/c": true, "/d": true} {
			if got := w.get(path); got.Hit != want {
				t.Errorf("%s: %+v", path, got)
			}
		}
		if w.get("/b").Hit {
			t.Error("not the one that was unused for longest went first")
		}
		synctest.Wait()
		if w.Stats().Entries != 3 || w.store.Usage().Objects != 3 {
			t.Errorf("%+v %+v", w.Stats(), w.store.Usage())
		}
	})
}

// Large headers count too.
func TestIndexIsBoundedInBytes(t *testing.T) {
	x := newEntryIndex(1000, 100_000)
	gone := 0
	for i := range 100 {
		e := &entry{key: fmt.Sprint(i), address: b3.Of([]byte{byte(i)})}
		e.resp.Header = http.Header{"X": {strings.Repeat("y", 10_000)}}
		gone += len(x.insert(e))
		if x.bytes > 100_000 {
			t.Fatalf("%d bytes", x.bytes)
		}
	}
	if kept := x.lru.Len(); kept < 5 || kept+gone != 100 || len(x.bodyRefs) != kept || len(x.groups) != kept {
		t.Errorf("%d kept, %d gone, %d bodies, %d groups", kept, gone, len(x.bodyRefs), len(x.groups))
	}
	for i := range 3 * maxHitForMiss {
		x.markHitForMiss(fmt.Sprint(i), time.Unix(int64(i/10), 0), time.Minute)
	}
	if len(x.hitForMiss) > maxHitForMiss {
		t.Errorf("%d keys are remembered as not worth waiting for", len(x.hitForMiss))
	}
	if !x.isHitForMiss(fmt.Sprint(3*maxHitForMiss-1), time.Unix(int64(3*maxHitForMiss/10), 0)) {
		t.Error("the last one was forgotten")
	}
}

func benchmarkCache(b *testing.B) (*Cache, string) {
	bodies := store.NewRAM(store.RAMSpec{Budget: 16 << 20})
	c, err := New(flow.NewInventory(), Spec{Config: DefaultConfig(), Cache: DefaultCacheConfig(), Allow: []string{"origin.test"}, Store: bodies, Amnesia: true, Workers: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	info, _, err := bodies.Put(context.Background(), strings.NewReader(strings.Repeat("x", 16<<10)), store.PutOptions{Size: 16 << 10, Class: store.Cached})
	if err != nil {
		b.Fatal(err)
	}
	e := &entry{key: "https://origin.test/x", address: info.Address, size: info.Size}
	e.resp.Status, e.resp.ResponseTime = 200, time.Now()
	e.resp.Header = http.Header{"Cache-Control": {"max-age=86400"}, "Content-Type": {"image/png"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}
	c.index.insert(e)
	return c, e.key
}

func BenchmarkHit(b *testing.B) {
	c, _ := benchmarkCache(b)
	r := Request{Host: "origin.test", Path: "/x", Method: http.MethodGet, Header: http.Header{"Accept": {"*/*"}}}
	b.ReportAllocs()
	for b.Loop() {
		answer, err := c.Get(context.Background(), r)
		if err != nil {
			b.Fatal(err)
		}
		answer.Close()
	}
}

func BenchmarkPeek(b *testing.B) {
	c, key := benchmarkCache(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := c.Peek(key); !ok {
			b.Fatal("it is not there")
		}
	}
}
