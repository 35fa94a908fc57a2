package ledger_test

import (
	"bytes"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// checkRefusalKind: whatever the input, the refusal is of a known kind.
func checkRefusalKind(t *testing.T, err error) {
	t.Helper()
	if kind := fault.KindOf(err); kind == fault.Internal {
		t.Fatalf("not a refusal: %v", err)
	}
}

// checkProposed takes an accepted request to the end: proposed, approved, committed
// and verified.
func checkProposed(t *testing.T, s *ledger.State, r ledger.Request) {
	t.Helper()
	p, err := s.Propose(r, proposalID(1), start, start.Add(time.Hour))
	if err != nil {
		checkRefusalKind(t, err)
		return
	}
	if back, err := ledger.DecodePayload(p.Payload); err != nil || len(back.Ops) != len(r.Ops) {
		t.Fatalf("%s: %v", p.Payload, err)
	}
	if m, err := ledger.ParseApprovalMessage(p.SignThis); err != nil || m.PayloadB3 != p.PayloadB3 {
		t.Fatalf("%s: %v", p.SignThis, err)
	}
	if p.Diff.String() == "" {
		t.Fatal("a change without a diff")
	}
	_, next := commit(t, s, p, alice, bob)
	if opened, err := ledger.OpenSnapshot(next.Snapshot()); err != nil || opened.Head() != next.Head() {
		t.Fatalf("%s: %v", next.Snapshot(), err)
	}
}

func FuzzRequestJSON(f *testing.F) {
	f.Add([]byte(request(docs)))
	f.Add([]byte(request(docs, `{"op":"put","item":`+edge1+`}`, `{"op":"delete","id":"x"}`)))
	f.Add([]byte(`{"schema_version":"1.0.0","ops":[{"op":"put","item":{"kind":"region","id":"a","title":"A \u00e9","labels":{"b":"1","a":"2"}}}],"base":null,"ttl_s":60}`))
	f.Add([]byte(`{"schema_version":"1.0.0","ops":[],"ops":[],"ttl_s":1.5}`))
	s := twoOfThree(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ledger.DecodeRequest(data)
		if err != nil {
			checkRefusalKind(t, err)
			return
		}
		checkProposed(t, s, r)
	})
}

func FuzzRequestCBOR(f *testing.F) {
	item := map[string]any{"kind": "region", "id": "docs", "title": "x"}
	f.Add(encodeCBOR(f, map[string]any{"schema_version": "1.0.0", "ops": []any{map[string]any{"op": "put", "item": item}}, "ttl_s": 5}))
	f.Add(encodeCBOR(f, map[string]any{"schema_version": "1.0.0", "ops": []any{map[string]any{"op": "delete", "id": "x"}}, "ttl_s": 5.5}))
	f.Add([]byte{0xbf, 0xff})
	s := twoOfThree(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ledger.DecodeRequestCBOR(data)
		if err != nil {
			checkRefusalKind(t, err)
			return
		}
		checkProposed(t, s, r)
	})
}

func FuzzSnapshot(f *testing.F) {
	_, states := sampleLog(f)
	for _, s := range states {
		f.Add(s.Snapshot())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ledger.OpenSnapshot(data)
		if err != nil {
			checkRefusalKind(t, err)
			return
		}
		if !bytes.Equal(s.Snapshot(), data) {
			t.Fatalf("opened\n%s\nwhich is\n%s", data, s.Snapshot())
		}
	})
}

// fixHashes makes a header agree with its payload and preconditions, as far as
// it is one: damage that the hashes would reveal at once gets further in this
// way.
func fixHashes(header, payload, preconditions []byte) []byte {
	for field, content := range map[string][]byte{`"payload_b3":"`: payload, `"preconditions_b3":"`: preconditions} {
		at := bytes.Index(header, []byte(field))
		if at += len(field); at < len(field) || at+len(b3.Address{}.String()) > len(header) {
			continue
		}
		header = append(header[:at:at], append([]byte(b3.Of(content).String()), header[at+len(b3.Address{}.String()):]...)...)
	}
	return header
}

// FuzzRecord applies any record to a state. If it is accepted, its payload is
// the one that was signed.
func FuzzRecord(f *testing.F) {
	records, states := sampleLog(f)
	for _, r := range records {
		f.Add(r.Version, r.Header, r.Payload, r.Preconditions, false)
		f.Add(r.Version, r.Header, r.Payload, r.Preconditions, true)
	}
	f.Fuzz(func(t *testing.T, version uint64, header, payload, preconditions []byte, mended bool) {
		if mended {
			header = fixHashes(header, payload, preconditions)
		}
		r := ledger.Record{Version: version, Header: header, Payload: payload, Preconditions: preconditions}
		var before *ledger.State
		if version > 0 {
			before = states[min(version-1, uint64(len(states)-1))]
		}
		next, err := before.Apply(r)
		if err != nil {
			checkRefusalKind(t, err)
			return
		}
		if next.Head() != r.Head() {
			t.Fatal("the head is another than the record")
		}
		if version > 0 && (version >= uint64(len(records)) || !bytes.Equal(payload, records[version].Payload)) {
			t.Fatalf("a payload was accepted that nobody signed: %s", payload)
		}
	})
}

func FuzzInspect(f *testing.F) {
	s := twoOfThree(f)
	p := propose(f, s, 1, ledger.Put(name(f, "docs", "x")))
	f.Add(p.SignThis)
	super, err := s.Supersede(ledger.SupersedeRequest{Head: s.Head(), Reason: "x", Ops: []ledger.Op{ledger.Put(name(f, "docs", "x"))}}, proposalID(1), start, start.Add(time.Hour))
	testkit.Must(f, err)
	f.Add(super.SignThis)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ledger.ParseApprovalMessage(data)
		if err != nil {
			checkRefusalKind(t, err)
			return
		}
		if !bytes.Equal(m.SignThis(), data) {
			t.Fatalf("%q is understood as %q", data, m.SignThis())
		}
	})
}
