package fill

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

// inBubble runs a test in a bubble where time is faked.
func inBubble(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }

func TestMissThenHit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.serve("origin.test:443", "http/1.1") // the newer protocol has no such headers
		w.origin(answerWith("hello", "Cache-Control", "max-age=60", "Content-Type", "text/plain", "Etag", `"theirs"`, "Connection", "X-Hop", "X-Hop", "1", "Alt-Svc", "h3"))
		first := w.get("/a?b=c")
		if first.body != "hello" || first.Hit || first.Status != 200 {
			t.Errorf("the first answer: %+v", first)
		}
		time.Sleep(7 * time.Second)
		second := w.get("/a?b=c")
		if second.body != "hello" || !second.Hit || second.Stale {
			t.Errorf("the second answer: %+v", second)
		}
		want := map[string]string{"Age": "7", "Etag": `"theirs"`, "Content-Type": "text/plain",
			"Cache-Control": "max-age=60", "X-Hop": "", "Alt-Svc": "", "Content-Length": ""}
		for name, value := range want {
			if got := second.Header.Get(name); got != value {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
		if left := time.Until(second.FreshUntil); left != 53*time.Second {
			t.Errorf("fresh for another %s, want 53s", left)
		}
		w.wantAsked(1)
		if w.hits != 1 || w.misses != 1 || w.filled != 1 || len(w.rejects) != 0 {
			t.Errorf("%d hits, %d misses, %d fills, %v", w.hits, w.misses, w.filled, w.rejects)
		}
		if events := w.eventsOf(EventFilled); len(events) != 1 || events[0].URL != "https://origin.test/a?…" || events[0].Bytes != 5 || events[0].Status != 200 {
			t.Errorf("the audit heard %+v", events)
		}
	})
}

func TestWhatTheOriginSees(t *testing.T) {
	header := []string{"Accept", "image/webp", "Accept-Language", "fr", "Cookie", "a=b", "Authorization", "Bearer x", "X-Own", "1",
		"Range", "bytes=0-1", "If-None-Match", `"x"`, "Connection", "X-Hop", "X-Hop", "1", "Te", "trailers", "Cache-Control", "no-store"}
	for name, c := range map[string]struct {
		forward       []string
		query         bool
		seen, notSeen []string
		url           string
	}{
		"by default":  {DefaultConfig().ForwardHeaders, true, []string{"Accept", "Accept-Language", "Via", "User-Agent"}, []string{"Cookie", "Authorization", "X-Own", "Range", "If-None-Match", "X-Hop", "Te", "Accept-Encoding"}, "/a%20b?q=1&r"},
		"everything":  {[]string{"*"}, true, []string{"Accept", "Cookie", "Authorization", "X-Own"}, []string{"Range", "If-None-Match", "X-Hop", "Te", "Connection"}, "/a%20b?q=1&r"},
		"as little":   {[]string{}, false, nil, []string{"Accept", "Accept-Language", "Cookie", "Range"}, "/a%20b"},
		"a few names": {[]string{"x-own"}, true, []string{"X-Own"}, []string{"Accept"}, "/a%20b?q=1&r"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t, with(func(c2 *Config) { c2.ForwardHeaders, c2.ForwardQuery = c.forward, c.query }))
				w.origin(answerWith("x"))
				w.get("/a%20b?q=1&r", header...)
				got := w.requests()[0]
				if got.RequestURI != c.url || got.Method != http.MethodGet || got.Host != "origin.test" {
					t.Errorf("asked for %s %s %s", got.Method, got.Host, got.RequestURI)
				}
				for _, name := range c.seen {
					if got.Header.Get(name) == "" {
						t.Errorf("did not see %s", name)
					}
				}
				for _, name := range c.notSeen {
					if got.Header.Get(name) != "" {
						t.Errorf("saw %s", name)
					}
				}
			})
		})
	}
}

func TestRevalidation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Cache-Control", "max-age=10")
			rw.Header().Set("Etag", `"v1"`)
			rw.Header().Set("X-Round", fmt.Sprint(len(w.requests())))
			if r.Header.Get("If-None-Match") == `"v1"` {
				rw.WriteHeader(http.StatusNotModified)
				return
			}
			fmt.Fprint(rw, "one")
		})
		w.get("/")
		time.Sleep(11 * time.Second)
		again := w.get("/")
		if again.body != "one" || again.Hit || again.Header.Get("X-Round") != "2" || again.Header.Get("Age") != "" {
			t.Errorf("after the 304: %+v", again)
		}
		if hit := w.get("/"); !hit.Hit {
			t.Error("what was confirmed is not fresh")
		}
		w.wantAsked(2)
		if len(w.eventsOf(EventRevalidated)) != 1 {
			t.Error("the audit was not told of the confirmation")
		}

		w.origin(answerWith("two", "Cache-Control", "max-age=10"))
		time.Sleep(11 * time.Second)
		if replaced := w.get("/"); replaced.body != "two" {
			t.Errorf("after a new version: %q", replaced.body)
		}
		synctest.Wait()
		if u := w.store.Usage(); u.Objects != 1 || w.Stats().Entries != 1 {
			t.Errorf("the old version is still here: %+v", u)
		}
	})
}

func TestTwoEntriesShareOneBody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("same", "Cache-Control", "max-age=60"))
		w.get("/a")
		w.get("/b")
		if u := w.store.Usage(); u.Objects != 1 {
			t.Errorf("%d bodies for the same bytes", u.Objects)
		}
		if n, err := w.Purge(t.Context(), PurgeRequest{URL: "https://origin.test/a"}); n != 1 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
		if !w.get("/b").Hit {
			t.Error("the purge of one took the body of the other")
		}
		if n, _ := w.Purge(t.Context(), PurgeRequest{URL: "https://ORIGIN.test./b"}); n != 1 {
			t.Errorf("purged %d", n)
		}
		w.wantEmpty()
	})
}

func TestVary(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			answerWith("in "+r.Header.Get("Accept-Language"), "Cache-Control", "max-age=60", "Vary", "Accept-Language")(rw, r)
		})
		for range 2 {
			for _, language := range []string{"fr", "de", ""} {
				var header []string
				if language != "" {
					header = []string{"Accept-Language", language}
				}
				if got := w.get("/", header...); got.body != "in "+language {
					t.Errorf("%q: %q", language, got.body)
				}
			}
		}
		w.wantAsked(3)
		if w.hits != 3 {
			t.Errorf("%d hits", w.hits)
		}
		for i := range 40 {
			w.get("/", "Accept-Language", fmt.Sprint("x-", i))
		}
		if n := w.Stats().Entries; n != maxVariants {
			t.Errorf("%d variants are kept", n)
		}
		if !w.get("/", "Accept-Language", "x-39").Hit || w.get("/", "Accept-Language", "fr").Hit {
			t.Error("not the one that was unused for longest went first")
		}
	})
}

func TestStaleWhileRevalidate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerNumbered("Cache-Control", "max-age=10, stale-while-revalidate=30"))
		w.get("/")
		time.Sleep(15 * time.Second)
		if got := w.get("/"); got.body != "1" || !got.Stale || !got.Hit {
			t.Errorf("while it is refreshed: %+v", got)
		}
		synctest.Wait()
		if got := w.get("/"); got.body != "2" || got.Stale {
			t.Errorf("after the refresh: %+v", got)
		}
		w.wantAsked(2)

		w.origin(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) })
		time.Sleep(15 * time.Second)
		for range 5 {
			if got := w.get("/"); got.body != "2" || !got.Stale {
				t.Errorf("while the refresh fails: %+v", got)
			}
			synctest.Wait()
		}
		w.wantAsked(3) // a failed refresh is not repeated at once
		if w.rejected(ReasonUpstream) != 1 {
			t.Error("the failed refresh was not counted")
		}
		time.Sleep(2 * time.Second)
		w.get("/")
		synctest.Wait()
		w.wantAsked(4)
	})
}

func TestStaleIfError(t *testing.T) {
	for name, fail := range map[string]func(*fixture){
		"500":     func(w *fixture) { w.origin(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) }) },
		"refused": func(w *fixture) { w.network.cut(); w.network.host("origin.test:443", nil) },
		"silence": func(w *fixture) { w.origin(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }) },
		"503":     func(w *fixture) { w.origin(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) }) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t, with(func(c *Config) { c.StaleIfError = time.Minute }))
				w.origin(answerWith("old", "Cache-Control", "max-age=10"))
				w.get("/")
				w.origin(answerWith("strict", "Cache-Control", "max-age=10, must-revalidate"))
				w.get("/strict")
				time.Sleep(15 * time.Second)
				fail(w)
				if got := w.get("/"); got.body != "old" || !got.Stale || !got.Hit {
					t.Errorf("the old one does not stand in: %+v", got)
				}
				if got, err := w.ask(request("/strict")); err == nil && got.Status < 500 {
					t.Error("one stood in that says must-revalidate")
				}
				time.Sleep(time.Minute)
				if got, err := w.ask(request("/")); err == nil && got.Status < 500 {
					t.Error("the old one stood in for too long")
				}
			})
		})
	}
}

func TestNegative(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(http.NotFound)
		for range 3 {
			if got := w.get("/"); got.Status != 404 || got.body != "404 page not found\n" {
				t.Errorf("%+v", got)
			}
		}
		w.wantAsked(1)
		time.Sleep(3 * time.Second)
		w.origin(answerWith("now it is", "Cache-Control", "max-age=1"))
		if got := w.get("/"); got.Status != 200 {
			t.Errorf("that it is not there was remembered for too long: %+v", got)
		}
	})
}

// Answers for one client reach that client, and nothing of them is kept.
func TestNotKept(t *testing.T) {
	for name, header := range map[string][]string{
		"no-store":   {"Cache-Control", "no-store"},
		"private":    {"Cache-Control", "private, max-age=60"},
		"set-cookie": {"Cache-Control", "max-age=60", "Set-Cookie", "a=b"},
		"vary *":     {"Cache-Control", "max-age=60", "Vary", "*"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t)
				w.origin(answerNumbered(header...))
				for want := range 3 {
					got := w.get("/")
					if got.body != fmt.Sprint(want+1) || got.Hit {
						t.Errorf("%+v", got)
					}
					if got.Header.Get("Set-Cookie") != "" {
						t.Error("a cookie was set although the origin does not know whom it talks to")
					}
				}
				w.wantEmpty()
			})
		})
	}
}

func TestCookiesOfTheOriginAreNotOurs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.ForwardHeaders = []string{"*"} }))
		w.origin(answerWith("x", "Set-Cookie", "a=b", "Cache-Control", "max-age=60"))
		w.get("/")
		if got := w.get("/"); got.Hit || got.Header.Get("Set-Cookie") != "" {
			t.Errorf("what sets a cookie is kept, or sets one of ours: %+v", got)
		}
		w.origin(answerWith("x", "Set-Cookie", "a=b", "Cache-Control", "public, max-age=60"))
		w.get("/public")
		if got := w.get("/public"); !got.Hit || got.Header.Get("Set-Cookie") != "" {
			t.Errorf("what is public is not kept, or kept with a cookie: %+v", got)
		}
	})
}

func TestAuthorization(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.ForwardHeaders = []string{"*"} }))
		w.origin(answerNumbered("Cache-Control", "max-age=60"))
		for range 2 {
			w.get("/", "Authorization", "Bearer me")
		}
		w.wantEmpty()
		if got := w.get("/"); got.body != "3" {
			t.Errorf("a stranger got %q", got.body)
		}
		w.origin(answerNumbered("Cache-Control", "public, max-age=60"))
		w.get("/p", "Authorization", "Bearer me")
		if got := w.get("/p"); !got.Hit {
			t.Error("what is public was not kept")
		}
	})
}

func TestHead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("hello", "Cache-Control", "max-age=60"))
		r := request("/")
		r.Method = http.MethodHead
		head, err := w.ask(r)
		if err != nil || head.Size() != 5 || w.requests()[0].Method != http.MethodGet {
			t.Errorf("%+v, %v", head, err)
		}
		if got := w.get("/"); !got.Hit || got.body != "hello" {
			t.Errorf("a HEAD did not fill: %+v", got)
		}
		if again, _ := w.ask(r); !again.Hit {
			t.Error("a HEAD is not answered from what is here")
		}
		r.Method = http.MethodPost
		w.wantRefused(r, fault.MethodNotAllowed, "")
	})
}

func TestWhatTheClientWants(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerNumbered("Cache-Control", "max-age=60"))
		err := w.wantRefused(request("/", "Cache-Control", "only-if-cached"), fault.Timeout, "")
		if w.rejected(ReasonTimeout) != 0 || !strings.Contains(err.Error(), "only-if-cached") {
			t.Errorf("a wish that cannot be granted was counted as slowness: %v", err)
		}
		w.get("/")
		if got := w.get("/", "Cache-Control", "only-if-cached"); !got.Hit {
			t.Error("it is here")
		}
		time.Sleep(10 * time.Second)
		if got := w.get("/", "Cache-Control", "max-age=20"); !got.Hit || got.body != "1" {
			t.Errorf("young enough, but: %+v", got)
		}
		if got := w.get("/", "Cache-Control", "no-cache"); got.Hit || got.body == "1" {
			t.Errorf("no-cache, but: %+v", got)
		}
		before := w.get("/").body
		if got := w.get("/n", "Cache-Control", "no-store"); got.Hit {
			t.Errorf("%+v", got)
		}
		if got := w.get("/n"); got.Hit {
			t.Error("an answer was kept whose client did not want that")
		}
		if got := w.get("/"); got.body != before || !got.Hit {
			t.Error("what somebody does not want kept threw out something else")
		}
	})
}

func TestRedirects(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.ForwardHeaders = []string{"*"} }))
		var hop []string
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if r.Host == "other.test" {
				if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
					t.Error("another host got to see who asks")
				}
				answerWith("there "+r.URL.RequestURI(), "Cache-Control", "max-age=600")(rw, r)
				return
			}
			for i := 0; i < len(hop); i += 2 {
				rw.Header().Set(hop[i], hop[i+1])
			}
			if r.URL.Path == "/far" {
				http.Redirect(rw, r, "/near", http.StatusSeeOther)
				return
			}
			rw.Header().Set("Location", "https://other.test/x?y#z")
			rw.WriteHeader(http.StatusFound)
		})
		got := w.get("/far", "Cookie", "a=b")
		if got.body != "there /x?y" || got.Status != 200 {
			t.Errorf("%+v", got)
		}
		if again := w.get("/far"); !again.Hit {
			t.Error("it is not kept under the URL that was asked for")
		}
		w.wantAsked(3)

		hop = []string{"Cache-Control", "max-age=5"}
		w.get("/short")
		time.Sleep(4 * time.Second)
		if !w.get("/short").Hit {
			t.Error("not kept for as long as the redirect is right")
		}
		time.Sleep(2 * time.Second)
		if w.get("/short").Hit {
			t.Error("kept for longer than the redirect is right")
		}

		hop = []string{"Cache-Control", "no-store"}
		w.get("/secret")
		if w.get("/secret").Hit {
			t.Error("kept although the redirect must not be")
		}
		hop = []string{"Cache-Control", "no-cache"}
		w.get("/asks")
		if w.get("/asks").Hit {
			t.Error("served without asking although the redirect must be asked for")
		}
	})
}

// The host to which an origin redirects learns nothing of who asks, whatever
// header that is said in; it learns what the answer is chosen by.
func TestARedirectTakesNoCredentialsAlong(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t, with(func(c *Config) { c.ForwardHeaders = []string{"*"} }))
		seen := map[string]http.Header{}
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			seen[r.Host+r.URL.Path] = r.Header.Clone()
			switch {
			case r.Host == "other.test":
				http.Redirect(rw, r, "https://origin.test/back", http.StatusFound)
			case r.URL.Path == "/far":
				http.Redirect(rw, r, "/near", http.StatusFound)
			case r.URL.Path == "/near":
				http.Redirect(rw, r, "https://other.test/there", http.StatusFound)
			}
		})
		secret := []string{"Authorization", "Cookie", "X-Api-Key", "Api-Token", "Referer", "X-Amz-Security-Token", "X-Goog-Api-Key", "Private-Token"}
		public := []string{"Accept", "Accept-Language", "User-Agent"}
		var headers []string
		for _, name := range append(secret, public...) {
			headers = append(headers, name, "theirs")
		}
		w.get("/far", headers...)
		for at, known := range map[string]bool{"origin.test/far": true, "origin.test/near": true, "other.test/there": false, "origin.test/back": false} {
			for _, name := range secret {
				if given := len(seen[at][name]) > 0; given != known {
					t.Errorf("%s: %s is sent: %v, want %v", at, name, given, known)
				}
			}
			for _, name := range public {
				if seen[at].Get(name) != "theirs" {
					t.Errorf("%s: %s is %q", at, name, seen[at].Get(name))
				}
			}
		}
	})
}

func TestPurge(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("x", "Cache-Control", "max-age=60"))
		fillAll := func() {
			for _, path := range []string{"/a/1", "/a/2", "/ab", "/b"} {
				w.get(path)
			}
			w.get("/a/1?secret")
		}
		for _, c := range []struct {
			purge PurgeRequest
			want  int
		}{
			{PurgeRequest{URL: "https://origin.test/a/1"}, 1},
			{PurgeRequest{URL: "https://origin.test/a/1?secret"}, 1},
			{PurgeRequest{URL: "https://origin.test/%61%2F1"}, -1},
			{PurgeRequest{Prefix: "https://origin.test/a/"}, 3},
			{PurgeRequest{Prefix: "https://origin.test/a"}, 4},
			{PurgeRequest{Prefix: "https://origin.test/a/1?"}, 1},
			{PurgeRequest{Prefix: "https://origin.test"}, 5},
			{PurgeRequest{Prefix: "https://"}, 5},
			{PurgeRequest{Prefix: "https://other.test/"}, 0},
			{PurgeRequest{Prefix: "https://origin.tes"}, 0},
			{PurgeRequest{}, -1}, {PurgeRequest{URL: "https://origin.test/", Prefix: "https://origin.test/"}, -1},
			{PurgeRequest{URL: "http://origin.test/"}, -1}, {PurgeRequest{Prefix: "/a"}, -1}, {PurgeRequest{URL: "https://u:p@origin.test/"}, -1},
		} {
			fillAll()
			n, err := w.Purge(t.Context(), c.purge)
			if c.want < 0 && fault.KindOf(err) != fault.Malformed || c.want >= 0 && (n != c.want || err != nil) {
				t.Errorf("%+v: %d, %v; want %d", c.purge, n, err, c.want)
			}
		}
		w.get("/gone")
		w.Purge(t.Context(), PurgeRequest{URL: "https://origin.test/gone"})
		if w.get("/gone").Hit {
			t.Error("what was purged is still served")
		}
		for _, e := range w.eventsOf(EventPurged) {
			if strings.Contains(e.URL, "secret") {
				t.Errorf("the audit was told the query: %+v", e)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Purge(ended, PurgeRequest{Prefix: "https://"}); fault.KindOf(err) != fault.Canceled {
			t.Errorf("a purge whose caller has left: %v", err)
		}
	})
}

// An origin may stop allowing that its answers are stored.
func TestNoLongerKept(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"by a new answer": answerWith("new", "Cache-Control", "no-store"),
		"by a 304": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Cache-Control", "no-store")
			rw.Header().Set("Etag", `"e"`)
			rw.WriteHeader(http.StatusNotModified)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t, with(func(c *Config) { c.StaleIfError = time.Hour }))
				w.origin(answerWith("old", "Cache-Control", "max-age=1", "Etag", `"e"`))
				w.get("/")
				time.Sleep(2 * time.Second)
				w.origin(h)
				if got := w.get("/"); got.Header.Get("Cache-Control") != "no-store" {
					t.Errorf("%+v", got)
				}
				synctest.Wait()
				w.wantEmpty()
				w.origin(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) })
				if got := w.get("/"); got.Status != 500 || got.Stale {
					t.Errorf("what was to be forgotten stands in: %+v", got)
				}
			})
		})
	}
}

func TestAgeAndDate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header()["Date"] = nil // none at all
			answerWith("x", "Cache-Control", "max-age=60", "Age", r.URL.RawQuery)(rw, r)
		})
		if got := w.get("/?20"); got.Header.Get("Age") != "20" || got.Header.Get("Date") == "" {
			t.Errorf("from another cache: %v", got.Header)
		}
		if got := w.get("/?0"); got.Header.Get("Age") != "" {
			t.Errorf("from the origin itself: %v", got.Header)
		}
		if got := w.get("/?0"); got.Header.Get("Age") != "0" {
			t.Errorf("a hit does not say its age: %v", got.Header)
		}
		time.Sleep(41 * time.Second)
		if w.get("/?20").Hit || !w.get("/?0").Hit {
			t.Error("the age that it came with does not count")
		}
	})
}
