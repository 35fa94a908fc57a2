package facet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/facet/thumb"
	"micronode/internal/flow"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// gatedStore is a store that counts, and can block reads.
type gatedStore struct {
	*store.RAM
	mu      sync.Mutex
	opened  map[b3.Address]int
	hold    chan struct{} // nil, or what a read waits for
	waiting chan struct{} // sent to when a read waits
}

func (g *gatedStore) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	g.mu.Lock()
	g.opened[a]++
	g.mu.Unlock()
	handle, err := g.RAM.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &gatedHandle{handle, ctx, g}, nil
}

// gatedHandle is an object that is slow to read. A request for a thumbnail only
// opens it; a job reads it.
type gatedHandle struct {
	store.Handle
	ctx   context.Context
	store *gatedStore
}

func (h *gatedHandle) ReadAt(p []byte, at int64) (int, error) {
	h.store.mu.Lock()
	hold, within := h.store.hold, h.store.waiting
	h.store.mu.Unlock()
	if hold != nil && at == 0 {
		select {
		case within <- struct{}{}:
		default:
		}
		select {
		case <-hold:
		case <-h.ctx.Done():
			return 0, flow.Ended(h.ctx, "gallery")
		}
	}
	return h.Handle.ReadAt(p, at)
}

func (g *gatedStore) count(a b3.Address) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened[a]
}

// openWithStore makes facets with a gated store. It ends with the test.
func openWithStore(t testing.TB, settings ...option) (*harness, *gatedStore) {
	t.Helper()
	g := &gatedStore{RAM: store.NewRAM(store.RAMSpec{Budget: 64 << 20, MaxObject: 64 << 20}), opened: map[b3.Address]int{}}
	r := build(t, append([]option{enable("media"), func(s *Spec) { s.Objects = g }}, settings...)...)
	r.run()
	return r, g
}

func (g *gatedStore) put(t testing.TB, raw []byte) b3.Address {
	t.Helper()
	info, _, err := g.Put(context.Background(), bytes.NewReader(raw), store.PutOptions{Size: int64(len(raw))})
	testkit.Must(t, err)
	return info.Address
}

func thumbPath(a b3.Address, box string) string { return "/media/" + a.String() + "?thumb=" + box }

// photo is a picture of w by h. Different seeds give different files.
func photo(t testing.TB, w, h, seed int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range m.Pix {
		m.Pix[i] = byte(i*seed>>2) | 255*byte(i&3/3)
	}
	var out bytes.Buffer
	testkit.Must(t, jpeg.Encode(&out, m, nil))
	return out.Bytes()
}

func TestMedia(t *testing.T) {
	r, g := openWithStore(t)
	defer r.end()
	page := g.put(t, []byte("<html><script>alert(1)</script>"))
	text := g.put(t, []byte("just words"))
	picture := g.put(t, photo(t, 40, 30, 7))
	empty := g.put(t, nil)
	for address, want := range map[b3.Address]string{
		page: "text/html; charset=utf-8", text: "text/plain; charset=utf-8", picture: "image/jpeg", empty: "text/plain; charset=utf-8",
	} {
		got := r.request(http.MethodGet, "/media/"+address.String(), "")
		header := got.Header()
		if got.Code != http.StatusOK || header.Get("Content-Type") != want || header.Get("Etag") != `"`+address.String()+`"` ||
			header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(header.Get("Content-Security-Policy"), "sandbox") ||
			header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
			t.Errorf("%s: %d, %v", want, got.Code, header)
		}
		if b3.Of(got.Body.Bytes()) != address {
			t.Errorf("%s: the bytes are others", want)
		}
		head := r.request(http.MethodHead, "/media/"+address.String(), "")
		if head.Code != http.StatusOK || head.Body.Len() != 0 || head.Header().Get("Content-Type") != want || head.Header().Get("Content-Length") != fmt.Sprint(got.Body.Len()) {
			t.Errorf("%s: HEAD is %d, %v", want, head.Code, head.Header())
		}
	}
	part := r.request(http.MethodGet, "/media/"+text.String(), "", "Range", "bytes=5-9")
	if part.Code != http.StatusPartialContent || part.Body.String() != "words" || part.Header().Get("Content-Range") != "bytes 5-9/10" || !strings.HasPrefix(part.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("a range: %d, %q, %v", part.Code, part.Body, part.Header())
	}
	expectRefusal(t, r.request(http.MethodGet, "/media/"+text.String(), "", "Range", "bytes=10-"), fault.InvalidRange)
	if known := r.request(http.MethodGet, "/media/"+text.String(), "", "If-None-Match", `"`+text.String()+`"`); known.Code != http.StatusNotModified {
		t.Errorf("who has it gets %d", known.Code)
	}
	expectRefusal(t, r.request(http.MethodGet, "/media/"+b3.Of([]byte("other")).String(), ""), fault.NotFound)
	expectRefusal(t, r.request(http.MethodGet, "/media/b3:short", ""), fault.Malformed)
}

func TestThumbs(t *testing.T) {
	r, g := openWithStore(t)
	defer r.end()
	picture := g.put(t, photo(t, 400, 200, 3))
	got := r.request(http.MethodGet, thumbPath(picture, "100x100"), "")
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "image/jpeg" || got.Header().Get("Etag") != `"`+picture.String()+`;100x100"` ||
		!strings.Contains(got.Header().Get("Content-Security-Policy"), "sandbox") || !strings.Contains(got.Header().Get("Cache-Control"), "immutable") {
		t.Fatalf("%d, %v", got.Code, got.Header())
	}
	small, err := jpeg.Decode(bytes.NewReader(got.Body.Bytes()))
	testkit.Must(t, err)
	if small.Bounds() != image.Rect(0, 0, 100, 50) {
		t.Errorf("it is %v", small.Bounds())
	}
	again := r.request(http.MethodGet, thumbPath(picture, "100x100"), "", "Range", "bytes=0-1")
	if again.Code != http.StatusPartialContent || again.Body.String() != "\xff\xd8" {
		t.Errorf("a range of it is %d, %x", again.Code, again.Body)
	}
	if made, hits := r.metric("media", "media_thumbs_total", "result=made"), r.metric("media", "media_thumbs_total", "result=hit"); made != 1 || hits != 1 {
		t.Errorf("%v were made, %v kept", made, hits)
	}
	if known := r.request(http.MethodGet, thumbPath(picture, "100x100"), "", "If-None-Match", got.Header().Get("Etag")); known.Code != http.StatusNotModified {
		t.Errorf("who has it gets %d", known.Code)
	}
	testkit.Must(t, g.Delete(context.Background(), picture))
	expectRefusal(t, r.request(http.MethodGet, thumbPath(picture, "100x100"), ""), fault.NotFound) // cached or not
}

func TestGlassStaysGlass(t *testing.T) {
	r, g := openWithStore(t)
	defer r.end()
	glass := image.NewNRGBA(image.Rect(0, 0, 20, 20))
	glass.Set(3, 3, color.NRGBA{255, 0, 0, 100})
	var out bytes.Buffer
	testkit.Must(t, png.Encode(&out, glass))
	if got := r.request(http.MethodGet, thumbPath(g.put(t, out.Bytes()), "5x5"), ""); got.Header().Get("Content-Type") != "image/png" {
		t.Errorf("it is %d, a %s", got.Code, got.Header().Get("Content-Type"))
	}
}

func TestThumbsOfWhatIsNone(t *testing.T) {
	r, g := openWithStore(t, func(s *Spec) { s.Config.Media.MaxBytes, s.Config.Media.MaxPixels = 100*config.KiB, 10_000 })
	defer r.end()
	picture := g.put(t, photo(t, 40, 30, 7))
	text := g.put(t, []byte("just words"))
	wide := g.put(t, photo(t, 101, 100, 7))
	long := g.put(t, make([]byte, 101<<10))
	for _, c := range []struct {
		path string
		kind fault.Kind
		next string
	}{
		{thumbPath(picture, "0x1"), fault.Malformed, "WxH"},
		{thumbPath(picture, "1025x1"), fault.Malformed, "WxH"},
		{thumbPath(picture, ""), fault.Malformed, "WxH"},
		{thumbPath(text, "10x10"), fault.Malformed, "without ?thumb="},
		{thumbPath(wide, "10x10"), fault.RatioCap, "without ?thumb="},
		{thumbPath(long, "10x10"), fault.BodyTooLarge, "without ?thumb="},
		{thumbPath(b3.Of([]byte("other")), "10x10"), fault.NotFound, ""},
	} {
		if next := expectRefusal(t, r.request(http.MethodGet, c.path, ""), c.kind); !strings.Contains(next, c.next) {
			t.Errorf("%s: the next step is %q", c.path, next)
		}
	}
	if failed := r.metric("media", "media_thumbs_total", "result=failed"); failed != 3 {
		t.Errorf("%v failed, want 3", failed)
	}
}

// requestAsync sends requests whose answers the test reads later.
func (h *harness) requestAsync(n int, path string, header ...string) chan *httptest.ResponseRecorder {
	answers := make(chan *httptest.ResponseRecorder, n)
	for range n {
		go func() { answers <- h.request(http.MethodGet, path, "", header...) }()
	}
	return answers
}

// TestOneJobForMany sends many requests for the same thumbnail at once.
func TestOneJobForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := openWithStore(t, func(s *Spec) { s.Config.Media.CacheBytes = 0 })
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.waiting = make(chan struct{}), make(chan struct{}, 10)
		const many = 20
		answers := r.requestAsync(many, thumbPath(picture, "50x50"))
		<-g.waiting
		synctest.Wait()
		close(g.hold)
		for range many {
			if got := <-answers; got.Code != http.StatusOK {
				t.Errorf("one got %d: %s", got.Code, got.Body)
			}
		}
		if made := r.metric("media", "media_thumbs_total", "result=made"); made != 1 || g.count(picture) != many+1 {
			t.Errorf("%v were made; the object was opened %d times", made, g.count(picture))
		}
		r.end()
	})
}

// TestOneWhoLeavesTakesNothingFromOthers: the last one that leaves cancels the
// job.
func TestOneWhoLeavesTakesNothingFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := openWithStore(t)
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.waiting = make(chan struct{}), make(chan struct{}, 10)
		early := r.requestAsync(1, thumbPath(picture, "50x50"), "Request-Timeout", "0.5")
		<-g.waiting
		late := r.requestAsync(1, thumbPath(picture, "50x50"))
		expectRefusal(t, <-early, fault.Timeout)
		close(g.hold)
		if got := <-late; got.Code != http.StatusOK {
			t.Errorf("the other one got %d: %s", got.Code, got.Body)
		}

		g.mu.Lock()
		g.hold = make(chan struct{})
		g.mu.Unlock()
		alone := r.requestAsync(1, thumbPath(picture, "60x60"), "Request-Timeout", "0.5")
		<-g.waiting
		expectRefusal(t, <-alone, fault.Timeout)
		synctest.Wait()
		for _, stat := range r.inventory.Read() {
			if stat.Kind == "permits" && stat.Inside != 0 {
				t.Errorf("%d jobs go on for nobody", stat.Inside)
			}
		}
		if r.media.thumbs.flights.Len() != 0 {
			t.Errorf("%d jobs are remembered", r.media.thumbs.flights.Len())
		}
		r.end()
	})
}

// TestMediaIsSaturated has as many jobs under way as may be. One that has not
// started at its deadline gets Backpressure.
func TestMediaIsSaturated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := openWithStore(t, func(s *Spec) { s.Config.Media.Jobs = config.Auto[int]{Value: 1} })
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.waiting = make(chan struct{}), make(chan struct{}, 10)
		first := r.requestAsync(1, thumbPath(picture, "50x50"))
		<-g.waiting
		expectRefusal(t, r.request(http.MethodGet, thumbPath(picture, "51x51"), "", "Request-Timeout", "0.5"), fault.Backpressure)
		close(g.hold)
		if got := <-first; got.Code != http.StatusOK {
			t.Errorf("the first one got %d", got.Code)
		}
		r.end()
	})
}

func TestMoreJobsThanMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := openWithStore(t, func(s *Spec) { s.Config.Media.Jobs = config.Auto[int]{Value: 1} })
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.waiting = make(chan struct{}), make(chan struct{}, 10)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ended := make(chan error, 2*maxWaiting)
		for i := range maxWaiting {
			go func() {
				_, err := r.media.thumbs.get(ctx, thumbKey{picture, thumb.BoundingBox{Width: 1 + i, Height: 1}})
				ended <- err
			}()
		}
		synctest.Wait()
		_, err := r.media.thumbs.get(ctx, thumbKey{picture, thumb.BoundingBox{Width: 1000, Height: 1000}})
		if fault.KindOf(err) != fault.Backpressure {
			t.Errorf("one too many: %v", err)
		}
		for range maxWaiting {
			if err := <-ended; err == nil {
				t.Error("one was made")
			}
		}
		r.end()
	})
}

// TestADrainEndsJobs stops the node while a thumbnail is being made.
func TestADrainEndsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := openWithStore(t)
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.waiting = make(chan struct{}), make(chan struct{}, 10)
		answers := r.requestAsync(1, thumbPath(picture, "50x50"))
		<-g.waiting
		r.drain()
		expectRefusal(t, <-answers, fault.Canceled)
		expectRefusal(t, r.request(http.MethodGet, thumbPath(picture, "51x51"), ""), fault.Canceled)
		r.end()
	})
}

// TestAJobThatDies has a store that panics: all waiters get an error.
func TestAJobThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := openWithStore(t)
		picture := g.put(t, photo(t, 400, 200, 3))
		r.Facets.spec.Objects = panickingStore{g}
		expectRefusal(t, r.request(http.MethodGet, thumbPath(picture, "50x50"), ""), fault.Internal)
		r.expectFailures = true
		r.end()
	})
}

// panickingStore is a store that panics when something is read.
type panickingStore struct{ *gatedStore }

func (p panickingStore) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	handle, err := p.gatedStore.Open(ctx, a)
	return panickingHandle{handle}, err
}

type panickingHandle struct{ store.Handle }

func (panickingHandle) ReadAt([]byte, int64) (int, error) { panic("the store died") }

// TestADamagedObject: damage is found when the object is read.
func TestADamagedObject(t *testing.T) {
	r, g := openWithStore(t)
	defer r.end()
	words := g.put(t, []byte("just words"))
	r.Facets.spec.Objects = damagedStore{g}
	expectRefusal(t, r.request(http.MethodGet, "/media/"+words.String(), ""), fault.IntegrityFail)
}

// damagedStore is a store whose objects cannot be read.
type damagedStore struct{ *gatedStore }

func (d damagedStore) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	handle, err := d.gatedStore.Open(ctx, a)
	return damagedHandle{handle}, err
}

type damagedHandle struct{ store.Handle }

func (damagedHandle) ReadAt([]byte, int64) (int, error) {
	return 0, fault.New("store.read", fault.IntegrityFail, "it is damaged")
}

func TestMediaConfig(t *testing.T) {
	for key, change := range map[string]func(*MediaConfig){
		"max_bytes":   func(c *MediaConfig) { c.MaxBytes = 2 * config.GiB },
		"max_pixels":  func(c *MediaConfig) { c.MaxPixels = 0 },
		"job_bytes":   func(c *MediaConfig) { c.JobBytes = config.KiB },
		"cache_bytes": func(c *MediaConfig) { c.CacheBytes = 17 * config.GiB },
	} {
		c := DefaultConfig().Media
		change(&c)
		if problem, is := errors.AsType[*config.Problem](c.Validate()); !is || problem.Key != key || problem.Next == "" {
			t.Errorf("%s: %v", key, problem)
		}
	}
}
