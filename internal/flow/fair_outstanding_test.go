package flow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/flow"
)

// counted is a fair queue whose consumers are shared out.
func counted(hands int) *flow.Fair[string] {
	return flow.NewFair[string](flow.NewInventory(), flow.FairSpec{
		Service: "edge", Quantum: 1, MaxOutstanding: hands, Bands: []flow.BandSpec{{Name: "work", Cap: 100, Bytes: 100}},
	})
}

// takeOne takes what may be taken now. It is called in a bubble.
func takeOne(f *flow.Fair[string]) (string, bool) {
	var into [1]string
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := f.Take(ctx, into[:], 1)
	return into[0], err == nil
}

// A class takes items while it has fewer outstanding than are left, and no more
// until one of its items is done; another class can still take one.
func TestAClassTakesWhatIsNotOutstanding(t *testing.T) {
	for hands, alone := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 8: 4, 9: 5} {
		synctest.Test(t, func(t *testing.T) {
			f := counted(hands)
			give(f, 1, "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9")
			n := 0
			for {
				if _, ok := takeOne(f); !ok {
					break
				}
				n++
			}
			if n != alone {
				t.Errorf("of %d hands, one class alone has %d, want %d", hands, n, alone)
			}
			give(f, 1, "b1")
			if item, ok := takeOne(f); ok != (hands > 1) || ok && item != "b1" {
				t.Errorf("of %d hands, none is left for another class: %q", hands, item)
			}
			if hands > 1 {
				f.Done(1, 'b')
			}
			f.Done(1, 'a')
			want := "a"
			if hands == 1 {
				want = "b" // it has waited
			}
			if item, ok := takeOne(f); !ok || item[:1] != want {
				t.Errorf("a hand of %d is free again: took %q", hands, item)
			}
		})
	}
}

// A consumer that waits is woken when Done allows the next item.
func TestTheEndOfAnItemWakesAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := counted(2)
		give(f, 1, "a1", "a2")
		if item, ok := takeOne(f); !ok || item != "a1" {
			t.Fatal("nothing was taken")
		}
		got := make(chan string)
		go func() {
			var into [1]string
			_, _ = f.Take(context.Background(), into[:], 1)
			got <- into[0]
		}()
		synctest.Wait()
		select {
		case item := <-got:
			t.Fatalf("%s was taken while its class had its share", item)
		default:
		}
		f.Done(1, 'a')
		if item := <-got; item != "a2" {
			t.Errorf("took %q", item)
		}
	})
}

// What a consumer would free: the items of its own class, and a class that has
// no consumer; not a class that waits for its own.
func TestContenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := counted(3)
		expect := func(when string, a, b int) {
			t.Helper()
			if ofA, ofB := f.Contenders(1, 'a'), f.Contenders(1, 'b'); ofA != a || ofB != b {
				t.Errorf("%s: %d for a, %d for b; want %d and %d", when, ofA, ofB, a, b)
			}
		}
		expect("nothing waits", 0, 0)
		give(f, 1, "a1", "a2", "a3", "a4", "a5")
		takeOne(f)
		takeOne(f)
		expect("a has its share", 3, 0)
		give(f, 1, "b1", "b2")
		expect("b has nothing, and may take one", 4, 2)
		takeOne(f)
		expect("both wait for themselves", 3, 1)
	})
}

// A closed queue returns what it holds, whatever is outstanding.
func TestAClosedQueueHoldsNobodyUp(t *testing.T) {
	f := counted(2)
	give(f, 1, "a1", "a2", "a3")
	if got := drainAll(f, 1); got != "a1 a2 a3" {
		t.Error(got)
	}
}

func TestDoneWithoutAnItem(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("nobody noticed")
		}
	}()
	counted(1).Done(1, 7)
}

// A withdrawn item frees its slot, and is counted as expired.
func TestWithdrawnItemsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inv := flow.NewInventory()
		f := flow.NewFair[string](inv, flow.FairSpec{Service: "edge", Quantum: 1, Waiting: 1, Bands: []flow.BandSpec{{Name: "work", Cap: 2, Bytes: 2}}})
		give(f, 1, "a1", "a2")
		room := make(chan error)
		go func() { room <- f.AwaitRoom(context.Background(), 1, 1) }()
		synctest.Wait()
		is := func(want string) func(string) bool { return func(item string) bool { return item == want } }
		if f.Withdraw(1, 'b', is("a1")) || f.Withdraw(1, 'a', is("a3")) {
			t.Error("withdrew what was not there")
		}
		if !f.Withdraw(1, 'a', is("a1")) || f.Withdraw(1, 'a', is("a1")) {
			t.Error("what waits can be withdrawn once")
		}
		if err := <-room; err != nil {
			t.Error("there is room:", err)
		}
		if stat := inv.Read()[0]; stat.Depth != 1 || stat.Expired != 1 || stat.Accepted != 2 {
			t.Errorf("%+v", stat)
		}
		if got := drainAll(f, 1); got != "a2" {
			t.Error(got)
		}
		if f.Withdraw(1, 'a', is("a2")) {
			t.Error("withdrew what somebody had taken")
		}
		if err := f.TryPush(1, flow.FairItem[string]{Item: "x"}); !errors.Is(err, flow.ErrClosed) || fault.KindOf(err) != fault.Canceled {
			t.Error(err)
		}
	})
}

// Whatever is offered, taken, done and withdrawn: no class has more outstanding
// than were left when it took the last, a class with nothing outstanding can
// take an item while the limit is not reached, and nothing is lost.
func TestOutstandingAgainstCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hands := rapid.IntRange(1, 9).Draw(t, "hands")
		f := flow.NewFair[uint64](flow.NewInventory(), flow.FairSpec{
			Service: "edge", Quantum: 1, MaxOutstanding: hands, Bands: []flow.BandSpec{{Name: "work", Cap: 1000, Bytes: 1000}},
		})
		waiting, inHand, taken := map[uint64]int{}, map[uint64]int{}, 0
		class := rapid.Uint64Range(1, 4)
		due := func() bool {
			for c := range waiting {
				if waiting[c] > 0 && inHand[c] < hands-taken {
					return true
				}
			}
			return false
		}
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				c := class.Draw(t, "class")
				f.Offer(1, []flow.FairItem[uint64]{{Class: c, Item: c}}, nil)
				waiting[c]++
			},
			"take": func(t *rapid.T) {
				if !due() {
					return
				}
				var into [1]uint64
				if _, err := f.Take(context.Background(), into[:], 1); err != nil {
					t.Fatal(err)
				}
				c := into[0]
				if waiting[c] == 0 || inHand[c] >= hands-taken {
					t.Fatalf("class %d with %d waiting has %d of %d in hand, and takes one more; %d are taken", c, waiting[c], inHand[c], hands, taken)
				}
				waiting[c]--
				inHand[c]++
				taken++
			},
			"done": func(t *rapid.T) {
				if c := class.Draw(t, "class"); inHand[c] > 0 {
					f.Done(1, c)
					inHand[c]--
					taken--
				}
			},
			"withdraw": func(t *rapid.T) {
				c := class.Draw(t, "class")
				if got := f.Withdraw(1, c, func(uint64) bool { return true }); got != (waiting[c] > 0) {
					t.Fatalf("withdrew: %t, with %d waiting", got, waiting[c])
				} else if got {
					waiting[c]--
				}
			},
			"": func(t *rapid.T) {
				n := 0
				for _, of := range waiting {
					n += of
				}
				if f.Len(1) != n {
					t.Fatalf("%d wait, want %d", f.Len(1), n)
				}
			},
		})
	})
}
