package ingress

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// clientTable holds every IP that has a connection: how many it has, and its
// request rate. An IP whose last connection has closed is kept until its bucket
// is full again: if it were evicted at once, a client could have a fresh burst
// with every new connection. So the map holds at most one entry for each
// connection and maxIdle more.
type clientTable struct {
	// set at construction
	perIP         int
	rate          rate.Limit
	burst         int
	openRate      rateLimit     // of new connections
	handshakeRate rateLimit     // of new connections with TLS
	window        time.Duration // how long an empty bucket takes to fill
	maxIdle       int           // how many IPs without a connection are remembered
	sharePools    int           // the number of pools in which each IP has a share

	mu        sync.Mutex //lockblock:leaf a few assignments and map operations
	byNetwork map[netip.Addr]*clientState
	idle      *list.List // of *clientState without connections; the longest idle first
	classes   uint64     // the class that was given last
}

// clientState is one client network.
type clientState struct {
	// set at construction
	network  netip.Addr
	class    uint64        // its class in fair queues: no two clients of a server have the same
	requests *rate.Limiter // has a lock of its own
	connects *rate.Limiter // rate of new connections; has a lock of its own

	shares           []share       // one for each pool: for requests, for streams, for each lane that bodies come through
	recentWork       decayingCount // requests for queued work
	recentPublicWork decayingCount // what it caused as a stranger
	bandwidth        clientShares  // of the limits of bytes

	// guarded by clientTable.mu
	conns       int
	held        int           // requests that came through a proxy
	idleSince   time.Time     // when the last connection closed
	idleElement *list.Element // in clientTable.idle; nil while there are connections
}

// rateLimit is how often something may happen.
type rateLimit struct {
	rate  rate.Limit
	burst int
}

// refillTime is how long its bucket takes to fill.
func (r rateLimit) refillTime() time.Duration {
	return time.Duration(float64(r.burst) / float64(r.rate) * float64(time.Second))
}

// newClientTable makes the table. Exempt clients have no rate limits, but the
// same limit of connections.
func newClientTable(limits Limits, exempt bool, sharePools int) *clientTable {
	p := &clientTable{
		perIP: limits.ConnsPerIP, rate: rate.Limit(limits.Rate), burst: limits.Burst,
		openRate: rateLimit{rate.Limit(limits.OpenRate), limits.OpenBurst}, handshakeRate: rateLimit{rate.Limit(limits.HandshakeRate), limits.HandshakeBurst},
		maxIdle: limits.MaxConns, sharePools: sharePools, byNetwork: map[netip.Addr]*clientState{}, idle: list.New(),
	}
	p.window = max(rateLimit{p.rate, p.burst}.refillTime(), p.openRate.refillTime(), p.handshakeRate.refillTime())
	if exempt {
		p.rate, p.window, p.openRate.rate, p.handshakeRate.rate = rate.Inf, 0, rate.Inf, rate.Inf
	}
	return p
}

// clientNetwork is what counts as one client: an IPv4 address, or the /64 from
// which an IPv6 client can pick its addresses freely.
func clientNetwork(ip netip.Addr) netip.Addr {
	if !ip.Is6() {
		return ip
	}
	prefix, _ := ip.WithZone("").Prefix(64) // fails for other lengths only
	return prefix.Addr()
}

// hold finds the state of a client that has no connection of its own, because a
// trusted proxy sends its requests. It is kept until unhold.
func (c *clientTable) hold(ip netip.Addr) *clientState {
	key, now := clientNetwork(ip), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evictIdle(now)
	state := c.find(key, false, now)
	c.use(state)
	state.held++
	return state
}

// unhold ends what hold began.
func (c *clientTable) unhold(state *clientState) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	state.held--
	c.leaveIdle(state, now)
	c.evictIdle(now)
}

// find returns the state of a network, which is idle if it is new. Guarded by
// mu.
func (c *clientTable) find(key netip.Addr, secure bool, now time.Time) *clientState {
	state := c.byNetwork[key]
	if state == nil {
		opens := c.openRate
		if secure {
			opens = c.handshakeRate
		}
		c.classes++
		state = &clientState{network: key, class: c.classes, requests: rate.NewLimiter(c.rate, c.burst), connects: rate.NewLimiter(opens.rate, opens.burst), shares: make([]share, c.sharePools)}
		c.byNetwork[key] = state
		state.idleSince, state.idleElement = now, c.idle.PushBack(state)
	}
	return state
}

// use takes a state off the list of the idle ones. Guarded by mu.
func (c *clientTable) use(state *clientState) {
	if state.idleElement != nil {
		c.idle.Remove(state.idleElement)
		state.idleElement = nil
	}
}

// leaveIdle lists a state that nothing uses any more. Guarded by mu.
func (c *clientTable) leaveIdle(state *clientState, now time.Time) {
	if state.conns == 0 && state.held == 0 {
		state.idleSince, state.idleElement = now, c.idle.PushBack(state)
	}
}

// acquire admits a connection, or returns the reason for a rejection: the IP
// has its maximum, or opens them too fast, which with TLS is what costs most.
func (c *clientTable) acquire(ip netip.Addr, secure bool) (state *clientState, why string) {
	key, now := clientNetwork(ip), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evictIdle(now)
	state = c.find(key, secure, now)
	switch {
	case state.conns >= c.perIP:
		return state, "conns_per_ip"
	case !state.connects.AllowN(now, 1):
		return state, "open_rate"
	}
	c.use(state)
	state.conns++
	return state, ""
}

// release removes a connection.
func (c *clientTable) release(one *clientState) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	one.conns--
	c.leaveIdle(one, now)
	c.evictIdle(now)
}

// evictIdle drops the clients that have been idle for long enough, and the
// longest idle if there are too many. Guarded by mu.
func (c *clientTable) evictIdle(now time.Time) {
	for first := c.idle.Front(); first != nil; first = c.idle.Front() {
		one := first.Value.(*clientState)
		if c.idle.Len() <= c.maxIdle && now.Sub(one.idleSince) < c.window {
			return
		}
		c.idle.Remove(first)
		delete(c.byNetwork, one.network)
	}
}
