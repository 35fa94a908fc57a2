package ingress

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"micronode/fault"
)

// Slots are shared out among clients, but however many clients there are, each
// may hold one for as long as it takes a byte now and then. So when a client
// that has nothing under way finds no slot, the slowest transfer loses its own.
// ADR 45 has the reasons.

const (
	// slowWindow is the time over which the rate of a transfer is measured, and
	// so how long each has before it can lose its slot.
	slowWindow = 10 * time.Second

	// slowRate is what a transfer has to move to keep its slot in any case, in
	// bytes a second.
	slowRate = 64 << 10
)

// errGaveWay ends a transfer that lost its slot.
var errGaveWay = &fault.Error{Op: "http.inflight", Kind: fault.Busy, Detail: "the node needed the slot of this transfer, which was the slowest, for another client",
	Next: "Wait for Retry-After and continue, with a Range for what is missing. A transfer of 64 KiB/s or more keeps its slot."}

// transfers is the transfers that hold slots of a pool.
type transfers struct {
	mu      sync.Mutex //lockblock:leaf a set
	running map[*call]struct{}
}

func (t *transfers) add(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == nil {
		t.running = map[*call]struct{}{}
	}
	t.running[c] = struct{}{}
}

func (t *transfers) remove(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, c)
}

// takeSlowest removes the slowest transfer and returns it; nil if none is slow.
// With inLane it is one that holds a slot of that route's lane.
func (t *transfers) takeSlowest(now time.Time, inLane *mountedRoute) *call {
	for {
		t.mu.Lock()
		running := slices.Collect(maps.Keys(t.running)) // no more than the pool has slots
		t.mu.Unlock()
		var slowest *call
		least := int64(slowRate)
		for _, c := range running {
			if inLane != nil && (c.route != inLane || !c.holdsLane.Load()) {
				continue
			}
			if rate, measured := c.clientRate(now); measured && rate < least {
				slowest, least = c, rate
			}
		}
		if slowest == nil || t.take(slowest) {
			return slowest
		}
		// It has ended meanwhile, or lost its slot to another: so there is one fewer.
	}
}

// take removes a transfer, and reports whether it was there.
func (t *transfers) take(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, holds := t.running[c]
	delete(t.running, c)
	return holds
}

// displaceSlowest frees the slot of the slowest transfer, if one is slow. Its
// handler ends a moment later.
func (t *transfers) displaceSlowest(now time.Time, inLane *mountedRoute) bool {
	slowest := t.takeSlowest(now, inLane)
	if slowest == nil {
		return false
	}
	slowest.route.reject("gave_way")
	slowest.server.noteRefusedClient(slowest.client, slowest.route.gaveWay(inLane != nil))
	slowest.giveWay()
	slowest.route.releaseSlot(slowest)
	return true
}

// gaveWay is the limit for which a transfer gives way.
func (m *mountedRoute) gaveWay(inLane bool) limitSetting {
	const limit = "a slow transfer gives way to another client"
	if inLane {
		return limitSetting{limit, ""} // the bounds of lanes are fixed
	}
	return limitSetting{limit, m.slotSetting()}
}

// transfers are those among which a transfer of the route holds its slot.
func (m *mountedRoute) transfers() *transfers {
	if m.route.Cheap {
		return &m.server.readers
	}
	return &m.pool.transfers
}

// slotClaimEvery is how often a client that waits for its first read looks for a
// slow one.
const slotClaimEvery = time.Second

// slotClaim makes slow reads give way for as long as a client that has none
// under way waits for its turn. Reads wait where other requests are refused: so
// those that come to be slow meanwhile count too, and a slot that becomes free
// may first be the turn of another client that waits.
type slotClaim struct {
	// set at construction
	route *mountedRoute
	class uint64

	mu    sync.Mutex //lockblock:leaf a timer is set
	timer *time.Timer
	done  bool
}

// startSlotClaim starts it, unless the client has reads under way.
func (m *mountedRoute) startSlotClaim(class uint64) *slotClaim {
	k := &slotClaim{route: m, class: class}
	if !k.displace() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(slotClaimEvery, k.again) //lockblock:allow it ends a transfer without waiting for it, and is stopped with the wait
	return k
}

// displace makes the slowest read give way if the client still has none, and
// reports that it has none.
func (k *slotClaim) displace() bool {
	if k.route.server.reads.RunningOf(k.class) > 0 {
		return false
	}
	k.route.transfers().displaceSlowest(time.Now(), nil)
	return true
}

func (k *slotClaim) again() {
	k.mu.Lock()
	done := k.done
	k.mu.Unlock()
	if done || !k.displace() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.done {
		k.timer.Reset(slotClaimEvery)
	}
}

// stop ends it with the wait.
func (k *slotClaim) stop() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done = true
	k.timer.Stop()
}

// giveWay ends a transfer: its context, and what its handler waits for. After
// the handler has returned it does nothing: the connection may be another
// request's.
func (c *call) giveWay() {
	watch, now := c.transferWatch, time.Now()
	watch.cancel(errGaveWay)
	watch.mu.Lock()
	defer watch.mu.Unlock()
	if watch.done {
		return
	}
	watch.expiresAt, watch.ended = now, true
	if watch.setReadDeadline != nil {
		watch.setReadDeadline(now)
	}
	if c.conn != nil && !c.http2 {
		_ = c.conn.Conn.SetWriteDeadline(now) // fails on a closed connection, and then the write reports it
		return
	}
	c.withController(func(under *http.ResponseController) error { return under.SetWriteDeadline(now) })
}

// moved counts bytes that the client has sent or taken.
func (w *watchdog) moved(n int) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.measure(now)
	w.windowBytes += int64(n)
}

// measure ends the window when it is over. Guarded by mu.
func (w *watchdog) measure(now time.Time) {
	if took := now.Sub(w.windowBegan); took >= slowWindow {
		if w.held > 0 {
			w.windowHeld += now.Sub(later(w.heldSince, w.windowBegan))
			w.heldSince = now
		}
		// What the client does is seen only while the node does not hold it back.
		seen := took - w.windowHeld
		if w.measured = seen >= slowWindow/100; w.measured {
			w.rate = int64(float64(w.windowBytes) / seen.Seconds())
		}
		w.windowBegan, w.windowBytes, w.windowHeld = now, 0, 0
	}
}

// clientRate is what the client has sent or taken over the last window, in bytes
// a second. It is not measured before the first window is over, nor while the
// client waits for the node.
func (c *call) clientRate(now time.Time) (rate int64, measured bool) {
	w := c.transferWatch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.measure(now)
	return w.rate, w.measured && !w.done && (w.responseStarted || c.awaitingBody.Load())
}
