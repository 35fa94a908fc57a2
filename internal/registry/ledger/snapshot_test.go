package ledger_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

func TestSnapshotIsTheWholeState(t *testing.T) {
	_, states := sampleLog(t)
	for i, s := range states {
		opened, err := ledger.OpenSnapshot(s.Snapshot())
		if err != nil {
			t.Fatalf("version %d: %v\n%s", i, err, s.Snapshot())
		}
		same(t, fmt.Sprint("version ", i), opened, s)
		if opened.Head() != s.Head() || opened.Registry() != s.Registry() || !opened.CommittedAt().Equal(s.CommittedAt()) || opened.Len() != s.Len() ||
			opened.SignersVersion() != s.SignersVersion() || !slices.Equal(opened.SignerVersions(), s.SignerVersions()) || opened.Signers().M != s.Signers().M {
			t.Errorf("version %d: opened as something else", i)
		}
		for item := range s.Items() {
			if got, ok := opened.Item(item.ID); !ok || got.Hash != item.Hash || got.Kind != item.Kind {
				t.Errorf("version %d: %s is %v", i, item.ID, got)
			}
		}
		a, goneA := s.Retired(carol.public())
		b, goneB := opened.Retired(carol.public())
		if a != b || goneA != goneB || goneA != (i >= 4) {
			t.Errorf("version %d: carol went in %d (%t), opened: %d (%t)", i, a, goneA, b, goneB)
		}
	}
}

func TestReadingAState(t *testing.T) {
	_, states := sampleLog(t)
	s := states[len(states)-1]
	var ids []string
	for item := range s.Items() {
		if ids = append(ids, item.ID); item.ID == "eu" {
			break
		}
	}
	if fmt.Sprint(ids) != "[docs eu]" || s.Len() != 3 {
		t.Errorf("%v of %d", ids, s.Len())
	}
	if _, ok := s.Item("edge-1"); ok {
		t.Error("a deleted item is still there")
	}
	set := s.Signers()
	set.Keys[0].ID = "mallory"
	s.SignerVersions()[0] = 99
	if s.Signers().Keys[0].ID != "alice" || s.SignerVersions()[0] != 0 {
		t.Error("a reader changed the state")
	}
}

// Invalid snapshots are rejected: as text, and as a history that cannot have
// happened.
func TestSnapshotsAreStrict(t *testing.T) {
	_, states := sampleLog(t)
	first, plain, rotated := string(states[0].Snapshot()), string(states[2].Snapshot()), string(states[4].Snapshot())
	lines := func(text string) []string { return strings.SplitAfter(text, "\n") }
	swap := func(text string, a, b int) string {
		l := lines(text)
		l[a], l[b] = l[b], l[a]
		return strings.Join(l, "")
	}
	find := func(text, part string) int {
		if i := slices.IndexFunc(lines(text), func(l string) bool { return strings.HasPrefix(l, part) }); i >= 0 {
			return i
		}
		return slices.IndexFunc(lines(text), func(l string) bool { return strings.Contains(l, part) })
	}
	without := func(text, part, count string) string {
		l := slices.Delete(lines(text), find(text, part), find(text, part)+1)
		return replace(t, strings.Join(l, ""), count)
	}
	line := func(text, part, old, new string) string {
		l := lines(text)
		i := find(text, part)
		l[i] = replace(t, l[i], old+" => "+new)
		return strings.Join(l, "")
	}
	other := b3Text("other")
	for what, bad := range map[string]string{
		"nothing":                             "",
		"an empty line":                       "\n",
		"another type":                        replace(t, plain, "snapshot v1 => snapshot v2"),
		"a space more":                        replace(t, plain, `"head": => "head" :`),
		"no last line end":                    plain[:len(plain)-1],
		"something behind":                    plain + "{}\n",
		"one line less":                       strings.Join(lines(plain)[:len(lines(plain))-2], ""),
		"one item less":                       without(plain, `"id":"edge-1","kind"`, `"items":3 => "items":2`),
		"items not sorted":                    swap(plain, 1, 2),
		"an item twice":                       strings.Join(slices.Insert(lines(replace(t, plain, `"items":3 => "items":4`)), 2, lines(plain)[1]), ""),
		"an item that is none":                line(plain, `"title"`, "Europe", "a\\u0000b"),
		"an item with a field more":           line(plain, `"title"`, `"title"`, `"titel"`),
		"no head":                             withoutHead(t, plain),
		"a float":                             replace(t, plain, `"items":3 => "items":3.0`),
		"more spent than there are":           replace(t, plain, `"spent":2 => "spent":3`),
		"no item at all":                      replace(t, plain, `"items":3 => "items":0`),
		"a negative signer version":           replace(t, plain, `"signer_versions":[0] => "signer_versions":[-1]`),
		"signers from another version":        replace(t, plain, `"signer_versions":[0] => "signer_versions":[1]`),
		"signers from the future":             replace(t, plain, `"signer_versions":[0] => "signer_versions":[0,9]`),
		"signers twice":                       replace(t, plain, `"signer_versions":[0] => "signer_versions":[0,1,1]`),
		"signers never":                       replace(t, plain, `"signer_versions":[0] => "signer_versions":[]`),
		"signers changed by the head, unsaid": replace(t, plain, `"signer_versions":[0] => "signer_versions":[0,2]`),
		"no signer set":                       without(plain, `"kind":"signers"`, `"items":3 => "items":2`),
		"m over n":                            replace(t, plain, `"m":2 => "m":4`),
		"signers that are a name":             line(plain, `"kind":"signers"`, lines(plain)[find(plain, `"kind":"signers"`)], string(name(t, "signers", "x").JSON)+"\n"),
		"touched out of order":                swap(plain, find(plain, `{"id":"docs","item"`), find(plain, `{"id":"edge-1","item"`)),
		"touched with another id":             line(plain, `{"id":"docs","item"`, `{"id":"docs"`, `{"id":"dogs"`),
		"touched and not there":               line(plain, `{"id":"edge-1","item"`, "edge-1", "edge-2"),
		"touched and unchanged":               line(plain, `{"id":"edge-1","item"`, `null`, string(itemOf(states[2], "edge-1").JSON)),
		"touched and of another kind":         line(plain, `{"id":"edge-1","item"`, `null`, string(name(t, "edge-1", "x").JSON)),
		"touched and malformed":               line(plain, `{"id":"docs","item"`, `"manifest":"b3:`, `"manifest":"b4:`),
		"touched without an item":             line(plain, `{"id":"edge-1","item"`, `,"item":null`, ``),
		"a signer set out of nothing":         line(rotated, `{"id":"signers","item"`, string(itemOf(states[3], "signers").JSON), "null"),
		"spent out of order":                  swap(plain, find(plain, proposalID(1)), find(plain, proposalID(2))),
		"spent in the future":                 line(plain, proposalID(2), `"version":2`, `"version":3`),
		"spent by nobody":                     line(plain, proposalID(2), `"version":2`, `"version":0`),
		"spent twice":                         line(plain, proposalID(2), proposalID(2), proposalID(1)),
		"spent and expired":                   line(plain, proposalID(1), `2026-01-02T04`, `2026-01-02T02`),
		"spent and no id":                     line(plain, proposalID(1), proposalID(1), "x"),
		"the head's proposal is lost":         without(plain, proposalID(2), `"spent":2 => "spent":1`),
		"version 0 with another hash":         replace(t, first, `"registry":"`+states[0].Registry().String()+` => "registry":"`+other),
		"version 0 with an item":              strings.Join(slices.Insert(lines(replace(t, first, `"items":1 => "items":2`)), 1, string(name(t, "docs", "x").JSON)+"\n"), ""),
		"version 0 that was before":           line(first, `{"id":"signers","item"`, `null`, string(signersItem(t, signersOf(1, alice)).JSON)),
		"retired and in the set":              line(rotated, `{"public":"`+carol.public().String(), carol.public().String(), alice.public().String()),
		"retired in another version":          line(rotated, `{"public":"`+carol.public().String(), `"version":4`, `"version":3`),
		"retired under another name":          line(rotated, `{"public":"`+carol.public().String(), `"carol"`, `"carla"`),
		"retired and never there":             line(rotated, `{"public":"`+carol.public().String(), carol.public().String(), newTestSigner("x", 99).public().String()),
		"retired, and that is not said":       without(rotated, `{"public":"`+carol.public().String(), `"retired":1 => "retired":0`),
		"one more is retired": strings.Join(slices.Insert(lines(replace(t, rotated, `"retired":1 => "retired":2`)), retiredAt(rotated, newTestSigner("x", 99)),
			`{"public":"`+newTestSigner("x", 99).public().String()+`","signer_id":"x","version":4}`+"\n"), ""),
		"retired twice": strings.Join(slices.Insert(lines(replace(t, rotated, `"retired":1 => "retired":2`)), find(rotated, `{"public":"`+carol.public().String()),
			lines(rotated)[find(rotated, `{"public":"`+carol.public().String())]), ""),
	} {
		s, err := ledger.OpenSnapshot([]byte(bad))
		if s != nil {
			t.Errorf("%s: a state was returned", what)
		}
		if testkit.WantRefusal(t, err, fault.IntegrityFail, ""); t.Failed() {
			t.Fatal(what)
		}
	}
}

// replace is one replacement that must have something to replace.
func replace(t *testing.T, text, change string) string {
	t.Helper()
	old, new, _ := strings.Cut(change, " => ")
	if !strings.Contains(text, old) {
		t.Fatalf("%q is not in\n%s", old, text)
	}
	return strings.Replace(text, old, new, 1)
}

func withoutHead(t *testing.T, text string) string {
	t.Helper()
	from := strings.Index(text, `"head":{`) + len(`"head":`)
	return text[:from] + "null" + text[from+strings.Index(text[from:], "}")+1:]
}

func b3Text(text string) string {
	h, _ := name(ignoreFailures{}, "x", text).Manifest()
	return h.String()
}

// ignoreFailures is for helpers that cannot fail.
type ignoreFailures struct{}

func (ignoreFailures) Helper()               {}
func (ignoreFailures) Fatalf(string, ...any) {}
func (ignoreFailures) Errorf(string, ...any) {}

// retiredAt is the line where a retired key belongs.
func retiredAt(text string, k testSigner) int {
	l := strings.SplitAfter(text, "\n")
	i := slices.IndexFunc(l, func(l string) bool { return strings.HasPrefix(l, `{"public"`) })
	key, own := carol.public(), k.public()
	if bytes.Compare(key[:], own[:]) < 0 {
		i++
	}
	return i
}

// Many commits on a few items: what a state remembers of past proposals stays
// bounded by what has not expired.
func TestPastProposalsAreForgotten(t *testing.T) {
	_, s := genesis(t, 7, signersOf(1, alice))
	for i := range 300 {
		now := s.CommittedAt().Add(time.Second)
		p, err := s.Propose(ledger.Request{Ops: []ledger.Op{ledger.Put(name(t, "docs", fmt.Sprint(i)))}}, proposalID(i), now, now.Add(10*time.Second))
		testkit.Must(t, err)
		if _, s, err = s.Commit(p, []ledger.Approval{alice.approve(p, now)}, now); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(s.Snapshot()), "proposal_id"); n != min(i+1, 11) {
			t.Fatalf("after %d commits %d proposals are remembered", i+1, n)
		}
	}
}
