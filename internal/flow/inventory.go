package flow

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Inventory knows every queue, lane, bus, snapshot, set of permits and named
// lock of a node. It is made once and passed to whoever makes one of them;
// metrics, the readiness table, GET /debug/inventory and the generated
// documentation are all read from it.
type Inventory struct {
	seam seam // set at construction

	mu      sync.Mutex // held while the parts are read; their own mutexes are leaves
	records map[key]*record
}

// Entry is what is known of a part from the day it was made.
type Entry struct {
	Service string
	Name    string
	Kind    string // queue, lane, bus, snapshot, permits, lock
	Cap     int
	Waiting int // lanes and permits: how many may wait
	Policy  string
	From    string
	To      string
	Each    string // what there is one of these for; empty if there is just one
	Rank    int    // locks only
}

// Counts is what a part has done since it was made. For lanes and permits,
// accepted are those who came in and delivered those who left.
type Counts struct {
	Accepted  uint64
	Delivered uint64
	Refused   uint64            // turned away at once: Busy or Backpressure
	Expired   uint64            // gave up waiting
	Dropped   uint64            // by drop-oldest
	Coalesced uint64            // overwritten by a newer one
	Lagged    map[string]uint64 // buses: events lost, by consumer
	Inside    int               // lanes and permits: how many right now
}

// Stat is an entry with what it is doing now. Of parts that exist once for
// each session or peer, it is the sum.
type Stat struct {
	Entry
	Counts
	Depth     int
	Instances int
}

type key struct{ service, kind, name string }

// record is an entry with its live instances, and the counts of those that
// have been retired, so that totals never go down.
type record struct {
	entry   Entry
	live    map[int]reader
	serial  int
	retired Counts
}

// reader reports a part's depth and counts.
type reader func() (depth int, counts Counts)

// NewInventory makes an empty inventory for a node.
func NewInventory() *Inventory { return NewInventoryOn(nil) }

// NewInventoryOn makes an inventory whose parts park and wake through another
// seam than the Go runtime. It is for the explorer.
func NewInventoryOn(other Seam) *Inventory {
	return &Inventory{seam: seam{other}, records: map[key]*record{}}
}

// enrolment is a part's membership in the inventory.
type enrolment struct {
	inv    *Inventory
	key    key
	serial int
}

// enrol enters a part. What it refuses are mistakes of the program, to be
// found by the first test that makes the part, so it panics and says what to
// change.
func (inv *Inventory) enrol(entry Entry, read reader) enrolment {
	if entry.Service == "" || entry.Name == "" {
		panic(fmt.Sprintf("flow: a %s needs a Service and a Name, got %q and %q: nobody can read metrics of a part without a name", entry.Kind, entry.Service, entry.Name))
	}
	if entry.Cap < 1 || entry.Waiting < 0 {
		panic(fmt.Sprintf("flow: %s %s/%s needs a bound of 1 or more and cannot have a negative number waiting, got %d and %d", entry.Kind, entry.Service, entry.Name, entry.Cap, entry.Waiting))
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	k := key{entry.Service, entry.Kind, entry.Name}
	known, exists := inv.records[k]
	switch {
	case !exists:
		known = &record{entry: entry, live: map[int]reader{}}
		inv.records[k] = known
	case known.entry != entry:
		panic(fmt.Sprintf("flow: %s %s/%s was made before with another spec; two different parts need two names", entry.Kind, entry.Service, entry.Name))
	case entry.Each == "":
		panic(fmt.Sprintf("flow: %s %s/%s exists already; if there is one for each session or peer, say so in Each", entry.Kind, entry.Service, entry.Name))
	}
	known.serial++
	known.live[known.serial] = read
	return enrolment{inv, k, known.serial}
}

// retire takes a part out and keeps its counts. Retiring twice is harmless.
func (e enrolment) retire() {
	e.inv.mu.Lock()
	defer e.inv.mu.Unlock()
	known := e.inv.records[e.key]
	read, live := known.live[e.serial]
	if !live {
		return
	}
	delete(known.live, e.serial)
	_, counts := read()
	counts.Inside = 0
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
	for consumer, n := range more.Lagged {
		if c.Lagged == nil {
			c.Lagged = map[string]uint64{}
		}
		c.Lagged[consumer] += n
	}
}

// Read reports every part, sorted by service, kind and name.
func (inv *Inventory) Read() []Stat {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	stats := make([]Stat, 0, len(inv.records))
	for _, known := range inv.records {
		stat := Stat{Entry: known.entry, Instances: len(known.live)}
		stat.Counts.add(known.retired)
		for _, read := range known.live {
			depth, counts := read()
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
