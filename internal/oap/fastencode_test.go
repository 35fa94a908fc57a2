package oap

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// The fast path writes what the library writes, to the byte.
func TestFastEncodingMatchesTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 70_000), rapid.Just(uint64(1)<<32), rapid.Just(uint64(1)<<32-1))
		blob := rapid.SliceOfN(rapid.Byte(), 1, 300)
		sig := rapid.SampledFrom([][]byte{nil, make([]byte, sigSize)})
		for _, m := range []Message{
			&Gossip{Msg: blob.Draw(t, "msg"), Sig: sig.Draw(t, "sig"), Hops: number.Draw(t, "hops"), Fanout: number.Draw(t, "fanout")},
			&Data{Stream: number.Draw(t, "stream"), Seq: number.Draw(t, "seq"), Bytes: blob.Draw(t, "bytes")},
			&Data{Bytes: []byte{}},
			&Ack{Stream: number.Draw(t, "stream"), UpTo: number.Draw(t, "up to")},
			&Ping{TS: number.Draw(t, "ts")}, &Pong{TS: number.Draw(t, "ts")},
			&Bye{Reason: rapid.StringN(0, 300, maxText).Draw(t, "reason")},
		} {
			spelled, ok := encodeFast([]byte("before"), m)
			written, err := marshal([]byte("before"), m)
			if !ok || err != nil || !bytes.Equal(spelled, written) {
				t.Fatalf("%#v: %x, %t; the library: %x, %v", m, spelled, ok, written, err)
			}
		}
		l := &GossipMessage{Topic: rapid.StringN(0, 40, MaxTopic).Draw(t, "topic"), Seq: number.Draw(t, "seq"), TS: number.Draw(t, "ts"), Data: blob.Draw(t, "data")}
		copy(l.Key[:], rapid.SliceOfN(rapid.Byte(), keySize, keySize).Draw(t, "key"))
		written, err := encMode.Marshal(l)
		if spelled := encodeGossipMessage(nil, l); err != nil || !bytes.Equal(spelled, written) {
			t.Fatalf("%+v: %x; the library: %x, %v", l, spelled, written, err)
		}
	})
	for _, size := range []int{23, 24, 255, 256, 65_535, 65_536} {
		m := &Data{Bytes: make([]byte, size)}
		spelled, _ := encodeFast(nil, m)
		if written, err := marshal(nil, m); err != nil || !bytes.Equal(spelled, written) {
			t.Errorf("%d bytes: differs (%v)", size, err)
		}
	}
}

// What the receiver would refuse is left to the library, which says why.
func TestByeThatCannotBeEncoded(t *testing.T) {
	for _, reason := range []string{string(make([]byte, maxText+1)), "\xff"} {
		if _, ok := encodeFast(nil, &Bye{Reason: reason}); ok {
			t.Errorf("a reason of %d bytes was spelled", len(reason))
		}
		if _, err := Encode(nil, &Bye{Reason: reason}); err == nil {
			t.Errorf("a reason of %d bytes was encoded", len(reason))
		}
	}
}
