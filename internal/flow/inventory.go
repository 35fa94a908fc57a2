package flow

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Inventory lists every queue, lane, bus, snapshot and set of permits of a node.
// It is made once and passed to every constructor of one of them; metrics, the
// readiness table, GET /debug/inventory and the generated documentation are all
// read from it.
type Inventory struct {
	seam  seam // set at construction
	onLag atomic.Pointer[func(bus, consumer string, missed uint64)]

	mu         sync.Mutex // held while the components are read; their own mutexes are leaves
	components map[key]*component
}

// OnLag sets the hook that every bus reader calls after it lost events. It is
// called on the reader's goroutine, with no lock held, and must not wait.
func (inv *Inventory) OnLag(hook func(bus, consumer string, missed uint64)) { inv.onLag.Store(&hook) }

func (inv *Inventory) notifyLag(bus, consumer string, missed uint64) {
	if hook := inv.onLag.Load(); hook != nil {
		(*hook)(bus, consumer, missed)
	}
}

// Entry is what is fixed when a component is made.
type Entry struct {
	Service   string
	Name      string
	Kind      string // queue, lane, bus, snapshot, permits
	Cap       int
	Bytes     int // queues that are bounded in bytes, too: how many
	Waiting   int // lanes and permits: how many may wait
	Policy    string
	Displaces bool // it is shared by classes: a new item may displace those of the class that holds most
	From      string
	To        string
	Each      string // what there is one of these for; empty if there is just one
	Effect    Effect // on the node, when it is full or does not move
	Next      string // what an operator can do then; empty for the general advice
}

// The kinds that Progress distinguishes.
const (
	kindQueue   = "queue"
	kindLane    = "lane"
	kindPermits = "permits"
)

// Counts is what a component has done since it was made. For lanes and permits,
// accepted counts entries and delivered counts exits.
type Counts struct {
	Accepted    uint64
	Delivered   uint64
	Refused     uint64            // refused at once: Busy or Backpressure
	Expired     uint64            // the context ended while waiting
	Dropped     uint64            // by drop-oldest
	Coalesced   uint64            // overwritten by a newer one
	Lagged      map[string]uint64 // buses: events lost, by consumer
	Inside      int               // lanes and permits: how many right now
	Utilization float64           // how full it is right now, from 0 to 1; the fullest, if there are several
}

// Stat is an entry with its current state. For components that exist once for
// each session or peer, it is the sum.
type Stat struct {
	Entry
	Counts
	Depth     int
	Instances int
}

type key struct{ service, kind, name string }

// component is an entry with its live instances, and the counts of those that
// have been retired, so that totals never go down.
type component struct {
	entry     Entry
	instances map[int]instance
	serial    int
	retired   Counts
}

// instance is one instance of a component. It reports its depth and counts.
type instance interface {
	read() (depth int, counts Counts)
}

// NewInventory makes an empty inventory for a node.
func NewInventory() *Inventory { return NewInventoryOn(nil) }

// NewInventoryOn makes an inventory whose components park and wake through
// another seam than the Go runtime. It is for the explorer.
func NewInventoryOn(other Seam) *Inventory {
	return &Inventory{seam: seam{other}, components: map[key]*component{}}
}

// enrolment is the membership of an instance in the inventory.
type enrolment struct {
	inv    *Inventory
	key    key
	serial int
}

// enrol adds an instance. It panics on mistakes of the program and says what to
// change: the first test that makes the component finds them.
func (inv *Inventory) enrol(entry Entry, inst instance) enrolment {
	if entry.Service == "" || entry.Name == "" {
		panic(fmt.Sprintf("flow: a %s needs a Service and a Name, got %q and %q: nobody can read metrics of a part without a name", entry.Kind, entry.Service, entry.Name))
	}
	if entry.Cap < 1 || entry.Waiting < 0 {
		panic(fmt.Sprintf("flow: %s %s/%s needs a bound of 1 or more and cannot have a negative number waiting, got %d and %d", entry.Kind, entry.Service, entry.Name, entry.Cap, entry.Waiting))
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	k := key{entry.Service, entry.Kind, entry.Name}
	known, exists := inv.components[k]
	switch {
	case !exists:
		known = &component{entry: entry, instances: map[int]instance{}}
		inv.components[k] = known
	case known.entry != entry:
		panic(fmt.Sprintf("flow: %s %s/%s was made before with another spec; two different parts need two names", entry.Kind, entry.Service, entry.Name))
	case entry.Each == "":
		panic(fmt.Sprintf("flow: %s %s/%s exists already; if there is one for each session or peer, say so in Each", entry.Kind, entry.Service, entry.Name))
	}
	known.serial++
	known.instances[known.serial] = inst
	return enrolment{inv, k, known.serial}
}

// retire removes an instance and keeps its counts. Retiring twice is harmless.
func (e enrolment) retire() {
	e.inv.mu.Lock()
	defer e.inv.mu.Unlock()
	known := e.inv.components[e.key]
	inst, live := known.instances[e.serial]
	if !live {
		return
	}
	delete(known.instances, e.serial)
	_, counts := inst.read()
	counts.Inside, counts.Utilization = 0, 0
	known.retired.add(counts)
}

func (c *Counts) add(more Counts) {
	c.Accepted += more.Accepted
	c.Delivered += more.Delivered
	c.Refused += more.Refused
	c.Expired += more.Expired
	c.Dropped += more.Dropped
	c.Coalesced += more.Coalesced
	c.Inside += more.Inside
	c.Utilization = max(c.Utilization, more.Utilization)
	for consumer, n := range more.Lagged {
		if c.Lagged == nil {
			c.Lagged = map[string]uint64{}
		}
		c.Lagged[consumer] += n
	}
}

// Read reports every component, sorted by service, kind and name.
func (inv *Inventory) Read() []Stat {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	stats := make([]Stat, 0, len(inv.components))
	for _, known := range inv.components {
		stat := Stat{Entry: known.entry, Instances: len(known.instances)}
		stat.Counts.add(known.retired)
		for _, inst := range known.instances {
			depth, counts := inst.read()
			stat.Depth += depth
			stat.Counts.add(counts)
		}
		stats = append(stats, stat)
	}
	slices.SortFunc(stats, func(a, b Stat) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return stats
}
