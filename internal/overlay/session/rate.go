package session

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// strangers is how many addresses are remembered, each with what it may still
// do. Those that have been quiet for two seconds are forgotten first.
const strangers = 4096

// door keeps the number of handshakes within bounds: all of them together, and
// those of one address, which may take a quarter. A handshake costs us a
// signature and a key exchange, and the caller next to nothing.
type door struct {
	// set at construction
	each  rate.Limit
	burst int

	mu    sync.Mutex //lockblock:leaf guards the fields below
	all   *rate.Limiter
	known map[netip.Addr]*rate.Limiter
	swept time.Time // when the quiet ones were last forgotten
}

func newDoor(perSecond int) *door {
	each := max(1, perSecond/4)
	return &door{
		each: rate.Limit(each), burst: 2 * each,
		all:   rate.NewLimiter(rate.Limit(perSecond), 2*perSecond),
		known: map[netip.Addr]*rate.Limiter{},
	}
}

// open decides whether somebody may come in now. An address that asks too often
// uses up nothing of what the others have.
func (d *door) open(from net.Addr, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.limiter(origin(from), now)
	return (own == nil || own.AllowN(now, 1)) && d.all.AllowN(now, 1)
}

// limiter is what an address may do; nil if there are too many of them, and
// then the bound of all must do. Guarded by mu.
func (d *door) limiter(from netip.Addr, now time.Time) *rate.Limiter {
	if own, known := d.known[from]; known {
		return own
	}
	if len(d.known) >= strangers && !d.sweep(now) {
		return nil
	}
	own := rate.NewLimiter(d.each, d.burst)
	d.known[from] = own
	return own
}

// sweep forgets those who have been quiet, and reports whether there is room
// then. It looks at all of them, so it does that once a second at most. Guarded
// by mu.
func (d *door) sweep(now time.Time) bool {
	if now.Sub(d.swept) < time.Second {
		return false
	}
	d.swept = now
	for addr, own := range d.known {
		if own.TokensAt(now) >= float64(d.burst) {
			delete(d.known, addr)
		}
	}
	return len(d.known) < strangers
}

// origin is whom an address belongs to: of IPv6 the network, because whoever
// has one address there has all of them.
func origin(from net.Addr) netip.Addr {
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

// meter allows one use in every so often, and a few at once after a pause. It
// belongs to one task. The zero meter has no limit.
type meter struct {
	every time.Duration
	spare time.Duration // how far ahead of the rate it may run
	due   time.Time
}

func newMeter(every time.Duration, burst int) meter {
	return meter{every: every, spare: time.Duration(burst-1) * every}
}

func (m *meter) allow(now time.Time) bool {
	if m.every == 0 {
		return true
	}
	if m.due.Before(now) {
		m.due = now
	}
	if m.due.Sub(now) > m.spare {
		return false
	}
	m.due = m.due.Add(m.every)
	return true
}
