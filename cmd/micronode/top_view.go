package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"micronode/client"
)

// topView is one view of a node: what top shows, and what it prints as JSON.
type topView struct {
	At      time.Time `json:"at"`
	Answers bool      `json:"answers"`
	Error   string    `json:"error,omitempty"` // why it does not
	Next    string    `json:"next,omitempty"`

	*nodeView // nil if it does not answer
}

// nodeView is what a node does. Rates are those of the seconds since the last
// look, of which there is none at first.
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

	Routes   []routeView      `json:"routes"` // the busiest first
	Queues   []queueView      `json:"queues"` // the fullest first
	Sessions sessionsView     `json:"sessions"`
	Store    client.Store     `json:"store"`
	Mailbox  mailboxView      `json:"mailbox"`
	Services []client.Service `json:"services"`        // those in trouble first
	Blind    string           `json:"blind,omitempty"` // why there are no figures
}

// routeView is how many requests of a route were answered in a second, by the
// class of the status, and how long they took. Without a request there is no
// such time.
type routeView struct {
	Route string   `json:"route"`
	Rate  float64  `json:"rate"`
	OK    float64  `json:"rate_2xx"`
	Moved float64  `json:"rate_3xx"`
	Wrong float64  `json:"rate_4xx"`
	Ours  float64  `json:"rate_5xx"`
	P50   *float64 `json:"p50_ms"`
	P99   *float64 `json:"p99_ms"`
}

type queueView struct {
	Service  string  `json:"service"`
	Name     string  `json:"name"`
	Depth    int     `json:"depth"`
	Cap      int     `json:"cap"`
	Dropped  float64 `json:"dropped_total"`
	DropRate float64 `json:"drop_rate"`
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

// compare makes a view of two looks. There may be no earlier one.
func compare(before, now *look) topView {
	if before == nil || before.status.PeerID != now.status.PeerID || before.blind != "" {
		before = nil // what another node has counted says nothing of this one
	}
	seconds := 0.0
	if before != nil {
		seconds = now.at.Sub(before.at).Seconds()
	}
	d := difference{newFigures(), now.figures, seconds}
	if before != nil {
		d.before = before.figures
	}
	s, r := now.status, now.readiness
	return topView{At: now.at, Answers: true, nodeView: &nodeView{
		Seconds: seconds, PeerID: s.PeerID, Version: s.Version, Profile: s.Profile, Amnesia: s.Amnesia,
		Ready: r.Ready, WriteReady: r.WriteReady, Degraded: r.Degraded, Reasons: append([]client.Reason{}, r.Reasons...),
		Routes: d.routes(), Queues: d.queues(s.Queues), Services: troubledFirst(s.Services), Store: s.Store, Blind: now.blind,
		Sessions: sessionsView{now.figures.alone["sessions_active"], d.alone("session_open_total"), d.alone("session_close_total")},
		Mailbox:  mailboxView{now.figures.alone["mailbox_depth"], now.figures.alone["mailbox_bytes"], now.figures.alone["mailbox_dead"]},
	}}
}

// difference is what was counted between two looks.
type difference struct {
	before, now figures
	seconds     float64 // 0 without an earlier look: then all rates are
}

// grown is by how much a counter has grown. One that is smaller than it was
// began anew with its node, so all of it is new.
func grown(before, now float64) float64 {
	if now < before {
		return now
	}
	return now - before
}

func (d difference) rate(before, now float64) float64 {
	if d.seconds <= 0 {
		return 0
	}
	return grown(before, now) / d.seconds
}

func (d difference) alone(name string) float64 {
	return d.rate(d.before.alone[name], d.now.alone[name])
}

// routes are those that answered something since the last look.
func (d difference) routes() []routeView {
	byRoute := map[string]*routeView{}
	for key, count := range d.now.answers {
		rate := d.rate(d.before.answers[key], count)
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
			one.OK += rate
		case '3':
			one.Moved += rate
		case '4':
			one.Wrong += rate
		case '5':
			one.Ours += rate
		}
	}
	list := []routeView{}
	for _, route := range slices.Sorted(maps.Keys(byRoute)) {
		list = append(list, *byRoute[route])
	}
	slices.SortStableFunc(list, func(a, b routeView) int { return cmp.Compare(b.Rate, a.Rate) })
	return list
}

// quantile is the time in milliseconds in which a share of the requests of a
// route was answered since the last look, estimated within its bucket. It is nil
// if there was none.
func (d difference) quantile(route string, share float64) *float64 {
	before, now := d.before.latency[route], d.now.latency[route]
	wanted := share * grown(before[math.Inf(1)], now[math.Inf(1)])
	if wanted <= 0 {
		return nil
	}
	lower, below := 0.0, 0.0
	for _, bound := range slices.Sorted(maps.Keys(now)) {
		count := grown(before[bound], now[bound])
		if count >= wanted {
			if !math.IsInf(bound, 1) && count > below {
				lower += (bound - lower) * (wanted - below) / (count - below)
			}
			break // beyond the last bucket nobody knows how far
		}
		lower, below = bound, count
	}
	milliseconds := lower * 1000
	return &milliseconds
}

// queues are all queues, the fullest first.
func (d difference) queues(all []client.Queue) []queueView {
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

// fullness is from 0 to 1.
func (q queueView) fullness() float64 {
	if q.Cap <= 0 {
		return 0
	}
	return float64(q.Depth) / float64(q.Cap)
}

// troubledFirst puts services that do not run, or were restarted, before those
// of which there is nothing to say.
func troubledFirst(all []client.Service) []client.Service {
	list := append([]client.Service{}, all...)
	slices.SortStableFunc(list, func(a, b client.Service) int {
		return cmp.Or(cmp.Compare(trouble(b), trouble(a)), cmp.Compare(b.Restarts, a.Restarts))
	})
	return list
}

func trouble(s client.Service) int {
	switch {
	case s.State != "running" && s.State != "finished":
		return 2
	case s.Restarts > 0:
		return 1
	default:
		return 0
	}
}
