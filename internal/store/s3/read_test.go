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

// handle opens an object that must be there.
func (t *subject) handle(ctx context.Context, a b3.Address) store.Handle {
	t.Helper()
	h, err := t.store.Open(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// reads checks a range.
func (t *subject) reads(h store.Handle, data []byte, off, n int64) {
	t.Helper()
	var got bytes.Buffer
	if written, err := h.WriteRange(&got, off, n); err != nil || written != n || !bytes.Equal(got.Bytes(), data[off:off+n]) {
		t.Errorf("range %d+%d: %d bytes, %v", off, n, written, err)
	}
}

// A small object is one call, and then in memory. Of a large one the beginning
// is there, and a long range is one call.
func TestWhatReadingCosts(t *testing.T) {
	bubble(t, func(t *subject) {
		little, large := sample(small), sample(1<<20)
		t.put(little, store.Pinned)
		t.put(large, store.Pinned)
		t.fake.called("")

		h := t.handle(t.Context(), b3.Of(little))
		t.reads(h, little, 10, 1000)
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
		t.reads(h, large, 100, 60_000)
		if n := t.fake.called(""); n != 0 {
			t.Errorf("its beginning took %d more calls", n)
		}
		t.reads(h, large, 0, 1<<20)
		t.reads(h, large, 700_000, 1)
		if n := t.fake.called("GET data/"); n != 2 {
			t.Errorf("two ranges took %d calls", n)
		}
	})
}

// A line that breaks in the middle, or falls silent, is taken up where it
// stopped.
func TestReadingGoesOn(t *testing.T) {
	for name, stop := range map[string]func(http.ResponseWriter, *http.Request){"cut": cut, "silent": hang} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				data := sample(1 << 20)
				h := t.handle(t.Context(), t.put(data, store.Pinned))
				t.fake.times(8, "GET /bucket/data/", t.fake.half(stop)) // each brings half of what is left
				t.reads(h, data, 0, 1<<20)
				t.holds(data)
				t.fake.times(1, "GET /bucket/tree/", t.fake.half(stop))
				t.holds(data)
				little := sample(1000)
				t.put(little, store.Pinned)
				t.fake.times(2, "GET /bucket/data/", t.fake.half(stop))
				t.holds(little)
				if n := t.store.Counts().IntegrityFails; n != 0 {
					t.Errorf("%d objects are counted as corrupt because of a bad line", n)
				}
			})
		})
	}
}

// If nothing comes at all, somebody is told in time, and nothing wrong was given
// out.
func TestReadingEnds(t *testing.T) {
	for name, c := range map[string]struct {
		fails http.HandlerFunc
		kind  fault.Kind
	}{
		"cut": {cut, fault.UpstreamFailed}, "hangs": {hang, fault.Timeout}, "busy": {status(503, "SlowDown"), fault.StorageBusy},
		"denied": {status(403, "AccessDenied"), fault.NotReady},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				data := sample(1 << 20)
				a := t.put(data, store.Pinned)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				h := t.handle(ctx, a)
				t.fake.times(1000, "GET /bucket/data/", c.fails)
				var got bytes.Buffer
				begin := time.Now()
				n, err := h.WriteTo(&got)
				t.refused(err, c.kind, "")
				if !bytes.Equal(got.Bytes(), data[:n]) || time.Since(begin) > 5*time.Second {
					t.Errorf("%d bytes after %v", n, time.Since(begin))
				}
				t.fake.meddleWith(nil)
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
		data := sample(1 << 20)
		a := t.put(data, store.Pinned)
		h := t.handle(t.Context(), a)
		t.fake.plant(key(folderData, a), data, 0)
		t.fake.mu.Lock()
		t.fake.keys[key(folderData, a)].etag = "another"
		t.fake.mu.Unlock()
		t.reads(h, data, 0, 1<<20)
	})
}

// What another node deletes is gone; what this node deletes can be read to the
// end by who has it open, wherever that is in the middle of.
func TestDeletedWhileOpen(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sample(1 << 20)
		a := t.put(data, store.Pinned)
		h := t.handle(t.Context(), a)
		w := &tripwire{at: 500_000, do: func() {
			if err := t.store.Delete(t.Context(), a); err != nil {
				t.Errorf("delete: %v", err)
			}
		}}
		t.fake.times(1, "GET /bucket/data/", t.fake.half(cut)) // so that the rest is asked for after the delete
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
		t.clean()

		a = t.put(data, store.Pinned)
		h = t.handle(t.Context(), a)
		t.fake.drop(key(folderData, a)) // another node deletes it
		_, err := h.WriteRange(io.Discard, 900_000, 10)
		t.refused(err, fault.NotFound, "")
	})
}

// A request that arrives just after the object was moved aside goes on with the
// copy.
func TestMovedWhileReading(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sample(1 << 20)
		a := t.put(data, store.Pinned)
		h := t.handle(t.Context(), a)
		t.fake.times(1, "GET /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
			t.fake.meddleWith(nil)
			if err := t.store.Delete(t.Context(), a); err != nil {
				t.Errorf("delete: %v", err)
			}
			t.fake.recorded(r).send(w)
		})
		t.reads(h, data, 200_000, 500_000)
		_ = h.Close()
		t.clean()
	})
}

// A handle can be closed after its time, and still what was kept for it goes.
func TestClosedTooLate(t *testing.T) {
	bubble(t, func(t *subject) {
		a := t.put(sample(1<<20), store.Pinned)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h := t.handle(ctx, a)
		if err := t.store.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		_ = h.Close()
		t.clean()
	})
}

// A store that is closed, and of which nothing is open, holds no connection.
func TestNoConnectionIsLeft(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sample(1 << 20)
		h := t.handle(t.Context(), t.put(data, store.Pinned))
		_ = t.store.Close()
		t.reads(h, data, 0, 1<<20)
		_ = h.Close()
		synctest.Wait()
		t.fake.mu.Lock()
		defer t.fake.mu.Unlock()
		if t.fake.lines != 0 {
			t.Errorf("%d connections are open", t.fake.lines)
		}
	})
}

// Answers without a length can end too early without anybody noticing but us.
// Neither the object nor its tree is to blame.
func TestAnswersWithoutALength(t *testing.T) {
	bubble(t, func(t *subject) {
		data := sample(1 << 20)
		h := t.handle(t.Context(), t.put(data, store.Pinned))
		t.fake.called("")
		t.fake.times(2, "GET /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
			answer := t.fake.recorded(r)
			answer.header.Del("Content-Length")
			answer.body.Reset()
			answer.send(w)
			_ = http.NewResponseController(w).Flush()
		})
		t.reads(h, data, 0, 1<<20)
		if n := t.fake.called("PUT"); n > 0 {
			t.Errorf("the tree was mended, and it was right")
		}
	})
}

// tripwire does something when so many bytes have been written.
type tripwire struct {
	got bytes.Buffer
	at  int
	do  func()
}

func (w *tripwire) Write(p []byte) (int, error) {
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
				data := sample(1 << 20)
				a := t.put(data, store.Pinned)
				h := t.handle(t.Context(), a)
				t.fake.times(1, match, status(403, "AccessDenied"))
				t.refused(t.store.Delete(t.Context(), a), fault.NotReady, "store.access_key")
				t.holds(data)
				t.reads(h, data, 0, 1<<20)
				if err := t.store.Delete(t.Context(), a); err != nil {
					t.Errorf("the second time: %v", err)
				}
				t.reads(h, data, 0, 1<<20)
				_ = h.Close()
				t.clean()
			})
		})
	}
}

// An object that goes while it is being opened is not found.
func TestDeletedWhileOpening(t *testing.T) {
	bubble(t, func(t *subject) {
		for _, size := range []int{100, 1 << 20} {
			a := t.put(sample(size), store.Pinned)
			t.fake.times(1, "GET /bucket/data/", func(w http.ResponseWriter, r *http.Request) {
				t.fake.meddleWith(nil)
				answer := t.fake.recorded(r)
				if err := t.store.Delete(t.Context(), a); err != nil {
					t.Errorf("delete: %v", err)
				}
				answer.send(w)
			})
			_, err := t.store.Open(t.Context(), a)
			t.refused(err, fault.NotFound, "")
			t.clean()
		}
	})
}

func TestAClosedHandleGivesNothing(t *testing.T) {
	bubble(t, func(t *subject) {
		h := t.handle(t.Context(), t.put(sample(1<<20), store.Pinned))
		_ = h.Close()
		if _, err := h.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("ReadAt: %v", err)
		}
		if _, err := h.WriteTo(io.Discard); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("WriteTo: %v", err)
		}
	})
}

// Foreign keys in the folders are passed over, and marks without an object mean
// nothing.
func TestForeignKeys(t *testing.T) {
	bubble(t, func(t *subject) {
		want := []store.Info{}
		for i := range 30 {
			data := sample(100 + i)
			class := store.Class(i % 2)
			want = append(want, store.Info{Address: t.put(data, class), Size: int64(len(data)), Class: class})
			t.fake.plant(key(folderPinned, b3.Of([]byte{byte(i)})), nil, 0)
		}
		for _, foreign := range []string{"", "0", "zzz", "00/x", "README"} {
			t.fake.plant(folderData+foreign, []byte("x"), 0)
			t.fake.plant(folderPinned+foreign, []byte("x"), 0)
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
		t.fake.times(1, "pinned", status(403, "AccessDenied"))
		_, err := t.store.List(t.Context(), b3.Address{}, 10)
		t.refused(err, fault.NotReady, "")
	})
}

// Blocks of a tree that were not used for long are fetched again.
func TestATreeKeepsSomeBlocks(t *testing.T) {
	bubble(t, func(t *subject) {
		whole := sample((treeBlocks + 2) * treeBlock)
		t.fake.plant("tree", whole, 0)
		tr := &tree{bucket: t.store.bucket, key: "tree"}
		r := &treeReader{tree: tr, ctx: t.Context(), op: "test", size: int64(len(whole))}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for off := int64(treeBlock - 100); off < int64(len(whole))-200; off += treeBlock {
					p := make([]byte, 200)
					if n, err := r.ReadAt(p, off); n != 200 || err != nil || !bytes.Equal(p, whole[off:off+200]) {
						t.Errorf("at %d: %d, %v", off, n, err)
					}
				}
			})
		}
		all.Wait()
		if n := len(tr.blocks); n != treeBlocks {
			t.Errorf("%d blocks are kept, want %d", n, treeBlocks)
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

// Whatever range is read over whatever line, what comes is right, and either all
// came or there is an error.
func TestRangesOverBadLines(t *testing.T) {
	data := sample(300_001)
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
// than one answer: two in a row are not a bad line but a corrupt object.
func (f *fake) unreliable(ways []string) {
	var mu sync.Mutex
	bad := map[string]http.HandlerFunc{
		"cut": cut, "busy": status(503, "SlowDown"), "half": f.half(cut), "silent": f.half(hang), "garbled": f.garbled,
	}
	f.meddleWith(func(w http.ResponseWriter, r *http.Request) bool {
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
