package index

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/internal/store"
)

// BenchmarkOwnResolve is a resolve of what this node has itself, among more and
// more objects. Neither time nor allocations depend on how many there are, but
// for what the collector has to look at: hold ns/op against a run with GOGC=off.
func BenchmarkOwnResolve(b *testing.B) {
	for _, objects := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint("objects=", objects), func(b *testing.B) {
			r := open(b)
			var first b3.Address
			for i := range objects {
				text := string(binary.LittleEndian.AppendUint64(make([]byte, 56), uint64(i)))
				info, _, err := r.ram.Put(context.Background(), strings.NewReader(text), store.PutOptions{Size: 64})
				must(b, err)
				if i == 0 {
					first = info.Address
				}
			}
			request := httptest.NewRequest(http.MethodGet, "/resolve/"+first.String(), nil)
			b.ReportAllocs()
			for b.Loop() {
				answer := httptest.NewRecorder()
				if r.server.ServeHTTP(answer, request); answer.Code != http.StatusOK {
					b.Fatal(answer.Code, answer.Body)
				}
			}
		})
	}
}
