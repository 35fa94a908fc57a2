package ingress

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// peers knows every IP that has a connection: how many, and how fast it asks.
// An IP whose last connection has closed is forgotten once its bucket would be
// full again anyway: if it were forgotten at once, a client could have a fresh
// burst with every new connection. So the map holds at most one entry for each
// connection and `memory` more.
type peers struct {
	// set at construction
	perIP  int
	rate   rate.Limit
	burst  int
	window time.Duration // how long an empty bucket takes to fill
	memory int           // how many IPs without a connection are remembered

	mu    sync.Mutex //lockblock:leaf a few assignments and map operations
	known map[netip.Addr]*peer
	gone  *list.List // of *peer without connections; the longest gone first
}

// peer is one IP.
type peer struct {
	// set at construction
	key    netip.Addr
	bucket *rate.Limiter // has a lock of its own

	// guarded by peers.mu
	conns int
	left  time.Time     // when the last connection closed
	place *list.Element // in gone; nil while there are connections
}

// newPeers makes the table. Who is exempt may ask as fast as it likes, but has
// no more connections than others.
func newPeers(limits Limits, exempt bool) *peers {
	p := &peers{
		perIP: limits.ConnsPerIP, rate: rate.Limit(limits.Rate), burst: limits.Burst,
		window: time.Duration(float64(limits.Burst) / float64(limits.Rate) * float64(time.Second)),
		memory: limits.MaxConns, known: map[netip.Addr]*peer{}, gone: list.New(),
	}
	if exempt {
		p.rate, p.window = rate.Inf, 0
	}
	return p
}

// network is what counts as one client: an IPv4 address, or the /64 that an
// IPv6 client can pick its addresses from as it likes.
func network(ip netip.Addr) netip.Addr {
	if !ip.Is6() {
		return ip
	}
	prefix, _ := ip.WithZone("").Prefix(64) // fails for other lengths only
	return prefix.Addr()
}

// join counts a connection in, or refuses it because the IP has all it may
// have.
func (p *peers) join(ip netip.Addr) (*peer, bool) {
	key, now := network(ip), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	one := p.known[key]
	if one == nil {
		one = &peer{key: key, bucket: rate.NewLimiter(p.rate, p.burst)}
		p.known[key] = one
	}
	if one.conns >= p.perIP {
		return nil, false
	}
	if one.place != nil {
		p.gone.Remove(one.place)
		one.place = nil
	}
	one.conns++
	return one, true
}

// leave counts a connection out.
func (p *peers) leave(one *peer) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.conns--; one.conns == 0 {
		one.left, one.place = now, p.gone.PushBack(one)
	}
	p.forget(now)
}

// forget drops those that have been gone for long enough, and the longest gone
// if there are too many. Guarded by mu.
func (p *peers) forget(now time.Time) {
	for first := p.gone.Front(); first != nil; first = p.gone.Front() {
		one := first.Value.(*peer)
		if p.gone.Len() <= p.memory && now.Sub(one.left) < p.window {
			return
		}
		p.gone.Remove(first)
		delete(p.known, one.key)
	}
}

// allow takes a token of the IP, if there is one.
func (p *peer) allow(now time.Time) bool { return p.bucket.AllowN(now, 1) }
