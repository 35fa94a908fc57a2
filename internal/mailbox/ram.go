package mailbox

import (
	"runtime"

	"micronode/internal/flow"
)

// RAMSpec says what a mailbox in memory may take.
type RAMSpec struct {
	Limits Limits

	// Zero zeroes bodies as soon as they are not needed. They are then copied
	// on the way in and out, so that callers do not see that happen.
	Zero bool
}

// RAM is an Engine in memory. Its contents end with the process.
type RAM struct{ *queueServer }

var (
	_ Engine = (*RAM)(nil)
	_ Tasker = (*RAM)(nil)
)

// NewRAM makes an empty mailbox.
func NewRAM(inv *flow.Inventory, spec RAMSpec) *RAM {
	q := newQueueServer(inv, spec.Limits, spec.Zero)
	q.posts = flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "posts", Running: max(1, runtime.GOMAXPROCS(0)/2), Waiting: maxWaitingPosts, From: "facets", To: "boards",
		Effect: flow.ReportOnly, Next: "Notes wait for others to be on their boards. Nothing is lost: who posts tries again."})
	return &RAM{q}
}

// maxWaitingPosts is how many notes may wait to be posted.
const maxWaitingPosts = 1024

// Tasks implements Tasker.
func (r *RAM) Tasks() []Task { return []Task{{Name: "mailbox sweeper", Serve: r.sweep}} }

// Close implements Engine. With Zero, everything is overwritten.
func (r *RAM) Close() error {
	if r.close() {
		r.clear()
	}
	return nil
}
