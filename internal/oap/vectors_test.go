package oap

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"micronode/b3"
	"micronode/internal/testkit"
)

const vectorsFile = "testdata/vectors.json"

// vectors is what another implementation can test itself with. Bytes are hex.
// A vector with an error is refused, with that code on the wire.
type vectors struct {
	About    []string        `json:"about"`
	Frames   []frameVector   `json:"frames"`
	Messages []messageVector `json:"messages"`
	Gossip   []gossipVector  `json:"letters"`

	Introductions []introductionVector `json:"introductions"`
	Trees         []treeVector         `json:"trees"`
}

// treeVector is an object, whose bytes are their offsets modulo 251, and its tree.
type treeVector struct {
	Size    int        `json:"size"`
	Address b3.Address `json:"address"`
	Tree    string     `json:"tree"`
}

type frameVector struct {
	Name       string `json:"name"`
	Compressed bool   `json:"compressed,omitempty"` // zstd was agreed on
	Hex        string `json:"hex"`

	Flags   Flags  `json:"flags,omitempty"`
	Corr    string `json:"corr,omitempty"`
	Payload string `json:"payload,omitempty"`

	Error  Code   `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
}

type messageVector struct {
	Name string `json:"name"`
	Hex  string `json:"hex"`

	Says      string `json:"says,omitempty"`      // the message as we read it, in CBOR's diagnostic notation
	Canonical string `json:"canonical,omitempty"` // its deterministic encoding, where the bytes above are not it

	Error  Code   `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
}

type gossipVector struct {
	Name string `json:"name"`
	Seed string `json:"seed,omitempty"` // of the Ed25519 key
	Msg  string `json:"msg"`

	Says string `json:"says,omitempty"`
	ID   string `json:"id,omitempty"`
	Sig  string `json:"sig,omitempty"`

	Error  Code   `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
}

type introductionVector struct {
	Name string `json:"name"`
	Seed string `json:"seed,omitempty"` // of the Ed25519 key
	Hex  string `json:"hex"`

	Says string `json:"says,omitempty"`
	Peer string `json:"peer,omitempty"` // who signed it

	Error  Code   `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func TestVectors(t *testing.T) {
	kept := readVectors(t)
	if testkit.Update() {
		kept = goodVectors(t).merge(kept)
		writeVectors(t, kept)
	}
	if len(kept.Frames) < 15 || len(kept.Messages) < 35 || len(kept.Gossip) < 8 || len(kept.Introductions) < 4 {
		t.Errorf("only %d frames, %d messages, %d letters, %d introductions", len(kept.Frames), len(kept.Messages), len(kept.Gossip), len(kept.Introductions))
	}
	for _, v := range kept.Frames {
		f, err := NewReader(bytes.NewReader(unhex(t, v.Hex)), Codec{Max: MaxPayload, Compressed: v.Compressed}).Next()
		got := frameVector{Name: v.Name, Compressed: v.Compressed, Hex: v.Hex, Error: CodeOf(err), Reason: ReasonOf(err).Label()}
		if err == nil {
			got.Flags, got.Corr, got.Payload = f.Flags, fmt.Sprintf("%016x", f.Corr), hex.EncodeToString(f.Payload)
		}
		if got != v {
			t.Errorf("frame %q: %v\n got %+v\nwant %+v", v.Name, err, got, v)
		}
	}
	for _, v := range kept.Messages {
		m, err := Decode(unhex(t, v.Hex))
		got := messageVector{Name: v.Name, Hex: v.Hex, Error: CodeOf(err), Reason: ReasonOf(err).Label()}
		if err == nil {
			got.Says, got.Canonical = saysOf(t, m, v.Hex)
		}
		if got != v {
			t.Errorf("message %q: %v\n got %+v\nwant %+v", v.Name, err, got, v)
		}
	}
	for _, v := range kept.Gossip {
		got, err := readGossipVector(t, v)
		if got != v {
			t.Errorf("letter %q: %v\n got %+v\nwant %+v", v.Name, err, got, v)
		}
	}
	for _, v := range kept.Introductions {
		got, err := readIntroductionVector(t, v)
		if got != v {
			t.Errorf("introduction %q: %v\n got %+v\nwant %+v", v.Name, err, got, v)
		}
	}
}

// The good vectors in the file are those that this package makes today, except
// for compressed ones: another version of zstd may find fewer bytes.
func TestGoodVectorsAreWhatWeSend(t *testing.T) {
	kept := readVectors(t)
	for _, want := range goodVectors(t).Messages {
		if !contains(kept.Messages, want) {
			t.Errorf("the file lacks the message %+v; run go test -run Vectors -update", want)
		}
	}
	for _, want := range goodVectors(t).Gossip {
		if !contains(kept.Gossip, want) {
			t.Errorf("the file lacks the letter %+v; run go test -run Vectors -update", want)
		}
	}
	for _, want := range goodVectors(t).Introductions {
		if !contains(kept.Introductions, want) {
			t.Errorf("the file lacks the introduction %+v; run go test -run Vectors -update", want)
		}
	}
	for _, want := range goodVectors(t).Frames {
		if !want.Compressed && !contains(kept.Frames, want) {
			t.Errorf("the file lacks the frame %+v; run go test -run Vectors -update", want)
		}
	}
}

// What package b3 makes of an object is what the document says of its tree: this
// test is here because its vectors are.
func TestTreeVectors(t *testing.T) {
	kept := readVectors(t).Trees
	if !slices.Equal(kept, treeVectors()) {
		t.Errorf("the file has other trees; run go test -run Vectors -update")
	}
	for _, v := range kept {
		data := treeObject(v.Size)
		got, err := b3.VerifyRange(v.Address, int64(v.Size), b3.Outboard(unhex(t, v.Tree)), bytes.NewReader(data), 0, int64(v.Size))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("an object of %d bytes: %v", v.Size, err)
		}
	}
}

// treeObject is the object of a vector.
func treeObject(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i % 251)
	}
	return data
}

// treeVectors are of one group, of one and a byte, of whole groups, and of some
// with chunks behind them.
func treeVectors() (all []treeVector) {
	for _, size := range []int{16_384, 16_385, 49_152, 60_000, 100_000} {
		h := b3.NewTreeHasher()
		_, _ = h.Write(treeObject(size))
		all = append(all, treeVector{Size: size, Address: h.Sum(), Tree: hex.EncodeToString(h.Outboard())})
	}
	return all
}

func contains[T comparable](all []T, one T) bool {
	for _, other := range all {
		if other == one {
			return true
		}
	}
	return false
}

// saysOf is the diagnostic notation of a message, and its encoding if that is
// not given.
func saysOf(t testing.TB, m Message, given string) (says, canonical string) {
	t.Helper()
	if unknown, ok := m.(*Unknown); ok {
		return "unknown kind " + unknown.Kind, ""
	}
	again := encoded(t, m)
	if canonical = hex.EncodeToString(again); canonical == given {
		canonical = ""
	}
	return diagnosed(t, again), canonical
}

func diagnosed(t testing.TB, payload []byte) string {
	t.Helper()
	says, err := cbor.Diagnose(payload)
	if err != nil {
		t.Fatal(err)
	}
	return says
}

func readGossipVector(t testing.TB, v gossipVector) (gossipVector, error) {
	t.Helper()
	got := gossipVector{Name: v.Name, Seed: v.Seed, Msg: v.Msg, Sig: v.Sig}
	g := Gossip{Msg: unhex(t, v.Msg), Sig: unhex(t, v.Sig)}
	l, id, err := g.Open()
	if err == nil && v.Sig != "" {
		err = g.Verify(&l, id)
	}
	got.Error, got.Reason = CodeOf(err), ReasonOf(err).Label()
	if err == nil {
		got.Says, got.ID = diagnosed(t, g.Msg), hex.EncodeToString(id[:])
	}
	if err == nil && v.Seed != "" {
		again, _, err := l.Seal(ed25519.NewKeyFromSeed(unhex(t, v.Seed)))
		if err != nil || hex.EncodeToString(again.Sig) != v.Sig || !bytes.Equal(again.Msg, g.Msg) {
			t.Errorf("letter %q: sealed again it is %x with signature %x, %v", v.Name, again.Msg, again.Sig, err)
		}
	}
	return got, err
}

func readIntroductionVector(t testing.TB, v introductionVector) (introductionVector, error) {
	t.Helper()
	got := introductionVector{Name: v.Name, Seed: v.Seed, Hex: v.Hex}
	i, id, err := OpenIntroduction(unhex(t, v.Hex))
	got.Error, got.Reason = CodeOf(err), ReasonOf(err).Label()
	if err == nil {
		got.Says, got.Peer = diagnosed(t, unhex(t, v.Hex)[sigSize:]), id.String()
	}
	if err == nil && v.Seed != "" {
		if again, err := i.Seal(ed25519.NewKeyFromSeed(unhex(t, v.Seed))); err != nil || hex.EncodeToString(again) != v.Hex {
			t.Errorf("introduction %q: sealed again it is %x, %v", v.Name, again, err)
		}
	}
	return got, err
}

// goodVectors are made by this package.
func goodVectors(t testing.TB) vectors {
	t.Helper()
	good := vectors{About: []string{
		"Vectors of OAP/1: frames, the messages in them, and the letters in gossip messages. Bytes are hex.",
		"A frame is read with a cap of 1 MiB; `compressed` says that zstd was agreed on. `payload` is what it inflates to.",
		"`says` is the message as it is read, in the diagnostic notation of RFC 8949. Where `canonical` is given, the bytes are not in",
		"deterministic encoding, and canonical is the message as it would be sent.",
		"A letter's id is the BLAKE3 of msg; sig is Ed25519 over \"oap1 gossip\", a zero byte, and the id; `seed` makes the key.",
		"An introduction is a signature of 64 bytes, over \"oap1 introduction\", a zero byte, and the BLAKE3 of what follows; `peer` has signed it.",
		"`error` is the code that goes back to the peer, `reason` the rule that was broken.",
		"A tree is that of an object of `size` bytes, each of which is its offset modulo 251.",
	}}
	good.Trees = treeVectors()
	frame := func(name string, codec Codec, f Frame) {
		wire, err := codec.Append(nil, f)
		if err != nil {
			t.Fatal(err)
		}
		good.Frames = append(good.Frames, frameVector{Name: name, Compressed: codec.Compressed, Hex: hex.EncodeToString(wire),
			Flags: f.Flags, Corr: fmt.Sprintf("%016x", f.Corr), Payload: hex.EncodeToString(f.Payload)})
	}
	frame("the contract's", plain, Frame{Req, 0x1122334455667788, []byte("hi")})
	frame("no payload", plain, Frame{Event, 0, nil})
	frame("all flags but COMP", plain, Frame{0xffff &^ Comp, 1<<64 - 1, []byte{0}})
	frame("a ping", plain, Frame{Req, 1, encoded(t, &Ping{TS: 1_700_000_000_000})})
	frame("not compressed although it might be", compressed, Frame{Event, 2, []byte("short")})
	frame("compressed", compressed, Frame{Event, 3, prose(600)})

	for i, m := range oneOfEach(t) {
		payload := hex.EncodeToString(encoded(t, m))
		v := messageVector{Name: fmt.Sprintf("%s, %d", KindOf(m), i), Hex: payload}
		v.Says, v.Canonical = saysOf(t, m, payload)
		good.Messages = append(good.Messages, v)
	}
	for _, data := range []string{"storm", ""} {
		name, l := fmt.Sprintf("signed, %d bytes of data", len(data)), testMessage(data)
		g, id, err := l.Seal(testKey)
		if err != nil {
			t.Fatal(err)
		}
		good.Gossip = append(good.Gossip, gossipVector{Name: name, Seed: hex.EncodeToString(testKey.Seed()), Msg: hex.EncodeToString(g.Msg),
			Says: diagnosed(t, g.Msg), ID: hex.EncodeToString(id[:]), Sig: hex.EncodeToString(g.Sig)})
	}
	for name, addrs := range map[string][]string{"two addresses": testIntroduction().Addrs, "no address": {}} {
		i := testIntroduction()
		i.Addrs = addrs
		v, err := readIntroductionVector(t, introductionVector{Name: name, Seed: hex.EncodeToString(testKey.Seed()), Hex: hex.EncodeToString(sealedIntroduction(t, i))})
		if err != nil {
			t.Fatal(err)
		}
		good.Introductions = append(good.Introductions, v)
	}
	slices.SortFunc(good.Introductions, func(a, b introductionVector) int { return strings.Compare(a.Name, b.Name) })
	return good
}

// merge adds from older vectors what is not made here: those that were written
// by hand.
func (v vectors) merge(older vectors) vectors {
	names := map[string]bool{}
	for _, f := range v.Frames {
		names["f"+f.Name] = true
	}
	for _, m := range v.Messages {
		names["m"+m.Name] = true
	}
	for _, l := range v.Gossip {
		names["l"+l.Name] = true
	}
	for _, i := range v.Introductions {
		names["i"+i.Name] = true
	}
	for _, i := range older.Introductions {
		if !names["i"+i.Name] {
			v.Introductions = append(v.Introductions, i)
		}
	}
	for _, f := range older.Frames {
		if !names["f"+f.Name] {
			v.Frames = append(v.Frames, f)
		}
	}
	for _, m := range older.Messages {
		if !names["m"+m.Name] {
			v.Messages = append(v.Messages, m)
		}
	}
	for _, l := range older.Gossip {
		if !names["l"+l.Name] {
			v.Gossip = append(v.Gossip, l)
		}
	}
	return v
}

func readVectors(t testing.TB) (v vectors) {
	t.Helper()
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func writeVectors(t testing.TB, v vectors) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(vectorsFile, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
