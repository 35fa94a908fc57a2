package oap

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// checkDecodeFast fails unless the fast path and the library agree on a
// payload.
func checkDecodeFast(t testing.TB, payload []byte) {
	t.Helper()
	found := decodeFast(payload)
	if found == nil {
		return
	}
	judged, err := decode(payload)
	if err != nil || !reflect.DeepEqual(found, judged) {
		t.Fatalf("%x: recognised as %+v; the library says %+v, %v", payload, found, judged, err)
	}
	again, err := Encode(nil, found)
	if err != nil || !bytes.Equal(again, payload) {
		t.Fatalf("%x: recognised, but it encodes to %x, %v", payload, again, err)
	}
}

// The fast path is worth having only if it decodes what we send.
func TestRecognisesWhatWeSend(t *testing.T) {
	numbers := []uint64{0, 23, 24, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, 1<<64 - 1}
	for _, n := range numbers {
		for _, size := range []int{1, 23, 24, 255, 256, 65535, 65536} {
			for _, sig := range [][]byte{nil, make([]byte, sigSize)} {
				for _, m := range []Message{
					&Gossip{Msg: make([]byte, size), Sig: sig, Hops: n, Fanout: n},
					&Data{Stream: n, Seq: n, Bytes: make([]byte, size)}, &Ack{Stream: n, UpTo: n},
					&Ping{TS: n}, &Pong{TS: n},
				} {
					payload := encoded(t, m)
					if found := decodeFast(payload); !reflect.DeepEqual(found, m) {
						t.Fatalf("%s with %d and %d bytes is not recognised: %+v", KindOf(m), n, size, found)
					}
					if size < 300 {
						checkDecodeFast(t, payload)
					}
				}
			}
		}
	}
}

// Every byte of a frequent message is changed to every value; whatever the fast
// path still decodes must be what the library decodes.
func TestRecognisesNothingElse(t *testing.T) {
	g := Gossip{Msg: []byte("m"), Sig: make([]byte, sigSize), Hops: 300, Fanout: 3}
	unsigned := Gossip{Msg: []byte("msg"), Hops: 1, Fanout: 70000}
	usual := Gossip{Msg: make([]byte, 256), Hops: 7, Fanout: 3}
	for _, m := range []Message{&g, &unsigned, &usual, &Data{Stream: 1 << 33, Seq: 30, Bytes: []byte("abc")}, &Ack{Stream: 1, UpTo: 255},
		&Ping{TS: 1 << 40}, &Pong{TS: 24}} {
		payload := encoded(t, m)
		for at := range payload {
			for value := range 256 {
				changed := bytes.Clone(payload)
				changed[at] = byte(value)
				checkDecodeFast(t, changed)
			}
			checkDecodeFast(t, payload[:at])
			checkDecodeFast(t, append(bytes.Clone(payload[:at]), payload[at+1:]...))
			checkDecodeFast(t, append(append(bytes.Clone(payload[:at]), 0), payload[at:]...))
		}
	}
}

// Gossip messages as they usually come, and those that just differ, are decoded
// as by the library, whatever the message before them was.
func TestCommonGossipMessages(t *testing.T) {
	short, long := strings.Repeat("t", 23), strings.Repeat("t", 24)
	for _, ts := range []uint64{1<<32 - 1, 1 << 32, 1_700_000_000_000} {
		for _, seq := range []uint64{0, 1<<32 - 1, 1 << 32, 1<<64 - 1} {
			for _, size := range []int{0, 255, 256, 65535, 65536} {
				for _, topic := range []string{"a", short, long} {
					msg := encodeGossipMessage(nil, &GossipMessage{Topic: topic, Key: [keySize]byte{1}, Seq: seq, TS: ts, Data: make([]byte, size)})
					checkDecodeInto(t, msg, topic)
					checkDecodeInto(t, msg, short)
				}
			}
		}
	}
	// Every byte around the data of one is changed to every value.
	msg := encodeGossipMessage(nil, &GossipMessage{Topic: "news/eu", Seq: 1 << 40, TS: 1 << 40, Data: make([]byte, 256)})
	for at := range msg {
		if at > 80 && at < 256 {
			continue
		}
		for value := range 256 {
			changed := bytes.Clone(msg)
			changed[at] = byte(value)
			checkDecodeInto(t, changed, "news/eu")
		}
		checkDecodeInto(t, msg[:at], "news/eu")
		checkDecodeInto(t, append(bytes.Clone(msg[:at]), msg[at+1:]...), "news/eu")
		checkDecodeInto(t, append(append(bytes.Clone(msg[:at]), 0), msg[at:]...), "news/eu")
	}
}

// checkDecodeInto fails unless a message that follows one on some topic is what
// the library decodes.
func checkDecodeInto(t *testing.T, msg []byte, last string) {
	t.Helper()
	want, wrong := decodeGossipMessage(msg)
	if wrong == nil {
		wrong = CheckTopic(want.Topic)
	}
	var l GossipMessage
	err := (&Gossip{Msg: msg}).DecodeMessageInto(&l, last)
	if ReasonOf(err) != ReasonOf(wrong) || err == nil && !reflect.DeepEqual(l, want) {
		t.Fatalf("%x: %+v, %v; the library says %+v, %v", msg, l, err, want, wrong)
	}
	if err == nil && cap(l.Data) != len(l.Data) {
		t.Fatalf("%x: the data reaches into the topic", msg)
	}
}

// A gossip envelope without a message has the right shape, and is invalid.
func TestAnEmptyGossipMessageIsNotDecoded(t *testing.T) {
	payload := encodeMap(t, "msg", []byte{}, "hops", 1, "kind", "gossip", "fanout", 1)
	if found := decodeFast(payload); found != nil {
		t.Errorf("recognised as %+v", found)
	}
	_, err := Decode(payload)
	wantReason(t, "no letter", err, BadMessage)
}

// Views do not reach into what follows them.
func TestViewsEndWhereTheyEnd(t *testing.T) {
	payload := encoded(t, &Gossip{Msg: []byte("msg"), Hops: 1, Fanout: 2})
	before := bytes.Clone(payload)
	var g Gossip
	if !g.DecodeFast(payload) {
		t.Fatal("not recognised")
	}
	_ = append(g.Msg, "overwritten"...)
	if !bytes.Equal(payload, before) {
		t.Error("an append to a view wrote into the payload")
	}
}

func TestNotRecognisedChangesNothing(t *testing.T) {
	g, d, a, ping, pong := Gossip{Hops: 1}, Data{Seq: 1}, Ack{UpTo: 1}, Ping{TS: 1}, Pong{TS: 1}
	if g.DecodeFast([]byte("x")) || d.DecodeFast(nil) || a.DecodeFast([]byte{0xa3}) || g.Hops != 1 || d.Seq != 1 || a.UpTo != 1 {
		t.Error(g, d, a)
	}
	if ping.DecodeFast(encoded(t, &Pong{TS: 2})) || pong.DecodeFast(encoded(t, &Ping{TS: 2})) || ping.TS != 1 || pong.TS != 1 {
		t.Error(ping, pong)
	}
}
