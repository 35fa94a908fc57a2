package gossip

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/internal/oap"
)

// Fingerprints tell letters apart, whatever their length, and mean nothing to
// another node.
func TestFingerprints(t *testing.T) {
	one, other, room := newFingerprinter(), newFingerprinter(), new([fingerprintSize]byte)
	seen := map[fingerprint]int{}
	msg := make([]byte, 300)
	for n := range msg {
		for _, last := range []byte{0, 1} {
			msg[n] = last
			f := one.of(msg[:n+1], room)
			if f == (fingerprint{}) || f != one.of(slices.Clone(msg[:n+1]), room) {
				t.Fatal("the same letter has two fingerprints, or none")
			}
			if f == other.of(msg[:n+1], room) {
				t.Fatal("two nodes have the same key")
			}
			seen[f]++
		}
		msg[n] = 0
	}
	equal(t, "fingerprints", len(seen), 2*len(msg))
}

// crowded is a fingerprint out of few places and fewer keys, so that they meet.
func crowded(t *rapid.T) fingerprint {
	return fingerprint{rapid.Uint64Range(13, 18).Draw(t, "a"), rapid.Uint64Range(0, 40).Draw(t, "b")}
}

func TestTableAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set table
		model := map[fingerprint]bool{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			f := crowded(t)
			if set.has(f) != model[f] {
				t.Fatalf("has %v, want %v", set.has(f), model[f])
			}
			if !model[f] {
				set.insert(f)
				model[f] = true
			}
			if set.count != len(model) || 4*set.count > 3*len(set.slots) {
				t.Fatalf("%d of %d, %d slots", set.count, len(model), len(set.slots))
			}
		}
		for f := range model {
			if !set.has(f) {
				t.Fatal("one was lost")
			}
		}
	})
}

// The history against a list: what is here is found by its fingerprint and, once
// somebody asks, by its id; what is gone is found by neither.
func TestHistoryAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := int64(rapid.IntRange(600, 40*600).Draw(t, "most"))
		h := newHistory(most, nil)
		h.first, h.next, h.indexed, h.placed = 1<<32-20, 1<<32-20, 1<<32-20, 1<<32-20 // where the halves of numbers begin anew
		var model []*letter
		var weight int64
		all := map[fingerprint]*letter{}
		for step := range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				h.index()
			case 1:
				clock := int64(rapid.IntRange(0, step).Draw(t, "clock"))
				h.expire(clock)
				for len(model) > 0 && model[0].expired(clock) {
					weight -= model[0].weight()
					model = model[1:]
				}
			default:
				f := crowded(t)
				if all[f] != nil {
					continue
				}
				l := &letter{print: f, expires: int64(step), out: oap.Gossip{Msg: fmt.Appendf(nil, "%d %*s", step, rapid.IntRange(1, 700).Draw(t, "size"), "")}}
				all[f] = l
				h.add([]*letter{l})
				if l.weight() > most {
					continue
				}
				for weight+l.weight() > most {
					weight -= model[0].weight()
					model = model[1:]
				}
				model, weight = append(model, l), weight+l.weight()
			}
			here, next := h.since(0, nil)
			if !slices.Equal(here, model) || h.bytes != weight || h.places.count > len(model) || next != h.position() {
				t.Fatalf("%d letters of %d bytes, want %d of %d", len(here), h.bytes, len(model), weight)
			}
			if rapid.Bool().Draw(t, "nobody looks") {
				continue
			}
			for f, l := range all {
				if held := slices.Contains(model, l); held != (h.like(f) == l) {
					t.Fatalf("a letter is found: %v", !held)
				}
			}
			if len(all) > 0 && h.places.count != len(model) {
				t.Fatalf("%d places for %d letters", h.places.count, len(model))
			}
		}
		var ids []b3.Address
		for _, l := range all {
			ids = append(ids, b3.Of(l.out.Msg))
		}
		if got := h.holding(ids); len(got) != len(model) || len(h.byID) != len(model) {
			t.Fatalf("%d are found by their ids, %d of %d have one", len(got), len(h.byID), len(model))
		}
		if others := h.mark(ids, 7); len(others) != len(ids)-len(model) {
			t.Fatalf("%d of %d are not here", len(others), len(ids))
		}
		for _, l := range model {
			if !l.marked(7) || h.find(l.address()) != l {
				t.Fatal("a letter was not marked, or is not found")
			}
		}
	})
}

// Ids that were known when their letters left are remembered, as many as there
// is room for, the newest.
func TestPast(t *testing.T) {
	p := &past{prints: newFingerprinter()}
	ids := idsOf(2 * pastIDs)
	equal(t, "of nothing", len(p.without(ids[:5])), 5)
	for at := 0; at < len(ids); at += 1000 {
		p.add(ids[at:min(at+1000, len(ids))])
		p.add(ids[at:min(at+10, len(ids))]) // again
	}
	equal(t, "the newest", len(p.without(slices.Clone(ids[len(ids)-pastIDs/2:]))), 0)
	oldest := p.without(slices.Clone(ids[:pastIDs]))
	equal(t, "the oldest", len(oldest), pastIDs)
	if held := p.young.count + p.old.count; held > pastIDs {
		t.Errorf("%d are remembered", held)
	}
	if mixed := p.without([]b3.Address{ids[0], ids[len(ids)-1], ids[1]}); !slices.Equal(mixed, ids[:2]) {
		t.Errorf("%d are left of three, of which one is remembered", len(mixed))
	}
}

// Peers name letters while others come and go: nothing is left behind in the
// index, and all that is here is found.
func TestTheHistoryIsIndexedWhileItMoves(t *testing.T) {
	h := newHistory(50*600, nil)
	var all sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					h.index()
				}
			}
		})
	}
	for i := range 20_000 {
		h.add([]*letter{{print: printOf(i), out: oap.Gossip{Msg: fmt.Append(nil, i)}}})
	}
	close(done)
	all.Wait()
	h.index()
	here, _ := h.since(0, nil)
	equal(t, "ids", len(h.byID), len(here))
	for _, l := range here {
		if h.find(l.address()) != l {
			t.Fatal("a letter is not found")
		}
	}
}
