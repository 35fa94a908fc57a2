package flow_test

import (
	"errors"
	"testing"

	"micronode/fault"
	"micronode/internal/flow"
)

// Every component that must move reports how full it is, of all that bounds it;
// those that may drop, and those of one session, are left out.
func TestProgressListsWhatMustMove(t *testing.T) {
	inv := flow.NewInventory()
	queue := flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: 4, Effect: flow.StopsWrites, Next: "Wait."})
	fair := flow.NewFair[int](inv, flow.FairSpec{Service: "index", Quantum: 1, Bands: []flow.BandSpec{{Name: "fair", Cap: 8, Bytes: 16}}})
	lane := flow.NewLane(inv, flow.LaneSpec{Service: "edge", Name: "lane", Running: 1, Waiting: 3})
	permits := flow.NewPermits(inv, flow.PermitsSpec{Service: "edge", Name: "permits", Cap: 2, Effect: flow.ReportOnly})
	flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "telemetry", Cap: 4, Policy: flow.DropOldest})
	flow.NewFair[int](inv, flow.FairSpec{Service: "node", Quantum: 1, MaxOutstanding: 4, Bands: []flow.BandSpec{{Name: "shared", Cap: 8, Bytes: 8, Policy: flow.RejectNew}}})
	flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "updates", Cap: 4, Policy: flow.Coalesce})
	flow.NewQueue[int](inv, flow.QueueSpec{Service: "overlay", Name: "egress", Cap: 4, Each: "session"})
	flow.NewBus[int](inv, flow.BusSpec{Service: "node", Name: "bus", Cap: 4, Readers: 1})
	flow.NewSnapshot(inv, flow.SnapshotSpec{Service: "node", Name: "snapshot"}, 1)

	read := func() map[string]flow.Progress {
		progress := map[string]flow.Progress{}
		for _, one := range inv.Progress(nil) {
			progress[one.Name] = one
		}
		return progress
	}
	_ = queue.TryPush(1)
	_ = fair.TryPush(1, flow.FairItem[int]{Cost: 12}) // one of eight items, and three quarters of the bytes
	_ = lane.Enter(t.Context())
	progress := read()
	for name, fill := range map[string]float64{"work": 0.25, "fair": 0.75, "lane": 0.25, "permits": 0} {
		if progress[name].Utilization != fill {
			t.Errorf("%s is %v full, and should be %v", name, progress[name].Utilization, fill)
		}
	}
	if len(progress) != 5 || !progress["work"].Waits || progress["lane"].Waits || progress["work"].Effect != flow.StopsWrites || progress["work"].Next != "Wait." || progress["permits"].Effect != flow.ReportOnly {
		t.Errorf("%+v", progress)
	}
	queue.TryPop()
	permits.TryAcquire(3)
	if progress := read(); progress["work"].Moved != 1 || progress["work"].Waits || progress["permits"].Refused != 1 || progress["permits"].Utilization != 1 {
		t.Errorf("%+v", progress)
	}
	permits.ReleaseMany(2)
	lane.Leave()

	for _, one := range inv.Progress(nil) {
		leave, ok := inv.Occupy(one.Service, one.Kind, one.Name)
		if !ok || read()[one.Name].Utilization < 1 {
			t.Errorf("%s cannot be filled: %+v", one.Name, read()[one.Name])
		}
		defer func() {
			if leave(); read()[one.Name].Utilization != 0 {
				t.Errorf("%s is not empty again: %+v", one.Name, read()[one.Name])
			}
		}()
	}
	if err := queue.TryPush(2); !errors.Is(err, fault.Busy) {
		t.Errorf("a full queue says %v", err)
	}
	if err := lane.Enter(t.Context()); !errors.Is(err, fault.Busy) {
		t.Errorf("a full lane says %v", err)
	}
	for _, name := range []string{"bus", "nowhere"} {
		if _, ok := inv.Occupy("node", "bus", name); ok {
			t.Errorf("%s was filled", name)
		}
	}
}
