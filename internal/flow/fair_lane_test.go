package flow

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

func newTestFairLane(running, waiting int) *FairLane {
	return NewFairLane(NewInventory(), FairLaneSpec{Service: "gateway", Name: "lane", Running: running, Waiting: waiting, From: "a", To: "b"})
}

// A class that asks without end runs in half of the lane, the next finds a slot
// at once, and those that wait are served in turn.
func TestFairLaneSharesItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane := newTestFairLane(8, 100)
		var order []uint64
		var mu sync.Mutex
		leave := make(chan struct{})
		enter := func(class uint64) {
			go func() {
				if err := lane.Enter(t.Context(), class); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, class)
				mu.Unlock()
				<-leave
				lane.Leave(class)
			}()
			synctest.Wait()
		}
		for range 20 {
			enter(1)
		}
		if len(order) != 4 {
			t.Fatalf("one class alone runs %d of 8", len(order))
		}
		for range 3 {
			enter(2)
		}
		if len(order) != 6 || order[5] != 2 {
			t.Fatalf("the next class: %v", order)
		}
		for range 23 { // the one that has run longest leaves
			leave <- struct{}{}
			synctest.Wait()
		}
		if len(order) != 23 || lane.queue.outstandingTotal != 0 {
			t.Errorf("%d have run: %v", len(order), order)
		}
		seconds := 0
		for _, class := range order[:12] {
			if class == 2 {
				seconds++
			}
		}
		if seconds != 3 {
			t.Errorf("the class that asks for less waits behind the other: %v", order)
		}
	})
}

// A class runs no more than it may have, however much is free, and what others
// do changes nothing in that.
func TestFairLaneBoundsAClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane := NewFairLane(NewInventory(), FairLaneSpec{Service: "gateway", Name: "lane", Running: 8, PerClass: 2, Waiting: 100, From: "a", To: "b"})
		running, leave := map[uint64]int{}, make(chan struct{})
		var mu sync.Mutex
		for class := range uint64(3) {
			for range 5 {
				go func() {
					if err := lane.Enter(t.Context(), class); err != nil {
						t.Error(err)
					}
					mu.Lock()
					running[class]++
					mu.Unlock()
					<-leave
					mu.Lock()
					running[class]--
					mu.Unlock()
					lane.Leave(class)
				}()
			}
		}
		for left := 15; left > 0; left-- {
			synctest.Wait()
			sum := 0
			for class, n := range running {
				if sum += n; n > 2 {
					t.Errorf("%d of class %d run, with %d left", n, class, left)
				}
			}
			if sum == 0 || left == 15 && sum != 6 {
				t.Errorf("%d run, with %d left", sum, left)
			}
			leave <- struct{}{}
		}
		synctest.Wait()
	})
}

// A full waiting list refuses; the class that holds most of it makes room for
// another.
func TestFairLaneIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane := newTestFairLane(2, 4)
		ended := make(chan error, 10)
		enter := func(class uint64) { go func() { ended <- lane.Enter(t.Context(), class) }(); synctest.Wait() }
		enter(1)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		for range 4 {
			enter(1)
		}
		enter(1)
		if err := <-ended; fault.KindOf(err) != fault.Busy {
			t.Fatalf("the fifth that waits: %v", err)
		}
		enter(2) // there is a slot for it
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		enter(2) // and no second one
		if err := <-ended; fault.KindOf(err) != fault.Busy {
			t.Fatalf("nobody made room: %v", err)
		}
		lane.Leave(1)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		lane.Leave(2)
		lane.Leave(1)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
			lane.Leave(1)
			synctest.Wait()
		}
		if n := lane.queue.outstandingTotal + lane.queue.Len(laneBand); n > 2 {
			t.Errorf("%d are left", n)
		}
		for lane.queue.outstanding[classKey{laneBand, 1}] > 0 {
			lane.Leave(1)
			synctest.Wait()
		}
		for lane.queue.outstanding[classKey{laneBand, 2}] > 0 {
			lane.Leave(2)
			synctest.Wait()
		}
	})
}

// Who gives up waiting takes nothing along.
func TestFairLaneWaitersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane := newTestFairLane(2, 4)
		if err := lane.Enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := lane.Enter(ctx, 1); fault.KindOf(err) != fault.Timeout {
			t.Errorf("after its deadline: %v", err)
		}
		if err := lane.Enter(ctx, 2); fault.KindOf(err) != fault.Timeout {
			t.Errorf("and before it begins: %v", err)
		}
		lane.Leave(1)
		if lane.queue.outstandingTotal != 0 || lane.queue.Len(laneBand) != 0 || lane.Running() != 2 {
			t.Errorf("%d run, %d wait", lane.queue.outstandingTotal, lane.queue.Len(laneBand))
		}
		defer func() {
			if recover() == nil {
				t.Error("a slot that nobody has was released")
			}
		}()
		lane.Leave(1)
	})
}
