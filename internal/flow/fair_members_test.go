package flow_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/flow"
)

// shared is a fair queue whose classes are shared by members.
func shared(outstanding, items int) *flow.Fair[string] {
	return flow.NewFair[string](flow.NewInventory(), flow.FairSpec{
		Service: "edge", Quantum: 1, MaxOutstanding: outstanding, Members: true, Bands: []flow.BandSpec{{Name: "work", Cap: items, Bytes: items}},
	})
}

// giveFrom offers items of class 1: the number in front is the member.
func giveFrom(f *flow.Fair[string], items ...string) (turned []string) {
	for _, item := range items {
		turned = f.Offer(1, []flow.FairItem[string]{{Class: 1, Member: uint64(item[0] - '0'), Cost: 1, Item: item}}, turned)
	}
	return turned
}

// takeAll takes what may be taken now.
func takeAll(f *flow.Fair[string]) (items []string) {
	for {
		item, ok := takeOne(f)
		if !ok {
			return items
		}
		items = append(items, item)
	}
}

// A member takes items while it has fewer outstanding than are left of what its
// class may have, those who have fewest come first, and nobody in particular
// may have all of it.
func TestMembersShareAClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expect := func(f *flow.Fair[string], when, want string) {
			t.Helper()
			if got := fmt.Sprint(takeAll(f)); got != want {
				t.Errorf("%s: took %s, want %s", when, got, want)
			}
		}
		f := shared(12, 100)
		giveFrom(f, "1a", "1b", "1c", "1d", "1e", "1f", "1g")
		expect(f, "one of six that a class may have", "[1a 1b 1c]")
		giveFrom(f, "2a", "2b", "2c")
		expect(f, "another one", "[2a 2b]")
		giveFrom(f, "3a", "3b")
		expect(f, "the last place", "[3a]")
		f.DoneBy(1, 1, 1)
		f.DoneBy(1, 1, 2)
		expect(f, "those with fewest first", "[2c]") // and one is left for who has none
		giveFrom(f, "4a")
		expect(f, "somebody new", "[4a]")

		f = shared(12, 100)
		giveFrom(f, "0a", "0b", "0c", "0d", "0e", "0f", "0g")
		expect(f, "nobody in particular", "[0a 0b 0c 0d 0e 0f]")
	})
}

// A full band evicts the newest item of the member that has the most waiting,
// and only for one that has fewer.
func TestAMemberGivesWay(t *testing.T) {
	f := shared(2, 4)
	giveFrom(f, "1a", "1b", "1c", "2a")
	for _, c := range []struct{ item, turned string }{{"1d", "[1d]"}, {"2b", "[1c]"}, {"3a", "[1b]"}, {"4a", "[2b]"}, {"5a", "[5a]"}} {
		if turned := fmt.Sprint(giveFrom(f, c.item)); turned != c.turned {
			t.Errorf("%s turned away %s, want %s", c.item, turned, c.turned)
		}
	}
}

// An item goes to a member that wants it and has less, and then it is its turn.
func TestReassign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := shared(4, 100) // two for the class, one for a member
		giveFrom(f, "1a", "1b", "1c")
		if got := fmt.Sprint(takeAll(f)); got != "[1a]" {
			t.Fatalf("took %s", got)
		}
		fits := func(item string) func(string) bool { return func(other string) bool { return other == item } }
		var noted []string
		note := func(item string) { noted = append(noted, item) }
		if f.Reassign(1, 1, fits("1a"), 2, note) || f.Reassign(1, 2, fits("1c"), 2, note) {
			t.Error("what does not wait was reassigned")
		}
		got := make(chan string)
		go func() {
			var into [1]string
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = f.Take(ctx, into[:], 1)
			got <- into[0]
		}()
		synctest.Wait()
		if !f.Reassign(1, 1, fits("1c"), 2, note) {
			t.Error("it was not reassigned")
		}
		if item := <-got; item != "1c" {
			t.Errorf("took %q", item)
		}
		giveFrom(f, "2a", "2b")
		if f.Reassign(1, 1, fits("1b"), 2, note) {
			t.Error("who has more got more")
		}
		if fmt.Sprint(noted) != "[1c]" {
			t.Errorf("noted %s, want what was reassigned", noted)
		}
		f.DoneBy(1, 1, 2)
		f.DoneBy(1, 1, 1)
	})
}
