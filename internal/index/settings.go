package index

import (
	"net/http"
	"reflect"
	"time"

	"micronode/fault"
	"micronode/internal/index/delegated"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
)

// settings is a configuration in force, and what is made from it. It never
// changes: a reload makes another one, and a request keeps the one it began
// with to its end.
type settings struct {
	Config
	endpoints []hedge.Target // of Delegated Routing
}

// autoHedge is when the second wave starts in the automatic mode, until there
// are enough answers to learn from: what is fixed where nobody says "auto".
const autoHedge = 150 * time.Millisecond

// newSettings makes what follows from a configuration.
func (x *Index) newSettings(c Config) (*settings, error) {
	s := &settings{Config: c}
	for _, url := range c.Delegated {
		endpoint, err := delegated.NewEndpoint(delegated.EndpointSpec{URL: url, Client: endpointClient})
		if err != nil {
			return nil, fault.Wrap("index.delegated", err)
		}
		s.endpoints = append(s.endpoints, x.washed(hedge.Target{Key: endpointKey(url), Ask: endpoint.Ask, Source: record.Delegated}))
	}
	return s, nil
}

// endpointClient asks the endpoints. The operator has named them, so it may go
// to any address; where they redirect to is bounded by package delegated. Many
// look-ups are under way at a time, and a connection that is not kept between
// two of them is made anew for the second, which costs both ends more than the
// question does. So as many are kept as are of use under load, and not for long.
var endpointClient = &http.Client{Transport: &http.Transport{
	MaxIdleConns: 256, MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second,
	TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true, // and no proxy: nothing of the environment has a say in it
}}

// after is how long the first wave may be silent.
func (x *Index) after(s *settings) time.Duration {
	if s.DHT.HedgeMS.Auto {
		return x.delay.After()
	}
	return time.Duration(s.DHT.HedgeMS.Value) * time.Millisecond
}

// Reconfigure takes what can change without a restart: the waves, the budgets,
// the cache, the breakers, the endpoints and the warm-up keys. Requests under
// way go on with what they began with. The configuration was verified.
func (x *Index) Reconfigure(next Config) error {
	was := x.settings.Load()
	next.Workers, next.Region, next.AllowPrivate, next.ProvideInterval = was.Workers, was.Region, was.AllowPrivate, was.ProvideInterval
	next.DHT.Enabled, next.DHT.Addr, next.DHT.Bootstrap = was.DHT.Enabled, was.DHT.Addr, was.DHT.Bootstrap
	next.Cache.ShelfBytes = was.Cache.ShelfBytes
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
	x.delay.Reconfigure(autoHedge, next.DHT.deadline())
	x.settings.Store(s)
	x.shelf.clear()
	x.audit(Event{Type: Reconfigured})
	return nil
}
