package ingress

import (
	"cmp"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"micronode/internal/observe"
)

// mountedRoute is a route in a server, with its defaults filled in and its
// metrics resolved.
type mountedRoute struct {
	// set at construction
	server        *Server
	route         Route
	bodyCap       int64
	deadline      time.Duration
	public        bool          // strangers may read it
	pool          *sharePool    // the server's, for the route's class; nil if exempt
	workLimiter   *rate.Limiter // of the service's queue; nil if the route is not queued
	lanePool      *sharePool    // the slots of the route's lane, if clients decide how long they hold theirs; or nil
	instruments   *observe.Instruments
	busyTally     *observe.RefusalCounter
	inflightGauge prometheus.Gauge
	overruns      prometheus.Counter
	stuckGauge    prometheus.Gauge
	*routeMetrics

	running atomic.Int64
	stuck   atomic.Int64 // handlers that have overrun their deadline
}

func newMountedRoute(s *Server, route Route, instruments *observe.Instruments) *mountedRoute {
	m := &mountedRoute{
		server: s, route: route, bodyCap: cmp.Or(route.BodyCap, int64(s.limits.Body)),
		deadline: cmp.Or(route.Deadline, s.times.Deadline), pool: s.inflight, public: s.public[route.Public],
		instruments: instruments, busyTally: instruments.Busy(route.Pattern),
		inflightGauge: instruments.InflightRequests.WithLabelValues(route.Pattern),
		overruns:      instruments.Overruns.WithLabelValues(route.Pattern), stuckGauge: instruments.StuckHandlers.WithLabelValues(route.Pattern),
		routeMetrics: newRouteMetrics(instruments, route.Pattern),
	}
	switch route.Class {
	case Transfer:
		m.deadline = cmp.Or(route.Deadline, s.times.FirstByte)
	case Stream:
		m.pool = s.streams
	}
	if route.Vital {
		m.pool = nil
	}
	return m
}

// reject counts a refusal of the route.
func (m *mountedRoute) reject(reason string) { m.instruments.Rejected.WithLabelValues(reason).Inc() }

// routeMetrics is the metrics of a route's answers. The series of a method and a
// status is looked up once: the label look-up of the metrics library would be
// a good part of the cost of a small answer.
type routeMetrics struct {
	// set at construction
	pattern  string
	requests *prometheus.CounterVec
	latency  prometheus.Observer

	counters atomic.Pointer[map[outcome]prometheus.Counter] // replaced under mu, read without

	mu sync.Mutex //lockblock:leaf copies a small map; the metric's own locks are taken before
}

// outcome is how a request ended, for metrics.
type outcome struct {
	method string
	status int
}

func newRouteMetrics(instruments *observe.Instruments, pattern string) *routeMetrics {
	c := &routeMetrics{pattern: pattern, requests: instruments.HTTPRequests, latency: instruments.RequestLatency.WithLabelValues(pattern)}
	c.counters.Store(&map[outcome]prometheus.Counter{})
	return c
}

// counter counts the answers to a method with a status.
func (r *routeMetrics) counter(method string, status int) prometheus.Counter {
	at := outcome{knownMethod(method), status}
	if counter, ok := (*r.counters.Load())[at]; ok {
		return counter
	}
	counter := r.requests.WithLabelValues(r.pattern, at.method, strconv.Itoa(status))
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(*r.counters.Load())
	next[at] = counter
	r.counters.Store(&next)
	return counter
}

// knownMethod keeps invented methods out of the labels.
func knownMethod(method string) string {
	for _, one := range methods {
		if one == method {
			return one
		}
	}
	if method == http.MethodConnect || method == http.MethodTrace {
		return method
	}
	return "OTHER"
}
