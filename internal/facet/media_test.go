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
)

// gallery is a store that counts, and lets those wait who read.
type gallery struct {
	*store.RAM
	mu     sync.Mutex
	opened map[b3.Address]int
	hold   chan struct{} // nil, or what a read waits for
	within chan struct{} // told when one waits
}

func (g *gallery) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	g.mu.Lock()
	g.opened[a]++
	g.mu.Unlock()
	handle, err := g.RAM.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &held{handle, ctx, g}, nil
}

// held is an object that is slow to read. Who asks for a small picture only
// opens it; a job reads it.
type held struct {
	store.Handle
	ctx     context.Context
	gallery *gallery
}

func (h *held) ReadAt(p []byte, at int64) (int, error) {
	h.gallery.mu.Lock()
	hold, within := h.gallery.hold, h.gallery.within
	h.gallery.mu.Unlock()
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

func (g *gallery) count(a b3.Address) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened[a]
}

// exhibit makes facets with a gallery. It ends with the test.
func exhibit(t testing.TB, settings ...setting) (*rig, *gallery) {
	t.Helper()
	g := &gallery{RAM: store.NewRAM(flow.NewInventory(), store.RAMSpec{Service: "store", Budget: 64 << 20, MaxObject: 64 << 20}), opened: map[b3.Address]int{}}
	r := build(t, append([]setting{on("media"), func(s *Spec) { s.Objects = g }}, settings...)...)
	r.run()
	return r, g
}

func (g *gallery) put(t testing.TB, raw []byte) b3.Address {
	t.Helper()
	info, _, err := g.Put(context.Background(), bytes.NewReader(raw), store.PutOptions{Size: int64(len(raw))})
	must(t, err)
	return info.Address
}

func show(a b3.Address, box string) string { return "/media/" + a.String() + "?thumb=" + box }

// photo is a picture of w by h. Different seeds give different files.
func photo(t testing.TB, w, h, seed int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range m.Pix {
		m.Pix[i] = byte(i*seed>>2) | 255*byte(i&3/3)
	}
	var out bytes.Buffer
	must(t, jpeg.Encode(&out, m, nil))
	return out.Bytes()
}

func TestMedia(t *testing.T) {
	r, g := exhibit(t)
	defer r.end()
	page := g.put(t, []byte("<html><script>alert(1)</script>"))
	text := g.put(t, []byte("just words"))
	picture := g.put(t, photo(t, 40, 30, 7))
	empty := g.put(t, nil)
	for address, want := range map[b3.Address]string{
		page: "text/html; charset=utf-8", text: "text/plain; charset=utf-8", picture: "image/jpeg", empty: "text/plain; charset=utf-8",
	} {
		got := r.ask(http.MethodGet, "/media/"+address.String(), "")
		header := got.Header()
		if got.Code != http.StatusOK || header.Get("Content-Type") != want || header.Get("Etag") != `"`+address.String()+`"` ||
			header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(header.Get("Content-Security-Policy"), "sandbox") ||
			header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
			t.Errorf("%s: %d, %v", want, got.Code, header)
		}
		if b3.Of(got.Body.Bytes()) != address {
			t.Errorf("%s: the bytes are others", want)
		}
		head := r.ask(http.MethodHead, "/media/"+address.String(), "")
		if head.Code != http.StatusOK || head.Body.Len() != 0 || head.Header().Get("Content-Type") != want || head.Header().Get("Content-Length") != fmt.Sprint(got.Body.Len()) {
			t.Errorf("%s: HEAD is %d, %v", want, head.Code, head.Header())
		}
	}
	part := r.ask(http.MethodGet, "/media/"+text.String(), "", "Range", "bytes=5-9")
	if part.Code != http.StatusPartialContent || part.Body.String() != "words" || part.Header().Get("Content-Range") != "bytes 5-9/10" || !strings.HasPrefix(part.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("a range: %d, %q, %v", part.Code, part.Body, part.Header())
	}
	refused(t, r.ask(http.MethodGet, "/media/"+text.String(), "", "Range", "bytes=10-"), fault.InvalidRange)
	if known := r.ask(http.MethodGet, "/media/"+text.String(), "", "If-None-Match", `"`+text.String()+`"`); known.Code != http.StatusNotModified {
		t.Errorf("who has it gets %d", known.Code)
	}
	refused(t, r.ask(http.MethodGet, "/media/"+b3.Of([]byte("other")).String(), ""), fault.NotFound)
	refused(t, r.ask(http.MethodGet, "/media/b3:short", ""), fault.Malformed)
}

func TestThumbs(t *testing.T) {
	r, g := exhibit(t)
	defer r.end()
	picture := g.put(t, photo(t, 400, 200, 3))
	got := r.ask(http.MethodGet, show(picture, "100x100"), "")
	if got.Code != http.StatusOK || got.Header().Get("Content-Type") != "image/jpeg" || got.Header().Get("Etag") != `"`+picture.String()+`;100x100"` ||
		!strings.Contains(got.Header().Get("Content-Security-Policy"), "sandbox") || !strings.Contains(got.Header().Get("Cache-Control"), "immutable") {
		t.Fatalf("%d, %v", got.Code, got.Header())
	}
	small, err := jpeg.Decode(bytes.NewReader(got.Body.Bytes()))
	must(t, err)
	if small.Bounds() != image.Rect(0, 0, 100, 50) {
		t.Errorf("it is %v", small.Bounds())
	}
	again := r.ask(http.MethodGet, show(picture, "100x100"), "", "Range", "bytes=0-1")
	if again.Code != http.StatusPartialContent || again.Body.String() != "\xff\xd8" {
		t.Errorf("a range of it is %d, %x", again.Code, again.Body)
	}
	if made, hits := r.count("media", "media_thumbs_total", "result=made"), r.count("media", "media_thumbs_total", "result=hit"); made != 1 || hits != 1 {
		t.Errorf("%v were made, %v kept", made, hits)
	}
	if known := r.ask(http.MethodGet, show(picture, "100x100"), "", "If-None-Match", got.Header().Get("Etag")); known.Code != http.StatusNotModified {
		t.Errorf("who has it gets %d", known.Code)
	}
	must(t, g.Delete(context.Background(), picture))
	refused(t, r.ask(http.MethodGet, show(picture, "100x100"), ""), fault.NotFound) // kept or not
}

func TestGlassStaysGlass(t *testing.T) {
	r, g := exhibit(t)
	defer r.end()
	glass := image.NewNRGBA(image.Rect(0, 0, 20, 20))
	glass.Set(3, 3, color.NRGBA{255, 0, 0, 100})
	var out bytes.Buffer
	must(t, png.Encode(&out, glass))
	if got := r.ask(http.MethodGet, show(g.put(t, out.Bytes()), "5x5"), ""); got.Header().Get("Content-Type") != "image/png" {
		t.Errorf("it is %d, a %s", got.Code, got.Header().Get("Content-Type"))
	}
}

func TestThumbsOfWhatIsNone(t *testing.T) {
	r, g := exhibit(t, func(s *Spec) { s.Config.Media.MaxBytes, s.Config.Media.MaxPixels = 100*config.KiB, 10_000 })
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
		{show(picture, "0x1"), fault.Malformed, "WxH"},
		{show(picture, "1025x1"), fault.Malformed, "WxH"},
		{show(picture, ""), fault.Malformed, "WxH"},
		{show(text, "10x10"), fault.Malformed, "without ?thumb="},
		{show(wide, "10x10"), fault.RatioCap, "without ?thumb="},
		{show(long, "10x10"), fault.BodyTooLarge, "without ?thumb="},
		{show(b3.Of([]byte("other")), "10x10"), fault.NotFound, ""},
	} {
		if next := refused(t, r.ask(http.MethodGet, c.path, ""), c.kind); !strings.Contains(next, c.next) {
			t.Errorf("%s: the next step is %q", c.path, next)
		}
	}
	if failed := r.count("media", "media_thumbs_total", "result=failed"); failed != 3 {
		t.Errorf("%v failed, want 3", failed)
	}
}

// asking sends requests that a test answers for later.
func (r *rig) asking(n int, path string, header ...string) chan *httptest.ResponseRecorder {
	answers := make(chan *httptest.ResponseRecorder, n)
	for range n {
		go func() { answers <- r.ask(http.MethodGet, path, "", header...) }()
	}
	return answers
}

// TestOneJobForMany has many ask for the same at once.
func TestOneJobForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := exhibit(t, func(s *Spec) { s.Config.Media.CacheBytes = 0 })
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.within = make(chan struct{}), make(chan struct{}, 10)
		const many = 20
		answers := r.asking(many, show(picture, "50x50"))
		<-g.within
		synctest.Wait()
		close(g.hold)
		for range many {
			if got := <-answers; got.Code != http.StatusOK {
				t.Errorf("one got %d: %s", got.Code, got.Body)
			}
		}
		if made := r.count("media", "media_thumbs_total", "result=made"); made != 1 || g.count(picture) != many+1 {
			t.Errorf("%v were made; the object was opened %d times", made, g.count(picture))
		}
		r.end()
	})
}

// TestOneWhoLeavesTakesNothingFromOthers, and the last one stops the job.
func TestOneWhoLeavesTakesNothingFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := exhibit(t)
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.within = make(chan struct{}), make(chan struct{}, 10)
		early := r.asking(1, show(picture, "50x50"), "Request-Timeout", "0.5")
		<-g.within
		late := r.asking(1, show(picture, "50x50"))
		refused(t, <-early, fault.Timeout)
		close(g.hold)
		if got := <-late; got.Code != http.StatusOK {
			t.Errorf("the other one got %d: %s", got.Code, got.Body)
		}

		g.mu.Lock()
		g.hold = make(chan struct{})
		g.mu.Unlock()
		alone := r.asking(1, show(picture, "60x60"), "Request-Timeout", "0.5")
		<-g.within
		refused(t, <-alone, fault.Timeout)
		synctest.Wait()
		for _, stat := range r.inventory.Read() {
			if stat.Kind == "permits" && stat.Inside != 0 {
				t.Errorf("%d jobs go on for nobody", stat.Inside)
			}
		}
		if len(r.media.thumbs.jobs) != 0 {
			t.Errorf("%d jobs are remembered", len(r.media.thumbs.jobs))
		}
		r.end()
	})
}

// TestMediaIsSaturated has as many jobs under way as may be. One that has not
// begun when its time is up says so.
func TestMediaIsSaturated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := exhibit(t, func(s *Spec) { s.Config.Media.Jobs = config.Auto[int]{Value: 1} })
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.within = make(chan struct{}), make(chan struct{}, 10)
		first := r.asking(1, show(picture, "50x50"))
		<-g.within
		refused(t, r.ask(http.MethodGet, show(picture, "51x51"), "", "Request-Timeout", "0.5"), fault.Backpressure)
		close(g.hold)
		if got := <-first; got.Code != http.StatusOK {
			t.Errorf("the first one got %d", got.Code)
		}
		r.end()
	})
}

func TestMoreJobsThanMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := exhibit(t, func(s *Spec) { s.Config.Media.Jobs = config.Auto[int]{Value: 1} })
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.within = make(chan struct{}), make(chan struct{}, 10)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ended := make(chan error, 2*mostWaiting)
		for i := range mostWaiting {
			go func() {
				_, err := r.media.thumbs.get(ctx, thumbKey{picture, thumb.Box{Width: 1 + i, Height: 1}})
				ended <- err
			}()
		}
		synctest.Wait()
		_, err := r.media.thumbs.get(ctx, thumbKey{picture, thumb.Box{Width: 1000, Height: 1000}})
		if fault.KindOf(err) != fault.Backpressure {
			t.Errorf("one too many: %v", err)
		}
		for range mostWaiting {
			if err := <-ended; err == nil {
				t.Error("one was made")
			}
		}
		r.end()
	})
}

// TestADrainEndsJobs stops the node while a picture is being made.
func TestADrainEndsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := exhibit(t)
		picture := g.put(t, photo(t, 400, 200, 3))
		g.hold, g.within = make(chan struct{}), make(chan struct{}, 10)
		answers := r.asking(1, show(picture, "50x50"))
		<-g.within
		r.drain()
		refused(t, <-answers, fault.Canceled)
		refused(t, r.ask(http.MethodGet, show(picture, "51x51"), ""), fault.Canceled)
		r.end()
	})
}

// TestAJobThatDies has a store that panics: those who wait are told.
func TestAJobThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := exhibit(t)
		picture := g.put(t, photo(t, 400, 200, 3))
		r.Facets.spec.Objects = dying{g}
		refused(t, r.ask(http.MethodGet, show(picture, "50x50"), ""), fault.Internal)
		r.rough = true
		r.end()
	})
}

// dying is a store that panics when something is read.
type dying struct{ *gallery }

func (d dying) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	handle, err := d.gallery.Open(ctx, a)
	return deadly{handle}, err
}

type deadly struct{ store.Handle }

func (deadly) ReadAt([]byte, int64) (int, error) { panic("the store died") }

// TestADamagedObject is found out when it is read.
func TestADamagedObject(t *testing.T) {
	r, g := exhibit(t)
	defer r.end()
	words := g.put(t, []byte("just words"))
	r.Facets.spec.Objects = damaged{g}
	refused(t, r.ask(http.MethodGet, "/media/"+words.String(), ""), fault.IntegrityFail)
}

// damaged is a store whose objects cannot be read.
type damaged struct{ *gallery }

func (d damaged) Open(ctx context.Context, a b3.Address) (store.Handle, error) {
	handle, err := d.gallery.Open(ctx, a)
	return unreadable{handle}, err
}

type unreadable struct{ store.Handle }

func (unreadable) ReadAt([]byte, int64) (int, error) {
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
