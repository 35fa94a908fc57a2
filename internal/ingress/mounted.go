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

	"micronode/internal/flow"
	"micronode/internal/observe"
)

// mounted is a route in a server, with its defaults filled in and its metrics
// at hand.
type mounted struct {
	// set at construction
	server      *Server
	route       Route
	bodyCap     int64
	deadline    time.Duration
	room        *flow.Lane    // the server's, for the route's class; nil if exempt
	work        *rate.Limiter // of the service's queue; nil if nothing is queued
	instruments *observe.Instruments
	busy        *observe.Tally
	gauge       prometheus.Gauge
	*counts

	running atomic.Int64
}

func newMounted(s *Server, route Route, instruments *observe.Instruments) *mounted {
	m := &mounted{
		server: s, route: route, bodyCap: cmp.Or(route.BodyCap, int64(s.limits.Body)),
		deadline: cmp.Or(route.Deadline, s.times.Deadline), room: s.inflight,
		instruments: instruments, busy: instruments.Busy(route.Pattern),
		gauge:  instruments.InflightRequests.WithLabelValues(route.Pattern),
		counts: newCounts(instruments, route.Pattern),
	}
	switch route.Class {
	case Transfer:
		m.deadline = cmp.Or(route.Deadline, s.times.FirstByte)
	case Stream:
		m.room = s.streams
	}
	return m
}

// reject counts a refusal of the route's.
func (m *mounted) reject(reason string) { m.instruments.Rejected.WithLabelValues(reason).Inc() }

// counts is the metrics of a route's answers. The series of a method and a
// status is looked up once: the label look-up of the metrics library would be
// a good part of the cost of a small answer.
type counts struct {
	// set at construction
	pattern  string
	requests *prometheus.CounterVec
	latency  prometheus.Observer

	known atomic.Pointer[map[outcome]prometheus.Counter] // replaced under mu, read without

	mu sync.Mutex //lockblock:leaf copies a small map; the metric's own locks are taken before
}

// outcome is how a request ended, as far as metrics tell.
type outcome struct {
	method string
	status int
}

func newCounts(instruments *observe.Instruments, pattern string) *counts {
	c := &counts{pattern: pattern, requests: instruments.HTTPRequests, latency: instruments.RequestLatency.WithLabelValues(pattern)}
	c.known.Store(&map[outcome]prometheus.Counter{})
	return c
}

// served counts an answer.
func (c *counts) served(method string, status int, took time.Duration) {
	c.counter(method, status).Inc()
	c.latency.Observe(took.Seconds())
}

func (c *counts) counter(method string, status int) prometheus.Counter {
	at := outcome{knownMethod(method), status}
	if counter, ok := (*c.known.Load())[at]; ok {
		return counter
	}
	counter := c.requests.WithLabelValues(c.pattern, at.method, strconv.Itoa(status))
	c.mu.Lock()
	defer c.mu.Unlock()
	next := maps.Clone(*c.known.Load())
	next[at] = counter
	c.known.Store(&next)
	return counter
}

// knownMethod keeps methods that somebody made up out of the labels.
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
