package oap

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
)

func TestSealAndOpen(t *testing.T) {
	l := testMessage("storm")
	g, id, err := l.Seal(testKey)
	if err != nil {
		t.Fatal(err)
	}
	if id != b3.Of(g.Msg) || !ed25519.Verify(l.Key[:], append([]byte("oap1 gossip\x00"), id[:]...), g.Sig) {
		t.Error("the id is BLAKE3 of msg, and the signature is over the prefix and the id")
	}
	got, gotID, err := g.Open()
	if err != nil || gotID != id || !reflect.DeepEqual(&got, l) {
		t.Errorf("%+v, %s, %v", got, gotID, err)
	}
	if err := g.Verify(&got, gotID); err != nil {
		t.Error(err)
	}
}

// Relays change hops and fan-out, and what the origin signed stays good.
func TestRelaysDoNotChangeTheMessage(t *testing.T) {
	g := sealed(t, testMessage("storm"))
	relayed := g
	relayed.Hops--
	m, err := Decode(encoded(t, &relayed))
	if err != nil {
		t.Fatal(err)
	}
	got := m.(*Gossip)
	l, id, err := got.Open()
	if err != nil || !bytes.Equal(got.Msg, g.Msg) || got.Verify(&l, id) != nil {
		t.Errorf("%v", err)
	}
}

func TestUnsignedGossipMessages(t *testing.T) {
	l := testMessage("storm")
	g, _, err := l.Seal(nil)
	if err != nil || g.Sig != nil {
		t.Fatal(g.Sig, err)
	}
	open, id, err := g.Open()
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, "unsigned", g.Verify(&open, id), Unsigned)
	if quick, err := l.SealUnsigned("", nil); err != nil || !bytes.Equal(quick.Msg, g.Msg) || quick.Sig != nil {
		t.Errorf("without the id it is another letter: %v", err)
	}
}

// A message on the topic of the one before shares its memory and need not be
// checked; any other is checked as ever.
func TestDecodeMessageInto(t *testing.T) {
	g := sealed(t, testMessage("storm"))
	first, err := g.DecodeMessage()
	if err != nil {
		t.Fatal(err)
	}
	var again, other GossipMessage
	err = g.DecodeMessageInto(&again, first.Topic)
	if err != nil || !reflect.DeepEqual(again, first) || unsafe.StringData(again.Topic) != unsafe.StringData(first.Topic) {
		t.Errorf("read again: %+v, %v", again, err)
	}
	if err := g.DecodeMessageInto(&other, "other"); err != nil || !reflect.DeepEqual(other, first) {
		t.Errorf("behind another topic: %+v, %v", other, err)
	}
	bad := &GossipMessage{Topic: "a//b", TS: 1}
	for _, last := range []string{"", "news", "a//"} {
		err := (&Gossip{Msg: encodeGossipMessage(nil, bad)}).DecodeMessageInto(new(GossipMessage), last)
		wantReason(t, "a bad topic", err, BadTopic)
	}
}

// A clone shares nothing with what it was made of.
func TestCloneOfAnEnvelope(t *testing.T) {
	for i, sig := range [][]byte{nil, bytes.Repeat([]byte{7}, sigSize), nil, bytes.Repeat([]byte{7}, sigSize)} {
		g := Gossip{Msg: []byte("storm"), Sig: sig, Hops: 8, Fanout: 3}
		buffer := bytes.Repeat([]byte{9}, i*sigSize)
		own, in := g.CloneInto(buffer)
		if reused := i > 1; reused != (cap(buffer) > 0 && unsafe.SliceData(in) == unsafe.SliceData(buffer)) {
			t.Errorf("in a buffer of %d bytes: reused %t", len(buffer), !reused)
		}
		if !reflect.DeepEqual(own, g) {
			t.Errorf("%+v is no clone of %+v", own, g)
		}
		clear(g.Msg)
		clear(g.Sig)
		if string(own.Msg) != "storm" || len(sig) > 0 && own.Sig[0] != 7 {
			t.Error("a clone shares memory")
		}
		if own.Msg = append(own.Msg, 'X'); len(sig) > 0 && own.Sig[0] != 7 {
			t.Error("the letter grows into its signature")
		}
	}
}

func TestSignaturesThatDoNotVerify(t *testing.T) {
	good := sealed(t, testMessage("storm"))
	other := sealed(t, testMessage("calm"))
	flipped := bytes.Clone(good.Sig)
	flipped[40] ^= 1
	for name, sig := range map[string][]byte{"flipped": flipped, "of another letter": other.Sig, "cut": good.Sig[:63], "zero": make([]byte, sigSize)} {
		g := good
		g.Sig = sig
		l, id, err := g.Open()
		if err != nil {
			t.Fatal(err)
		}
		wantReason(t, name, g.Verify(&l, id), BadSig)
	}
}

func TestSealRefuses(t *testing.T) {
	stranger := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	_, _, err := testMessage("x").Seal(stranger)
	wantReason(t, "another key", err, BadSig)
	_, _, err = testMessage("x").Seal(testKey[:10])
	wantReason(t, "half a key", err, BadSig)
	l := testMessage("x")
	l.Topic = "a//b"
	_, _, err = l.Seal(testKey)
	wantReason(t, "a bad topic", err, BadTopic)
	l = testMessage("x")
	l.Data = make([]byte, MaxData+1)
	_, _, err = l.Seal(testKey)
	wantReason(t, "too much data", err, TooLarge)
}

// The largest gossip message fits into a frame, whatever is around it.
func TestTheLargestGossipMessageFits(t *testing.T) {
	l := testMessage("")
	l.Topic, l.Data, l.Seq, l.TS = strings.Repeat("x", MaxTopic), make([]byte, MaxData), 1<<63, 1<<63
	g := sealed(t, l)
	g.Hops, g.Fanout = 1<<63, 1<<63
	if _, err := plain.AppendMessage(nil, Event, 1, &g); err != nil {
		t.Error(err)
	}
}

// One message has one id, so only one encoding of it is accepted.
func TestGossipMessagesInOtherEncodings(t *testing.T) {
	l := testMessage("storm")
	key := l.Key[:]
	good, err := encMode.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	longTS := append(append([]byte{0xa5, 0x62, 't', 's', 0x18, 5}, encodeMap(t, "key", key, "seq", 1)[1:]...), encodeMap(t, "data", []byte("x"), "topic", "t")[1:]...)
	for name, msg := range map[string][]byte{
		"nothing":           nil,
		"cut":               good[:len(good)-1],
		"trailing byte":     append(bytes.Clone(good), 0),
		"another order":     encodeMap(t, "topic", "t", "ts", 5, "key", key, "seq", 1, "data", []byte("x")),
		"a number too long": longTS,
		"another key":       encodeMap(t, "ts", 5, "key", key, "seq", 1, "data", []byte("x"), "more", 1, "topic", "t"),
		"a key twice":       encodeMap(t, "ts", 5, "key", key, "seq", 1, "data", []byte("x"), "topic", "t", "topic", "t"),
		"no data":           encodeMap(t, "ts", 5, "key", key, "seq", 1, "topic", "t"),
		"a short key":       encodeMap(t, "ts", 5, "key", key[1:], "seq", 1, "data", []byte("x"), "topic", "t"),
		"a long key":        encodeMap(t, "ts", 5, "key", append(bytes.Clone(key), 0), "seq", 1, "data", []byte("x"), "topic", "t"),
		"a key as text":     encodeMap(t, "ts", 5, "key", "k", "seq", 1, "data", []byte("x"), "topic", "t"),
		"data null":         encodeMap(t, "ts", 5, "key", key, "seq", 1, "data", nil, "topic", "t"),
		"topic too long":    encodeMap(t, "ts", 5, "key", key, "seq", 1, "data", []byte("x"), "topic", strings.Repeat("x", MaxTopic+1)),
		"too much data":     encodeMap(t, "ts", 5, "key", key, "seq", 1, "data", make([]byte, MaxData+1), "topic", "t"),
		"topic not UTF-8":   encodeMap(t, "ts", 5, "key", key, "seq", 1, "data", []byte("x"), "topic", cbor.RawMessage{0x61, 0xff}),
		"indefinite":        append(append([]byte{0xbf}, good[1:]...), 0xff),
	} {
		_, _, err := (&Gossip{Msg: msg}).Open()
		wantReason(t, name, err, BadGossip)
	}
	_, _, err = (&Gossip{Msg: encodeMap(t, "ts", 5, "key", key, "seq", 1, "data", []byte("x"), "topic", "")}).Open()
	wantReason(t, "no topic", err, BadTopic)
}

// checkGossipMessage fails unless the fast path and the library agree.
func checkGossipMessage(t rapid.TB, msg []byte) {
	t.Helper()
	found, ok := decodeGossipMessageFast(msg, "")
	judged, err := decodeGossipMessage(msg)
	if ok != (err == nil) || ok && !reflect.DeepEqual(found, judged) {
		t.Fatalf("%x: recognised %t as %+v; the library says %+v, %v", msg, ok, found, judged, err)
	}
}

func TestGossipMessagesAreDecodedExactly(t *testing.T) {
	l := testMessage("storm")
	good, err := encMode.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	for at := range good {
		for value := range 256 {
			changed := bytes.Clone(good)
			changed[at] = byte(value)
			checkGossipMessage(t, changed)
		}
		checkGossipMessage(t, good[:at])
		checkGossipMessage(t, append(bytes.Clone(good[:at]), good[at+1:]...))
		checkGossipMessage(t, append(append(bytes.Clone(good[:at]), 0), good[at:]...))
	}
}

// If the fast path ever failed to decode a valid message, the library would
// decode it.
func TestTheLibraryDecodesAGossipMessage(t *testing.T) {
	l := testMessage("storm")
	msg, _ := encMode.Marshal(l)
	if got, err := decodeGossipMessage(msg); err != nil || !reflect.DeepEqual(&got, l) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestGossipMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &GossipMessage{
			Topic: rapid.StringMatching(`[a-zé0-9 ._-]{1,8}x(/[a-z0-9]{1,8}){0,3}`).Draw(t, "topic"),
			Key:   [keySize]byte(testKey.Public().(ed25519.PublicKey)),
			Seq:   rapid.Uint64().Draw(t, "seq"), TS: rapid.Uint64().Draw(t, "ts"),
			Data: rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "data"),
		}
		var key ed25519.PrivateKey
		if rapid.Bool().Draw(t, "signed") {
			key = testKey
		}
		g, id, err := l.Seal(key)
		if err != nil {
			t.Fatal(err)
		}
		checkGossipMessage(t, g.Msg)
		got, gotID, err := g.Open()
		if err != nil || gotID != id || !reflect.DeepEqual(&got, l) || (g.Verify(&got, id) == nil) != (key != nil) {
			t.Fatalf("%+v became %+v, %v", l, got, err)
		}
	})
}

func TestCheckTime(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	ttl, skew := 120*time.Second, 2*time.Minute
	for name, c := range map[string]struct {
		ts     uint64
		reason Reason
	}{
		"now":             {uint64(now.UnixMilli()), 0},
		"as old as ttl":   {uint64(now.Add(-ttl).UnixMilli()), 0},
		"older than ttl":  {uint64(now.Add(-ttl).UnixMilli()) - 1, Expired},
		"from 1970":       {0, Expired},
		"ahead by skew":   {uint64(now.Add(skew).UnixMilli()), 0},
		"ahead of skew":   {uint64(now.Add(skew).UnixMilli()) + 1, Future},
		"the end of time": {1<<64 - 1, Future},
	} {
		l := GossipMessage{TS: c.ts}
		err := l.CheckTime(now, ttl, skew)
		if c.reason != 0 {
			wantReason(t, name, err, c.reason)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// An accepted message is remembered until it is refused for its age.
		if forget := l.ExpiresAt(ttl); err == nil && (l.CheckTime(forget.Add(-time.Millisecond), ttl, skew) != nil || !errors.Is(l.CheckTime(forget, ttl, skew), Expired)) {
			t.Errorf("%s: forgotten at %v, which is not when it expires", name, forget)
		}
	}
	if kind := fault.KindOf((&GossipMessage{}).CheckTime(now, ttl, skew)); kind != fault.Expired {
		t.Errorf("an old letter is %s", kind)
	}
	if forget := (&GossipMessage{TS: 1<<64 - 1}).ExpiresAt(ttl); forget.Before(now) {
		t.Errorf("forgotten at %v", forget)
	}
	wantReason(t, "no ttl at all", (&GossipMessage{TS: 1}).CheckTime(now, -time.Second, -time.Second), Expired)
}

func TestTopics(t *testing.T) {
	for _, good := range []string{"a", "news/eu/weather", "a b/c", "Zürich", "日本/東京", "a.b/..c", strings.Repeat("x", MaxTopic)} {
		if err := CheckTopic(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for name, bad := range map[string]string{
		"empty": "", "too long": strings.Repeat("x", MaxTopic+1), "only a slash": "/", "slash first": "/a", "slash last": "a/", "two slashes": "a//b",
		"a dot": "a/./b", "two dots": "../b", "a line feed": "a\nb", "zero": "a\x00", "not UTF-8": "a\xff", "no-break space": "a\u00a0b",
		"right to left": "a\u202eb", "not in normal form": "Zu\u0308rich",
	} {
		wantReason(t, name, CheckTopic(bad), BadTopic)
	}
}
