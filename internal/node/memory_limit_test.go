package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/facet"
	"micronode/internal/observe"
	"micronode/internal/overlay"
	"micronode/internal/testkit"
)

// fakeFS is a machine's files.
func fakeFS(files map[string]string) fs.FS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

// The lowest limit applies, whatever its source, and the source is named.
func TestTheMemoryLimitIsFound(t *testing.T) {
	const none = math.MaxInt64
	const machine = "MemTotal:       16384000 kB\nMemFree:  1 kB\n"
	for name, c := range map[string]struct {
		files   map[string]string
		runtime int64
		bytes   uint64
		from    string
	}{
		"the machine": {map[string]string{"proc/meminfo": machine}, none, 16384000 << 10, "the machine"},
		"nobody":      {nil, none, math.MaxInt64, "nobody"},
		"GOMEMLIMIT":  {map[string]string{"proc/meminfo": machine}, 64 << 20, 64 << 20, "GOMEMLIMIT"},
		"v2": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/memory.max": "209715200\n"},
			none, 200 << 20, "cgroup v2, /sys/fs/cgroup/app/memory.max"},
		"v2, max": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/memory.max": "max\n"},
			none, 16384000 << 10, "the machine"},
		"v2, high": {map[string]string{"proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/memory.max": "209715200\n", "sys/fs/cgroup/app/memory.high": "104857600\n"},
			none, 100 << 20, "cgroup v2, /sys/fs/cgroup/app/memory.high"},
		"v2, a group around it": {map[string]string{"proc/self/cgroup": "0::/slice/app/deep\n", "sys/fs/cgroup/slice/app/deep/memory.max": "max\n",
			"sys/fs/cgroup/slice/app/memory.max": "209715200\n", "sys/fs/cgroup/slice/memory.max": "409715200\n"},
			none, 200 << 20, "cgroup v2, /sys/fs/cgroup/slice/app/memory.max"},
		"v2, in a container that sees the path of the host": {map[string]string{"proc/self/cgroup": "0::/docker/abc\n", "sys/fs/cgroup/memory.max": "209715200\n"},
			none, 200 << 20, "cgroup v2, /sys/fs/cgroup/memory.max"},
		"v2 beside v1": {map[string]string{"proc/self/cgroup": "4:memory:/\n0::/app\n", "sys/fs/cgroup/unified/app/memory.max": "209715200\n"},
			none, 200 << 20, "cgroup v2, /sys/fs/cgroup/unified/app/memory.max"},
		"v1": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/a/b\nnonsense\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "209715200\n"},
			none, 200 << 20, "cgroup v1, /sys/fs/cgroup/memory/a/memory.limit_in_bytes"},
		"v1, below GOMEMLIMIT": {map[string]string{"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "209715200\n"},
			1 << 40, 200 << 20, "cgroup v1, /sys/fs/cgroup/memory/a/memory.limit_in_bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readMemoryLimit(fakeFS(c.files), c.runtime); got.bytes != c.bytes || got.source != c.from || got.soft != (c.from == "GOMEMLIMIT") {
				t.Errorf("%+v", got)
			}
		})
	}
	if got := findMemoryLimit(); got.bytes == 0 || got.bytes == math.MaxInt64 {
		t.Errorf("here it is %+v", got)
	}
}

// Defaults are the documented ones if they fit into memory. Otherwise they are
// smaller, all of them together fit, and each is still usable: what is kept,
// what requests hold, and what the facets that are on take.
func TestDefaultsFitIntoMemory(t *testing.T) {
	documented, err := Defaults("")
	if err != nil {
		t.Fatal(err)
	}
	off, on := documented.Facets, documented.Facets
	on.Graph.Enabled, on.Search.Enabled, on.Media.Enabled = true, true, true
	roomy := documented
	if changed := (memoryLimit{bytes: 2200 << 20}).scaleDefaults(&roomy, off); len(changed) > 1 || roomy.Store.RAMBytes != 256*config.MiB {
		t.Errorf("%v were changed, and there is room", changed)
	}
	for limit, want := range map[uint64]config.Size{4 << 30: 256 * config.MiB, 24 << 30: config.GiB, math.MaxInt64: config.GiB} {
		c := documented
		changed := memoryLimit{bytes: limit}.scaleDefaults(&c, off)
		if c.Limits.Memory != want || !slices.Equal(changed, []string{"limits.memory"}) || c.Store.RAMBytes != 256*config.MiB {
			t.Errorf("with %d bytes requests may hold %s, and %v were changed", limit, c.Limits.Memory, changed)
		}
	}
	loaded, err := config.Load(documented, config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []uint64{64 << 20, 200 << 20, 1 << 30} {
		for _, facets := range []facet.Config{off, on} {
			c := documented
			changed := memoryLimit{bytes: limit}.scaleDefaults(&c, facets)
			var all uint64
			for _, one := range memoryBudgets(&c, facets) {
				if one.counts {
					all += one.bytes
				}
				if !slices.Contains(changed, one.key) {
					t.Errorf("with %d bytes, %s stays", limit, one.key)
				}
			}
			if all > limit*75/100 || limit >= 200<<20 && all > limit*64/100 || c.Store.RAMBytes < config.MiB || c.Store.RAMBytes >= 256*config.MiB {
				t.Errorf("of %d bytes, %d are given away: %v", limit, all, changed)
			}
			for _, key := range changed {
				if !slices.ContainsFunc(loaded.Entries(), func(e config.Entry) bool { return e.Key == key }) {
					t.Errorf("there is no setting %s", key)
				}
			}
			for _, validate := range []func() error{c.Store.Validate, c.Edge.Validate, c.Mailbox.Validate, c.Registry.Validate, c.Overlay.Validate, c.Index.Validate, c.Limits.Validate,
				c.Facets.Graph.Validate, c.Facets.Search.Validate, c.Facets.Media.Validate} {
				if err := validate(); err != nil {
					t.Errorf("with %d bytes: %v", limit, err)
				}
			}
		}
	}
}

// A large picture needs no more memory than there is for it: with little
// memory, all thumbnails that are made at a time take a share of it.
func TestThumbnailsFitIntoMemory(t *testing.T) {
	c, err := Defaults("")
	if err != nil {
		t.Fatal(err)
	}
	on := c.Facets
	on.Media.Enabled = true
	(memoryLimit{bytes: 200 << 20}).scaleDefaults(&c, on)
	if all := uint64(c.Facets.Media.JobBytes) * uint64(c.Facets.Media.Concurrent()); all > 70<<20 {
		t.Errorf("thumbnails may take %d bytes of 200 MiB", all)
	}
}

// notKept are the settings of a size that bound one thing at a time, or the
// disk. How many of these things there are at a time is bounded by a setting in
// the list.
var notKept = map[string]string{
	"limits.body":                    "one body; all are in limits.memory",
	"limits.header":                  "one header; all are in limits.memory",
	"limits.inflate":                 "one body; all are in limits.memory",
	"limits.public_bytes":            "a speed",
	"store.disk_bytes":               "on disk",
	"store.max_object_bytes":         "one object, in the store's budget",
	"store.scrub_bytes_per_second":   "a speed",
	"edge.fill.max_bytes":            "one body, in edge.cache.max_bytes",
	"edge.fill.inflate":              "one body, which is inflated to nowhere",
	"overlay.peer.queue_bytes":       "one peer; all are in overlay.peer.total_bytes",
	"overlay.gossip.have_bytes":      "a threshold",
	"overlay.gossip.max_frame_bytes": "one frame",
	"overlay.gossip.chunk_bytes":     "one chunk",
	"index.fetch.unproven":           "one object, in the store's budget",
	"mailbox.disk_bytes":             "on disk",
	"mailbox.box_bytes":              "one box, in the budget of all",
	"mailbox.max_message_bytes":      "one message, in the budget of all",
	"facets.feed.max_bytes":          "one post, in the mailbox's budget",
	"facets.media.max_bytes":         "one picture, in facets.media.job_bytes",
}

// Every setting of a size is in the list of memory budgets, or is known to be
// something else: so a new one is not forgotten.
func TestNoSettingOfASizeIsLeftOut(t *testing.T) {
	c, err := Defaults("")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(c, config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	listed, unknown := budgetKeys(&c), maps.Clone(notKept)
	for _, one := range loaded.Entries() {
		if !strings.HasPrefix(one.Type, "size") && !strings.HasSuffix(one.Key, "_bytes") {
			continue
		}
		if why, known := notKept[one.Key]; known == slices.Contains(listed, one.Key) {
			t.Errorf("%s is in memoryBudgets: %t; in notKept: %q. It must be in one of them", one.Key, !known, why)
		}
		delete(unknown, one.Key)
	}
	if len(unknown) > 0 {
		t.Errorf("there are no such settings: %v", unknown)
	}
}

func budgetKeys(c *Config) (keys []string) {
	for _, one := range memoryBudgets(c, c.Facets) {
		keys = append(keys, one.key)
	}
	return keys
}

// boundedInBytes is which setting bounds the bytes of which queue.
var boundedInBytes = map[string]string{
	"overlay/gossip_ingress": "overlay.gossip.ingress_bytes",
	"overlay/gossip_egress":  "overlay.peer.total_bytes",
	"overlay/chunks":         "overlay.peer.total_bytes",
	"overlay/control":        "overlay.peer.total_bytes",
	"registry/proposals":     "limits.memory", // the bodies of requests that wait for the committer
	"registry/approvals":     "limits.memory",
	"registry/commits":       "limits.memory",
}

// Every queue that holds bytes is bounded by a setting in the list of memory
// budgets.
func TestNoQueueOfBytesIsLeftOut(t *testing.T) {
	a := start(t, 2)
	a.waitReady(t)
	b := start(t, 2, config.Flag{Key: "overlay.peers", Value: a.Info().Overlay, Name: "test"})
	if _, err := a.overlay.AddPeer(overlay.Contact{ID: b.overlay.ID(), Addrs: []string{b.overlay.Addr().String()}}); err != nil {
		t.Fatal(err)
	}
	queues := map[string]bool{}
	testkit.WaitFor(t, "a session", func() bool {
		for _, one := range a.Inventory().Read() {
			if one.Bytes > one.Cap { // otherwise items are counted, and not their bytes
				queues[one.Service+"/"+one.Name] = true
			}
		}
		return queues["overlay/chunks"]
	})
	c, err := Defaults("")
	if err != nil {
		t.Fatal(err)
	}
	listed := budgetKeys(&c)
	for queue := range queues {
		if key := boundedInBytes[queue]; !slices.Contains(listed, key) {
			t.Errorf("queue %s holds bytes, and no memory budget is for it: %q", queue, key)
		}
	}
	for queue := range boundedInBytes {
		if !queues[queue] {
			t.Errorf("there is no queue %s", queue)
		}
	}
	b.stopAndWait(t)
	a.stopAndWait(t)
}

// With little memory, connections and the facets that are on take a share of it,
// as everything else does.
func TestConnectionsAndFacetsFitIntoMemory(t *testing.T) {
	c, err := Defaults("")
	if err != nil {
		t.Fatal(err)
	}
	on := c.Facets
	on.Graph.Enabled, on.Search.Enabled = true, true
	documented := c
	(memoryLimit{bytes: 200 << 20}).scaleDefaults(&c, on)
	for key, part := range map[string][2]uint64{
		"limits.max_conns":        {uint64(c.Limits.MaxConns) * connBytes, uint64(documented.Limits.MaxConns) * connBytes},
		"facets.graph.max_edges":  {uint64(c.Facets.Graph.MaxEdges) * graphEdgeBytes, uint64(documented.Facets.Graph.MaxEdges) * graphEdgeBytes},
		"facets.search.max_bytes": {uint64(c.Facets.Search.MaxBytes), uint64(documented.Facets.Search.MaxBytes)},
	} {
		if part[0] > part[1]/4 {
			t.Errorf("%s may take %d bytes of 200 MiB; where there is plenty, %d", key, part[0], part[1])
		}
	}
}

// What waits, and who is connected, takes no more than a share of little memory.
func TestWaitingReadsFitIntoMemory(t *testing.T) {
	c, err := Defaults("")
	if err != nil {
		t.Fatal(err)
	}
	(memoryLimit{bytes: 200 << 20}).scaleDefaults(&c, c.Facets)
	if all := c.Limits.ReadsWaiting*waitingBytes + c.Limits.MaxConns*connBytes; all > 30<<20 {
		t.Errorf("%d reads that wait and %d connections may take %d bytes of 200 MiB", c.Limits.ReadsWaiting, c.Limits.MaxConns, all)
	}
}

// Without free memory objects are refused, and the refusals are counted.
func TestMemoryThatIsUsedUpTakesNoMore(t *testing.T) {
	var used uint64
	m := &memoryMonitor{limit: memoryLimit{bytes: 100 << 20, source: "a test"}, used: func() (uint64, error) { return used, nil }}
	for _, c := range []struct {
		megabytes      uint64
		degraded, full bool
	}{{10, false, false}, {84, false, false}, {86, true, false}, {94, true, false}, {96, true, true}, {120, true, true}, {50, false, false}} {
		used = c.megabytes << 20
		part := m.measure()
		if (gaugeAt(part, memoryHigh) >= 0.9) != c.degraded || (gaugeAt(part, memoryFull) >= 0.9) != c.full {
			t.Errorf("at %d MiB of 100 the gauges say %v and %v", c.megabytes, gaugeAt(part, memoryHigh), gaugeAt(part, memoryFull))
		}
		err := m.admit()
		if (err != nil) != c.full {
			t.Errorf("at %d MiB of 100: %v", c.megabytes, err)
		}
		if err != nil && (fault.KindOf(err) != fault.Backpressure || fault.NextOf(err) == "" || !strings.Contains(err.Error(), "a test")) {
			t.Errorf("it says %v", err)
		}
	}
	if n := m.refusals(); n != 2 {
		t.Errorf("%d refusals are counted, and there were 2", n)
	}
	if gaugeAt(0.76, memoryHigh) < 0.5 || gaugeAt(0.74, memoryHigh) >= 0.5 {
		t.Error("what is relaxed is not a tenth below")
	}
	if used, err := anonymousMemory(); err != nil || used < 1<<20 {
		t.Errorf("this process takes %d bytes, %v", used, err)
	}
}

// A store that refuses objects for lack of space is reported by readiness,
// until there is space again.
func TestAStoreThatIsFullIsTold(t *testing.T) {
	n := start(t, 2, config.Flag{Key: "store.ram_bytes", Value: "1MiB", Name: "test"})
	n.waitReady(t)
	c := n.newLocalClient(t)
	var kept []b3.Address
	for {
		content := make([]byte, 64<<10)
		_, _ = rand.Read(content)
		object, err := c.Put(t.Context(), bytes.NewReader(content), client.PutOptions{})
		if err != nil {
			if fault.KindOf(err) != fault.StoreFull {
				t.Fatal(err)
			}
			break
		}
		kept = append(kept, object.Address)
	}
	seen, back := false, false
	ctx, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()
	_ = n.readiness.Watch(ctx, func(now observe.Verdict) {
		switch {
		case now.Ready && !now.WriteReady && slices.Equal(now.Missing, []string{"store/room"}):
			seen = true
			for _, address := range kept[:len(kept)/2] {
				if err := c.Delete(t.Context(), address); err != nil {
					t.Error(err)
				}
			}
		case seen && now.Whole():
			back = true
			done()
		}
	})
	if !seen || !back {
		t.Errorf("told: %t, and that it is over: %t", seen, back)
	}
	if refused := n.counted(t, "store_refusals_total"); refused != 1 {
		t.Errorf("%v refusals are counted, and there was one", refused)
	}
	n.stop()
	<-n.ended
}

// counted is the sum of a counter over its series.
func (n *runningNode) counted(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := n.metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, one := range family.GetMetric() {
			sum += one.GetCounter().GetValue()
		}
	}
	return sum
}
