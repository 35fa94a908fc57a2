package flow

import "sync"

// LockSpec names a lock and gives it its rank.
type LockSpec struct {
	Service string
	Name    string
	Rank    int // locks nest only from a lower rank to a higher one
}

// Mutex is a lock with a name and a rank, for the few places where one lock
// must be taken while another is held. The rank is read from the call of
// NewMutex by the analyzer in tools/lockblock, which refuses nesting against
// it; at run time a Mutex is a sync.Mutex and nothing more.
type Mutex struct{ sync.Mutex }

// NewMutex makes a lock and enters it into the inventory. The rank must be a
// constant above zero.
func NewMutex(inv *Inventory, spec LockSpec) *Mutex {
	if spec.Rank < 1 {
		panic("flow: lock " + spec.Service + "/" + spec.Name + " needs a rank of 1 or more: locks nest from a lower rank to a higher one")
	}
	inv.enrol(Entry{Service: spec.Service, Name: spec.Name, Kind: "lock", Cap: 1, Rank: spec.Rank, Policy: "rank"},
		nothing{})
	return new(Mutex)
}

// nothing is what a lock reports: reading its state would mean locking it.
type nothing struct{}

func (nothing) read() (int, Counts) { return 0, Counts{} }
