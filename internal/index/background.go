package index

import (
	"context"
	"fmt"
	"time"

	"micronode/fault"
	"micronode/internal/breaker"
	"micronode/internal/flow"
	"micronode/internal/index/record"
)

// readinessInterval is how often readiness is updated, if there is anything to
// check.
const readinessInterval = 2 * time.Second

// runReadiness updates readiness. When the DHT comes to life, all objects are
// announced: until then there were no peers to announce them to.
func (x *Index) runReadiness(ctx context.Context) error {
	for wasAlive := x.dhtAlive(); ; {
		cfg, version := x.settings.LoadVersion()
		x.updateReadiness(cfg)
		alive := x.dhtAlive()
		if alive && !wasAlive {
			x.Reindex()
		}
		wasAlive = alive
		waitCtx, cancel := ctx, func() {}
		if x.spec.Engine != nil || len(cfg.endpoints) > 0 {
			waitCtx, cancel = context.WithTimeout(ctx, readinessInterval)
		}
		_, _, _ = x.settings.WaitForChange(waitCtx, version) // a new configuration and the time-out are both reasons to check
		cancel()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// updateReadiness reports the state of the DHT and the endpoints to readiness.
// A node whose routing table is empty still answers for what it has and knows,
// so it is degraded and not down: otherwise the first node of a network could
// never become ready.
func (x *Index) updateReadiness(cfg *settings) {
	switch {
	case x.spec.Engine == nil || x.dhtAlive():
		x.table.Up()
	default:
		x.table.Degraded("the routing table of the DHT is empty",
			"Check that the peers in index.dht.bootstrap are up and reachable from here, or wait until a peer joins.")
	}
	broken := 0
	for _, t := range cfg.endpoints {
		if x.breakers.State(t.Key) == breaker.Open {
			broken++
		}
	}
	if all := len(cfg.endpoints); all > 0 && broken == all {
		x.endpoints.Degraded(fmt.Sprintf("all %d endpoints of Delegated Routing fail", all),
			"Check that the endpoints in index.delegated are up and reachable from here; each is retried after index.breaker.cooldown.")
	} else {
		x.endpoints.Up()
	}
}

const (
	warmUpInterval  = 20 * time.Millisecond // between two keys, so that waiting requests come first
	warmUpBusyDelay = time.Second           // after Busy
)

// runWarmUp looks up the keys of the configuration, one after the other, at the
// start and after each reload.
func (x *Index) runWarmUp(ctx context.Context) error {
	cfg, version := x.settings.LoadVersion()
	for {
		for _, key := range cfg.Cache.WarmupKeys {
			if err := x.warm(ctx, key); err != nil {
				return nil // stopped
			}
		}
		var err error
		if cfg, version, err = x.settings.WaitForChange(ctx, version); err != nil {
			return nil // likewise
		}
	}
}

// warm resolves one key. The result only decides when to continue.
func (x *Index) warm(ctx context.Context, key string) error {
	id, err := record.ParseID(key)
	if err != nil {
		return nil // rejected when the configuration was read
	}
	for {
		_, err := x.Resolve(ctx, id, Options{})
		if fault.KindOf(err) != fault.Busy {
			return flow.Sleep(ctx, warmUpInterval)
		}
		if err := flow.Sleep(ctx, warmUpBusyDelay); err != nil {
			return err
		}
	}
}

// janitorInterval is how often the janitors run. A late run is harmless:
// expired entries are not used, they only take memory.
const janitorInterval = 5 * time.Second

// runCacheJanitor trims the caches and compacts the logs.
func (x *Index) runCacheJanitor(ctx context.Context) error {
	return runEvery(ctx, janitorInterval, func() {
		x.Trim()
		x.compactSeenLog(ctx)
		x.compactIdempotencyLog(ctx)
	})
}

// runBreakerJanitor prunes the breakers.
func (x *Index) runBreakerJanitor(ctx context.Context) error {
	return runEvery(ctx, janitorInterval, func() { x.breakers.Prune(time.Now()) })
}

// runEvery calls do repeatedly until ctx ends.
func runEvery(ctx context.Context, pause time.Duration, do func()) error {
	for flow.Sleep(ctx, pause) == nil {
		do()
	}
	return nil
}

// Trim evicts what has expired: answers, prepared ones too, and the history of
// targets and providers that were not updated for long. The node's purger calls
// it in amnesia.
func (x *Index) Trim() {
	now := time.Now()
	x.cache.Purge(now)
	x.answerCache.purge(now)
	x.targets.prune(now)
	x.providers.prune(now)
	x.offenders.prune(now)
}
