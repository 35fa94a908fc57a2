package ledger_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

const docs = `{"op":"put","item":{"kind":"region","id":"docs"}}`

func request(ops ...string) string {
	return `{"schema_version":"1.0.0","ops":[` + strings.Join(ops, ",") + `]}`
}

func TestRequests(t *testing.T) {
	hash := b3.Of([]byte("x"))
	r, err := ledger.DecodeRequest([]byte(` { "ttl_s" : 60, "base": {"version": 7, "hash": "` + hash.String() + `"},
		"ops": [` + docs + `, {"id":"old","op":"delete"}], "schema_version": "1.0.0" } `))
	if err != nil || r.TTL != time.Minute || *r.Base != (ledger.Head{Version: 7, Hash: hash}) || len(r.Ops) != 2 || r.Ops[0].Item.ID != "docs" || !r.Ops[1].Delete || r.Ops[1].ID != "old" {
		t.Errorf("%+v, %v", r, err)
	}
	plain, err := ledger.DecodeRequest([]byte(strings.Replace(request(docs), "{", `{"base":null,`, 1)))
	if err != nil || plain.Base != nil || plain.TTL != 0 {
		t.Errorf("%+v, %v", plain, err)
	}
	s, err := ledger.DecodeSupersede([]byte(`{"schema_version":"1.0.0","version":7,"hash":"` + hash.String() + `","reason":"it was wrong","ttl_s":5}`))
	if err != nil || s.Head.Version != 7 || s.Head.Hash != hash || s.Reason != "it was wrong" || s.Ops != nil || s.TTL != 5*time.Second {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = ledger.DecodeSupersede([]byte(`{"schema_version":"1.0.0","version":7,"hash":"` + hash.String() + `","reason":"it was wrong","ops":[` + docs + `]}`))
	if err != nil || len(s.Ops) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestRequestsAreStrict(t *testing.T) {
	many := make([]string, ledger.MaxOps+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{"op":"delete","id":"n%d"}`, i)
	}
	with := func(field string) string { return strings.Replace(request(docs), "{", "{"+field+",", 1) }
	for bad, detail := range map[string]string{
		"":                           "ends too early",
		"null":                       "must be an object",
		"[]":                         "must be an object",
		request():                    "ops must be a list of 1 to 256",
		request(many...):             "ops must be a list of 1 to 256",
		`{"ops":[` + docs + `]}`:     "schema_version is missing",
		`{"schema_version":"1.0.0"}`: "ops is missing",
		`{"schema_version":"2.0.0","ops":[` + docs + `]}`: `must be "1.0.0"`,
		`{"schema_version":1,"ops":[` + docs + `]}`:       "schema_version must be a text",
		with(`"extra":1`): "extra is not a known field",
		with(`"` + strings.Repeat("x", 1000) + `":1`): strings.Repeat("x", 64) + "… is not a known field",
		with(`"Ops":[]`):                                "Ops is not a known field",
		with(`"ops":[]`):                                `"ops" is there twice`,
		with(`"ttl_s":0`):                               "ttl_s must be a whole number from 1",
		with(`"ttl_s":-5`):                              "ttl_s must be a whole number from 1",
		with(`"ttl_s":1.5`):                             "not a whole number",
		with(`"ttl_s":1e2`):                             "not a whole number",
		with(`"ttl_s":"5"`):                             "ttl_s must be a whole number",
		with(`"ttl_s":99999999999`):                     "ttl_s must be a whole number",
		with(`"ttl_s":99999999999999999999`):            "not a whole number",
		with(`"base":7`):                                "base must be an object",
		with(`"base":{}`):                               "base.version is missing",
		with(`"base":{"version":1}`):                    "base.hash is missing",
		with(`"base":{"version":-1,"hash":"b3:"}`):      "base.version must be",
		with(`"base":{"version":1,"hash":"b3:","x":1}`): "base.hash must be an address",
		request(`7`):                                    "ops[0] must be an object",
		request(`{}`):                                   "ops[0].op is missing",
		request(`{"op":"move","id":"a"}`):               "ops[0].op must be",
		request(`{"op":"delete"}`):                      "ops[0].id is missing",
		request(`{"op":"delete","id":"A"}`):             "lower case",
		request(`{"op":"delete","id":"a","item":{}}`):   "ops[0].item is not a known field",
		request(`{"op":"delete","id":"signers"}`):       "cannot be deleted",
		request(`{"op":"put"}`):                         "ops[0].item is missing",
		request(`{"op":"put","item":{"kind":"region","id":"a"},"id":"a"}`): "ops[0].id is not a known field",
		request(`{"op":"put","item":null}`):                                "ops[0].item must be an object",
		request(docs, `{"op":"put","item":{"kind":"x","id":"a"}}`):         "ops[1].item.kind must be",
		request(docs, docs):                          `"docs" is touched twice`,
		request(docs, `{"op":"delete","id":"docs"}`): `"docs" is touched twice`,
	} {
		_, err := ledger.DecodeRequest([]byte(bad))
		testkit.WantRefusal(t, err, fault.Malformed, "")
		if !strings.Contains(fault.DetailOf(err), detail) {
			t.Errorf("%.80s: %v does not say %q", bad, err, detail)
		}
	}
	hash := b3.Of(nil).String()
	for _, bad := range []string{
		`{}`, `[`,
		`{"schema_version":"1.0.0","version":7,"hash":"` + hash + `"}`,
		`{"schema_version":"1.0.0","version":7,"hash":"` + hash + `","reason":""}`,
		`{"schema_version":"1.0.0","version":7,"hash":"` + hash + `","reason":7}`,
		`{"schema_version":"1.0.0","version":7,"hash":"` + hash + `","reason":"` + strings.Repeat("x", 1025) + `"}`,
		`{"schema_version":"1.0.0","version":7,"hash":"` + hash + `","reason":"x","ops":[]}`,
		`{"schema_version":"1.0.0","version":7,"hash":"` + hash + `","reason":"x","base":null}`,
		`{"schema_version":"1.0.0","version":7.0,"hash":"` + hash + `","reason":"x"}`,
	} {
		_, err := ledger.DecodeSupersede([]byte(bad))
		testkit.WantRefusal(t, err, fault.Malformed, "")
	}
}

func TestOversizedBodies(t *testing.T) {
	large := append([]byte(request(docs)), bytes.Repeat([]byte{' '}, ledger.MaxPayload)...)
	for what, decode := range map[string]func([]byte) error{
		"request":        func(b []byte) error { _, err := ledger.DecodeRequest(b); return err },
		"request CBOR":   func(b []byte) error { _, err := ledger.DecodeRequestCBOR(b); return err },
		"supersede":      func(b []byte) error { _, err := ledger.DecodeSupersede(b); return err },
		"supersede CBOR": func(b []byte) error { _, err := ledger.DecodeSupersedeCBOR(b); return err },
		"approval":       func(b []byte) error { _, err := ledger.DecodeApproval(b); return err },
		"approval CBOR":  func(b []byte) error { _, err := ledger.DecodeApprovalCBOR(b); return err },
		"payload":        func(b []byte) error { _, err := ledger.DecodePayload(b); return err },
		"preconditions":  func(b []byte) error { _, err := ledger.DecodePreconditions(b); return err },
	} {
		if testkit.WantRefusal(t, decode(large), fault.BodyTooLarge, ""); t.Failed() {
			t.Fatal(what)
		}
	}
}

func TestApprovalsOnTheWire(t *testing.T) {
	sig := base64.StdEncoding.EncodeToString(make([]byte, 64))
	good := `{"signer_id":"alice","algo":"ed25519","sig":"` + sig + `","signed_at":"2026-01-02T03:04:05.678Z"}`
	a, err := ledger.DecodeApproval([]byte(good))
	if err != nil || a.SignerID != "alice" || a.Algo != "ed25519" || len(a.Sig) != 64 || !a.SignedAt.Equal(start) {
		t.Errorf("%+v, %v", a, err)
	}
	again, err := json.Marshal(a)
	if b, err2 := ledger.DecodeApproval(again); err != nil || err2 != nil || b.SignerID != a.SignerID || !b.SignedAt.Equal(a.SignedAt) {
		t.Errorf("%s: %+v, %v, %v", again, b, err, err2)
	}
	for _, others := range []string{"2026-01-02T03:04:05.6789Z", "2026-01-02T04:04:05.678+01:00"} { // as other programs write times
		if a, err := ledger.DecodeApproval([]byte(strings.Replace(good, "2026-01-02T03:04:05.678Z", others, 1))); err != nil || !a.SignedAt.Equal(start) {
			t.Errorf("%s: %v, %v", others, a.SignedAt, err)
		}
	}
	var tree any
	json.Unmarshal([]byte(good), &tree)
	packed, _ := cbor.Marshal(tree)
	if c, err := ledger.DecodeApprovalCBOR(packed); err != nil || c.SignerID != "alice" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ledger.DecodeApprovalCBOR(packed[1:]); fault.KindOf(err) != fault.Malformed {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{
		"", `{}`,
		strings.Replace(good, "ed25519", "ED25519", 1),
		strings.Replace(good, "ed25519", "none", 1),
		strings.Replace(good, "alice", "Alice", 1),
		strings.Replace(good, "alice", strings.Repeat("a", 65), 1),
		strings.Replace(good, "=", "", 1),
		strings.Replace(good, "A==", "B==", 1), // unused bits that are set
		strings.Replace(good, "AAAA", "A\\nAA", 1),
		strings.Replace(good, "AAAA", "", 1),
		strings.Replace(good, "-01-", "-13-", 1),
		strings.Replace(good, `"2026-01-02T03:04:05.678Z"`, `1767323045`, 1),
		strings.Replace(good, "{", `{"public":"x",`, 1),
	} {
		_, err := ledger.DecodeApproval([]byte(bad))
		testkit.WantRefusal(t, err, fault.Malformed, "")
	}
}

func encodeCBOR(t testkit.T, value any) []byte {
	t.Helper()
	b, err := cbor.Marshal(value)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b
}

func TestCBORIsStrict(t *testing.T) {
	op := map[string]any{"op": "delete", "id": "a"}
	good := map[string]any{"schema_version": "1.0.0", "ops": []any{op}, "ttl_s": 60}
	if r, err := ledger.DecodeRequestCBOR(encodeCBOR(t, good)); err != nil || r.TTL != time.Minute {
		t.Fatalf("%+v, %v", r, err)
	}
	with := func(name string, value any) []byte {
		m := map[string]any{"schema_version": "1.0.0", "ops": []any{op}}
		m[name] = value
		return encodeCBOR(t, m)
	}
	twice := append([]byte{0xa3}, encodeCBOR(t, map[string]any{"ttl_s": 1})[1:]...)
	twice = append(twice, encodeCBOR(t, map[string]any{"ttl_s": 1})[1:]...)
	twice = append(twice, encodeCBOR(t, map[string]any{"ops": []any{op}})[1:]...)
	deep := any("x")
	for range 40 {
		deep = []any{deep}
	}
	for what, bad := range map[string][]byte{
		"nothing":             nil,
		"half":                encodeCBOR(t, good)[:20],
		"something behind it": append(encodeCBOR(t, good), 0),
		"a float":             with("ttl_s", 60.0),
		"half a float":        with("ttl_s", cbor.RawMessage{0xf9, 0x3c, 0x00}),
		"no number":           with("ttl_s", math.NaN()),
		"a number too large":  with("ttl_s", uint64(1<<63)),
		"one of 54 bits":      with("ttl_s", int64(1<<53)),
		"a large negative":    with("ttl_s", cbor.RawMessage{0x3b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"a tagged number":     with("ttl_s", cbor.RawMessage{0xc2, 0x41, 0x01}),
		"a tag":               with("ttl_s", cbor.Tag{Number: 1, Content: 60}),
		"a time":              with("base", cbor.RawMessage{0xc1, 0x01}),
		"bytes":               with("schema_version", []byte("1.0.0")),
		"undefined":           with("base", cbor.RawMessage{0xf7}),
		"a simple value":      with("base", cbor.RawMessage{0xe0}),
		"an unknown field":    with("extra", 1),
		"a key twice":         twice,
		"a key that is none":  encodeCBOR(t, map[any]any{1: "x", "schema_version": "1.0.0", "ops": []any{op}}),
		"a key of bytes":      append([]byte{0xa1}, 0x41, 'x', 0x01),
		"a key not ASCII":     with("é", 1),
		"no end":              append(append([]byte{0xbf}, encodeCBOR(t, good)[1:]...), 0xff),
		"a list with no end":  with("ops", cbor.RawMessage{0x9f, 0xff}),
		"a text with no end":  with("schema_version", cbor.RawMessage{0x7f, 0x61, 'x', 0xff}),
		"not UTF-8":           with("schema_version", cbor.RawMessage{0x61, 0xff}),
		"too deep":            with("ops", deep),
		"too long":            with("ops", make([]int, 5000)),
		"too wide":            with("base", wideMap()),
		"bytes in a list":     with("ops", []any{[]byte{1}}),
	} {
		_, err := ledger.DecodeRequestCBOR(bad)
		if testkit.WantRefusal(t, err, fault.Malformed, ""); t.Failed() {
			t.Fatal(what)
		}
	}
	hash := b3.Of(nil).String()
	if s, err := ledger.DecodeSupersedeCBOR(encodeCBOR(t, map[string]any{"schema_version": "1.0.0", "version": 3, "hash": hash, "reason": "x"})); err != nil || s.Head.Version != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := ledger.DecodeSupersedeCBOR(encodeCBOR(t, []any{})); fault.KindOf(err) != fault.Malformed {
		t.Errorf("%v", err)
	}
	if _, err := ledger.DecodeSupersedeCBOR(nil); fault.KindOf(err) != fault.Malformed {
		t.Errorf("%v", err)
	}
}

func wideMap() map[string]int {
	m := map[string]int{}
	for i := range 100 {
		m[fmt.Sprint(i)] = i
	}
	return m
}

// drawItem makes any item that the registry accepts.
func drawItem(t *rapid.T, id string) map[string]any {
	switch rapid.SampledFrom([]string{"node", "name", "region"}).Draw(t, "kind") {
	case "node":
		addrs := []any{}
		for i := range rapid.IntRange(0, 3).Draw(t, "addrs") {
			addrs = append(addrs, fmt.Sprintf("host-%d.example:%d", i, rapid.IntRange(1, 65535).Draw(t, "port")))
		}
		return map[string]any{"kind": "node", "id": id, "peer_id": peer, "addrs": addrs}
	case "name":
		return map[string]any{"kind": "name", "id": id, "manifest": b3.Of([]byte(rapid.String().Draw(t, "content"))).String()}
	}
	region := map[string]any{"kind": "region", "id": id}
	if rapid.Bool().Draw(t, "titled") {
		region["title"] = rapid.StringMatching(`[a-zA-Zäé東京"\\ /<>&]{1,20}`).Draw(t, "title")
	}
	if rapid.Bool().Draw(t, "labelled") {
		labels := map[string]any{}
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9._/-]{1,8}`), 0, 5, rapid.ID).Draw(t, "labels") {
			labels[name] = rapid.StringMatching(`[ -~]{0,10}`).Draw(t, "value")
		}
		region["labels"] = labels
	}
	return region
}

// The same request in JSON and in CBOR leads to the same signed bytes.
func TestCBORAndJSONGiveTheSameBytes(t *testing.T) {
	_, s := genesis(t, 7, signersOf(2, alice, bob, carol))
	rapid.Check(t, func(t *rapid.T) {
		ops := []any{}
		for _, id := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zäé東😀"\\'-]{1,12}`), 1, 6, rapid.ID).Draw(t, "ids") {
			ops = append(ops, map[string]any{"op": "put", "item": drawItem(t, id)})
		}
		shape := map[string]any{"schema_version": "1.0.0", "ops": ops}
		if rapid.Bool().Draw(t, "base") {
			shape["base"] = map[string]any{"version": s.Head().Version, "hash": s.Head().Hash.String()}
		}
		text, err := json.MarshalIndent(shape, "", rapid.SampledFrom([]string{"", "  "}).Draw(t, "indent"))
		testkit.Must(t, err)
		fromJSON, err := ledger.DecodeRequest(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		fromCBOR, err := ledger.DecodeRequestCBOR(encodeCBOR(t, shape))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		one, err := s.Propose(fromJSON, proposalID(1), start, start.Add(time.Hour))
		testkit.Must(t, err)
		two, err := s.Propose(fromCBOR, proposalID(1), start, start.Add(time.Hour))
		testkit.Must(t, err)
		if !bytes.Equal(one.SignThis, two.SignThis) || !bytes.Equal(one.Payload, two.Payload) || !bytes.Equal(one.Preconditions, two.Preconditions) {
			t.Fatalf("JSON and CBOR differ:\n%s\n%s", one.Payload, two.Payload)
		}
		if want := canonical(t, map[string]any{"ops": ops, "schema_version": "1.0.0"}); !bytes.Equal(one.Payload, want) {
			t.Fatalf("the payload is %s, RFC 8785 has %s", one.Payload, want)
		}
		if back, err := ledger.DecodePayload(one.Payload); err != nil || len(back.Ops) != len(ops) {
			t.Fatalf("%v", err)
		}
		if back, err := ledger.DecodePreconditions(one.Preconditions); err != nil || len(back) != len(ops) || back[0].Hash != nil {
			t.Fatalf("%v", err)
		}
	})
}

func TestPayloadsAreStrict(t *testing.T) {
	for _, bad := range []string{
		"", "[]", request(docs), `{"ops":[],"schema_version":"1.0.0"}`, `{"ops":[{"id":"a","op":"delete"}],"schema_version":"1.0.1"}`,
		`{"ops":[{"id":"a","op":"delete"}],"schema_version":"1.0.0","ttl_s":1}`, `{"ops":[{"id":"a","op":"delete"}],"schema_version":"1.0.0"} `,
	} {
		_, err := ledger.DecodePayload([]byte(bad))
		testkit.WantRefusal(t, err, fault.Malformed, "")
	}
}

func TestPreconditionsAreStrict(t *testing.T) {
	for _, bad := range []string{
		"", "{}", "[]", "[7]", `[{"hash":null}]`, `[{"id":"a"}]`, `[{"hash":null,"id":"A"}]`, `[{"hash":7,"id":"a"}]`, `[{"hash":null,"id":"a","x":1}]`,
		`[{"hash":null,"id":"b"},{"hash":null,"id":"a"}]`, `[{"hash":null,"id":"a"},{"hash":null,"id":"a"}]`, `[{"id":"a","hash":null}]`,
	} {
		_, err := ledger.DecodePreconditions([]byte(bad))
		testkit.WantRefusal(t, err, fault.Malformed, "")
	}
}
