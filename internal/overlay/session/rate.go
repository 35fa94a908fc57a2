package session

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxLimiters is how many addresses have a limiter. Those that have been quiet for
// two seconds are evicted first.
const maxLimiters = 4096

// handshakeLimiter bounds the rate of handshakes: of all together, and of one
// address, which may take a quarter. A handshake costs us a signature and a key
// exchange, and the dialer next to nothing.
type handshakeLimiter struct {
	// set at construction
	perAddr rate.Limit
	burst   int

	mu     sync.Mutex //lockblock:leaf guards the fields below
	all    *rate.Limiter
	byAddr map[netip.Addr]*rate.Limiter
	swept  time.Time // when the quiet ones were last evicted
}

func newHandshakeLimiter(perSecond int) *handshakeLimiter {
	each := max(1, perSecond/4)
	return &handshakeLimiter{
		perAddr: rate.Limit(each), burst: 2 * each,
		all:    rate.NewLimiter(rate.Limit(perSecond), 2*perSecond),
		byAddr: map[netip.Addr]*rate.Limiter{},
	}
}

// allow reports whether a handshake may begin now. An address over its own rate
// uses up nothing of the total.
func (h *handshakeLimiter) allow(from net.Addr, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	own := h.limiter(rateKey(from), now)
	return (own == nil || own.AllowN(now, 1)) && h.all.AllowN(now, 1)
}

// limiter returns the limiter of an address; nil if there are too many addresses,
// and then only the total rate applies. Guarded by mu.
func (h *handshakeLimiter) limiter(from netip.Addr, now time.Time) *rate.Limiter {
	if own, known := h.byAddr[from]; known {
		return own
	}
	if len(h.byAddr) >= maxLimiters && !h.sweep(now) {
		return nil
	}
	own := rate.NewLimiter(h.perAddr, h.burst)
	h.byAddr[from] = own
	return own
}

// sweep evicts the limiters of quiet addresses, and reports whether there is room
// then. It looks at all of them, so it runs once a second at most. Guarded by mu.
func (h *handshakeLimiter) sweep(now time.Time) bool {
	if now.Sub(h.swept) < time.Second {
		return false
	}
	h.swept = now
	for addr, own := range h.byAddr {
		if own.TokensAt(now) >= float64(h.burst) {
			delete(h.byAddr, addr)
		}
	}
	return len(h.byAddr) < maxLimiters
}

// rateKey returns the key that an address is limited by: of IPv6 the network,
// because a host that has one address there has all of them.
func rateKey(from net.Addr) netip.Addr {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap()
	if addr.Is6() {
		network, _ := addr.WithZone("").Prefix(64) // 64 bits are never too many
		return network.Addr()
	}
	return addr
}

// meter allows one use per interval, and a burst after a pause. It belongs to one
// task. The zero meter has no limit.
type meter struct {
	every time.Duration
	burst time.Duration // how far ahead of the rate it may run
	due   time.Time
}

func newMeter(every time.Duration, burst int) meter {
	return meter{every: every, burst: time.Duration(burst-1) * every}
}

func (m *meter) allow(now time.Time) bool {
	if m.every == 0 {
		return true
	}
	if m.due.Before(now) {
		m.due = now
	}
	if m.due.Sub(now) > m.burst {
		return false
	}
	m.due = m.due.Add(m.every)
	return true
}
