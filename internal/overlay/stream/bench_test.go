package stream

import (
	"io"
	"testing"
)

// BenchmarkFetch carries an object from one node to another through memory:
// everything but TLS and the socket.
func BenchmarkFetch(b *testing.B) {
	asker, giver := newSide(b, 1), newSide(b, 2)
	data := bytesOf(64 << 20)
	address := giver.keep(data)
	l := connect(asker, giver, full)
	defer l.end()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		d, err := asker.Fetch(b.Context(), address, each(l.a))
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, d); err != nil || n != int64(len(data)) {
			b.Fatal(n, err)
		}
		_ = d.Close()
	}
}
