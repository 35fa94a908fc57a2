package ingress

import (
	"context"

	"golang.org/x/time/rate"

	"micronode/fault"
)

var (
	errRate = &fault.Error{Op: "http.rate", Kind: fault.RateLimited, Detail: "this address asks more often than limits.rate allows"}
	errWork = &fault.Error{Op: "http.rate", Kind: fault.RateLimited, Detail: "the service is asked for more work than limits.work_rate allows",
		Next: "Wait for Retry-After and send the request again, with fewer a second."}
	errBusy = &fault.Error{Op: "http.inflight", Kind: fault.Busy, Detail: "as many of these requests run as may"}
)

// takeRate spends a token of the client's IP and, for queued work, one of the
// service. The admin plane and the local socket have no peer.
func (m *mounted) takeRate(c *call) error {
	if c.conn != nil && c.conn.peer != nil && !c.conn.peer.allow(c.start) {
		m.reject("rate_limit")
		return errRate
	}
	if m.work != nil && !m.work.AllowN(c.start, 1) {
		m.reject("work_rate")
		return errWork
	}
	return nil
}

// enter takes a place among the requests that run: of the route, and of the
// server. Nobody waits for one: a refusal that comes at once is worth more
// than a place that may come.
func (m *mounted) enter(ctx context.Context) error {
	if n := m.running.Add(1); m.route.Concurrency > 0 && n > int64(m.route.Concurrency) {
		m.running.Add(-1)
		return m.refuseBusy()
	}
	if m.room != nil {
		if err := m.room.Enter(ctx); err != nil {
			m.running.Add(-1)
			if fault.KindOf(err) != fault.Busy {
				return err
			}
			return m.refuseBusy()
		}
	}
	m.gauge.Inc()
	return nil
}

func (m *mounted) leave() {
	m.gauge.Dec()
	if m.room != nil {
		m.room.Leave()
	}
	m.running.Add(-1)
}

func (m *mounted) refuseBusy() error {
	m.busy.Inc()
	m.reject("busy")
	return errBusy
}

// workRates are the buckets of queued work, one for each service.
func workRates(routes []Route, limits Limits) map[string]*rate.Limiter {
	rates := map[string]*rate.Limiter{}
	for _, route := range routes {
		if route.Queued && rates[route.Service] == nil {
			rates[route.Service] = rate.NewLimiter(rate.Limit(limits.WorkRate), limits.WorkRate)
		}
	}
	return rates
}
