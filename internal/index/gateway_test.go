package index

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

const rawType = "application/vnd.ipld.raw"

func (ti *testIndex) head(path string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodHead, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	ti.server.ServeHTTP(answer, request)
	return answer
}

func TestGatewayGivesBlocks(t *testing.T) {
	r := open(t)
	cid := r.put("a block").CID()
	for _, answer := range []*httptest.ResponseRecorder{
		r.get("/ipfs/" + cid + "?format=raw"), r.get("/ipfs/"+cid, "Accept", rawType),
		r.get("/ipfs/"+cid, "Accept", "application/vnd.ipld.car, "+rawType+";q=0.5"), r.get("/ipfs/"+cid+"?format=raw", "Accept", "text/html"),
		r.head("/ipfs/" + cid + "?format=raw"),
	} {
		if body := answer.Body.String(); answer.Code != http.StatusOK || body != "" && body != "a block" {
			t.Errorf("%d %q", answer.Code, body)
		}
		for name, want := range map[string]string{
			"Content-Type": rawType, "Content-Length": "7", "Content-Disposition": `attachment; filename="` + cid + `.bin"`, "Etag": `"` + cid + `.raw"`,
			"Cache-Control": "public, max-age=31536000, immutable", "X-Ipfs-Path": "/ipfs/" + cid, "X-Ipfs-Roots": cid, "Vary": "Accept", "X-Content-Type-Options": "nosniff",
		} {
			testkit.Equal(t, name, answer.Header().Get(name), want)
		}
		// Kubo reads no more than this of a header.
		var size bytes.Buffer
		testkit.Must(t, answer.Header().Write(&size))
		if size.Len() > 1536 {
			t.Errorf("the header has %d bytes:\n%s", size.Len(), &size)
		}
	}
	for query, want := range map[string]string{
		"&filename=cat.jpg":               `attachment; filename="cat.jpg"`,
		"&download=true&filename=K%C3%B6": `attachment; filename="K_"; filename*=UTF-8''K%C3%B6`,
		"&filename=..%2Fa%0D%0Ab":         `attachment; filename="ab"`,
	} {
		testkit.Equal(t, query, r.get("/ipfs/"+cid+"?format=raw"+query).Header().Get("Content-Disposition"), want)
	}
	testkit.Equal(t, "where it is", r.get("/ipfs/"+cid, "Accept", rawType).Header().Get("Content-Location"), "/ipfs/"+cid+"?format=raw")
	testkit.Equal(t, "status of what the client has", r.get("/ipfs/"+cid+"?format=raw", "If-None-Match", `"`+cid+`.raw"`).Code, http.StatusNotModified)
	part := r.get("/ipfs/"+cid+"?format=raw", "Range", "bytes=2-")
	testkit.Equal(t, "status of a part", part.Code, http.StatusPartialContent)
	testkit.Equal(t, "part", part.Body.String(), "block")
}

// Kubo requests the empty block to check for a gateway.
func TestGatewayIsOne(t *testing.T) {
	r := open(t)
	for _, answer := range []*httptest.ResponseRecorder{r.head("/ipfs/bafkqaaa?format=raw", "Accept", rawType), r.get("/ipfs/bafkqaaa?format=raw", "Accept", rawType)} {
		if answer.Code != http.StatusOK || answer.Body.Len() > 0 || answer.Header().Get("Content-Length") != "0" || answer.Header().Get("Content-Type") != rawType {
			t.Errorf("%d %v", answer.Code, answer.Header())
		}
	}
}

func TestGatewayRefuses(t *testing.T) {
	r := open(t)
	here := r.put("a block").CID()
	for _, c := range []struct {
		path, accept string
		status       int
	}{
		{"/ipfs/" + here, "", http.StatusBadRequest},
		{"/ipfs/" + here, "image/png,*/*", http.StatusBadRequest},
		{"/ipfs/" + here, rawType + ";q=0", http.StatusBadRequest},
		{"/ipfs/" + here + "?format=car", rawType, http.StatusBadRequest},
		{"/ipfs/docs?format=raw", "", http.StatusBadRequest},
		{"/ipfs/" + here[:40] + "?format=raw", "", http.StatusBadRequest},
		{"/ipfs/" + address("elsewhere").CID() + "?format=raw", "", http.StatusNotFound},
		{"/ipfs/bafkreidcd7frenco2m6ch7mny63wztgztv3q6fctaffgowkro6kljre5ei?format=raw", "", http.StatusNotFound},
		{"/ipfs/" + stranger + "?format=raw", "", http.StatusNotFound},
		{"/ipfs/bafkqaaik?format=raw", "", http.StatusNotFound}, // identity, with content
		{"/ipfs/" + here + "/path?format=raw", "", http.StatusNotFound},
	} {
		answer := r.get(c.path, "Accept", c.accept)
		var problem struct{ Code, Next string }
		testkit.Must(t, json.Unmarshal(answer.Body.Bytes(), &problem))
		if answer.Code != c.status || problem.Next == "" || strings.Contains(answer.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s, %s: %d %v %s", c.path, c.accept, answer.Code, answer.Header(), answer.Body)
		}
	}
}

// fixedSizeStore is a store with one object of a given size.
type fixedSizeStore struct {
	store.Store
	size int64
}

func (s fixedSizeStore) Open(context.Context, b3.Address) (store.Handle, error) {
	return fixedSizeHandle{size: s.size}, nil
}

// fixedSizeHandle is an object without content.
type fixedSizeHandle struct {
	store.Handle
	size int64
}

func (f fixedSizeHandle) Size() int64  { return f.size }
func (f fixedSizeHandle) Close() error { return nil }

func TestGatewayGivesBlocksOnly(t *testing.T) {
	for size, want := range map[int64]int{2 << 20: http.StatusOK, 2<<20 + 1: http.StatusNotFound} {
		r := open(t, withStore(func(s store.Store) store.Store { return fixedSizeStore{s, size} }))
		answer := r.head("/ipfs/" + address("x").CID() + "?format=raw")
		testkit.Equal(t, "status of a block", answer.Code, want)
	}
	r := open(t, withStore(func(s store.Store) store.Store { return fixedSizeStore{s, 2<<20 + 1} }))
	if text := r.get("/ipfs/" + address("x").CID() + "?format=raw").Body.String(); !strings.Contains(text, "/o/"+address("x").String()) {
		t.Error(text)
	}
}

// corruptStore is a store with corrupt objects.
type corruptStore struct{ store.Store }

func (corruptStore) Open(context.Context, b3.Address) (store.Handle, error) {
	return nil, fault.New("test", fault.IntegrityFail, "the bytes are wrong")
}

func TestGatewayGivesVerifiedBlocksOnly(t *testing.T) {
	r := open(t, withStore(func(s store.Store) store.Store { return corruptStore{s} }))
	testkit.Equal(t, "status", r.get("/ipfs/"+address("x").CID()+"?format=raw").Code, http.StatusBadGateway)
}
