package overlay

import (
	"context"
	"fmt"
	"time"

	"micronode/fault"
)

// How pressure is judged. One glance says little, so readiness follows only
// when several in a row agree; a publish is refused at the first.
const (
	glance    = 250 * time.Millisecond
	tooMuch   = 0.9
	enough    = 0.5
	patience  = 4 // glances above tooMuch until writes are told to stay away
	composure = 4 // glances below enough until they may come back
)

// gauge turns glances at the pressure into a verdict that does not flutter.
type gauge struct {
	high, low int
	down      bool
	shed      uint64 // letters that had been turned away at the last glance
}

// note takes a glance and reports whether writes should stay away. Letters that
// were turned away since the last one are as good as a full queue.
func (g *gauge) note(pressure float64, shed uint64) (down bool) {
	if shed != g.shed {
		g.shed, pressure = shed, 1
	}
	switch {
	case pressure >= tooMuch:
		g.high, g.low = g.high+1, 0
	case pressure < enough:
		g.high, g.low = 0, g.low+1
	default:
		g.high, g.low = 0, 0
	}
	if g.high >= patience {
		g.down = true
	}
	if g.low >= composure {
		g.down = false
	}
	return g.down
}

// watch keeps readiness true until the sessions have been drained.
func (o *Overlay) watch(ctx context.Context) error {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for {
		o.judge()
		o.showOut()
		select {
		case <-ticker.C:
		case <-o.drained:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// showOut ends sessions of peers that are not welcome any more. Who is removed
// is let go at once; this finds those who were in the doorway just then.
func (o *Overlay) showOut() {
	if o.config.Open {
		return
	}
	for _, s := range o.book.strangers(o.sessions.Active(), time.Now(), 2*o.config.Handshake) {
		s.End(nil)
	}
}

func (o *Overlay) judge() {
	if o.gauge.note(o.engine.Pressure(), o.engine.Shed()) {
		o.pressure.Down("more letters come than can be checked, and some are turned away",
			"Publish less, raise overlay.gossip.workers, or see `micronode peers` for a peer that floods.")
	} else {
		o.pressure.Up()
	}
	named, active := o.book.count(), len(o.sessions.Active())
	if named > 0 && active == 0 {
		o.company.UpBut(fmt.Sprintf("none of %d peers is connected", named), "See `micronode peers` for why.")
	} else {
		o.company.Up()
	}
}

// relieved refuses a publish while there is no room for it.
func (o *Overlay) relieved() error {
	if o.engine.Pressure() < tooMuch {
		return nil
	}
	return &fault.Error{Op: "overlay.publish", Kind: fault.Busy, Detail: "the gossip queues are full",
		Next: "Try again in a moment.", RetryAfter: time.Second}
}
