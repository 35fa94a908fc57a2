package mailbox

import (
	"fmt"
	"testing"
	"time"

	"micronode/fault"
	"micronode/internal/testkit"
)

// A key is displaced from the box of the sender that has the most keys, oldest
// first. One whose message is being stored stays.
func TestKeysAreDisplacedFromTheRichest(t *testing.T) {
	const most = 10
	table := newKeyTable()
	at := time.Unix(1, 0)
	add := func(sender, box string, i int) *keyEntry {
		t.Helper()
		_, err := table.makeRoom("test", most)
		testkit.Must(t, err)
		at = at.Add(time.Second)
		k := &keyEntry{key: hashKey(Message{Sender: sender, Box: box, Key: fmt.Sprint(i)}), at: at}
		table.add(k, sender, box)
		return k
	}
	has := func(k *keyEntry) bool { return table.byHash[k.key] == k }
	old := add("till", "payments", 0)
	var few, many []*keyEntry
	for i := range 3 {
		few = append(few, add("greedy", "few", i))
	}
	for i := range 6 {
		many = append(many, add("greedy", "many", i))
	}
	add("new", "box", 0)
	add("new", "box", 1)
	if !has(old) || !has(few[0]) || has(many[0]) || has(many[1]) || !has(many[2]) || len(table.byHash) != most {
		t.Errorf("old %v, few %v, many %v %v %v; %d are remembered", has(old), has(few[0]), has(many[0]), has(many[1]), has(many[2]), len(table.byHash))
	}
	many[2].pending = make(chan struct{})
	add("new", "box", 2)
	if !has(many[2]) || has(many[3]) {
		t.Error("a key whose message is being stored was displaced")
	}
	for _, k := range table.byHash {
		k.pending = make(chan struct{})
	}
	_, err := table.makeRoom("test", most)
	testkit.WantKind(t, err, fault.Busy, "all are being stored")
	table.prune(at)
	if len(table.byHash) != 0 || len(table.senders) != 0 || table.byAge.n != 0 {
		t.Errorf("%d keys of %d senders are left, %d in the list", len(table.byHash), len(table.senders), table.byAge.n)
	}
}
