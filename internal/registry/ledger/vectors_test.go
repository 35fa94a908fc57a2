package ledger_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

const vectorsFile = "testdata/vectors.json"

// vectors is what another implementation can test itself with.
type vectors struct {
	About    []string        `json:"about"`
	Seeds    []seedVector    `json:"seeds"`
	Registry string          `json:"registry"`
	Log      []versionVector `json:"log"`
	Bad      []badVector     `json:"bad"`
	Requests []requestVector `json:"requests"`
}

type seedVector struct {
	SignerID string `json:"signer_id"`
	Seed     string `json:"seed"` // hex
	Public   string `json:"public"`
}

type versionVector struct {
	Version       uint64 `json:"version"`
	Header        string `json:"header"`
	Payload       string `json:"payload"`
	Preconditions string `json:"preconditions"`
	SignThis      string `json:"sign_this,omitempty"` // version 0 has none
	Hash          string `json:"hash"`
	Leaf          string `json:"leaf"` // hex
	Snapshot      string `json:"snapshot"`
	Diff          string `json:"diff,omitempty"`
}

type badVector struct {
	Name          string `json:"name"`
	Version       uint64 `json:"version"` // applied to the state of the version before
	Header        string `json:"header"`
	Payload       string `json:"payload"`
	Preconditions string `json:"preconditions"`
	Code          string `json:"code"`
}

type requestVector struct {
	Name    string `json:"name"`
	JSON    string `json:"json,omitempty"`
	CBOR    string `json:"cbor,omitempty"` // hex
	Payload string `json:"payload,omitempty"`
	Code    string `json:"code,omitempty"`
}

var about = []string{
	"A registry with the signers alice, bob and carol, of whom 2 must approve; in version 2 dave takes carol's place; version 3 supersedes version 2.",
	"header, payload, preconditions and sign_this are texts: their UTF-8 is what is hashed and signed.",
	"hash is BLAKE3-256 of the header; the hash of version 0 is the registry's id. leaf is SHA-256 of a zero byte and the header (RFC 6962).",
	"Signatures are Ed25519 over sign_this; the private keys are made from the seeds.",
	"bad: records that look like the version they name and must be refused; code is the reason by our own name.",
	"requests: a request in JSON or CBOR, and the payload that it becomes, or the code of its refusal.",
}

func record(v versionVector) ledger.Record {
	return ledger.Record{Version: v.Version, Header: []byte(v.Header), Payload: []byte(v.Payload), Preconditions: []byte(v.Preconditions)}
}

// TestVectors reads the file like an independent reader, and then compares it
// with what we would write today: formats do not change by accident.
func TestVectors(t *testing.T) {
	want := makeVectors(t)
	text := encodeVectors(t, want)
	if testkit.Update() {
		testkit.Must(t, os.WriteFile(vectorsFile, text, 0o644))
	}
	stored, err := os.ReadFile(vectorsFile)
	testkit.Must(t, err)
	if !bytes.Equal(stored, text) {
		t.Errorf("%s is not what would be written today; if the format was meant to change, it is a new version of it", vectorsFile)
	}
	var v vectors
	testkit.Must(t, json.Unmarshal(stored, &v))
	checkLog(t, v)
	for _, r := range v.Requests {
		checkRequest(t, r)
	}
}

func checkLog(t *testing.T, v vectors) {
	var s *ledger.State
	states := map[uint64]*ledger.State{}
	for _, version := range v.Log {
		r := record(version)
		next, err := s.Apply(r)
		if err != nil {
			t.Fatalf("version %d: %v", version.Version, err)
		}
		leaf := sha256.Sum256(append([]byte{0}, r.Header...))
		if b3.Of(r.Header).String() != version.Hash || hex.EncodeToString(leaf[:]) != version.Leaf || next.Head().Hash.String() != version.Hash || string(next.Snapshot()) != version.Snapshot {
			t.Errorf("version %d is not what the file says", version.Version)
		}
		if h, err := r.DecodeHeader(); err != nil || version.SignThis != "" && string(h.SignThis()) != version.SignThis {
			t.Errorf("version %d: %v", version.Version, err)
		}
		if s != nil && independentCount(t, r, s.Signers()) < s.Signers().M {
			t.Errorf("version %d has no quorum", version.Version)
		}
		s = next
		states[version.Version] = s
	}
	if s.Registry().String() != v.Registry {
		t.Errorf("the registry is %s", s.Registry())
	}
	for _, bad := range v.Bad {
		r := record(versionVector{Version: bad.Version, Header: bad.Header, Payload: bad.Payload, Preconditions: bad.Preconditions})
		if _, err := states[bad.Version-1].Apply(r); fault.KindOf(err).Code() != bad.Code {
			t.Errorf("%s: %v, want %s", bad.Name, err, bad.Code)
		}
	}
}

func checkRequest(t *testing.T, v requestVector) {
	var r ledger.Request
	var err error
	if v.CBOR != "" {
		packed, _ := hex.DecodeString(v.CBOR)
		r, err = ledger.DecodeRequestCBOR(packed)
	} else {
		r, err = ledger.DecodeRequest([]byte(v.JSON))
	}
	if err != nil || v.Code != "" {
		if err == nil || fault.KindOf(err).Code() != v.Code {
			t.Errorf("%s: %v, want %q", v.Name, err, v.Code)
		}
		return
	}
	if p := propose(t, twoOfThree(t), 1, r.Ops...); string(p.Payload) != v.Payload {
		t.Errorf("%s: %s, want %s", v.Name, p.Payload, v.Payload)
	}
}

func encodeVectors(t *testing.T, v vectors) []byte {
	t.Helper()
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	testkit.Must(t, e.Encode(v))
	return text.Bytes()
}

func makeVectors(t *testing.T) vectors {
	t.Helper()
	v := vectors{About: about}
	for _, k := range []testSigner{alice, bob, carol, dave} {
		v.Seeds = append(v.Seeds, seedVector{k.id, hex.EncodeToString(k.key.Seed()), k.public().String()})
	}
	r, s := genesis(t, 7, signersOf(2, alice, bob, carol))
	v.Registry = s.Registry().String()
	v.Log = append(v.Log, vectorOf(r, s, nil))
	add := func(p *ledger.Proposal, err error, keepers ...testSigner) {
		t.Helper()
		testkit.Must(t, err)
		r, s = commit(t, s, p, keepers...)
		v.Log = append(v.Log, vectorOf(r, s, p))
	}
	add(propose(t, s, 1, ledger.Put(name(t, "docs", "one")), ledger.Put(item(t, edge1)),
		ledger.Put(item(t, `{"kind":"region","id":"a\"\\é😀","title":"Älvsjö","labels":{"b":"2","a":"1"}}`))), nil, alice, bob)
	head := s.Head()
	now := s.CommittedAt().Add(time.Second)
	p, err := s.Propose(ledger.Request{Ops: []ledger.Op{ledger.Put(signersItem(t, signersOf(2, alice, bob, dave))), ledger.Delete("edge-1")}, Base: &head}, proposalID(2), now, now.Add(time.Hour))
	add(p, err, alice, carol)
	p, err = s.Supersede(ledger.SupersedeRequest{Head: s.Head(), Reason: `carol's key was found again: "in a drawer"`}, proposalID(3), now.Add(time.Minute), now.Add(time.Hour))
	add(p, err, bob, dave)
	v.Bad = badVectors(t, v.Log)
	v.Requests = requestVectors(t)
	return v
}

func vectorOf(r ledger.Record, s *ledger.State, p *ledger.Proposal) versionVector {
	leaf := sha256.Sum256(append([]byte{0}, r.Header...))
	v := versionVector{Version: r.Version, Header: string(r.Header), Payload: string(r.Payload), Preconditions: string(r.Preconditions),
		Hash: r.Head().Hash.String(), Leaf: hex.EncodeToString(leaf[:]), Snapshot: string(s.Snapshot())}
	if p != nil {
		v.SignThis, v.Diff = string(p.SignThis), p.Diff.String()
	}
	return v
}

func badVectors(t *testing.T, log []versionVector) []badVector {
	t.Helper()
	var bad []badVector
	add := func(name string, version uint64, kind fault.Kind, edit func(f map[string]any)) {
		r := rewrite(t, record(log[version]), edit)
		bad = append(bad, badVector{name, version, string(r.Header), string(r.Payload), string(r.Preconditions), kind.Code()})
	}
	add("one approval of two", 1, fault.QuorumFailed, func(f map[string]any) { f["approvals"] = f["approvals"].([]any)[:1] })
	add("the approvals of another version", 1, fault.InvalidSig, func(f map[string]any) {
		var other map[string]any
		json.Unmarshal([]byte(log[3].Header), &other)
		f["approvals"] = other["approvals"]
	})
	add("another reason", 3, fault.InvalidSig, func(f map[string]any) { f["supersedes"].(map[string]any)["reason"] = "none" })
	add("another previous version", 2, fault.ChainMismatch, func(f map[string]any) { f["prev_hash"] = log[0].Hash })
	add("a longer life", 1, fault.InvalidSig, func(f map[string]any) { f["expires_at"] = "2027-01-01T00:00:00.000Z" })
	add("an unknown field", 1, fault.IntegrityFail, func(f map[string]any) { f["note"] = "x" })
	add("committed after expiry", 1, fault.Expired, func(f map[string]any) { f["committed_at"] = "2026-06-01T00:00:00.000Z" })
	spelled := log[1]
	bad = append(bad, badVector{"not canonical", 1, strings.Replace(spelled.Header, ",", ", ", 1), spelled.Payload, spelled.Preconditions, fault.IntegrityFail.Code()})
	return bad
}

func requestVectors(t *testing.T) []requestVector {
	t.Helper()
	shape := map[string]any{"schema_version": "1.0.0", "ops": []any{map[string]any{"op": "put", "item": map[string]any{"kind": "region", "id": "eu", "title": "Europe"}}}}
	const payload = `{"ops":[{"item":{"id":"eu","kind":"region","title":"Europe"},"op":"put"}],"schema_version":"1.0.0"}`
	malformed := fault.Malformed.Code()
	good := `{"schema_version":"1.0.0","ops":[{"op":"put","item":{"kind":"region","id":"eu","title":"\u0045urope"}}]}`
	return []requestVector{
		{Name: "JSON", JSON: good, Payload: payload},
		{Name: "CBOR", CBOR: fmt.Sprintf("%x", sortedCBOR(t, shape)), Payload: payload},
		{Name: "a float", JSON: strings.Replace(good, "{", `{"ttl_s":1.0,`, 1), Code: malformed},
		{Name: "a key twice", JSON: strings.Replace(good, "{", `{"ops":[],`, 1), Code: malformed},
		{Name: "an unknown field", JSON: strings.Replace(good, "{", `{"x":null,`, 1), Code: malformed},
		{Name: "half of a surrogate pair", JSON: strings.Replace(good, `\u0045`, `\ud800`, 1), Code: malformed},
		{Name: "a CBOR float", CBOR: "a16574746c5f73f93c00", Code: malformed},
		{Name: "a CBOR map without a length", CBOR: "bfff", Code: malformed},
	}
}

// sortedCBOR encodes a value in CBOR in the same way every time.
func sortedCBOR(t *testing.T, value any) []byte {
	t.Helper()
	mode, err := cbor.CoreDetEncOptions().EncMode()
	testkit.Must(t, err)
	b, err := mode.Marshal(value)
	testkit.Must(t, err)
	return b
}
