package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// Every error of a server becomes a kind with a next step.
func TestAnswersHaveKinds(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		kind   fault.Kind
		next   string
	}{
		{404, "NoSuchKey", fault.NotFound, ""},
		{404, "NoSuchBucket", fault.NotReady, "store.create_bucket"},
		{404, "NoSuchUser", fault.UpstreamFailed, ""}, // does not concern the object
		{403, "AccessDenied", fault.NotReady, "store.access_key"},
		{403, "InvalidAccessKeyId", fault.NotReady, "store.access_key"},
		{403, "SignatureDoesNotMatch", fault.NotReady, "store.secret_key"},
		{403, "RequestTimeTooSkewed", fault.NotReady, "clock"},
		{403, "SomethingElse", fault.NotReady, "store.access_key"},
		{400, "AuthorizationHeaderMalformed", fault.NotReady, "store.region"},
		{301, "PermanentRedirect", fault.NotReady, "store.region"},
		{503, "SlowDown", fault.StorageBusy, "Try again"},
		{429, "Whatever", fault.StorageBusy, "Try again"},
		{507, "Whatever", fault.StoreFull, "quota"},
		{403, "QuotaExceeded", fault.StoreFull, "quota"},
		{400, "EntityTooLarge", fault.BodyTooLarge, "store.max_object_bytes"},
		{500, "InternalError", fault.UpstreamFailed, "store.url"},
		{400, "InvalidArgument", fault.UpstreamFailed, "store.url"},
	} {
		t.Run(c.code, func(t *testing.T) {
			bubble(t, func(t *subject) {
				t.fake.interceptTimes(100, "GET", status(c.status, c.code))
				_, err := t.store.List(t.Context(), b3.Address{}, 1)
				t.wantRefused(err, c.kind, c.next)
				if strings.Contains(fault.DetailOf(err), "127.0.0.1") || strings.Contains(fault.DetailOf(err), fakeBucket) {
					t.Errorf("the detail tells strangers where objects are kept: %q", fault.DetailOf(err))
				}
			})
		})
	}
}

// When a store is opened, a rejected key is reported as such: it is a mistake
// in the configuration.
func TestARefusedKeyAtTheStart(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.interceptTimes(1, "GET", status(403, "SignatureDoesNotMatch"))
		_, err := Open(t.Context(), flow.NewInventory(), t.listener.spec())
		t.wantRefused(err, fault.Unauthorized, "store.secret_key")
	})
}

// Transient failures are retried, with pauses, and not forever.
func TestPassingFailuresAreTriedAgain(t *testing.T) {
	for name, fails := range map[string]http.HandlerFunc{
		"busy": status(503, "SlowDown"), "broken": status(500, "InternalError"), "too slow": hangForever,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				a := t.put(sampleBody(100), store.Cached)
				t.fake.called("")
				begin := time.Now()
				t.fake.interceptTimes(2, "HEAD", fails)
				if _, err := t.store.Stat(t.Context(), a); err != nil {
					t.Errorf("after two failures: %v", err)
				}
				if n := t.fake.called("HEAD data/"); n != 3 {
					t.Errorf("%d calls, want 3", n)
				}
				low, high := 150*time.Millisecond, 300*time.Millisecond
				if name == "too slow" {
					low, high = low+20*time.Second, high+20*time.Second
				}
				if took := time.Since(begin); took < low || took > high {
					t.Errorf("it took %v, want %v to %v", took, low, high)
				}
				t.fake.interceptTimes(100, "HEAD", fails)
				if _, err := t.store.Stat(t.Context(), a); err == nil || !fault.KindOf(err).Retryable() {
					t.Errorf("after many failures: %v", err)
				}
				if n := t.fake.called("HEAD data/"); n != 3 {
					t.Errorf("%d calls, want 3", n)
				}
				if c := t.store.Calls(); c.Retries != 4 {
					t.Errorf("%+v, want 4 retries", c)
				}
			})
		})
	}
}

// A broken connection is no failure if the next one holds.
func TestCutConnections(t *testing.T) {
	bubble(t, func(t *subject) {
		a := t.put(sampleBody(100), store.Cached)
		t.fake.interceptTimes(2, "HEAD", cutConnection)
		if _, err := t.store.Stat(t.Context(), a); err != nil {
			t.Errorf("after two cuts: %v", err)
		}
		t.fake.interceptTimes(1000, "HEAD", cutConnection)
		_, err := t.store.Stat(t.Context(), a)
		t.wantRefused(err, fault.UpstreamFailed, "store.url")
		if c := t.store.Calls(); c.Failures < 3 || c.Timeouts != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// What was rejected is not retried.
func TestRefusalsAreFinal(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.interceptTimes(100, "HEAD", status(403, "AccessDenied"))
		_, err := t.store.Stat(t.Context(), b3.Of(nil))
		t.wantRefused(err, fault.NotReady, "store.access_key")
		if n := t.fake.called("HEAD"); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
	})
}

// A caller's deadline holds, and no pause is begun that would exceed it.
func TestDeadlinesHold(t *testing.T) {
	for name, fails := range map[string]http.HandlerFunc{"hangs": hangForever, "busy": status(503, "SlowDown")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				small, large := t.put(sampleBody(100), store.Pinned), t.put(sampleBody(200_000), store.Pinned)
				h, err := t.store.Open(t.Context(), large)
				if err != nil {
					t.Fatal(err)
				}
				_ = h.Close()
				t.fake.interceptTimes(1000, "", fails)
				for what, do := range map[string]func(ctx context.Context) error{
					"open":   func(ctx context.Context) error { _, err := t.store.Open(ctx, small); return err },
					"stat":   func(ctx context.Context) error { _, err := t.store.Stat(ctx, small); return err },
					"list":   func(ctx context.Context) error { _, err := t.store.List(ctx, b3.Address{}, 1); return err },
					"delete": func(ctx context.Context) error { return t.store.Delete(ctx, small) },
					"pin":    func(ctx context.Context) error { return t.store.Pin(ctx, small) },
					"unpin":  func(ctx context.Context) error { return t.store.Unpin(ctx, small) },
					"verify": func(ctx context.Context) error { return t.store.Verify(ctx, small, nil) },
					"put": func(ctx context.Context) error {
						_, _, err := t.store.Put(ctx, strings.NewReader("new"), store.PutOptions{Size: 3})
						return err
					},
					"large put": func(ctx context.Context) error {
						_, _, err := t.store.Put(ctx, bytes.NewReader(sampleBody(partSize+1)), store.PutOptions{Size: store.Unknown})
						return err
					},
				} {
					ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
					begin := time.Now()
					err := do(ctx)
					want, limit := fault.Timeout, 120*time.Millisecond
					if name == "busy" { // there is time for one pause, but not for a second
						want, limit = fault.StorageBusy, backoff.First
					}
					if took := time.Since(begin); fault.KindOf(err) != want || took > limit {
						t.Errorf("%s: %v after %v", what, err, took)
					}
					cancel()
				}
			})
		})
	}
}

// Closing a store ends all waiting calls.
func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.interceptTimes(1, "HEAD", func(w http.ResponseWriter, r *http.Request) {
			_ = t.store.Close()
			hangForever(w, r)
		})
		begin := time.Now()
		_, err := t.store.Stat(t.Context(), b3.Of(nil))
		if fault.KindOf(err) != fault.Canceled || !errors.Is(err, flow.ErrClosed) || time.Since(begin) > 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// The figures of the inventory go with the store.
func TestTheInventoryForgetsAClosedStore(t *testing.T) {
	bubble(t, func(t *subject) {
		inv := flow.NewInventory()
		s, err := Open(t.Context(), inv, t.listener.spec())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(inv.Read()); n != 2 {
			t.Errorf("%d parts in the inventory, want 2: puts and turns", n)
		}
		_ = s.Close()
		for _, stat := range inv.Read() {
			if stat.Instances != 0 {
				t.Errorf("%s is still there after Close", stat.Name)
			}
		}
	})
}

// When a put is executed but its response is lost, the put ID on the key shows
// which put created it.
func TestLostAnswers(t *testing.T) {
	bubble(t, func(t *subject) {
		mine, theirs := sampleBody(100), sampleBody(200)
		t.fake.interceptTimes(1, "PUT /bucket/data/", t.fake.answerLost)
		t.put(mine, store.Cached)

		t.fake.interceptTimes(1, "PUT /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
			t.fake.putDirectly(key(folderData, b3.Of(theirs)), theirs, 0) // another node is faster
			t.fake.answerLost(w, r)
		})
		_, created, err := t.store.Put(t.Context(), bytes.NewReader(theirs), store.PutOptions{Size: 200, Class: store.Cached})
		if err != nil || created {
			t.Errorf("put of what another node put: created %t, %v", created, err)
		}
		if u := t.store.Usage(); u.Objects != 1 || u.Bytes != 100 {
			t.Errorf("%+v; one object of 100 bytes is ours", u)
		}
	})
}

// A server may close the connection at every try of a put that another node has
// done before.
func TestEveryAnswerLost(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sampleBody(200)
		t.fake.interceptTimes(100, "PUT /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
			t.fake.putDirectly(key(folderData, b3.Of(data)), data, 0)
			t.fake.answerLost(w, r)
		})
		_, created, err := t.store.Put(t.Context(), bytes.NewReader(data), store.PutOptions{Size: 200, Class: store.Cached})
		if err != nil || created {
			t.Errorf("put of what another node put: created %t, %v", created, err)
		}
	})
}

// A server that does not support conditional puts is used without.
func TestServersWithoutConditions(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
			unknown := r.Header.Get("If-None-Match") != ""
			if unknown {
				status(501, "NotImplemented")(w, r)
			}
			return unknown
		})
		t.put(sampleBody(100), store.Pinned)
		t.put(sampleBody(200), store.Cached)
		t.put(sampleBody(partSize+1), store.Pinned)
		t.wantHeld(sampleBody(partSize + 1))
		if _, created, err := t.store.Put(t.Context(), bytes.NewReader(sampleBody(100)), store.PutOptions{Size: 100}); err != nil || created {
			t.Errorf("the second put: created %t, %v", created, err)
		}
	})
}

// Some servers answer with the whole object whatever range is requested.
func TestServersWithoutRanges(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.setIntercept(func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("Range")
			return false
		})
		t.put(sampleBody(100), store.Pinned)
		t.wantHeld(sampleBody(100))
		a := t.put(sampleBody(200_000), store.Pinned)
		h, err := t.store.Open(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		var got bytes.Buffer
		_, err = h.WriteRange(&got, 100_000, 10)
		t.wantRefused(err, fault.UpstreamFailed, "")
		if got.Len() > 0 {
			t.Errorf("%d bytes of another range were given out", got.Len())
		}
	})
}

// A server that answers with another range than requested is at fault, not the
// object.
func TestServersWithOtherRanges(t *testing.T) {
	bubble(t, func(t *subject) {
		h := t.handle(t.Context(), t.put(sampleBody(200_000), store.Pinned))
		t.fake.setIntercept(func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Set("Range", "bytes=0-99999")
			return false
		})
		_, err := h.WriteRange(io.Discard, 100_000, 10)
		t.wantRefused(err, fault.UpstreamFailed, "")
		if n := t.store.Counts().IntegrityFails; n != 0 {
			t.Errorf("%d good objects were condemned", n)
		}
	})
}

func TestETagsAreTrimmed(t *testing.T) {
	for text, want := range map[string]string{`"a"`: "a", `a`: "a", `""a""`: "a", `"`: `"`, ``: ``} {
		if got := trimETag(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
