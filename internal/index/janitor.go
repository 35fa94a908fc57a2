package index

import (
	"context"
	"time"

	"micronode/internal/flow"
)

// janitorPause is how often the janitors look. Nothing is wrong if they come
// late: what they throw away is not given to anybody, it only takes room.
const janitorPause = 5 * time.Second

// keepCache is the cache janitor's Serve.
func (x *Index) keepCache(ctx context.Context) error {
	return every(ctx, janitorPause, func() {
		x.Trim()
		x.keepSeen(ctx)
		x.keepDeeds(ctx)
	})
}

// keepBreakers is the breaker janitor's Serve.
func (x *Index) keepBreakers(ctx context.Context) error {
	return every(ctx, janitorPause, func() { x.breakers.Roll(time.Now()) })
}

// every does something again and again until ctx ends.
func every(ctx context.Context, pause time.Duration, do func()) error {
	for flow.Sleep(ctx, pause) == nil {
		do()
	}
	return nil
}

// Trim gives up what is past its life: answers, ready ones too, and what is
// known of those who were not heard of for long. The node's purger calls it in
// amnesia.
func (x *Index) Trim() {
	now := time.Now()
	x.cache.Purge(now)
	x.shelf.purge(now)
	x.targets.forget(now)
	x.providers.forget(now)
}
