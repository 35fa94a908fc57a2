package ingress

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"micronode/fault"
	"micronode/internal/flow"
)

var (
	errRate = &fault.Error{Op: "http.rate", Kind: fault.RateLimited, Detail: "this address exceeds limits.rate"}
	errWork = &fault.Error{Op: "http.rate", Kind: fault.RateLimited, Detail: "the service has reached limits.work_rate",
		Next: "Wait for Retry-After and send the request again, at a lower rate."}
	errWorkShare = &fault.Error{Op: "http.rate", Kind: fault.RateLimited, Detail: "this client has used its share of limits.work_rate in the last second",
		Next: "Wait for Retry-After and send the request again, at a lower rate."}
	errReadsShare = &fault.Error{Op: "http.reads", Kind: fault.Busy, Detail: "this client has used its share of the reads that may wait",
		Next: "Wait for Retry-After, and send fewer concurrent requests."}
	errReads = &fault.Error{Op: "http.reads", Kind: fault.Backpressure, Detail: "no turn among the reads came in time",
		Next: "Wait for Retry-After and send the request again."}
	errClientShare = &fault.Error{Op: "http.inflight", Kind: fault.Busy, Detail: "this client has used its share of the concurrent requests",
		Next: "Wait for Retry-After, and send fewer concurrent requests."}
	errLaneShare = &fault.Error{Op: "http.inflight", Kind: fault.Busy, Detail: "this client has used its share of what this route does at a time",
		Next: "Wait for Retry-After, and send fewer concurrent requests."}
	errInflight = &fault.Error{Op: "http.inflight", Kind: fault.Busy, Detail: "the limit of concurrent requests of this route is reached"}
)

// spendRate spends a token of the client's rate. The local socket has none.
func (m *mountedRoute) spendRate(c *call) error {
	if client := c.clientState(); client != nil && !client.requests.AllowN(c.start, 1) {
		m.reject("rate_limit")
		return errRate
	}
	return nil
}

// isFromThisMachine reports whether a request comes from this machine, for a
// route that needs a capability. If it has one, it is from somebody who may do
// as the node's own user does, and queues are enough of a bound.
func (m *mountedRoute) isFromThisMachine(c *call) bool {
	return m.route.Scope != "" && (c.listener.options.Local || c.onLoopback() && c.client.IsLoopback())
}

// spendWork spends a token of the service, for queued work. It runs after
// authorisation. A client that had as much work done in the last second as
// there are tokens left is rejected. So a single client may use up the rate,
// and however many are greedy, a token is left for the next client.
func (m *mountedRoute) spendWork(c *call) error {
	one := c.clientState()
	if left := m.workLimiter.TokensAt(c.start); one != nil && left >= 1 && one.recentWork.value(c.start) >= left {
		m.reject("work_share")
		return errWorkShare
	}
	if !m.workLimiter.AllowN(c.start, 1) {
		m.reject("work_rate")
		return errWork
	}
	if one != nil {
		one.recentWork.add(c.start)
	}
	return nil
}

// decayingCount counts recent events: an event counts for one at first, and for
// e⁻¹ after a second.
type decayingCount struct {
	mu    sync.Mutex //lockblock:leaf arithmetic only
	count float64    // guarded by mu
	asOf  time.Time  // guarded by mu: the time of count
}

func (d *decayingCount) value(now time.Time) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.decayed(now)
}

func (d *decayingCount) add(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count = d.decayed(now) + 1
	if now.After(d.asOf) {
		d.asOf = now
	}
}

// decayed is the count as of now. It is called with mu held.
func (d *decayingCount) decayed(now time.Time) float64 {
	if d.count == 0 {
		return 0
	}
	return d.count * math.Exp(-max(0, now.Sub(d.asOf).Seconds()))
}

// acquireSlot takes a slot among the running requests: of the route, and in the
// pool of its class. It never waits: an immediate refusal is worth more than a
// slot that may come.
func (m *mountedRoute) acquireSlot(ctx context.Context, c *call) (err error) {
	if m.stuck.Load() >= int64(m.server.limits.Stuck) {
		m.reject("stuck")
		return errStuckRoute
	}
	n := m.running.Add(1)
	defer func() {
		if err != nil {
			m.running.Add(-1)
		}
	}()
	if m.route.Concurrency > 0 && n > int64(m.route.Concurrency) {
		return m.refuseBusy()
	}
	switch { // health and the local socket must answer when all slots are taken
	case m.pool == nil || c.listener.options.Local:
	case m.route.Cheap:
		if err := m.awaitRead(ctx, c); err != nil {
			return err
		}
	default:
		share := m.pool.shareOf(c.clientState())
		err := m.enterPool(ctx, share)
		if err != nil && share.Load() == 0 && m.transfers().displaceSlowest(c.start, nil) { // a client that has nothing under way does not suffer from slow ones
			err = m.enterPool(ctx, share)
		}
		if err != nil {
			return m.countRefusal(err)
		}
		c.share = share
	}
	m.inflightGauge.Inc()
	c.holdsSlot.Store(true)
	return nil
}

// awaitRead takes a slot among the cheap requests. They are over so soon that a
// turn in line is worth more than a refusal: sixty tiles at a time from each of
// fifty viewers behind one address are a map, and no attack.
func (m *mountedRoute) awaitRead(ctx context.Context, c *call) error {
	reads := m.server.reads
	if state := c.clientState(); state != nil {
		c.readClass = state.class
	}
	if !reads.TryEnter(c.readClass) {
		turn, cancel := context.WithDeadline(ctx, c.start.Add(m.deadline))
		claim := m.startSlotClaim(c.readClass)
		err := reads.Enter(turn, c.readClass)
		claim.stop()
		cancel()
		switch {
		case err == nil:
		case fault.KindOf(err) == fault.Busy:
			m.busyTally.Inc()
			m.reject("share")
			return errReadsShare
		case fault.KindOf(err) == fault.Timeout:
			m.busyTally.Inc()
			m.reject("busy")
			return errReads
		default:
			return err
		}
	}
	c.inReads = true
	return nil
}

// enterPool takes a slot of the pool.
func (m *mountedRoute) enterPool(ctx context.Context, share *share) error {
	if !m.pool.acquire(share, m.running.Load()) {
		return errClientShare
	}
	err := m.pool.lane.Enter(ctx)
	if err != nil {
		m.pool.release(share)
	}
	return err
}

// countRefusal counts that there was no slot, and returns the error.
func (m *mountedRoute) countRefusal(err error) error {
	if err == errClientShare {
		m.busyTally.Inc()
		m.reject("share")
		return err
	}
	if fault.KindOf(err) != fault.Busy {
		return err
	}
	return m.refuseBusy()
}

// releaseSlot releases the slot, once.
func (m *mountedRoute) releaseSlot(c *call) {
	if !c.holdsSlot.CompareAndSwap(true, false) {
		return
	}
	m.inflightGauge.Dec()
	if c.inReads {
		m.server.reads.Leave(c.readClass)
	}
	if c.share != nil {
		m.pool.lane.Leave()
		m.pool.release(c.share)
	}
	m.running.Add(-1)
}

func (m *mountedRoute) refuseBusy() error {
	m.busyTally.Inc()
	m.reject("busy")
	return errInflight
}

// newLanePool shares out the slots of a route's lane if the client decides how
// long it holds one. If it does not, fairness is not worth a refusal.
func newLanePool(route Route, kind int) *sharePool {
	if route.Lane == nil || route.Class != Transfer {
		return nil
	}
	return &sharePool{slots: int64(route.Lane.Running()), index: kind}
}

// acquireLaneShare takes a slot of the client's share of the route's lane.
func (m *mountedRoute) acquireLaneShare(ctx context.Context) (leave func(), err error) {
	c := callOf(ctx)
	if m.lanePool == nil || c == nil || c.listener.options.Local {
		return func() {}, nil
	}
	share := m.lanePool.shareOf(c.clientState())
	if !m.lanePool.acquire(share, 0) {
		m.busyTally.Inc()
		m.reject("share")
		return nil, errLaneShare
	}
	if m.pool != nil && share.Load() == 1 && m.lanePool.taken.Load() > m.lanePool.slots {
		m.transfers().displaceSlowest(c.start, m) // it waits for a slot, and for no slow client
	}
	return func() { m.lanePool.release(share) }, nil
}

const (
	routeShare   = 4 // slots that a route may take for each free one
	modestSlots  = 4 // slots of a client with modest use: greedy clients do not close a route to it
	routeReserve = 8 // but the last 1/8 of the slots is for other routes
)

// The indices of the shares. Each lane with shares has an index of its own
// after these.
const (
	shareRequests = iota
	shareStreams
	shareMemory // in bytes
	firstLaneShare
)

// sharePool bounds the running requests of a class. A client may take as many
// slots as are free, and a route four times as many: so a single client gets
// half of the slots and a single route four fifths, and however many are
// greedy, a slot is free for the next client. ADR 32 has the reasons.
type sharePool struct {
	// set at construction
	lane  *flow.Lane // nil if the caller enters the lane itself
	slots int64
	index int // which of a client's shares counts here

	transfers transfers // that hold slots

	taken  atomic.Int64
	noAddr atomic.Int64 // of clients without an address
}

// share is how many slots of a pool one client holds.
type share = atomic.Int64

// shareOf is the share of a client.
func (s *sharePool) shareOf(p *clientState) *share {
	if p == nil {
		return &s.noAddr
	}
	return &p.shares[s.index]
}

// acquire takes a slot of a client's share, if the limits of the client and of
// the route allow one more. The count of the route's requests includes this
// one.
func (s *sharePool) acquire(used *share, route int64) bool {
	n, left := used.Add(1), s.slots-s.taken.Add(1)+1
	routeOver := route > routeShare*left && (n > modestSlots || left <= s.slots/routeReserve)
	if left > 0 && (n > left || routeOver) { // if nothing is left, the lane says so
		s.release(used)
		return false
	}
	return true
}

func (s *sharePool) release(used *share) {
	used.Add(-1)
	s.taken.Add(-1)
}

// newWorkLimiters are the buckets of queued work, one for each service.
func newWorkLimiters(routes []Route, limits Limits) map[string]*rate.Limiter {
	rates := map[string]*rate.Limiter{}
	for _, route := range routes {
		if route.Queued && rates[route.Service] == nil {
			rates[route.Service] = rate.NewLimiter(rate.Limit(limits.WorkRate), limits.WorkRate)
		}
	}
	return rates
}
