package gossip

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// Fingerprints tell messages apart, whatever their length, and differ between
// nodes.
func TestFingerprints(t *testing.T) {
	one, other, room := newFingerprinter(), newFingerprinter(), new([fingerprintSize]byte)
	seen := map[fingerprint]int{}
	msg := make([]byte, 300)
	for n := range msg {
		for _, last := range []byte{0, 1} {
			msg[n] = last
			f := one.of(msg[:n+1], room)
			if f == (fingerprint{}) || f != one.of(slices.Clone(msg[:n+1]), room) {
				t.Fatal("the same message has two fingerprints, or none")
			}
			if f == other.of(msg[:n+1], room) {
				t.Fatal("two nodes have the same key")
			}
			seen[f]++
		}
		msg[n] = 0
	}
	testkit.Equal(t, "fingerprints", len(seen), 2*len(msg))
}

// collidingFingerprint is a fingerprint with few home slots and fewer keys, so
// that they collide.
func collidingFingerprint(t *rapid.T) fingerprint {
	return fingerprint{rapid.Uint64Range(13, 18).Draw(t, "a"), rapid.Uint64Range(0, 40).Draw(t, "b")}
}

func TestTableAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set fingerprintSet
		model := map[fingerprint]bool{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			f := collidingFingerprint(t)
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

// The history against a list: what is in it is found by its fingerprint and,
// once indexed, by its id; what was evicted is found by neither.
func TestHistoryAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := int64(rapid.IntRange(600, 40*600).Draw(t, "most"))
		h := newHistory(most, nil)
		h.firstSeq, h.nextSeq, h.indexed, h.fingerprinted = 1<<32-20, 1<<32-20, 1<<32-20, 1<<32-20 // where the lower halves of numbers wrap around
		var model []*storedMessage
		var weight int64
		all := map[fingerprint]*storedMessage{}
		for step := range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				h.indexIDs()
			case 1:
				clock := int64(rapid.IntRange(0, step).Draw(t, "clock"))
				h.expire(clock)
				for len(model) > 0 && model[0].expired(clock) {
					weight -= model[0].memorySize()
					model = model[1:]
				}
			default:
				f := collidingFingerprint(t)
				if all[f] != nil {
					continue
				}
				l := &storedMessage{fingerprint: f, expires: int64(step), envelope: oap.Gossip{Msg: fmt.Appendf(nil, "%d %*s", step, rapid.IntRange(1, 700).Draw(t, "size"), "")}}
				all[f] = l
				h.add([]*storedMessage{l})
				if l.memorySize() > most {
					continue
				}
				for weight+l.memorySize() > most {
					weight -= model[0].memorySize()
					model = model[1:]
				}
				model, weight = append(model, l), weight+l.memorySize()
			}
			here, next := h.since(0, nil)
			if !slices.Equal(here, model) || h.bytes != weight || h.byFingerprint.count > len(model) || next != h.position() {
				t.Fatalf("%d messages of %d bytes, want %d of %d", len(here), h.bytes, len(model), weight)
			}
			if rapid.Bool().Draw(t, "nobody looks") {
				continue
			}
			for f, l := range all {
				if held := slices.Contains(model, l); held != (h.findByFingerprint(f) == l) {
					t.Fatalf("a message is found: %v", !held)
				}
			}
			if len(all) > 0 && h.byFingerprint.count != len(model) {
				t.Fatalf("%d places for %d messages", h.byFingerprint.count, len(model))
			}
		}
		var ids []b3.Address
		for _, l := range all {
			ids = append(ids, b3.Of(l.envelope.Msg))
		}
		if got := h.filterHeld(ids); len(got) != len(model) || len(h.byID) != len(model) {
			t.Fatalf("%d are found by their ids, %d of %d have one", len(got), len(h.byID), len(model))
		}
		if others := h.addHolders(ids, 7); len(others) != len(ids)-len(model) {
			t.Fatalf("%d of %d are not here", len(others), len(ids))
		}
		for _, l := range model {
			if !l.hasHolder(7) || h.findByID(l.messageID()) != l {
				t.Fatal("a message was not marked, or is not found")
			}
		}
	})
}

// Ids that were known when their messages were evicted are remembered, the
// newest, as many as there is room for.
func TestEvictedIDs(t *testing.T) {
	p := &evictedIDs{fingerprinter: newFingerprinter()}
	ids := idsOf(2 * maxEvictedIDs)
	testkit.Equal(t, "of nothing", len(p.exclude(ids[:5])), 5)
	for at := 0; at < len(ids); at += 1000 {
		p.add(ids[at:min(at+1000, len(ids))])
		p.add(ids[at:min(at+10, len(ids))]) // again
	}
	testkit.Equal(t, "the newest", len(p.exclude(slices.Clone(ids[len(ids)-maxEvictedIDs/2:]))), 0)
	oldest := p.exclude(slices.Clone(ids[:maxEvictedIDs]))
	testkit.Equal(t, "the oldest", len(oldest), maxEvictedIDs)
	if held := p.current.count + p.previous.count; held > maxEvictedIDs {
		t.Errorf("%d are remembered", held)
	}
	if mixed := p.exclude([]b3.Address{ids[0], ids[len(ids)-1], ids[1]}); !slices.Equal(mixed, ids[:2]) {
		t.Errorf("%d are left of three, of which one is remembered", len(mixed))
	}
}

// Peers name messages while others come and go: nothing is left behind in the
// index, and everything in the history is found.
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
					h.indexIDs()
				}
			}
		})
	}
	for i := range 20_000 {
		h.add([]*storedMessage{{fingerprint: testFingerprint(i), envelope: oap.Gossip{Msg: fmt.Append(nil, i)}}})
	}
	close(done)
	all.Wait()
	h.indexIDs()
	here, _ := h.since(0, nil)
	testkit.Equal(t, "ids", len(h.byID), len(here))
	for _, l := range here {
		if h.findByID(l.messageID()) != l {
			t.Fatal("a message is not found")
		}
	}
}
