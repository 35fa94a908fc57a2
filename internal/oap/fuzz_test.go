package oap

import (
	"bytes"
	"io"
	"runtime/metrics"
	"testing"
	"unicode/utf8"
)

// FuzzFrame reads any bytes twice, at once and in small portions. Both must
// give the same result, and what was read must append to what it was read from.
func FuzzFrame(f *testing.F) {
	f.Add(unhex(f, contractVector), uint16(1), false)
	f.Add(append(unhex(f, contractVector), unhex(f, contractVector)...), uint16(7), true)
	f.Add(framed(f, Comp, 1, zstdOf(f, prose(300))), uint16(100), true)
	f.Add(framed(f, Event, 1, prose(200)), uint16(64), false)
	f.Fuzz(func(t *testing.T, wire []byte, portion uint16, compressed bool) {
		codec := Codec{Max: MaxPayload, Compressed: compressed}
		whole := NewReader(bytes.NewReader(wire), codec)
		parts := NewReader(&chunkReader{rest: wire, n: int(portion) + 1}, codec)
		at := 0
		for {
			a, errA := whole.Next()
			b, errB := parts.Next()
			if CodeOf(errA) != CodeOf(errB) || ReasonOf(errA) != ReasonOf(errB) || a.Flags != b.Flags || a.Corr != b.Corr || !bytes.Equal(a.Payload, b.Payload) {
				t.Fatalf("at once %+v, %v; in portions %+v, %v", a, errA, b, errB)
			}
			if errA == io.EOF && at != len(wire) {
				t.Fatalf("the end after %d of %d bytes", at, len(wire))
			}
			if errA != nil {
				return
			}
			size, _ := checkHeader(wire[at:], MaxPayload)
			if wire[at+atFlags+1]&byte(Comp) == 0 {
				if again, err := Append(nil, a); err != nil || !bytes.Equal(again, wire[at:at+size]) {
					t.Fatalf("%x came back as %x, %v", wire[at:at+size], again, err)
				}
			}
			at += size
		}
	})
}

// FuzzMessage decodes any bytes. What is accepted encodes, and decodes as the
// same again; and where the fast path decodes a message, the library decodes
// the same.
func FuzzMessage(f *testing.F) {
	for _, m := range oneOfEach(f) {
		f.Add(encoded(f, m))
	}
	f.Add(encodeMap(f, "kind", "ping", "ts", 5, "x", nested(7)))
	f.Add(encodeMap(f, "kind", "later"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		checkDecodeFast(t, payload)
		m, err := Decode(payload)
		if err != nil {
			if ReasonOf(err) != BadMessage || m != nil {
				t.Fatalf("refused without saying so: %v", err)
			}
			return
		}
		if _, unknown := m.(*Unknown); unknown {
			return
		}
		again, err := Encode(nil, m)
		if err != nil {
			t.Fatalf("%+v was taken and cannot be sent: %v", m, err)
		}
		// An absent list and an empty one are sent alike, so the bytes are compared.
		back, err := Decode(again)
		if err != nil || KindOf(back) != KindOf(m) || !bytes.Equal(encoded(t, back), again) {
			t.Fatalf("%+v became %+v, %v", m, back, err)
		}
	})
}

// FuzzFind decodes any bytes as a find or a found. What is accepted is within
// its bounds.
func FuzzFind(f *testing.F) {
	for _, m := range oneOfEach(f) {
		switch m.(type) {
		case *Find, *Found:
			f.Add(encoded(f, m))
		}
	}
	f.Add(encodeMap(f, "kind", "found", "x", 1, "record", []byte("r"), "providers", []any{}))
	f.Add(encodeMap(f, "most", 1<<40, "obj", "name:docs", "kind", "find"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := Decode(payload)
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *Find:
			if n := len(m.Obj); n < 1 || n > maxText || !utf8.ValidString(m.Obj) {
				t.Fatalf("taken: %+v", m)
			}
		case *Found:
			if len(m.Providers) > MaxProviders || len(m.Record) > MaxRecord {
				t.Fatalf("%d providers, a record of %d bytes", len(m.Providers), len(m.Record))
			}
			for _, p := range m.Providers {
				if n := len(p.ID); n < 1 || n > MaxProviderText || len(p.Region) > MaxProviderText || len(p.Overlay) > MaxAddrs || len(p.HTTP) > MaxAddrs {
					t.Fatalf("taken: %+v", p)
				}
				for _, addr := range append(p.HTTP, p.Overlay...) {
					if n := len(addr); n < 1 || n > MaxAddr || !utf8.ValidString(addr) {
						t.Fatalf("taken: %q", addr)
					}
				}
			}
		default:
			return
		}
		again := encoded(t, m)
		if back, err := Decode(again); err != nil || !bytes.Equal(encoded(t, back), again) {
			t.Fatalf("%+v became %+v, %v", m, back, err)
		}
	})
}

// FuzzGossip opens any bytes as a gossip message. What is accepted is the one
// encoding of what was read.
func FuzzGossip(f *testing.F) {
	for _, data := range []string{"", "storm"} {
		msg, err := encMode.Marshal(testMessage(data))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(msg, make([]byte, sigSize))
	}
	g := sealed(f, testMessage("signed"))
	f.Add(g.Msg, g.Sig)
	f.Fuzz(func(t *testing.T, msg, sig []byte) {
		checkGossipMessage(t, msg)
		g := Gossip{Msg: msg, Sig: sig}
		l, id, err := g.Open()
		if err != nil {
			if reason := ReasonOf(err); reason != BadGossip && reason != BadTopic {
				t.Fatalf("refused without saying so: %v", err)
			}
			return
		}
		again, err := encMode.Marshal(&l)
		if err != nil || !bytes.Equal(again, msg) {
			t.Fatalf("%x was taken, and its one encoding is %x, %v", msg, again, err)
		}
		if err := g.Verify(&l, id); err != nil && ReasonOf(err) != BadSig && ReasonOf(err) != Unsigned {
			t.Fatal(err)
		}
	})
}

// FuzzInflate decompresses any bytes. No result is over the caps, and no input
// makes the decoder take much more memory than the caps allow.
func FuzzInflate(f *testing.F) {
	f.Add(zstdOf(f, prose(300)))
	f.Add(zstdWithoutSize(f, prose(300)))
	f.Add(zstdOf(f, make([]byte, 1<<20)))
	f.Add(atRatio(f, maxRatio))
	f.Add(overRatio(f))
	f.Add(zstdWithoutSize(f, bytes.Repeat(noise(100), 1000)))
	f.Fuzz(func(t *testing.T, packed []byte) {
		before := allocated()
		out, err := decompress(packed)
		took := allocated() - before
		// Tables and literals of one decoder are a few hundred kilobytes; the
		// rest is the payload itself. The library may copy a payload once.
		if took > 2*(MaxPayload+8<<10)+2<<20 {
			t.Fatalf("%d bytes made us allocate %d", len(packed), took)
		}
		if err != nil {
			if reason := ReasonOf(err); reason != Bomb && reason != Damaged {
				t.Fatalf("refused without saying so: %v", err)
			}
			return
		}
		if n := len(out.Bytes()); n > MaxPayload || n > maxRatio*len(packed) {
			t.Fatalf("%d bytes inflated to %d", len(packed), n)
		}
		out.Release()
	})
}

// allocated is how many bytes this process has allocated so far. Unlike
// runtime.ReadMemStats it does not stop the world, which a fuzzer would feel.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
