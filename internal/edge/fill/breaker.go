package fill

import (
	"fmt"
	"hash/maphash"
	"math"
	"net/netip"
	"sync"
	"time"

	"micronode/fault"
)

// Origins and clients do not trust each other: one origin that hangs, or one
// client that requests what hangs, must cost the others nothing.
//
// The queue and the workers are shared among origins: an origin may take as
// many slots as are left, and what it has is shared among the clients in the
// same way. A fill without waiters leaves the queue at once. A fill under way
// may finish for the next request, but is not retried.
//
// The breaker of an origin that fails most of the time stays open for a while,
// and then admits two requests as a trial. It judges the origin and not what
// one client asks of it: silence does not count while the origin answers other
// clients, and a client that has not met it may try an open one.

// classSeed is the seed of origin classes, so that no client can make two
// origins share one.
var classSeed = maphash.MakeSeed()

// classOf is the class of an origin in the queue.
func classOf(host string) uint64 { return maphash.String(classSeed, host) }

// breakerTrials is how many requests at a time, of clients that the origin has
// not failed, an open breaker admits.
const breakerTrials = 2

// ClientOf is a client in the class of an origin. Zero is nobody in particular:
// a fill to warm up, or the node's own user.
func ClientOf(client netip.Addr) uint64 {
	if !client.IsValid() {
		return 0
	}
	return maphash.Comparable(classSeed, client)
}

// breakerFault says that the breaker of an origin is open, and for how long.
func breakerFault(host string, cause error) error {
	after := fault.RetryAfterOf(cause)
	return &fault.Error{Op: opOrigin, Kind: fault.BreakerOpen, Err: cause, RetryAfter: after,
		Detail: fmt.Sprintf("the circuit breaker of the origin %s is open after repeated failures", host),
		Next: fmt.Sprintf("Retry in %d s; cached answers are served meanwhile. If the origin is up, the operator checks that it is reachable from this node.",
			int(math.Ceil(after.Seconds())))}
}

// onBreakerOpen reports that a breaker opened.
func (c *Cache) onBreakerOpen(host string) {
	c.spec.Counters.BreakerOpened()
	c.spec.OnEvent(Event{Type: EventBreakerOpened, URL: allURLs + host})
}

// BreakerStates counts origins by the state of their breakers.
func (c *Cache) BreakerStates() map[string]int {
	c.breakers.Prune(time.Now()) // this is the only place that prunes, and the only one that needs it
	return c.breakers.Counts()
}

// breakerVerdict is the result that an origin's breaker records for an error.
// An origin that is unreachable or silent has failed. A response counts as
// success, whatever its status: it is relayed, and a client that requests what
// fails must not block the origin for others. What ends for a reason of ours is
// not counted.
func breakerVerdict(err error, answered bool) error {
	switch kind := fault.KindOf(err); {
	case kind == fault.Timeout, kind == fault.UpstreamFailed && !answered:
		return err
	case kind == fault.Canceled, kind == fault.RejectPolicy:
		return fault.Canceled
	default:
		return nil
	}
}

// reportOnce reports only the first result to a breaker.
func reportOnce(done func(error)) func(error) {
	var once sync.Once
	return func(err error) { once.Do(func() { done(err) }) }
}
