package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// A dependency that was never set is down; writes come back last.
func TestReadinessFollowsItsDependencies(t *testing.T) {
	r := NewReadiness(flow.NewInventory(), nil)
	if v := r.Evaluate(); !v.Whole() || v.RetryAfter != 0 {
		t.Errorf("an empty table: %+v", v)
	}
	reads := r.Dependency("store", "ram", ForReads)
	writes := r.Dependency("registry", "disk", ForWrites)
	check := func(when string, ready, writeReady, degraded bool, missing ...string) {
		t.Helper()
		v := r.Evaluate()
		if v.Ready != ready || v.WriteReady != writeReady || v.Degraded != degraded || !slices.Equal(v.Missing, missing) {
			t.Errorf("%s: %+v", when, v)
		}
		if whole := ready && writeReady && !degraded; v.Whole() != whole || (v.RetryAfter > 0) == whole {
			t.Errorf("%s: whole %t, retry after %d", when, v.Whole(), v.RetryAfter)
		}
	}
	check("at first", false, false, false, "registry/disk", "store/ram")
	reads.Up()
	check("reads up", true, false, false, "registry/disk")
	writes.Up()
	check("all up", true, true, false)
	writes.Degraded("slow", "Look at the disk.")
	check("slow disk", true, true, true)
	writes.Down("fsync failed", "Restart the node.")
	check("disk gone", true, false, false, "registry/disk")
	reads.Degraded("near its limit", "Remove objects.")
	check("both unwell", true, false, true, "registry/disk")
	reads.Down("gone", "Find it.")
	check("reads gone", false, false, false, "registry/disk", "store/ram")
	writes.Up()
	check("only the disk is back", false, false, false, "store/ram")
}

func TestVerdictHasTheShapeOfTheContract(t *testing.T) {
	r := NewReadiness(flow.NewInventory(), nil)
	dep := r.Dependency("overlay", "overlay", ForReads)
	for want, say := range map[string]func(){
		`{"ready":true,"write_ready":true,"degraded":false,"missing":[],"reasons":[],"retry_after":0}`: dep.Up,
		`{"ready":false,"write_ready":false,"degraded":false,"missing":["overlay"],` +
			`"reasons":[{"dep":"overlay","reason":"no listener","next":"Free the port."}],"retry_after":1}`: func() { dep.Down("no listener", "Free the port.") },
	} {
		say()
		if got, err := json.Marshal(r.Evaluate()); err != nil || string(got) != want {
			t.Errorf("%v\n got %s\nwant %s", err, got, want)
		}
	}
}

// The table in the simplest words: one answer at a time, by looking for what
// contradicts it.
func referenceVerdict(findings []finding) (ready, writeReady, degraded bool) {
	downForReads := slices.ContainsFunc(findings, func(f finding) bool { return f.level == levelDown && f.need == ForReads })
	downAtAll := slices.ContainsFunc(findings, func(f finding) bool { return f.level == levelDown })
	degraded = slices.ContainsFunc(findings, func(f finding) bool { return f.level == levelDegraded })
	return !downForReads, !downAtAll, degraded
}

func TestTruthTable(t *testing.T) {
	draw := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) finding {
		return finding{
			service: rapid.SampledFrom(services).Draw(t, "service"), name: rapid.SampledFrom([]string{"a", "b", "store"}).Draw(t, "name"),
			need: rapid.SampledFrom([]Need{ForReads, ForWrites}).Draw(t, "need"),
			condition: condition{
				level:  rapid.SampledFrom([]level{levelUp, levelDegraded, levelDown}).Draw(t, "level"),
				reason: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "reason"), next: rapid.SampledFrom([]string{"X.", "Y."}).Draw(t, "next"),
			},
		}
	}), 0, 8)
	rapid.Check(t, func(t *rapid.T) {
		findings := draw.Draw(t, "findings")
		v := verdictOf(findings)
		ready, writeReady, degraded := referenceVerdict(findings)
		if v.Ready != ready || v.WriteReady != writeReady || v.Degraded != degraded {
			t.Fatalf("%+v, the table says %t %t %t", v, ready, writeReady, degraded)
		}
		if v.WriteReady && !v.Ready {
			t.Fatal("write-ready without being ready")
		}
		if v.Missing == nil || v.Reasons == nil || !slices.IsSorted(v.Missing) || (len(v.Missing) > 0) == v.WriteReady {
			t.Fatalf("missing %v, reasons %v", v.Missing, v.Reasons)
		}
		for _, f := range findings {
			said := slices.Contains(v.Reasons, Reason{Dep: label(f.service, f.name), Reason: f.reason, Next: f.next})
			if f.level != levelUp && !said {
				t.Fatalf("nothing is said about %+v", f)
			}
			if (f.level == levelDown) && !slices.Contains(v.Missing, label(f.service, f.name)) {
				t.Fatalf("%+v is not missing", f)
			}
		}
		slices.Reverse(findings)
		if again := verdictOf(findings); !again.Equal(v) {
			t.Fatalf("in another order: %+v and %+v", v, again)
		}
	})
}

// Whatever owners set, and in whatever order: write-ready implies ready, and
// the last state of each counts.
func TestWriteReadyNeverHoldsWithoutReady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewReadiness(flow.NewInventory(), nil)
		var deps []*Dependency
		var table []finding
		for i := range rapid.IntRange(1, 5).Draw(t, "dependencies") {
			need := rapid.SampledFrom([]Need{ForReads, ForWrites}).Draw(t, "need")
			name := fmt.Sprint("dep", i)
			deps = append(deps, r.Dependency("store", name, need))
			table = append(table, finding{"store", name, need, condition{level: levelDown}})
		}
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			i := rapid.IntRange(0, len(deps)-1).Draw(t, "which")
			table[i].level = rapid.SampledFrom([]level{levelUp, levelDegraded, levelDown}).Draw(t, "level")
			switch table[i].level {
			case levelUp:
				deps[i].Up()
			case levelDegraded:
				deps[i].Degraded("d", "D.")
			case levelDown:
				deps[i].Down("x", "X.")
			}
			v := r.Evaluate()
			ready, writeReady, degraded := referenceVerdict(table)
			if v.Ready != ready || v.WriteReady != writeReady || v.Degraded != degraded || v.WriteReady && !v.Ready {
				t.Fatalf("%+v after %+v", v, table)
			}
		}
	})
}

func TestMistakesInTheTableAreRefusedLoudly(t *testing.T) {
	r := NewReadiness(flow.NewInventory(), nil)
	r.Dependency("store", "disk", ForReads)
	for want, mistake := range map[string]func(){
		`"warehouse" is not one of the services`: func() { r.Dependency("warehouse", "disk", ForReads) },
		"needs a name":                           func() { r.Dependency("store", "", ForReads) },
		"store/disk exists already":              func() { r.Dependency("store", "disk", ForWrites) },
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
					t.Errorf("said %q, want %q", said, want)
				}
			}()
			mistake()
		}()
	}
}

func TestSayingTheSameAgainIsCheap(t *testing.T) {
	dep := NewReadiness(flow.NewInventory(), nil).Dependency("store", "disk", ForReads)
	dep.Up()
	if n := testing.AllocsPerRun(100, dep.Up); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// newSupervisor is a supervisor with one stage, started by the test.
func newSupervisor(t *testing.T, services ...supervise.Service) *supervise.Supervisor {
	t.Helper()
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range services {
		s.Stage = "all"
		if err := sup.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	return sup
}

// startSupervisor runs the supervisor until the returned function is called.
func startSupervisor(t *testing.T, sup *supervise.Supervisor) (stop func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sup.Run(context.Background())
	}()
	synctest.Wait()
	return func() {
		sup.Shutdown("the test is over")
		<-ended
	}
}

func serveUntilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func reasonOf(v Verdict, dep string) Reason {
	for _, r := range v.Reasons {
		if r.Dep == dep {
			return r
		}
	}
	return Reason{}
}

func TestReadinessFollowsThePhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		sup := newSupervisor(t, supervise.Service{Service: "edge", Name: "edge", Serve: func(ctx context.Context) error {
			<-ctx.Done()
			<-release // a drain that takes its time
			return nil
		}})
		r := NewReadiness(flow.NewInventory(), sup)
		phase := func(want string) {
			t.Helper()
			v := r.Evaluate()
			if got := reasonOf(v, "node"); v.Ready || v.WriteReady || got.Reason != want || got.Next == "" {
				t.Errorf("want not ready and %q: %+v", want, v)
			}
			if states, _ := r.measure(); states["node"] != stateDown || states["edge"] != stateDown {
				t.Errorf("%s: %v", want, states)
			}
		}
		phase("starting")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			sup.Run(context.Background())
		}()
		synctest.Wait()
		if v := r.Evaluate(); !v.Whole() {
			t.Errorf("running: %+v", v)
		}
		sup.Shutdown("the test says so")
		synctest.Wait()
		phase("draining")
		close(release)
		<-ended
		phase("stopped")
	})
}

func TestReadinessFollowsServicesAndPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := make(chan error)
		failing := func(ctx context.Context) error {
			select {
			case err := <-sick:
				return err
			case <-ctx.Done():
				return nil
			}
		}
		sup := newSupervisor(t,
			supervise.Service{Service: "overlay", Name: "listener", Serve: failing,
				Restart: supervise.Restart{First: time.Second, Min: time.Second, Cap: time.Second, Limit: 1, Window: time.Minute, OnCrashLoop: supervise.Down}},
			supervise.Service{Service: "index", Name: "index", Serve: serveUntilDone},
			supervise.Service{Service: "node", Name: "once", Serve: func(context.Context) error { return nil }})
		if err := sup.AddPool(supervise.Pool{N: 3, Service: supervise.Service{Service: "edge", Name: "workers", Stage: "all", Serve: serveUntilDone}}); err != nil {
			t.Fatal(err)
		}
		r := NewReadiness(flow.NewInventory(), sup)
		defer startSupervisor(t, sup)()
		expect := func(when string, ready, degraded bool, dep, reason string) {
			t.Helper()
			v := r.Evaluate()
			if v.Ready != ready || v.WriteReady != ready || v.Degraded != degraded {
				t.Errorf("%s: %+v", when, v)
			}
			if got := reasonOf(v, dep); got.Reason != reason || (reason != "") != (got.Next != "") {
				t.Errorf("%s: %s is said to be %+v, want %q", when, dep, got, reason)
			}
		}
		expect("all run, one has finished", true, false, "edge/workers", "")

		if err := sup.Kill("workers", 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		expect("a worker was killed", true, true, "edge/workers", "2 of 3 workers live: Passing failure: the worker was killed")
		time.Sleep(time.Second)
		synctest.Wait()
		expect("the worker is back", true, false, "edge/workers", "")

		sick <- fault.New("listen", fault.Transient, "port taken")
		synctest.Wait()
		expect("the listener failed", true, true, "overlay/listener", "failed and waits to be restarted: Passing failure: port taken")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		expect("the listener is back", true, false, "overlay/listener", "")

		sick <- errors.New("/etc/secret/path: again")
		synctest.Wait()
		expect("the listener is given up", false, false, "overlay/listener", "down after 1 restarts: Internal error")
		states, unmet := r.measure()
		if states["overlay"] != stateDown || states["node"] != stateDown || states["index"] != stateReady {
			t.Errorf("%v", states)
		}
		if unmet[series{"overlay", "listener"}] != 1 || unmet[series{"index", "index"}] != 0 {
			t.Errorf("%v", unmet)
		}
	})
}

func TestACrashLoopIsDegradedUntilItIsStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 3
		sup := newSupervisor(t, supervise.Service{Service: "mailbox", Name: "sweeper",
			Restart: supervise.Restart{First: time.Millisecond, Cap: time.Millisecond, Limit: 2, Window: time.Minute},
			Serve: func(ctx context.Context) error {
				if failures > 0 {
					failures--
					return errors.New("not yet")
				}
				return serveUntilDone(ctx)
			}})
		r := NewReadiness(flow.NewInventory(), sup)
		defer startSupervisor(t, sup)()
		time.Sleep(time.Second)
		if v := r.Evaluate(); !v.Ready || !v.Degraded || reasonOf(v, "mailbox/sweeper").Reason != "restarted too often, not stable yet: Internal error" {
			t.Errorf("after a crash loop: %+v", v)
		}
		if states, _ := r.measure(); states["mailbox"] != stateDegraded || states["node"] != stateDegraded {
			t.Errorf("%v", states)
		}
		time.Sleep(time.Minute)
		if v := r.Evaluate(); !v.Whole() {
			t.Errorf("after a minute without a failure: %+v", v)
		}
	})
}

func TestReadsWithoutWritesAreAStateOfTheirOwn(t *testing.T) {
	r := NewReadiness(flow.NewInventory(), nil)
	r.Dependency("registry", "disk", ForWrites).Down("slow", "Look at it.")
	states, unmet := r.measure()
	if states["node"] != stateDegraded || states["registry"] != stateDegraded || unmet[series{"registry", "disk"}] != 1 {
		t.Errorf("%v %v", states, unmet)
	}
}

func TestWatchTellsEveryChangeThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sup := newSupervisor(t, supervise.Service{Service: "index", Name: "index", Serve: serveUntilDone})
		r := NewReadiness(flow.NewInventory(), sup)
		dep := r.Dependency("store", "disk", ForWrites)
		var notified []string
		ctx, cancel := context.WithCancel(context.Background())
		watched := make(chan error)
		go func() {
			watched <- r.Watch(ctx, func(v Verdict) {
				notified = append(notified, fmt.Sprint(v.Ready, v.WriteReady, v.Missing))
			})
		}()
		synctest.Wait()
		stop := startSupervisor(t, sup)
		time.Sleep(watchPause) // the phase changes without an event
		synctest.Wait()
		dep.Up()
		synctest.Wait() // a change of a dependency is noticed at once
		dep.Up()
		synctest.Wait() // setting the same state again changes nothing
		dep.Down("gone", "Find it.")
		synctest.Wait()
		stop()
		r.Recheck() // what the node does on an event of the supervisor
		synctest.Wait()
		cancel()
		if err := <-watched; fault.KindOf(err) != fault.Canceled {
			t.Errorf("it ended with %v", err)
		}
		want := []string{"false false [node store/disk]", "true false [store/disk]", "true true []", "true false [store/disk]", "false false [node store/disk]"}
		if !slices.Equal(notified, want) {
			t.Errorf("told %q\nwant %q", notified, want)
		}
	})
}

func TestARemarkIsListedAndChangesNothing(t *testing.T) {
	readiness := NewReadiness(flow.NewInventory(), nil)
	dep := readiness.Dependency("node", "amnesia", ForWrites)
	dep.UpWithRemark("the kernel does not enforce it", "Use Linux 6.2 or newer.")
	now := readiness.Evaluate()
	if !now.Whole() || len(now.Missing) != 0 || len(now.Reasons) != 1 || now.Reasons[0].Next != "Use Linux 6.2 or newer." {
		t.Errorf("%+v", now)
	}
	dep.Up()
	if now := readiness.Evaluate(); len(now.Reasons) != 0 {
		t.Errorf("%+v", now)
	}
}
