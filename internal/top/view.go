package top

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"micronode/client"
	"micronode/internal/terminal"
)

// View is one view of a node: what is shown, and what it prints as JSON.
type View struct {
	At      time.Time `json:"at"`
	Answers bool      `json:"answers"`
	Error   string    `json:"error,omitempty"` // why it does not answer
	Next    string    `json:"next,omitempty"`

	LastAnswer *time.Time `json:"last_answer,omitempty"` // of a node that does not answer any more

	*nodeView // nil if it does not answer
}

// nodeView is the state of a node. Rates are those since the last snapshot, of
// which there is none at first.
type nodeView struct {
	Seconds    float64         `json:"seconds"`
	PeerID     string          `json:"peer_id"`
	Version    string          `json:"version"`
	Profile    string          `json:"profile"`
	Amnesia    bool            `json:"amnesia"`
	Ready      bool            `json:"ready"`
	WriteReady bool            `json:"write_ready"`
	Degraded   bool            `json:"degraded"`
	Reasons    []client.Reason `json:"reasons"`

	Routes     []routeView      `json:"routes"`   // the busiest first
	Queues     []queueView      `json:"queues"`   // the fullest first
	Refusals   []refusalView    `json:"refusals"` // the current ones first; only those that ever occurred
	Process    *processView     `json:"process,omitempty"`
	Sessions   *sessionsView    `json:"sessions,omitempty"` // of an overlay in this process
	Store      client.Store     `json:"store"`
	Mailbox    *mailboxView     `json:"mailbox,omitempty"` // of a mailbox in this process
	Parts      []client.Part    `json:"parts"`             // of a node that runs as several processes
	Services   []client.Service `json:"services"`          // those with problems first
	MetricsErr string           `json:"blind,omitempty"`   // why there are no metrics
}

// routeView is how many requests of a route were answered per second, by class
// of the status, and their latency, which is absent if there were none.
type routeView struct {
	Route   string   `json:"route"`
	Rate    float64  `json:"rate"`
	Rate2xx float64  `json:"rate_2xx"`
	Rate3xx float64  `json:"rate_3xx"`
	Rate4xx float64  `json:"rate_4xx"`
	Rate5xx float64  `json:"rate_5xx"`
	P50     *float64 `json:"p50_ms"`
	P99     *float64 `json:"p99_ms"`
}

type queueView struct {
	Service  string  `json:"service"`
	Name     string  `json:"name"`
	Depth    int     `json:"depth"`
	Cap      int     `json:"cap"`
	Dropped  float64 `json:"dropped_total"`
	DropRate float64 `json:"drop_rate"`
}

// refusalView counts refusals. One request may be counted by a queue and by
// its route, so there is no sum.
type refusalView struct {
	Service string  `json:"service"`
	What    string  `json:"what"` // the queue or route that was full, or the reason
	Total   float64 `json:"total"`
	Rate    float64 `json:"rate"`
}

type processView struct {
	UpSeconds      float64 `json:"up_seconds"`
	Memory         float64 `json:"memory_bytes"` // resident
	Tasks          float64 `json:"tasks"`        // goroutines
	Descriptors    float64 `json:"descriptors"`
	MaxDescriptors float64 `json:"most_descriptors"`
}

type sessionsView struct {
	Active float64 `json:"active"`
	Opened float64 `json:"open_rate"`
	Closed float64 `json:"close_rate"`
}

type mailboxView struct {
	Messages float64 `json:"messages"`
	Bytes    float64 `json:"bytes"`
	Dead     float64 `json:"dead"`
}

// newView makes a view of two snapshots. The earlier one may be nil.
func newView(before, now *snapshot) View {
	if before != nil && (before.status.PeerID != now.status.PeerID || before.metricsErr != "" || before.metrics.scalars[startTimeMetric] != now.metrics.scalars[startTimeMetric]) {
		before = nil // counters of another process cannot be compared
	}
	seconds := 0.0
	if before != nil {
		seconds = now.at.Sub(before.at).Seconds()
	}
	d := metricsDelta{newMetricSums(), now.metrics, seconds}
	if before != nil {
		d.before = before.metrics
	}
	s, r := now.status, now.readiness
	return View{At: now.at, Answers: true, nodeView: &nodeView{
		Seconds: seconds, PeerID: s.PeerID, Version: s.Version, Profile: s.Profile, Amnesia: s.Amnesia,
		Ready: r.Ready, WriteReady: r.WriteReady, Degraded: r.Degraded, Reasons: terminal.SortReasons(r),
		Routes: d.routes(), Queues: d.queues(s.Queues), Services: sortServices(s.Services), Store: s.Store, MetricsErr: now.metricsErr,
		Refusals: d.refusals(), Process: now.processView(), Sessions: d.sessions(), Mailbox: now.mailboxView(), Parts: append([]client.Part{}, s.Parts...),
	}}
}

// process, sessions and mailbox are nil where the process has no such metrics.

func (n *snapshot) processView() *processView {
	of := n.metrics.scalars
	began, known := of[startTimeMetric]
	if !known {
		return nil
	}
	up := n.at.Sub(time.UnixMilli(int64(began * 1000))).Seconds()
	return &processView{max(up, 0), of["process_resident_memory_bytes"], of["go_goroutines"], of["process_open_fds"], of["process_max_fds"]}
}

func (n *snapshot) mailboxView() *mailboxView {
	of := n.metrics.scalars
	messages, known := of["mailbox_depth"]
	if !known {
		return nil
	}
	return &mailboxView{messages, of["mailbox_bytes"], of["mailbox_dead"]}
}

func (d metricsDelta) sessions() *sessionsView {
	active, known := d.now.scalars["sessions_active"]
	if !known {
		return nil
	}
	return &sessionsView{active, d.scalarRate("session_open_total"), d.scalarRate("session_close_total")}
}

// metricsDelta is the difference between two snapshots.
type metricsDelta struct {
	before, now metricSums
	seconds     float64 // 0 without an earlier snapshot: then all rates are
}

// counterIncrease is the increase of a counter. A counter that has become
// smaller was reset by a restart, so all of it is new.
func counterIncrease(before, now float64) float64 {
	if now < before {
		return now
	}
	return now - before
}

func (d metricsDelta) rate(before, now float64) float64 {
	if d.seconds <= 0 {
		return 0
	}
	return counterIncrease(before, now) / d.seconds
}

func (d metricsDelta) scalarRate(name string) float64 {
	return d.rate(d.before.scalars[name], d.now.scalars[name])
}

// routes are those that answered requests since the last snapshot.
func (d metricsDelta) routes() []routeView {
	byRoute := map[string]*routeView{}
	for key, count := range d.now.requests {
		rate := d.rate(d.before.requests[key], count)
		if rate == 0 {
			continue
		}
		one := byRoute[key.route]
		if one == nil {
			one = &routeView{Route: key.route}
			one.P50, one.P99 = d.quantile(key.route, 0.5), d.quantile(key.route, 0.99)
			byRoute[key.route] = one
		}
		one.Rate += rate
		switch key.class {
		case '2':
			one.Rate2xx += rate
		case '3':
			one.Rate3xx += rate
		case '4':
			one.Rate4xx += rate
		case '5':
			one.Rate5xx += rate
		}
	}
	list := []routeView{}
	for _, route := range slices.Sorted(maps.Keys(byRoute)) {
		list = append(list, *byRoute[route])
	}
	slices.SortStableFunc(list, func(a, b routeView) int {
		return cmp.Or(cmp.Compare(monitoringRank(a.Route), monitoringRank(b.Route)), cmp.Compare(b.Rate, a.Rate))
	})
	return list
}

// monitoringRank is 1 for routes that monitor a node, as this view does: they
// say the least about its work.
func monitoringRank(route string) int {
	switch route {
	case "/admin/status", "/metrics", "/readyz", "/healthz":
		return 1
	}
	return 0
}

// quantile is the latency in milliseconds within which a share of the requests
// of a route was answered since the last snapshot, interpolated within its
// bucket. It is nil if there were none.
func (d metricsDelta) quantile(route string, share float64) *float64 {
	before, now := d.before.latency[route], d.now.latency[route]
	wanted := share * counterIncrease(before[math.Inf(1)], now[math.Inf(1)])
	if wanted <= 0 {
		return nil
	}
	lower, below := 0.0, 0.0
	for _, bound := range slices.Sorted(maps.Keys(now)) {
		count := counterIncrease(before[bound], now[bound])
		if count >= wanted {
			if !math.IsInf(bound, 1) && count > below {
				lower += (bound - lower) * (wanted - below) / (count - below)
			}
			break // the last bucket has no upper bound
		}
		lower, below = bound, count
	}
	milliseconds := lower * 1000
	return &milliseconds
}

// queues are all queues, the fullest first.
func (d metricsDelta) queues(all []client.Queue) []queueView {
	list := []queueView{}
	for _, one := range all {
		key := queueKey{one.Service, one.Name}
		list = append(list, queueView{one.Service, one.Name, one.Depth, one.Cap, d.now.dropped[key], d.rate(d.before.dropped[key], d.now.dropped[key])})
	}
	slices.SortStableFunc(list, func(a, b queueView) int {
		return cmp.Or(cmp.Compare(b.fullness(), a.fullness()), cmp.Compare(b.DropRate, a.DropRate), cmp.Compare(b.Dropped, a.Dropped))
	})
	return list
}

// refusals are all that ever occurred, the current ones first.
func (d metricsDelta) refusals() []refusalView {
	list := []refusalView{}
	for key, total := range d.now.refused {
		if total > 0 {
			list = append(list, refusalView{key.service, key.name, total, d.rate(d.before.refused[key], total)})
		}
	}
	slices.SortFunc(list, func(a, b refusalView) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Service, b.Service), cmp.Compare(a.What, b.What))
	})
	return list
}

// fullness is from 0 to 1.
func (q queueView) fullness() float64 {
	if q.Cap <= 0 {
		return 0
	}
	return float64(q.Depth) / float64(q.Cap)
}

// sortServices puts services that do not run, or were restarted, before the
// healthy ones.
func sortServices(all []client.Service) []client.Service {
	list := append([]client.Service{}, all...)
	slices.SortStableFunc(list, func(a, b client.Service) int {
		return cmp.Or(cmp.Compare(troubleRank(b), troubleRank(a)), cmp.Compare(b.Restarts, a.Restarts))
	})
	return list
}

func troubleRank(s client.Service) int {
	switch {
	case s.State != "running" && s.State != "finished":
		return 2
	case s.Restarts > 0:
		return 1
	default:
		return 0
	}
}
