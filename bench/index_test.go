package main

import (
	"strings"
	"testing"

	"micronode/b3"
	"micronode/bench/peers"
)

// The first three targets fail, for as many keys as they should.
func TestBadLuck(t *testing.T) {
	always, seldom := failFirstTargets(1), failFirstTargets(10)
	struck := 0
	for i := range 1000 {
		key := peers.Keys(1, uint64(i))[0].Address
		if got := [4]peers.Behaviour{always(key, 0), always(key, 1), always(key, 2), always(key, 3)}; got != [4]peers.Behaviour{peers.Silent, peers.Slow, peers.HasNone, peers.HasProviders} {
			t.Fatalf("those who were asked did %v", got)
		}
		if seldom(key, 0) == peers.Silent {
			struck++
		}
	}
	if struck < 60 || struck > 150 {
		t.Errorf("it struck %d of 1000, and one in ten was meant", struck)
	}
	if failFirstTargets(10)(b3.Address{1}, 0) != peers.HasProviders {
		t.Error("it strikes all")
	}
}

// The rows and axes of the index run as a whole; of the two about the DHT, one,
// and one turn of it.
func TestIndexRows(t *testing.T) {
	for _, work := range append(indexRows(short), indexAxes(short)...) {
		if row, ok := work.(Row); ok && strings.Contains(row.Name, "DHT") {
			if strings.HasSuffix(row.Name, "hedged") {
				continue
			}
			row.Rounds = 1
			work = row
		}
		result, err := measure(t.Context(), work)
		if err != nil {
			t.Errorf("%s: %v", work.Title(), err)
			continue
		}
		if figure := result.Ours.Figure; !(figure > 0) {
			t.Errorf("%s: %v", work.Title(), figure)
		}
	}
}
