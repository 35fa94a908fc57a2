package load

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"
)

// Exchange is a request, as it goes over the wire, and the expected response.
type Exchange struct {
	Request  []byte
	Status   int
	Length   int    // of the body; AnyLength if it is not known before
	Body     []byte // if not nil: the body, compared on every 64th response of a connection, and on the first
	Contains []byte // if not nil: what every body must contain; for short responses
}

// AnyLength stands for a body whose length is not known before.
const AnyLength = -1

// Script returns what a connection sends next. The request must not change
// until the next call for the same connection. Calls for one connection are
// sequential; those for different ones come from different threads. When it
// returns false, the connection has nothing more to send.
type Script func(connection int) (Exchange, bool)

// Plan is one burst of load.
type Plan struct {
	Address     string // IPv4 loopback and port
	Connections int
	Threads     int           // 0: one for each core, but not more than connections
	Warmup      time.Duration // sent first, not counted
	Duration    time.Duration // counted; 0: until the script has nothing more
	IdleTimeout time.Duration // how long no response at all may arrive; 0: ten seconds
	Script      Script
}

// Report is the result of a burst.
type Report struct {
	Responses int
	Elapsed   time.Duration
	Latency   Histogram
}

// Rate is responses per second.
func (r *Report) Rate() float64 { return float64(r.Responses) / r.Elapsed.Seconds() }

// Always is a script that sends the same request again and again.
func Always(exchange Exchange) Script {
	return func(int) (Exchange, bool) { return exchange, true }
}

// normalize checks the plan and fills in defaults.
func (p *Plan) normalize() (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(p.Address)
	if err != nil {
		return at, fmt.Errorf("the address of the plan: %w", err)
	}
	if !at.Addr().Is4() || !at.Addr().IsLoopback() {
		return at, fmt.Errorf("%s is not IPv4 loopback: load stays on this machine", at)
	}
	if p.Connections < 1 || p.Script == nil {
		return at, errors.New("a plan needs connections and a script")
	}
	if p.Threads == 0 {
		p.Threads = runtime.NumCPU()
	}
	p.Threads = min(p.Threads, p.Connections)
	if p.IdleTimeout == 0 {
		p.IdleTimeout = 10 * time.Second
	}
	return at, nil
}
