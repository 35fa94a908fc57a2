package ledger_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// rewrite changes fields of a header and encodes it canonically again.
func rewrite(t testkit.T, r ledger.Record, edit func(fields map[string]any)) ledger.Record {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(r.Header, &fields); err != nil {
		t.Fatalf("%v", err)
	}
	edit(fields)
	r.Header = canonical(t, fields)
	return r
}

func canonical(t testkit.T, value any) []byte {
	t.Helper()
	plain, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("%v", err)
	}
	b, err := jcs.Transform(plain)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b
}

// sampleLog is a log that has one of everything, with the states between.
func sampleLog(t testkit.T) ([]ledger.Record, []*ledger.State) {
	t.Helper()
	r, s := genesis(t, 7, signersOf(2, alice, bob, carol))
	records, states := []ledger.Record{r}, []*ledger.State{s}
	add := func(p *ledger.Proposal, err error, keepers ...testSigner) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v", err)
		}
		r, next := commit(t, states[len(states)-1], p, keepers...)
		records, states = append(records, r), append(states, next)
	}
	last := func() *ledger.State { return states[len(states)-1] }
	add(propose(t, last(), 1, ledger.Put(name(t, "docs", "one")), ledger.Put(item(t, `{"kind":"region","id":"eu","title":"Europe","labels":{"b":"2","a":"1"}}`))), nil, alice, bob)
	head := last().Head()
	now := last().CommittedAt().Add(time.Second)
	p, err := last().Propose(ledger.Request{Ops: []ledger.Op{ledger.Delete("docs"), ledger.Put(item(t, edge1))}, Base: &head}, proposalID(2), now, now.Add(time.Hour))
	add(p, err, alice, bob, carol)
	p, err = last().Supersede(ledger.SupersedeRequest{Head: last().Head(), Reason: "docs is needed"}, proposalID(3), now.Add(time.Minute), now.Add(time.Hour))
	add(p, err, bob, carol)
	add(propose(t, last(), 4, ledger.Put(signersItem(t, signersOf(3, alice, bob, dave)))), nil, alice, carol)
	add(propose(t, last(), 5, ledger.Put(name(t, "docs", "two"))), nil, alice, bob, dave)
	return records, states
}

const edge1 = `{"kind":"node","id":"edge-1","peer_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","addrs":["edge-1.example:7070","[2001:db8::1]:7070"],"region":"eu"}`

// Every byte of a record matters: Apply rejects the record, or, where no
// signature covers the byte, the version has another hash, so that the next
// record no longer follows it.
func TestEveryByteMatters(t *testing.T) {
	records, states := sampleLog(t)
	for i, r := range records {
		var before *ledger.State
		if i > 0 {
			before = states[i-1]
		}
		for part, get := range map[string]func(*ledger.Record) *[]byte{
			"header":        func(r *ledger.Record) *[]byte { return &r.Header },
			"payload":       func(r *ledger.Record) *[]byte { return &r.Payload },
			"preconditions": func(r *ledger.Record) *[]byte { return &r.Preconditions },
		} {
			whole := *get(&r)
			for at := range whole {
				for _, flip := range []byte{0x01, 0x04, 0x20} {
					bad := r
					changed := bytes.Clone(whole)
					changed[at] ^= flip
					*get(&bad) = changed
					next, err := before.Replay(bad)
					if err == nil {
						next, err = before.Apply(bad)
					}
					if err != nil {
						continue
					}
					if part != "header" {
						t.Fatalf("version %d: a change of byte %d of the %s was not found", i, at, part)
					}
					if name := fieldAt(whole, at); name != "signed_at" && name != "committed_at" && (name != "nonce" || i > 0) {
						t.Fatalf("version %d: a change of %s in the header was not found", i, name)
					}
					if next.Head() == states[i].Head() {
						t.Fatalf("version %d: byte %d of the header does not matter", i, at)
					}
					if i+1 < len(records) {
						if _, err := next.Replay(records[i+1]); err == nil {
							t.Fatalf("version %d: a change of byte %d of the header was not found by the next", i, at)
						}
					}
				}
			}
		}
	}
}

// fieldAt is the name of the field that a byte is in.
func fieldAt(header []byte, at int) string {
	colon := bytes.LastIndex(header[:at], []byte(`":`))
	return string(header[bytes.LastIndexByte(header[:colon], '"')+1 : colon])
}

// The same with the header's fields, each with every kind of change, in
// canonical form.
func TestApplyRefuses(t *testing.T) {
	records, states := sampleLog(t)
	zero := b3.Address{}.String()
	set := func(field string, value any) func(map[string]any) {
		return func(fields map[string]any) { fields[field] = value }
	}
	approvals := func(edit func([]any) []any) func(map[string]any) {
		return func(fields map[string]any) { fields["approvals"] = edit(fields["approvals"].([]any)) }
	}
	field := func(name string, value any) func(map[string]any) {
		return approvals(func(all []any) []any { all[0].(map[string]any)[name] = value; return all })
	}
	for _, c := range []struct {
		what    string
		version int
		edit    func(map[string]any)
		kind    fault.Kind
	}{
		{"another registry", 1, set("registry", zero), fault.ChainMismatch},
		{"another version", 1, set("version", 2), fault.IntegrityFail},
		{"another previous version", 1, set("prev_hash", zero), fault.ChainMismatch},
		{"another payload", 1, set("payload_b3", zero), fault.IntegrityFail},
		{"other preconditions", 1, set("preconditions_b3", zero), fault.IntegrityFail},
		{"another proposal", 1, set("proposal_id", proposalID(77)), fault.InvalidSig},
		{"no proposal", 1, set("proposal_id", ""), fault.IntegrityFail},
		{"a longer life", 1, set("expires_at", "2027-01-01T00:00:00.000Z"), fault.InvalidSig},
		{"another signer set", 1, set("signers_version", 1), fault.Conflict},
		{"another base", 2, set("base", map[string]any{"hash": zero, "version": 1}), fault.ChainMismatch},
		{"no base", 2, set("base", nil), fault.InvalidSig},
		{"a base that nobody asked for", 1, set("base", map[string]any{"hash": states[0].Head().Hash, "version": 0}), fault.InvalidSig},
		{"another reason", 3, func(f map[string]any) { f["supersedes"].(map[string]any)["reason"] = "because" }, fault.InvalidSig},
		{"superseding another", 3, func(f map[string]any) { f["supersedes"].(map[string]any)["version"] = 1 }, fault.ChainMismatch},
		{"superseding nothing", 3, set("supersedes", nil), fault.InvalidSig},
		{"committed before the head", 1, set("committed_at", "2026-01-02T03:04:05.677Z"), fault.IntegrityFail},
		{"committed after expiry", 1, set("committed_at", "2026-01-03T00:00:00.000Z"), fault.Expired},
		{"a nonce", 1, set("nonce", "AAAAAAAAAAAAAAAAAAAAAA=="), fault.IntegrityFail},
		{"an unknown field", 1, set("note", "hello"), fault.IntegrityFail},
		{"a float", 1, set("version", 1.5), fault.IntegrityFail},
		{"another type", 1, set("type", "micronode registry header v2"), fault.IntegrityFail},
		{"no approvals", 1, set("approvals", []any{}), fault.QuorumFailed},
		{"one approval", 1, approvals(func(all []any) []any { return all[:1] }), fault.QuorumFailed},
		{"an approval twice", 1, approvals(func(all []any) []any { return append(all, all[1]) }), fault.IntegrityFail},
		{"unsorted approvals", 1, approvals(func(all []any) []any { return []any{all[1], all[0]} }), fault.IntegrityFail},
		{"another algorithm", 1, field("algo", "none"), fault.IntegrityFail},
		{"another signer's name", 1, field("signer_id", "carol"), fault.IntegrityFail},
		{"a stranger's key", 1, func(f map[string]any) {
			f["approvals"].([]any)[0].(map[string]any)["public"] = newTestSigner("x", 99).public().String()
			sortApprovals(f)
		}, fault.UnknownSigner},
		{"a revoked key", 5, func(f map[string]any) {
			for _, a := range f["approvals"].([]any) {
				if a := a.(map[string]any); a["signer_id"] == "alice" || a["signer_id"] == "bob" {
					continue
				} else {
					a["public"], a["signer_id"] = carol.public().String(), "carol"
				}
			}
			sortApprovals(f)
		}, fault.RevokedKey},
		{"another's signature", 1, func(f map[string]any) {
			all := f["approvals"].([]any)
			all[0].(map[string]any)["sig"] = all[1].(map[string]any)["sig"]
		}, fault.InvalidSig},
		{"a genesis with a proposal", 0, set("proposal_id", proposalID(1)), fault.IntegrityFail},
		{"a genesis without a nonce", 0, func(f map[string]any) { delete(f, "nonce") }, fault.IntegrityFail},
		{"a genesis of a registry", 0, set("registry", states[0].Registry()), fault.IntegrityFail},
	} {
		t.Run(c.what, func(t *testing.T) {
			var before *ledger.State
			if c.version > 0 {
				before = states[c.version-1]
			}
			bad := rewrite(t, records[c.version], c.edit)
			if bytes.Equal(bad.Header, records[c.version].Header) {
				t.Fatal("nothing was changed")
			}
			next, err := before.Apply(bad)
			if next != nil {
				t.Error("a state was returned")
			}
			testkit.WantRefusal(t, err, c.kind, "")
			if err != nil && !strings.HasPrefix(fault.DetailOf(err), fmt.Sprintf("version %d: ", c.version)) {
				t.Errorf("%v does not say which version", err)
			}
		})
	}
}

func sortApprovals(fields map[string]any) {
	all := fields["approvals"].([]any)
	for range all {
		for i := 1; i < len(all); i++ {
			if keyText(all[i-1]) > keyText(all[i]) {
				all[i-1], all[i] = all[i], all[i-1]
			}
		}
	}
}

// keyText orders approvals by the bytes of their keys.
func keyText(approval any) string {
	key, err := ledger.ParsePublicKey(approval.(map[string]any)["public"].(string))
	if err != nil {
		panic(err)
	}
	return string(key[:])
}

// Records that are valid in themselves, at the wrong version or combined
// wrongly.
func TestApplyRefusesWhatDoesNotFit(t *testing.T) {
	records, states := sampleLog(t)
	var nothing *ledger.State
	_, err := nothing.Apply(records[1])
	testkit.WantRefusal(t, err, fault.ChainMismatch, "")
	_, err = states[0].Apply(records[0])
	testkit.WantRefusal(t, err, fault.ChainMismatch, "")
	_, err = states[0].Apply(records[2])
	testkit.WantRefusal(t, err, fault.ChainMismatch, "")
	_, err = states[1].Apply(records[1])
	testkit.WantRefusal(t, err, fault.ChainMismatch, "")

	// A gap in the numbers, in a chain that has none.
	skipped := rewrite(t, records[1], func(f map[string]any) { f["version"] = 2 })
	skipped.Version = 2
	_, err = states[0].Apply(skipped)
	testkit.WantRefusal(t, err, fault.ChainMismatch, "")

	mixed := records[1]
	mixed.Payload = records[2].Payload
	_, err = states[0].Apply(mixed)
	testkit.WantRefusal(t, err, fault.IntegrityFail, "")
	large := records[1]
	large.Header = bytes.Repeat([]byte{' '}, ledger.MaxHeader+1)
	_, err = states[0].Apply(large)
	testkit.WantRefusal(t, err, fault.IntegrityFail, "")

	// The writer of a log can put any payload below a header; only what was
	// signed passes.
	for what, c := range map[string]struct {
		payload, preconditions string
		kind                   fault.Kind
	}{
		"no payload":           {"", "[]", fault.IntegrityFail},
		"not canonical":        {strings.Replace(string(records[1].Payload), ":", ": ", 1), string(records[1].Preconditions), fault.IntegrityFail},
		"a delete of nothing":  {`{"ops":[{"id":"x","op":"delete"}],"schema_version":"1.0.0"}`, `[{"hash":null,"id":"x"}]`, fault.Conflict},
		"a lie about before":   {string(records[1].Payload), strings.Replace(string(records[1].Preconditions), "null", `"`+b3.Address{}.String()+`"`, 1), fault.Conflict},
		"nothing about before": {string(records[1].Payload), `[]`, fault.Conflict},
		"another change":       {strings.Replace(string(records[1].Payload), "Europe", "Asia", 1), string(records[1].Preconditions), fault.InvalidSig},
	} {
		forged := records[1]
		forged.Payload, forged.Preconditions = []byte(c.payload), []byte(c.preconditions)
		forged = rewrite(t, forged, func(f map[string]any) {
			f["payload_b3"], f["preconditions_b3"] = b3.Of(forged.Payload), b3.Of(forged.Preconditions)
		})
		_, err := states[0].Apply(forged)
		if testkit.WantRefusal(t, err, c.kind, ""); t.Failed() {
			t.Fatal(what)
		}
	}

	// A genesis that puts more than signers.
	more := records[0]
	more.Payload = []byte(strings.Replace(string(more.Payload), `{"ops":[`, `{"ops":[`+string(records[1].Payload[len(`{"ops":[`):bytes.Index(records[1].Payload, []byte(`,{"item"`))])+",", 1))
	more = rewrite(t, more, func(f map[string]any) { f["payload_b3"] = b3.Of(more.Payload) })
	_, err = nothing.Apply(more)
	testkit.WantRefusal(t, err, fault.IntegrityFail, "")
}

// A journal lends its records for the time of a call.
func TestAStateKeepsNothingOfARecord(t *testing.T) {
	records, states := sampleLog(t)
	var s *ledger.State
	for i, r := range records {
		lent := r.Clone()
		next, err := s.Apply(lent)
		testkit.Must(t, err)
		clear(lent.Header)
		clear(lent.Payload)
		clear(lent.Preconditions)
		same(t, fmt.Sprint("version ", i), next, states[i])
		opened, err := ledger.OpenSnapshot(next.Snapshot())
		testkit.Must(t, err)
		s = opened
	}
}

// Any damage to any part, and not only single bits.
func TestDamageIsFound(t *testing.T) {
	records, states := sampleLog(t)
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(1, len(records)-1).Draw(t, "version")
		bad := records[i]
		part := rapid.SampledFrom([]*[]byte{&bad.Header, &bad.Payload, &bad.Preconditions}).Draw(t, "part")
		whole := bytes.Clone(*part)
		at := rapid.IntRange(0, len(whole)-1).Draw(t, "at")
		to := min(len(whole), at+rapid.IntRange(0, 8).Draw(t, "cut"))
		*part = append(append(whole[:at:at], rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "paste")...), whole[to:]...)
		if bytes.Equal(*part, whole) {
			t.Skip("the same again")
		}
		next, err := states[i-1].Apply(bad)
		if err == nil && next.Head() == states[i].Head() {
			t.Fatalf("damage was not found")
		}
		if err == nil && !bytes.Equal(bad.Payload, records[i].Payload) {
			t.Fatalf("another payload was accepted")
		}
	})
}
