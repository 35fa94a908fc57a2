package flow

// Effect is what follows for a node when a component is full or does not move.
type Effect uint8

const (
	// Degrades is for a component that requests go through: they are refused or
	// late.
	Degrades Effect = iota

	// StopsWrites is for a component that writes go through: the node is not
	// ready for them.
	StopsWrites

	// ReportOnly is for a component whose bound is a limit that a healthy node
	// may reach, or that no request waits for: it is reported, with no other
	// effect.
	ReportOnly
)

// Progress is the state of a component at one moment. Two samples of it show
// whether the component moves.
type Progress struct {
	Entry
	Utilization float64 // how full it is, from 0 to 1; at 1 it refuses
	Waits       bool    // something waits in it, or for a slot in it
	Moved       uint64  // what has left it since it was made
	Refused     uint64  // what it has refused since
}

// Progress appends one element for each component that must not stay full and
// must not stand still: queues that reject, lanes and permits. Exempt by their
// policy are buses, and queues that drop or coalesce, because a reader that is
// late costs no request; and components that exist once for each session,
// because one slow peer says nothing about the node.
//
// It is cheaper than Read, for it is called several times a second. The
// elements are in no order.
func (inv *Inventory) Progress(list []Progress) []Progress {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for _, known := range inv.components {
		if !known.entry.mustMove() {
			continue
		}
		for _, inst := range known.instances { // one, or none if it was retired
			depth, counts := inst.read()
			list = append(list, Progress{Entry: known.entry, Utilization: counts.Utilization, Waits: depth > 0, Moved: counts.Delivered, Refused: counts.Refused})
		}
	}
	return list
}

// mustMove reports whether requests wait for what goes through a component.
func (e *Entry) mustMove() bool {
	switch {
	case e.Each != "":
		return false
	case e.Kind == kindQueue:
		return e.Policy == RejectNew.String()
	default:
		return e.Kind == kindLane || e.Kind == kindPermits
	}
}

// Readiness is what follows for the node when the component is full or does not
// move, in words; empty for components that may be.
func (e *Entry) Readiness() string {
	switch {
	case !e.mustMove():
		return ""
	case e.Effect == StopsWrites:
		return "not write-ready"
	case e.Effect == ReportOnly:
		return "noted"
	default:
		return "degraded"
	}
}
