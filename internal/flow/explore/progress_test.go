package explore_test

import (
	"context"
	"testing"

	"micronode/internal/flow"
	"micronode/internal/flow/explore"
)

// One thread samples the progress of a queue while others fill and empty it.
// Each sample is what was true at one moment: never fuller than full, never
// fewer items moved than in the sample before, and at the end what has really
// happened.
func TestProgressIsTrueAtEveryMoment(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		q := queueOf(w, 2, flow.RejectNew)
		var accepted, refused, moved int
		w.Go("producer", func() {
			for item := range 3 {
				if q.TryPush(item) == nil {
					accepted++
				} else {
					refused++
				}
			}
		})
		w.Go("consumer", func() {
			for range 2 {
				if _, ok := q.TryPop(); ok {
					moved++
				}
			}
		})
		w.Go("watcher", func() {
			var before uint64
			for range 2 {
				for _, part := range w.Inventory().Progress(nil) {
					w.Check(part.Utilization >= 0 && part.Utilization <= 1, "it is %v full", part.Utilization)
					w.Check(part.Moved >= before, "%d have moved, and %d before", part.Moved, before)
					before = part.Moved
				}
				w.Point("between two looks")
			}
		})
		w.After(func() {
			for _, part := range w.Inventory().Progress(nil) {
				w.Check(part.Moved == uint64(moved) && part.Refused == uint64(refused) && part.Waits == (accepted > moved),
					"told %+v; %d accepted, %d refused, %d moved", part, accepted, refused, moved)
			}
		})
	})
}

// A component whose slots are all occupied refuses every caller; when they are
// released, it is as it was before.
func TestOccupiedPartsRefuse(t *testing.T) {
	explore.Test(t, quick, func(w *explore.World) {
		q := queueOf(w, 2, flow.RejectNew)
		lane := flow.NewLane(w.Inventory(), flow.LaneSpec{Service: "node", Name: "uploads", Running: 1, Waiting: 1, From: "callers", To: "store"})
		fair := flow.NewFair[int](w.Inventory(), flow.FairSpec{Service: "index", Quantum: 1, From: "callers", To: "workers",
			Bands: []flow.BandSpec{{Name: "work", Cap: 2, Bytes: 2}}})
		w.Go("operator", func() {
			_, ok := w.Inventory().Occupy("node", "queue", "no such queue")
			w.Check(!ok, "a part that nobody knows is occupied")
			var leave []func()
			for _, part := range [][3]string{{"node", "queue", "work"}, {"node", "lane", "uploads"}, {"index", "queue", "work"}} {
				one, ok := w.Inventory().Occupy(part[0], part[1], part[2])
				w.Check(ok, "%v cannot be full", part)
				leave = append(leave, one)
			}
			w.Check(q.TryPush(1) != nil, "the queue takes one more")
			w.Check(lane.Enter(context.Background()) != nil, "the lane lets one more in")
			w.Check(fair.TryPush(1, flow.FairItem[int]{Cost: 1}) != nil, "the fair queue takes one more")
			for _, part := range w.Inventory().Progress(nil) {
				w.Check(part.Utilization == 1, "%s is %v full", part.Name, part.Utilization)
			}
			for _, one := range leave {
				one()
			}
			w.Check(q.TryPush(1) == nil, "the queue has no room again")
			w.Check(lane.Enter(context.Background()) == nil, "the lane has no room again")
			w.Check(fair.TryPush(1, flow.FairItem[int]{Cost: 1}) == nil, "the fair queue has no room again")
		})
	})
}
