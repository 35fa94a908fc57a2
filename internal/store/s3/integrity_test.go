package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

// wantQuarantined checks that an object was removed and quarantined, once.
func (s *subject) wantQuarantined(a b3.Address) {
	s.Helper()
	if n := s.store.Counts().IntegrityFails; n != 1 {
		s.Errorf("%d objects are counted as corrupt, want 1", n)
	}
	if _, err := s.store.Stat(s.Context(), a); fault.KindOf(err) != fault.NotFound {
		s.Errorf("it can be seen: %v", err)
	}
	if u := s.store.Usage(); u.Objects != 0 || u.Bytes != 0 || u.Pinned != 0 {
		s.Errorf("it counts: %+v", u)
	}
	if n := len(s.fake.under(key(folderQuarantine, a))); n != 1 {
		s.Errorf("it is not in quarantine")
	}
	for _, folder := range []string{folderData, folderTree, folderPinned} {
		if left := s.fake.under(folder); len(left) > 0 {
			s.Errorf("left in view: %v", left)
		}
	}
}

func TestCorruptObjects(t *testing.T) {
	for name, c := range map[string]struct {
		size, at int
		open     bool // it can be opened
	}{
		"small": {1000, 500, false}, "first byte": {1 << 20, 0, true}, "middle": {1 << 20, 600_000, true}, "last byte": {1 << 20, 1<<20 - 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				data := sampleBody(c.size)
				a := t.put(data, store.Pinned)
				t.fake.corrupt(key(folderData, a), c.at)
				h, err := t.store.Open(t.Context(), a)
				if (err == nil) != c.open {
					t.Fatalf("open: %v", err)
				}
				if c.open {
					defer h.Close()
					var got bytes.Buffer
					_, err = h.WriteTo(&got)
					if got.Len() > c.at || !bytes.Equal(got.Bytes(), data[:got.Len()]) {
						t.Errorf("%d bytes were given out, byte %d is wrong", got.Len(), c.at)
					}
				}
				t.wantRefused(err, fault.IntegrityFail, "Put the object again")
				t.wantQuarantined(a)
				if c.open && c.at > 300_000 {
					t.wantRange(h, data, 0, 100_000) // valid groups can still be read through the open handle
				}
				if c.open {
					_ = h.Close()
				}
				if u := t.store.Usage(); u.Lingering != 0 {
					t.Errorf("%d bytes linger", u.Lingering)
				}
				t.fake.called("")
				t.put(data, store.Pinned)
				t.wantHeld(data)
			})
		})
	}
}

// An object whose size has changed is corrupt, also from or to zero.
func TestOtherSizes(t *testing.T) {
	for name, c := range map[string][2]int{"shorter": {1 << 20, 900_000}, "longer": {200_000, 200_001}, "small": {100, 99}, "now empty": {100, 0}, "now large": {100, 1 << 20}, "now small": {1 << 20, 100}, "not empty": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				data := sampleBody(c[0])
				a := t.put(data, store.Pinned)
				t.fake.putDirectly(key(folderData, a), sampleBody(c[1]), 0)
				_, err := t.store.Open(t.Context(), a)
				t.wantRefused(err, fault.IntegrityFail, "")
				if _, err := t.store.Stat(t.Context(), a); fault.KindOf(err) != fault.NotFound {
					t.Errorf("it can be seen: %v", err)
				}
			})
		})
	}
	t.Run("while open", func(t *testing.T) {
		bubble(t, func(t *subject) {
			data := sampleBody(1 << 20)
			a := t.put(data, store.Pinned)
			h := t.handle(t.Context(), a)
			t.fake.putDirectly(key(folderData, a), data[:500_000], 0)
			var got bytes.Buffer
			_, err := h.WriteTo(&got)
			t.wantRefused(err, fault.IntegrityFail, "")
			if !bytes.Equal(got.Bytes(), data[:got.Len()]) {
				t.Errorf("%d bytes, and some are wrong", got.Len())
			}
			if _, err := h.WriteRange(io.Discard, 900_000, 10); err == nil {
				t.Errorf("a range beyond the end was given out")
			}
		})
	})
}

// A missing or wrong tree is rebuilt from the object, and the object is not
// quarantined.
func TestTreesAreRebuilt(t *testing.T) {
	for name, damage := range map[string]func(t *subject, k string, right []byte){
		"missing":  func(t *subject, k string, _ []byte) { t.fake.drop(k) },
		"size":     func(t *subject, k string, _ []byte) { t.fake.corrupt(k, 0) },
		"root":     func(t *subject, k string, _ []byte) { t.fake.corrupt(k, 10) },
		"inside":   func(t *subject, k string, _ []byte) { t.fake.corrupt(k, 8+64*4+5) },
		"tail":     func(t *subject, k string, right []byte) { t.fake.corrupt(k, len(right)-1) },
		"cut off":  func(t *subject, k string, right []byte) { t.fake.putDirectly(k, right[:100], 0) },
		"empty":    func(t *subject, k string, _ []byte) { t.fake.putDirectly(k, nil, 0) },
		"too long": func(t *subject, k string, right []byte) { t.fake.putDirectly(k, append(bytes.Clone(right), 1), 0) },
	} {
		for _, how := range []string{"read", "verify", "while open", "deleted"} {
			t.Run(name+", "+how, func(t *testing.T) {
				bubble(t, func(t *subject) {
					data := sampleBody(1 << 20)
					a := t.put(data, store.Pinned)
					k := key(folderTree, a)
					right := t.fake.bytes(k)
					switch how {
					case "read":
						damage(t, k, right)
						t.wantHeld(data)
						t.wantHeld(data)
					case "verify":
						damage(t, k, right)
						if err := t.store.Verify(t.Context(), a, nil); err != nil {
							t.Errorf("verify: %v", err)
						}
					case "while open":
						h := t.handle(t.Context(), a)
						h.(*handle).object.tree.clear()
						damage(t, k, right)
						t.wantRange(h, data, 0, 1<<20)
					case "deleted":
						h := t.handle(t.Context(), a)
						h.(*handle).object.tree.clear()
						damage(t, k, right)
						if err := t.store.Delete(t.Context(), a); err != nil {
							t.Fatal(err)
						}
						t.wantRange(h, data, 0, 1<<20)
						_ = h.Close()
						t.wantNothingLeft()
						return
					}
					if !bytes.Equal(t.fake.bytes(k), right) {
						if how != "read" || name != "inside" { // damage that was not read may stay
							t.Errorf("the tree is still wrong")
						}
					}
					if n := t.store.Counts().IntegrityFails; n != 0 {
						t.Errorf("%d good objects were condemned", n)
					}
				})
			})
		}
	}
}

// A tree that cannot be fetched is no reason to quarantine anything.
func TestATreeThatCannotBeHad(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sampleBody(1 << 20)
		a := t.put(data, store.Pinned)
		t.fake.interceptTimes(3, "GET /bucket/tree/", status(503, "SlowDown"))
		_, err := t.store.Open(t.Context(), a)
		t.wantRefused(err, fault.StorageBusy, "")
		t.fake.interceptTimes(1, "GET /bucket/tree/", status(403, "AccessDenied"))
		t.wantRefused(t.store.Verify(t.Context(), a, nil), fault.NotReady, "")
		t.wantHeld(data)
	})
}

// Failures while a tree is rebuilt or an object is moved are reported, and the
// object is not returned.
func TestFailuresWhileRebuilding(t *testing.T) {
	for match, want := range map[string]fault.Kind{
		"GET /bucket/data/": fault.NotReady, "PUT /bucket/tree/": fault.NotReady,
	} {
		t.Run(match, func(t *testing.T) {
			bubble(t, func(t *subject) {
				data := sampleBody(1 << 20)
				a := t.put(data, store.Pinned)
				t.fake.drop(key(folderTree, a))
				skip := map[string]int{"GET /bucket/data/": 1}[match]
				t.failAfter(skip, match)
				_, err := t.store.Open(t.Context(), a)
				t.wantRefused(err, want, "")
				t.fake.setIntercept(nil)
				t.wantHeld(data)
			})
		})
	}
	for _, match := range []string{"PUT /bucket/quarantine/", "DELETE /bucket/data/", "HEAD /bucket/data/"} {
		t.Run(match, func(t *testing.T) {
			bubble(t, func(t *subject) {
				a := t.put(sampleBody(1000), store.Cached)
				t.fake.corrupt(key(folderData, a), 7)
				t.failAfter(0, match)
				_, err := t.store.Open(t.Context(), a)
				t.wantRefused(err, fault.IntegrityFail, "")
				if n := t.store.Counts().IntegrityFails; n != 1 {
					t.Errorf("%d objects are counted as corrupt, want 1", n)
				}
				t.fake.setIntercept(nil)
				_, err = t.store.Open(t.Context(), a)
				t.wantRefused(err, fault.IntegrityFail, "")
				if _, err := t.store.Stat(t.Context(), a); fault.KindOf(err) != fault.NotFound {
					t.Errorf("the second time it was not taken out of view: %v", err)
				}
			})
		})
	}
}

// failAfter rejects what matches, except for the first few.
func (s *subject) failAfter(skip int, match string) {
	s.fake.interceptTimes(1000, match, func(w http.ResponseWriter, r *http.Request) {
		if skip--; skip >= 0 {
			s.fake.answer(w, r, r.URL.Path[len("/bucket/"):])
			return
		}
		status(403, "AccessDenied")(w, r)
	})
}

func TestVerify(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sampleBody(1 << 20)
		a := t.put(data, store.Pinned)
		var paced int64
		pace := func(_ context.Context, n int64) error { paced += n; return nil }
		if err := t.store.Verify(t.Context(), a, pace); err != nil || paced != 1<<20 {
			t.Errorf("%d bytes were paced, %v", paced, err)
		}
		enough := errors.New("enough")
		if err := t.store.Verify(t.Context(), a, func(context.Context, int64) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("a pace that stops: %v", err)
		}
		gone := func(context.Context, int64) error { t.fake.drop(key(folderData, a)); return nil }
		t.wantRefused(t.store.Verify(t.Context(), a, gone), fault.NotFound, "")
		t.fake.putDirectly(key(folderData, a), data, 0)

		t.fake.interceptTimes(1, "GET /bucket/data/", t.fake.answerGarbled)
		if err := t.store.Verify(t.Context(), a, nil); err != nil {
			t.Errorf("one bad line: %v", err)
		}
		t.fake.corrupt(key(folderData, a), 99_999)
		t.wantRefused(t.store.Verify(t.Context(), a, nil), fault.IntegrityFail, "")
		t.wantQuarantined(a)
	})
	bubble(t, func(t *subject) {
		a := t.put(sampleBody(1<<20), store.Pinned)
		shorter := func(context.Context, int64) error {
			t.fake.putDirectly(key(folderData, a), sampleBody(100), 0)
			return nil
		}
		t.wantRefused(t.store.Verify(t.Context(), a, shorter), fault.IntegrityFail, "")
	})
}

// A corrupt copy of a deleted object no longer belongs to any object.
func TestCorruptAfterDelete(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sampleBody(1 << 20)
		a := t.put(data, store.Pinned)
		h := t.handle(t.Context(), a)
		if err := t.store.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		t.put(data, store.Pinned)
		t.fake.corrupt(t.fake.under(folderTemporary)[0], 800_000)
		_, err := h.WriteTo(io.Discard)
		t.wantRefused(err, fault.IntegrityFail, "")
		if n := t.store.Counts().IntegrityFails; n != 0 {
			t.Errorf("%d objects are counted as corrupt; the one that can be seen is not", n)
		}
		t.wantHeld(data)
	})
}
