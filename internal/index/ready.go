package index

import (
	"context"
	"fmt"
	"time"

	"micronode/internal/index/breaker"
)

// readyPause is how often readiness is looked at, if there is anything to see.
const readyPause = 2 * time.Second

// watch is the Serve of readiness. When the DHT comes to life, it is told what
// this node has: until then there was nobody to tell.
func (x *Index) watch(ctx context.Context) error {
	for lived := x.alive(); ; {
		under, version := x.settings.Seen()
		x.look(under)
		alive := x.alive()
		if alive && !lived {
			x.Reindex()
		}
		lived = alive
		turn, cancel := ctx, func() {}
		if x.spec.Engine != nil || len(under.endpoints) > 0 {
			turn, cancel = context.WithTimeout(ctx, readyPause)
		}
		_, _, _ = x.settings.Changed(turn, version) // another configuration and the end of the pause are both reasons to look
		cancel()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// look tells readiness how the DHT and the endpoints do. A node whose routing
// table is empty still answers for what it has and knows, so it is degraded and
// not down: the first node of a network could otherwise never become ready.
func (x *Index) look(under *settings) {
	switch {
	case x.spec.Engine == nil || x.alive():
		x.table.Up()
	default:
		x.table.Degraded("the routing table of the DHT is empty: nobody can be asked",
			"Check that the peers in index.dht.bootstrap are up and can be reached from here, or wait until somebody joins.")
	}
	broken := 0
	for _, t := range under.endpoints {
		if x.breakers.State(t.Key) == breaker.Open {
			broken++
		}
	}
	if all := len(under.endpoints); all > 0 && broken == all {
		x.endpoints.Degraded(fmt.Sprintf("all %d endpoints of Delegated Routing fail", all),
			"Check that those in index.delegated are up and can be reached from here; each is tried again after index.breaker.cooldown.")
	} else {
		x.endpoints.Up()
	}
}
