package index

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// random returns bytes that are unique to a seed.
func random(seed byte, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

// serveObject answers as a node does: with an object, and with its tree.
func serveObject(object, tree []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body := object
		if strings.HasSuffix(r.URL.Path, "/tree") {
			body = tree
		}
		if body == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body)
	}
}

func treeOf(data []byte) []byte {
	_, _, tree, _ := b3.NewOutboard(bytes.NewReader(data)) // reading memory cannot fail
	return tree
}

// A malicious provider costs little, whatever it tries: it is detected at its
// first wrong group, or after as many bytes as need no proof; nothing is
// evicted for it, it is counted and skipped, and the object comes from the next
// one.
func TestALiarCostsLittle(t *testing.T) {
	const size, unproven = 4 << 20, 2 << 20
	var fill [][]byte
	for i := range 20 {
		fill = append(fill, random(byte(10+i), 1<<20))
	}
	object, wrong := random(1, size), random(2, size)
	late := bytes.Clone(object)
	late[1<<20] ^= 1
	endless := func(length string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/tree") {
				http.NotFound(w, r)
				return
			}
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			for block := make([]byte, 64<<10); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}
	}
	for name, c := range map[string]struct {
		liar   http.HandlerFunc
		wasted float64
		lies   float64
	}{
		"other bytes, with their tree":         {serveObject(wrong, treeOf(wrong)), 0, 1},
		"other bytes, with the right tree":     {serveObject(wrong, treeOf(object)), 0, 1},
		"a wrong byte in the middle":           {serveObject(late, treeOf(object)), 1 << 20, 1},
		"other bytes, without a tree":          {serveObject(wrong, nil), 0, 0},
		"a gigabyte of nothing":                {endless(fmt.Sprint(1 << 30)), 0, 0},
		"more than anybody proves":             {endless(fmt.Sprint(1 << 42)), 0, 0},
		"no size and no end":                   {endless(""), unproven, 0},
		"another size, with the tree of that":  {serveObject(wrong[:3<<20], treeOf(wrong[:3<<20])), 0, 1},
		"few enough to need no proof":          {serveObject(wrong[:1<<20], nil), 1 << 20, 1},
		"a size that the object does not have": {serveObject(append(bytes.Clone(object), 0), treeOf(object)), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ram := store.NewRAM(store.RAMSpec{Budget: 16 << 20, Headroom: 5 << 20})
			for _, one := range fill {
				_, _, err := ram.Put(t.Context(), bytes.NewReader(one), store.PutOptions{Size: 1 << 20, Class: store.Cached})
				testkit.Must(t, err)
			}
			filled := ram.Counts().Evictions
			evicted := uint64(0)
			liar := httptest.NewServer(c.liar)
			t.Cleanup(liar.Close)
			good := serveObject(object, treeOf(object))
			honest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/tree") {
					evicted = ram.Counts().Evictions - filled // before its first byte
				}
				good(w, r)
			}))
			t.Cleanup(honest.Close)
			r := open(t, withEngine(newFakeEngine(target("near", answersAfter(0, gatewayOf("a-liar", liar.URL), gatewayOf("b-honest", honest.URL))))),
				withStore(func(store.Store) store.Store { return ram }), withConfig(func(c *Config) { c.Fetch.Unproven = unproven }))
			info, created, err := r.Fetch(t.Context(), b3.Of(object))
			if err != nil || !created || info.Size != size {
				t.Fatalf("%+v %v %v", info, created, err)
			}
			if evicted != 0 {
				t.Errorf("%d objects were evicted for a liar", evicted)
			}
			if n := r.count("index_fetch_wasted_bytes_total"); n > c.wasted+128<<10 {
				t.Errorf("%v bytes were wasted, want %v and a little", n, c.wasted)
			}
			if n := r.count("index_fetch_lies_total"); n != c.lies {
				t.Errorf("%v lies were counted, want %v", n, c.lies)
			}
			if c.lies > 0 && !r.isOffender(strings.TrimPrefix(liar.URL, "http://")) {
				t.Error("the liar is not left alone")
			}
			handle, err := ram.Open(t.Context(), b3.Of(object))
			testkit.Must(t, err)
			defer handle.Close()
			var kept bytes.Buffer
			if _, err := handle.WriteTo(&kept); err != nil || !bytes.Equal(kept.Bytes(), object) {
				t.Errorf("%d bytes are kept, %v", kept.Len(), err)
			}
		})
	}
}

// A proven object that is larger than the free space evicts others.
func TestAProvenObjectEvicts(t *testing.T) {
	ram := store.NewRAM(store.RAMSpec{Budget: 8 << 20, Headroom: 1 << 20})
	for i := range 8 {
		_, _, err := ram.Put(t.Context(), bytes.NewReader(random(byte(10+i), 1<<20)), store.PutOptions{Size: 1 << 20, Class: store.Cached})
		testkit.Must(t, err)
	}
	object := random(1, 5<<20)
	for name, c := range map[string]struct {
		tree []byte
		kind fault.Kind
	}{"without a tree": {nil, fault.UpstreamFailed}, "with its tree": {treeOf(object), 0}} {
		server := httptest.NewServer(serveObject(object, c.tree))
		defer server.Close()
		r := open(t, withEngine(newFakeEngine(target("near", answersAfter(0, gatewayOf("provider", server.URL))))),
			withStore(func(store.Store) store.Store { return ram }), withConfig(func(c *Config) { c.Fetch.Unproven = 2 << 20 }))
		_, created, err := r.Fetch(t.Context(), b3.Of(object))
		if fault.KindOf(err) != c.kind && err != nil || created != (c.kind == 0) {
			t.Errorf("%s: %v %v", name, created, err)
		}
		_ = ram.Delete(t.Context(), b3.Of(object)) // in any order
	}
}

// An offender is skipped the next time, under any provider ID; and if no other
// source is left, the error is not NotFound.
func TestALiarIsLeftAlone(t *testing.T) {
	asked := 0
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, "something else")
	}))
	defer liar.Close()
	r := open(t, withEngine(newFakeEngine(target("near", answersAfter(0, gatewayOf("one name", liar.URL))))))
	_, _, err := r.Fetch(t.Context(), address("hello"))
	testkit.WantKind(t, err, fault.IntegrityFail)
	r.spec.Engine.(*fakeEngine).near[0] = target("near", answersAfter(0, gatewayOf("another", liar.URL)))
	_, _, err = r.Fetch(t.Context(), address("bye"))
	testkit.WantKind(t, err, fault.UpstreamFailed)
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
	testkit.Equal(t, "refusals", r.count("index_fetch_refused_total", "reason="+refusedOffender), 1.0)
}
