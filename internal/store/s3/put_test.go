package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

// wantNothingLeft checks that nothing is left of a put that failed.
func (s *subject) wantNothingLeft() {
	s.Helper()
	for _, folder := range []string{folderData, folderTree, folderPinned, folderTemporary} {
		if left := s.fake.under(folder); len(left) > 0 {
			s.Errorf("left behind: %v", left)
		}
	}
	if n := s.fake.unfinished(); n > 0 {
		s.Errorf("%d uploads were not given up", n)
	}
	if u := s.store.Usage(); u != (store.Usage{}) {
		s.Errorf("the books say %+v", u)
	}
}

// A put of an existing object costs a request, and not the bytes again.
func TestASecondPutSendsNothing(t *testing.T) {
	bubble(t, func(t *subject) {
		for _, size := range []int{100, 200_000, partSize + 1} {
			data := sampleBody(size)
			t.put(data, store.Pinned)
			t.fake.called("")
			_, created, err := t.store.Put(t.Context(), iotest.ErrReader(errors.New("read")), store.PutOptions{Want: b3.Of(data), Size: int64(size), Class: store.Cached})
			if err != nil || created {
				t.Errorf("second put of %d bytes: created %t, %v", size, created, err)
			}
			if n := t.fake.called("PUT"); n != 0 {
				t.Errorf("second put of %d bytes: %d puts were sent", size, n)
			}
		}
	})
}

// A body of exactly one part is sent at once, and one more byte makes two.
func TestParts(t *testing.T) {
	bubble(t, func(t *subject) {
		for size, uploads := range map[int]int{partSize: 0, partSize + 1: 2} {
			t.fake.called("")
			data := sampleBody(size)
			info, created, err := t.store.Put(t.Context(), bytes.NewReader(data), store.PutOptions{Size: store.Unknown})
			if err != nil || !created || info.Address != b3.Of(data) {
				t.Fatalf("%d bytes: %+v, created %t, %v", size, info, created, err)
			}
			if n := t.fake.called("POST tmp/"); n != uploads {
				t.Errorf("%d bytes: %d calls to begin and complete an upload, want %d", size, n, uploads)
			}
			t.wantHeld(data)
		}
		if left := t.fake.under(folderTemporary); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// Whatever call of a put fails, permanently or because the connection breaks,
// nothing is visible and nothing is left.
func TestAPutThatFailsLeavesNothing(t *testing.T) {
	middle, large := sampleBody(200_000), sampleBody(partSize+100_000)
	for name, c := range map[string]struct {
		data  []byte
		match string
		want  bool
	}{
		"look":            {middle, "HEAD /bucket/data/", false},
		"tree":            {middle, "PUT /bucket/tree/", false},
		"object":          {middle, "PUT /bucket/data/", false},
		"begin":           {large, "POST /bucket/tmp/", false},
		"part":            {large, "partNumber=2", false},
		"complete":        {large, "POST /bucket/tmp/", false},
		"large tree":      {large, "PUT /bucket/tree/", false},
		"copy, begin":     {large, "POST /bucket/data/", false},
		"copy":            {large, "PUT /bucket/data/", false},
		"wanted, begin":   {large, "POST /bucket/data/", true},
		"wanted part":     {large, "partNumber=2", true},
		"wanted tree":     {large, "PUT /bucket/tree/", true},
		"wanted complete": {large, "POST /bucket/data/", true},
	} {
		for how, fails := range map[string]http.HandlerFunc{"full": status(507, "QuotaExceeded"), "cut": cutConnection} {
			t.Run(name+", "+how, func(t *testing.T) {
				bubble(t, func(t *subject) {
					skip := 0
					if name == "complete" || name == "wanted complete" {
						skip = 1 // the first such call begins the upload
					}
					seen := 0
					t.fake.interceptTimes(1000, c.match, func(w http.ResponseWriter, r *http.Request) {
						if seen++; seen <= skip {
							t.fake.answer(w, r, r.URL.Path[len("/bucket/"):])
							return
						}
						fails(w, r)
					})
					opt := store.PutOptions{Size: store.Unknown}
					if c.want {
						opt.Want = b3.Of(c.data)
					}
					_, created, err := t.store.Put(t.Context(), bytes.NewReader(c.data), opt)
					want := map[string]fault.Kind{"full": fault.StoreFull, "cut": fault.UpstreamFailed}[how]
					if created {
						t.Errorf("it says that it created something")
					}
					t.wantRefused(err, want, "")
					if n := t.store.Counts().Refusals; (n == 1) != (how == "full") {
						t.Errorf("%d puts are counted as refused for want of room", n)
					}
					t.fake.setIntercept(nil)
					if _, err := t.store.Stat(t.Context(), b3.Of(c.data)); fault.KindOf(err) != fault.NotFound {
						t.Errorf("it can be seen: %v", err)
					}
					t.wantNothingLeft()
				})
			})
		}
	}
}

// A body that is not what was wanted is aborted, also in parts.
func TestWrongBytes(t *testing.T) {
	bubble(t, func(t *subject) {
		for _, size := range []int{10, 200_000, partSize + 1} {
			_, _, err := t.store.Put(t.Context(), bytes.NewReader(sampleBody(size)), store.PutOptions{Size: store.Unknown, Want: b3.Of([]byte("else"))})
			t.wantRefused(err, fault.IntegrityFail, "")
		}
		if n := t.store.Counts().Mismatches; n != 3 {
			t.Errorf("%d mismatches are counted, want 3", n)
		}
		t.wantNothingLeft()
	})
}

// A body that is too large is rejected as soon as that is known.
func TestTooLarge(t *testing.T) {
	bubble(t, func(t *subject) {
		spec := t.listener.spec()
		spec.MaxObject = partSize + 10
		s := t.open(spec)
		read := 0
		_, _, err := s.Put(t.Context(), iotest.ErrReader(errors.New("read")), store.PutOptions{Size: partSize + 11})
		t.wantRefused(err, fault.BodyTooLarge, "store.max_object_bytes")
		endless := readerFunc(func(p []byte) (int, error) { read += len(p); return len(p), nil })
		_, _, err = s.Put(t.Context(), endless, store.PutOptions{Size: store.Unknown})
		t.wantRefused(err, fault.BodyTooLarge, "store.max_object_bytes")
		if read > 2*partSize+2 {
			t.Errorf("%d bytes were read of a body that may have %d", read, spec.MaxObject)
		}
		t.wantNothingLeft()
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// More bodies than the memory limit allows wait for each other, and no more of
// them wait than can be served.
func TestPutsAreBounded(t *testing.T) {
	bubble(t, func(t *subject) {
		spec := t.listener.spec()
		spec.Puts = 1
		s := t.open(spec)
		stop := make(chan struct{})
		stalled := readerFunc(func([]byte) (int, error) { <-stop; return 0, io.EOF })
		outcomes := make(chan error)
		try := func(ctx context.Context, src io.Reader) {
			_, _, err := s.Put(ctx, src, store.PutOptions{Size: store.Unknown})
			outcomes <- err
		}
		go try(t.Context(), stalled)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 5 {
			go try(ctx, bytes.NewReader(sampleBody(10)))
		}
		begin := time.Now()
		t.wantRefused(<-outcomes, fault.Backpressure, "")
		if time.Since(begin) > 0 {
			t.Errorf("the sixth was not turned away at once")
		}
		for range 4 {
			t.wantRefused(<-outcomes, fault.Backpressure, "")
		}
		close(stop)
		if err := <-outcomes; err != nil {
			t.Errorf("the one who was in: %v", err)
		}
	})
}

// A pin that fails is reported, and the object stays: another put may have been
// acknowledged.
func TestAPinThatFails(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.interceptTimes(1, "PUT /bucket/pinned/", status(400, "InvalidRequest"))
		_, _, err := t.store.Put(t.Context(), bytes.NewReader(sampleBody(10)), store.PutOptions{Size: 10})
		t.wantRefused(err, fault.UpstreamFailed, "")
		info, created, err := t.store.Put(t.Context(), bytes.NewReader(sampleBody(10)), store.PutOptions{Size: 10})
		if err != nil || created || info.Class != store.Pinned {
			t.Errorf("put again: %+v, created %t, %v", info, created, err)
		}
		if u := t.store.Usage(); u.Objects != 1 || u.Pinned != 10 {
			t.Errorf("the books say %+v", u)
		}
	})
}

// A put reserves some of its time to clean up, and keeps its deadline.
func TestCleanUpWithinTheDeadline(t *testing.T) {
	bubble(t, func(t *subject) {
		t.fake.interceptTimes(1, "partNumber=2", hangForever)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		_, _, err := t.store.Put(ctx, bytes.NewReader(sampleBody(partSize+1)), store.PutOptions{Size: store.Unknown})
		t.wantRefused(err, fault.Timeout, "store.url")
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		t.wantNothingLeft()
	})
}

// Another node may put the same object between our check and our put. Then it
// is not ours, and nothing of ours is left.
func TestAnotherNodeIsFaster(t *testing.T) {
	for name, c := range map[string]struct {
		size  int
		match string
		want  bool
	}{
		"in one piece": {200_000, "PUT /bucket/data/", false},
		"in parts":     {partSize + 1, "POST /bucket/data/", false},
		"wanted":       {partSize + 1, "PUT /bucket/tree/", true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *subject) {
				data := sampleBody(c.size)
				t.fake.interceptTimes(1, c.match, func(w http.ResponseWriter, r *http.Request) {
					t.fake.putDirectly(key(folderData, b3.Of(data)), data, 0)
					t.fake.recorded(r).send(w)
				})
				opt := store.PutOptions{Size: store.Unknown, Class: store.Cached}
				if c.want {
					opt.Want = b3.Of(data)
				}
				info, created, err := t.store.Put(t.Context(), bytes.NewReader(data), opt)
				if err != nil || created || info.Address != b3.Of(data) {
					t.Errorf("%+v, created %t, %v", info, created, err)
				}
				if u := t.store.Usage(); u.Objects != 0 {
					t.Errorf("it counts as ours: %+v", u)
				}
				if n := len(t.fake.under(folderTemporary)) + t.fake.unfinished(); n > 0 {
					t.Errorf("%d temporaries are left", n)
				}
				t.wantHeld(data)
			})
		})
	}
}
