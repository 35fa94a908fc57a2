package edge

import (
	"strings"

	"micronode/fault"
	"micronode/internal/edge/pack"
)

// updateReadiness reports the state of the packs to readiness. A pack that is
// not served makes the edge not ready, because requests for its tiles fail and
// a balancer should know. A pack whose older version is served while the new
// one is bad degrades it. Other packs are served in both cases.
func (e *Edge) updateReadiness(now pack.State) {
	e.tiles.clear() // tiles of old versions would only take space
	var down, degraded []string
	var next string
	for _, one := range now.Packs {
		switch one.Condition {
		case pack.Serving:
			continue
		case pack.Degraded:
			degraded = append(degraded, fault.DetailOf(one.Err))
		default:
			down = append(down, fault.DetailOf(one.Err))
		}
		if next == "" {
			next = fault.NextOf(one.Err)
		}
	}
	switch {
	case len(down) > 0:
		e.packsReady.Down(strings.Join(append(down, degraded...), "; "), next)
	case len(degraded) > 0:
		e.packsReady.Degraded(strings.Join(degraded, "; "), next)
	case now.Watch != nil:
		e.packsReady.UpWithRemark(fault.DetailOf(now.Watch), fault.NextOf(now.Watch))
	default:
		e.packsReady.Up()
	}
}
