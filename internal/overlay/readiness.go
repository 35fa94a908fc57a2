package overlay

import (
	"context"
	"fmt"
	"time"

	"micronode/internal/flow"
	"micronode/internal/observe"
)

// watchInterval is how often the overlay checks its sessions.
const watchInterval = 250 * time.Millisecond

// watchPressure adds gauges for what no queue shows: a queue that is never
// found full may reject messages all the same, and the seen-set may be full
// while nothing is queued. The latter does not affect publishing here.
func (o *Overlay) watchPressure() {
	o.spec.Readiness.Gauge(observe.Gauge{
		Service: service, Name: "pressure", Effect: flow.StopsWrites,
		Reason: "messages arrive faster than workers check them; some are rejected",
		Next:   "Publish less, raise overlay.gossip.workers, or limit each peer with overlay.peer.max_rps; gossip_letters_total in /metrics shows the rate.",
		Read:   func() (float64, uint64) { return o.engine.Pressure(), o.engine.Shed() },
	})
	o.spec.Readiness.Gauge(observe.Gauge{
		Service: service, Name: "seen", Effect: flow.Degrades,
		Reason: "the seen-set is full; messages of peers are refused",
		Next:   "Raise overlay.gossip.seen, or limit each peer with overlay.peer.max_rps. It recovers by itself as messages expire.",
		Read:   func() (float64, uint64) { return o.engine.SeenFullness(), 0 },
	})
}

// watch updates readiness until the sessions have been drained.
func (o *Overlay) watch(ctx context.Context) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		o.updateReadiness()
		o.closeUnauthorized()
		select {
		case <-ticker.C:
		case <-o.drained:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// closeUnauthorized closes sessions of peers that are not admitted any more.
// Removing a peer closes its session. This closes sessions whose handshake
// finished just after.
func (o *Overlay) closeUnauthorized() {
	if o.config.Open {
		return
	}
	o.recheckGuests(time.Now())
	for _, s := range o.contacts.unauthorized(o.sessions.Active(), time.Now(), 2*o.config.Handshake) {
		s.CloseWithError(nil)
	}
}

func (o *Overlay) updateReadiness() {
	named, active := o.contacts.count(), len(o.sessions.Active())
	if named > 0 && active == 0 {
		o.peersReady.UpWithRemark(fmt.Sprintf("none of %d peers is connected", named), "See `micronode peers` for why.")
	} else {
		o.peersReady.Up()
	}
}
