package fill

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// The origin's validators reach the client, weak or strong, on a miss and on a
// hit. Ours is used where the origin has no valid one.
func TestTheValidatorsAreTheOrigins(t *testing.T) {
	ours := `"` + b3.Of([]byte("x")).String() + `"`
	for name, c := range map[string]struct {
		sent []string
		want string
	}{
		"strong":     {[]string{`"v1"`}, `"v1"`},
		"weak":       {[]string{`W/"v1"`}, `W/"v1"`},
		"none":       {nil, ours},
		"no quotes":  {[]string{"v1"}, ours},
		"empty":      {[]string{""}, ours},
		"two of one": {[]string{`"a"`, `"b"`}, ours},
		"small w":    {[]string{`w/"v1"`}, ours},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t)
				w.origin(func(rw http.ResponseWriter, r *http.Request) {
					rw.Header()["Etag"] = c.sent
					answerWith("x", "Cache-Control", "max-age=60", "Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT")(rw, r)
				})
				for _, hit := range []bool{false, true} {
					got := w.get("/")
					if tags := got.Header["Etag"]; got.Hit != hit || len(tags) != 1 || tags[0] != c.want {
						t.Errorf("hit %v: ETag %q, want %q", got.Hit, tags, c.want)
					}
					if got.Header.Get("Last-Modified") != "Sat, 01 Jan 2000 00:00:00 GMT" {
						t.Errorf("Last-Modified: %v", got.Header)
					}
				}
				w.wantAsked(1)
			})
		})
	}
}

// A failing response of the origin is relayed unchanged, counted, and given to
// all waiters.
func TestFailuresOfTheOriginAreRelayed(t *testing.T) {
	for _, status := range []int{500, 502, 503, 504, 599} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t)
				w.origin(func(rw http.ResponseWriter, _ *http.Request) {
					time.Sleep(10 * time.Millisecond)
					rw.Header().Set("X-Why", "lunch")
					rw.WriteHeader(status)
					fmt.Fprint(rw, "not now")
				})
				answers := make(chan readAnswer, 5)
				for range cap(answers) {
					go func() {
						got, err := w.ask(request("/"))
						if err != nil {
							t.Error(err)
						}
						answers <- got
					}()
				}
				for range cap(answers) {
					if got := <-answers; got.Answer == nil || got.Status != status || got.body != "not now" || got.Header.Get("X-Why") != "lunch" {
						t.Errorf("%+v", got)
					}
				}
				asked := 1
				if isTransientStatus(status) {
					asked = 3
				}
				w.wantAsked(asked)
				w.wantEmpty()
				if n := w.rejected(ReasonUpstream); n != cap(answers) {
					t.Errorf("counted %d times", n)
				}
				if events := w.eventsOf(EventRefused); len(events) != cap(answers) || events[0].Status != status {
					t.Errorf("the audit heard %+v", events)
				}
			})
		})
	}
}

// A 503 with a lifetime of its own is an answer like any other: it is stored,
// and the origin is not asked twice.
func TestAFailureThatMayBeKept(t *testing.T) {
	for _, status := range []int{500, 503, 504, 599} {
		inBubble(t, func(t *testing.T) {
			w := newFixture(t)
			w.origin(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Cache-Control", "max-age=60")
				rw.WriteHeader(status)
				fmt.Fprint(rw, "closed for an hour")
			})
			w.get("/")
			if got := w.get("/"); !got.Hit || got.Status != status || got.body != "closed for an hour" {
				t.Errorf("%d: %+v", status, got)
			}
			w.wantAsked(1)
		})
	}
}

// A private answer is not shared, even if it is a failure.
func TestAPrivateFailureIsForOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		var n atomic.Int64
		w.origin(func(rw http.ResponseWriter, _ *http.Request) {
			mine := n.Add(1)
			time.Sleep(10 * time.Millisecond)
			rw.Header().Set("Cache-Control", "private")
			rw.WriteHeader(500)
			fmt.Fprint(rw, mine)
		})
		seen := make(chan string, 3)
		for range cap(seen) {
			go func() {
				got, err := w.ask(request("/"))
				if err != nil {
					t.Error(err)
				}
				seen <- got.body
			}()
		}
		a, b, c := <-seen, <-seen, <-seen
		if a == b || b == c || a == c {
			t.Errorf("two got the same private answer: %q %q %q", a, b, c)
		}
	})
}

// Redirects that we may not follow, or that lead nowhere, are the client's to
// follow. A relative one is made absolute: the client does not know the
// origin's name.
func TestRedirectsThatAreRelayed(t *testing.T) {
	for name, c := range map[string]struct {
		status         int
		location, want string
		asked          int
	}{
		"to a stranger":     {301, "https://evil.test/x", "https://evil.test/x", 1},
		"to http":           {302, "http://origin.test/x", "http://origin.test/x", 1},
		"to a file":         {303, "file:///etc/passwd", "file:///etc/passwd", 1},
		"nowhere":           {307, "", "", 1},
		"no URL":            {308, "https://%zz/", "https://%zz/", 1},
		"to another port":   {308, "https://origin.test:1/", "https://origin.test:1/", 1},
		"to a user":         {301, "https://u:p@origin.test/", "https://u:p@origin.test/", 1},
		"up":                {301, "/a/%2e%2e/b", "https://origin.test/a/%2e%2e/b", 1},
		"without end":       {301, "/again", "https://origin.test/again", maxRedirects + 1},
		"many to choose of": {300, "/one", "https://origin.test/one", 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newFixture(t)
				w.origin(func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Cache-Control", "max-age=60")
					if c.location != "" {
						rw.Header().Set("Location", c.location)
					}
					rw.WriteHeader(c.status)
					fmt.Fprint(rw, "over there")
				})
				for _, hit := range []bool{false, true} {
					got := w.get("/far")
					if got.Status != c.status || got.body != "over there" || got.Header.Get("Location") != c.want || got.Hit != hit {
						t.Errorf("hit %v: %d %q %v", got.Hit, got.Status, got.body, got.Header)
					}
				}
				w.wantAsked(c.asked)
			})
		})
	}
}

// Unknown statuses are relayed, and stored only if the origin gives a lifetime.
func TestUnknownStatuses(t *testing.T) {
	for _, status := range []int{299, 499, 599, 777, 999} {
		inBubble(t, func(t *testing.T) {
			w := newFixture(t)
			w.serve("origin.test:443", "http/1.1")
			w.origin(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/kept" {
					rw.Header().Set("Cache-Control", "max-age=60")
				}
				rw.WriteHeader(status)
				fmt.Fprint(rw, "what is this")
			})
			w.get("/")
			if got := w.get("/"); got.Status != status || got.body != "what is this" || got.Hit {
				t.Errorf("%d: %+v", status, got)
			}
			w.get("/kept")
			if got := w.get("/kept"); got.Status != status || got.Hit != (status < 600) {
				t.Errorf("%d, kept: %+v", status, got)
			}
		})
	}
}

// The Date is that of the origin, on a miss and on a hit.
func TestTheDateIsTheOrigins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		made := time.Now().Add(-3 * time.Second).UTC().Format(http.TimeFormat)
		w.origin(answerWith("x", "Date", made, "Cache-Control", "max-age=60"))
		w.get("/")
		time.Sleep(5 * time.Second)
		if got := w.get("/"); !got.Hit || got.Header.Get("Date") != made || got.Header.Get("Age") != "8" {
			t.Errorf("%v", got.Header)
		}
	})
}

// A 304 for something that we do not hold does not match our condition: the
// whole is requested, at once, once.
func TestA304ForNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("mine", "Cache-Control", "max-age=1", "Etag", `"mine"`))
		w.get("/")
		time.Sleep(2 * time.Second)
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") == "" && r.Header.Get("If-Modified-Since") == "" {
				answerWith("yours", "Cache-Control", "max-age=1", "Etag", `"yours"`)(rw, r)
				return
			}
			rw.Header().Set("Etag", `"theirs"`)
			rw.WriteHeader(http.StatusNotModified)
		})
		began := time.Now()
		if got := w.get("/"); got.body != "yours" || got.Header.Get("Etag") != `"yours"` {
			t.Errorf("%+v", got)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("paused for %s", took)
		}
		w.wantAsked(3)

		w.origin(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNotModified) })
		w.wantRefused(request("/never"), fault.IntegrityFail, ReasonValidator)
		w.wantAsked(4)
	})
}

// What a 304 changes is visible in the next answer.
func TestA304UpdatesTheHeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("x", "Cache-Control", "max-age=1", "Etag", `"e"`, "X-Old", "1", "X-Both", "1", "Content-Language", "de"))
		w.get("/")
		time.Sleep(2 * time.Second)
		w.origin(func(rw http.ResponseWriter, _ *http.Request) {
			for name, value := range map[string]string{"Cache-Control": "max-age=60", "Etag": `"e"`, "X-Both": "2", "X-New": "2", "Content-Encoding": "br", "Content-Length": "99"} {
				rw.Header().Set(name, value)
			}
			rw.WriteHeader(http.StatusNotModified)
		})
		w.get("/")
		synctest.Wait()
		got := w.get("/")
		want := map[string]string{"Cache-Control": "max-age=60", "X-Old": "1", "X-Both": "2", "X-New": "2", "Content-Encoding": "", "Content-Language": "de", "Etag": `"e"`}
		for name, value := range want {
			if got.Header.Get(name) != value {
				t.Errorf("%s: %q, want %q", name, got.Header.Get(name), value)
			}
		}
		if !got.Hit || got.body != "x" {
			t.Errorf("%+v", got)
		}
	})
}

// An Age that is no number, or is there twice, makes an entry stale.
func TestAnInvalidAgeMakesStale(t *testing.T) {
	for _, age := range [][]string{{"abc"}, {"-1"}, {"1.0"}, {"1;a=b"}, {"0, 0"}, {"0", "0"}, {""}} {
		inBubble(t, func(t *testing.T) {
			w := newFixture(t)
			w.origin(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header()["Age"] = age
				rw.Header().Set("Cache-Control", "max-age=3600")
				_, _ = io.WriteString(rw, "x")
			})
			w.get("/")
			if got := w.get("/"); got.Hit {
				t.Errorf("Age %q counts as fresh", age)
			}
			if got := w.get("/"); strings.Contains(got.Header.Get("Age"), age[0]) && age[0] != "" {
				t.Errorf("Age %q is passed on", age)
			}
		})
	}
}
