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

// Every answer of a server becomes a kind that says what to do.
func TestAnswersHaveKinds(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		kind   fault.Kind
		next   string
	}{
		{404, "NoSuchKey", fault.NotFound, ""},
		{404, "NoSuchBucket", fault.NotReady, "store.create_bucket"},
		{404, "NoSuchUser", fault.UpstreamFailed, ""}, // says nothing about the object
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
				t.fake.times(100, "GET", status(c.status, c.code))
				_, err := t.store.List(t.Context(), b3.Address{}, 1)
				t.refused(err, c.kind, c.next)
				if strings.Contains(fault.DetailOf(err), "127.0.0.1") || strings.Contains(fault.DetailOf(err), fakeBucket) {
					t.Errorf("the detail tells strangers where objects are kept: %q", fault.DetailOf(err))
				}
			})
		})
	}
}

// When a store is opened, a refused key is what it is: a mistake of the one who
// configured it.
func TestARefusedKeyAtTheStart(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.times(1, "GET", status(403, "SignatureDoesNotMatch"))
		_, err := Open(t.Context(), flow.NewInventory(), t.line.spec())
		t.refused(err, fault.Unauthorized, "store.secret_key")
	})
}

// What fails in passing is tried again, with pauses, and not for ever.
func TestPassingFailuresAreTriedAgain(t *testing.T) {
	for name, fails := range map[string]http.HandlerFunc{
		"busy": status(503, "SlowDown"), "broken": status(500, "InternalError"), "too slow": hang,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				a := t.put(sample(100), store.Cached)
				t.fake.called("")
				begin := time.Now()
				t.fake.times(2, "HEAD", fails)
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
				t.fake.times(100, "HEAD", fails)
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

// A line that is cut is no failure if the next one holds.
func TestCutLines(t *testing.T) {
	bubble(t, func(t *subject) {
		a := t.put(sample(100), store.Cached)
		t.fake.times(2, "HEAD", cut)
		if _, err := t.store.Stat(t.Context(), a); err != nil {
			t.Errorf("after two cuts: %v", err)
		}
		t.fake.times(1000, "HEAD", cut)
		_, err := t.store.Stat(t.Context(), a)
		t.refused(err, fault.UpstreamFailed, "store.url")
		if c := t.store.Calls(); c.Failures < 3 || c.Timeouts != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// What was refused is not asked for again.
func TestRefusalsAreFinal(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.times(100, "HEAD", status(403, "AccessDenied"))
		_, err := t.store.Stat(t.Context(), b3.Of(nil))
		t.refused(err, fault.NotReady, "store.access_key")
		if n := t.fake.called("HEAD"); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
	})
}

// A caller's deadline holds, and no pause is begun that would pass it.
func TestDeadlinesHold(t *testing.T) {
	for name, fails := range map[string]http.HandlerFunc{"hangs": hang, "busy": status(503, "SlowDown")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				small, large := t.put(sample(100), store.Pinned), t.put(sample(200_000), store.Pinned)
				h, err := t.store.Open(t.Context(), large)
				if err != nil {
					t.Fatal(err)
				}
				_ = h.Close()
				t.fake.times(1000, "", fails)
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
						_, _, err := t.store.Put(ctx, bytes.NewReader(sample(part+1)), store.PutOptions{Size: store.Unknown})
						return err
					},
				} {
					ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
					begin := time.Now()
					err := do(ctx)
					want, limit := fault.Timeout, 120*time.Millisecond
					if name == "busy" { // there is time for one pause, but not for a second
						want, limit = fault.StorageBusy, pauseHigh
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

// A store that is closed does not leave anybody waiting.
func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.times(1, "HEAD", func(w http.ResponseWriter, r *http.Request) {
			_ = t.store.Close()
			hang(w, r)
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
		s, err := Open(t.Context(), inv, t.line.spec())
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

// Where a put is heard but its answer is not, the mark on the key tells whose
// it is.
func TestUnheardAnswers(t *testing.T) {
	bubble(t, func(t *subject) {
		mine, theirs := sample(100), sample(200)
		t.fake.times(1, "PUT /bucket/data/", t.fake.late)
		t.put(mine, store.Cached)

		t.fake.times(1, "PUT /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
			t.fake.plant(key(folderData, b3.Of(theirs)), theirs, 0) // another node is faster
			t.fake.late(w, r)
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

// A server may cut the line at every try of a put that another node was faster
// with.
func TestNeverHeard(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sample(200)
		t.fake.times(100, "PUT /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
			t.fake.plant(key(folderData, b3.Of(data)), data, 0)
			t.fake.late(w, r)
		})
		_, created, err := t.store.Put(t.Context(), bytes.NewReader(data), store.PutOptions{Size: 200, Class: store.Cached})
		if err != nil || created {
			t.Errorf("put of what another node put: created %t, %v", created, err)
		}
	})
}

// A server that does not know conditional puts is used without.
func TestServersWithoutConditions(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.meddleWith(func(w http.ResponseWriter, r *http.Request) bool {
			unknown := r.Header.Get("If-None-Match") != ""
			if unknown {
				status(501, "NotImplemented")(w, r)
			}
			return unknown
		})
		t.put(sample(100), store.Pinned)
		t.put(sample(200), store.Cached)
		t.put(sample(part+1), store.Pinned)
		t.holds(sample(part + 1))
		if _, created, err := t.store.Put(t.Context(), bytes.NewReader(sample(100)), store.PutOptions{Size: 100}); err != nil || created {
			t.Errorf("the second put: created %t, %v", created, err)
		}
	})
}

// Some servers answer with the whole object whatever is asked for.
func TestServersWithoutRanges(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.meddleWith(func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("Range")
			return false
		})
		t.put(sample(100), store.Pinned)
		t.holds(sample(100))
		a := t.put(sample(200_000), store.Pinned)
		h, err := t.store.Open(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		var got bytes.Buffer
		_, err = h.WriteRange(&got, 100_000, 10)
		t.refused(err, fault.UpstreamFailed, "")
		if got.Len() > 0 {
			t.Errorf("%d bytes of another range were given out", got.Len())
		}
	})
}

// A server that answers with another range than was asked for is at fault, not
// the object.
func TestServersWithOtherRanges(t *testing.T) {
	bubble(t, func(t *subject) {
		h := t.handle(t.Context(), t.put(sample(200_000), store.Pinned))
		t.fake.meddleWith(func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Set("Range", "bytes=0-99999")
			return false
		})
		_, err := h.WriteRange(io.Discard, 100_000, 10)
		t.refused(err, fault.UpstreamFailed, "")
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
