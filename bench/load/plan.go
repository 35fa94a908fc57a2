package load

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"
)

// Exchange is a request, as it goes over the wire, and what must come back.
type Exchange struct {
	Request []byte
	Status  int
	Length  int    // of the body; AnyLength if it is not known before
	Body    []byte // if not nil: the body, compared on every 64th answer of a connection, and on the first
	Holds   []byte // if not nil: what every body must contain; for short answers
}

// AnyLength stands for a body whose length is not known before.
const AnyLength = -1

// Script tells what a connection sends next. The request must not change until
// the next call for the same connection. Calls for one connection follow each
// other; those for different ones come from different threads. When it says
// false, the connection has nothing more to send.
type Script func(connection int) (Exchange, bool)

// Plan is one burst of load.
type Plan struct {
	Address     string // IPv4 loopback and port
	Connections int
	Threads     int           // 0: one for each core, but not more than connections
	Warm        time.Duration // sent first, not counted
	Time        time.Duration // counted; 0: until the script has nothing more
	Patience    time.Duration // how long no answer at all may come; 0: ten seconds
	Script      Script
}

// Report is what a burst gave.
type Report struct {
	Answers int
	Elapsed time.Duration
	Latency Histogram
}

// Rate is answers in a second.
func (r *Report) Rate() float64 { return float64(r.Answers) / r.Elapsed.Seconds() }

// Always is a script that asks the same again and again.
func Always(exchange Exchange) Script {
	return func(int) (Exchange, bool) { return exchange, true }
}

// settle checks the plan and fills in what was left open.
func (p *Plan) settle() (netip.AddrPort, error) {
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
	if p.Patience == 0 {
		p.Patience = 10 * time.Second
	}
	return at, nil
}
