package store

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"micronode/b3"
)

// The tree that a node serves proves the object and its size, whichever store
// it is in.
func TestTreesByHTTP(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			f := newHTTPFixture(t, s, true)
			for _, size := range []int{0, 1000, b3.GroupSize, b3.GroupSize + 1, ioBufferSize, ioBufferSize + 1, 1<<20 + 77} {
				object := numbered(size, size)
				address := mustPut(t, s, object, Pinned)
				answer, tree := f.ask("GET", "/o/"+address.String()+"/tree", "")
				if answer.StatusCode != http.StatusOK || answer.ContentLength != b3.OutboardSize(int64(size)) {
					t.Fatalf("%d bytes: %s, %d bytes of tree", size, answer.Status, answer.ContentLength)
				}
				got, err := b3.VerifyRange(address, int64(size), b3.Outboard(tree), bytes.NewReader(object), 0, int64(size))
				if err != nil || !bytes.Equal(got, object) {
					t.Errorf("%d bytes: %v", size, err)
				}
			}
			for path, status := range map[string]int{"/o/" + b3.Of([]byte("nobody's")).String() + "/tree": http.StatusNotFound, "/o/b3:12/tree": http.StatusBadRequest} {
				if answer, _ := f.ask("GET", path, ""); answer.StatusCode != status {
					t.Errorf("%s: %s", path, answer.Status)
				}
			}
		})
	}
}

// A body with a wanted address is stored only if it has that address.
func TestAWantedBodyByHTTP(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			f := newHTTPFixture(t, s, true)
			body := strings.Repeat("wanted ", 1000)
			want := b3.Of([]byte(body)).String()
			for _, path := range []string{"/put", "/o"} {
				for query, status := range map[string]int{
					"?want=" + b3.Of([]byte("other")).String(): http.StatusBadGateway, "?want=b3:x": http.StatusBadRequest, "?class=cached&want=" + want: 0,
				} {
					answer, text := f.ask("POST", path+query, body)
					if status != 0 && answer.StatusCode != status || status == 0 && answer.StatusCode > http.StatusCreated {
						t.Errorf("%s%s: %s %s", path, query, answer.Status, text)
					}
				}
			}
			if u := s.Usage(); u.Objects != 1 {
				t.Errorf("%d objects are kept", u.Objects)
			}
		})
	}
}
