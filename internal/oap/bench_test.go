package oap

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"
)

// repeatReader returns the same bytes for ever.
type repeatReader struct {
	wire []byte
	at   int
}

func (r *repeatReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		copied := copy(p[n:], r.wire[r.at:])
		n += copied
		r.at = (r.at + copied) % len(r.wire)
	}
	return n, nil
}

var benchSizes = []int{1 << 10, 64 << 10}

// checkAllocs fails if a call allocates more than it may. The collector empties
// pools now and then; AllocsPerRun rounds the average down, so that is not seen.
func checkAllocs(t *testing.T, what string, most float64, call func()) {
	t.Helper()
	if got := testing.AllocsPerRun(200, call); got > most+poolAllocs {
		t.Errorf("%s: %.0f allocations, at most %.0f are allowed", what, got, most)
	}
}

// The hot paths state what they allocate, and are held to it.
func TestAllocations(t *testing.T) {
	for _, size := range benchSizes {
		g := sealed(t, testMessage(string(noise(size))))
		wire, err := plain.AppendMessage(nil, Event, 1, &g)
		if err != nil {
			t.Fatal(err)
		}
		payload := wire[HeaderSize:]
		name := func(what string) string { return fmt.Sprintf("%s, %d bytes", what, size) }

		r := NewReader(&repeatReader{wire: wire}, plain)
		checkAllocs(t, name("a frame, viewed"), 0, func() {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		})
		checkAllocs(t, name("a frame, taken"), 0, func() {
			_, _ = r.Next()
			r.Take().Release()
		})
		dst := make([]byte, 0, 2*len(wire))
		checkAllocs(t, name("Append"), 0, func() { _, _ = Append(dst, Frame{Payload: payload}) })
		checkAllocs(t, name("AppendMessage"), 0, func() { _, _ = plain.AppendMessage(dst, Event, 1, &g) })
		checkAllocs(t, name("Recognise"), 0, func() {
			var seen Gossip
			if !seen.DecodeFast(payload) {
				t.Fatal("not recognised")
			}
		})
		checkAllocs(t, name("Decode"), 1, func() { _, _ = Decode(payload) })
		checkAllocs(t, name("Open"), 1, func() { _, _, _ = g.Open() })
		if poolAllocs > 0 {
			continue // making an encoder again and again takes seconds under the race detector
		}
		text := prose(size)
		packedWire, _ := compressed.Append(nil, Frame{Payload: text})
		checkAllocs(t, name("Append, compressed"), 1, func() { _, _ = compressed.Append(dst, Frame{Payload: text}) })
		r = NewReader(&repeatReader{wire: packedWire}, compressed)
		checkAllocs(t, name("a frame, inflated"), 1, func() {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func BenchmarkReader(b *testing.B) {
	for _, size := range benchSizes {
		for _, codec := range []Codec{plain, compressed} {
			wire, _ := codec.Append(nil, Frame{Flags: Event, Payload: prose(size)})
			b.Run(fmt.Sprintf("%dKiB/compressed=%t", size>>10, codec.Compressed), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				r := NewReader(&repeatReader{wire: wire}, codec)
				for b.Loop() {
					if _, err := r.Next(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkTake(b *testing.B) {
	for _, size := range benchSizes {
		wire, _ := plain.Append(nil, Frame{Flags: Event, Payload: prose(size)})
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			r := NewReader(&repeatReader{wire: wire}, plain)
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
				r.Take().Release()
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range benchSizes {
		for _, codec := range []Codec{plain, compressed} {
			payload := prose(size)
			b.Run(fmt.Sprintf("%dKiB/compressed=%t", size>>10, codec.Compressed), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				dst := make([]byte, 0, 2*size)
				for b.Loop() {
					_, _ = codec.Append(dst, Frame{Flags: Event, Payload: payload})
				}
			})
		}
	}
}

// BenchmarkGossip shows what each step of a relay costs, and what the library
// alone would cost.
func BenchmarkGossip(b *testing.B) {
	for _, size := range benchSizes {
		g := sealed(b, testMessage(string(noise(size))))
		payload := encoded(b, &g)
		l, id, err := g.Open()
		if err != nil {
			b.Fatal(err)
		}
		dst := make([]byte, 0, 2*len(payload))
		steps := []struct {
			name string
			run  func()
		}{
			{"Recognise", func() { var seen Gossip; _ = seen.DecodeFast(payload) }},
			{"Decode", func() { _, _ = Decode(payload) }},
			{"DecodeByLibrary", func() { _, _ = decode(payload) }},
			{"AppendMessage", func() { _, _ = plain.AppendMessage(dst, Event, 1, &g) }},
			{"Open", func() { _, _, _ = g.Open() }},
			{"CheckTime", func() { _ = l.CheckTime(time.UnixMilli(int64(l.TS)), time.Minute, time.Minute) }},
			{"Seal", func() { _, _, _ = l.Seal(testKey) }},
			{"Verify", func() { _ = g.Verify(&l, id) }},
		}
		for _, step := range steps {
			b.Run(fmt.Sprintf("%s/%dKiB", step.name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					step.run()
				}
			})
		}
	}
}

// BenchmarkIdle shows what a reader holds while nothing comes.
func BenchmarkIdle(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(bytes.NewReader(nil), plain)
		if err := r.Fill(); err != io.EOF {
			b.Fatal(err)
		}
	}
}
