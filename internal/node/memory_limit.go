package node

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/facet"
	"micronode/internal/flow"
	"micronode/internal/observe"
)

// memoryLimit is how much memory this process may use, and where the limit
// comes from.
type memoryLimit struct {
	bytes  uint64
	source string // in words
	soft   bool   // the runtime enforces it already
}

// findMemoryLimit reads all limits: of the control groups, of the operator by
// GOMEMLIMIT, of the machine.
func findMemoryLimit() memoryLimit {
	return readMemoryLimit(os.DirFS("/"), debug.SetMemoryLimit(-1))
}

// readMemoryLimit finds the lowest limit. The runtime has its own from
// GOMEMLIMIT, or none.
func readMemoryLimit(root fs.FS, runtime int64) memoryLimit {
	all := append(cgroupLimits(root), machineMemory(root))
	if runtime > 0 && runtime < math.MaxInt64 {
		all = append(all, memoryLimit{bytes: uint64(runtime), source: "GOMEMLIMIT", soft: true})
	}
	least := memoryLimit{bytes: math.MaxInt64, source: "nobody"}
	for _, one := range all {
		if one.bytes > 0 && one.bytes < least.bytes {
			least = one
		}
	}
	return least
}

// unlimited is a lower bound of what version 1 of control groups reports for
// "no limit".
const unlimited = 1 << 60

// cgroupLimits reads the limits of the control groups that the process is in,
// and of those around them: all of them apply. In a container the path may be
// that of the host, of which only the innermost group is visible, as the root.
func cgroupLimits(root fs.FS) (all []memoryLimit) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch controllers := strings.Split(fields[1], ","); {
		case fields[0] == "0" && fields[1] == "":
			all = append(all, ancestorLimits(root, "cgroup v2", "sys/fs/cgroup", fields[2], "memory.max", "memory.high")...)
			all = append(all, ancestorLimits(root, "cgroup v2", "sys/fs/cgroup/unified", fields[2], "memory.max", "memory.high")...)
		case slices.Contains(controllers, "memory"):
			all = append(all, ancestorLimits(root, "cgroup v1", "sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes")...)
		}
	}
	return all
}

// ancestorLimits reads the limits from a group up to the root of its hierarchy.
func ancestorLimits(root fs.FS, version, mount, group string, files ...string) (all []memoryLimit) {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		for _, file := range files {
			name := path.Join(mount, at, file)
			text, err := fs.ReadFile(root, name)
			if err != nil {
				continue
			}
			bytes, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64) // "max" is not a number, and no limit
			if err == nil && bytes < unlimited {
				all = append(all, memoryLimit{bytes: bytes, source: version + ", /" + name})
			}
		}
		if at == "/" {
			return all
		}
	}
}

// machineMemory is the memory of the machine.
func machineMemory(root fs.FS) memoryLimit {
	text, _ := fs.ReadFile(root, "proc/meminfo") // without the file there is no such line
	for line := range strings.Lines(string(text)) {
		var kilobytes uint64
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kilobytes); n == 1 {
			return memoryLimit{bytes: kilobytes << 10, source: "the machine"}
		}
	}
	return memoryLimit{}
}

// String is the limit as it is shown.
func (m memoryLimit) String() string {
	return fmt.Sprintf("%s (%s)", rounded(m.bytes), m.source)
}

// runtimeMarginDivisor is the part of the limit that the runtime must leave
// free: for the program itself, and for what the kernel keeps for the process.
const runtimeMarginDivisor = 10

// applyToRuntime makes the runtime collect garbage rather than exceed the
// limit. A GOMEMLIMIT of the operator stays.
func (m memoryLimit) applyToRuntime() {
	if !m.soft && m.bytes < math.MaxInt64 {
		debug.SetMemoryLimit(int64(m.bytes - m.bytes/runtimeMarginDivisor))
	}
}

// budgetPercent is how much of the limit, in percent, all memory budgets
// together may take by default. The rest is for requests, for the garbage
// between two collections, and for the program.
const budgetPercent = 60

// What things take that are counted and not measured, about.
const (
	seenBytes      = 64       // a message in the overlay's seen-set
	keyBytes       = 256      // an idempotency key of the mailbox
	connBytes      = 20 << 10 // a connection of a client: its goroutine and its buffers
	waitingBytes   = 12 << 10 // a read that waits for its turn: its goroutine and its request
	graphEdgeBytes = 400      // a follow, with new names at both ends
)

// memoryBudget is a setting by which a part of the node is kept within memory.
type memoryBudget struct {
	key    string
	bytes  uint64        // that its default may take
	counts bool          // whether the defaults make room for it: not for facets that are off
	scale  func(float64) // multiplies the setting
}

// memoryBudgets is the one list of what takes memory, and how much at the
// defaults in c: what is kept, and what requests hold. On says which facets run.
func memoryBudgets(c *Config, on facet.Config) (list []memoryBudget) {
	sizeFrom := func(least config.Size, key string, of *config.Size, times float64, counts bool) {
		list = append(list, memoryBudget{key, uint64(float64(*of) * times), counts, func(factor float64) {
			*of = max(least, config.Size(float64(*of)*factor)/config.MiB*config.MiB)
		}})
	}
	size := func(key string, of *config.Size, times float64, counts bool) {
		sizeFrom(config.MiB, key, of, times, counts)
	}
	count := func(key string, of *int, each uint64, least int, counts bool) {
		list = append(list, memoryBudget{key, uint64(*of) * each, counts, func(factor float64) { *of = max(least, int(float64(*of)*factor)) }})
	}
	size("store.ram_bytes", &c.Store.RAMBytes, 1+1.0/objectCacheDivisor, true)
	size("edge.directory_bytes", &c.Edge.DirectoryBytes, 1, true)
	size("edge.shelf_bytes", &c.Edge.PreparedBytes, 1, true)
	edgeCache := config.Size(c.Edge.Cache.Budget(false))
	list = append(list, memoryBudget{"edge.cache.max_bytes", uint64(edgeCache), true, func(factor float64) {
		c.Edge.Cache.MaxBytes = config.Auto[config.Size]{Value: max(config.MiB, config.Size(float64(edgeCache)*factor)/config.MiB*config.MiB)}
	}})
	size("edge.cache.arriving_bytes", &c.Edge.Cache.ArrivingBytes, 1, true)
	size("index.cache.bytes", &c.Index.Cache.Bytes, 1, true)
	size("index.cache.shelf_bytes", &c.Index.Cache.PreparedBytes, 1, true)
	size("mailbox.ram_bytes", &c.Mailbox.RAMBytes, 1, true)
	count("mailbox.keys", &c.Mailbox.Keys, keyBytes, 10_000, true)
	size("registry.storage.ram_bytes", &c.Registry.Storage.RAMBytes, 1, true)
	size("overlay.gossip.history_bytes", &c.Overlay.Gossip.HistoryBytes, 1, true)
	sizeFrom(2*config.MiB, "overlay.gossip.ingress_bytes", &c.Overlay.Gossip.IngressBytes, 2, true)
	sizeFrom(4*config.MiB, "overlay.peer.total_bytes", &c.Overlay.Peer.TotalBytes, 1, true)
	count("overlay.gossip.seen", &c.Overlay.Gossip.Seen, seenBytes, 10_000, true)
	size("limits.memory", &c.Limits.Memory, 1, true)
	count("limits.max_conns", &c.Limits.MaxConns, connBytes, 256, true)
	count("limits.reads_waiting", &c.Limits.ReadsWaiting, waitingBytes, 128, true)
	count("facets.graph.max_edges", &c.Facets.Graph.MaxEdges, graphEdgeBytes, 10_000, on.Graph.Enabled)
	size("facets.search.max_bytes", &c.Facets.Search.MaxBytes, 2, on.Search.Enabled)
	size("facets.media.job_bytes", &c.Facets.Media.JobBytes, float64(c.Facets.Media.Concurrent()), on.Media.Enabled)
	size("facets.media.cache_bytes", &c.Facets.Media.CacheBytes, 1, on.Media.Enabled)
	return list
}

// scaleDefaults reduces defaults that together would not fit into the memory
// limit, each by the same factor, and returns the keys that it changed. On says
// which facets run.
func (m memoryLimit) scaleDefaults(c *Config, on facet.Config) (changed []string) {
	budgets := memoryBudgets(c, on)
	var all uint64
	for _, one := range budgets {
		if one.counts {
			all += one.bytes
		}
	}
	have := m.bytes / 100 * budgetPercent
	if have >= all {
		return m.raiseRequestMemory(c)
	}
	for _, one := range budgets {
		one.scale(float64(have) / float64(all))
		changed = append(changed, one.key)
	}
	slices.Sort(changed)
	return changed
}

// Where all defaults fit, requests may hold a part of the memory there is, up to
// what as many bodies of limits.body take as may be under way.
const (
	requestMemoryDivisor = 16
	requestMemoryMost    = config.GiB
)

// raiseRequestMemory raises limits.memory where there is more memory than the
// defaults need: a client that sends many bodies at a time is refused where
// memory is scarce, and not where it is plenty.
func (m memoryLimit) raiseRequestMemory(c *Config) (changed []string) {
	more := config.Size(min(uint64(requestMemoryMost), m.bytes/requestMemoryDivisor)) / config.MiB * config.MiB
	if more <= c.Limits.Memory {
		return nil
	}
	c.Limits.Memory = more
	return []string{"limits.memory"}
}

// memoryMonitor watches how much of the limit is in use. Budgets keep what is
// stored within it; the monitor is for what no budget counts, and for budgets
// that an operator has set too high.
type memoryMonitor struct {
	// set at construction
	limit memoryLimit
	used  func() (uint64, error)

	usedFraction atomic.Uint64 // how much of the limit is in use, as a float
	refused      atomic.Uint64 // objects
}

// Fractions of the limit.
const (
	memoryHigh       = 0.85 // from here on the node is degraded
	memoryFull       = 0.95 // from here on it refuses objects
	memoryHysteresis = 0.10 // how far below the threshold that ends
)

// watchMemory reports to readiness, in two steps.
func (n *Node) watchMemory() {
	m := n.memory
	add := func(name string, at float64, effect flow.Effect, reason string) {
		n.readiness.Gauge(observe.Gauge{
			Service: service, Name: name, Effect: effect,
			Reason: fmt.Sprintf("%s: the limit is %s", reason, m.limit),
			Next:   "Give the node more memory, or lower store.ram_bytes and the caches; `micronode config show --origin` shows them.",
			Read:   func() (float64, uint64) { return gaugeAt(m.measure(), at), 0 },
		})
	}
	add("memory", memoryHigh, flow.Degrades, "memory is running low")
	add("memory for writes", memoryFull, flow.StopsWrites, "memory is used up, and objects are refused")
}

// watchOverdue reports requests that were answered at their deadline in place
// of what has not returned: most often a read from a disk that hangs.
func (n *Node) watchOverdue() {
	n.readiness.Gauge(observe.Gauge{
		Service: service, Name: "overdue requests", Effect: flow.Degrades,
		Reason: "requests were answered at their deadline because a handler or a read from disk has not returned",
		Next:   "Check the disks that this node reads from (dmesg): those of --persist, and of map packs and files. The log names the routes.",
		Read: func() (float64, uint64) {
			if n.gateway != nil && n.gateway.Overdue() > 0 {
				return 1, 0
			}
			return 0, 0
		},
	})
}

// watchHeldMemory reports when what requests hold fills its budget.
func (n *Node) watchHeldMemory() {
	n.readiness.Gauge(observe.Gauge{
		Service: service, Name: "memory of requests", Effect: flow.Degrades,
		Reason: "bodies, headers and answers fill limits.memory, and more of them is refused",
		Next:   "Check who sends large bodies slowly (the log at level debug names clients), or raise limits.memory if there is memory for it.",
		Read: func() (float64, uint64) {
			if n.gateway == nil {
				return 0, 0
			}
			return n.gateway.HeldMemory()
		},
	})
}

// gaugeAt maps a fraction of the limit to a gauge that is full (0.9) from the
// threshold on, and relaxed (0.5) some way below it.
func gaugeAt(fraction, threshold float64) float64 {
	const full, relaxed = 0.9, 0.5
	return min(1, max(0, full+(fraction-threshold)*(full-relaxed)/memoryHysteresis))
}

// measure measures, and keeps the result for admit.
func (m *memoryMonitor) measure() float64 {
	used, err := m.used()
	if err != nil || m.limit.bytes == 0 {
		return 0 // it cannot be measured here
	}
	part := float64(used) / float64(m.limit.bytes)
	m.usedFraction.Store(math.Float64bits(part))
	return part
}

// admit refuses an object while memory is used up.
func (m *memoryMonitor) admit() error {
	if m == nil || math.Float64frombits(m.usedFraction.Load()) < memoryFull {
		return nil
	}
	m.refused.Add(1)
	return &fault.Error{Op: "node.memory", Kind: fault.Backpressure, Detail: "the memory of the node is used up: the limit is " + m.limit.String(),
		Next: "Try again in a moment, or send it to another node. The operator can give this node more memory."}
}

// refusals is how many objects admit has refused.
func (m *memoryMonitor) refusals() uint64 {
	if m == nil {
		return 0
	}
	return m.refused.Load()
}

// anonymousMemory is the memory of this process that is not the content of
// files: the kernel can drop those.
func anonymousMemory() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, resident, shared uint64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil {
		return 0, err
	}
	return (resident - min(shared, resident)) * uint64(os.Getpagesize()), nil
}

// spareMemory is how much unused memory a node may keep.
const spareMemory = 16 << 20

// memoryTrim returns memory to the system. It belongs to the purger.
type memoryTrim struct {
	inUse uint64 // after the last release
}

// release collects garbage and returns memory if it is worth the cost. The
// runtime does so by itself, but only when it has to grow again: a node that
// was busy for a minute, or did handshakes with thousands of peers, and is idle
// since would keep twice what it needs.
func (t *memoryTrim) release() {
	if objects, free := heapSizes(); objects+free > t.inUse+spareMemory {
		debug.FreeOSMemory()
		t.inUse, _ = heapSizes()
	}
}

// startupTime is how long after its start a node has finished starting.
const startupTime = time.Second

// releaseStartupMemory releases memory that was needed only for the start.
func releaseStartupMemory(ctx context.Context) error {
	if flow.Sleep(ctx, startupTime) == nil {
		releaseProgramPages()
	}
	return nil
}

// heapSizes is the memory in use or garbage, and the free memory that was not
// returned.
func heapSizes() (objects, free uint64) {
	figures := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(figures)
	return figures[0].Value.Uint64(), figures[1].Value.Uint64()
}
