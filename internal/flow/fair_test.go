package flow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/testkit"
)

// egress is a fair queue as a session has it: control first, then gossip and
// chunks.
func egress(quantum int, gossip flow.BandSpec) *flow.Fair[string] {
	gossip.Name = "gossip_egress"
	return flow.NewFair[string](flow.NewInventory(), flow.FairSpec{
		Service: "overlay", Quantum: quantum, Each: "session",
		Urgent: flow.BandSpec{Name: "control", Cap: 2, Bytes: 100},
		Bands:  []flow.BandSpec{gossip, {Name: "chunks", Cap: 4, Bytes: 1000}},
	})
}

// give offers items that are named after their class: "a1" is of class 'a'.
func give(f *flow.Fair[string], cost int, items ...string) (turned []string) {
	var batch []flow.FairItem[string]
	for _, item := range items {
		batch = append(batch, flow.FairItem[string]{Class: uint64(item[0]), Cost: cost, Item: item})
	}
	return f.Offer(1, batch, nil)
}

// drainAll takes all that is left, in batches of n.
func drainAll(f *flow.Fair[string], n int) string {
	var all []string
	f.Close()
	for {
		into := make([]string, n)
		got, err := f.Take(context.Background(), into, 1<<20)
		if err != nil {
			return strings.Join(all, " ")
		}
		all = append(all, into[:got]...)
	}
}

func TestAFloodWaitsItsTurn(t *testing.T) {
	for _, batch := range []int{1, 2, 3, 100} { // a turn may end a batch in its middle
		f := egress(200, flow.BandSpec{Cap: 100, Bytes: 10_000})
		give(f, 100, "a1", "a2", "a3", "a4", "a5", "a6", "b1", "b2", "b3", "c1")
		if got := drainAll(f, batch); got != "a1 a2 b1 b2 c1 a3 a4 b3 a5 a6" {
			t.Errorf("in batches of %d: %s", batch, got)
		}
	}
}

func TestALargeItemSavesUpForItsTurn(t *testing.T) {
	f := egress(100, flow.BandSpec{Cap: 100, Bytes: 10_000})
	give(f, 250, "a1", "a2")
	give(f, 100, "b1", "b2", "b3", "b4", "b5", "b6")
	if got := drainAll(f, 1); got != "b1 b2 a1 b3 b4 a2 b5 b6" {
		t.Error(got)
	}
}

func TestUrgentGoesFirstAndNeverDisplaces(t *testing.T) {
	f := egress(100, flow.BandSpec{Cap: 4, Bytes: 1000})
	give(f, 10, "a1")
	if err := f.TryPush(2, flow.FairItem[string]{Class: 1, Cost: 10, Item: "chunk"}); err != nil {
		t.Fatal(err)
	}
	for _, item := range []string{"ping", "pong"} {
		if err := f.TryPush(flow.Urgent, flow.FairItem[string]{Cost: 40, Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	err := f.TryPush(flow.Urgent, flow.FairItem[string]{Cost: 1, Item: "bye"})
	if !errors.Is(err, fault.Busy) || !strings.Contains(err.Error(), "overlay/control") {
		t.Errorf("a full band: %v", err)
	}
	if turned := f.Offer(flow.Urgent, []flow.FairItem[string]{{Item: "bye"}}, nil); !slices.Equal(turned, []string{"bye"}) {
		t.Errorf("turned away %v", turned)
	}
	if got := drainAll(f, 10); got != "ping pong a1 chunk" {
		t.Error(got)
	}
}

func TestAFullBandTakesFromTheRich(t *testing.T) {
	for _, test := range []struct {
		policy flow.Policy
		turned string // what is evicted for b1 and b2, then the outcome of a5 and b3
		left   string
	}{
		{flow.RejectNew, "a4 a3 a5 b3", "a1 b1 a2 b2"},
		{flow.DropOldest, "a1 a2 a3 b1", "a4 b2 a5 b3"},
	} {
		f := egress(100, flow.BandSpec{Cap: 4, Bytes: 1000, Policy: test.policy})
		turned := give(f, 100, "a1", "a2", "a3", "a4")
		turned = append(turned, give(f, 100, "b1", "b2", "a5", "b3")...)
		if got := strings.Join(turned, " "); got != test.turned {
			t.Errorf("%s: turned away %s", test.policy, got)
		}
		if got := drainAll(f, 1); got != test.left {
			t.Errorf("%s: left %s", test.policy, got)
		}
	}
}

// A flood of small items must not evict the one large item of a class that has
// nothing else: what is short is slots, and it holds one of them.
func TestAFloodOfSmallItemsDoesNotDisplaceALargeOne(t *testing.T) {
	f := egress(100, flow.BandSpec{Cap: 4, Bytes: 1000})
	give(f, 500, "large")
	if turned := give(f, 1, "a1", "a2", "a3", "a4", "a5"); !slices.Equal(turned, []string{"a4", "a5"}) {
		t.Errorf("turned away %v", turned)
	}
	// Nor when bytes are short as well: the flood holds most of the slots, even
	// if that is not half of them.
	f = egress(100, flow.BandSpec{Cap: 7, Bytes: 507})
	give(f, 500, "large")
	give(f, 1, "a1", "a2", "b1", "c1", "d1", "e1")
	if turned := give(f, 2, "a3"); !slices.Equal(turned, []string{"a3"}) {
		t.Errorf("turned away %v", turned)
	}
	// A class with fewer slots is another matter.
	if turned := give(f, 2, "f1"); !slices.Equal(turned, []string{"large"}) {
		t.Errorf("turned away %v", turned)
	}
}

func TestRoomIsMadeWhollyOrNotAtAll(t *testing.T) {
	f := egress(100, flow.BandSpec{Cap: 100, Bytes: 100})
	give(f, 10, "a1", "a2", "a3", "a4", "a5", "a6")
	give(f, 10, "b1", "b2", "b3", "b4")
	// c would need 50 bytes; a stops losing items at 50, which is not enough.
	if turned := give(f, 50, "c1"); !slices.Equal(turned, []string{"c1"}) {
		t.Errorf("turned away %v", turned)
	}
	if turned := give(f, 30, "c2"); !slices.Equal(turned, []string{"a6", "a5", "a4"}) {
		t.Errorf("turned away %v", turned)
	}
}

func TestAnItemLargerThanTheBandDisplacesNobody(t *testing.T) {
	for _, policy := range []flow.Policy{flow.RejectNew, flow.DropOldest} {
		f := egress(100, flow.BandSpec{Cap: 4, Bytes: 100, Policy: policy})
		give(f, 40, "a1", "a2")
		if turned := give(f, 101, "a3", "b1"); !slices.Equal(turned, []string{"a3", "b1"}) {
			t.Errorf("%s: turned away %v", policy, turned)
		}
		if err := f.TryPush(1, flow.FairItem[string]{Cost: 101}); !errors.Is(err, fault.Busy) {
			t.Errorf("%s: push: %v", policy, err)
		}
		if f.Len(1) != 2 || f.Bytes(1) != 80 {
			t.Errorf("%s: %d items, %d bytes", policy, f.Len(1), f.Bytes(1))
		}
	}
}

// A class that always replaces the one item that it has must still be served.
func TestReplacingAllThatItHasDoesNotCostAClassItsTurn(t *testing.T) {
	f := egress(10, flow.BandSpec{Cap: 2, Bytes: 100, Policy: flow.DropOldest})
	give(f, 60, "a1")
	give(f, 10, "b1")
	if turned := give(f, 90, "a2"); !slices.Equal(turned, []string{"a1"}) {
		t.Errorf("turned away %v", turned)
	}
	into := make([]string, 1)
	for range 9 {
		_ = give(f, 90, "a3")
		if _, err := f.Take(t.Context(), into, 1); err != nil {
			t.Fatal(err)
		}
		if into[0] == "a3" {
			return
		}
		give(f, 10, "b2")
	}
	t.Error("a was never served")
}

// When the last item of the class whose turn it was is evicted, the next class
// has the turn.
func TestTheTurnPassesOnWhenItsClassIsDisplaced(t *testing.T) {
	f := egress(100, flow.BandSpec{Cap: 10, Bytes: 100})
	give(f, 60, "a1")
	give(f, 40, "b1")
	if turned := give(f, 50, "c1"); !slices.Equal(turned, []string{"a1"}) {
		t.Errorf("turned away %v", turned)
	}
	if got := drainAll(f, 1); got != "b1 c1" {
		t.Error(got)
	}
	// And with no other class in the circle, that of the new item.
	f = egress(100, flow.BandSpec{Cap: 10, Bytes: 100})
	give(f, 60, "a1")
	give(f, 50, "c1")
	if got := drainAll(f, 1); got != "c1" {
		t.Error(got)
	}
}

func TestAnItemCostsAtLeastOne(t *testing.T) {
	f := egress(3, flow.BandSpec{Cap: 10, Bytes: 8})
	turned := give(f, 0, "a1", "a2", "a3", "a4")
	turned = append(turned, give(f, -5, "b1", "b2", "b3", "b4", "b5")...)
	if !slices.Equal(turned, []string{"b5"}) || f.Bytes(1) != 8 {
		t.Errorf("%d bytes, turned away %v", f.Bytes(1), turned)
	}
	if got := drainAll(f, 10); got != "a1 a2 a3 b1 b2 b3 a4 b4" {
		t.Error(got)
	}
}

func TestTakeStopsAtItsBytesButAlwaysTakesOne(t *testing.T) {
	f := egress(100, flow.BandSpec{Cap: 10, Bytes: 1000})
	give(f, 100, "a1", "a2", "a3", "a4")
	for _, test := range []struct{ most, want int }{{0, 1}, {1, 1}, {101, 2}} {
		if got, err := f.Take(t.Context(), make([]string, 10), test.most); got != test.want || err != nil {
			t.Errorf("up to %d bytes: %d items, %v", test.most, got, err)
		}
	}
}

func TestAClosedFairQueueGivesWhatItHoldsThenSaysClosed(t *testing.T) {
	inv := flow.NewInventory()
	spec := flow.FairSpec{Service: "overlay", Quantum: 100, Each: "session", Bands: []flow.BandSpec{{Name: "gossip_egress", Cap: 4, Bytes: 100}}}
	f, other := flow.NewFair[string](inv, spec), flow.NewFair[string](inv, spec)
	give(f, 1, "a1")
	give(other, 1, "b1", "b2")
	if stat := inv.Read()[0]; stat.Instances != 2 || stat.Depth != 3 || len(inv.Read()) != 1 {
		t.Errorf("%+v", stat)
	}
	f.Retire()
	f.Retire()
	if err := f.TryPush(1, flow.FairItem[string]{}); !errors.Is(err, flow.ErrClosed) || fault.KindOf(err) != fault.Canceled {
		t.Errorf("push: %v", err)
	}
	if turned := give(f, 1, "a2", "a3"); !slices.Equal(turned, []string{"a2", "a3"}) {
		t.Errorf("turned away %v", turned)
	}
	if got := drainAll(f, 1); got != "a1" {
		t.Error(got)
	}
	if stat := inv.Read()[0]; stat.Instances != 1 || stat.Depth != 2 || stat.Accepted != 3 {
		t.Errorf("after one retired: %+v", stat)
	}
}

func TestTakeTellsADeadlineFromACancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := egress(100, flow.BandSpec{Cap: 4, Bytes: 100})
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := f.Take(late, make([]string, 1), 1); !errors.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "overlay/gossip_egress") {
			t.Errorf("deadline: %v", err)
		}
		give(f, 1, "a1")
		if _, err := f.Take(canceled, make([]string, 1), 1); !errors.Is(err, fault.Canceled) || f.Len(1) != 1 {
			t.Errorf("canceled: %v, %d left", err, f.Len(1))
		}
	})
}

func TestAnUrgentItemAloneWakesTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := egress(100, flow.BandSpec{Cap: 4, Bytes: 100})
		defer f.Close()
		got := make(chan string, 1)
		go func() {
			into := make([]string, 1)
			_, _ = f.Take(t.Context(), into, 1)
			got <- into[0]
		}()
		synctest.Wait()
		_ = f.TryPush(flow.Urgent, flow.FairItem[string]{Item: "ping"})
		synctest.Wait()
		if len(got) != 1 {
			t.Fatal("the ping stays where it is")
		}
	})
}

func TestABatchWakesAsManyConsumersAsItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := egress(100, flow.BandSpec{Cap: 4, Bytes: 100})
		defer f.Close()
		got := make(chan string, 4)
		for range 3 {
			go func() {
				into := make([]string, 1)
				_, _ = f.Take(t.Context(), into, 1)
				got <- into[0]
			}()
		}
		synctest.Wait()
		give(f, 1, "a1", "a2", "b1")
		synctest.Wait()
		if len(got) != 3 {
			t.Fatalf("three consumers waited for three items, %d got one", len(got))
		}
	})
}

// Real goroutines, some of which are cancelled all the time: every item that
// was accepted and not evicted is delivered, once.
func TestFairWithManyProducersAndImpatientConsumers(t *testing.T) {
	const producers, consumers, each = 4, 4, 2000
	f := flow.NewFair[int](flow.NewInventory(), flow.FairSpec{
		Service: "overlay", Quantum: 64, Bands: []flow.BandSpec{{Name: "gossip", Cap: 32, Bytes: 512}},
	})
	var fate [producers * each]atomic.Int32
	var making, taking sync.WaitGroup
	for p := range producers {
		making.Go(func() {
			for i := 0; i < each; i += 4 {
				var batch []flow.FairItem[int]
				for j := range 4 {
					batch = append(batch, flow.FairItem[int]{Class: uint64(p), Cost: 8 * p, Item: p*each + i + j})
				}
				for _, item := range f.Offer(1, batch, nil) {
					fate[item].Add(1)
				}
			}
		})
	}
	for c := range consumers {
		taking.Go(func() {
			for into := make([]int, 8); ; {
				ctx, cancel := context.WithCancel(context.Background())
				if c > 0 {
					go cancel() // at any moment
				}
				n, err := f.Take(ctx, into, 256)
				cancel()
				for _, item := range into[:n] {
					fate[item].Add(1)
				}
				if errors.Is(err, flow.ErrClosed) {
					return
				}
			}
		})
	}
	making.Wait()
	f.Close()
	taking.Wait()
	for item := range fate {
		if n := fate[item].Load(); n != 1 {
			t.Fatalf("item %d came out or back %d times", item, n)
		}
	}
}

func TestMistakesWithFairQueuesPanicAndSayWhatToDo(t *testing.T) {
	band := flow.BandSpec{Name: "gossip", Cap: 1, Bytes: 1}
	build := func(quantum int, urgent flow.BandSpec, bands ...flow.BandSpec) *flow.Fair[int] {
		return flow.NewFair[int](flow.NewInventory(), flow.FairSpec{Service: "overlay", Quantum: quantum, Urgent: urgent, Bands: bands})
	}
	for want, mistake := range map[string]func(){
		"needs a quantum and a band": func() { build(1, flow.BandSpec{}) },
		"of overlay needs a quantum": func() { build(0, flow.BandSpec{}, band) },
		"needs a bound in bytes":     func() { build(1, flow.BandSpec{}, flow.BandSpec{Name: "gossip", Cap: 1}) },
		"and rejects or drops": func() {
			build(1, flow.BandSpec{}, flow.BandSpec{Name: "gossip", Cap: 1, Bytes: 1, Policy: flow.Coalesce})
		},
		"needs a Service and a Name":  func() { build(1, flow.BandSpec{}, flow.BandSpec{Cap: 1, Bytes: 1}) },
		"is urgent, so it can only":   func() { build(1, flow.BandSpec{Name: "control", Cap: 1, Bytes: 1, Policy: flow.DropOldest}, band) },
		"made without an urgent band": func() { _ = build(1, flow.BandSpec{}, band).TryPush(flow.Urgent, flow.FairItem[int]{}) },
		"name one in its spec":        func() { build(1, flow.BandSpec{}, band).Offer(flow.Urgent, nil, nil) },
		"Take needs room for an item": func() { _, _ = build(1, flow.BandSpec{}, band).Take(canceled, nil, 1) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if message := fmt.Sprint(recover()); !strings.Contains(message, want) {
					t.Errorf("panic %q", message)
				}
			}()
			mistake()
		})
	}
}

func TestAFairQueueDoesNotKeepWhatItHandedOver(t *testing.T) {
	f := flow.NewFair[*[64]byte](flow.NewInventory(), flow.FairSpec{
		Service: "overlay", Quantum: 1, Bands: []flow.BandSpec{{Name: "gossip", Cap: 4, Bytes: 100}},
	})
	collected := make(chan struct{})
	item := new([64]byte)
	runtime.AddCleanup(item, func(c chan struct{}) { close(c) }, collected)
	_ = f.TryPush(1, flow.FairItem[*[64]byte]{Item: item})
	_, _ = f.Take(t.Context(), make([]*[64]byte, 1), 1)
	awaitCollected(t, collected)
	runtime.KeepAlive(f)
}

// heapOf is how many bytes of heap each of n things costs.
func heapOf[T any](t *testing.T, n int, build func() T) int64 {
	t.Helper()
	memory, kept := testkit.WatchMemory(), make([]T, 0, n)
	for range n {
		kept = append(kept, build())
	}
	grown := memory.Grown()
	runtime.KeepAlive(kept)
	if grown < int64(n)*8 { // each of them is a pointer at least
		t.Fatalf("%d cost %d bytes together: that was not measured", n, grown)
	}
	return grown / int64(n)
}

// There are thousands of sessions and topics, and most of them are idle.
func TestWhatIsIdleCostsNextToNothing(t *testing.T) {
	testkit.MemoryGate(t)
	type frame [48]byte
	inv := flow.NewInventory()
	bus := func() *flow.Bus[frame] {
		return flow.NewBus[frame](inv, flow.BusSpec{Service: "overlay", Name: "deliveries", Cap: 1024, Readers: 16, Each: "topic"})
	}
	fair := func() *flow.Fair[frame] {
		return flow.NewFair[frame](inv, flow.FairSpec{Service: "overlay", Quantum: 1024, Each: "session",
			Urgent: flow.BandSpec{Name: "control", Cap: 128, Bytes: 1 << 20},
			Bands:  []flow.BandSpec{{Name: "gossip_egress", Cap: 512, Bytes: 4 << 20}, {Name: "chunks", Cap: 64, Bytes: 4 << 20}}})
	}
	burst := func() *flow.Fair[frame] {
		f := fair()
		for i := range 512 {
			_ = f.TryPush(1, flow.FairItem[frame]{Class: uint64(i), Cost: 1})
		}
		f.Close()
		for into := make([]frame, 64); ; {
			if _, err := f.Take(t.Context(), into, 1<<20); err != nil {
				return f
			}
		}
	}
	few := func() *flow.Fair[frame] {
		f := fair()
		for i := range 10 {
			_ = f.TryPush(i%3, flow.FairItem[frame]{Class: uint64(i)})
		}
		_, _ = f.Take(t.Context(), make([]frame, 10), 1<<20)
		return f
	}
	permits := func() *flow.Permits {
		return flow.NewPermits(inv, flow.PermitsSpec{Service: "overlay", Name: "inflight_frames", Cap: 64, Each: "session"})
	}
	if got := heapOf(t, 1000, bus); got > 1000 {
		t.Errorf("a bus that carried nothing costs %d bytes", got)
	}
	if got := heapOf(t, 1000, func() *flow.Bus[frame] { b := bus(); _ = b.Publish(frame{}); return b }); got > 2000 {
		t.Errorf("a bus that carried one event costs %d bytes", got)
	}
	if got := heapOf(t, 1000, fair); got > 1000 {
		t.Errorf("a fair queue that carried nothing costs %d bytes", got)
	}
	if got := heapOf(t, 100, burst); got > 1000 {
		t.Errorf("a fair queue after a burst of 512 classes costs %d bytes", got)
	}
	if got := heapOf(t, 1000, few); got > 1000 {
		t.Errorf("a fair queue after a few items costs %d bytes", got)
	}
	if got := heapOf(t, 1000, permits); got > 500 {
		t.Errorf("permits that nobody took cost %d bytes", got)
	}
}

// A queue that is emptied again and again allocates nothing for it: what it
// needs is still there, unless garbage was collected in between.
func TestAQueueInUseKeepsItsSlab(t *testing.T) {
	f := egress(100, flow.BandSpec{Cap: 100, Bytes: 10_000})
	into := make([]string, 100)
	batch := make([]flow.FairItem[string], 100)
	for i := range batch {
		batch[i] = flow.FairItem[string]{Class: uint64(i % 10), Item: "x"}
	}
	if n := testing.AllocsPerRun(100, func() {
		f.Offer(1, batch, nil)
		_, _ = f.Take(t.Context(), into, 1<<20)
	}); n != 0 {
		t.Errorf("a batch through a warm queue allocates %v times", n)
	}
	give(f, 100, strings.Fields(strings.Repeat("x ", 101))...)
	if n := testing.AllocsPerRun(100, func() { _ = f.TryPush(1, batch[0]) }); n != 0 {
		t.Errorf("to be turned away allocates %v times", n)
	}
	for f.Len(1) > 0 {
		_, _ = f.Take(t.Context(), into, 1<<20)
	}
	runtime.GC() // collects the slab, and nothing else
	give(f, 1, "a1", "b1", "a2")
	if got := drainAll(f, 1); got != "a1 a2 b1" {
		t.Errorf("after a collection: %s", got)
	}
}

func TestAConsumerThatWaitsAllocatesNothing(t *testing.T) {
	there, back := egress(100, flow.BandSpec{Cap: 1, Bytes: 1}), egress(100, flow.BandSpec{Cap: 1, Bytes: 1})
	var echo sync.WaitGroup
	echo.Go(func() {
		for into := make([]string, 1); ; {
			if _, err := there.Take(context.Background(), into, 1); err != nil {
				return
			}
			_ = back.TryPush(1, flow.FairItem[string]{})
		}
	})
	into := make([]string, 1)
	if n := testing.AllocsPerRun(1000, func() {
		_ = there.TryPush(1, flow.FairItem[string]{})
		_, _ = back.Take(context.Background(), into, 1)
	}); n != 0 {
		t.Errorf("there and back allocates %v times", n)
	}
	there.Close()
	echo.Wait()
}

// OfferSome stops where there is no room, instead of evicting from the own
// class, and still evicts from the richest.
func TestOfferSomeStopsWhereThereIsNoRoom(t *testing.T) {
	synctest.Test(t, offerSomeStops)
}

func offerSomeStops(t *testing.T) {
	f := flow.NewFair[int](flow.NewInventory(), flow.FairSpec{
		Service: "overlay", Quantum: 10, Waiting: 1, Bands: []flow.BandSpec{{Name: "egress", Cap: 4, Bytes: 100, Policy: flow.DropOldest}},
	})
	of := func(class uint64, items ...int) (batch []flow.FairItem[int]) {
		for _, i := range items {
			batch = append(batch, flow.FairItem[int]{Class: class, Item: i})
		}
		return batch
	}
	if n, turned := f.OfferSome(1, of(1, 1, 2, 3, 4, 5, 6), nil); n != 4 || len(turned) != 0 {
		t.Fatalf("took %d, %v made room", n, turned)
	}
	if n, turned := f.OfferSome(1, of(2, 7), nil); n != 1 || !slices.Equal(turned, []int{1}) {
		t.Fatalf("of another class it took %d, %v made room", n, turned)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() { waits <- f.AwaitRoom(ctx, 1, 1) }()
	synctest.Wait()
	if err := f.AwaitRoom(t.Context(), 1, 1); !errors.Is(err, fault.Busy) {
		t.Errorf("one more than may wait: %v", err)
	}
	cancel()
	if err := <-waits; fault.KindOf(err) != fault.Canceled {
		t.Errorf("canceled: %v", err)
	}
	if n, _ := f.Take(t.Context(), make([]int, 1), 100); n != 1 {
		t.Fatal("nothing was there")
	}
	if err := f.AwaitRoom(t.Context(), 1, 1); err != nil {
		t.Errorf("there is room: %v", err)
	}
	f.Close()
	if err := f.AwaitRoom(t.Context(), 1, 1); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
