package ledger_test

import (
	"encoding/json"
	"testing"

	"micronode/b3"
	"micronode/internal/registry/ledger"
)

func TestDiffForPeople(t *testing.T) {
	s := twoOfThree(t)
	s = change(t, s, 1, []ledger.Op{
		ledger.Put(name(t, "docs", "one")),
		ledger.Put(item(t, edge1)),
		ledger.Put(item(t, `{"kind":"region","id":"eu","title":"Europe","labels":{"tier":"1"}}`)),
	}, alice, bob)
	newBob := newTestSigner("bob", 22)
	p := propose(t, s, 2,
		ledger.Put(signersItem(t, signersOf(3, alice, newBob, dave))),
		ledger.Put(name(t, "docs", "two")),
		ledger.Put(item(t, `{"kind":"node","id":"edge-1","peer_id":"`+peer+`","addrs":["edge-1.example:7070"]}`)),
		ledger.Put(item(t, `{"kind":"region","id":"asia","title":"the far -> east"}`)),
		ledger.Delete("eu"),
	)
	want := `+ region asia title "the far -> east"
~ name docs manifest ` + b3.Of([]byte("one")).String() + ` -> ` + b3.Of([]byte("two")).String() + `
~ node edge-1 addrs ["edge-1.example:7070","[2001:db8::1]:7070"] -> ["edge-1.example:7070"] region eu -> nothing
- region eu labels {"tier":"1"} title Europe
~ signers m 2 -> 3 of 3
  - carol ` + carol.public().String() + `
  ~ bob ` + bob.public().String() + ` -> ` + newBob.public().String() + `
  + dave ` + dave.public().String() + `
`
	if got := p.Diff.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	text, err := json.Marshal(p.Diff[3])
	if want := `{"id":"eu","kind":"region","change":"removed","before":{"id":"eu","kind":"region","labels":{"tier":"1"},"title":"Europe"}}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	same := propose(t, s, 3, ledger.Put(signersItem(t, signersOf(2, alice, bob, carol, dave))))
	if want := "~ signers m 2 of 4\n  + dave " + dave.public().String() + "\n"; same.Diff.String() != want {
		t.Errorf("%s", same.Diff)
	}
	first := ledger.Diff{{ID: "signers", Kind: "signers", Change: ledger.Added, After: signersItem(t, signersOf(1, alice)).JSON}}
	if want := "+ signers m 1 of 1\n  + alice " + alice.public().String() + "\n"; first.String() != want {
		t.Errorf("%s", first)
	}
}
