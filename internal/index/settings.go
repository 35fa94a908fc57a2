package index

import (
	"net"
	"net/http"
	"reflect"
	"time"

	"micronode/fault"
	"micronode/internal/index/delegated"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/netguard"
)

// settings is a configuration in force, and what is derived from it. It is
// immutable: a reload makes another one, and a request uses the one it started
// with to its end.
type settings struct {
	Config
	endpoints []hedge.Target // of Delegated Routing
}

// defaultHedgeDelay is when the second wave starts in automatic mode until
// there are enough samples: the default of the fixed mode.
const defaultHedgeDelay = 150 * time.Millisecond

// newSettings derives settings from a configuration.
func (x *Index) newSettings(c Config) (*settings, error) {
	s := &settings{Config: c}
	for _, url := range c.Delegated {
		endpoint, err := delegated.NewEndpoint(delegated.EndpointSpec{URL: url, Client: endpointClient})
		if err != nil {
			return nil, fault.Wrap("index.delegated", err)
		}
		s.endpoints = append(s.endpoints, x.sanitizedTarget(hedge.Target{Key: endpointKey(url), Ask: endpoint.Ask, Source: record.Delegated}))
	}
	return s, nil
}

// endpointClient sends requests to the endpoints. The operator has named them,
// so it may dial all addresses except those that are never dialled; package
// delegated limits redirects. Many look-ups run concurrently, and a connection
// that is not kept between two of them is dialled again, which costs both ends
// more than the question does. So as many are kept as are useful under load,
// but not for long.
var endpointClient = &http.Client{Transport: &http.Transport{
	DialContext:  (&net.Dialer{Timeout: 5 * time.Second, Control: netguard.Control(func() netguard.DialPolicy { return netguard.AllowAny })}).DialContext,
	MaxIdleConns: 256, MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second,
	TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true, // and no proxy: the environment has no influence
}}

// Reconfigure applies what can change without a restart: the waves, the
// budgets, the cache, the breakers, the endpoints and the warm-up keys.
// Requests in progress continue with their settings. The configuration was
// validated.
func (x *Index) Reconfigure(next Config) error {
	was := x.settings.Load()
	next.Workers, next.Region, next.AllowPrivate, next.ProvideInterval = was.Workers, was.Region, was.AllowPrivate, was.ProvideInterval
	next.DHT.Enabled, next.DHT.Addr, next.DHT.Bootstrap = was.DHT.Enabled, was.DHT.Addr, was.DHT.Bootstrap
	next.Cache.PreparedBytes = was.Cache.PreparedBytes
	if reflect.DeepEqual(next, was.Config) {
		return nil // something else of the node changed
	}
	s, err := x.newSettings(next)
	if err != nil {
		return err
	}
	x.cache.Reconfigure(next.Cache.spec())
	x.breakers.Reconfigure(next.Breaker.spec())
	x.budget.Reconfigure(next.DHT.HedgeBudget)
	x.delay.Reconfigure(defaultHedgeDelay, next.DHT.deadline())
	x.settings.Store(s)
	x.answerCache.clear()
	x.audit(Event{Type: Reconfigured})
	return nil
}
