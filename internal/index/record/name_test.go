package record_test

import (
	"bytes"
	"crypto/ed25519"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

func question(key ed25519.PrivateKey, name string) record.Question {
	return record.Question{Kind: record.ByName, Name: name, Owner: idOf(key)}
}

func TestRecordTravels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := record.SignName(alice, record.Name{
			Name:     rapid.StringMatching(`[a-zäß0-9 ]{0,40}[a-z0-9]`).Filter(func(s string) bool { return record.CheckName(s) == nil }).Draw(t, "name"),
			Manifest: b3.Of([]byte(rapid.String().Draw(t, "content"))),
			Seq:      rapid.Uint64().Draw(t, "seq"),
			Issued:   noon.Add(time.Duration(rapid.Int64Range(-1e18, 1e18).Draw(t, "issued"))),
			Expires:  noon.Add(time.Duration(rapid.Int64Range(1e18+1e6, 2e18).Draw(t, "expires"))),
		})
		raw := n.Encode()
		back, err := record.DecodeName(raw)
		if err != nil || !reflect.DeepEqual(back, n) {
			t.Fatalf("%+v came back as %+v, %v", n, back, err)
		}
		if !bytes.Equal(back.Encode(), raw) || len(raw) > 600 {
			t.Fatalf("%d bytes that are spelt differently the second time", len(raw))
		}
		if back.Owner() != idOf(alice) {
			t.Fatal("a record of somebody else")
		}
	})
}

// One flipped bit anywhere makes a record invalid.
func TestRecordWithADamagedByte(t *testing.T) {
	good := docs().Encode()
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := record.DecodeName(bad); fault.KindOf(err) != fault.Malformed && fault.KindOf(err) != fault.InvalidSig {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := record.DecodeName(good[:i]); fault.KindOf(err) != fault.Malformed {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}

// recordFields is the fields of a record, to be combined wrongly.
type recordFields struct {
	name, manifest, seq, issued, expires any
	more                                 map[string]any
}

func validFields() recordFields {
	sum := b3.Of([]byte("hello"))
	return recordFields{name: "docs", manifest: sum[:], seq: uint64(5), issued: uint64(noon.UnixMilli()), expires: uint64(noon.Add(day).UnixMilli())}
}

var deterministic = func() cbor.EncMode {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := deterministic.Marshal(v)
	testkit.Must(t, err)
	return raw
}

func (r recordFields) body(t *testing.T) []byte {
	fields := map[string]any{"name": r.name, "manifest": r.manifest, "seq": r.seq, "issued": r.issued, "expires": r.expires}
	for key, value := range r.more {
		fields[key] = value
	}
	for key, value := range fields {
		if value == nil {
			delete(fields, key)
		}
	}
	return marshal(t, fields)
}

// signBody signs an arbitrary body.
func signBody(t *testing.T, body []byte) []byte {
	return marshal(t, map[string]any{"body": body, "key": []byte(public(alice)), "sig": ed25519.Sign(alice, append([]byte("micronode name v1\x00"), body...))})
}

// The documented encoding is that of the package.
func TestRecordAsDocumented(t *testing.T) {
	if got, want := signBody(t, validFields().body(t)), docs().Encode(); !bytes.Equal(got, want) {
		t.Errorf("by hand\n%x\nby the package\n%x", got, want)
	}
}

func TestHostileRecords(t *testing.T) {
	good := docs().Encode()
	body := validFields().body(t)
	sig := ed25519.Sign(alice, append([]byte("micronode name v1\x00"), body...))
	with := func(change func(*recordFields)) []byte {
		w := validFields()
		change(&w)
		return signBody(t, w.body(t))
	}
	for what, c := range map[string]struct {
		raw  []byte
		kind fault.Kind
	}{
		"nothing":                   {nil, fault.Malformed},
		"garbage":                   {[]byte("hello"), fault.Malformed},
		"a list":                    {marshal(t, []any{body, sig, []byte(public(alice))}), fault.Malformed},
		"over the cap":              {append(bytes.Clone(good), make([]byte, record.MaxRecord)...), fault.Malformed},
		"a byte too many":           {append(bytes.Clone(good), 0), fault.Malformed},
		"two records":               {append(bytes.Clone(good), good...), fault.Malformed},
		"a key twice":               {duplicateFirstKey(good), fault.Malformed},
		"a key twice in the body":   {signBody(t, duplicateFirstKey(body)), fault.Malformed},
		"an unknown key":            {marshal(t, map[string]any{"body": body, "key": []byte(public(alice)), "sig": sig, "more": 1}), fault.Malformed},
		"an unknown key in body":    {with(func(w *recordFields) { w.more = map[string]any{"more": 1} }), fault.Malformed},
		"a key in upper case":       {with(func(w *recordFields) { w.seq, w.more = nil, map[string]any{"SEQ": 5} }), fault.Malformed},
		"no seq":                    {with(func(w *recordFields) { w.seq = nil }), fault.Malformed},
		"keys in another order":     {unsorted(t, body, sig), fault.Malformed},
		"a long number":             {signBody(t, bytes.Replace(body, []byte("cseq\x05"), []byte("cseq\x18\x05"), 1)), fault.Malformed},
		"an indefinite map":         {append(append([]byte{0xbf}, good[1:]...), 0xff), fault.Malformed},
		"a tag in front":            {append([]byte{0xd9, 0xd9, 0xf7}, good...), fault.Malformed},
		"a body that is text":       {marshal(t, map[string]any{"body": string(body[:20]), "key": []byte(public(alice)), "sig": sig}), fault.Malformed},
		"no body":                   {marshal(t, map[string]any{"body": nil, "key": []byte(public(alice)), "sig": sig}), fault.Malformed},
		"a short key":               {marshal(t, map[string]any{"body": body, "key": []byte{1}, "sig": sig}), fault.Malformed},
		"a short signature":         {marshal(t, map[string]any{"body": body, "key": []byte(public(alice)), "sig": sig[:63]}), fault.Malformed},
		"a short address":           {with(func(w *recordFields) { w.manifest = []byte{1} }), fault.Malformed},
		"an address as numbers":     {with(func(w *recordFields) { w.manifest = make([]int, 32) }), fault.Malformed},
		"a seq below zero":          {with(func(w *recordFields) { w.seq = -1 }), fault.Malformed},
		"a seq with a point":        {with(func(w *recordFields) { w.seq = 5.5 }), fault.Malformed},
		"a whole seq with a point":  {with(func(w *recordFields) { w.seq = 5.0 }), fault.Malformed},
		"beyond the year 9999":      {with(func(w *recordFields) { w.expires = uint64(math.MaxUint64) }), fault.Malformed},
		"no life":                   {with(func(w *recordFields) { w.expires = w.issued }), fault.Malformed},
		"a name in upper case":      {with(func(w *recordFields) { w.name = "Docs" }), fault.Malformed},
		"a name with a line break":  {with(func(w *recordFields) { w.name = "a\nb" }), fault.Malformed},
		"a name of 3 kB":            {with(func(w *recordFields) { w.name = strings.Repeat("n", 3000) }), fault.Malformed},
		"a name as bytes":           {with(func(w *recordFields) { w.name = []byte("docs") }), fault.Malformed},
		"a name that is not UTF-8":  {signBody(t, bytes.Replace(body, []byte("ddocs"), []byte("ddoc\xff"), 1)), fault.Malformed},
		"signed by nobody":          {marshal(t, map[string]any{"body": body, "key": []byte(public(alice)), "sig": make([]byte, 64)}), fault.InvalidSig},
		"signed by somebody else":   {marshal(t, map[string]any{"body": body, "key": []byte(public(bob)), "sig": sig}), fault.InvalidSig},
		"signed for something else": {marshal(t, map[string]any{"body": body, "key": []byte(public(alice)), "sig": ed25519.Sign(alice, body)}), fault.InvalidSig},
	} {
		_, err := record.DecodeName(c.raw)
		wantRefusal(t, what, err, c.kind)
	}
}

// duplicateFirstKey repeats the first key of a map at its end.
func duplicateFirstKey(raw []byte) []byte {
	pair := raw[1:6] // a key of three letters and one byte of its value
	if raw[1] == 0x63 && raw[5] == 0x58 {
		pair = raw[1 : 1+4+2+int(raw[6])] // bytes, with their length
	}
	return append(append([]byte{raw[0] + 1}, raw[1:]...), pair...)
}

func unsorted(t *testing.T, body, sig []byte) []byte {
	options := cbor.CoreDetEncOptions()
	options.Sort = cbor.SortNone
	mode, err := options.EncMode()
	testkit.Must(t, err)
	raw, err := mode.Marshal(struct {
		Body []byte `cbor:"body"`
		Sig  []byte `cbor:"sig"`
		Key  []byte `cbor:"key"`
	}{body, sig, public(alice)})
	testkit.Must(t, err)
	return raw
}

func TestCheckRecord(t *testing.T) {
	const skew = 2 * time.Second
	n := docs()
	for what, c := range map[string]struct {
		q    record.Question
		now  time.Time
		kind fault.Kind
	}{
		"as asked":                  {question(alice, "docs"), noon, 0},
		"in its last millisecond":   {question(alice, "docs"), n.Expires.Add(-time.Millisecond), 0},
		"issued a little ahead":     {question(alice, "docs"), noon.Add(-record.MaxAhead), 0},
		"another name":              {question(alice, "other"), noon, fault.Malformed},
		"another peer":              {question(bob, "docs"), noon, fault.InvalidSig},
		"for an object":             {record.Question{Kind: record.CID, Name: "docs", Owner: idOf(alice)}, noon, fault.Malformed},
		"at its end":                {question(alice, "docs"), n.Expires, fault.Expired},
		"long after":                {question(alice, "docs"), n.Expires.Add(1000 * day), fault.Expired},
		"before it was issued":      {question(alice, "docs"), noon.Add(-record.MaxAhead - time.Millisecond), fault.Malformed},
		"of a clock that was reset": {question(alice, "docs"), time.Unix(0, 0), fault.Malformed},
	} {
		if err := n.Check(c.q, c.now, skew); c.kind == 0 && err != nil {
			t.Errorf("%s: %v", what, err)
		} else if c.kind != 0 {
			wantRefusal(t, what, err, c.kind)
		}
	}
}

func TestSequenceNumbersDecide(t *testing.T) {
	of := func(seq uint64, content string) *record.Name {
		n := record.SignName(alice, record.Name{Name: "docs", Manifest: b3.Of([]byte(content)), Seq: seq, Issued: noon, Expires: noon.Add(day)})
		return &n
	}
	older, newer := of(4, "a"), of(5, "b")
	if record.Newer(older, newer) != newer || record.Newer(newer, older) != newer {
		t.Error("the lower number counts")
	}
	if record.Newer(nil, older) != older || record.Newer(older, nil) != older || record.Newer(nil, nil) != nil {
		t.Error("no record is better than one")
	}
	rapid.Check(t, func(t *rapid.T) {
		three := [3]*record.Name{}
		for i := range three {
			three[i] = of(rapid.Uint64Range(1, 2).Draw(t, "seq"), rapid.StringMatching("[a-d]").Draw(t, "content"))
		}
		want := record.Newer(three[0], record.Newer(three[1], three[2])).Encode()
		order := rapid.Permutation(three[:]).Draw(t, "order")
		if got := record.Newer(record.Newer(order[0], order[1]), order[2]).Encode(); !bytes.Equal(got, want) {
			t.Fatal("two nodes that hear of three records in another order believe different ones")
		}
	})
}

func TestNextSeq(t *testing.T) {
	clock := uint64(noon.UnixMilli())
	for _, c := range []struct{ seen, want uint64 }{
		{0, clock}, {clock - 1, clock}, {clock, clock + 1}, {clock + 1000, clock + 1001}, {math.MaxUint64, math.MaxUint64},
	} {
		if got := record.NextSeq(noon, c.seen); got != c.want {
			t.Errorf("after %d comes %d, want %d", c.seen, got, c.want)
		}
	}
	if got := record.NextSeq(time.Time{}, 7); got != 8 {
		t.Errorf("with a clock before 1970: %d, want 8", got)
	}
}

func TestSignNameKeepsTimesAsTheyTravel(t *testing.T) {
	n := record.SignName(alice, record.Name{Name: "docs", Issued: time.Time{}, Expires: time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)})
	if back, err := record.DecodeName(n.Encode()); err != nil || !reflect.DeepEqual(back, n) {
		t.Errorf("%+v came back as %+v, %v", n, back, err)
	}
}

func TestRecordKey(t *testing.T) {
	var nobody oap.PeerID
	sum := b3.Of(append(make([]byte, 32+1), "docs"...)) // the peer, a zero, the name
	if got, want := record.RecordKey(nobody, "docs"), "/micronode/"+oap.PeerID(sum).String(); got != want {
		t.Errorf("the key is %q, want %q", got, want)
	}
	if record.RecordKey(idOf(alice), "docs") == record.RecordKey(idOf(bob), "docs") || record.RecordKey(idOf(alice), "a") == record.RecordKey(idOf(alice), "b") {
		t.Error("two names share a key")
	}
}

// The IDs were made with the library of the libp2p project.
func TestLibp2pIDs(t *testing.T) {
	for text, key := range map[string]ed25519.PrivateKey{
		"12D3KooWRawPbxPtP1eZaJpumGnyWX2DcUyd3RQnydr3eAto4Az7": alice,
		"12D3KooWB8sCGZCrwr79HtabLAn95qyPQx6RYHXjEbiD6QKou7ww": bob,
	} {
		if got := record.Libp2pID(public(key)); got != text {
			t.Errorf("got %s, want %s", got, text)
		}
		if got, ok := record.KeyOfLibp2p(text); !ok || !got.Equal(public(key)) {
			t.Errorf("%s is the key %x", text, got)
		}
	}
	for _, text := range []string{
		"k51qzi5uqu5dm0t4vbwri4lkg76q03b4x9tsvekgvbu4zli6454ff7w8wdosa4",
		"bafzaajaiaejcb2sknrr6fhcsbk7pkud3cmxml6mvi53k5pv6pojeehxknekenurm",
	} {
		if got, ok := record.KeyOfLibp2p(text); !ok || !got.Equal(public(alice)) {
			t.Errorf("%s is the key %x", text, got)
		}
	}
	for _, text := range []string{
		"", "12D3Koo", "QmRN6wdp1S2A5EtjW9A3M1vKSBuQQGcgvuhoMUoEz4iiT5", emptyCID, "größe", strings.Repeat("1", 10_000),
		"12D3KooWRawPbxPtP1eZaJpumGnyWX2DcUyd3RQnydr3eAto4Az71", "16Uiu2HAm4v86W3bmT1BiH6oSPzcsSr24iDQpSN5Qa992BCjjwgrD",
	} {
		if got, ok := record.KeyOfLibp2p(text); ok {
			t.Errorf("%q is the key %x", text, got)
		}
	}
}
