package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

// handle opens an object that must exist.
func (s *subject) handle(ctx context.Context, a b3.Address) store.Handle {
	s.Helper()
	h, err := s.store.Open(ctx, a)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = h.Close() })
	return h
}

// wantRange checks a range.
func (s *subject) wantRange(h store.Handle, data []byte, off, n int64) {
	s.Helper()
	var got bytes.Buffer
	if written, err := h.WriteRange(&got, off, n); err != nil || written != n || !bytes.Equal(got.Bytes(), data[off:off+n]) {
		s.Errorf("range %d+%d: %d bytes, %v", off, n, written, err)
	}
}

// A small object is one call, and then in memory. Of a large one the beginning
// is cached, and a long range is one call.
func TestWhatReadingCosts(t *testing.T) {
	bubble(t, func(t *subject) {
		little, large := sampleBody(maxSmall), sampleBody(1<<20)
		t.put(little, store.Pinned)
		t.put(large, store.Pinned)
		t.fake.called("")

		h := t.handle(t.Context(), b3.Of(little))
		t.wantRange(h, little, 10, 1000)
		if whole, ok := h.Bytes(); !ok || !bytes.Equal(whole, little) {
			t.Errorf("Bytes gives %d bytes, %t", len(whole), ok)
		}
		if n := t.fake.called(""); n != 1 {
			t.Errorf("a small object took %d calls, want 1", n)
		}

		h = t.handle(t.Context(), b3.Of(large))
		if n := t.fake.called(""); n != 2 {
			t.Errorf("opening a large object took %d calls, want 2: its beginning and its tree", n)
		}
		t.wantRange(h, large, 100, 60_000)
		if n := t.fake.called(""); n != 0 {
			t.Errorf("its beginning took %d more calls", n)
		}
		t.wantRange(h, large, 0, 1<<20)
		t.wantRange(h, large, 700_000, 1)
		if n := t.fake.called("GET data/"); n != 2 {
			t.Errorf("two ranges took %d calls", n)
		}
	})
}

// A read whose connection breaks in the middle, or stalls, continues where it
// stopped.
func TestReadingGoesOn(t *testing.T) {
	for name, stop := range map[string]func(http.ResponseWriter, *http.Request){"cut": cutConnection, "silent": hangForever} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				data := sampleBody(1 << 20)
				h := t.handle(t.Context(), t.put(data, store.Pinned))
				t.fake.interceptTimes(8, "GET /bucket/data/", t.fake.answerHalf(stop)) // each returns half of what is left
				t.wantRange(h, data, 0, 1<<20)
				t.wantHeld(data)
				t.fake.interceptTimes(1, "GET /bucket/tree/", t.fake.answerHalf(stop))
				t.wantHeld(data)
				little := sampleBody(1000)
				t.put(little, store.Pinned)
				t.fake.interceptTimes(2, "GET /bucket/data/", t.fake.answerHalf(stop))
				t.wantHeld(little)
				if n := t.store.Counts().IntegrityFails; n != 0 {
					t.Errorf("%d objects are counted as corrupt because of a bad line", n)
				}
			})
		})
	}
}

// If nothing arrives at all, the read fails in time, and nothing wrong was
// returned.
func TestReadingEnds(t *testing.T) {
	for name, c := range map[string]struct {
		fails http.HandlerFunc
		kind  fault.Kind
	}{
		"cut": {cutConnection, fault.UpstreamFailed}, "hangs": {hangForever, fault.Timeout}, "busy": {status(503, "SlowDown"), fault.StorageBusy},
		"denied": {status(403, "AccessDenied"), fault.NotReady},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				data := sampleBody(1 << 20)
				a := t.put(data, store.Pinned)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				h := t.handle(ctx, a)
				t.fake.interceptTimes(1000, "GET /bucket/data/", c.fails)
				var got bytes.Buffer
				begin := time.Now()
				n, err := h.WriteTo(&got)
				t.wantRefused(err, c.kind, "")
				if !bytes.Equal(got.Bytes(), data[:n]) || time.Since(begin) > 5*time.Second {
					t.Errorf("%d bytes after %v", n, time.Since(begin))
				}
				t.fake.setIntercept(nil)
				if _, err := t.store.Stat(t.Context(), a); err != nil {
					t.Errorf("the object is gone: %v", err)
				}
				cancel()
				if _, err := h.WriteTo(&got); err == nil {
					t.Errorf("a handle outlives its context")
				}
			})
		})
	}
}

// Another version of the same bytes is as good.
func TestAnotherVersion(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sampleBody(1 << 20)
		a := t.put(data, store.Pinned)
		h := t.handle(t.Context(), a)
		t.fake.putDirectly(key(folderData, a), data, 0)
		t.fake.mu.Lock()
		t.fake.keys[key(folderData, a)].etag = "another"
		t.fake.mu.Unlock()
		t.wantRange(h, data, 0, 1<<20)
	})
}

// What another node deletes is gone; what this node deletes can be read to the
// end through open handles, at whatever point of a read.
func TestDeletedWhileOpen(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sampleBody(1 << 20)
		a := t.put(data, store.Pinned)
		h := t.handle(t.Context(), a)
		w := &triggerWriter{at: 500_000, do: func() {
			if err := t.store.Delete(t.Context(), a); err != nil {
				t.Errorf("delete: %v", err)
			}
		}}
		t.fake.interceptTimes(1, "GET /bucket/data/", t.fake.answerHalf(cutConnection)) // so that the rest is requested after the delete
		if _, err := h.WriteTo(w); err != nil || !bytes.Equal(w.got.Bytes(), data) {
			t.Errorf("%d bytes, %v", w.got.Len(), err)
		}
		if u := t.store.Usage(); u.Lingering != 1<<20 || u.Objects != 0 {
			t.Errorf("deleted while open: %+v", u)
		}
		if n := len(t.fake.under(folderTemporary)); n != 1 {
			t.Errorf("%d copies are kept aside, want 1", n)
		}
		_ = h.Close()
		t.wantNothingLeft()

		a = t.put(data, store.Pinned)
		h = t.handle(t.Context(), a)
		t.fake.drop(key(folderData, a)) // another node deletes it
		_, err := h.WriteRange(io.Discard, 900_000, 10)
		t.wantRefused(err, fault.NotFound, "")
	})
}

// A request that arrives just after the object was moved to a temporary key
// continues with the copy.
func TestMovedWhileReading(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sampleBody(1 << 20)
		a := t.put(data, store.Pinned)
		h := t.handle(t.Context(), a)
		t.fake.interceptTimes(1, "GET /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
			t.fake.setIntercept(nil)
			if err := t.store.Delete(t.Context(), a); err != nil {
				t.Errorf("delete: %v", err)
			}
			t.fake.recorded(r).send(w)
		})
		t.wantRange(h, data, 200_000, 500_000)
		_ = h.Close()
		t.wantNothingLeft()
	})
}

// A handle can be closed after its deadline, and still its temporary copy is
// removed.
func TestClosedTooLate(t *testing.T) {
	bubble(t, func(t *subject) {
		a := t.put(sampleBody(1<<20), store.Pinned)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h := t.handle(ctx, a)
		if err := t.store.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		_ = h.Close()
		t.wantNothingLeft()
	})
}

// A store that is closed, without open handles, holds no connection.
func TestNoConnectionIsLeft(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sampleBody(1 << 20)
		h := t.handle(t.Context(), t.put(data, store.Pinned))
		_ = t.store.Close()
		t.wantRange(h, data, 0, 1<<20)
		_ = h.Close()
		synctest.Wait()
		t.fake.mu.Lock()
		defer t.fake.mu.Unlock()
		if t.fake.conns != 0 {
			t.Errorf("%d connections are open", t.fake.conns)
		}
	})
}

// Responses without a length can end too early, which only we notice. Neither
// the object nor its tree is at fault.
func TestAnswersWithoutALength(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sampleBody(1 << 20)
		h := t.handle(t.Context(), t.put(data, store.Pinned))
		t.fake.called("")
		t.fake.interceptTimes(2, "GET /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
			answer := t.fake.recorded(r)
			answer.header.Del("Content-Length")
			answer.body.Reset()
			answer.send(w)
			_ = http.NewResponseController(w).Flush()
		})
		t.wantRange(h, data, 0, 1<<20)
		if n := t.fake.called("PUT"); n > 0 {
			t.Errorf("the tree was mended, and it was right")
		}
	})
}

// triggerWriter does something when so many bytes have been written.
type triggerWriter struct {
	got bytes.Buffer
	at  int
	do  func()
}

func (w *triggerWriter) Write(p []byte) (int, error) {
	if w.do != nil && w.got.Len() >= w.at {
		w.do()
		w.do = nil
	}
	return w.got.Write(p)
}

// A delete that fails half way leaves the object as it was, and can be done
// again.
func TestADeleteThatFails(t *testing.T) {
	for _, match := range []string{"PUT /bucket/tmp/", "DELETE /bucket/pinned/", "DELETE /bucket/data/", "HEAD /bucket/pinned/"} {
		t.Run(match, func(t *testing.T) {
			bubble(t, func(t *subject) {
				data := sampleBody(1 << 20)
				a := t.put(data, store.Pinned)
				h := t.handle(t.Context(), a)
				t.fake.interceptTimes(1, match, status(403, "AccessDenied"))
				t.wantRefused(t.store.Delete(t.Context(), a), fault.NotReady, "store.access_key")
				t.wantHeld(data)
				t.wantRange(h, data, 0, 1<<20)
				if err := t.store.Delete(t.Context(), a); err != nil {
					t.Errorf("the second time: %v", err)
				}
				t.wantRange(h, data, 0, 1<<20)
				_ = h.Close()
				t.wantNothingLeft()
			})
		})
	}
}

// An object that is deleted while it is being opened is not found.
func TestDeletedWhileOpening(t *testing.T) {
	bubble(t, func(t *subject) {
		for _, size := range []int{100, 1 << 20} {
			a := t.put(sampleBody(size), store.Pinned)
			t.fake.interceptTimes(1, "GET /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
				t.fake.setIntercept(nil)
				answer := t.fake.recorded(r)
				if err := t.store.Delete(t.Context(), a); err != nil {
					t.Errorf("delete: %v", err)
				}
				answer.send(w)
			})
			_, err := t.store.Open(t.Context(), a)
			t.wantRefused(err, fault.NotFound, "")
			t.wantNothingLeft()
		}
	})
}

func TestAClosedHandleGivesNothing(t *testing.T) {
	bubble(t, func(t *subject) {
		h := t.handle(t.Context(), t.put(sampleBody(1<<20), store.Pinned))
		_ = h.Close()
		if _, err := h.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("ReadAt: %v", err)
		}
		if _, err := h.WriteTo(io.Discard); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("WriteTo: %v", err)
		}
	})
}

// Foreign keys in the folders are skipped, and pinned/ keys without an object
// mean nothing.
func TestForeignKeys(t *testing.T) {
	bubble(t, func(t *subject) {
		want := []store.Info{}
		for i := range 30 {
			data := sampleBody(100 + i)
			class := store.Class(i % 2)
			want = append(want, store.Info{Address: t.put(data, class), Size: int64(len(data)), Class: class})
			t.fake.putDirectly(key(folderPinned, b3.Of([]byte{byte(i)})), nil, 0)
		}
		for _, foreign := range []string{"", "0", "zzz", "00/x", "README"} {
			t.fake.putDirectly(folderData+foreign, []byte("x"), 0)
			t.fake.putDirectly(folderPinned+foreign, []byte("x"), 0)
		}
		slices.SortFunc(want, func(x, y store.Info) int { return bytes.Compare(x.Address[:], y.Address[:]) })
		for _, limit := range []int{1, 3, 100} {
			var got []store.Info
			for after := (b3.Address{}); ; {
				page, err := t.store.List(t.Context(), after, limit)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
				after = page[len(page)-1].Address
			}
			if !slices.Equal(got, want) {
				t.Errorf("in pages of %d: %d objects, want %d, or in another order", limit, len(got), len(want))
			}
		}
		t.fake.interceptTimes(1, "pinned", status(403, "AccessDenied"))
		_, err := t.store.List(t.Context(), b3.Address{}, 10)
		t.wantRefused(err, fault.NotReady, "")
	})
}

// Blocks of a tree that were not used recently are fetched again.
func TestATreeKeepsSomeBlocks(t *testing.T) {
	bubble(t, func(t *subject) {
		whole := sampleBody((maxTreeBlocks + 2) * treeBlockSize)
		t.fake.putDirectly("tree", whole, 0)
		tr := &treeCache{bucket: t.store.bucket, key: "tree"}
		r := &treeReader{tree: tr, ctx: t.Context(), op: "test", size: int64(len(whole))}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for off := int64(treeBlockSize - 100); off < int64(len(whole))-200; off += treeBlockSize {
					p := make([]byte, 200)
					if n, err := r.ReadAt(p, off); n != 200 || err != nil || !bytes.Equal(p, whole[off:off+200]) {
						t.Errorf("at %d: %d, %v", off, n, err)
					}
				}
			})
		}
		all.Wait()
		if n := len(tr.blocks); n != maxTreeBlocks {
			t.Errorf("%d blocks are kept, want %d", n, maxTreeBlocks)
		}
		t.fake.called("")
		if _, err := r.ReadAt(make([]byte, 1), int64(len(whole))-1); err != nil || t.fake.called("") != 0 {
			t.Errorf("the last block: %v", err)
		}
		if _, err := r.ReadAt(make([]byte, 1), 0); err != nil || t.fake.called("") != 1 {
			t.Errorf("the first block: %v", err)
		}
		if n, err := r.ReadAt(make([]byte, 10), int64(len(whole))-5); n != 5 || err != io.EOF {
			t.Errorf("beyond the end: %d, %v", n, err)
		}
	})
}

// Whatever range is read over whatever connection, the bytes are right, and
// either all arrived or there is an error.
func TestRangesOverBadConnections(t *testing.T) {
	data := sampleBody(300_001)
	rapid.Check(t, func(r *rapid.T) {
		off := rapid.Int64Range(0, int64(len(data))).Draw(r, "off")
		n := rapid.Int64Range(0, int64(len(data))-off).Draw(r, "n")
		fails := rapid.SliceOfN(rapid.SampledFrom([]string{"fine", "cut", "busy", "half", "silent", "garbled"}), 0, 6).Draw(r, "fails")
		problem := ""
		bubble(t, func(t *subject) {
			a := t.put(data, store.Pinned)
			t.fake.unreliable(fails)
			h, err := t.store.Open(t.Context(), a)
			if err != nil {
				return
			}
			defer h.Close()
			var got bytes.Buffer
			written, err := h.WriteRange(&got, off, n)
			if written != int64(got.Len()) || !bytes.Equal(got.Bytes(), data[off:off+written]) {
				problem = fmt.Sprintf("%d bytes, and some are wrong", written)
			}
			if (err == nil) != (written == n) {
				problem = fmt.Sprintf("%d bytes of %d and %v", written, n, err)
			}
			if t.store.Counts().IntegrityFails > 0 {
				problem = "a good object was condemned because of a bad line"
			}
		})
		if problem != "" {
			r.Fatal(problem)
		}
	})
}

// unreliable answers GETs in these ways, one after another. It garbles no more
// than one answer: two in a row are not a bad connection but a corrupt object.
func (f *fake) unreliable(ways []string) {
	var mu sync.Mutex
	bad := map[string]http.HandlerFunc{
		"cut": cutConnection, "busy": status(503, "SlowDown"), "half": f.answerHalf(cutConnection), "silent": f.answerHalf(hangForever), "garbled": f.answerGarbled,
	}
	f.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		var do http.HandlerFunc
		if len(ways) > 0 && r.Method == http.MethodGet {
			do = bad[ways[0]]
			if ways[0] == "garbled" {
				delete(bad, "garbled")
			}
			ways = ways[1:]
		}
		mu.Unlock()
		if do != nil {
			do(w, r)
		}
		return do != nil
	})
}
