package node

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// queueEffects has, for every queue, lane and set of permits of a node with
// everything turned on, what it means when it is full: a new one needs an
// entry. What is not here is exempt: it may drop, or there is one for each
// session.
var queueEffects = map[string]flow.Effect{
	"edge/packs":             flow.Degrades,
	"edge/work":              flow.Degrades,
	"feed/feed_fanout":       flow.Degrades,
	"gateway/http_conns":     flow.Degrades,
	"gateway/http_inflight":  flow.Degrades,
	"gateway/http_streams":   flow.Degrades,
	"gateway/http_stuck":     flow.Degrades,
	"gateway/http_reads":     flow.Degrades,
	"gateway/local_conns":    flow.Degrades,
	"graph/graph_expand":     flow.Degrades,
	"graph/writes":           flow.StopsWrites,
	"index/comparisons":      flow.Degrades,
	"index/look-ups":         flow.Degrades,
	"index/names":            flow.StopsWrites,
	"index/work":             flow.Degrades,
	"mailbox/reads":          flow.Degrades,
	"mailbox/receivers":      flow.Degrades,
	"index/proofs":           flow.Degrades,
	"media/media_jobs":       flow.Degrades,
	"node/admin_conns":       flow.Degrades,
	"node/admin_stuck":       flow.Degrades,
	"node/bandwidth_down":    flow.ReportOnly,
	"node/bandwidth_up":      flow.ReportOnly,
	"node/revocations":       flow.Degrades,
	"node/work":              flow.StopsWrites,
	"overlay/conns":          flow.ReportOnly,
	"overlay/dials":          flow.ReportOnly,
	"overlay/fetches":        flow.Degrades,
	"overlay/folders":        flow.Degrades,
	"overlay/gossip_ingress": flow.StopsWrites,
	"overlay/gossip_order":   flow.Degrades,
	"overlay/ingress":        flow.Degrades,
	"overlay/keep_peers":     flow.Degrades,
	"overlay/maps":           flow.Degrades,
	"overlay/publish":        flow.StopsWrites,
	"overlay/reach":          flow.Degrades,
	"overlay/trees":          flow.Degrades,
	"registry/approvals":     flow.StopsWrites,
	"registry/commits":       flow.StopsWrites,
	"registry/proposals":     flow.StopsWrites,
	"registry/retention_cmd": flow.Degrades,
	"search/reading":         flow.Degrades,
	"search/search_qps":      flow.Degrades,
	"store/uploads":          flow.StopsWrites,
}

// dependency has the names that are also those of a dependency, which is down
// while the node does not run.
var dependency = map[string]bool{"index/names": true, "edge/packs": true}

// A full queue is reported under its name, with its effect, and no longer once
// there is room.
func TestEveryFullQueueIsTold(t *testing.T) {
	options := testOptions(t)
	options.Persist = t.TempDir()
	for _, facet := range []string{"feed", "graph", "search", "media"} {
		options.Sources.Flags = append(options.Sources.Flags, config.Flag{Key: "facets." + facet + ".enabled", Value: "true", Name: "test"})
	}
	n, err := New(t.Context(), options) // it does not run: nothing takes from the queues
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan error)
	go func() { watched <- n.readiness.WatchProgress(ctx) }()

	kinds := map[string]string{}
	for _, part := range n.inventory.Progress(nil) {
		name := part.Service + "/" + part.Name
		kinds[name] = part.Kind
		if want, known := queueEffects[name]; !known || part.Effect != want {
			t.Errorf("%s %s has the effect %d, and should have %d (known: %t)", part.Kind, name, part.Effect, want, known)
		}
	}
	for name := range queueEffects {
		if kinds[name] == "" {
			t.Errorf("there is no %s", name)
		}
	}
	for _, effect := range []flow.Effect{flow.ReportOnly, flow.Degrades, flow.StopsWrites} {
		names := slices.Sorted(maps.Keys(maps.Collect(func(yield func(string, bool) bool) {
			for name, one := range queueEffects {
				if one == effect && !yield(name, true) {
					return
				}
			}
		})))
		var leaves []func()
		for _, name := range names {
			of, part, _ := strings.Cut(name, "/")
			leave, ok := n.inventory.Occupy(of, kinds[name], part)
			if !ok {
				t.Fatalf("%s cannot be filled", name)
			}
			leaves = append(leaves, leave)
		}
		now := n.waitFullQueues(t, names)
		if now.Degraded != (effect == flow.Degrades) {
			t.Errorf("%v are full: %+v", names, now)
		}
		for _, name := range names {
			if said := slices.Contains(now.Missing, name); said != (effect == flow.StopsWrites) && !dependency[name] {
				t.Errorf("%s is full, and missing are %v", name, now.Missing)
			}
		}
		for _, leave := range leaves {
			leave()
		}
		n.waitFullQueues(t, nil)
	}
	stop()
	if err := <-watched; err != nil {
		t.Error(err)
	}
}

// waitFullQueues waits until exactly these are reported full.
func (n *Node) waitFullQueues(t *testing.T, names []string) (last observe.Verdict) {
	t.Helper()
	testkit.WaitFor(t, fmt.Sprintf("exactly %v are told to be full", names), func() bool {
		last = n.readiness.Evaluate()
		var full []string
		for _, one := range last.Reasons {
			if strings.Contains(one.Reason, " is full") && one.Next != "" {
				full = append(full, one.Dep)
			}
		}
		return slices.Equal(full, names)
	})
	return last
}

// Work that never ends stops writes, over HTTP, and not reads: first the
// workers are stuck, then the queue behind them is full. It recovers by itself.
func TestWorkThatDoesNotEndStopsWrites(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	release, started, done := make(chan struct{}), make(chan struct{}, 64), make(chan error)
	stuck := func(context.Context) error { started <- struct{}{}; <-release; return nil }
	submit := func(do func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		done <- n.submit(ctx, true, do)
	}
	for at := 0; at < 2; { // on a busy machine those that start after their deadline are not begun
		go submit(stuck)
		select {
		case <-started:
			at++
			<-done
		case <-done:
		}
	}
	for range n.work.Cap() {
		go submit(func(context.Context) error { return nil })
	}
	for range n.work.Cap() {
		<-done
	}
	until := func(ready bool, deps ...string) {
		t.Helper()
		testkit.WaitFor(t, fmt.Sprintf("writes are ready: %t, missing %v", ready, deps), func() bool {
			status, body := n.get(t, "/readyz")
			missing, _ := body["missing"].([]any)
			all := !slices.ContainsFunc(deps, func(dep string) bool { return !slices.Contains(missing, any(dep)) })
			return body["write_ready"] == ready && (status == http.StatusOK) == ready && all
		})
		if status, _ := n.get(t, "/readyz?for=read"); status != http.StatusOK {
			t.Errorf("reads are served, and /readyz?for=read is %d", status)
		}
	}
	until(false, "node/work", "node/worker")
	close(release)
	until(true)
	n.stop()
	if report := <-n.ended; len(report.LeftRunning) != 0 {
		t.Errorf("%v", report)
	}
}

var _ supervise.Deadliner = (*job)(nil)
