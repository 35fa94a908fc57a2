package mailbox

import (
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
	return &RAM{newQueueServer(inv, spec.Limits, spec.Zero)}
}

// Tasks implements Tasker.
func (r *RAM) Tasks() []Task { return []Task{{Name: "mailbox sweeper", Serve: r.sweep}} }

// Close implements Engine. With Zero, everything is overwritten.
func (r *RAM) Close() error {
	if r.close() {
		r.clear()
	}
	return nil
}
