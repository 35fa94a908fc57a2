package edge

import (
	"strings"

	"micronode/fault"
	"micronode/internal/edge/pack"
)

// remounted tells readiness what became of the packs. One that is not served
// makes the edge not ready: somebody who asks for its tiles gets none, and a
// balancer should know. One whose older version is served while the new one is
// bad degrades it. The others go on in both cases.
func (e *Edge) remounted(now pack.State) {
	e.tiles.clear() // those of versions that are gone would only take room
	var down, lame []string
	var next string
	for _, one := range now.Packs {
		switch one.Condition {
		case pack.Serving:
			continue
		case pack.Degraded:
			lame = append(lame, fault.DetailOf(one.Err))
		default:
			down = append(down, fault.DetailOf(one.Err))
		}
		if next == "" {
			next = fault.NextOf(one.Err)
		}
	}
	switch {
	case len(down) > 0:
		e.mounted.Down(strings.Join(append(down, lame...), "; "), next)
	case len(lame) > 0:
		e.mounted.Degraded(strings.Join(lame, "; "), next)
	case now.Watch != nil:
		e.mounted.UpBut(fault.DetailOf(now.Watch), fault.NextOf(now.Watch))
	default:
		e.mounted.Up()
	}
}
