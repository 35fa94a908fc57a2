package mailbox

import (
	"micronode/internal/flow"
)

// RAMSpec says what a mailbox in memory may take.
type RAMSpec struct {
	Limits Limits

	// Zero makes it zero the bodies as soon as nobody needs them. They are
	// copied on the way in and out then, so that nobody sees that happen.
	Zero bool
}

// RAM is an Engine in memory. It is gone when the process is.
type RAM struct{ *desk }

var (
	_ Engine = (*RAM)(nil)
	_ Tasked = (*RAM)(nil)
)

// NewRAM makes an empty mailbox.
func NewRAM(inv *flow.Inventory, spec RAMSpec) *RAM {
	return &RAM{newDesk(inv, spec.Limits, spec.Zero)}
}

// Tasks implements Tasked.
func (r *RAM) Tasks() []Task { return []Task{{Name: "mailbox sweeper", Serve: r.sweep}} }

// Close implements Engine. With Zero, everything is overwritten.
func (r *RAM) Close() error {
	if r.close() {
		r.forget()
	}
	return nil
}
